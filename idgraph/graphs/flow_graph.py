"""Expressions between groups, all by number: what cycles, aligned groups and their differences are found on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, cast

from idgraph.graphs.coordinate_rules import TransferFunctions
from idgraph.graphs.signature import axis_of, own_exprs
from idgraph.graphs.val_graph import ValGraph
from idgraph.ir import DomainExpr, IterDomain, tensor_of


class Edge(NamedTuple):
    """One step of a way: the expression ``node`` reads the group ``source`` and makes the group ``to``."""

    source: int
    node: int
    to: int


class GroupDigraph(Protocol):
    """Groups and the expressions between them, of equal expressions one; all by number."""

    effects: TransferFunctions
    # The groups that expressions read and make, and the expressions that read and make a group.
    _ins: dict[int, tuple[int, ...]]
    _outs: dict[int, tuple[int, ...]]
    _readers: dict[int, dict[int, None]]
    _makers: dict[int, dict[int, None]]

    def uses(self, group: int) -> Collection[int]:
        """Expressions that read a group."""
        return self._readers.get(group, ())

    def definitions(self, group: int) -> Collection[int]:
        """Expressions that make a group."""
        return self._makers.get(group, ())

    def ins(self, node: int) -> tuple[int, ...]:
        """Groups that an expression reads."""
        return self._ins[node]

    def outs(self, node: int) -> tuple[int, ...]:
        """Groups that an expression makes."""
        return self._outs[node]

    def edges(self, group: int) -> Iterator[Edge]:
        """Edges from a group, but those that keep its axis beside one of a single element: no cause of a cycle."""
        for n in self.uses(group):
            if not is_identity_edge(self, n):
                for to in dict.fromkeys(self._outs[n]):
                    yield Edge(group, n, to)

    def expr(self, node: int) -> DomainExpr:
        """The expression itself."""
        ...

    def equal_exprs(self, node: int) -> Sequence[DomainExpr]:
        """All expressions equal to one, itself too."""
        ...

    def axis(self, group: int) -> IterDomain:
        """An axis of a group, for its name."""
        ...

    def group(self, axis: IterDomain) -> int | None:
        """The group of an axis; None where an axis by itself is not a key."""
        ...

    def frame(self, group: int) -> Sequence[int]:
        """The groups of the axes that tensors have beside one of a group: their coordinates are free of its own."""
        ...

    def _enter(self, nodes: Iterable[int]) -> None:
        """List the expressions about each group."""
        self._readers, self._makers = {}, {}
        for n in nodes:
            for about, side in ((self._readers, self._ins[n]), (self._makers, self._outs[n])):
                for x in side:
                    about.setdefault(x, {})[n] = None


def is_identity_edge(net: GroupDigraph, node: int) -> bool:
    """True of an expression that keeps its axis, beside one of a single element: no cause of a cycle."""
    return net.effects.may_be_identity(net.expr(node)) and not set(net.ins(node)).isdisjoint(net.outs(node))


def sibling_axes(d: IterDomain) -> list[IterDomain]:
    """The axes that a tensor has beside one of its own, neither made of it nor what it is made of."""
    t = tensor_of(d)
    if t is None:
        return []
    lists = [axes for axes in (t.root, t.logical, t.loop) if d in axes]
    if lists:
        return list(dict.fromkeys(x for axes in lists for x in axes if x is not d))
    found: list[IterDomain] = []
    above = {d}
    for e in reversed(own_exprs(t)):
        if any(x in above for x in e.outputs):
            above.update(e.inputs)
            found += [x for x in e.outputs if x not in above]
    return [*(x for x in t.root if x not in above), *found]


class ValGraphDigraph(GroupDigraph):
    """The net of a finished graph."""

    def __init__(self, graph: ValGraph[Any]) -> None:
        self._graph = graph
        find, nodes = graph.find, graph.nodes
        self.effects = TransferFunctions()
        self.equal = nodes.classes()
        self._ins = {n: tuple(map(find, nodes.ins[n])) for n in self.equal}
        self._outs = {n: tuple(map(find, nodes.outs[n])) for n in self.equal}
        self._enter(self.equal)

    def expr(self, node: int) -> DomainExpr:
        """The expression itself."""
        return self._graph.nodes.form[node].expr

    def equal_exprs(self, node: int) -> Sequence[DomainExpr]:
        """All expressions equal to one, itself too."""
        return [self._graph.nodes.form[n].expr for n in self.equal[node]]

    def group(self, axis: IterDomain) -> int | None:
        """The group of an axis; None where an axis by itself is not a key."""
        return self._graph.number(axis) if self._graph.holds(axis) else None

    def frame(self, group: int) -> list[int]:
        """The groups of the axes that tensors have beside one of a group."""
        graph, found = self._graph, dict[int, None]()
        for n in (*self.uses(group), *self.definitions(group)):
            for element in (*graph.nodes.ins[n], *graph.nodes.outs[n]):
                if graph.find(element) != group:
                    continue
                key: object = graph.key_at(element)
                under = cast("tuple[object, ...]", key)[1:] if isinstance(key, tuple) else None
                for d in sibling_axes(axis_of(graph.key_at(element))):
                    other = d if under is None else (d, *under)
                    if graph.holds(other):
                        found[graph.number(other)] = None
        found.pop(group, None)
        return list(found)

    def first(self, group: int) -> int:
        """The number of the first axis of a group."""
        return self._graph.numbered(group).number

    def axis(self, group: int) -> IterDomain:
        """The first axis of a group."""
        return axis_of(self._graph.numbered(group).first)
