"""The style and the script of the report page. Both stand in the page itself: nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from idgraph.errors import IdGraphError
from idgraph.index import AccessPicture
from idgraph.reports.collect import accessed_points
from idgraph.reports.model import AccessFacts, OperationFacts, SegmentFacts
from idgraph.reports.to_text import (
    GROUPS,
    Row,
    count_text,
    grouped,
    lanes_text,
    limit_text,
    loaded_rows,
    suggestions_text,
    tuple_text,
)
from idgraph.viz.access_picture import access_svg
from idgraph.viz.picture import xml

_HERE = Path(__file__).resolve().parent
STYLE, SCRIPT = ("\n" + (_HERE / f"report_page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))


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
    return [(f"{anchors[name]} {name}", *more) for name, *more in loaded_rows(s)]


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
