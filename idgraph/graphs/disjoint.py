"""Disjoint sets over integers that remember the reason of every union: a proof forest (Nieuwenhuis, Oliveras 2005)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Generic, TypeVar

W = TypeVar("W")


class DisjointSets(Generic[W]):
    """Union by size with path halving; beside it a forest whose edges carry reasons, for explanations.

    Members of a set form a ring, so a union costs no copying. Plain lists of ints: 100 000 operations are millions.

    >>> s = DisjointSets[str]()
    >>> a, b, c = s.add(), s.add(), s.add()
    >>> s.union(a, b, "they are"), s.find(a) == s.find(b), s.find(a) == s.find(c)
    (True, True, False)
    >>> s.path(a, b), sorted(s.members(b))
    ([(0, 1, 'they are')], [0, 1])
    """

    __slots__ = ("_next", "_proof", "_size", "_why", "parent")

    def __init__(self, count: int = 0) -> None:
        self.parent = list(range(count))
        self._size = [1] * count
        self._next = self.parent.copy()  # ring of members
        self._proof = self.parent.copy()  # parent in the proof forest, itself at a root
        self._why: list[W | None] = [None] * count  # reason of the edge to that parent

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
        self._why.extend([None] * count)
        return first

    def copy(self) -> DisjointSets[W]:
        """An independent copy."""
        made = DisjointSets[W]()
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

    def union(self, a: int, b: int, why: W) -> bool:
        """Join two sets; False when they were one already. The larger set's representative stays."""
        parent, size = self.parent, self._size
        rb = b
        while parent[rb] != rb:
            parent[rb] = rb = parent[parent[rb]]
        if parent[a] == a and size[a] == 1:  # most unions by far: a new element enters a set
            if rb == a:
                return False
            ring = self._next
            parent[a] = rb
            size[rb] += 1
            ring[a], ring[rb] = ring[rb], a
            self._proof[a] = b
            self._why[a] = why
            return True
        ra = self.find(a)
        if ra == rb:
            return False
        ring = self._next
        if size[ra] < size[rb]:
            a, b, ra, rb = b, a, rb, ra
        parent[rb] = ra
        size[ra] += size[rb]
        ring[ra], ring[rb] = ring[rb], ring[ra]
        self._hang(b, a, why)
        return True

    def _hang(self, b: int, a: int, why: W) -> None:
        """Re-root b's proof tree at b (the smaller side, so n log n in all), then hang it under a."""
        proof, reasons = self._proof, self._why
        node, above, edge = b, a, why
        while True:
            up, before = proof[node], reasons[node]
            proof[node], reasons[node] = above, edge
            if up == node or before is None:
                return
            node, above, edge = up, node, before

    def path(self, a: int, b: int) -> list[tuple[int, int, W]]:
        """Edges of the proof forest from a to b; raises KeyError when they are not in one set.

        Both ends climb in turn, so the cost is that of the path and not of the way up to the root.
        """
        ups, places = ([a], [b]), ({a: 0}, {b: 0})
        moving = [True, True]
        side = 0
        while any(moving):
            other = 1 - side
            at = ups[side][-1]
            if at in places[other]:
                there, back = (ups[0][: places[0][at] + 1], ups[1][: places[1][at] + 1])
                return [*self._edges(there), *((y, x, why) for x, y, why in reversed(self._edges(back)))]
            up = self._proof[at]
            if up == at:
                moving[side] = False
            else:
                places[side][up] = len(ups[side])
                ups[side].append(up)
            side = other if moving[other] else side
        raise KeyError((a, b))

    def _edges(self, chain: list[int]) -> list[tuple[int, int, W]]:
        return [(x, y, why) for x, y in pairwise(chain) if (why := self._why[x]) is not None]
