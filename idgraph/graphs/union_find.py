"""Disjoint sets over integers that remember the reason of every union: a proof forest (Nieuwenhuis, Oliveras 2005)."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable
from itertools import pairwise
from typing import Generic, TypeVar

_NONE = -1
T = TypeVar("T", bound=Hashable)


class EquivalenceClasses(Generic[T]):
    """Disjoint sets of anything that can be a key; what no union names is a set of its own. Reasons are those of
    `UnionFind`.
    """

    __slots__ = ("parent",)

    def __init__(self) -> None:
        self.parent: dict[T, T] = {}

    def find(self, x: T) -> T:
        """The representative of the class."""
        parent = self.parent
        while (above := parent.get(x, x)) is not x:
            parent[x] = x = parent.get(above, above)
        return x

    def union(self, x: T, into: T) -> None:
        """One class of two; the representative of ``into`` stays."""
        self.parent[self.find(x)] = self.find(into)

    def groups(self, items: Iterable[T]) -> list[list[T]]:
        """``items`` by class, in their order."""
        found: dict[T, list[T]] = {}
        for x in items:
            found.setdefault(self.find(x), []).append(x)
        return list(found.values())


class UnionFind:
    """Union by size with path halving; beside it a forest whose edges carry reasons, by number, for explanations.

    Integers in arrays and no object for an element or a union, so that nothing here costs a garbage collector's time.
    """

    __slots__ = ("_proof", "_size", "_why", "parent")

    def __init__(self, count: int = 0) -> None:
        self.parent = list(range(count))  # a list, because it is read more often than all else
        self._size = array("q", [1]) * count
        self._proof = array("q", range(count))  # parent in the proof forest, itself at a root
        self._why = array("q", [_NONE]) * count  # reason of the edge to that parent

    def __len__(self) -> int:
        return len(self.parent)

    def add(self) -> int:
        """A new element in a set of its own."""
        first = len(self.parent)
        self.parent.append(first)
        self._proof.append(first)
        self._size.append(1)
        self._why.append(_NONE)
        return first

    def copy(self) -> UnionFind:
        """An independent copy."""
        made = UnionFind()
        made.parent, made._size = self.parent.copy(), self._size[:]
        made._proof, made._why = self._proof[:], self._why[:]
        return made

    def find(self, x: int) -> int:
        """The representative of x's set."""
        parent = self.parent
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    def roots(self) -> list[int]:
        """The representative of every element, which from now on is one step away."""
        parent, find = self.parent, self.find
        parent[:] = [p if parent[p] == p else find(p) for p in parent]
        return parent

    def size(self, x: int) -> int:
        """The number of elements of x's set."""
        return self._size[self.find(x)]

    def union(self, a: int, b: int, why: int) -> bool:
        """Join two sets for reason number ``why``; False when they were one already.

        The larger set's representative stays.
        """
        parent, size = self.parent, self._size
        rb = b
        while parent[rb] != rb:
            parent[rb] = rb = parent[parent[rb]]
        if parent[a] == a and size[a] == 1:  # most unions by far: a new element enters a set
            if rb == a:
                return False
            parent[a] = rb
            size[rb] += 1
            self._proof[a] = b
            self._why[a] = why
            return True
        ra = self.find(a)
        if ra == rb:
            return False
        if size[ra] < size[rb]:
            a, b, ra, rb = b, a, rb, ra
        parent[rb] = ra
        size[ra] += size[rb]
        self.reroot_proof_tree(b, a, why)
        return True

    def reroot_proof_tree(self, b: int, a: int, why: int) -> None:
        """Re-root b's proof tree at b (the smaller side, so n log n in all), then hang it under a."""
        proof, reasons = self._proof, self._why
        node, above, edge = b, a, why
        while True:
            up, before = proof[node], reasons[node]
            proof[node], reasons[node] = above, edge
            if up == node or before == _NONE:
                return
            node, above, edge = up, node, before

    def path(self, a: int, b: int) -> list[tuple[int, int, int]]:
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

    def _edges(self, chain: list[int]) -> list[tuple[int, int, int]]:
        return [(x, y, why) for x, y in pairwise(chain) if (why := self._why[x]) != _NONE]
