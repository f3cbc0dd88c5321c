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

from idgraph.arith import TRUE
from idgraph.errors import IndexingError, shortened, user_line
from idgraph.graphs.alignment_builder import (
    AlignmentBuilder,
    At,
    Union,
    axes_used_by,
    has_conflicting_coordinates,
    unions_of,
)
from idgraph.graphs.coordinate_propagation import TranslatedInterval
from idgraph.graphs.cycle_enumeration import VisitedStates, follow
from idgraph.graphs.exact import DomainGraph, ExactBuilder
from idgraph.graphs.flow_graph import GroupDigraph, ValGraphDigraph
from idgraph.graphs.proof import Explanation
from idgraph.graphs.union_find import EquivalenceClasses
from idgraph.graphs.val_graph import Group, ValGraph
from idgraph.ir import Fusion, IterDomain, TensorExpr
from idgraph.ir.walks import reach

_PLACES = 2_000  # places of the search
_PARTS = 8  # parts reported


def difference(net: GroupDigraph, a: int, b: int) -> str:
    """``index differs by -32 on [32, 64), +32 on [0, 32)``: from the first group to the second."""
    for forwards in (True, False):
        told = _path_segments(net, *((a, b) if forwards else (b, a)), forwards=forwards)
        if told:
            more = f" and {len(told) - _PARTS} more" if len(told) > _PARTS else ""
            return f"index differs {', '.join(told[:_PARTS])}{more}"
    return "no way in the aligned graph leads from the one to the other"


def _path_segments(net: GroupDigraph, start: int, goal: int, *, forwards: bool) -> list[str]:
    among = _groups_on_paths(net, start, goal)
    shifts: dict[int, list[tuple[int, int]]] = {}
    others: list[str] = []
    ways = follow(net, start, goal, among.__contains__, reached=VisitedStates(_PLACES), named=True) if among else ()
    for carrier, end in ways:
        at = end.carried
        if isinstance(at, TranslatedInterval):
            # The same difference seen from the other end.
            by, low = (at.add, at.low) if forwards else (-at.add, at.low + at.add)
            shifts.setdefault(by, []).append((low, low + at.high - at.low))
            continue
        c, where = carrier.c, "" if at.inside is TRUE else f" where {at.inside}"
        others.append(f"by {c} -> {at.value}{where}" if forwards else f"by {at.value} -> {c}{where}")
    spans = [f"{by:+d} on {_union(runs)}" for by, runs in sorted(shifts.items())]
    return ([f"by {spans[0]}", *spans[1:]] if spans else []) + list(dict.fromkeys(others))


def _union(runs: list[tuple[int, int]]) -> str:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(runs):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return " and ".join(f"[{low}, {high})" for low, high in merged)


def _groups_on_paths(net: GroupDigraph, start: int, goal: int) -> set[int]:
    """Groups on ways from one group to another."""
    after = reach([start], lambda at: (g for n in net.uses(at) for g in net.outs(n)))
    before = reach([goal], lambda at: (g for n in net.definitions(at) for g in net.ins(n)))
    return after.keys() & before.keys() if goal in after else set()


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
        joined = EquivalenceClasses[Group[IterDomain]]()
        for edge in found:
            joined.union(edge.left, into=edge.right)
        for first, *rest in parts.values():
            for g in rest:
                if joined.find(g) is not joined.find(first):
                    joined.union(g, into=first)
                    found[AlignEdge(first, g, self._owner(first.first, g.first))] = None
        return tuple(found)

    def _owner(self, a: IterDomain, b: IterDomain) -> TensorExpr:
        """The operation that makes the extents of two unaligned axes one: the nearest left out on the exact proof."""
        left_out = {frozenset((u.left, u.right)): u.expr for u in self.left_out}
        pending, seen = [(self._exact.key_number(a), self._exact.key_number(b))], set[tuple[int, int]]()
        while pending:
            pair = pending.pop()
            if pair in seen:
                continue
            seen.add(pair)
            parted = [x for x in self._exact.path(*pair) if self.graph.find(x[0]) != self.graph.find(x[1])]
            owner = next((left_out[k] for x, y, _ in parted for k in (frozenset((x, y)),) if k in left_out), None)
            if owner is not None:
                return owner
            for x, y, why in (*parted[:1], *parted[1:][-1:]):
                pending += self._exact.proof_premises(x, y, why)
        raise AssertionError(f"{a.label} and {b.label} are one in the exact graph only by aligned unions")

    @cached_property
    def _net(self) -> ValGraphDigraph:
        """The graph by number."""
        return ValGraphDigraph(self.graph)

    def explain_difference(self, a: IterDomain, b: IterDomain) -> str:
        """Why two axes have one extent, and how their indices differ; raises `IndexingError` for others.

        >>> import idgraph as ig
        >>> f = ig.Fusion("rotation")
        >>> t = f.input("t", shape=(64,))
        >>> turned = ig.cat([t[32:], t[:32]], dim=0)
        >>> u = f.output(t + turned)
        >>> print(ig.IdModel(f).aligned.explain_difference(t.logical[0], turned.logical[0]).splitlines()[0])
        same extent by add at line 1; index differs by -32 on [32, 64), +32 on [0, 32)
        """
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
        return replace(found, parting=f"{a.label} and {b.label} are not aligned: {self.explain_difference(a, b)}")


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
        return replace(found, note=self.aligned.explain_difference(a, b))


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
    return set(reach(groups, lambda g: beside.get(g, ())))
