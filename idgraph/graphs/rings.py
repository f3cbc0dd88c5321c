"""Rings of translations, whole: every ring that some coordinate goes round from some of its groups.

A coordinate may get round a ring from one group where none can from another: padded by 5 of 8 and cut again, an axis
gives back coordinates behind the pad, not all before it. All rings through one group are found by two searches
from it, one along the expressions and one against them, with spans of that group's own coordinate: a ring that holds
at a group is a way from there to the first one and a way back whose spans have a coordinate in common.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from idgraph.graphs.carry import CoordinatePropagator, TranslatedInterval, translate, untranslate
from idgraph.graphs.net import Edge, GroupDigraph, is_identity_edge

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
