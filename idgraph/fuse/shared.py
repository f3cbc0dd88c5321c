"""How many elements of a buffer two operations both touch: counted, where sizes are known."""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING, Any

from idgraph.arith import TRUE, Expr
from idgraph.fuse.digits import form_of
from idgraph.fuse.touch import Touch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LISTED = 1 << 20  # points of loops of which elements are listed one by one


def elements_of_both(a: Touch, b: Touch) -> int | None:
    """Elements that both touch: exactly, or at most as many where loaded values choose; None for unknown sizes."""
    sizes = [loop.size for t in (a, b) for loop in t.loops]
    whole = [d.extent for d in a.buffer.axes]
    if any(n is None for n in sizes) or not all(x.is_const for x in whole):
        return None
    total = prod(int(x) for x in whole)
    if a.loads or b.loads:
        return min(total, a.points or 0, b.points or 0)
    axes = [_runs(t) for t in (a, b)]
    if axes[0] is not None and axes[1] is not None:
        return prod(_common(x, y) for x, y in zip(axes[0], axes[1], strict=True))
    if max(a.points or 0, b.points or 0) <= LISTED:
        return len(_listed(a) & _listed(b))
    return min(total, a.points or 0, b.points or 0)


def points_that_touch(t: Touch) -> int | None:
    """Points of the loops at which an element is touched; None where it was not counted."""
    import numpy as np  # noqa: PLC0415 - loaded when something is counted

    points = t.points
    if points is None or t.map.condition is TRUE:
        return points
    asked = [loop for loop in t.loops if loop.symbol.name in t.map.condition.names]
    sizes = [loop.size or 1 for loop in asked]
    if prod(sizes) > LISTED or t.map.condition.names - {x.symbol.name for x in asked}:
        return None
    grids = np.meshgrid(*(np.arange(n) for n in sizes), indexing="ij")
    env: dict[str, Any] = {x.symbol.name: g.ravel() for x, g in zip(asked, grids, strict=True)}
    held = int(np.broadcast_to(np.asarray(t.map.condition.evaluate_array(env)), (prod(sizes),)).sum())
    return points // prod(sizes) * held


Run = tuple[int, int, int]  # first, step, count


def _runs(t: Touch) -> list[Run] | None:
    """The coordinates of each axis, where they are one run each and independent of each other."""
    form = form_of(t) if t.map.condition is TRUE else None
    if form is None or any(sum(map(bool, d.stride)) > 1 for d in form.digits):
        return None
    out: list[Run] = []
    for low, runs in form.box:
        if len(runs) > 1:
            return None
        extent, step = runs[0] if runs else (1, 1)
        first = low + min(0, (extent - 1) * step)
        out.append((first, abs(step), extent))
    return out


def _common(a: Run, b: Run) -> int:
    """How many numbers two runs share."""
    (f, s, n), (g, r, m) = a, b
    low, high = max(f, g), min(f + s * (n - 1), g + r * (m - 1))
    if (g - f) % gcd(s, r):
        return 0
    lcm = s * r // gcd(s, r)
    x = next(x for x in range(f, f + s * r + 1, s) if (x - g) % r == 0)
    start = x + -(-(low - x) // lcm) * lcm
    return 0 if start > high else (high - start) // lcm + 1


def _listed(t: Touch) -> set[int]:
    """Numbers of the elements touched."""
    import numpy as np  # noqa: PLC0415 - loaded when something is counted

    sizes = t.sizes or ()
    grids: list[npt.NDArray[np.int64]] = (
        [g.ravel() for g in np.meshgrid(*(np.arange(n) for n in sizes), indexing="ij")] if sizes else []
    )
    env: dict[str, Any] = {loop.symbol.name: g for loop, g in zip(t.loops, grids, strict=True)}
    count = prod(sizes)
    flat = np.zeros(count, np.int64)
    for x, d in zip(t.map.results, t.buffer.axes, strict=True):
        flat = flat * int(d.extent) + _values(x, env, count)
    kept = np.broadcast_to(np.asarray(t.map.condition.evaluate_array(env)), (count,)).astype(bool)
    return set(np.unique(flat[kept]).tolist())


def _values(x: Expr, env: dict[str, Any], count: int) -> Any:
    import numpy as np  # noqa: PLC0415 - as above

    return np.broadcast_to(np.asarray(x.evaluate_array(env)), (count,))
