"""Cycles of a graph of groups: ways around that some coordinate goes, each with its map, where it holds, and a kind.

The kind is decided by composing the coordinate maps once around, see `idgraph.graphs.cycle_kind`; the ways are those of
`idgraph.graphs.cycle_enumeration`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Generic, TypeVar

from idgraph.arith import TRUE, Expr, IndexMap, and_, as_expr, simplify
from idgraph.display import Printed
from idgraph.errors import IndexingError, SourceLine, arguments, user_line
from idgraph.graphs.coordinate_rules import CycleKind
from idgraph.graphs.cycle_enumeration import Circuit, cyclic, find_cycles, infeasible_cycles, placed
from idgraph.graphs.cycle_kind import CycleMap, compose_cycle
from idgraph.graphs.flow_graph import Edge, ValGraphDigraph
from idgraph.graphs.signature import axis_of, key_text
from idgraph.graphs.val_graph import Group, ValGraph
from idgraph.ir import IterDomain, Tensor, TensorExpr, tensor_of
from idgraph.ir.iter_domain import DomainExpr

K = TypeVar("K", bound=Hashable)


class Cycle(Printed, Generic[K]):
    """One way around: ``groups[i]`` is read by ``exprs[i]``, which makes ``groups[i + 1]`` (the last makes the first).

    ``variable`` is the coordinate in ``groups[0]``, `map` where one round takes it, `holds` the condition on it for
    which there is an element all the way round. An axis beside the way (the other part of a merge) whose coordinate
    does not follow is a variable with the axis' name. All of it is worked out when first asked for.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.input("t", shape=(8,))
    >>> out = f.output(t + ig.pad(t, (3, -3)))
    >>> [(c.kind, c.shift, c.map, c.holds, c.closing.op) for c in ig.IdModel(f).exact.cycles()]
    [('shift', 3, c + 3, c < 5, 'add')]
    >>> c = ig.IdModel(f).exact.cycles()[0]
    >>> c.graph, c.changes_index, c.effect, c.where, str(c.variable), str(c.modulus)
    ('exact', True, 'once around adds 3 to the coordinate', '', 'c', 'None')
    >>> [str(x) for x in c.coordinates], c.domains, [x.name for x in c.tensors]
    (['c'], (I1[8], I2[8]), ['t', 't1', 't2'])
    >>> c.composed, c.composed.inverse(), c.composed.compose(c.composed)  # an index map, as those of accesses
    ((c) -> (c + 3) if c < 5, (y0) -> (y0 - 3) if y0 >= 3, (c) -> (c + 6) if c < 2)
    >>> c.maps == (c.composed,)
    True
    >>> c.is_empty
    False
    """

    def __init__(self, finder: _Finder[K], way: Circuit) -> None:
        self._finder = finder
        self._way = way

    @property
    def graph(self) -> str:
        """The name of the graph."""
        return self._finder.graph.name

    @cached_property
    def _steps(self) -> list[Edge]:
        return self._way.steps()

    @cached_property
    def _round(self) -> CycleMap:
        return compose_cycle(self._finder.net, self._steps)

    @property
    def kind(self) -> CycleKind:
        """Whether once around gives the coordinate back, adds to it, or does anything else; or nothing goes round."""
        adds = self._way.adds
        if adds is None:
            return self._round.kind
        return "shift" if adds else "identity"

    @property
    def shift(self) -> Expr | None:
        """The coordinate after once around, minus before (modulo `modulus`); None for a reorder."""
        adds = self._way.adds
        return self._round.shift if adds is None else as_expr(adds)

    @property
    def modulus(self) -> Expr | None:
        """The extent around which ``shift`` wraps, where a roll does so."""
        return None if self._way.adds is not None else self._round.modulus

    @property
    def composed(self) -> IndexMap:
        """The maps around, composed: from a coordinate in ``groups[0]`` to the same after one round, where it `holds`.

        Its symbols are `variable` and, where they do not follow from it, the coordinates of axes beside the way.
        """
        return self._round.map

    @cached_property
    def maps(self) -> tuple[IndexMap, ...]:
        """From a coordinate in ``groups[0]`` to that behind each expression; the last one is `composed`."""
        return self._round.maps

    @property
    def variable(self) -> Expr:
        """The coordinate before, as `map` and `holds` name it."""
        return self.composed.symbols[0]

    @property
    def map(self) -> Expr:
        """The coordinate after one round, for a coordinate for which the cycle `holds`."""
        return self._round.value

    @property
    def holds(self) -> Expr:
        """The condition on `variable` for which there is an element all the way round."""
        return self._round.holds

    @property
    def coordinates(self) -> tuple[Expr, ...]:
        """The coordinate in each of `groups`, the first of them `variable` itself."""
        return (self.variable, *(m.results[0] for m in self.maps[:-1]))[: len(self.maps)]

    @cached_property
    def groups(self) -> tuple[Group[K], ...]:
        """The groups on the way, the first of them read by the first expression."""
        return tuple(self._finder.graph.numbered(step.source) for step in self._steps)

    @cached_property
    def exprs(self) -> tuple[DomainExpr, ...]:
        """The expressions on the way."""
        return tuple(self._finder.reported_expr(step.node) for step in self._steps)

    @cached_property
    def closing(self) -> TensorExpr | None:
        """The operation whose mapping closes the cycle."""
        return self._finder.closing(self._steps)

    @cached_property
    def lines(self) -> tuple[SourceLine, ...]:
        """The user's lines behind the expressions, then that of the closing operation."""
        made = (tensor_of(e.outputs[0]) for e in self.exprs)
        lines = dict.fromkeys(t.source_line for t in made if t is not None and t.source_line)
        if self.closing is not None and self.closing.source_line is not None:
            lines[self.closing.source_line] = None
        return tuple(lines)

    @arguments(IndexingError)
    def at(self, axis: K) -> Cycle[K]:
        """The same ring looked at from another of its groups: its map and the coordinates for which it holds there.

        Some coordinate may go round a ring from one of its groups and none from another: the kind at the latter is
        ``empty``.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.input("t", shape=(8,))
        >>> u = ig.pad(t, (5, 0))
        >>> _ = f.output(t + u[:8])
        >>> (c,) = ig.IdModel(f).exact.cycles()
        >>> there = c.at(u.logical[0])
        >>> [(x.kind, x.map, x.holds) for x in (c, there)]
        [('shift', c + 5, c < 3), ('shift', c + 5, c < 8)]
        """
        k = next((k for k, g in enumerate(self.groups) if axis in g), None)
        if k is None:
            raise IndexingError(
                f"{key_text(axis)} is in no group of this cycle", where=user_line(), hint="an axis of one of c.groups"
            )
        return self._rotated(k)

    def _rotated(self, k: int) -> Cycle[K]:
        return Cycle(self._finder, placed(self._steps[k:] + self._steps[:k])) if k else self

    def mark(self, groups: set[int], seen: set[object]) -> None:
        """Add the numbers of its groups; ``seen`` are the beginnings of ways whose groups are among them already."""
        for end in (self._way.out, self._way.home):
            at = end
            while at is not None and at not in seen:
                seen.add(at)
                groups.add(at.group)
                at = at.before

    @property
    def is_empty(self) -> bool:
        """True where no coordinate goes all the way round, from whichever group."""
        return all(self._rotated(k).kind == "empty" for k in range(len(self._steps)))

    @property
    def domains(self) -> tuple[IterDomain, ...]:
        """The axes that the expressions on the cycle read and make, in order."""
        return tuple(dict.fromkeys(d for e in self.exprs for d in (*e.inputs, *e.outputs)))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor with an axis on the cycle, in the order of the groups."""
        keyed = (tensor_of(axis_of(k)) for g in self.groups for k in g)
        return tuple(dict.fromkeys(t for t in keyed if t is not None))

    @property
    def changes_index(self) -> bool:
        """True of a cycle that a search over the graph must not run through."""
        return self.kind not in ("identity", "empty")

    def __repr__(self) -> str:
        return f"Cycle({self.kind} in the {self.graph} graph, {len(self._steps)} expressions)"

    @property
    def where(self) -> str:
        """`` where c < 4``: for which coordinates the cycle holds; empty where the map already says it."""
        extent = axis_of(self.groups[0].first).extent
        told = and_(self.map >= 0, self.map < extent) if self.kind == "shift" and self.modulus is None else TRUE
        return "" if self.holds is simplify(told) else f" where {self.holds}"

    @property
    def effect(self) -> str:
        """The effect of going once around, in words.

        >>> import idgraph as ig
        >>> f = ig.Fusion("rotation")
        >>> t = f.input("t", shape=(64,))
        >>> u = f.output(t + ig.cat([t[32:], t[:32]], dim=0))
        >>> ig.IdModel(f).exact.cycles()[0].effect
        'once around adds -32 to the coordinate'
        """
        match self.kind:
            case "identity":
                return f"once around gives the coordinate back{self.where}"
            case "shift":
                wrap = f" modulo {self.modulus}" if self.modulus is not None else ""
                return f"once around adds {self.shift}{wrap} to the coordinate{self.where}"
            case "reorder":
                return f"once around takes coordinate {self.variable} to {self.map}{self.where}"
            case "empty":
                return "no coordinate goes all the way round"

    def __str__(self) -> str:
        told = "" if self.kind == "identity" and not self.where else f": {self.effect}"
        lines = [f"{self.kind} cycle in the {self.graph} graph{told}"]
        lines += [f"  {e}" + (f"   {e_tensor(e)}" if e_tensor(e) else "") for e in self.exprs]
        if self.closing is not None:
            where = f" ({self.closing.source_line})" if self.closing.source_line else ""
            lines.append(f"  closed by {self.closing!r}{where}: it maps the two ends onto each other")
        if self.changes_index:
            lines.append("  the index graph keeps one node for each axis and operation, so no index runs through it")
        return "\n".join(lines)


def e_tensor(e: DomainExpr) -> str:
    """``of t3 = cat(...) at file:line`` for a domain expression on the root-to-logical path of a tensor."""
    t = tensor_of(e.outputs[0])
    if t is None:
        return ""
    if t.definition is not None and any(x is e for x in t.domain.exprs):
        where = f" at {t.source_line}" if t.source_line else ""
        return f"of {t.name} = {t.definition.op}(...){where}"
    return f"of the schedule of {t.name}"


class Cycles(Generic[K]):
    """The cycles of one graph, found when first asked for."""

    def __init__(self, graph: ValGraph[K]) -> None:
        self._finder = _Finder(graph)

    @cached_property
    def any(self) -> bool:
        """True when some group is made, in some steps, of itself."""
        return bool(cyclic(self._finder.net))

    @cached_property
    def true(self) -> tuple[Cycle[K], ...]:
        """Every cause of a cycle once, of those that some coordinate goes."""
        if not self.any:
            return ()
        made = (Cycle(self._finder, way) for way in find_cycles(self._finder.net))
        return tuple(c for c in made if c.kind != "empty")

    @cached_property
    def changed(self) -> frozenset[int]:
        """The numbers of the groups that lie on index-changing cycles."""
        found, seen = set[int](), set[object]()
        for c in self.true:
            if c.changes_index:
                c.mark(found, seen)
        return frozenset(found)

    @cached_property
    def empty(self) -> tuple[Cycle[K], ...]:
        """Ways around that no coordinate goes: one through each expression of such a way, the shortest."""
        if not self.any:
            return ()
        made = (Cycle(self._finder, way) for way in infeasible_cycles(self._finder.net))
        return tuple(c for c in made if c.is_empty)


class _Finder(Generic[K]):
    """Data that the cycles of one graph share."""

    def __init__(self, graph: ValGraph[K]) -> None:
        self.graph = graph
        self._order: dict[TensorExpr, int] = {}

    @cached_property
    def net(self) -> ValGraphDigraph:
        """The graph by number."""
        return ValGraphDigraph(self.graph)

    def reported_expr(self, node: int) -> DomainExpr:
        """The expression of `told_node`: the report names its line."""
        return self.graph.nodes.form[self.told_node(node)].expr

    def told_node(self, node: int) -> int:
        """Of equal expressions the number of one that an operation made rather than a schedule."""
        for n in self.net.equal[node]:
            e = self.graph.nodes.form[n].expr
            t = tensor_of(e.outputs[0])
            if t is not None and any(x is e for x in t.domain.exprs):
                return n
        return node

    def closing(self, way: Sequence[Edge]) -> TensorExpr | None:
        """The operation whose mapping joined the two ends: the latest one on chains between reported expressions."""
        latest: TensorExpr | None = None
        nodes, find, order = self.graph.nodes, self.graph.find, self._order
        for k, step in enumerate(way):
            made = next(x for x in nodes.outs[self.told_node(way[k - 1].node)] if find(x) == step.source)
            read = next(x for x in nodes.ins[self.told_node(step.node)] if find(x) == step.source)
            for _, _, why in self.graph.path(made, read):
                e = why[1]
                if isinstance(e, int) or e is None:
                    continue
                if not order:
                    order.update((x, n) for n, x in enumerate(e.output.fusion.exprs))
                if latest is None or order[e] > order[latest]:
                    latest = e
        return latest
