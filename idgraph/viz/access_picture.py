"""An access picture as SVG: what each thread touches, the tile of the tensor with its threads, and memory by sectors.

Layouts of threads and values are drawn as CuTe draws them: ``T3 V1`` is value 1 of thread 3, a colour for each lane.
"""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from idgraph.index import AccessPicture, ElementAccess
from idgraph.ir import item_size
from idgraph.viz.picture import DIM, INK, LINE, PLAIN, RED, SANS, cells, clip, document, label, px, wrapped, xml_lines

LEFT, GUTTER, CELL, MARGIN = 86.0, 34.0, 34.0, 22.0
WIDTH = 32 * CELL
COLOURS = 32
HIGH = 22.0
VALUES, ROWS, COLUMNS = 16, 32, 32  # rows of values, of memory and of the tile, and columns of the tile, at most
EMPTY, EDGE = PLAIN[0], "#c9d0db"


def lane_colour(lane: int) -> str:
    """The colour of a lane: once around the rainbow in 32 steps, light enough to write on.

    >>> lane_colour(0) != lane_colour(16), lane_colour(0) == lane_colour(32)
    (True, True)
    """
    red, green, blue = colorsys.hls_to_rgb((0.58 + 0.85 * (lane % COLOURS) / COLOURS) % 1, 0.82, 0.62)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


@dataclass(slots=True)
class _Sheet:
    """Marks so far, and how far down they reach."""

    parts: list[str] = field(default_factory=list[str])
    y: float = MARGIN

    def text(self, text: str, *, size: float = 12, fill: str = INK, weight: str = "normal", below: float = 17) -> None:
        """A line of its own, wrapped to the width of the sheet."""
        for row in wrapped(text, int((LEFT + WIDTH) / (size * 0.58))):
            self.parts.append(label(row, MARGIN, self.y + size, size=size, fill=fill, weight=weight, family=SANS))
            self.y += below

    def head(self, text: str) -> None:
        """The title of a panel."""
        self.y += 12
        self.text(text, size=13, weight="bold", below=20)

    def left(self, text: str, y: float) -> None:
        """The text in front of a row."""
        self.parts.append(label(clip(text, 12), MARGIN + LEFT - 10, y + 15, size=10.5, fill=DIM, anchor="end"))

    def fold(self, text: str) -> None:
        """A row that stands for several."""
        self.parts.append(label(f"⋮ {text}", MARGIN + LEFT, self.y + 13, size=11, fill=DIM, family=SANS))
        self.y += 19


def access_svg(picture: AccessPicture) -> str:
    """The whole document, as text."""
    sheet = _Sheet()
    sheet.text(picture.title(), size=15, weight="bold", below=21)
    for fact in picture.facts():
        sheet.text(fact, fill=RED if "-way" in fact or " would hold" in fact else DIM)
    _threads(sheet, picture)
    _tile(sheet, picture)
    if picture.before is not None:
        before = replace(picture.before, shown=picture.shown)
        _memory(sheet, before, "without the swizzle: " + "; ".join(before.facts()[: before.shown]))
        _memory(sheet, picture, "with the swizzle")
    else:
        _memory(sheet, picture, "")
    _legend(sheet, picture)
    width = MARGIN + LEFT + WIDTH + GUTTER
    return document(picture.title(), " ".join(picture.facts()), (width, sheet.y + MARGIN), sheet.parts)


def _who(p: AccessPicture, t: ElementAccess, *, valued: bool) -> str:
    thread = f"T{t.thread}" if p.threaded else ""
    return f"{thread} V{t.value}".strip() if valued or not thread else thread


def _lane(p: AccessPicture, t: ElementAccess) -> int:
    return t.thread if p.threaded else t.value


def _tooltip(p: AccessPicture, t: ElementAccess) -> str:
    """The tooltip of a touch."""
    a = p.access
    point = ", ".join(f"{k}={v}" for k, v in t.point.items())
    where = ", ".join(map(str, t.coordinates))
    size = item_size(a.tensor.dtype)
    if not t.happens:
        return f"{_who(p, t, valued=True)} at {point}: masked, as not {a.predicate}"
    return (
        f"{_who(p, t, valued=True)} at {point}\n{a.tensor.name}[{where}], address {t.address}, byte {t.address * size}"
    )


def _draw_cell(
    at: tuple[float, float], wide: float, text: str, told: str, fill: str, *, hot: bool = False, high: float = HIGH
) -> str:
    x, y = at
    stroke, weight = (RED, 2) if hot else (EDGE if fill == EMPTY else LINE, 0.6)
    size = next((s for s in (10.5, 9.0, 7.5) if cells(text) * s * 0.62 <= wide - 2), 0.0)
    inner = label(text, x + wide / 2, y + high / 2 + size * 0.36, size=size, anchor="middle") if size and text else ""
    return (
        f'<g><title>{xml_lines(told)}</title><rect x="{px(x)}" y="{px(y)}" width="{px(wide)}" height="{px(high)}" '
        f'fill="{fill}" stroke="{stroke}" stroke-width="{weight:g}"/>{inner}</g>'
    )


def _masked(at: tuple[float, float], wide: float, told: str) -> str:
    x, y = at
    cross = f"M {px(x + 3)} {px(y + 3)} L {px(x + wide - 3)} {px(y + HIGH - 3)} M {px(x + wide - 3)} {px(y + 3)} "
    cross += f"L {px(x + 3)} {px(y + HIGH - 3)}"
    return (
        f'<g><title>{xml_lines(told)}</title><rect x="{px(x)}" y="{px(y)}" width="{px(wide)}" height="{px(HIGH)}" '
        f'fill="#e6e8ec" stroke="{LINE}" stroke-width="0.6"/><path d="{cross}" stroke="#9aa3b2"/></g>'
    )


# what each thread touches ---------------------------------------------------------------------------------------------


def _threads(sheet: _Sheet, p: AccessPicture) -> None:
    """A column for each lane, a row for each value: the addresses."""
    drawn = p.drawn()
    live = [t.address for t in drawn if t.happens]
    base = min(live) if live and max(live) >= 100_000 else 0
    plus = f", each + {base}" if base else ""
    held = f"; values V0, V1, ... run over {', '.join(p.values)}" if p.values else ""
    sheet.head(f"What each {'thread' if p.threaded else 'step'} touches: addresses in elements{plus}{held}")
    if p.threaded:
        warp = p.device.warp
        for w in range(p.shown):
            mine = {(t.thread % warp, t.value): t for t in drawn if t.thread // warp == w}
            _grid(sheet, p, mine, base, f"warp {w}", [f"T{w * warp + n}" for n in range(warp)])
    else:
        mine = {(t.value % 32, t.value // 32): t for t in drawn}
        _grid(sheet, p, mine, base, "step", [str(n) for n in range(min(32, len(drawn)))], step=32)


def _grid(
    sheet: _Sheet,
    p: AccessPicture,
    mine: Mapping[tuple[int, int], ElementAccess],
    base: int,
    name: str,
    heads: Sequence[str],
    *,
    step: int = 1,
) -> None:
    last = max((column for column, _ in mine), default=-1)
    sheet.left(name, sheet.y - 2)
    for n, text in enumerate(heads[: last + 1]):
        x = MARGIN + LEFT + n * CELL + CELL / 2
        sheet.parts.append(label(text, x, sheet.y + 12, size=9, fill=DIM, anchor="middle"))
    sheet.y += 17
    rows = sorted({row for _, row in mine})
    for row in rows[:VALUES]:
        if len(rows) > 1:
            sheet.left(f"V{row}" if step == 1 else f"+ {row * step}", sheet.y)
        for column in range(last + 1):
            t = mine.get((column, row))
            at = (MARGIN + LEFT + column * CELL, sheet.y)
            if t is None:
                continue
            if t.happens:
                hot = (t.thread, t.value) in p.hot
                sheet.parts.append(
                    _draw_cell(at, CELL, str(t.address - base), _tooltip(p, t), lane_colour(_lane(p, t)), hot=hot)
                )
            else:
                sheet.parts.append(_masked(at, CELL, _tooltip(p, t)))
        sheet.y += HIGH
    if len(rows) > VALUES:
        sheet.fold(f"{len(rows) - VALUES} more values of each {'thread' if p.threaded else 'row'}")
    sheet.y += 6


# the tile of the tensor -----------------------------------------------------------------------------------------------


def _tile(sheet: _Sheet, p: AccessPicture) -> None:
    """The threads that touch each element, by the two innermost coordinates that vary; nothing where fewer do."""
    live = [t for t in p.drawn() if t.happens]
    rank = len(live[0].coordinates) if live else 0
    axes = [n for n in range(rank) if len({t.coordinates[n] for t in live}) > 1]
    if len(axes) < 2:
        return
    down, across = axes[-2:]
    others = {n: min(t.coordinates[n] for t in live) for n in axes[:-2]}
    here = [t for t in live if all(t.coordinates[n] == v for n, v in others.items())]
    at: dict[tuple[int, int], list[ElementAccess]] = {}
    for t in here:
        at.setdefault((t.coordinates[down], t.coordinates[across]), []).append(t)
    top, first = min(r for r, _ in at), min(c for _, c in at)
    rows, columns = max(r for r, _ in at) - top + 1, max(c for _, c in at) - first + 1
    fixed = "".join(f", axis {n} at {v}" for n, v in others.items())
    name = p.access.tensor.name
    sheet.head(f"Who touches each element of {name}: axis {down} down, axis {across} across{fixed}")
    _draw_columns(sheet, first, min(columns, COLUMNS))
    valued = len({t.value for t in here}) > 1
    for r in range(min(rows, ROWS)):
        sheet.left(str(top + r), sheet.y)
        for c in range(min(columns, COLUMNS)):
            sheet.parts.append(_element(sheet, p, at.get((top + r, first + c), []), c, valued=valued))
        sheet.y += HIGH
    limits = ((rows, ROWS, "row"), (columns, COLUMNS, "column"))
    cut = [f"{n - most} more {what}{'s' * (n - most > 1)}" for n, most, what in limits if n > most]
    if cut:
        sheet.fold(" and ".join(cut))


def _draw_columns(sheet: _Sheet, first: int, count: int) -> None:
    for c in range(count):
        x = MARGIN + LEFT + (c + 0.5) * CELL
        sheet.parts.append(label(str(first + c), x, sheet.y + 12, size=9, fill=DIM, anchor="middle"))
    sheet.y += 17


def _element(sheet: _Sheet, p: AccessPicture, who: Sequence[ElementAccess], column: int, *, valued: bool) -> str:
    at = (MARGIN + LEFT + column * CELL, sheet.y)
    if not who:
        return _draw_cell(at, CELL, "", "not touched", EMPTY)
    return _draw_cell(at, CELL, _names(p, who, valued=valued), _everyone(p, who), lane_colour(_lane(p, who[0])))


def _names(p: AccessPicture, who: Sequence[ElementAccess], *, valued: bool) -> str:
    more = f"+{len(who) - 1}" if len(who) > 1 else ""
    return _who(p, who[0], valued=valued).replace(" ", "") + more


def _everyone(p: AccessPicture, who: Sequence[ElementAccess]) -> str:
    told = [_tooltip(p, t) for t in who[:6]]
    return "\n".join([*told, f"and {len(who) - 6} more"] if len(who) > 6 else told)


# memory ---------------------------------------------------------------------------------------------------------------


def _memory(sheet: _Sheet, p: AccessPicture, what: str) -> None:
    """Bytes of the buffer in rows; a frame around each sector (or bank) that is asked for."""
    banked = p.access.buffer.place == "shared" and p.threaded
    size = item_size(p.access.tensor.dtype)
    row_bytes = p.device.bank_row if banked else max(32 * size, p.unit)
    at: dict[int, list[ElementAccess]] = {}
    for t in p.drawn():
        if t.happens:
            at.setdefault(t.address, []).append(t)
    moved = f"{'sectors' if p.threaded else 'cache lines'} of {p.unit} bytes"
    unit = f"banks of {p.device.bank_bytes} bytes" if banked else moved
    about = f", {what}" if what else ""
    sheet.head(f"Memory ({p.access.buffer.place}, {p.access.tensor.dtype}), {row_bytes} bytes a row, in {unit}{about}")
    if banked:
        word, banks = p.device.bank_bytes, p.device.banks
        hot = {t.address * size // word % banks for ts in at.values() for t in ts if (t.thread, t.value) in p.hot}
        _banks(sheet, hot, banks)
    rows = sorted({address * size // row_bytes for address in at})
    above = rows[0] - 1 if rows else 0
    valued = len({t.value for t in p.drawn()}) > 1
    for row in rows[:ROWS]:
        if row > above + 1:
            sheet.fold(
                f"{row - above - 1} rows that are not touched" if row > above + 2 else "1 row that is not touched"
            )
        _row(sheet, p, at, row, row_bytes, valued=valued)
        above = row
    if len(rows) > ROWS:
        sheet.fold(f"{len(rows) - ROWS} more rows are touched")


def _banks(sheet: _Sheet, hot: Iterable[int], count: int) -> None:
    marked = set(hot)
    sheet.left("bank", sheet.y - 2)
    for b in range(count):
        x = MARGIN + LEFT + (b + 0.5) * WIDTH / count
        fill, weight = (RED, "bold") if b in marked else (DIM, "normal")
        sheet.parts.append(label(str(b), x, sheet.y + 12, size=9, fill=fill, weight=weight, anchor="middle"))
    sheet.y += 17


def _row(
    sheet: _Sheet, p: AccessPicture, at: Mapping[int, list[ElementAccess]], row: int, row_bytes: int, *, valued: bool
) -> None:
    size = item_size(p.access.tensor.dtype)
    scale = WIDTH / row_bytes
    wide = size * scale
    start = row * row_bytes // size
    sheet.left(str(start), sheet.y)
    touched: set[int] = set()
    for n in range(row_bytes // size):
        who = at.get(start + n, [])
        x = MARGIN + LEFT + n * wide
        if not who:
            sheet.parts.append(_draw_cell((x, sheet.y), wide, "", f"address {start + n}: not touched", EMPTY))
            continue
        touched.add((start + n) * size // p.unit)
        hot = any((t.thread, t.value) in p.hot for t in who)
        text = _names(p, who, valued=valued)
        if cells(text) * 7.5 * 0.62 > wide - 2:  # too narrow for its whole name
            text = str(_lane(p, who[0]))
        sheet.parts.append(
            _draw_cell((x, sheet.y), wide, text, _everyone(p, who), lane_colour(_lane(p, who[0])), hot=hot)
        )
    if p.access.buffer.place != "shared" or not p.threaded:
        _frames(sheet, p, row, row_bytes, touched)
    sheet.y += HIGH + (0 if p.access.buffer.place == "shared" else 4)


def _frames(sheet: _Sheet, p: AccessPicture, row: int, row_bytes: int, touched: set[int]) -> None:
    wide = p.unit * WIDTH / row_bytes
    for n in range(row_bytes // p.unit):
        asked = row * row_bytes // p.unit + n in touched
        x = MARGIN + LEFT + n * wide
        sheet.parts.append(
            f'<rect x="{px(x)}" y="{px(sheet.y)}" width="{px(wide)}" height="{px(HIGH)}" fill="none" '
            f'stroke="{INK if asked else EDGE}" stroke-width="{2.2 if asked else 1.2}"/>'
        )


def _legend(sheet: _Sheet, p: AccessPicture) -> None:
    sheet.y += 14
    x, y = MARGIN, sheet.y
    for n in range(COLOURS):
        sheet.parts.append(f'<rect x="{px(x + n * 4)}" y="{px(y)}" width="4" height="12" fill="{lane_colour(n)}"/>')
    x += COLOURS * 4 + 7
    entries = [(f"lane 0 to {p.device.warp - 1} of a warp" if p.threaded else "steps, 32 colours", "")]
    if any(not t.happens for t in p.drawn()):
        entries.append(("masked by the predicate", "masked"))
    if p.access.buffer.place == "shared" and p.threaded:
        entries.append(("lanes that want different words of one bank", "hot"))
    else:
        entries.append((f"{'sector' if p.threaded else 'cache line'} of {p.unit} bytes that is asked for", "asked"))
    for text, kind in entries:
        if kind == "masked":
            sheet.parts.append(
                f'<g transform="translate({px(x)} {px(y - 5)}) scale(1)">{_masked((0, 0), 20, text)}</g>'
            )
        elif kind:
            stroke, weight = (RED, 2) if kind == "hot" else (INK, 2.2)
            sheet.parts.append(
                f'<rect x="{px(x)}" y="{px(y)}" width="20" height="12" fill="none" stroke="{stroke}" '
                f'stroke-width="{weight:g}"/>'
            )
        x += 27 if kind else 0
        sheet.parts.append(label(text, x, y + 10, size=11, fill=DIM, family=SANS))
        x += cells(text) * 6.4 + 20
    sheet.y += 16
