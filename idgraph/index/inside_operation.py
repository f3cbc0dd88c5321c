"""Coordinates inside one operation: from its loop variables to every axis of its tensors, never leaving it.

The output's own axes are solved one by one, since a padded loop takes an axis out of range where its equals are not;
which of those points count is what the predicate says. Operands follow by groups of the index graph: equal wherever
the access happens.
"""

from __future__ import annotations

from collections.abc import Iterable

from idgraph.arith import Expr, as_expr, simplify
from idgraph.errors import IndexingError
from idgraph.graphs import IndexGraph, key_text
from idgraph.graphs.coordinates import backward, forward
from idgraph.graphs.index_graph import Key
from idgraph.graphs.own_axes import CoordinateSolver
from idgraph.ir import DomainExpr, IterDomain, TensorExpr


class IndexSolver:
    """Coordinates under one operation: of its output's axes, and of its operands' by group."""

    def __init__(
        self,
        graph: IndexGraph,
        expr: TensorExpr,
        start: Iterable[tuple[IterDomain, Expr]],
        given: Iterable[tuple[Key, Expr]],
    ) -> None:
        self.graph = graph
        self.expr = expr
        self.own = CoordinateSolver(start, tuple(x for x, _, _, own in graph.local[expr] if own))
        self._group: dict[int, Expr] = {}
        for d, v in self.own.value.items():
            self._group.setdefault(self._number((d, expr)), v)
        for key, v in given:
            self._group.setdefault(self._number(key), v)
        self._follow()

    def _number(self, key: Key) -> int:
        return self.graph.graph.number(key)

    def _follow(self) -> None:
        """Operands' axes, through their own domain expressions."""
        nodes = [
            (x, tuple(map(self._number, ins)), tuple(map(self._number, outs)))
            for x, ins, outs, own in self.graph.local[self.expr]
            if not own
        ]
        known = self._group
        while nodes:
            rest: list[tuple[DomainExpr, tuple[int, ...], tuple[int, ...]]] = []
            for x, ins, outs in nodes:
                if all(g in known for g in ins):
                    for g, v in zip(outs, forward(x, tuple(known[g] for g in ins)), strict=True):
                        known.setdefault(g, simplify(v))
                elif all(g in known for g in outs):
                    for g, v in zip(ins, backward(x, tuple(known[g] for g in outs)), strict=True):
                        known.setdefault(g, simplify(v))
                else:
                    rest.append((x, ins, outs))
            if len(rest) == len(nodes):
                return
            nodes = rest

    def coordinate(self, key: Key) -> Expr:
        """The coordinate of an axis under this operation; a broadcast axis has 0."""
        if key[0].is_broadcast:
            return as_expr(0)
        found = self.own.value.get(key[0]) if key[0].tensor is self.expr.output else None
        if found is None:
            found = self._group.get(self._number(key))
        if found is None:
            raise IndexingError(
                f"no loop of {self.expr.output.name} reaches {key_text(key)}",
                where=self.expr.source_line,
                hint="its loop axes must lead, through splits, merges and resizes, to every logical axis",
            )
        return found

    def unclamped_coordinate(self, key: Key) -> Expr:
        """The coordinate as the path gives it: an axis cut down to one element may be read beside that element."""
        if not key[0].is_broadcast:
            return self.coordinate(key)
        own = self.own.value.get(key[0]) if key[0].tensor is self.expr.output else None
        return self._group.get(self._number(key), as_expr(0)) if own is None else own

    def known(self, key: Key) -> bool:
        """True when the axis has a coordinate under this operation."""
        return key[0].is_broadcast or self._number(key) in self._group
