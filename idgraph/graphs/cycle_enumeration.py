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

_MANY = 100_000  # places of one search, and rings joined at one group


@dataclass(frozen=True, slots=True, eq=False)
class SearchNode:
    """A group that a search came to, with the coordinates of its first group for which there is an element.

    ``step`` is the one between the group and that of ``before``; groups and nodes on the way are bits.
    """

    group: int
    span: TranslatedInterval
    step: Edge | None
    before: SearchNode | None
    groups: int
    nodes: int

    def steps(self) -> Iterator[Edge]:
        """The steps, from this end."""
        at: SearchNode | None = self
        while at is not None and at.step is not None:
            yield at.step
            at = at.before


@dataclass(frozen=True, slots=True)
class TranslationCycle:
    """A ring from a group of it: ``out`` leads from there to the first group, ``home`` back from that one."""

    out: SearchNode
    home: SearchNode

    def steps(self) -> list[Edge]:
        """The steps, from the group at which the coordinate is looked at."""
        return [*self.out.steps(), *list(self.home.steps())[::-1]]

    @property
    def adds(self) -> int:
        """The amount that going once around adds to every coordinate."""
        return self.home.span.add - self.out.span.add

    @property
    def nodes(self) -> int:
        """The expressions on it, as bits."""
        return self.out.nodes | self.home.nodes


class TranslationCycles:
    """The rings through one group ``first`` and others ``among`` which some coordinate goes round."""

    def __init__(self, net: GroupDigraph, first: int, among: Collection[int]) -> None:
        self._net = net
        self._first = first
        self._among = among
        self._bits: dict[tuple[str, int], int] = {}

    def all(self) -> Iterator[TranslationCycle]:
        """Each ring once, from the first group where that can be, else from one at which it holds."""
        ways = [n for n in self._net.uses(self._first) if not is_identity_edge(self._net, n)]
        if not ways:
            return
        extent = self._net.expr(ways[0]).inputs[self._net.ins(ways[0]).index(self._first)].extent
        if not extent.is_const:
            return
        carrier = CoordinatePropagator(self._net, extent, named=False)
        homes, outs = (self._search(carrier, int(extent), forwards=x) for x in (True, False))
        told: set[int] = set()
        for group in dict.fromkeys((self._first, *homes)):
            for ring in self._joined(group, homes, outs):
                if ring.nodes not in told:
                    told.add(ring.nodes)
                    yield ring
                if len(told) > _MANY:
                    return

    def nodes(self, steps: Collection[Edge]) -> int:
        """Expressions as the bits that rings have for them."""
        found = 0
        for step in steps:
            found |= self._bit("node", step.node)
        return found

    def _bit(self, kind: str, number: int) -> int:
        return 1 << self._bits.setdefault((kind, number), len(self._bits))

    def _search(self, carrier: CoordinatePropagator, extent: int, *, forwards: bool) -> dict[int, list[SearchNode]]:
        """Simple ways from the first group, along the expressions or against them; by the group that they lead to."""
        net, found, alike = self._net, dict[int, list[SearchNode]](), dict[tuple[int, int], list[SearchNode]]()
        queue = deque([SearchNode(self._first, TranslatedInterval(0, extent, 0), None, None, 0, 0)])
        count = 0
        while queue and count < _MANY:
            at = queue.popleft()
            for n in net.uses(at.group) if forwards else net.definitions(at.group):
                move = None if is_identity_edge(net, n) else carrier.move(n)
                if move is None:
                    continue
                span = translate(at.span, move) if forwards else untranslate(at.span, move)
                (to,) = net.outs(n) if forwards else net.ins(n)
                bit = self._bit("group", to)
                if span is None or to not in self._among or at.groups & bit:
                    continue
                step = Edge(at.group, n, to) if forwards else Edge(to, n, at.group)
                made = SearchNode(to, span, step, at, at.groups | bit, at.nodes | self._bit("node", n))
                held = alike.setdefault((to, span.add), [])
                if to != self._first and any(_covers(x, made) for x in held):
                    continue
                held.append(made)
                found.setdefault(to, []).append(made)
                count += 1
                if to != self._first:
                    queue.append(made)
        return found

    def _joined(
        self, group: int, homes: dict[int, list[SearchNode]], outs: dict[int, list[SearchNode]]
    ) -> Iterator[TranslationCycle]:
        if group == self._first:
            nothing = SearchNode(group, TranslatedInterval(0, 0, 0), None, None, 0, 0)
            yield from (TranslationCycle(nothing, home) for home in homes.get(group, ()))
            return
        ends = self._bit("group", group)
        order = sorted(outs.get(group, ()), key=lambda r: r.span.low)
        for home in homes[group]:
            for out in order:
                if out.span.low >= home.span.high:
                    break
                if out.span.high > home.span.low and not out.groups & home.groups & ~ends:
                    yield TranslationCycle(out, home)


def _covers(x: SearchNode, made: SearchNode) -> bool:
    """True where a way of no other groups came with the same map on no smaller a span."""
    return x.span.low <= made.span.low and made.span.high <= x.span.high and not x.groups & ~made.groups


MANY = 100_000  # places of one search; beyond, only groups that no way has come to yet are gone on from
MORE = 5_000  # places of searches from other groups of a component
SMALL = 64  # groups of a component from each of which a search is begun


class VisitedStates:
    """The states with which ways have reached each group, so that none is followed twice."""

    def __init__(self, most: int = MANY) -> None:
        self._spans: dict[tuple[int, int], list[TranslatedInterval]] = {}
        self._formulas: set[object] = set()
        self._groups: set[int] = set()
        self._most = most
        self.places = 0

    def afresh(self) -> VisitedStates:
        """For another search: earlier states are forgotten, their number is kept."""
        for held in (self._spans, self._formulas, self._groups):
            held.clear()
        return self

    def new(self, group: int, carried: Carried) -> bool:
        """True of a state that no earlier way came with, and that is worth following."""
        if self.places > self._most and group in self._groups:
            return False
        if isinstance(carried, TranslatedInterval):
            held = self._spans.setdefault((group, carried.add), [])
            if any(s.low <= carried.low and carried.high <= s.high for s in held):
                return False
            held.append(carried)
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


@dataclass(frozen=True, slots=True)
class CyclePath:
    """A path around: the state in which it came back to its first group."""

    end: PathState

    def steps(self) -> list[Edge]:
        """The steps, from the group at which the coordinate is looked at."""
        return self.end.steps()

    @property
    def adds(self) -> int | None:
        """The amount that going once around adds to every coordinate; None where a step is not a translation."""
        return self.end.carried.add if isinstance(self.end.carried, TranslatedInterval) else None


Told = tuple[CyclePath, bool]  # and whether every coordinate that goes it comes back


def find_cycles(net: ValGraphDigraph) -> list[CyclePath | TranslationCycle]:
    """Every ring that some coordinate goes round, from whichever of its groups; each once.

    Each is described from an early group, or from one where it changes coordinates if there is such: a coordinate
    beside the way may follow from one group and not from another. Rings of translations by numbers are whole
    (`Rings`), others are looked for from all groups of a component as far as `MORE` states suffice.
    """
    found: list[CyclePath | TranslationCycle] = []
    for members in cyclic(net):
        among = dict.fromkeys(sorted(members, key=net.first))
        rings, ways = _taken_out(net, among)
        if len(among) <= SMALL and not only_translations(net, among):
            left = MORE
            for start in among:
                reached = VisitedStates()
                for carrier, end in follow(net, start, start, among.__contains__, reached=reached) if left > 0 else ():
                    key = frozenset(s.node for s in end.steps())
                    if key not in ways or (ways[key][1] and not is_identity(net, carrier, end)):
                        ways[key] = CyclePath(end), is_identity(net, carrier, end)
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


def _taken_out(
    net: ValGraphDigraph, component: dict[int, None]
) -> tuple[list[CyclePath | TranslationCycle], dict[frozenset[int], Told]]:
    """Rings through the first group, then those of what is left without it: of translations, and others by nodes."""
    rings: list[CyclePath | TranslationCycle] = []
    ways: dict[frozenset[int], Told] = {}
    pending = [component]
    while pending:
        among = pending.pop()
        root = next(iter(among))
        for carrier, end in () if only_translations(net, among) else follow(net, root, root, among.__contains__):
            if isinstance(end.carried, TranslatedInterval):
                continue
            key = frozenset(s.node for s in end.steps())
            if key not in ways or (ways[key][1] and not is_identity(net, carrier, end)):
                ways[key] = CyclePath(end), is_identity(net, carrier, end)
        rings += TranslationCycles(net, root, among).all()
        rest = {g: None for g in among if g != root}
        pending += [dict.fromkeys(sorted(x, key=net.first)) for x in components(net, rest)[::-1]]
    return rings, ways


def infeasible_cycles(net: ValGraphDigraph) -> list[CyclePath]:
    """Through each expression on a common cycle a shortest way around, whatever coordinates go it; each way once.

    A way that no coordinate goes is listed beside those that are found by sets of coordinates.
    """
    found: dict[frozenset[int], CyclePath] = {}
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


def placed(steps: list[Edge]) -> CyclePath:
    """A way of these steps; nothing is carried along."""
    nothing = GuardedCoordinate(FALSE, FALSE, {})
    at = PathState(steps[0].source, nothing, None, None, 0)
    for step in steps:
        at = PathState(step.to, nothing, step, at, 0)
    return CyclePath(at)


def cyclic(net: ValGraphDigraph) -> list[list[int]]:
    """Groups that lie on common cycles, whether or not a coordinate goes round."""
    return components(net, dict.fromkeys(g for n in net.equal for g in net.ins(n)))
