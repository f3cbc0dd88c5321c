"""The ownership of a tensor as SVG: each element a cell in the colour of the first device that holds it, with ranks.

Rows are the leading axes, one behind another, columns the last axis; a tensor that is larger is drawn from its start.
"""

from __future__ import annotations

from itertools import islice, product

from idgraph.shard import Ownership
from idgraph.viz.access_picture import lane_colour
from idgraph.viz.picture import DIM, INK, SANS, WHITE, clip, document, label, px, xml

MARGIN, LEFT, CELL_WIDTH, CELL_HEIGHT = 22.0, 70.0, 40.0, 26.0
DRAWN_ROWS, DRAWN_COLUMNS = 32, 32


def ownership_svg(owner: Ownership) -> str:
    """The whole document, as text.

    >>> import idgraph as ig
    >>> f, mesh = ig.Fusion("f"), ig.Mesh(x=2)
    >>> ownership_svg(ig.shard.owner(f.input("t", shape=(4, 4)).shard(0, "x"))).count("<rect")
    17
    """
    shape = [int(n) if n.is_const else DRAWN_COLUMNS for n in owner.shape] or [1]
    columns = min(shape[-1], DRAWN_COLUMNS)
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
        parts.append(label(name, MARGIN + LEFT - 8, y + 17, size=11, fill=DIM, anchor="end"))
        for c in range(columns):
            element = (*row, c) if owner.shape else ()
            home = owner(*element)
            x = MARGIN + LEFT + c * CELL_WIDTH
            colour = lane_colour(home.ranks[0] * max(1, 32 // owner.mesh.size))
            told = f"element {list(element)}: rank {', '.join(map(str, home.ranks))} at address {home.address}"
            parts.append(
                f'<rect x="{px(x)}" y="{px(y)}" width="{px(CELL_WIDTH)}" height="{px(CELL_HEIGHT)}" '
                f'fill="{colour}" stroke="{WHITE}"><title>{xml(told)}</title></rect>'
            )
            text = clip(",".join(map(str, home.ranks)), 5)
            parts.append(label(text, x + CELL_WIDTH / 2, y + 17, size=11, fill=INK, anchor="middle"))
    bottom = top + max(1, len(rows)) * CELL_HEIGHT + 18
    left_out = len(rows) * columns < _cell_count(owner)
    note = "the number in a cell is the rank that holds the element" + ("; the rest is not drawn" if left_out else "")
    parts.append(label(note, MARGIN, bottom, size=11, fill=DIM, family=SANS))
    width = max(MARGIN * 2 + LEFT + columns * CELL_WIDTH, MARGIN * 2 + 8.5 * max(len(title), 62))
    return document(title, str(owner), (width, bottom + MARGIN), parts)


def _cell_count(owner: Ownership) -> float:
    """Elements in all; no end where an extent is a symbol."""
    count = 1.0
    for n in owner.shape:
        count *= int(n) if n.is_const else float("inf")
    return count
