// A button on each block of code copies it, without prompts and without what they print.
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "copy";
    button.addEventListener("click", async () => {
      const lines = block.querySelector("pre").textContent.replace(/\n$/, "").split("\n");
      const typed = lines.filter((l) => /^(>>>|\.\.\.)( |$)/.test(l)).map((l) => l.slice(4));
      await navigator.clipboard.writeText((typed.length ? typed : lines).join("\n"));
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
    block.append(button);
  }
});
