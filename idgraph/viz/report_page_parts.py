"""The style and the script of the report page. Both stand in the page itself: nothing is loaded from elsewhere.

Parts of the report page: cards, tables, folds, and the rows in them. Every text is escaped here.

The pictures of a report's accesses: of those that waste most of what they ask memory for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from idgraph.errors import IdGraphError
from idgraph.index import AccessPicture
from idgraph.reports.collect import accessed_points
from idgraph.reports.model import AccessFacts, OperationFacts, SegmentFacts
from idgraph.reports.to_text import (
    GROUPS,
    bytes_text,
    count_text,
    grouped,
    kernel_cells,
    lanes_text,
    limit_text,
    suggestions_text,
    tuple_text,
)
from idgraph.viz.access_picture import access_svg
from idgraph.viz.picture import xml

STYLE = """
:root { --ink:#1f2430; --dim:#5d6778; --paper:#ffffff; --panel:#f6f7f9; --line:#d9dee7; --link:#2b62a8;
  --red:#c01f2a; --pale-red:#fdeaea; --green:#1a7f37; --amber:#9a5b00; --pale-amber:#fdf1dc; --bar:#3b78b5; }
@media (prefers-color-scheme: dark) { :root:not([data-theme=light]) { --ink:#e4e7ee; --dim:#9aa4b5; --paper:#14171d;
  --panel:#1c2028; --line:#343b48; --link:#83b2ea; --red:#ff8087; --pale-red:#3a1d20; --green:#63c783; --amber:#e5ae57;
  --pale-amber:#33280f; --bar:#4f8fd0; } }
:root[data-theme=dark] { --ink:#e4e7ee; --dim:#9aa4b5; --paper:#14171d; --panel:#1c2028; --line:#343b48;
  --link:#83b2ea; --red:#ff8087; --pale-red:#3a1d20; --green:#63c783; --amber:#e5ae57; --pale-amber:#33280f;
  --bar:#4f8fd0; }
* { box-sizing:border-box; }
html { scroll-padding-top:64px; }
body { margin:0; background:var(--paper); color:var(--ink);
  font:15px/1.5 DejaVu Sans,Verdana,Helvetica,Arial,sans-serif; }
code, .m { font-family:DejaVu Sans Mono,Menlo,Consolas,monospace; font-size:12.5px; overflow-wrap:anywhere; }
a { color:var(--link); text-decoration:none; } a:hover { text-decoration:underline; }
header { position:sticky; top:0; z-index:2; display:flex; flex-wrap:wrap; gap:8px 20px; align-items:center;
  padding:10px 24px; background:var(--panel); border-bottom:1px solid var(--line); }
header h1 { font-size:18px; margin:0; overflow-wrap:anywhere; } header p { margin:0; color:var(--dim); font-size:13px; }
.tools { margin-left:auto; display:flex; gap:8px; flex-wrap:wrap; }
button, input { font:inherit; font-size:13px; color:var(--ink); background:var(--paper); border:1px solid var(--line);
  border-radius:6px; padding:4px 10px; } button { cursor:pointer; } input { width:220px; }
.page { display:grid; grid-template-columns:230px minmax(0,1fr); max-width:1560px; margin:0 auto; }
nav { position:sticky; top:56px; align-self:start; max-height:calc(100vh - 56px); overflow:auto;
  padding:18px 10px 18px 24px;
  font-size:13.5px; } nav ol { list-style:none; margin:0; padding:0; } nav ol ol { padding-left:14px; }
nav a { display:flex; justify-content:space-between; gap:8px; padding:2px 6px; border-radius:4px;
  overflow-wrap:anywhere; }
nav a span { color:var(--dim); } nav a:hover { background:var(--panel); text-decoration:none; }
main { padding:18px 24px 80px; min-width:0; }
h2 { font-size:20px; margin:34px 0 10px; overflow-wrap:anywhere; } h3 { font-size:15.5px; margin:26px 0 8px; }
main > section:first-child h2 { margin-top:0; }
.note { color:var(--dim); font-size:13.5px; margin:4px 0 10px; max-width:85ch; }
.cards { display:grid; grid-template-columns:repeat(auto-fill,minmax(170px,1fr)); gap:10px; }
.card { background:var(--panel); border:1px solid var(--line); border-radius:8px; padding:10px 14px; }
.card b { display:block; font-size:21px; line-height:1.25; font-weight:600; overflow-wrap:anywhere; }
.card small { color:var(--dim); font-size:12.5px; display:block; line-height:1.4; }
.card.bad { background:var(--pale-red); } .card.bad b { color:var(--red); } .card.good b { color:var(--green); }
.wide { overflow-x:auto; border:1px solid var(--line); border-radius:8px; }
table { border-collapse:collapse; width:100%; font-size:13px; }
th { text-align:left; color:var(--dim); font-weight:600; background:var(--panel); }
th, td { padding:5px 10px; border-bottom:1px solid var(--line); vertical-align:top; }
tbody tr:last-child td { border-bottom:0; } td.n, th.n { text-align:right; white-space:nowrap; }
td.m { min-width:9ch; } td .dim, .dim { color:var(--dim); }
details { border:1px solid var(--line); border-radius:8px; margin:8px 0; background:var(--paper); }
summary { cursor:pointer; padding:7px 14px; background:var(--panel); border-radius:8px; display:flex; gap:14px;
  align-items:baseline; flex-wrap:wrap; } details[open] > summary { border-radius:8px 8px 0 0; }
summary::before { content:"\\25B8"; color:var(--dim); } details[open] > summary::before { content:"\\25BE"; }
summary::-webkit-details-marker { display:none; } summary .dim { font-size:12.5px; }
summary .end { margin-left:auto; } .body { padding:10px 14px; }
.op { content-visibility:auto; contain-intrinsic-size:auto 40px; } .op .wide { border:0; border-radius:0; }
.tag { font-size:12px; border-radius:10px; padding:1px 9px; border:1px solid var(--line); white-space:nowrap; }
.tag.red { color:var(--red); background:var(--pale-red); border-color:transparent; }
.tag.amber { color:var(--amber); background:var(--pale-amber); border-color:transparent; }
.tag.green { color:var(--green); }
.figure { overflow:auto; max-height:min(80vh,820px); border:1px solid var(--line); border-radius:8px;
  background:#fff; margin:8px 0; }
.figure svg { display:block; max-width:100%; height:auto; } .figure.full svg { max-width:none; }
:root[data-theme=dark] .figure { background:#141414; }
:root[data-theme=dark] .figure svg { filter:invert(.92) hue-rotate(180deg); }
@media (prefers-color-scheme: dark) { :root:not([data-theme=light]) .figure { background:#141414; }
  :root:not([data-theme=light]) .figure svg { filter:invert(.92) hue-rotate(180deg); } }
.figure + .zoom { float:right; margin:-4px 0 8px 8px; }
.bars { display:grid; grid-template-columns:max-content minmax(60px,1fr) max-content; gap:5px 12px; font-size:13px;
  align-items:center; margin:14px 0; }
.bars i { display:block; height:12px; border-radius:3px; background:var(--bar); min-width:2px; }
.bars i.amber { background:var(--amber); } .bars i.red { background:var(--red); } .bars i.dim { background:var(--dim); }
dl { display:grid; grid-template-columns:max-content minmax(0,1fr); gap:4px 18px; font-size:13.5px; }
dt { font-weight:600; } dd { margin:0; max-width:85ch; } ul.steps { margin:6px 0; padding-left:20px; }
[hidden] { display:none !important; }
@media (max-width:900px) { .page { grid-template-columns:minmax(0,1fr); } nav { position:static; max-height:none; } }
@media print { header { position:static; } nav, .tools, .zoom { display:none; } .page { display:block; } }
"""

SCRIPT = """
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
    var wanted = filter.value.toLowerCase().split(/\\s+/).filter(Boolean), count = 0;
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
"""


Row = tuple[str, ...]


def card(value: object, text: str, mood: str = "") -> str:
    """A number with what it counts."""
    shown = count_text(value) if isinstance(value, int) else str(value)
    return f'<div class="card {mood}"><b>{xml(shown)}</b><small>{xml(text)}</small></div>'


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = (), links: int | None = None
) -> str:
    """A table of text; cells of column ``links`` are "anchor text" where an anchor begins with #."""
    head = "".join(f"<th{_side(n in right)}>{xml(c)}</th>" for n, c in enumerate(columns))
    body: list[str] = []
    for row in rows:
        cells = (
            f'<td class="{"n" if n in right else "m"}">{_linked(c) if n == links else _html_line_breaks(c)}</td>'
            for n, c in enumerate(row)
        )
        body.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def _side(right: bool) -> str:
    return ' class="n"' if right else ""


def _html_line_breaks(text: str) -> str:
    return "<br>".join(map(xml, text.split("\n")))


def _linked(text: str) -> str:
    anchor, _, name = text.partition(" ")
    return f'<a href="{xml(anchor)}">{xml(name)}</a>'


def foldable(
    head: str, body: str, *, anchor: str = "", is_open: bool = False, is_html: bool = False, kind: str = ""
) -> str:
    """A part that folds; ``head`` is text, or markup made here where ``is_html``."""
    named = f' id="{anchor}"' if anchor else ""
    classed = f' class="{kind}"' if kind else ""
    title = head if is_html else f"<b>{xml(head)}</b>"
    start = f"<details{named}{classed}{' open' if is_open else ''}>"
    return f'{start}<summary>{title}</summary><div class="body">{body}</div></details>'


def _anchors(s: SegmentFacts) -> dict[str, str]:
    return {e.name: f"#s{s.number}-op-{n}" for n, e in enumerate(s.operations)}


def findings(s: SegmentFacts) -> list[tuple[str, list[Row]]]:
    """Groups of accesses that are not fully vectorised, each with its title."""
    anchors = _anchors(s)
    return [
        (
            f"{kind}: {GROUPS[kind]}",
            [
                (
                    f"{anchors[name]} {name}",
                    f"{a.kind} {a.tensor}",
                    a.loop,
                    lanes_text(a),
                    count_text(a.points),
                    a.why,
                    suggestions_text(a),
                )
                for name, a in rows
            ],
        )
        for kind, rows in grouped(s).items()
    ]


def loaded(s: SegmentFacts) -> list[Row]:
    """Accesses at loaded indices."""
    anchors = _anchors(s)
    return [
        (
            f"{anchors[e.name]} {e.name}",
            f"{a.kind} {a.tensor}",
            tuple_text(a.coordinates),
            "\n".join(f"{x.name} = {x.tensor}[{', '.join(x.coordinates)}]" for x in a.loads),
            "\n".join(a.bounds),
        )
        for e in s.operations
        for a in e.accesses
        if a.loads
    ]


def memory(s: SegmentFacts) -> list[Row]:
    """Bytes of each tensor, inputs and outputs first."""
    order = ("input", "output", "intermediate")
    return [
        (t.tensor, t.role, bytes_text(t.size), bytes_text(t.read, t.exact), bytes_text(t.written, t.exact), t.why)
        for t in sorted(s.traffic, key=lambda t: order.index(t.role))
    ]


def kernels(s: SegmentFacts) -> list[Row]:
    """The kernels as emitted: what they make, bytes, times, why they begin."""
    return [kernel_cells(k) for k in s.kernels]


def accesses_of(e: OperationFacts) -> str:
    """The index map of one operation."""
    columns = ("access", "tensor", "coordinates", "address", "when", "lanes", "along", "bits", "why no more")
    return table(columns, (_access(a) for a in e.accesses), right=(7,))


def _access(a: AccessFacts) -> Row:
    when = "" if a.predicate == "True" else a.predicate
    along = a.loop if a.contiguous else f"{a.loop} (contiguous along {', '.join(a.contiguous_along) or 'no loop'})"
    shape = f"{a.tensor}\n{a.dtype}{tuple_text(a.shape)}"
    return (
        a.kind, shape, tuple_text(a.coordinates), a.where, when, f"{a.pattern}\n{lanes_text(a)}", along,
        str(a.index_bits), limit_text(a),
    )  # fmt: skip


LOOKED_AT, SHOWN = 12, 3  # accesses of a segment: enumerated, and drawn
_STORED = ("input", "output", "global", "shared")


Drawn = list[tuple[str, AccessPicture]]  # with the operations


def access_pictures(s: SegmentFacts) -> Drawn:
    """(operation, picture) of the accesses of memory with the most bytes asked for and not used."""
    rows = [(e.name, a) for e in s.operations for a in e.accesses if a.place in _STORED and a.access is not None]
    rows.sort(key=lambda row: (row[1].pattern in ("contiguous", "one element"), -accessed_points(row[1])))
    found: list[tuple[int, str, AccessPicture]] = []
    for name, a in rows[:LOOKED_AT]:
        picture = _picture(a)
        if picture is not None:
            wasted = sum(w.sectors - w.least for w in picture.warps)
            conflict = picture.conflicts.ways if picture.conflicts is not None else 1
            found.append((-max(wasted, 32 * (conflict - 1)), name, picture))
    found.sort(key=lambda row: row[0])
    return [(name, picture) for _, name, picture in found[:SHOWN]]


def _picture(a: AccessFacts) -> AccessPicture | None:
    """None where the fusion has symbols or loaded indices, whose numbers a report does not know."""
    if a.access is None:
        return None
    try:
        return a.access.picture(warps=1)
    except IdGraphError:
        return None


def picture_section(s: SegmentFacts, found: Drawn) -> str:
    """The section of a segment, empty where no access can be drawn."""
    if not found:
        return ""
    note = (
        "One step of the loops: which thread (or step) touches which address. Accesses that ask memory for the most "
        "bytes that nobody uses come first; a.picture() draws any other."
    )
    parts = [f'<h3 id="s{s.number}-access">Access pictures</h3><p class="note">{note}</p>']
    for n, (name, p) in enumerate(found):
        told = "; ".join(p.facts()[:1])
        head = f'<b class="m">{xml(name)}</b><span>{xml(p.title())}</span><span class="dim end">{xml(told)}</span>'
        parts.append(foldable(head, f'<div class="figure">{access_svg(p)}</div>', is_open=n == 0, is_html=True))
    return "\n".join(parts)
