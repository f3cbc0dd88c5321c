"""An access as digits: each loop cut where the element it names jumps, one stride for each piece.

``x[i//4, i%4]`` for ``i`` below 20 has the digits (5, (1, 0)) and (4, (0, 1)): extents and strides by axis, outermost
first. What has no such form (a roll, a reflection) is *irregular*. A form is returned only when it is proved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from itertools import product as every
from math import gcd, prod

from idgraph.arith import Expr, Proof, as_expr, prove_equal, simplify, symbol
from idgraph.fuse.access_relation import AccessRelation
from idgraph.ir.walks import reach

SAMPLES = 48


@dataclass(frozen=True, slots=True)
class StridedLoop:
    """``extent`` steps, each moving by ``stride`` (one number an axis of the buffer)."""

    extent: int
    stride: tuple[int, ...]

    @property
    def moves(self) -> bool:
        """Whether the element depends on it."""
        return any(self.stride)


@dataclass(frozen=True, slots=True)
class StridedForm:
    """``first``: the element at the first point. ``loops``: the digits of each loop; ``merged``: all loops had to be
    taken as one."""

    first: tuple[int, ...]
    loops: tuple[tuple[StridedLoop, ...], ...]
    merged: bool = False

    @property
    def digits(self) -> tuple[StridedLoop, ...]:
        """All digits of more than one step, in the order of the loops."""
        return tuple(d for loop in self.loops for d in loop if d.extent > 1)

    @property
    def box(self) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
        """For each axis its first coordinate and the (extent, stride) of its digits, the largest stride first, joined
        where they are one run: equal boxes are equal sets of elements."""
        return tuple((low, _merge_contiguous_loops(self, p)) for p, low in enumerate(self.first))


def _merge_contiguous_loops(form: StridedForm, axis: int) -> tuple[tuple[int, int], ...]:
    found = sorted(((d.stride[axis], d.extent) for d in form.digits if d.stride[axis]), key=lambda x: -abs(x[0]))
    out: list[tuple[int, int]] = []
    for stride, extent in found:
        if out and out[-1][1] == stride * extent:
            out[-1] = (out[-1][0] * extent, stride)
        else:
            out.append((extent, stride))
    return tuple(out)


def delinearize_strides(touch: AccessRelation) -> StridedForm | None:
    """The digits of an access of known sizes without loaded values; None where it is irregular."""
    sizes = touch.sizes
    if sizes is None or touch.loads or 0 in sizes:
        return None
    symbols = [loop.symbol for loop in touch.loops]
    results = touch.map.results
    own = _form(results, symbols, sizes)
    if own is not None or len(symbols) < 2:
        return own
    lin = symbol("lin", 0, prod(sizes) - 1)
    table: dict[Expr, Expr] = {}
    rest = as_expr(lin)
    for s, n in zip(reversed(symbols), reversed(sizes)):
        table[s] = simplify(rest % n)
        rest = simplify(rest // n)
    flat = tuple(simplify(x.substitute(table)) for x in results)
    made = _form(flat, [lin], (prod(sizes),))
    return None if made is None else StridedForm(made.first, made.loops, merged=True)


def _form(results: Sequence[Expr], symbols: Sequence[Expr], sizes: Sequence[int]) -> StridedForm | None:
    zero = {s.name: 0 for s in symbols}
    first = tuple(int(x.evaluate(zero)) for x in results)
    cuts = _cuts(results)
    loops: list[tuple[StridedLoop, ...]] = []
    for s, n in zip(symbols, sizes, strict=True):
        alone = [simplify(x.substitute({o: as_expr(0) for o in symbols if o is not s})) for x in results]
        loops.append(tuple(_digits(alone, s, n, first, cuts)))
    sums = [as_expr(c) for c in first]
    for s, digits in zip(symbols, loops, strict=True):
        unit = 1
        for d in reversed(digits):
            part = simplify(s // unit % d.extent)
            sums = [x + part * k for x, k in zip(sums, d.stride, strict=True)]
            unit *= d.extent
    if not all(_equal(a, b, symbols, sizes) for a, b in zip(results, sums, strict=True)):
        return None
    return StridedForm(first, tuple(loops))


def _equal(a: Expr, b: Expr, symbols: Sequence[Expr], sizes: Sequence[int]) -> bool:
    b = simplify(b)
    if a == b:
        return True
    for point in _corners(symbols, sizes):
        if a.evaluate(point) != b.evaluate(point):
            return False
    return isinstance(prove_equal(a, b), Proof)


def _corners(symbols: Sequence[Expr], sizes: Sequence[int]) -> Iterator[dict[str, int]]:
    """A few points: the ends of every loop, and some between."""
    for ends in islice(every(*((0, size - 1, size // 2, size // 3) for size in sizes)), SAMPLES):
        yield {s.name: v for s, v in zip(symbols, ends, strict=True)}


def _cuts(results: Sequence[Expr]) -> set[int]:
    """The divisors in the expressions; of ``x//a % b`` also ``a*b``, where the digit ends."""
    found: set[int] = set()
    for x in reach(results, lambda x: x.args):
        if x.op in ("mod", "floordiv") and x.args[1].is_const:
            found.add(abs(int(x.args[1])))
            inner = x.args[0]
            if x.op == "mod" and inner.op == "floordiv" and inner.args[1].is_const:
                found.add(abs(int(inner.args[1]) * int(x.args[1])))
    return found


def _digits(alone: Sequence[Expr], s: Expr, n: int, first: tuple[int, ...], cuts: set[int]) -> Iterator[StridedLoop]:
    """Digits of one loop, outermost first; `_form` proves or drops them."""

    def at(v: int) -> tuple[int, ...]:
        return tuple(int(x.evaluate({s.name: v})) - c for x, c in zip(alone, first, strict=True))

    places = sorted(_digit_boundaries(n, cuts))
    made: list[StridedLoop] = []
    unit = 1
    while unit < n:
        stride = at(unit)
        best = 0
        for place in places:
            steps = place // unit
            if place % unit or steps < 2:
                continue
            if at((steps - 1) * unit) != tuple((steps - 1) * k for k in stride):
                break
            best = steps
            if place < n and at(place) != tuple(steps * k for k in stride):
                break
        if not best:
            best = n // unit
        made.append(StridedLoop(best, stride))
        unit *= best
    yield from reversed(made)


def _digit_boundaries(n: int, cuts: set[int]) -> set[int]:
    """Divisors of ``n`` at which a digit may end: the divisors in the expressions, and their products."""
    found = {1, n}
    work = {gcd(n, c) for c in cuts} | {n // gcd(n, c) for c in cuts}
    for c in sorted(work)[:12]:
        found |= {p * c for p in found if n % (p * c) == 0} | {gcd(p, c) for p in found}
        if len(found) > 256:
            break
    found |= {reduce(gcd, (p, n)) for p in found}
    return {p for p in found if p > 0 and n % p == 0}


def split_loop(d: StridedLoop, units: Collection[tuple[int, ...]]) -> list[StridedLoop]:
    """A digit cut where its stride is one of ``units``, outermost first.

    >>> split_loop(StridedLoop(20, (1, 0)), {(5, 0)})
    [StridedLoop(extent=4, stride=(5, 0)), StridedLoop(extent=5, stride=(1, 0))]
    """
    axis = next((p for p, s in enumerate(d.stride) if s), None)
    if axis is None:
        return [d]
    steps = {u[axis] // d.stride[axis] for u in units if u[axis] % d.stride[axis] == 0}
    parts: list[StridedLoop] = []
    inner = 1
    for k in sorted(k for k in steps if 1 < k < d.extent and d.extent % k == 0):
        if k % inner == 0 and tuple(s * k for s in d.stride) in units:
            parts.insert(0, StridedLoop(k // inner, tuple(s * inner for s in d.stride)))
            inner = k
    return [StridedLoop(d.extent // inner, tuple(s * inner for s in d.stride)), *parts]
