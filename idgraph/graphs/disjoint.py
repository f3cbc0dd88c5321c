"""Disjoint sets over integers that remember the reason of every union: a proof forest (Nieuwenhuis, Oliveras 2005)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from idgraph.graphs.reasons import Reason


class DisjointSets:
    """Union by size with path halving; beside it a forest whose edges carry reasons, for explanations.

    Members of a set form a ring, so a union costs no copying. Plain lists of ints: 100 000 operations are millions.

    >>> s = DisjointSets()
    >>> a, b, c = s.add(), s.add(), s.add()
    >>> s.union(a, b, Reason("access")), s.find(a) == s.find(b), s.find(a) == s.find(c)
    (True, True, False)
    >>> [(x, y) for x, y, _ in s.path(a, b)], sorted(s.members(b))
    ([(0, 1)], [0, 1])
    """

    __slots__ = ("_next", "_proof", "_size", "_why", "parent")

    def __init__(self) -> None:
        self.parent: list[int] = []
        self._size: list[int] = []
        self._next: list[int] = []  # ring of members
        self._proof: list[int] = []  # parent in the proof forest, itself at a root
        self._why: dict[int, Reason] = {}  # reason of the edge to that parent

    def __len__(self) -> int:
        return len(self.parent)

    def add(self) -> int:
        """A new element in a set of its own."""
        return self.add_many(1)

    def add_many(self, count: int) -> int:
        """``count`` new elements, each in a set of its own; returns the first."""
        first = len(self.parent)
        fresh = range(first, first + count)
        self.parent.extend(fresh)
        self._next.extend(fresh)
        self._proof.extend(fresh)
        self._size.extend([1] * count)
        return first

    def copy(self) -> DisjointSets:
        """An independent copy."""
        made = DisjointSets()
        made.parent, made._size, made._next = self.parent.copy(), self._size.copy(), self._next.copy()
        made._proof, made._why = self._proof.copy(), self._why.copy()
        return made

    def find(self, x: int) -> int:
        """The representative of x's set."""
        parent = self.parent
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    def members(self, x: int) -> Iterator[int]:
        """All elements of x's set, x first."""
        yield x
        at = self._next[x]
        while at != x:
            yield at
            at = self._next[at]

    def union(self, a: int, b: int, why: Reason) -> bool:
        """Join two sets; False when they were one already. The larger set's representative stays."""
        ra, rb = self.find(a), self.find(b)
        if ra == rb:
            return False
        size, ring, proof, reasons = self._size, self._next, self._proof, self._why
        if size[ra] < size[rb]:
            a, b, ra, rb = b, a, rb, ra
        self.parent[rb] = ra
        size[ra] += size[rb]
        ring[ra], ring[rb] = ring[rb], ring[ra]
        # Re-root b's proof tree at b (the smaller side, so n log n in all), then hang it under a.
        node, above, edge = b, a, why
        while True:
            up = proof[node]
            proof[node] = above
            if up == node:
                reasons[node] = edge
                return True
            reasons[node], edge = edge, reasons[node]
            node, above = up, node

    def path(self, a: int, b: int) -> list[tuple[int, int, Reason]]:
        """Edges of the proof forest from a to b; raises KeyError when they are not in one set."""
        up = self._climb(a)
        place = {x: n for n, x in enumerate(up)}
        down = self._climb(b)
        meet = next((n for n, x in enumerate(down) if x in place), None)
        if meet is None:
            raise KeyError((a, b))
        there = up[: place[down[meet]] + 1]
        back = down[: meet + 1]
        edges = [(x, y, self._why[x]) for x, y in pairwise(there)]
        edges += [(y, x, self._why[x]) for x, y in reversed(list(pairwise(back)))]
        return edges

    def _climb(self, x: int) -> list[int]:
        chain = [x]
        while self._proof[x] != x:
            x = self._proof[x]
            chain.append(x)
        return chain
