"""The rows of a ragged axis as SVG: each row as long as it is, every element with its address.

The ownership of a tensor as SVG: each element a cell in the colour of the first device that holds it, with ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, product

from idgraph.display import Shown
from idgraph.errors import OperationError, arguments, short_repr, user_line
from idgraph.ir import RaggedRows, Tensor
from idgraph.ir.argument_resolution import is_int
from idgraph.shard import Ownership
from idgraph.viz.access_picture import lane_colour
from idgraph.viz.picture import DIM, INK, SANS, WHITE, clip, document, label, px, xml

MARGIN, CELL_HEIGHT, DRAWN_ROWS = 22.0, 26.0, 32


@dataclass(frozen=True, slots=True, eq=False)
class RaggedPicture(Shown):
    """The rows of one ragged tensor for one array of offsets; `ragged` makes one.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, offsets = f.input("x", (9,)), f.input("offsets", (4,), "int64")
    >>> print(ig.viz.ragged(ig.partition(x, 0, offsets, name="u"), [0, 2, 2, 9]))
    u: 3 rows of offsets, of 2, 0, 7 elements
    """

    tensor: Tensor
    rows: RaggedRows
    offsets: tuple[int, ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of elements of each row.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> x, offsets = f.input("x", (9,)), f.input("offsets", (3,), "int64")
        >>> ig.viz.ragged(ig.partition(x, 0, offsets), [0, 4, 9]).lengths
        (4, 5)
        """
        return tuple(b - a for a, b in pairwise(self.offsets))

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.lengths[:DRAWN_ROWS])) + (", ..." if len(self.lengths) > DRAWN_ROWS else "")
        return f"{self.tensor.name}: {len(self.lengths)} rows of {self.rows.offsets.name}, of {shown} elements"

    def __repr__(self) -> str:
        return str(self)


@arguments(OperationError)
def ragged(t: Tensor, offsets: Sequence[int]) -> RaggedPicture:
    """How long each row of a ragged tensor is, for these numbers as its offsets; notebooks draw it.

    Raises `OperationError` where the tensor has no ragged axis, and for numbers that cannot be offsets.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, offsets = f.input("x", (9,)), f.input("offsets", (4,), "int64")
    >>> picture = ig.viz.ragged(ig.partition(x, 0, offsets), [0, 2, 2, 9])
    >>> picture.lengths, ig.viz.to_svg(picture).count("<rect")
    ((2, 0, 7), 19)
    """
    rows = next((d.rows for d in t.axes if d.rows is not None), None)
    if rows is None:
        raise OperationError(f"ragged: {t.name} has no ragged axis", where=user_line(), hint="ig.partition makes one")
    if not isinstance(offsets, (list, tuple)) or not all(map(is_int, offsets)):
        raise OperationError(f"ragged: offsets is {short_repr(offsets)}", where=user_line(), hint="a list of integers")
    ends = tuple(offsets)
    if len(ends) < 2 or ends[0] != 0 or any(b < a for a, b in pairwise(ends)):
        raise OperationError(
            f"ragged: {clip(str(list(ends)), 60)} cannot be offsets", where=user_line(),
            hint="offsets begin at 0 and never fall; there is one more than rows",
        )  # fmt: skip
    return RaggedPicture(t, rows, ends)


def ragged_svg(picture: RaggedPicture) -> str:
    """The whole document, as text.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, offsets = f.input("x", (9,)), f.input("offsets", (3,), "int64")
    >>> ragged_svg(ig.viz.ragged(ig.partition(x, 0, offsets), [0, 4, 9])).count("row 1, element ")
    10
    """
    left, wide, most = MARGIN + 96.0, 30.0, 40
    title = f"{clip(picture.tensor.name, 40)}: rows of {clip(picture.rows.offsets.name, 40)}"
    parts = [
        label(title, MARGIN, MARGIN + 15, size=15, weight="bold", family=SANS),
        label(clip(str(picture), 100), MARGIN, MARGIN + 36, fill=DIM),
    ]
    top, widest, left_out = MARGIN + 52, 1, False
    shown = list(zip(picture.offsets, picture.lengths, strict=False))[:DRAWN_ROWS]
    step = max(1, 32 // max(1, len(shown)))
    for b, (start, count) in enumerate(shown):
        y = top + b * CELL_HEIGHT
        parts.append(label(f"row {b}: {count}", left - 8, y + 17, size=11, fill=DIM, anchor="end"))
        for j in range(min(count, most)):
            parts += _element_cell(b, j, start + j, (left + j * wide, y, wide), lane_colour(b * step))
        widest = max(widest, min(count, most))
        left_out = left_out or count > most
    y = top + len(shown) * CELL_HEIGHT + 12
    parts.append(label("memory", left - 8, y + 17, size=11, fill=DIM, anchor="end"))
    places = [(b, j, start + j) for b, (start, count) in enumerate(shown) for j in range(count)]
    for n, (b, j, address) in enumerate(places[:most]):
        parts += _element_cell(b, j, address, (left + n * wide, y, wide), lane_colour(b * step))
    left_out = left_out or len(places) > most or len(picture.lengths) > len(shown)
    note = "the number in a cell is the address of the element" + ("; the rest is not drawn" if left_out else "")
    parts.append(label(note, MARGIN, y + CELL_HEIGHT + 18, size=11, fill=DIM, family=SANS))
    columns = max(widest, min(len(places), most))
    width = max(MARGIN + left + columns * wide, MARGIN * 2 + 8.5 * max(len(title), 62))
    return document(title, str(picture), (width, y + CELL_HEIGHT + 18 + MARGIN), parts)


def _element_cell(row: int, j: int, address: int, at: tuple[float, float, float], colour: str) -> list[str]:
    return _cell_svg(f"row {row}, element {j}: at address {address}", clip(str(address), 4), at, colour)


def _cell_svg(title: str, text: str, at: tuple[float, float, float], colour: str) -> list[str]:
    """One cell, ``at`` its left and upper corner and as wide as the third number, with a text in its middle."""
    x, y, wide = at
    return [
        f'<rect x="{px(x)}" y="{px(y)}" width="{px(wide)}" height="{px(CELL_HEIGHT)}" '
        f'fill="{colour}" stroke="{WHITE}"><title>{xml(title)}</title></rect>',
        label(text, x + wide / 2, y + 17, size=11, fill=INK, anchor="middle"),
    ]


def ownership_svg(owner: Ownership) -> str:
    """The whole document, as text.

    >>> import idgraph as ig
    >>> f, mesh = ig.Fusion("f"), ig.Mesh(x=2)
    >>> ownership_svg(ig.shard.owner(f.input("t", shape=(4, 4)).shard(0, "x"))).count("<rect")
    17
    """
    left, wide, most = MARGIN + 70.0, 40.0, 32
    shape = [int(n) if n.is_const else most for n in owner.shape] or [1]
    columns = min(shape[-1], most)
    rows = list(islice(product(*(range(n) for n in shape[:-1])), DRAWN_ROWS))
    title = f"{clip(owner.tensor.name, 40)}: {owner.placement} on {owner.mesh}"
    parts = [
        label(title, MARGIN, MARGIN + 15, size=15, weight="bold", family=SANS),
        label(clip(str(owner), 100), MARGIN, MARGIN + 36, fill=DIM),
    ]
    top = MARGIN + 52
    for k, row in enumerate(rows):
        y = top + k * CELL_HEIGHT
        name = ", ".join(map(str, row))
        parts.append(label(name, left - 8, y + 17, size=11, fill=DIM, anchor="end"))
        for c in range(columns):
            element = (*row, c) if owner.shape else ()
            home = owner(*element)
            colour = lane_colour(home.ranks[0] * max(1, 32 // owner.mesh.size))
            told = f"element {list(element)}: rank {', '.join(map(str, home.ranks))} at address {home.address}"
            parts += _cell_svg(told, clip(",".join(map(str, home.ranks)), 5), (left + c * wide, y, wide), colour)
    bottom = top + max(1, len(rows)) * CELL_HEIGHT + 18
    left_out = len(rows) * columns < _cell_count(owner)
    note = "the number in a cell is the rank that holds the element" + ("; the rest is not drawn" if left_out else "")
    parts.append(label(note, MARGIN, bottom, size=11, fill=DIM, family=SANS))
    width = max(MARGIN + left + columns * wide, MARGIN * 2 + 8.5 * max(len(title), 62))
    return document(title, str(owner), (width, bottom + MARGIN), parts)


def _cell_count(owner: Ownership) -> float:
    """Elements in all; no end where an extent is a symbol."""
    count = 1.0
    for n in owner.shape:
        count *= int(n) if n.is_const else float("inf")
    return count
