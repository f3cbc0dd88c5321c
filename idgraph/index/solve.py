"""Coordinates inside one operation: from its loop variables to every axis of its tensors, never leaving it.

Each group of the index graph has one coordinate, so each is computed once, by the first domain expression of this
operation whose other side is known. What was used is remembered, so that predicates name exactly the axes on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from idgraph.arith import Expr, as_expr, simplify
from idgraph.errors import IndexingError
from idgraph.graphs import IndexGraph, key_text
from idgraph.graphs.coordinates import backward, forward
from idgraph.graphs.index_graph import Key
from idgraph.ir import DomainExpr, IterDomain, Stride, TensorExpr


@dataclass(frozen=True, slots=True)
class Step:
    """How one group's coordinate was found: through ``expr``, forward or backward, from other groups."""

    expr: DomainExpr
    is_forward: bool
    sources: tuple[int, ...]
    targets: tuple[tuple[int, IterDomain], ...]


class Solver:
    """Coordinates of the groups that one operation touches."""

    def __init__(self, graph: IndexGraph, expr: TensorExpr) -> None:
        self.graph = graph
        self.expr = expr
        self.value: dict[int, Expr] = {}
        self.step: dict[int, Step] = {}
        self._nodes = [
            (x, tuple(self._number(k) for k in ins), tuple(self._number(k) for k in outs), ins, outs)
            for x, ins, outs, _ in graph.local[expr]
        ]
        self._of_output = [own for _, _, _, own in graph.local[expr]]
        self._by_group: dict[int, list[int]] = {}
        for n, (_, ins, outs, _, _) in enumerate(self._nodes):
            for g in dict.fromkeys((*ins, *outs)):
                self._by_group.setdefault(g, []).append(n)

    def _number(self, key: Key) -> int:
        return self.graph.graph.lookup(key).number

    def solve(self, loops: Iterable[tuple[Key, Expr]], given: Iterable[tuple[Key, Expr]]) -> None:
        """Coordinates from loop variables through the output's own axes, then from those and ``given`` through operands.

        In this order: an operand's axis of one element says nothing about where the output reads it.
        """
        for key, value in loops:
            self.value.setdefault(self._number(key), value)
        # Backward first: what the loops say of a padded axis must not be hidden by what its neighbour implies.
        for n in reversed(range(len(self._nodes))):
            x, ins, outs, in_keys, _ = self._nodes[n]
            if self._of_output[n] and all(g in self.value for g in outs):
                self._found(x, False, outs, ins, in_keys, backward(x, tuple(self.value[g] for g in outs)))
        self._follow(list(self.value), output_only=True)
        for key, value in given:
            self.value.setdefault(self._number(key), value)
        self._follow(list(self.value), output_only=False)

    def _follow(self, pending: list[int], output_only: bool) -> None:
        at = 0
        while at < len(pending):
            for n in self._by_group.get(pending[at], ()):
                if self._of_output[n] or not output_only:
                    pending += self._try(n)
            at += 1

    def _try(self, n: int) -> list[int]:
        x, ins, outs, in_keys, out_keys = self._nodes[n]
        missing_in = [g for g in ins if g not in self.value]
        missing_out = [g for g in outs if g not in self.value]
        if missing_out and not missing_in:
            found = forward(x, tuple(self.value[g] for g in ins))
            return self._found(x, True, ins, outs, out_keys, found)
        if missing_in and not missing_out:
            found = backward(x, tuple(self.value[g] for g in outs))
            return self._found(x, False, outs, ins, in_keys, found)
        return []

    def _found(
        self,
        x: DomainExpr,
        is_forward: bool,
        sources: tuple[int, ...],
        targets: tuple[int, ...],
        keys: tuple[Key, ...],
        values: tuple[Expr, ...],
    ) -> list[int]:
        step = Step(x, is_forward, sources, tuple((g, k[0]) for g, k in zip(targets, keys, strict=True)))
        fresh: list[int] = []
        for g, v in zip(targets, values, strict=True):
            if g not in self.value:
                self.value[g] = simplify(v)
                self.step[g] = step
                fresh.append(g)
        return fresh

    def coordinate(self, key: Key) -> Expr:
        """The coordinate of an axis under this operation; a broadcast axis has 0."""
        if key[0].is_broadcast:
            return as_expr(0)
        found = self.value.get(self._number(key))
        if found is None:
            raise IndexingError(
                f"no loop of {self.expr.output.name} reaches {key_text(key)}",
                where=self.expr.source_line,
                hint="its loop axes must lead, through splits, merges and resizes, to every logical axis",
            )
        return found

    def known(self, key: Key) -> bool:
        """True when the axis has a coordinate under this operation."""
        return key[0].is_broadcast or self._number(key) in self.value

    def way(self, keys: Iterable[Key], stop: frozenset[int] = frozenset()) -> Iterator[tuple[Expr, Expr]]:
        """Pairs (coordinate, extent) of every axis on the way to ``keys``, and (x, 0) for x that must be 0.

        Groups in ``stop`` are taken as known to be in bounds.
        """
        seen: set[int] = set(stop)
        pending: list[tuple[int, IterDomain]] = []
        for k in keys:
            number = self._number(k)
            if number in self.value:
                pending.append((number, k[0]))
        steps: set[int] = set()
        while pending:
            number, domain = pending.pop()
            if number in seen:
                continue
            seen.add(number)
            yield self.value[number], domain.extent
            step = self.step.get(number)
            if step is None or id(step) in steps:
                continue
            steps.add(id(step))
            if isinstance(step.expr, Stride) and step.is_forward:
                yield (self.value[step.sources[0]] - step.expr.start) % step.expr.step, as_expr(0)
            ends = step.expr.inputs if step.is_forward else step.expr.outputs
            pending += zip(step.sources, ends, strict=True)
            # A step fixes all its targets at once; each must be in bounds for the point to be unique.
            pending += step.targets
