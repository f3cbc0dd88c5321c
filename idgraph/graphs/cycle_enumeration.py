"""Ways around: every simple way from a group back to it that some coordinate goes, by sets of coordinates.

One pass for strongly connected components (Tarjan 1972). In each, breadth first from the earliest group with the set of
coordinates carried along: a way ends where that set is empty, and where another one came to the group with the same
map on no smaller a set. Then the group is taken out, and what is left is looked at in the same manner (as Johnson
1975 does), so every cycle is found once, from its first group to be taken.

Rings of translations, whole: every ring that some coordinate goes round from some of its groups.

A coordinate may get round a ring from one group where none can from another: padded by 5 of 8 and cut again, an axis
gives back coordinates behind the pad, not all before it. All rings through one group are found by two searches
from it, one along the expressions and one against them, with spans of that group's own coordinate: a ring that holds
at a group is a way from there to the first one and a way back whose spans have a coordinate in common.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from idgraph.arith import FALSE
from idgraph.graphs.coordinate_propagation import (
    Carried,
    CoordinatePropagator,
    GuardedCoordinate,
    PathState,
    TranslatedInterval,
    constant_translation,
    translate,
    untranslate,
)
from idgraph.graphs.flow_graph import Edge, GroupDigraph, ValGraphDigraph, is_identity_edge

MANY = (
    100_000  # places of one search (beyond, only groups that no way has come to yet are gone on from), and rings there
)
MORE = 5_000  # places of searches from other groups of a component
SMALL = 64  # groups of a component from each of which a search is begun


@dataclass(frozen=True, slots=True, eq=False)
class Circuit:
    """A way around: ``home`` leads to a group from the one at which a search began, ``out`` back to that one.

    The coordinate is looked at in the group at which the two meet. A search that only follows expressions comes back by
    itself: there is no ``out`` then.
    """

    home: PathState
    out: PathState | None = None

    def steps(self) -> list[Edge]:
        """The steps, from the group at which the coordinate is looked at."""
        return [*(() if self.out is None else self.out.steps()[::-1]), *self.home.steps()]

    @property
    def nodes(self) -> frozenset[int]:
        """The expressions on it."""
        return frozenset(step.node for step in self.steps())

    @property
    def adds(self) -> int | None:
        """The amount that going once around adds to every coordinate; None where a step is not a translation."""
        if not isinstance(self.home.carried, TranslatedInterval):
            return None
        return self.home.carried.add - (0 if self.out is None else _interval(self.out).add)


def _interval(at: PathState) -> TranslatedInterval:
    assert isinstance(at.carried, TranslatedInterval)
    return at.carried


class VisitedStates:
    """The states with which ways have reached each group, so that none is followed twice."""

    def __init__(self, most: int = MANY) -> None:
        self._spans: dict[tuple[int, int], list[tuple[TranslatedInterval, int]]] = {}
        self._formulas: set[object] = set()
        self._groups: set[int] = set()
        self._most = most
        self.places = 0

    def afresh(self) -> VisitedStates:
        """For another search: earlier states are forgotten, their number is kept."""
        for held in (self._spans, self._formulas, self._groups):
            held.clear()
        return self

    def new(self, group: int, carried: Carried, mask: int = 0) -> bool:
        """True of a state that no earlier way came with, and that is worth following.

        An earlier way counts that came on no other groups than those of ``mask``.
        """
        if self.places > self._most and group in self._groups:
            return False
        if isinstance(carried, TranslatedInterval):
            held = self._spans.setdefault((group, carried.add), [])
            if any(s.low <= carried.low and carried.high <= s.high and not m & ~mask for s, m in held):
                return False
            held.append((carried, mask))
        else:
            key = (group, carried.key)
            if key in self._formulas:
                return False
            self._formulas.add(key)
        self._groups.add(group)
        self.places += 1
        return True

    @property
    def is_full(self) -> bool:
        """True when some way may have been left out."""
        return self.places > self._most


class TranslationCycles:
    """The rings through one group ``first`` and others ``among`` which some coordinate goes round."""

    def __init__(self, net: GroupDigraph, first: int, among: Collection[int]) -> None:
        self._net = net
        self._first = first
        self._among = among
        self._bits: dict[int, int] = {}

    def all(self) -> Iterator[Circuit]:
        """Each ring once, from the first group where that can be, else from one at which it holds."""
        ways = [n for n in self._net.uses(self._first) if not is_identity_edge(self._net, n)]
        if not ways:
            return
        extent = self._net.expr(ways[0]).inputs[self._net.ins(ways[0]).index(self._first)].extent
        if not extent.is_const:
            return
        carrier = CoordinatePropagator(self._net, extent, named=False)
        homes, outs = (self._search(carrier, forwards=x) for x in (True, False))
        told: set[frozenset[int]] = set()
        for group in dict.fromkeys((self._first, *homes)):
            for ring in self._joined(group, homes, outs):
                nodes = ring.nodes
                if nodes not in told:
                    told.add(nodes)
                    yield ring
                if len(told) > MANY:
                    return

    def _bit(self, group: int) -> int:
        return 1 << self._bits.setdefault(group, len(self._bits))

    def _search(self, carrier: CoordinatePropagator, *, forwards: bool) -> dict[int, list[PathState]]:
        """Simple ways from the first group, along the expressions or against them; by the group that they lead to."""
        net, found, held = self._net, dict[int, list[PathState]](), VisitedStates()
        queue, move_on = deque([carrier.begin(self._first)]), translate if forwards else untranslate
        while queue and not held.is_full:
            at = queue.popleft()
            for n in net.uses(at.group) if forwards else net.definitions(at.group):
                move = None if is_identity_edge(net, n) else carrier.move(n)
                if move is None:
                    continue
                (to,) = net.outs(n) if forwards else net.ins(n)
                bit = self._bit(to)
                if to not in self._among or at.mask & bit:
                    continue
                span = move_on(_interval(at), move)
                if span is None:
                    continue
                step = Edge(at.group, n, to) if forwards else Edge(to, n, at.group)
                made = PathState(to, span, step, at, at.mask | bit)
                if to == self._first or held.new(to, span, made.mask):
                    found.setdefault(to, []).append(made)
                    if to != self._first:
                        queue.append(made)
        return found

    def _joined(
        self, group: int, homes: dict[int, list[PathState]], outs: dict[int, list[PathState]]
    ) -> Iterator[Circuit]:
        if group == self._first:
            yield from map(Circuit, homes.get(group, ()))
            return
        ends = self._bit(group)
        order = sorted(((_interval(x), x) for x in outs.get(group, ())), key=lambda pair: pair[0].low)
        for home in homes[group]:
            span = _interval(home)
            for there, out in order:
                if there.low >= span.high:
                    break
                if there.high > span.low and not out.mask & home.mask & ~ends:
                    yield Circuit(home, out)


def follow(
    net: GroupDigraph,
    start: int,
    goal: int,
    within: Callable[[int], bool],
    *,
    simple: bool = True,
    reached: VisitedStates | None = None,
    named: bool = False,
) -> Iterator[tuple[CoordinatePropagator, PathState]]:
    """Ways from a group to another (or back to itself), through groups ``within``, that some coordinate goes.

    ``simple`` ways come to no group twice; without it a way ends only where it brings nothing new. Free coordinates
    have the names of their axes where ``named``.
    """
    held = VisitedStates() if reached is None else reached
    place_of: dict[int, int] = {}
    queue: deque[tuple[CoordinatePropagator, PathState]] = deque()
    carriers: dict[object, CoordinatePropagator] = {}

    def leave(carrier: CoordinatePropagator, place: PathState, step: Edge) -> Iterator[PathState]:
        """One edge on from a state: the ends; other states enter the queue."""
        to = step.to
        bit = 1 << place_of.setdefault(to, len(place_of))
        if to != goal and (not within(to) or (simple and place.mask & bit)):
            return
        for carried in carrier.propagate(place, step):
            made = PathState(to, carried, step, place, place.mask | bit)
            if to == goal:
                yield made
            elif held.new(to, carried):
                queue.append((carrier, made))

    for step in net.edges(start):
        extent = net.expr(step.node).inputs[net.ins(step.node).index(start)].extent
        carrier = carriers.setdefault(extent, CoordinatePropagator(net, extent, named=named))
        yield from ((carrier, end) for end in leave(carrier, carrier.begin(start), step))
    while queue:
        carrier, place = queue.popleft()
        for step in net.edges(place.group):
            yield from ((carrier, end) for end in leave(carrier, place, step))


def components(net: GroupDigraph, among: dict[int, None]) -> list[list[int]]:
    """Groups that lie on common cycles, of those ``among``."""
    import networkx as nx  # only fusions with cycles need it

    graph = nx.DiGraph((g, e.to) for g in among for e in net.edges(g) if e.to in among)
    return [list(x) for x in nx.strongly_connected_components(graph) if len(x) > 1 or graph.has_edge(*x, *x)]


Told = tuple[Circuit, bool]  # and whether every coordinate that goes it comes back


def find_cycles(net: ValGraphDigraph) -> list[Circuit]:
    """Every ring that some coordinate goes round, from whichever of its groups; each once.

    Each is described from an early group, or from one where it changes coordinates if there is such: a coordinate
    beside the way may follow from one group and not from another. Rings of translations by numbers are whole
    (`TranslationCycles`), others are looked for from all groups of a component as far as `MORE` states suffice.
    """
    found: list[Circuit] = []
    for members in cyclic(net):
        among = dict.fromkeys(sorted(members, key=net.first))
        rings, ways = _taken_out(net, among)
        if len(among) <= SMALL and not only_translations(net, among):
            left = MORE
            for start in among:
                reached = VisitedStates()
                for carrier, end in follow(net, start, start, among.__contains__, reached=reached) if left > 0 else ():
                    key = Circuit(end).nodes
                    if key not in ways or (ways[key][1] and not is_identity(net, carrier, end)):
                        ways[key] = Circuit(end), is_identity(net, carrier, end)
                left -= reached.places
        found += [way for way, _ in ways.values()] + rings
    return found


def is_identity(net: GroupDigraph, carrier: CoordinatePropagator, end: PathState) -> bool:
    """True of a way around after which every coordinate that goes it is what it was, by proof."""
    if isinstance(end.carried, TranslatedInterval):
        return end.carried.add == 0
    return net.effects.same(end.carried.value, carrier.c, end.carried.inside)


def only_translations(net: GroupDigraph, among: Mapping[int, None]) -> bool:
    """True where every expression between these groups adds a number to a coordinate of known bounds."""
    return all(constant_translation(net, e.node) is not None for g in among for e in net.edges(g) if e.to in among)


def _taken_out(net: ValGraphDigraph, component: dict[int, None]) -> tuple[list[Circuit], dict[frozenset[int], Told]]:
    """Rings through the first group, then those of what is left without it: of translations, and others by nodes."""
    rings: list[Circuit] = []
    ways: dict[frozenset[int], Told] = {}
    pending = [component]
    while pending:
        among = pending.pop()
        root = next(iter(among))
        for carrier, end in () if only_translations(net, among) else follow(net, root, root, among.__contains__):
            if isinstance(end.carried, TranslatedInterval):
                continue
            key = Circuit(end).nodes
            if key not in ways or (ways[key][1] and not is_identity(net, carrier, end)):
                ways[key] = Circuit(end), is_identity(net, carrier, end)
        rings += TranslationCycles(net, root, among).all()
        rest = {g: None for g in among if g != root}
        pending += [dict.fromkeys(sorted(x, key=net.first)) for x in components(net, rest)[::-1]]
    return rings, ways


def infeasible_cycles(net: ValGraphDigraph) -> list[Circuit]:
    """Through each expression on a common cycle a shortest way around, whatever coordinates go it; each way once.

    A way that no coordinate goes is listed beside those that are found by sets of coordinates.
    """
    found: dict[frozenset[int], Circuit] = {}
    for members in cyclic(net):
        among = frozenset(members)
        for a in sorted(members):
            for e in net.edges(a):
                if e.to in among:
                    steps = [e, *_shortest(net, e.to, a, among)]
                    found.setdefault(frozenset(s.node for s in steps), placed(steps))
    return list(found.values())


def _shortest(net: GroupDigraph, start: int, goal: int, among: frozenset[int]) -> list[Edge]:
    before: dict[int, Edge | None] = {start: None}
    queue = deque([start])
    while queue and goal not in before:
        at = queue.popleft()
        for e in net.edges(at):
            if e.to in among and e.to not in before:
                before[e.to] = e
                queue.append(e.to)
    found: list[Edge] = []
    step = before[goal]
    while step is not None:
        found.append(step)
        step = before[step.source]
    return found[::-1]


def placed(steps: list[Edge]) -> Circuit:
    """A way of these steps; nothing is carried along."""
    nothing = GuardedCoordinate(FALSE, FALSE, {})
    at = PathState(steps[0].source, nothing, None, None, 0)
    for step in steps:
        at = PathState(step.to, nothing, step, at, 0)
    return Circuit(at)


def cyclic(net: ValGraphDigraph) -> list[list[int]]:
    """Groups that lie on common cycles, whether or not a coordinate goes round."""
    return components(net, dict.fromkeys(g for n in net.equal for g in net.ins(n)))
