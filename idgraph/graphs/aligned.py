"""The aligned graph and the extents graph: axes of the exact graph with one coordinate, and axes with one extent.

*Aligned* is the exact graph without the unions that close an index-changing cycle, or put two axes in one group that
one operation touches at different coordinates; each such union is an *align edge*, owned by its operation (the names
are those of NVIDIA/Fuser #3455). *Extents* are the groups that align edges join: one extent, whatever the coordinate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from idgraph.errors import IndexingError, shortened, user_line
from idgraph.graphs.aligning import AlignmentBuilder, Union, unions_of
from idgraph.graphs.differ import difference
from idgraph.graphs.domain_graph import DomainGraph, ExactBuilder
from idgraph.graphs.net import ValGraphDigraph
from idgraph.graphs.parted import UnalignedProofForest
from idgraph.graphs.reasons import Explanation
from idgraph.graphs.touched import At, axes_used_by, has_conflicting_coordinates
from idgraph.graphs.valgraph import Group, ValGraph
from idgraph.ir import Fusion, IterDomain, TensorExpr


class AlignEdge(NamedTuple):
    """Two groups of the aligned graph that ``operation`` makes one extent without making them one coordinate.

    >>> import idgraph as ig
    >>> f = ig.Fusion("rotation")
    >>> t0 = f.input("t0", shape=(64,))
    >>> t3 = ig.cat([t0[32:], t0[:32]], dim=0)
    >>> t4 = f.output(t0 + t3)
    >>> m = ig.IdModel(f)
    >>> left, right, operation = m.aligned.align_edges[0]
    >>> operation is t4.definition, {t0.logical[0] in left, t0.logical[0] in right} == {True, False}
    (True, True)
    """

    left: Group[IterDomain]
    right: Group[IterDomain]
    operation: TensorExpr


class AlignedGraph(DomainGraph):
    """Equal group: equal coordinate at every point. No cycle changes an index, even where one of the exact graph does.

    >>> import idgraph as ig
    >>> f = ig.Fusion("rotation")
    >>> t0 = f.input("t0", shape=(64,))
    >>> t3 = ig.cat([t0[32:], t0[:32]], dim=0)
    >>> t4 = f.output(t0 + t3)
    >>> m = ig.IdModel(f)
    >>> m.aligned.mapped(t0.logical[0], t4.logical[0]), m.aligned.mapped(t0.logical[0], t3.logical[0])
    (True, False)
    >>> m.extents.mapped(t0.logical[0], t3.logical[0]), m.aligned.cycles()
    (True, ())
    >>> [edge.operation.op for edge in m.aligned.align_edges]
    ['add']
    """

    def __init__(
        self, fusion: Fusion, graph: ValGraph[IterDomain], exact: ValGraph[IterDomain], dropped: tuple[Union, ...]
    ) -> None:
        super().__init__("aligned", fusion, graph)
        self._exact = exact
        # The unions of the exact graph that are not made here.
        self.left_out = dropped

    @cached_property
    def align_edges(self) -> tuple[AlignEdge, ...]:
        """Pairs of groups with one extent, each with its operation; joining the pairs gives the extents graph.

        Pairs that follow from such a pair by equal splits and merges are listed too, under the same operation.
        """
        found: dict[AlignEdge, None] = {}
        for u in self.left_out:
            a, b = self.graph.group_of(u.left), self.graph.group_of(u.right)
            if a is not b:
                found[AlignEdge(a, b, u.expr)] = None
        parts: dict[int, list[Group[IterDomain]]] = {}
        for g in self.groups if self.left_out else ():
            parts.setdefault(self._exact.number(g.first), []).append(g)
        joined: dict[Group[IterDomain], Group[IterDomain]] = {}

        def root(g: Group[IterDomain]) -> Group[IterDomain]:
            while (above := joined.get(g, g)) is not g:
                joined[g] = above = joined.get(above, above)
                g = above
            return g

        for edge in found:
            joined[root(edge.left)] = root(edge.right)
        for first, *rest in parts.values():
            for g in rest:
                if root(g) is not root(first):
                    joined[root(g)] = root(first)
                    found[AlignEdge(first, g, self._owner(first.first, g.first))] = None
        return tuple(found)

    @cached_property
    def _parts(self) -> UnalignedProofForest:
        """The exact graph's groups in their aligned parts."""
        return UnalignedProofForest(
            self._exact, self.graph, {frozenset((u.left, u.right)): u.expr for u in self.left_out}
        )

    def _owner(self, a: IterDomain, b: IterDomain) -> TensorExpr:
        """The operation that makes the extents of two unaligned axes one."""
        return self._parts.separating_operation(self._exact.key_number(a), self._exact.key_number(b))

    @cached_property
    def _net(self) -> ValGraphDigraph:
        """The graph by number."""
        return ValGraphDigraph(self.graph)

    def apart(self, a: IterDomain, b: IterDomain) -> str:
        """Why two axes have one extent, and how their indices differ; raises `IndexingError` for others."""
        if self.graph.same(a, b) or not self._exact.same(a, b):
            said = "one coordinate" if self.graph.same(a, b) else "nothing to do with each other"
            raise IndexingError(f"{a.label} and {b.label} have {said}", where=user_line(), hint="ask explain(a, b)")
        e = self._owner(a, b)
        line = f" at line {e.source_line.line}" if e.source_line is not None else f" -> {e.output.name}"
        where = f"\n  {e!r}" + (f" at {e.source_line}" if e.source_line is not None else "")
        return (
            f"same extent by {e.op}{line}; {difference(self._net, self.graph.number(a), self.graph.number(b))}{where}"
        )

    @shortened
    def explain(self, a: IterDomain, b: IterDomain) -> Explanation:
        """Why two axes have one coordinate; or why they have one extent only, and how their indices differ.

        >>> import idgraph as ig
        >>> f = ig.Fusion("rotation")
        >>> t0 = f.input("t0", shape=(64,))
        >>> t3 = ig.cat([t0[32:], t0[:32]], dim=0)
        >>> t4 = f.output(t0 + t3)
        >>> print(ig.IdModel(f).aligned.explain(t0.logical[0], t4.logical[0]))
        t0.I0 = t4.I9: add -> t4 reads axis 0 of t0 at the same coordinate (<doctest ...)
        """
        found = super().explain(a, b)
        if found.mapped or not self._exact.same(a, b):
            return found
        return replace(found, parting=f"{a.label} and {b.label} are not aligned: {self.apart(a, b)}")


class ExtentsGraph(DomainGraph):
    """Equal group: equal extent, as the operations say. The graph may be cyclic: its groups say nothing of indices.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.input("t", shape=(8,))
    >>> u = t + ig.pad(t, (3, -3))
    >>> print(ig.IdModel(f).extents.explain(t.logical[0], u.definition.inputs[1].logical[0]).note.splitlines()[0])
    same extent by add at line ...; index differs by +3 on [0, 5)
    >>> import idgraph as ig
    >>> f = ig.Fusion("rotation")
    >>> t0 = f.input("t0", shape=(64,))
    >>> t3 = ig.cat([t0[32:], t0[:32]], dim=0)
    >>> t4 = f.output(t0 + t3)
    >>> m = ig.IdModel(f)
    >>> m.extents.mapped(t0.logical[0], t3.logical[0])
    True
    """

    def __init__(self, fusion: Fusion, graph: ValGraph[IterDomain], aligned: AlignedGraph) -> None:
        super().__init__("extents", fusion, graph)
        self.aligned = aligned

    @shortened
    def explain(self, a: IterDomain, b: IterDomain) -> Explanation:
        """Why two axes have one extent, and whether they have one coordinate too."""
        found = super().explain(a, b)
        if not found.mapped or a is b:
            return found
        if self.aligned.mapped(a, b):
            return replace(found, note="aligned: the same index at every point")
        return replace(found, note=self.aligned.apart(a, b))


def build_aligned(exact: DomainGraph, builder: ExactBuilder) -> AlignedGraph:
    """The aligned graph of a fusion, beside its exact graph and that graph's builder."""
    fusion = exact.fusion
    wrong = _wrong_groups(exact, builder)
    if not wrong:
        return AlignedGraph(fusion, builder.fork("aligned").build(), exact.graph, ())
    concerned = _connected(builder, wrong)
    parent = [x if root in concerned else root for x, root in enumerate(builder.sets.roots())]
    nodes = [n for n in range(len(builder.nodes)) if builder.sets.find(builder.nodes.ins[n][0]) in concerned]
    aligner = AlignmentBuilder(builder, parent, nodes)
    dropped = tuple(left for unions in unions_of(fusion, builder, concerned) for left in aligner.take(unions))
    made = builder.without({(u.left, u.right) for u in dropped}, "aligned")
    return AlignedGraph(fusion, made.build(), exact.graph, dropped)


def _wrong_groups(exact: DomainGraph, builder: ExactBuilder) -> set[int]:
    """Groups on index-changing cycles, and those that one operation touches at different coordinates."""
    found = set(exact.changed_groups)

    def of(d: IterDomain) -> int:
        return builder.sets.find(builder.key_number(d))

    for e in exact.fusion.exprs:
        if not builder.is_plain(e):
            found |= _conflicting(e, of)
    return found


def _conflicting(e: TensorExpr, of: Callable[[IterDomain], int]) -> set[int]:
    """The groups that an operation touches at different coordinates."""
    found: set[int] = set()
    seen: dict[int, frozenset[At]] = {}
    for d, at in axes_used_by(e):
        g = of(d)
        known = seen.setdefault(g, frozenset((at,)))
        if at not in known:
            if has_conflicting_coordinates(e, frozenset((at,)), known, lambda x, g=g: of(x) == g):
                found.add(g)
            seen[g] = known | {at}
    return found


def _connected(builder: ExactBuilder, groups: set[int]) -> set[int]:
    """The groups that expressions join, in any number of steps, to some of ``groups``."""
    beside: dict[int, list[int]] = {}
    find, nodes = builder.sets.find, builder.nodes
    for n in range(len(nodes)):
        first, *rest = map(find, (*nodes.ins[n], *nodes.outs[n]))
        for g in rest:
            beside.setdefault(first, []).append(g)
            beside.setdefault(g, []).append(first)
    found, pending = set(groups), list(groups)
    while pending:
        for g in beside.get(pending.pop(), ()):
            if g not in found:
                found.add(g)
                pending.append(g)
    return found
