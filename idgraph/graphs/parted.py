"""The operation that makes two axes one in the exact graph which are not one in the aligned graph.

The exact graph's proof forest, with the unions contracted that the aligned graph has too, is a forest of parts. On the
way between two parts lies a union that was left out, or one that followed from equal expressions and rests on such a
union in turn. Each part knows the nearest one left out above it, so no way is walked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from idgraph.graphs.valgraph import ValGraph
from idgraph.ir import TensorExpr


class UnalignedProofForest:
    """Parts of the exact groups: ``left_out`` are the unions that the aligned graph lacks, with their operations."""

    def __init__(
        self, exact: ValGraph[Any], aligned: ValGraph[Any], left_out: Mapping[frozenset[int], TensorExpr]
    ) -> None:
        self._exact = exact
        self._aligned = aligned
        self._left_out = left_out
        self._tops: dict[int, int] = {}
        self._first: dict[int, int] = {}  # the parts in the order of a walk from the roots: a part and what is below it
        self._last: dict[int, int] = {}
        self._nearest: dict[int, int | None] = {}  # of a part and those above it the first whose union was left out
        self._walk()

    def separating_operation(self, a: int, b: int) -> TensorExpr:
        """The operation for two elements that are one in the exact graph only."""
        pending, seen = [(a, b)], set[tuple[int, int]]()
        while pending:
            pair = pending.pop()
            if pair in seen:
                continue
            seen.add(pair)
            s, t = map(self._top, pair)
            for x, y in ((s, t), (t, s)):
                near = self._nearest[x]
                if near is not None and not self._is_above(near, y):
                    return self._left_out[self._edge(near)]
            for x, y in ((s, t), (t, s)):
                above = self._exact.above(x)
                if above is not None and not self._is_above(x, y):
                    held = self._exact.proof_premises(x, *above)
                    pending += [(p, q) for p, q in held if self._aligned.find(p) != self._aligned.find(q)]
        raise AssertionError(f"elements {a} and {b} are one in the exact graph by aligned unions alone")

    def _walk(self) -> None:
        """Number the parts, each before those that hang under it."""
        below: dict[int, list[int]] = {}
        roots: list[int] = []
        for top in dict.fromkeys(map(self._top, range(self._exact.elements))):
            above = self._exact.above(top)
            if above is None:
                roots.append(top)
            else:
                below.setdefault(self._top(above[0]), []).append(top)
        pending: list[tuple[int, int | None]] = [(root, None) for root in roots]
        while pending:
            top, near = pending.pop()
            if top in self._first:  # all below it is numbered
                self._last[top] = len(self._first)
                continue
            self._first[top] = len(self._first)
            if self._exact.above(top) is not None and self._edge(top) in self._left_out:
                near = top
            self._nearest[top] = near
            pending.append((top, None))
            pending += [(x, near) for x in below.get(top, ())]

    def _edge(self, top: int) -> frozenset[int]:
        above = self._exact.above(top)
        return frozenset((top, above[0])) if above is not None else frozenset()

    def _is_above(self, a: int, b: int) -> bool:
        """True of one part, and of one that the other hangs under."""
        return self._first[a] <= self._first[b] < self._last[a]

    def _top(self, x: int) -> int:
        """The part of an element: the last one on its way to the root before a union that is not aligned."""
        way: list[int] = []
        while x not in self._tops:
            above = self._exact.above(x)
            if above is None or self._aligned.find(x) != self._aligned.find(above[0]):
                self._tops[x] = x
                break
            way.append(x)
            x = above[0]
        top = self._tops[x]
        for d in way:
            self._tops[d] = top
        return top
