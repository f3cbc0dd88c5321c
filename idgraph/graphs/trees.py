"""Breadth-first trees of a component with running sums, and where two of them meet.

What a way along a tree does is told by the difference of two sums, so that a ring with many ways through it costs no
more to describe than its steps: listing one of the ways waits until somebody asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from idgraph.arith import Expr, as_expr
from idgraph.ir import DomainExpr, Resize, Stride

_NEAR = 32  # steps tried one by one before the whole tree is asked
_MASK = (1 << 64) - 1


class Step(NamedTuple):
    """One step of a way: the expression ``node`` reads the group ``source`` and makes the group ``to``."""

    source: int
    node: int
    to: int


def translation(e: DomainExpr) -> Expr | None:
    """What ``e`` adds to every coordinate; None where it does anything else."""
    match e:
        case Resize():
            return as_expr(e.left)
        case Stride() if e.step == 1:
            return -as_expr(e.start)
        case _:
            return None


def mixed(n: int) -> int:
    """A number spread over 64 bits (Steele, Lea, Flood 2014): sums of these tell sets of expressions apart."""
    n = (n + 0x9E3779B97F4A7C15) & _MASK
    n = ((n ^ (n >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    n = ((n ^ (n >> 27)) * 0x94D049BB133111EB) & _MASK
    return n ^ (n >> 31)


class Sums(NamedTuple):
    """What a way amounts to: steps, those that are no translation, what the others add, and a sum of marks."""

    steps: int
    rough: int
    offset: Expr
    mark: int

    def plus(self, other: Sums) -> Sums:
        """One way after another."""
        return Sums(
            self.steps + other.steps,
            self.rough + other.rough,
            self.offset + other.offset,
            (self.mark + other.mark) & _MASK,
        )

    def minus(self, other: Sums) -> Sums:
        """What is left of a way behind its beginning."""
        return Sums(
            self.steps - other.steps,
            self.rough - other.rough,
            self.offset - other.offset,
            (self.mark - other.mark) & _MASK,
        )


NOTHING = Sums(0, 0, as_expr(0), 0)


@dataclass(slots=True)
class Tree:
    """For each group the step that leads to it from the root (``forwards``), or from it towards the root, with sums."""

    root: int
    forwards: bool
    up: dict[int, Step | None] = field(default_factory=dict[int, "Step | None"])
    sums: dict[int, Sums] = field(default_factory=dict[int, Sums])
    _entered: dict[int, int] = field(default_factory=dict[int, int])
    _left: dict[int, int] = field(default_factory=dict[int, int])

    def parent(self, g: int) -> int | None:
        """The group one step nearer to the root."""
        step = self.up[g]
        if step is None:
            return None
        return step.source if self.forwards else step.to

    def children(self) -> dict[int, list[int]]:
        """For each group those one step farther from the root, in the order in which they were found."""
        found: dict[int, list[int]] = {g: [] for g in self.up}
        for g in self.up:
            above = self.parent(g)
            if above is not None:
                found[above].append(g)
        return found

    def number(self) -> None:
        """Number the groups so that those behind a group have the numbers between its own two."""
        children, clock = self.children(), 0
        stack = [(self.root, False)]
        while stack:
            g, done = stack.pop()
            if done:
                self._left[g] = clock
                continue
            self._entered[g] = clock
            clock += 1
            stack.append((g, True))
            stack += [(c, False) for c in reversed(children[g])]

    def leads(self, a: int, b: int) -> bool:
        """True where ``a`` is ``b`` or lies between the root and ``b``."""
        return self._entered[a] <= self._entered[b] < self._left[a]

    def span(self, g: int) -> tuple[int, int]:
        """The numbers of a group and all behind it, half open."""
        return self._entered[g], self._left[g]


def tree(root: int, steps: Mapping[int, Sequence[Step]], forwards: bool, one: Callable[[Step], Sums]) -> Tree:
    """Breadth first along ``steps``, which leave (enter) each group; ``one`` says what a single step amounts to."""
    made = Tree(root, forwards)
    made.up[root], made.sums[root] = None, NOTHING
    queue = deque([root])
    while queue:
        at = queue.popleft()
        for step in steps.get(at, ()):
            to = step.to if forwards else step.source
            if to not in made.up:
                made.up[to] = step
                made.sums[to] = made.sums[at].plus(one(step))
                queue.append(to)
    made.number()
    return made


def meetings(there: Tree, back: Tree, asked: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """For each (a, b) the first group on the way from ``b`` to the root that lies on the way from the root to ``a``."""
    found: dict[tuple[int, int], int] = {}
    far: dict[int, list[int]] = {}
    for a, b in asked:
        at = b
        for _ in range(_NEAR):
            if there.leads(at, a):
                found[a, b] = at
                break
            above = back.parent(at)
            at = at if above is None else above
        else:
            far.setdefault(a, []).append(b)
    if far:
        _far_meetings(there, back, far, found)
    return found


def _far_meetings(there: Tree, back: Tree, far: Mapping[int, list[int]], found: dict[tuple[int, int], int]) -> None:
    """Down ``there``, with every group on the way marked in ``back``: a group's nearest mark towards the root."""
    marks = _Marks(back)
    children = there.children()
    stack = [(there.root, False)]
    while stack:
        g, done = stack.pop()
        if done:
            marks.remove(g)
            continue
        marks.add(g)
        for b in far.get(g, ()):
            found[g, b] = marks.nearest(b)
        stack.append((g, True))
        stack += [(c, False) for c in children[g]]


class _Marks:
    """Marked groups of a tree, last marked first unmarked: for any group the nearest marked one towards the root.

    A segment tree over the numbers of the groups; each of its nodes keeps the deepest mark that covers it.
    """

    def __init__(self, of: Tree) -> None:
        self._tree = of
        self._size = len(of.up)
        self._groups = list(of.up)
        self._place = {g: n for n, g in enumerate(self._groups)}
        self._deepest: list[list[tuple[int, int]]] = [[] for _ in range(2 * self._size)]

    def _covering(self, g: int) -> list[int]:
        low, high = self._tree.span(g)
        low, high = low + self._size, high + self._size
        found: list[int] = []
        while low < high:
            if low & 1:
                found.append(low)
                low += 1
            if high & 1:
                high -= 1
                found.append(high)
            low, high = low // 2, high // 2
        return found

    def add(self, g: int) -> None:
        """Mark a group."""
        mark = (self._tree.sums[g].steps, self._place[g])
        for n in self._covering(g):
            held = self._deepest[n]
            held.append(max(held[-1], mark) if held else mark)

    def remove(self, g: int) -> None:
        """Unmark the group that was marked last."""
        for n in self._covering(g):
            self._deepest[n].pop()

    def nearest(self, g: int) -> int:
        """The nearest marked group on the way to the root, which is marked always."""
        n = self._tree.span(g)[0] + self._size
        best = (-1, -1)
        while n:
            if self._deepest[n]:
                best = max(best, self._deepest[n][-1])
            n //= 2
        return self._groups[best[1]]
