"""Graphs as networkx objects, with every attribute as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from idgraph.graphs.numbering import key_text
from idgraph.graphs.valgraph import ExprGroup, Group

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
