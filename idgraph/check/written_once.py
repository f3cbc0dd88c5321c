"""The writes of a nest: each element of its tensor once, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from idgraph.arith import FALSE, TRUE, Expr, and_, as_expr, simplify, symbol
from idgraph.arith.mixed_radix import one_to_one
from idgraph.check.by_points import chunks
from idgraph.check.form import Axis, BufferLayout


def delinearize(address: Expr, buffer: BufferLayout, shape: Sequence[Expr]) -> list[Expr]:
    """The coordinates of the element at an address, from the strides; a broadcast or single axis is at 0.

    >>> from idgraph.arith import symbol
    >>> b = Buffer("b", "t", (as_expr(8), as_expr(1)))
    >>> [str(x) for x in decoded(symbol("i", 0, 31), b, [as_expr(4), as_expr(8)])]
    ['i//8', 'i%8']
    """
    one = as_expr(1)
    rest = simplify(address - buffer.offset)
    order = [p for p in memory_order(buffer.strides, shape) if shape[p] != one]
    out: list[Expr] = [as_expr(0)] * len(shape)
    for k, p in enumerate(order):
        step = buffer.strides[p]
        part = rest if k == 0 else rest % buffer.strides[order[k - 1]]
        out[p] = simplify(part // step)
    return out


def memory_order(strides: Sequence[Expr], shape: Sequence[Expr]) -> list[int]:
    """Axes from the outermost in memory inwards."""
    fixed = all(s.is_const for s in strides)
    if fixed:
        return sorted(range(len(shape)), key=lambda p: -int(strides[p]))
    # Of symbolic strides one is wider where it is a multiple of the other: compared at one large size.
    env = {n: 1009 + 64 * k for k, n in enumerate(sorted({n for s in strides for n in s.names}))}
    return sorted(range(len(shape)), key=lambda p: -int(strides[p].evaluate(env)))


def affine(x: Expr, axes: Sequence[Axis]) -> tuple[list[Expr], Expr] | None:
    """The factor of each loop and the rest, where ``x`` is a sum of loops times what no loop changes; else None."""
    zero = {a.name: as_expr(0) for a in axes}
    rest = simplify(x.substitute(zero))
    steps: list[Expr] = []
    for a in axes:
        others = {b.name: as_expr(0) for b in axes if b is not a}
        steps.append(simplify(x.substitute({**others, a.name: as_expr(1)}) - rest))
    total = rest
    for a, s in zip(axes, steps, strict=True):
        total = total + a.symbol * s
    return (steps, rest) if simplify(x - total) == as_expr(0) else None


def inverse(address: Expr, axes: Sequence[Axis]) -> tuple[dict[str, Expr], Expr] | None:
    """Loops as functions of the symbol ``a`` (an address), and when they are in range; None where not known.

    For addresses that are mixed-radix numbers of the loops: every written element has one point.
    """
    found = affine(address, axes)
    if found is None:
        return None
    steps, rest = found
    live = [(s, a) for s, a in zip(steps, axes, strict=True) if a.extent != as_expr(1)]
    if not all(s.is_const and a.extent.is_const for s, a in live):
        chain = _chained(live)
        if chain is None:
            return None
        live = chain
    else:
        live.sort(key=lambda sa: int(sa[0]))
        reach = 1
        for s, a in live:
            if int(s) < reach:
                return None
            reach = int(s) * int(a.extent)
    from_zero = _address() - rest
    out = {a.name: as_expr(0) for a in axes}
    held = from_zero >= 0
    for k, (s, a) in enumerate(live):
        part = from_zero // s
        out[a.name] = simplify(part if k == len(live) - 1 else part % (live[k + 1][0] // s))
        held = and_(held, out[a.name] < a.extent)
    total = simplify(address.substitute(out))
    return out, simplify(and_(held, total.eq(_address())))


def _address() -> Expr:
    return symbol("a", 0, None)


def _chained(live: list[tuple[Expr, Axis]]) -> list[tuple[Expr, Axis]] | None:
    """Loops from the innermost outwards where each step is the extent of the memory below it."""
    out: list[tuple[Expr, Axis]] = []
    step = as_expr(1)
    left = list(live)
    while left:
        found = next((x for x in left if simplify(x[0] - step) == as_expr(0)), None)
        if found is None:
            return None
        left.remove(found)
        out.append(found)
        step = simplify(found[0] * found[1].extent)
    return out


def element_of(address: Expr, coordinates: Sequence[Expr], buffer: BufferLayout, shape: Sequence[Expr]) -> Expr:
    """The condition that an address is the one of an element of the tensor: in range, and in no gap."""
    back = buffer.offset + sum((c * s for c, s in zip(coordinates, buffer.strides, strict=True)), start=as_expr(0))
    inside = [and_(c >= 0, c < n) for c, n in zip(coordinates, shape, strict=True)]
    return and_(*inside, simplify(back - address).eq(0))


def covers(address: Expr, axes: Sequence[Axis], inside: Expr, when: Expr, elements: Expr) -> bool:
    """Proved: each of ``elements`` elements is written at exactly one point, and nothing else (``inside``)."""
    if when is not TRUE or simplify(inside) is not TRUE:
        return False
    total = simplify(prod((a.extent for a in axes), start=as_expr(1)))
    return simplify(total - elements) == as_expr(0) and injective(address, axes, when)


def _radix(live: list[tuple[Expr, Axis]]) -> bool:
    """Each stride exceeds the reach of the smaller ones; the extent of the widest does not matter."""
    names = sorted({n for s, a in live for n in (*s.names, *a.extent.names)})
    env = {n: 1009 + 64 * k for k, n in enumerate(names)}  # an order that holds for large sizes, proved below for all
    reach = as_expr(1)
    for s, a in sorted(live, key=lambda sa: int(sa[0].evaluate(env))):
        if simplify(s >= reach) is not TRUE:
            return False
        reach = simplify(s * a.extent)
    return True


def injective(address: Expr, axes: Sequence[Axis], when: Expr) -> bool:
    """Proved: no element is written at two points."""
    found = affine(address, axes)
    if when is FALSE:
        return True
    live = [(s, a) for s, a in zip(found[0], axes, strict=True) if a.extent != as_expr(1)] if found else []
    if found is not None and (_chained(live) is not None or _radix(live)):
        return True
    return one_to_one([a.symbol for a in axes], [address])


def written(address: Expr, axes: Sequence[Axis], when: Expr, env: dict[str, int]) -> npt.NDArray[np.int64]:
    """All addresses written, in the order of the loops."""
    sizes = [int(a.extent.evaluate(env)) for a in axes]
    parts: list[npt.NDArray[np.int64]] = []
    for flat, coordinates in chunks(sizes, 1 << 20):
        here = {**env, **dict(zip((a.name for a in axes), coordinates, strict=True))}
        at = np.broadcast_to(address.evaluate_array(here), flat.shape)
        parts.append(at[np.broadcast_to(when.evaluate_array(here), flat.shape)])
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def are_disjoint(a: Sequence[Expr], b: Sequence[Expr], axes: Sequence[Axis]) -> bool:
    """Proved: no element of the one list of coordinates is one of the other, whose loops (``axes``) are its own."""
    fresh = {x.name: Axis(f"{x.name}'", x.extent).symbol for x in axes}
    other = [y.substitute(fresh) for y in b]
    return any(simplify(x < y) is TRUE or simplify(y < x) is TRUE for x, y in zip(a, other, strict=True))
