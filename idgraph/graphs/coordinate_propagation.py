"""The effect of a way on a coordinate, step by step, and the coordinates for which it goes on.

Translations by known numbers are intervals; everything else is an expression of the coordinate at the start, with the
condition for which every axis on the way has an element. An axis that enters from the side (the other part of a merge)
has the coordinate that follows from what is known so far; where nothing does, it is a variable with the axis' name.

Of a concatenated axis only the parts count whose operand the way came through: where even elements are stacked upon odd
ones, those that came as the even ones have 0 along the new axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from idgraph.arith import FALSE, TRUE, Expr, IndexMap, and_, as_expr, simplify, symbol
from idgraph.graphs.flow_graph import Edge, GroupDigraph, is_identity_edge
from idgraph.ir import DomainExpr, Fixed, Mapped, Resize, Stride, Tensor, tensor_of
from idgraph.ir.iter_domain import is_one

_STEPS = 64  # expressions looked at for one axis
_CHOICES = 16  # coordinates told for one axis
_TENSORS = 256  # tensors looked at to see which operand a way came through

Selection = tuple[int, Expr]  # a group, and the one coordinate of it that is read
Side = tuple[Expr, Expr]  # a coordinate, and the condition for which it is that


class SideInputCoordinates:
    """The neighbours of one state of a path, on which the coordinates of the groups ``known`` are expressed."""

    def __init__(
        self, net: GroupDigraph, known: Mapping[int, Expr], place: PathState, free: Callable[[int], Expr]
    ) -> None:
        self._net = net
        self._known = known
        self._place = place
        self._free = free
        self._left = 0
        self._tensors: list[_Owners] | None = None

    @cached_property
    def _determined(self) -> frozenset[str]:
        return frozenset(name for v in self._known.values() for name in v.names)

    def of(self, group: int) -> list[Side]:
        """The coordinates that an axis may have, each with its condition; a variable with its name where none is known.

        An axis that is not on the way has a variable of its own.
        """
        self._left = _STEPS
        return self._of(group, frozenset())

    def at_selected(self, node: int) -> Expr:
        """Where the next step is to a part of a concatenated axis, of selected elements: that the way is at these."""
        return self._selected(node, frozenset())

    def _of(self, g: int, trail: frozenset[int]) -> list[Side]:
        if g in self._known:
            return [(self._known[g], TRUE)]
        told: list[Side] = []
        fixed: list[Side] = []
        is_open = False
        for n in self._net.definitions(g) if g not in trail else ():
            if is_identity_edge(self._net, n) or not any(map(self._is_on_path, self._net.equal_exprs(n))):
                continue
            chosen = self._selected(n, trail | {g})
            for value, condition in self._computed(g, n, trail | {g}):
                where = and_(condition, chosen)
                if value.names & self._determined:
                    told.append((value, where))
                elif value.is_const:
                    fixed.append((value, where))
                else:
                    is_open = True
        found = told + fixed if told or not is_open else []
        return list(dict.fromkeys(found))[:_CHOICES] or [(self._free(g), TRUE)]

    def _computed(self, g: int, n: int, trail: frozenset[int]) -> list[Side]:
        if self._left <= 0:
            return [(self._free(g), TRUE)]
        self._left -= 1
        e, at = self._net.expr(n), self._net.outs(n).index(g)
        found: list[Side] = []
        for sides in product(*(self._of(x, trail) for x in self._net.ins(n))):
            ins = tuple(v for v, _ in sides)
            where = self._net.effects.inside(e, ins, (TRUE, *(c for _, c in sides)))
            if where is not FALSE:
                found.append((self._net.effects.outputs_of(e, ins)[at], where))
        return found

    def _is_on_path(self, e: DomainExpr) -> bool:
        """False of the part of a concatenated axis whose operand the way did not come through."""
        out = e.outputs[0]
        t = tensor_of(out)
        if len(out.definitions) < 2 or t is None or t.definition is None:
            return True
        through, _ = self._through(t)
        return not through or any(t.definition.inputs[k] in through for k in _cat_operand_indices(t, e))

    def _selected(self, node: int, trail: frozenset[int]) -> Expr:
        """Where the way came to a part of a concatenated axis by selected elements: that it was at these."""
        at = [self._selections(p, owners) for e in self._net.equal_exprs(node) for p, owners in self._operands(e)]
        common = frozenset[Selection].intersection(*at) if at else ()
        conditions = [TRUE]
        for g, k in sorted(common, key=str):
            (value, where), *more = self._of(g, trail)
            if not more and value.names <= self._determined:
                conditions += [where, value.eq(k)]
        return and_(*conditions)

    def _operands(self, e: DomainExpr) -> Iterator[tuple[Tensor, _Owners]]:
        """The operands whose part ``e`` is and that the way came through, with the tensors it came from."""
        mine = _cat_operands(e)
        t = tensor_of(e.outputs[0])
        if mine and t is not None:
            through, owners = self._through(t)
            yield from ((p, owners) for p in mine if p in through)

    def _selections(self, t: Tensor, owners: _Owners) -> frozenset[Selection]:
        """The groups of axes at one selected coordinate on every way from some tensors to ``t``, with these."""
        e = t.definition
        if owners.has(t) or e is None:
            return frozenset()
        found: list[frozenset[Selection]] = []
        for p, row in zip(e.inputs, e.reads, strict=True):
            if _descends(p, owners):
                fixed = [
                    (self._net.group(d), r.index) for d, r in zip(p.axes, row, strict=True)
                    if isinstance(r, Fixed) and r.why == "select"
                ]  # fmt: skip
                here = frozenset((g, k) for g, k in fixed if g is not None)
                found.append(here | self._selections(p, owners))
        return frozenset[Selection].intersection(*found) if found else frozenset()

    def _through(self, t: Tensor) -> tuple[list[Tensor], _Owners]:
        """The operands of a tensor through which the nearest step of the way leads to it, and where that was made.

        None where no step leads there.
        """
        if self._tensors is None:
            self._tensors = [_Owners(self._net, s.node) for s in reversed(self._place.steps())]
        operands = t.definition.inputs if t.definition is not None else ()
        for owners in self._tensors:
            found = [p for p in operands if _descends(p, owners)]
            if found:
                return found, owners
        return [], _Owners(self._net, None)


class _Owners:
    """The tensors whose axes a step of a way makes; so those that have an axis in the group of each of several."""

    def __init__(self, net: GroupDigraph, node: int | None) -> None:
        self._net = net
        found = () if node is None else (tensor_of(e.outputs[0]) for e in net.equal_exprs(node))
        self._made = [t for t in dict.fromkeys(found) if t is not None]
        self._groups = frozenset(() if node is None else net.outs(node))

    def has(self, t: Tensor) -> bool:
        """Whether the step's coordinates are those of an element of ``t``."""
        if t in self._made:
            return True
        return len(self._groups) > 1 and self._groups <= {self._net.group(d) for d in t.axes}


def _cat_operands(e: DomainExpr) -> list[Tensor]:
    """The operands of a concatenation whose part of the axis an expression makes; of others none."""
    t = tensor_of(e.outputs[0])
    if len(e.outputs[0].definitions) < 2 or t is None or t.definition is None:
        return []
    return [t.definition.inputs[k] for k in _cat_operand_indices(t, e)]


def _cat_operand_indices(t: Tensor, e: DomainExpr) -> list[int]:
    """The operands of a concatenation whose part of the axis an expression makes."""
    reads = t.definition.reads if t.definition is not None else ()
    return [k for k, row in enumerate(reads) if any(isinstance(r, Mapped) and r.domain is e.inputs[0] for r in row)]


def _descends(t: Tensor, owners: _Owners) -> bool:
    """True of one of the owners, and of a tensor computed from one."""
    seen = {t}
    pending = [t]
    while pending and len(seen) < _TENSORS:
        at = pending.pop()
        if owners.has(at):
            return True
        fresh = [p for p in (at.definition.inputs if at.definition is not None else ()) if p not in seen]
        seen.update(fresh)
        pending += fresh
    return False


@dataclass(frozen=True, slots=True)
class TranslatedInterval:
    """``c + add`` for ``low <= c < high``, all of them numbers."""

    low: int
    high: int
    add: int


@dataclass(frozen=True, slots=True, eq=False)
class GuardedCoordinate:
    """``value`` where ``inside`` holds; ``known`` are the coordinates of the groups on the way and beside it."""

    value: Expr
    inside: Expr
    known: Mapping[int, Expr]

    @property
    def key(self) -> object:
        """Equal for formulas that say the same in the same words."""
        return self.value, self.inside


Carried = TranslatedInterval | GuardedCoordinate
Move = tuple[int, int, int]  # an amount that is added, and the extents before and after


def translate(at: TranslatedInterval, move: Move) -> TranslatedInterval | None:
    """A coordinate one step on, where some element goes on."""
    by, one, two = move
    low, high = max(at.low, -at.add, -at.add - by), min(at.high, one - at.add, two - at.add - by)
    return TranslatedInterval(low, high, at.add + by) if low < high else None


def untranslate(at: TranslatedInterval, move: Move) -> TranslatedInterval | None:
    """A coordinate one step before, where some element comes from there."""
    by, one, two = move
    return translate(at, (-by, two, one))


class PathState:
    """A group that a way has come to; ``before`` is where it was one step earlier."""

    __slots__ = ("before", "carried", "group", "mask", "step")

    def __init__(self, group: int, carried: Carried, step: Edge | None, before: PathState | None, mask: int) -> None:
        self.group = group
        self.carried = carried
        self.step = step
        self.before = before
        self.mask = mask  # a bit for every group on the way

    def steps(self) -> list[Edge]:
        """The steps, in order."""
        found: list[Edge] = []
        at: PathState | None = self
        while at is not None and at.step is not None:
            found.append(at.step)
            at = at.before
        return found[::-1]


def variable(extent: Expr) -> Expr:
    """The coordinate at the start of a way."""
    return symbol("c", 0, extent - 1)


def translation(e: DomainExpr) -> Expr | None:
    """The amount that ``e`` adds to every coordinate; None where it does anything else."""
    match e:
        case Resize():
            return as_expr(e.left)
        case Stride() if e.step == 1:
            return -as_expr(e.start)
        case _:
            return None


def constant_translation(net: GroupDigraph, node: int) -> Move | None:
    """The amount that an expression adds, and its extents before and after, where all are numbers."""
    e = net.expr(node)
    parts = (translation(e), e.inputs[0].extent, e.outputs[0].extent)
    by, one, two = (int(x) if x is not None and x.is_const else None for x in parts)
    return None if by is None or one is None or two is None else (by, one, two)


class CoordinatePropagator:
    """Carries a coordinate from a group of one net, whose extent is that of the axis that the first step reads.

    Coordinates of which nothing is known have the names of their axes where ``named``, else I0, I1, ... as they are
    met: that is enough for a verdict, and the same for all states of a graph that look the same.
    """

    def __init__(self, net: GroupDigraph, extent: Expr, *, named: bool) -> None:
        self._net = net
        self.c = variable(extent)
        self._extent = extent
        self._start = 0
        self._moves: dict[int, Move | None] = {}
        self._named = named
        self._free: dict[int, Expr] = {}

    def begin(self, group: int) -> PathState:
        """The empty way at a group."""
        self._start = group
        if self._extent.is_const:
            return PathState(group, TranslatedInterval(0, int(self._extent), 0), None, None, 0)
        return PathState(group, GuardedCoordinate(self.c, TRUE, {**self._frame, group: self.c}), None, None, 0)

    @cached_property
    def _frame(self) -> dict[int, Expr]:
        """The coordinates of the axes beside the start: free variables."""
        return {g: self._unknown(g) for g in self._net.frame(self._start)}

    @property
    def free_coordinates(self) -> frozenset[str]:
        """The names of the coordinates of which nothing is known so far."""
        return frozenset(name for v in self._free.values() for name in v.names)

    def _unknown(self, group: int) -> Expr:
        """A coordinate of which nothing is known."""
        found = self._free.get(group)
        if found is None:
            axis = self._net.axis(group)
            name = axis.name if self._named else f"I{len(self._free)}"
            found = as_expr(0) if is_one(axis.extent) else symbol(name, 0, axis.extent - 1)
            self._free[group] = found
        return found

    def index_map(self, value: Expr, extent: Expr, inside: Expr) -> IndexMap:
        """A coordinate of a group as a map from that at the start, and from those of which nothing is known."""
        used = value.names | inside.names
        symbols = {x.name: x for x in (self.c, *(x for x in self._free.values() if x.names & used))}
        return IndexMap(tuple(symbols.values()), (value,), (extent,), inside)

    def maps(self, end: PathState) -> list[IndexMap]:
        """From the coordinate at the start of a way to that behind each of its steps."""
        found: list[IndexMap] = []
        at = end
        while at.step is not None and at.before is not None:
            made, outs = self.formula(at), self._net.outs(at.step.node)
            extent = self._net.expr(at.step.node).outputs[outs.index(at.group)].extent
            found.append(self.index_map(made.value, extent, made.inside))
            at = at.before
        return found[::-1]

    def propagate(self, place: PathState, step: Edge) -> Iterator[Carried]:
        """The coordinate one step on, by each way in which sides come about; nothing where no element goes on."""
        at = place.carried
        move = self.move(step.node) if isinstance(at, TranslatedInterval) else None
        if move is None or not isinstance(at, TranslatedInterval):
            yield from self._formulas(place, step)
        elif (gone := translate(at, move)) is not None:
            yield gone

    def move(self, node: int) -> Move | None:
        """The amount that an expression adds, and its extents before and after, where all are numbers."""
        if node not in self._moves:
            self._moves[node] = constant_translation(self._net, node)
        return self._moves[node]

    def formula(self, place: PathState) -> GuardedCoordinate:
        """The coordinate at a state as an expression."""
        at = place.carried
        if isinstance(at, GuardedCoordinate):
            return at
        known = dict(self._frame)
        behind: PathState | None = place
        while behind is not None:
            if isinstance(behind.carried, TranslatedInterval):
                known[behind.group] = self.c + behind.carried.add
            behind = behind.before
        inside = simplify(and_(self.c >= at.low, self.c < at.high))
        return GuardedCoordinate(self.c + at.add, inside, known)

    def _formulas(self, place: PathState, step: Edge) -> Iterator[GuardedCoordinate]:
        at, e = self.formula(place), self._net.expr(step.node)
        ins, outs = self._net.ins(step.node), self._net.outs(step.node)
        through = ins.index(step.source)
        beside, effects = SideInputCoordinates(self._net, at.known, place, self._unknown), self._net.effects
        chosen = beside.at_selected(step.node)
        sides = [[(at.value, TRUE)] if k == through else beside.of(g) for k, g in enumerate(ins)]
        for k, choices in enumerate(product(*sides)):
            if k == _CHOICES:
                return
            values = tuple(v for v, _ in choices)
            conditions = (chosen, *(c for _, c in choices))
            held = effects.inside(e, values, (at.inside, *(c for c in conditions if c is not TRUE)))
            if held is FALSE:
                continue
            made = effects.outputs_of(e, values)
            value = made[outs.index(step.to)]
            known = dict(at.known)
            for g, v in zip(ins, values, strict=True):
                known.setdefault(g, v)
            known.update(zip(outs, made, strict=True))
            known[step.to] = value
            yield GuardedCoordinate(effects.under(value, held), held, known)
