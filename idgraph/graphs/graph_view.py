"""The queries that every graph answers: groups, definitions and uses, cycles, exports, pictures.

Graphs as networkx objects, with every attribute as plain data.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic

from idgraph.display import Shown, render
from idgraph.errors import IndexingError, arguments, short_repr, shortened, user_line
from idgraph.graphs.cycles import Cycle, Cycles
from idgraph.graphs.signature import key_text
from idgraph.graphs.val_graph import ExprGroup, Group, K, ValGraph
from idgraph.ir import Fusion

if TYPE_CHECKING:
    import networkx as nx


def domain_networkx(name: str, groups: Sequence[Group[Any]], exprs: Sequence[ExprGroup[Any]]) -> nx.MultiDiGraph[Any]:
    """Bipartite: nodes ``("group", n)`` and ``("expr", n)``, edges with their position."""
    import networkx as nx

    made: nx.MultiDiGraph[Any] = nx.MultiDiGraph(name=name)
    for g in groups:
        made.add_node(("group", g.number), kind="group", keys=g.keys, labels=tuple(map(key_text, g.keys)))
    for x in exprs:
        made.add_node(
            ("expr", x.number), kind="expr", exprs=x.exprs, op=type(x.expr).__name__, attributes=x.expr.attributes
        )
        for p, g in enumerate(x.inputs):
            made.add_edge(("group", g.number), ("expr", x.number), position=p)
        for p, g in enumerate(x.outputs):
            made.add_edge(("expr", x.number), ("group", g.number), position=p)
    return made


class GraphView(Shown, Generic[K]):
    """The part that graphs over axes and graphs over (axis, operation) share. Built once, then immutable.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", shape=(8,)) + 1.0).split(0, 4)
    >>> g = ig.IdModel(f).exact
    >>> g.groups
    ({x.I0, t1.I1}, {t1.I2}, {t1.I3})
    >>> x = g.group(t.logical[0])
    >>> g.uses(x), g.definitions(x), len(g.expr_groups), g.is_cyclic
    ((Split({x.I0, t1.I1} -> {t1.I2}, {t1.I3}),), (), 1, False)
    >>> g.to_networkx().number_of_nodes(), g.to_dot()[:7], g.to_svg()[:4]
    (4, 'digraph', '<svg')
    >>> sorted(g.changed_groups)
    []
    """

    def __init__(self, name: str, fusion: Fusion, graph: ValGraph[K]) -> None:
        self.name = name
        self.fusion = fusion
        self.graph = graph

    @property
    def groups(self) -> Sequence[Group[K]]:
        """Groups of keys that are the same, in the order of their first keys; each is made when it is looked at."""
        return self.graph.groups

    @property
    def expr_groups(self) -> Sequence[ExprGroup[K]]:
        """Groups of domain expressions that are the same; each is made when it is looked at."""
        return self.graph.expr_groups

    @shortened
    def definitions(self, group: Group[K]) -> tuple[ExprGroup[K], ...]:
        """Expression groups that make a group."""
        return self.graph.definitions(self._own(group))

    @shortened
    def uses(self, group: Group[K]) -> tuple[ExprGroup[K], ...]:
        """Expression groups that read a group."""
        return self.graph.uses(self._own(group))

    def _own(self, group: Group[K]) -> Group[K]:
        """The group itself; raises `IndexingError` for anything else, another graph's group too."""
        hint = f"ask the graph itself: g.group({'axis, operation' if self.name == 'index' else 'axis'})"
        if not isinstance(group, Group):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise IndexingError(
                f"{short_repr(group)} is not a group of the {self.name} graph", where=user_line(), hint=hint
            )
        if not self.graph.owns(group):
            raise IndexingError(
                f"{group!r} is a group of another graph, or of the {self.name} graph before the fusion changed",
                where=user_line(),
                hint=hint,
            )
        return group

    @cached_property
    def _cycles(self) -> Cycles[K]:
        return Cycles(self.graph)

    @arguments(IndexingError)
    def cycles(self, empty: bool = False) -> tuple[Cycle[K], ...]:
        """Every ring that some coordinate goes round, once, with kind, map and witness; `Cycle.at` moves its start.

        A legal schedule's index graph has identities only. Of ways between two groups with one map the widest counts.

        ``empty`` adds ways around that no coordinate goes, which change nothing.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.input("t", shape=(20,))
        >>> u = ig.cat([t[3:], t[:3]])
        >>> _ = f.output(t + ig.cat([u[17:], u[:17]]))  # rotated by 3 and by 17 of 20: back where it was
        >>> g = ig.IdModel(f).exact
        >>> [(c.kind, str(c.holds)) for c in g.cycles(empty=True)]
        [('identity', 'c >= 3'), ('identity', 'c < 3'), ('empty', 'False')]
        """
        if not isinstance(empty, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise IndexingError(
                f"empty is {short_repr(empty)}, neither True nor False", where=user_line(), hint="g.cycles(empty=True)"
            )
        return self._cycles.true + self._cycles.empty if empty else self._cycles.true

    @property
    def changed_groups(self) -> frozenset[int]:
        """The numbers of the groups on cycles that change an index."""
        return self._cycles.changed

    @property
    def is_cyclic(self) -> bool:
        """True when some axis is made, in some steps, of itself, be it at no coordinate."""
        return self._cycles.any

    def to_networkx(self) -> nx.MultiDiGraph[Any]:
        """Groups and expression groups as a bipartite networkx graph that keeps every attribute."""
        return domain_networkx(self.name, self.groups, self.expr_groups)

    @shortened
    def to_dot(self, **options: object) -> str:
        """Graphviz text."""
        return render("dot", self, **options)

    @shortened
    def to_svg(self, **options: object) -> str:
        """A self-contained SVG picture; needs no graphviz."""
        return render("svg", self, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {len(self.groups)} groups of {self.fusion.name})"
