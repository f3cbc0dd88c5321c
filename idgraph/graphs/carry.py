"""The effect of a way on a coordinate, step by step, and the coordinates for which it goes on.

Translations by known numbers are intervals; everything else is an expression of the coordinate at the start, with the
condition for which every axis on the way has an element. An axis that enters from the side (the other part of a merge)
has the coordinate that follows from what is known so far; where nothing does, it is a variable with the axis' name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from idgraph.arith import FALSE, TRUE, Expr, and_, as_expr, simplify, symbol
from idgraph.graphs.beside import SideInputCoordinates
from idgraph.graphs.net import Edge, GroupDigraph
from idgraph.ir import DomainExpr, Resize, Stride
from idgraph.ir.domains import is_one

_CHOICES = 16  # combinations of ways by which the sides of one step come about


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
    met: that is enough for a verdict, and alike for all places of a net that look alike.
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
    def beside(self) -> frozenset[str]:
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
        """The coordinate at a place as an expression."""
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
            made = effects.made(e, values)
            value = made[outs.index(step.to)]
            known = dict(at.known)
            for g, v in zip(ins, values, strict=True):
                known.setdefault(g, v)
            known.update(zip(outs, made, strict=True))
            known[step.to] = value
            yield GuardedCoordinate(effects.under(value, held), held, known)
