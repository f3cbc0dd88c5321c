"""How many elements of a buffer two operations both touch: counted as `ig.cost` counts those of a kernel.

Only the coordinates that two regular accesses share are counted in closed form here: a kernel has no such pairs.

A kernel reads each element of a buffer once, and writes each once. What the two read and write in kernels of their own
is compared with what one kernel does, or, where the producer's result is needed elsewhere too and its reader takes a
part of it, with what the producer and a reader with a private copy of it do: the copy reads its sources again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import gcd, prod
from typing import TypeAlias

from idgraph.arith import TRUE, Expr, as_expr
from idgraph.cost.access_sites import EnclosingLoop
from idgraph.fuse.access_relation import AccessRelation, access_relations, delinearize_strides, needs_memory
from idgraph.index.allocation import COUNTED
from idgraph.ir import Tensor, TensorExpr, item_size
from idgraph.ir.op_table import PIECES
from idgraph.loading import LOADING


def elements_of_both(a: AccessRelation, b: AccessRelation) -> int | None:
    """Elements that both touch: exactly, or at most as many where loaded values choose; None for unknown sizes."""
    sizes = [loop.size for t in (a, b) for loop in t.loops]
    whole = [d.extent for d in a.buffer.axes]
    if any(n is None for n in sizes) or not all(x.is_const for x in whole):
        return None
    total = prod(int(x) for x in whole)
    if a.loads or b.loads:
        return min(total, a.points or 0, b.points or 0)
    axes = [_axis_intervals(t) for t in (a, b)]
    if axes[0] is not None and axes[1] is not None:
        return prod(_common(x, y) for x, y in zip(axes[0], axes[1], strict=True))
    both = _listed(a, b)
    return min(total, a.points or 0, b.points or 0) if both is None else both


def elements_of_any(ways: Sequence[AccessRelation]) -> int | None:
    """Elements that any of these accesses of one buffer touches: exactly, or at most as many where loaded values choose
    or the accesses are too large to be listed; None for unknown sizes."""
    ways = list({(t.map.results, t.map.condition, t.sizes, tuple(t.loads.values())): t for t in ways}.values())
    if not ways:
        return 0
    counts = [elements_of_both(t, t) for t in ways]
    known = [n for n in counts if n is not None]
    if len(known) < len(counts):
        return None
    total = prod(int(d.extent) for d in ways[0].buffer.axes)
    if len(ways) == 1 or max(known) == total or any(t.loads for t in ways):
        return min(total, sum(known))
    if len(ways) == 2:
        return sum(known) - (elements_of_both(*ways) or 0)
    listed = [_addresses(t) for t in ways]
    sets = [x for x in listed if x is not None]
    return len(set[int]().union(*sets)) if len(sets) == len(listed) else min(total, sum(known))


def points_that_touch(t: AccessRelation) -> int | None:
    """Points of the loops at which an element is touched; None where it was not counted exactly."""
    if t.points is None or t.map.condition is TRUE:
        return t.points
    with LOADING:
        from idgraph.cost.iteration_count import count_points  # noqa: PLC0415 - loads NumPy

    around = _enclosing_loops(t)
    if t.map.condition.names - {x.var for x in around}:
        return None
    found = count_points(around, [t.map.condition], {}, {})
    return found.points if found.exact else None


def _enclosing_loops(t: AccessRelation) -> tuple[EnclosingLoop, ...]:
    """The loops as those around a site of a kernel."""
    return tuple(EnclosingLoop(loop.symbol.name, loop.size or 0, "", n) for n, loop in enumerate(t.loops))


Run = tuple[int, int, int]  # first, step, count


def _axis_intervals(t: AccessRelation) -> list[Run] | None:
    """The coordinates of each axis, where they are one run each and independent of each other."""
    form = delinearize_strides(t) if t.map.condition is TRUE else None
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


def _listed(a: AccessRelation, b: AccessRelation) -> int | None:
    """Elements that both touch, one by one; None where there are more points than `ig.cost` visits."""
    one, other = _addresses(a), _addresses(b)
    return None if one is None or other is None else len(one & other)


def _addresses(t: AccessRelation) -> set[int] | None:
    """The elements that an access touches, by number; None where there are more points than `ig.cost` visits."""
    with LOADING:
        from idgraph.cost.iteration_count import grid, holds, limit, values  # noqa: PLC0415 - loads NumPy

    if (t.points or 0) > limit():
        return None
    env, count = grid(_enclosing_loops(t))
    inside, _ = holds([t.map.condition], env, {}, {}, count)
    return set(values(_element_number(t.map.results, t.buffer), env, {}, {}, count)[0][inside].tolist())


def elements_met(
    sizes: Sequence[int], buffer: Tensor, at: tuple[Sequence[Expr], Sequence[Expr]], conditions: Sequence[Expr]
) -> int | None:
    """The number of elements that two accesses of a buffer, at ``at`` in loops i0, i1, ... of these ``sizes``, touch
    where all conditions hold; None where at such a point they touch different ones, or where that takes too long."""
    with LOADING:
        from idgraph.cost.iteration_count import grid, holds, limit, values  # noqa: PLC0415 - loads NumPy

    if prod(sizes) > limit():
        return None
    env, count = grid([EnclosingLoop(f"i{n}", size, "", n) for n, size in enumerate(sizes)])
    inside, known = holds(list(conditions), env, {}, {}, count)
    found: list[list[int]] = []
    for place in at:
        address, sure = values(_element_number(place, buffer), env, {}, {}, count)
        known = known and sure
        found.append(address[inside].tolist())
    return len(set(found[0])) if known and found[0] == found[1] else None


def _element_number(place: Sequence[Expr], buffer: Tensor) -> Expr:
    """The number of an element, in the order of the buffer's axes."""
    pairs = zip(place, buffer.axes, strict=True)
    return reduce(lambda flat, x: flat * int(x[1].extent) + x[0], pairs, as_expr(0))


CUTS = PIECES | {"slice"}  # along these a producer's loops are cut like its reader's
Reads: TypeAlias = "Mapping[Tensor, Sequence[AccessRelation]]"
"""What an operation, with those inlined into it, touches: by buffer."""


def of_readers(a: Reads, b: Reads) -> int | None:
    """Bytes of what both read; None where a size is open."""
    found = [_bytes_read_by_both(t, ways, b.get(t, ())) for t, ways in a.items()]
    known = [n for n in found if n is not None]
    return sum(known) if len(known) == len(found) else None


def bytes_saved_by_forwarding(
    a: TensorExpr,
    b: TensorExpr,
    reads: tuple[Reads, Reads],
    y: Sequence[AccessRelation],
    inside: set[TensorExpr],
    kept: bool,
) -> int | None:
    """Bytes of a producer ``a`` whose result ``b`` reads as ``y`` does; None where a size is open.

    ``inside`` are operations between the two, ``kept`` says that the result is needed elsewhere too.
    """
    t = a.output
    if a.op in COUNTED and not t.fusion.is_output(t):
        return 0  # never stored
    read, whole = elements_of_any(y), _size(t)
    if read is None or whole is None:
        return None
    found: list[int | None] = [(read + (0 if kept else whole)) * item_size(t.dtype)]
    if needs_memory(a):
        found += [_bytes_read_by_both(u, ways, reads[1].get(u, ())) for u, ways in reads[0].items() if u is not t]
    else:
        way = access_relations(b, lambda e: e is a or e in inside)
        for u, mine in reads[0].items():
            theirs, again = reads[1].get(u, ()), [v for v in way.get(u, ()) if a in v.path]
            if u is t:
                continue
            if kept and (read == whole or _stands_around(y, read)) and not any(v.loads for v in y):
                # it is written on the way to its reader
                found.append(_bytes_read_by_both(u, mine, theirs))
            elif kept:
                found.append(_less(u, (theirs,), [*theirs, *again]))
            else:
                found.append(_less(u, (mine, theirs), [*theirs, *again]))
    known = [n for n in found if n is not None]
    return sum(known) if len(known) == len(found) else None


def _stands_around(y: Sequence[AccessRelation], read: int) -> bool:
    """Whether the reader's loops go over whole axes and it takes one place of each other axis: the loops of a producer
    whose elements are all needed are those, with loops over the other axes inside."""
    if len(y) != 1 or any(e.op in CUTS for e in y[0].path):
        return False
    axes = zip(y[0].buffer.axes, y[0].map.results, strict=True)
    return read == prod(int(d.extent) for d, at in axes if not at.is_const)


def _bytes_read_by_both(t: Tensor, a: Sequence[AccessRelation], b: Sequence[AccessRelation]) -> int | None:
    """Bytes that are read by both."""
    return _less(t, (a, b), [*a, *b])


def _less(t: Tensor, apart: Sequence[Sequence[AccessRelation]], together: Sequence[AccessRelation]) -> int | None:
    """Bytes by which reads in kernels ``apart`` are more than those of one kernel."""
    counts = [elements_of_any(ways) for ways in apart]
    known = [n for n in counts if n is not None]
    one = elements_of_any(together)
    return None if one is None or len(known) < len(counts) else (sum(known) - one) * item_size(t.dtype)


def _size(t: Tensor) -> int | None:
    return prod(int(d.extent) for d in t.axes) if all(d.extent.is_const for d in t.axes) else None
