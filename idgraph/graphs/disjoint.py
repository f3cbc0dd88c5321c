"""Disjoint sets over integers that remember the reason of every union (a proof forest, Nieuwenhuis and Oliveras 2005)."""

from __future__ import annotations

from idgraph.graphs.reasons import Reason


class DisjointSets:
    """Union by size with path halving; beside it a forest whose edges carry reasons, for explanations.

    >>> s = DisjointSets()
    >>> a, b, c = s.add(), s.add(), s.add()
    >>> s.union(a, b, Reason("access")), s.find(a) == s.find(b), s.find(a) == s.find(c)
    (True, True, False)
    >>> [(x, y) for x, y, _ in s.path(a, b)]
    [(0, 1)]
    """

    __slots__ = ("_parent", "_proof", "_why", "members")

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._proof: list[int] = []  # parent in the proof forest, itself at a root
        self._why: list[Reason | None] = []  # reason of the edge to that parent
        self.members: list[list[int]] = []

    def __len__(self) -> int:
        return len(self._parent)

    def add(self) -> int:
        """A new element in a set of its own."""
        n = len(self._parent)
        self._parent.append(n)
        self._proof.append(n)
        self._why.append(None)
        self.members.append([n])
        return n

    def find(self, x: int) -> int:
        """The representative of x's set."""
        parent = self._parent
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    def union(self, a: int, b: int, why: Reason) -> bool:
        """Join two sets; False when they were one already. The larger set's representative stays."""
        ra, rb = self.find(a), self.find(b)
        if ra == rb:
            return False
        if len(self.members[ra]) < len(self.members[rb]):
            a, b, ra, rb = b, a, rb, ra
        self._parent[rb] = ra
        self.members[ra].extend(self.members[rb])
        self.members[rb] = []
        # Re-root b's proof tree at b (the smaller side, so n log n in all), then hang it under a.
        node, parent, edge = b, a, why
        while True:
            up, up_why = self._proof[node], self._why[node]
            self._proof[node], self._why[node] = parent, edge
            if up == node or up_why is None:
                return True
            node, parent, edge = up, node, up_why

    def path(self, a: int, b: int) -> list[tuple[int, int, Reason]]:
        """Edges of the proof forest from a to b; raises KeyError when they are not in one set."""
        ups: dict[int, int] = {}
        node, steps = a, 0
        chain: list[int] = []
        while True:
            ups[node] = steps
            chain.append(node)
            steps += 1
            if self._proof[node] == node:
                break
            node = self._proof[node]
        down: list[int] = []
        node = b
        while node not in ups:
            down.append(node)
            if self._proof[node] == node:
                raise KeyError((a, b))
            node = self._proof[node]
        edges: list[tuple[int, int, Reason]] = []
        for x, y in zip(chain[: ups[node]], chain[1 : ups[node] + 1], strict=True):
            edges.append((x, y, self._reason(x)))
        back = [*down, node]
        for x, y in zip(reversed(back[:-1]), reversed(back[1:]), strict=True):
            edges.append((y, x, self._reason(x)))
        return edges

    def _reason(self, x: int) -> Reason:
        why = self._why[x]
        if why is None:
            raise KeyError(x)
        return why
