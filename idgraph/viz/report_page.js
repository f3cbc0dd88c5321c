(function () {
  "use strict";
  var root = document.documentElement;
  function all(selector) { return Array.prototype.slice.call(document.querySelectorAll(selector)); }
  function dark() {
    var set = root.getAttribute("data-theme");
    return set ? set === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
  }
  var theme = document.getElementById("theme");
  function name() { theme.textContent = dark() ? "light" : "dark"; }
  theme.addEventListener("click", function () { root.setAttribute("data-theme", dark() ? "light" : "dark"); name(); });
  name();
  function unfold(open) { all("main details").forEach(function (d) { if (!d.hidden) d.open = open; }); }
  document.getElementById("unfold").addEventListener("click", function () { unfold(true); });
  document.getElementById("fold").addEventListener("click", function () { unfold(false); });
  all(".zoom").forEach(function (b) {
    b.addEventListener("click", function () {
      var full = b.previousElementSibling.classList.toggle("full");
      b.textContent = full ? "fit the width" : "full size";
    });
  });
  var filter = document.getElementById("filter"), shown = document.getElementById("shown");
  filter.addEventListener("input", function () {
    var wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean), count = 0;
    all(".op").forEach(function (d) {
      var text = d.textContent.toLowerCase();
      var keep = wanted.every(function (w) { return text.indexOf(w) >= 0; });
      d.hidden = !keep;
      if (keep) count += 1;
    });
    shown.textContent = wanted.length ? count + " operations" : "";
  });
  function jump() {
    var at = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!at) return;
    for (var d = at.closest("details"); d; d = d.parentElement.closest("details")) d.open = true;
    at.hidden = false;
    at.scrollIntoView();
  }
  window.addEventListener("hashchange", jump);
  jump();
})();
