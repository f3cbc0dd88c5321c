"""The effect of a cycle on a coordinate: the maps around it composed, their domain, and the kind of the cycle.

*Identity* gives the coordinate back, *shift* adds a constant (modulo the extent where a roll wraps), *reorder* does
anything else, *empty* is said of a way that no coordinate goes all round. Only coordinates count at which every axis on
the way has an element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from functools import reduce
from itertools import combinations

from idgraph.arith import (
    FALSE,
    TRUE,
    CounterExample,
    Expr,
    IndexMap,
    Proof,
    and_,
    as_expr,
    is_true,
    not_,
    or_,
    prove,
    prove_equal,
    simplify,
    where,
)
from idgraph.arith.enumeration import values_met
from idgraph.arith.expr import postorder
from idgraph.arith.facts import replace
from idgraph.graphs.coordinate_propagation import CoordinatePropagator, GuardedCoordinate, PathState, TranslatedInterval
from idgraph.graphs.coordinate_rules import CycleKind
from idgraph.graphs.flow_graph import Edge, GroupDigraph

_PROJECTION_POINTS = 1 << 16  # points at which a condition is looked at, to tell it without the axes beside the way
_TURNS = 3  # remainders of one way round that are taken apart
_ZERO = as_expr(0)
Verdict = tuple[CycleKind, Expr | None, Expr | None]


@dataclass(frozen=True, slots=True)
class CycleMap:
    """Once around: ``map`` takes a coordinate to that afterwards, where there is an element all the way round.

    ``way`` is how the coordinate got there.
    """

    kind: CycleKind
    shift: Expr | None
    modulus: Expr | None
    map: IndexMap
    way: tuple[CoordinatePropagator, PathState] | None = None

    @property
    def maps(self) -> tuple[IndexMap, ...]:
        """From the coordinate before to that behind each step; none where no coordinate goes round."""
        if self.way is None:
            return ()
        carrier, end = self.way
        return (*(carrier.maps(end.before) if end.before is not None else ()), self.map)

    @property
    def value(self) -> Expr:
        """The coordinate afterwards."""
        return self.map.results[0]

    @property
    def holds(self) -> Expr:
        """The condition for which there is an element all the way round."""
        return self.map.condition


def compose_cycle(net: GroupDigraph, way: Sequence[Edge]) -> CycleMap:
    """The coordinate once around."""
    start, e = way[0].source, net.expr(way[0].node)
    extent = e.inputs[net.ins(way[0].node).index(start)].extent
    carrier = CoordinatePropagator(net, extent, named=True)
    ends = _propagate_path(carrier, way)
    if not ends:  # a way that no coordinate goes
        return CycleMap("empty", None, None, carrier.index_map(carrier.c, extent, FALSE))
    return replaced(_join_paths(carrier, ends, extent), way=(carrier, ends[0]))


def _propagate_path(carrier: CoordinatePropagator, way: Sequence[Edge]) -> list[PathState]:
    """The coordinate at the end of a way: one place for each way in which its sides come about."""
    places = [carrier.begin(way[0].source)]
    for step in way:
        places = [PathState(step.to, c, step, place, 0) for place in places for c in carrier.propagate(place, step)]
    return places


def _join_paths(carrier: CoordinatePropagator, ends: Sequence[PathState], extent: Expr) -> CycleMap:
    """One round of what comes about in several ways."""
    c = carrier.c
    formulas = [carrier.formula(p) for p in ends]
    both = [(_cycle_map_at(at, carrier, extent, p), at.inside) for at, p in zip(formulas, ends, strict=True)]
    told, insides = map(list, zip(*_that_matter(both), strict=True))
    holds = simplify(or_(*(r.holds for r in told)))
    if len({(r.kind, r.shift, r.modulus) for r in told}) == 1:
        first = told[0]
        net = first.value if first.kind != "reorder" else _union_of_maps(told, insides)
        return CycleMap(first.kind, first.shift, first.modulus, carrier.index_map(net, extent, holds))
    shifts = {simplify((r.shift or _ZERO) % extent) for r in told}
    if len(shifts) == 1 and all(r.kind != "reorder" for r in told):
        by = shifts.pop()
        return CycleMap("shift", by, extent, carrier.index_map(simplify((c + by) % extent), extent, holds))
    return CycleMap("reorder", None, None, carrier.index_map(_union_of_maps(told, insides), extent, holds))


def _that_matter(ends: list[tuple[CycleMap, Expr]]) -> list[tuple[CycleMap, Expr]]:
    """The ends of which a cycle tells: where one coordinate goes round in two manners, that which changes it."""
    changing = [inside for r, inside in ends if r.kind != "identity"]
    return [
        (r, inside)
        for r, inside in ends
        if r.kind != "identity" or all(simplify(and_(inside, other)) is FALSE for other in changing)
    ]


def _union_of_maps(told: Sequence[CycleMap], insides: Sequence[Expr]) -> Expr:
    """One map of several: conditions name an axis beside the way where the coordinate does not decide by itself."""
    apart = all(simplify(and_(a.holds, b.holds)) is FALSE for a, b in combinations(told, 2))
    cases = [r.holds for r in told] if apart else insides
    parts = list(zip(cases, (r.value for r in told), strict=True))
    return simplify(reduce(lambda rest, part: where(*part, rest), parts[-2::-1], parts[-1][1]))


def _cycle_map_at(at: GuardedCoordinate, carrier: CoordinatePropagator, extent: Expr, end: PathState) -> CycleMap:
    c = carrier.c
    if isinstance(end.carried, TranslatedInterval):
        kind, shift, modulus = _translation_verdict(as_expr(end.carried.add))
    else:
        kind, shift, modulus = _classify(at.value, c, extent, at.inside, carrier.free_coordinates)
    net = at.value
    if shift is not None:
        net = simplify(c + shift if modulus is None else (c + shift) % modulus)
    holds = _project_condition(at.inside, c, carrier.free_coordinates)
    return CycleMap(kind, shift, modulus, carrier.index_map(net, extent, holds))


def _classify(net: Expr, c: Expr, extent: Expr, inside: Expr, beside: frozenset[str]) -> Verdict:
    """The kind of one round; ``beside`` are the names of axes beside the way, all others but ``c`` are given sizes."""
    moved = simplify(net - c)
    facts = () if inside is TRUE else (inside,)
    symbols = extent.names | (net.names | inside.names) - beside - {c.name}
    if moved.names <= symbols:
        return _translation_verdict(moved)
    moved = simplify(moved, facts=facts)
    if moved.names <= symbols:
        return _translation_verdict(moved)
    if not symbols:
        return _by_points(net, c, extent, inside)
    if net.names - symbols - {c.name}:  # an axis beside the way decides
        return ("identity", _ZERO, None) if isinstance(prove_equal(net, c, facts=facts), Proof) else _REORDER
    turned = _case_split_mod(net, c, facts, _TURNS) or []
    if len(turned) == 1:
        return _translation_verdict(turned[0])
    if len(turned) == 2 and simplify(turned[0] - turned[1]) in (extent, simplify(-extent)):
        return "shift", min(turned, key=lambda x: len(str(x))), extent
    total = simplify(net.substitute({c: _ZERO}))
    if isinstance(prove_equal(net, (c + total) % extent, facts=facts), Proof):
        return "shift", total, extent
    return _REORDER


_REORDER: Verdict = ("reorder", None, None)


def _by_points(net: Expr, c: Expr, extent: Expr, inside: Expr) -> Verdict:
    """The kind that one point shows, proved or refuted at the others; for extents that are all numbers."""
    facts = () if inside is TRUE else (inside,)
    some = prove(not_(inside)) if facts else None
    at = dict.fromkeys(net.names | inside.names | {c.name}, 0)
    if isinstance(some, CounterExample):
        at.update(some.values)
    by = int(net.evaluate(at)) - at[c.name]
    if isinstance(prove_equal(net, c + by, facts=facts), Proof):
        return _translation_verdict(as_expr(by))
    if isinstance(prove_equal(net, (c + by) % extent, facts=facts), Proof):
        return "shift", simplify(by % extent), extent
    return _REORDER


def _case_split_mod(net: Expr, c: Expr, facts: Sequence[Expr], depth: int) -> list[Expr] | None:
    """The amount added where remainders by a symbolic size lie in their several periods; None where it is not a number.

    Periods that the ``facts`` exclude do not count: a roll whose wrapped part is cut off moves all that is left alike.
    """
    turns = [x for x in postorder(net) if x.op == "mod" and not x.args[1].is_const and c in x.symbols]
    if not turns or depth == 0:
        moved = simplify(net - c, facts=facts)
        return None if turns or c.name in moved.names else [moved]
    found: dict[Expr, None] = {}
    x, size = turns[0].args
    for k in (-1, 0, 1):
        value = x - size * k
        table = {turns[0]: value}
        within = [simplify(f) for f in (value >= 0, value < size, *(replace(f, table) for f in facts))]
        if simplify(and_(*within)) == FALSE:
            continue
        one = _case_split_mod(simplify(replace(net, table)), c, [f for f in within if not f.is_const], depth - 1)
        if one is None:
            return None
        found.update(dict.fromkeys(one))
    return list(found) if is_true(x >= -size) and is_true(x < size * 2) else None  # no other period


def _translation_verdict(by: Expr) -> Verdict:
    return ("identity", _ZERO, None) if by == 0 else ("shift", by, None)


def _project_condition(inside: Expr, c: Expr, beside: frozenset[str]) -> Expr:
    """A condition on ``c`` and on axes beside the way as one on ``c``: true where it can be met.

    Where an extent is not a number, or there are too many points to look at, the axes beside it stay in it; given sizes
    stay in any case.
    """
    if not inside.names & beside or inside.names - beside - {c.name}:
        return inside
    met = values_met(inside, c, _PROJECTION_POINTS)
    if met is None:
        return inside
    return _one_of(met, c)


def _one_of(met: list[int], c: Expr) -> Expr:
    """The condition of being one of these numbers."""
    runs: list[tuple[int, int]] = []
    for x in met:
        if runs and runs[-1][1] == x:
            runs[-1] = runs[-1][0], x + 1
        else:
            runs.append((x, x + 1))
    return simplify(or_(*(and_(c >= low, c < high) for low, high in runs)))
