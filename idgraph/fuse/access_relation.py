"""Touches: which element of a buffer an operation reads or writes at each point of its own loops.

The loops of an operation are the axes of its result, then those that it reduces; what lies between it and the buffer
(views, and arithmetic that needs no memory) is composed away. The schedule does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from idgraph.arith import FALSE, TRUE, Expr, IndexMap, Proof, and_, as_expr, not_, prove, simplify, symbol
from idgraph.graphs.coordinate_rules import CoordinateSolver
from idgraph.ir import SCATTERS, Fixed, IterDomain, LoadedCoordinate, Mapped, Tensor, TensorExpr, scatter_axes
from idgraph.ir.op_table import SCANS

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


@dataclass(frozen=True, slots=True)
class _WalkState:
    coordinates: tuple[Expr, ...]
    condition: Expr
    path: tuple[TensorExpr, ...]


@dataclass(slots=True)
class _UpwardWalk:
    """From one operation upwards."""

    root: TensorExpr
    loads: dict[str, tuple[str, tuple[Expr, ...]]] = field(default_factory=dict[str, "tuple[str, tuple[Expr, ...]]"])

    def read(
        self, e: TensorExpr, k: int, at: _WalkState, start: Sequence[tuple[IterDomain, Expr]]
    ) -> _WalkState | None:
        """The place at which operand ``k`` of ``e`` is read; None where it is never read."""
        own = CoordinateSolver(start, e.output.domain.exprs)
        mapped = [r.domain for r in e.reads[k] if isinstance(r, Mapped)]
        bounds = [b.condition for b in own.bounds_on_path(mapped, frozenset(d for d, _ in start))]
        facts = () if at.condition is TRUE else (at.condition,)
        condition = simplify(and_(at.condition, *(simplify(b, facts=facts) for b in bounds)))
        if condition is FALSE or (condition is not TRUE and isinstance(prove(not_(condition)), Proof)):
            return None
        if condition is not TRUE and isinstance(prove(condition), Proof):
            condition = TRUE
        facts = () if condition is TRUE else (condition,)
        made: list[Expr] = []
        for axis, r in zip(e.inputs[k].axes, e.reads[k], strict=True):
            match r:
                case Fixed(index):
                    x = index
                case LoadedCoordinate(operand):
                    x = self.loaded(e, operand, own, axis)
                case Mapped(domain):
                    x = own.value[domain]
            made.append(as_expr(0) if axis.is_broadcast else simplify(x, facts=facts))
        return _WalkState(tuple(made), condition, (*at.path, e))

    def loaded(self, e: TensorExpr, operand: int, own: CoordinateSolver, axis: IterDomain) -> Expr:
        """A symbol for the value of an index tensor; equal loads have one name."""
        where = tuple(
            own.value[r.domain] if isinstance(r, Mapped) else r.index if isinstance(r, Fixed) else as_expr(0)
            for r in e.reads[operand]
        )
        key = (e.inputs[operand].name, tuple(simplify(x) for x in where))
        name = next((n for n, known in self.loads.items() if known == key), f"{key[0]}_{len(self.loads)}")
        self.loads[name] = key
        return symbol(name, 0, simplify(as_expr(axis.extent) - 1))


def loops_of(e: TensorExpr) -> tuple[tuple[AccessLoop, ...], list[tuple[IterDomain, Expr]]]:
    """The loops of an operation, and the value of each axis that is one."""
    t = e.output
    axes = list(t.root) if e.op in SCATTERS else [d for d in t.logical if d.kind != "reduction"]
    loops: list[AccessLoop] = []
    start: list[tuple[IterDomain, Expr]] = []
    for k, d in enumerate(axes):
        s = symbol(f"i{k}", 0, simplify(as_expr(d.extent) - 1))
        loops.append(AccessLoop(s, as_expr(d.extent)))
        start.append((d, s))
    if e.op not in SCATTERS:
        for k, d in enumerate(d for d in t.logical if d.kind == "reduction"):
            s = symbol(f"r{k}", 0, simplify(as_expr(d.extent) - 1))
            loops.append(AccessLoop(s, as_expr(d.extent), reduced=True))
            start.append((d, s))
    return tuple(loops), start


def needs_memory(e: TensorExpr) -> bool:
    """Whether what ``e`` makes is known only when all of its loops have ended: it cannot be composed away."""
    return e.is_reduction or e.op in SCATTERS or e.op in SCANS


def access_relations(e: TensorExpr, passes: Callable[[TensorExpr], bool]) -> dict[Tensor, list[AccessRelation]]:
    """The buffer that ``e`` writes, and every buffer that it reads, directly or through operations that ``passes``
    accepts. Those passed through are listed too.
    """
    loops, start = loops_of(e)
    symbols = tuple(x.symbol for x in loops)
    found: dict[Tensor, list[AccessRelation]] = {e.output: [_write_relation(e, loops, dict(start))]}
    walk = _UpwardWalk(e)
    at: dict[Tensor, list[_WalkState]] = {}
    for t in reversed(_above(e, passes)):
        at[t] = []

    def enter(x: TensorExpr, here: _WalkState, begin: Sequence[tuple[IterDomain, Expr]]) -> None:
        for k, t in enumerate(x.inputs):
            new = walk.read(x, k, here, begin)
            mine = at[t]
            if new is not None and len(mine) < MOST and not any(_same_state(new, old) for old in mine):
                mine.append(new)

    enter(e, _WalkState((), TRUE, ()), start)
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
    way: _WalkState,
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
    if e.op not in SCATTERS:
        return AccessRelation(e, t, True, loops, IndexMap(symbols, tuple(start[d] for d in t.axes), shape), loads)
    walk = _UpwardWalk(e)
    own = CoordinateSolver(tuple(start.items()), t.domain.exprs)
    by = dict(scatter_axes(e))
    at = tuple(
        walk.loaded(e, by[d], own, d) if d in by else simplify(own.value[d]) if d in own.value else as_expr(0)
        for d in t.axes
    )
    return AccessRelation(e, t, True, loops, IndexMap(symbols, at, shape), walk.loads)


def _same_state(a: _WalkState, b: _WalkState) -> bool:
    return a.coordinates == b.coordinates and a.condition == b.condition


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
