"""Blocked layouts: the tiles of a matrix one after another in memory, as matrix instructions read block scales."""

from __future__ import annotations

from idgraph.errors import ScheduleError, arguments, short_repr, user_line
from idgraph.ir import IterDomain, Tensor

LANES = 32  # rows of a tile that lie one after another: those that the lanes of a warp take


@arguments(ScheduleError)
def blocked(t: Tensor, rows: int, columns: int, lanes: int = LANES) -> tuple[IterDomain, ...]:
    """Axes for `Tensor.set_allocation`: tiles of ``rows`` by ``columns`` elements of the last two axes, tiles by rows.

    Within a tile, row r is number r // lanes of those at r % lanes: element (r, c) of a tile of 128 by 4 lies at
    ``r % 32 * 16 + r // 32 * 4 + c``, as tensor cores read the scales of blocks (cuDNN's F8_128x4). ``lanes=rows`` is a
    plain tile, as a tile of at most ``lanes`` rows is anyhow. Tiles at the ends are padded: holes in memory.

    The loops of ``t`` stay as they are. Raises `ScheduleError` for a tensor of fewer than two axes and for sizes that
    do not divide each other; a result comes back in this order with ``run(..., raw=True)``.

    >>> import idgraph as ig
    >>> f = ig.Fusion("scales")
    >>> t = f.output(ig.copy(f.input("x", shape=(256, 8))))
    >>> _ = t.set_allocation(ig.layout.blocked(t, rows=128, columns=4))
    >>> [str(d.extent) for d in t.allocation]
    ['2', '2', '32', '4', '4']
    >>> print(t.loop, ig.IdModel(f).write(t.definition).address.evaluate({"i0": 33, "i1": 5}))
    (I2[256], I3[8]) 533
    """
    for name, n in (("rows", rows), ("columns", columns), ("lanes", lanes)):
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ScheduleError(f"blocked: {name} is {short_repr(n)}", where=user_line(), hint="an integer from 1 on")
    if t.ndim < 2:
        raise ScheduleError(
            f"blocked: {t.name} of shape {t.shape} has no two axes", where=user_line(), hint="t = t.reshape(1, -1)"
        )
    if rows > lanes and rows % lanes:
        raise ScheduleError(
            f"blocked: {lanes} lanes do not divide tiles of {rows} rows",
            where=user_line(),
            hint=f"lanes={rows} for plain tiles",
        )
    loop, row, column = t.loop, t.axes[-2], t.axes[-1]
    t.set_loop(list(t.logical))
    outer_row, inner_row = _tile_axis(t, row, rows)
    outer_column, inner_column = _tile_axis(t, column, columns)
    within = (inner_row,)
    if rows > lanes:
        group, lane = _tile_axis(t, inner_row, lanes)
        within = (lane, group)
    t.set_loop(list(loop))
    return (*t.axes[:-2], outer_row, outer_column, *within, inner_column)


def _tile_axis(t: Tensor, axis: IterDomain, size: int) -> tuple[IterDomain, IterDomain]:
    at = t.loop.index(axis)
    t.split(at, size)
    return t.loop[at], t.loop[at + 1]
