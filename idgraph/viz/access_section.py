"""The pictures of a report's accesses: of those that waste most of what they ask memory for."""

from __future__ import annotations

from idgraph.errors import IdGraphError
from idgraph.index import AccessPicture
from idgraph.reports.facts import AccessFacts, SegmentFacts
from idgraph.viz.access import access_svg
from idgraph.viz.labels import xml
from idgraph.viz.page_parts import foldable

LOOKED_AT, SHOWN = 12, 3  # accesses of a segment: enumerated, and drawn
_STORED = ("input", "output", "global", "shared")


Drawn = list[tuple[str, AccessPicture]]  # with the operations


def access_pictures(s: SegmentFacts) -> Drawn:
    """(operation, picture) of the accesses of memory with the most bytes asked for and not used."""
    rows = [(e.name, a) for e in s.operations for a in e.accesses if a.place in _STORED and a.access is not None]
    rows.sort(key=lambda row: (row[1].pattern in ("contiguous", "one element"), -_points(row[1])))
    found: list[tuple[int, str, AccessPicture]] = []
    for name, a in rows[:LOOKED_AT]:
        picture = _picture(a)
        if picture is not None:
            wasted = sum(w.sectors - w.least for w in picture.warps)
            conflict = picture.conflicts.ways if picture.conflicts is not None else 1
            found.append((-max(wasted, 32 * (conflict - 1)), name, picture))
    found.sort(key=lambda row: row[0])
    return [(name, picture) for _, name, picture in found[:SHOWN]]


def _points(a: AccessFacts) -> int:
    return a.points if isinstance(a.points, int) else 0


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
