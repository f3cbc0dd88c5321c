"""Touches: which element of a buffer an operation reads or writes at each point of its own loops.

The loops of an operation are the axes of its result, then those that it reduces; what lies between it and the buffer
(views, and arithmetic that needs no memory) is composed away. The schedule does not matter.

An access as digits: each loop cut where the element it names jumps, one stride for each piece.

``x[i//4, i%4]`` for ``i`` below 20 has the digits (5, (1, 0)) and (4, (0, 1)): extents and strides by axis, outermost
first. What has no such form (a roll, a reflection) is *irregular*. A form is returned only when it is proved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from itertools import product as every
from math import gcd, prod

from idgraph.arith import TRUE, Expr, IndexMap, Proof, and_, as_expr, prove_equal, simplify, symbol
from idgraph.graphs.coordinate_rules import CoordinateSolver
from idgraph.index.index_solver import ProducerPath, operand_path
from idgraph.ir import SCATTERS, Fixed, IterDomain, LoadedCoordinate, Mapped, Tensor, TensorExpr, scatter_axes
from idgraph.ir.axis_read import AxisRead
from idgraph.ir.op_table import ROWS, SCANS, moving
from idgraph.ir.ragged_axes import LENGTH, START, row_axes
from idgraph.ir.walks import reach

_PLACED = SCATTERS | moving("joins")  # their loops run over what they write, at places that are loaded
MOST = 64  # ways in which one operation may read a buffer


@dataclass(frozen=True, slots=True)
class AccessLoop:
    """One loop of an operation; ``reduced`` where its values are combined over it."""

    symbol: Expr
    extent: Expr
    reduced: bool = False

    @property
    def size(self) -> int | None:
        """Its number of steps, where that is known."""
        return int(self.extent) if self.extent.is_const else None


@dataclass(frozen=True, slots=True)
class AccessRelation:
    """``expr`` reads (or writes) element ``map`` of ``buffer`` at each point of ``loops`` at which the map is defined.

    ``loads`` names the symbols of the map that are loaded values: symbol -> (index tensor, its coordinates).
    ``path`` are the operations in between, the reader first.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.copy(f.input("x", shape=(8, 6)), name="t")
    >>> u = f.output(t.T + 1.0)
    >>> reads = ig.fuse.obstacles(f)[0].accesses[1]
    >>> reads.is_loaded, reads.sizes, reads.points, str(reads.map)
    (False, (6, 8), 48, '(i0, i1) -> (i1, i0)')
    """

    expr: TensorExpr
    buffer: Tensor
    is_write: bool
    loops: tuple[AccessLoop, ...]
    map: IndexMap
    loads: Mapping[str, tuple[str, tuple[Expr, ...]]] = field(default_factory=dict[str, "tuple[str, tuple[Expr, ...]]"])
    path: tuple[TensorExpr, ...] = ()

    @property
    def is_loaded(self) -> bool:
        """Whether a loaded value selects the element."""
        return bool(self.loads)

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """Steps of the loops, outermost first; None where a symbol is among them."""
        found = [loop.size for loop in self.loops]
        known = [n for n in found if n is not None]
        return tuple(known) if len(known) == len(found) else None

    @property
    def points(self) -> int | None:
        """Points of all loops."""
        sizes = self.sizes
        return None if sizes is None else prod(sizes)

    def __str__(self) -> str:
        verb = "writes" if self.is_write else "reads"
        at = ", ".join(map(str, self.map.results))
        when = "" if self.map.condition is TRUE else f" if {self.map.condition}"
        loops = ", ".join(f"{x.symbol} < {x.extent}" + (" reduced" if x.reduced else "") for x in self.loops)
        name = self.expr.output.name
        return f"{self.expr.op} of {name} {verb} {self.buffer.name}[{at}]{when}  for {loops or 'one point'}"

    __repr__ = __str__


@dataclass(slots=True)
class _UpwardWalk:
    """From one operation upwards."""

    root: TensorExpr
    loads: dict[str, tuple[str, tuple[Expr, ...]]] = field(default_factory=dict[str, "tuple[str, tuple[Expr, ...]]"])

    def read(
        self, e: TensorExpr, k: int, at: ProducerPath, start: Sequence[tuple[IterDomain, Expr]]
    ) -> ProducerPath | None:
        """The place at which operand ``k`` of ``e`` is read; None where it is never read."""
        own, axes = CoordinateSolver(start, e.output.domain.exprs), e.inputs[k].axes

        def loaded(n: int, read: AxisRead) -> Expr | None:
            return self.loaded(e, read.operand, own, axes[n].extent - 1) if isinstance(read, LoadedCoordinate) else None

        found = operand_path(e, k, at, own, (d for d, _ in start), loaded)
        if found is None:
            return None
        ends = self.row_ends(e, own, (*found.coordinates, found.condition))
        coordinates = tuple(x.substitute(ends) for x in found.coordinates)
        return ProducerPath(coordinates, found.condition.substitute(ends), found.path)

    def row_ends(self, e: TensorExpr, own: CoordinateSolver, needed: Sequence[Expr]) -> dict[Expr, Expr]:
        """Where a row begins, and how long it is, as loaded values: of an operation on rows, where these need them."""
        axes, used = row_axes(e), {s for x in needed for s in x.symbols}
        if axes is None:
            return {}
        return {s: self.loaded(e, n, own, axes[1].extent) for n, s in ((1, START), (2, LENGTH)) if s in used}

    def loaded(self, e: TensorExpr, operand: int, own: CoordinateSolver, most: Expr) -> Expr:
        """A symbol for the value of an index tensor, ``most`` at most; equal loads have one name."""
        where = tuple(
            own.value[r.domain] if isinstance(r, Mapped) else r.index if isinstance(r, Fixed) else as_expr(0)
            for r in e.reads[operand]
        )
        key = (e.inputs[operand].name, tuple(simplify(x) for x in where))
        name = next((n for n, known in self.loads.items() if known == key), f"{key[0]}_{len(self.loads)}")
        self.loads[name] = key
        return symbol(name, 0, simplify(most))


def loops_of(e: TensorExpr) -> tuple[tuple[AccessLoop, ...], list[tuple[IterDomain, Expr]]]:
    """The loops of an operation, and the value of each axis that is one."""
    t = e.output
    axes = list(t.root) if e.op in _PLACED else [d for d in t.logical if d.kind != "reduction"]
    loops: list[AccessLoop] = []
    start: list[tuple[IterDomain, Expr]] = []
    for k, d in enumerate(axes):
        s = symbol(f"i{k}", 0, simplify(as_expr(d.extent) - 1))
        loops.append(AccessLoop(s, as_expr(d.extent)))
        start.append((d, s))
    if e.op not in _PLACED:
        for k, d in enumerate(d for d in t.logical if d.kind == "reduction"):
            s = symbol(f"r{k}", 0, simplify(as_expr(d.extent) - 1))
            loops.append(AccessLoop(s, as_expr(d.extent), reduced=True))
            start.append((d, s))
    return tuple(loops), start


def needs_memory(e: TensorExpr) -> bool:
    """Whether what ``e`` makes is known only when all of its loops have ended: it cannot be composed away."""
    return e.is_reduction or e.op in _PLACED or e.op in SCANS


def access_relations(e: TensorExpr, passes: Callable[[TensorExpr], bool]) -> dict[Tensor, list[AccessRelation]]:
    """The buffer that ``e`` writes, and every buffer that it reads, directly or through operations that ``passes``
    accepts. Those passed through are listed too.
    """
    loops, start = loops_of(e)
    symbols = tuple(x.symbol for x in loops)
    found: dict[Tensor, list[AccessRelation]] = {e.output: [_write_relation(e, loops, dict(start))]}
    walk = _UpwardWalk(e)
    at: dict[Tensor, list[ProducerPath]] = {}
    for t in reversed(_above(e, passes)):
        at[t] = []

    def enter(x: TensorExpr, here: ProducerPath, begin: Sequence[tuple[IterDomain, Expr]]) -> None:
        for k, t in enumerate(x.inputs):
            new = walk.read(x, k, here, begin)
            mine = at[t]
            if new is not None and len(mine) < MOST and new not in mine:
                mine.append(new)

    enter(e, ProducerPath((), TRUE, ()), start)
    for t in at:
        made = t.definition
        if made is not None and passes(made):
            for way in at[t]:
                enter(made, way, list(zip((d for d in t.logical if d.kind != "reduction"), way.coordinates)))
    for t, ways in at.items():
        found.setdefault(t, []).extend(_read_touch(e, t, loops, symbols, way, walk.loads) for way in ways)
    return {t: x for t, x in found.items() if x}


def _read_touch(
    e: TensorExpr,
    t: Tensor,
    loops: tuple[AccessLoop, ...],
    symbols: tuple[Expr, ...],
    way: ProducerPath,
    loads: Mapping[str, tuple[str, tuple[Expr, ...]]],
) -> AccessRelation:
    used = {n for x in (*way.coordinates, way.condition) for n in x.names}
    mine = {n: v for n, v in loads.items() if n in used}
    shape = tuple(as_expr(d.extent) for d in t.axes)
    return AccessRelation(e, t, False, loops, IndexMap(symbols, way.coordinates, shape, way.condition), mine, way.path)


def _write_relation(e: TensorExpr, loops: tuple[AccessLoop, ...], start: Mapping[IterDomain, Expr]) -> AccessRelation:
    t = e.output
    symbols = tuple(x.symbol for x in loops)
    shape = tuple(as_expr(d.extent) for d in t.axes)
    loads: dict[str, tuple[str, tuple[Expr, ...]]] = {}
    if e.op not in _PLACED:
        return AccessRelation(e, t, True, loops, IndexMap(symbols, tuple(start[d] for d in t.axes), shape), loads)
    walk = _UpwardWalk(e)
    own = CoordinateSolver(tuple(start.items()), t.domain.exprs)
    by = dict(scatter_axes(e))
    at = tuple(
        walk.loaded(e, by[d], own, d.extent - 1)
        if d in by
        else simplify(own.value[d])
        if d in own.value
        else as_expr(0)
        for d in t.axes
    )
    written = and_(*(b.condition for b in own.bounds_on_path(t.axes, frozenset(start)) if e.op in ROWS))
    ends = walk.row_ends(e, own, (*at, written))
    at, written = tuple(x.substitute(ends) for x in at), simplify(written.substitute(ends))
    return AccessRelation(e, t, True, loops, IndexMap(symbols, at, shape, written), walk.loads)


def _above(e: TensorExpr, passes: Callable[[TensorExpr], bool]) -> list[Tensor]:
    """The tensors that ``e`` reads, through operations that ``passes`` lets by, producers before their readers."""
    out: list[Tensor] = []
    seen: set[Tensor] = set()
    work = [(t, False) for t in e.inputs]
    while work:
        t, is_done = work.pop()
        made = t.definition
        if is_done:
            out.append(t)
        elif t not in seen:
            seen.add(t)
            work.append((t, True))
            if made is not None and passes(made):
                work += [(x, False) for x in made.inputs]
    return out


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
