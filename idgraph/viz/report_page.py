"""A report as one HTML page: an index, pictures, cycles, what is not vectorised and why, every access, light and dark.

The page is self-contained and says so to the browser: its content security policy lets nothing be loaded and no other
script run than the one whose hash it names. All names are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.errors import IdGraphError
from idgraph.ir import Fusion
from idgraph.reports.model import CycleFacts, SegmentFacts
from idgraph.reports.program_report import IndexReport
from idgraph.reports.to_json import totals
from idgraph.reports.to_text import (
    bytes_text,
    call_rows,
    coverage_rows,
    cycle_text,
    kernel_cells,
    place,
    places,
    share,
    touches,
    traffic_rows,
)
from idgraph.runtime import emit
from idgraph.viz.draw import to_svg
from idgraph.viz.explorer import START, place_of, policy, script, style
from idgraph.viz.explorer.data import Data, explorer_data
from idgraph.viz.picture import xml
from idgraph.viz.report_page_parts import (
    SCRIPT,
    STYLE,
    Drawn,
    access_pictures,
    accesses_of,
    card,
    findings,
    foldable,
    loaded,
    picture_section,
    table,
)

WIDE = 1900  # units of a picture beyond which its text is too small when it is fitted to the page
Entry = tuple[str, str, str]  # anchor, text, count


def to_html(what: object) -> str:
    """The page of a report; raises `IdGraphError` for anything else."""
    if not isinstance(what, IndexReport):
        raise IdGraphError(f"there is no page of a {type(what).__name__}", hint="ig.report(fusion).to_html()")
    return report_page(what)


def report_page(r: IndexReport) -> str:
    """The whole document.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("<script>", shape=(64,))[1:])
    >>> page = report_page(ig.report(f))
    >>> page.startswith("<!DOCTYPE html>"), page.count("<script>"), "&lt;script&gt;" in page
    (True, 1, True)
    """
    code = f"{script()}\n{SCRIPT}{START}"
    drawn = {s.number: access_pictures(s) for s in r.segments}
    sections = [_overview(r)]
    for s in r.segments:
        sections.append(_segment(r, s, drawn[s.number]))
    if r.mapped or r.opaque:
        sections.append(_coverage(r))
    sections.append(_reading())
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            policy(code),
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{xml(r.name)} - index report</title><style>{STYLE}{style()}</style></head><body>",
            _header(r),
            f'<div class="page"><nav aria-label="Contents">{_contents(r, drawn)}</nav><main>',
            *sections,
            f"</main></div><script>{code}</script></body></html>\n",
        ]
    )


def _header(r: IndexReport) -> str:
    return (
        f"<header><h1>{xml(r.name)}</h1><p>index report, scheduled {xml(r.schedule)}</p>"
        '<div class="tools"><span id="shown" class="dim"></span>'
        '<input id="filter" type="search" placeholder="filter operations" aria-label="filter operations">'
        '<button id="unfold" type="button">unfold all</button><button id="fold" type="button">fold all</button>'
        '<button id="theme" type="button">dark</button></div></header>'
    )


def _section_entries(s: SegmentFacts, drawn: Drawn) -> list[Entry]:
    """The parts of a segment that have something in them."""
    slow = sum(len(rows) for _, rows in findings(s))
    data = sum(a.data_dependent for a in s.accesses)
    found = [
        ("cycles", "cycles", len(s.cycles)),
        ("self", "mapped onto itself", len(s.self_mappings)),
        ("lanes", "not vectorised", slow),
        ("access", "access pictures", len(drawn)),
        ("loads", "data-dependent", data),
        ("kernels", "kernels", len(s.kernels)),
        ("memory", "memory", len(s.traffic)),
        ("operations", "operations", len(s.operations)),
        ("calls", "opaque calls", len(s.calls)),
    ]
    picture = [(f"s{s.number}-picture", "picture", "")] if s.operations else []
    return [*picture, *((f"s{s.number}-{key}", text, str(n)) for key, text, n in found if n)]


def _contents(r: IndexReport, drawn: dict[int, Drawn]) -> str:
    items = ['<li><a href="#overview">Overview</a></li>']
    for s in r.segments:
        inner = "".join(
            f'<li><a href="#{a}">{text}<span>{n}</span></a></li>' for a, text, n in _section_entries(s, drawn[s.number])
        )
        items.append(f'<li><a href="#s{s.number}">{xml(_title(r, s))}</a><ol>{inner}</ol></li>')
    if r.mapped or r.opaque:
        items.append('<li><a href="#imported">Imported operations</a></li>')
    items.append('<li><a href="#reading">How to read this</a></li>')
    return f"<ol>{''.join(items)}</ol>"


def _title(r: IndexReport, s: SegmentFacts) -> str:
    if len(r.segments) == 1:
        return s.name
    return f"Segment {s.number}: {s.name}" if s.operations else f"Segment {s.number}: opaque calls"


def _overview(r: IndexReport) -> str:
    t, n = totals(r), len(r.memory_accesses)
    changing = sum(c.changes_index for c in r.cycles)
    cards = [
        card(t["operations"], f"operations in {len(r.segments)} segment{'s' * (len(r.segments) != 1)}"),
        card(n, "accesses of memory, each with its index map"),
        card(
            changing,
            f"of {len(r.cycles)} cycles change an index; {len(r.resize_cycles)} have a resize on them",
            "bad" if changing else "good",
        ),
        card(len(r.kernels), f"kernels: {r.kernels}"),
        card(share(len(r.contiguous), n), "contiguous along their lanes"),
        card(share(len(r.vectorisable), n), "vectorisable, proved"),
        card(len(r.data_dependent), "data-dependent accesses"),
        card(bytes_text(r.bytes_read, r.exact), "read: elements of inputs, for each kernel"),
        card(bytes_text(r.bytes_written), "written to outputs"),
        card(bytes_text(r.bytes_between, r.exact), "between operations; inlining saves it"),
        card(len(r.calls), "opaque calls, run as the reference", "bad" if r.calls else ""),
    ]
    return f'<section id="overview"><h2>Overview</h2><div class="cards">{"".join(cards)}</div>{_patterns(r)}</section>'


_PATTERNS = (
    ("contiguous", "contiguous", ""),
    ("one element", "one element", "dim"),
    ("same element", "same element at every step", "dim"),
    ("strided", "strided", "amber"),
    ("irregular", "irregular", "red"),
    ("data-dependent", "data-dependent lanes", "red"),
)


def _patterns(r: IndexReport) -> str:
    """How the lanes of all accesses move, as bars."""
    count = {key: sum(a.pattern == key for a in r.accesses) for key, _, _ in _PATTERNS}
    most = max(count.values(), default=0) or 1
    rows = "".join(
        f'<span>{text}</span><i class="{colour}" style="width:{100 * count[key] / most:.1f}%"></i>'
        f"<span>{count[key]}</span>"
        for key, text, colour in _PATTERNS
        if count[key]
    )
    return f'<div class="bars" role="img" aria-label="accesses by the step of their lanes">{rows}</div>' if rows else ""


def _segment(r: IndexReport, s: SegmentFacts, drawn: Drawn) -> str:
    at = f"s{s.number}"
    parts = [f'<section id="{at}"><h2>{xml(_title(r, s))}</h2>']
    if s.tensors:
        parts.append(_tensors(s))
    if s.fusion is not None and s.operations:
        parts.append(f'<h3 id="{at}-picture">Picture</h3>{place_of(_explorer(s.fusion, s), at)}')
    if s.cycles:
        parts.append(_cycles(s))
    if s.self_mappings:
        rows = ((m.tensor, m.first, m.second, m.reason) for m in s.self_mappings)
        body = table(("tensor", "axis", "axis", "because"), rows)
        title = f"{len(s.self_mappings)} pairs of axes of one tensor are the same in the exact graph"
        parts.append(f'<h3 id="{at}-self">Mapped onto itself</h3>{foldable(title, body)}')
    parts += [_widths_section(s), picture_section(s, drawn), _loads(s), _kernels(s), _memory(s), _operations(s)]
    if s.calls:
        body = table(("result", "operation", "because", "line"), call_rows(s))
        parts.append(f'<h3 id="{at}-calls">Opaque calls</h3>{body}')
    return "\n".join([*parts, "</section>"])


def _explorer(fusion: Fusion, s: SegmentFacts) -> Data:
    """The segment to walk through, with its kernels where `emit` makes some."""
    try:
        program = emit(fusion, "cuda")
    except IdGraphError:
        program = None
    return explorer_data(fusion, s, program)


def _tensors(s: SegmentFacts) -> str:
    rows = (
        (t.name, t.role, f"{t.dtype}({', '.join(map(str, t.shape))})", _strides(t.strides), place(t.line))
        for t in s.tensors
    )
    content = table(("tensor", "role", "shape", "strides", "line"), rows)
    return foldable(f"{len(s.tensors)} inputs and outputs", content, is_open=len(s.tensors) <= 12)


def _strides(strides: Sequence[int | str] | None) -> str:
    return "row-major" if strides is None else f"({', '.join(map(str, strides))})"


def _figure(what: object) -> str:
    """A picture with a button; one that would be too small to read at the width of the page is shown in full size."""
    svg = to_svg(what)
    width = float(svg.partition('width="')[2].partition('"')[0])
    wide = width > WIDE
    label = "fit the width" if wide else "full size"
    button = f'<button class="zoom" type="button">{label}</button>' if width > WIDE / 2 else ""
    return f'<div class="figure{" full" if wide else ""}">{svg}</div>{button}'


def _cycles(s: SegmentFacts) -> str:
    order = sorted(s.cycles, key=lambda c: not c.changes_index)
    changing = sum(c.changes_index for c in order)
    note = (
        "Ways around in the exact graph. One that changes the index makes a search over that graph return wrong "
        "coordinates; the index graph, which this report is computed from, has no such way."
    )
    parts = [f'<h3 id="s{s.number}-cycles">Cycles</h3><p class="note">{note}</p>']
    for n, c in enumerate(order):
        parts.append(_cycle(f"s{s.number}-cycle{n}", c, is_open=n < 2 and c.changes_index and changing < 5))
    return "\n".join(parts)


def _cycle(anchor: str, c: CycleFacts, *, is_open: bool) -> str:
    tag = (
        '<span class="tag red">changes the index</span>'
        if c.changes_index
        else '<span class="tag green">harmless</span>'
    )
    resize = '<span class="tag amber">resize</span>' if c.resizes else ""
    lines = "".join(f"<li><code>{xml(str(x))}</code></li>" for x in c.lines)
    closed = f"<p>Closed by <code>{xml(c.closed_by)}</code> {_closing_line(c)}</p>" if c.closed_by else ""
    steps = "".join(f"<li><code>{xml(x)}</code></li>" for x in c.steps)
    picture = "" if c.cycle is None else _figure(c.cycle)
    body = (
        f'<p class="note">{xml(c.consequence)}</p>{picture}<p>Around:</p><ul class="steps">{steps}</ul>{closed}'
        f'<p>Lines:</p><ul class="steps">{lines or "<li>not known</li>"}</ul>'
    )
    head = f'<b>{xml(cycle_text(c))}</b>{tag}{resize}<span class="dim end">{xml(places(c.lines))}</span>'
    return foldable(head, body, anchor=anchor, is_open=is_open, is_html=True)


def _closing_line(c: CycleFacts) -> str:
    return "" if c.closing_line is None else f"at <code>{xml(str(c.closing_line))}</code>"


def _widths_section(s: SegmentFacts) -> str:
    found = findings(s)
    if not found:
        return ""
    note = (
        "Accesses that do not move 16 bytes at once, the ones with most points first; the operation links to its "
        "loops. Each change on the right was tried on a copy of the program; an empty cell was not asked about."
    )
    parts = [f'<h3 id="s{s.number}-lanes">Not fully vectorised</h3><p class="note">{note}</p>']
    for n, (title, rows) in enumerate(found):
        columns = ("operation", "access", "lanes along", "now", "points", "because", "would allow more elements")
        body = table(columns, rows, right=(4,), links=0)
        parts.append(foldable(f"{title}: {len(rows)}", body, is_open=n == 0 and len(rows) <= 20))
    return "\n".join(parts)


def _loads(s: SegmentFacts) -> str:
    rows = loaded(s)
    if not rows:
        return ""
    columns = ("operation", "access", "coordinates", "loaded values", "must hold")
    note = "Where these go depends on values. The conditions must hold for every loaded value; checked runs test them."
    return (
        f'<h3 id="s{s.number}-loads">Data-dependent accesses</h3><p class="note">{note}</p>'
        f"{table(columns, rows, links=0)}"
    )


def _kernels(s: SegmentFacts) -> str:
    if s.refused:
        return f'<p class="note">No kernels were made, so bytes are not known: {xml(s.refused)}</p>'
    if not s.kernels:
        return ""
    columns = ("kernel", "makes", "read", "written", "estimated us", "measured us", "bound by", "begins because")
    parts = [
        f'<h3 id="s{s.number}-kernels">Kernels</h3>',
        table(columns, map(kernel_cells, s.kernels), right=(2, 3, 4, 5)),
    ]
    for k in s.kernels:
        body = f"<pre>{xml(k.source)}</pre>" + table(("touches",), [(x,) for x in touches(k)])
        parts.append(foldable(f"{k.name}: source and accesses", body))
    return "".join(parts)


def _memory(s: SegmentFacts) -> str:
    if not s.traffic:
        return ""
    totals_ = (
        f"{bytes_text(s.bytes_read, s.exact)} read, {bytes_text(s.bytes_written)} written, "
        f"{bytes_text(s.bytes_between, s.exact)} between operations"
    )
    rows = traffic_rows(s)
    body = table(("tensor", "role", "size", "read", "written", "note"), rows, right=(2, 3, 4))
    return f'<h3 id="s{s.number}-memory">Memory</h3>' + foldable(totals_, body, is_open=len(rows) <= 12)


def _operations(s: SegmentFacts) -> str:
    if not s.operations:
        return ""
    parts = [f'<h3 id="s{s.number}-operations">Operations</h3>']
    for n, e in enumerate(s.operations):
        loops = ", ".join(
            f"{x.name} &lt; {xml(str(x.extent))}" + (f" {xml(x.parallel)}" if x.parallel != "serial" else "")
            for x in e.loops
        )
        tag = '<span class="tag">inlined</span>' if e.inlined_at else ""
        moved = [a for a in e.accesses if a.pattern not in ("one element", "same element")]
        lanes = "" if all(a.limit == "widest" for a in moved) else '<span class="tag amber">not fully vectorised</span>'
        data = '<span class="tag red">data-dependent</span>' if any(a.loads for a in e.accesses) else ""
        head = (
            f'<b class="m">{xml(e.name)}</b><span class="m">{xml(e.op)}</span>'
            f'<span class="m dim">{loops or "once"}</span>{tag}{lanes}{data}'
            f'<span class="dim end">{xml(place(e.line))}</span>'
        )
        source = f"<p><code>{xml(e.line.code)}</code></p>" if e.line is not None and e.line.code else ""
        body = f"{source}<p><code>{xml(e.text)}</code></p>{accesses_of(e)}"
        parts.append(foldable(head, body, anchor=f"s{s.number}-op-{n}", is_open=False, is_html=True, kind="op"))
    return "\n".join(parts)


def _coverage(r: IndexReport) -> str:
    calls = sum(r.mapped.values())
    body = table(("operation", "calls", "opaque because"), coverage_rows(r), right=(1,))
    title = f"{calls} calls mapped, {len(r.opaque)} operations opaque"
    part = foldable(title, body, is_open=bool(r.opaque))
    return f'<section id="imported"><h2>Imported operations</h2>{part}</section>'


_WORDS: tuple[tuple[str, str], ...] = (
    ("i0, i1, ...", "the loops of an operation, outermost first; every operation counts its own"),
    ("coordinates", "the element of the tensor that is touched, one for each axis of its shape"),
    ("address", "elements from the start of the tensor's buffer"),
    ("when", "the predicate of the access; empty: always"),
    ("lanes", "the vectorised loop, else the innermost with more than one step: its steps are neighbouring lanes"),
    ("contiguous", "neighbouring lanes touch neighbouring elements"),
    ("vectorisable", "an aligned access of several elements is proved legal: consecutive, aligned, all or none of it"),
    ("bytes read", "distinct elements of the inputs that some operation reads; each counted once"),
    ("between operations", "intermediates that are stored: written once and read again"),
    ("c, side7", "the coordinate before a round of a cycle, and that of an axis which joins it from the side"),
    ("resize", "a slice, pad, cat, roll or stride: the coordinate of an element changes on the way"),
    ("ld1", "a loaded value: operand 1 of the operation, at the coordinates given"),
)


def _reading() -> str:
    rows = "".join(f"<dt>{xml(a)}</dt><dd>{xml(b)}</dd>" for a, b in _WORDS)
    return f'<section id="reading"><h2>How to read this</h2><dl>{rows}</dl></section>'
