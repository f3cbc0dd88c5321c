"""Domain expressions of a graph by number: integers in arrays."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import overload

from idgraph.graphs.signature import ExprSignature

SIDES = 4  # places of one expression in `ENodes.sides`: two axes read, two made; an axis that is not there is NOBODY
NO_OPERAND = -1


class OperandView(Sequence[tuple[int, ...]]):
    """The elements that each expression reads, or makes, put together when looked at."""

    __slots__ = ("_at", "_sides")

    def __init__(self, sides: array[int], at: int) -> None:
        self._sides = sides
        self._at = at

    def __len__(self) -> int:
        return len(self._sides) // SIDES

    @overload
    def __getitem__(self, n: int) -> tuple[int, ...]: ...
    @overload
    def __getitem__(self, n: slice) -> Sequence[tuple[int, ...]]: ...
    def __getitem__(self, n: int | slice) -> tuple[int, ...] | Sequence[tuple[int, ...]]:
        if isinstance(n, slice):
            return [self[k] for k in range(*n.indices(len(self)))]
        at = SIDES * n + self._at
        a, b = self._sides[at], self._sides[at + 1]
        return (a,) if b < 0 else (a, b)


class ENodes:
    """Domain expressions of a graph: form, elements read and made, and which of them are equal.

    ``ins[n]`` and ``outs[n]`` are the elements that number ``n`` reads and makes. Of equal expressions the one entered
    first represents all.
    """

    __slots__ = ("_after", "_parent", "form", "ins", "outs", "sides", "visible")

    def __init__(self) -> None:
        self.visible: int | None = None  # expressions from this number on show in no group of expressions
        self.form: list[ExprSignature] = []
        self._parent: list[int] = []
        self._after: array[int] | None = None
        self._hold(array("q"))

    def _hold(self, sides: array[int]) -> None:
        self.sides = sides
        self.ins: Sequence[tuple[int, ...]] = OperandView(sides, 0)
        self.outs: Sequence[tuple[int, ...]] = OperandView(sides, 2)

    def __len__(self) -> int:
        return len(self.form)

    def add(self, form: ExprSignature, ins: Sequence[int], outs: Sequence[int], base: int = 0) -> int:
        """A new expression between elements, counted from ``base``; returns its number."""
        n = len(self.form)
        self.form.append(form)
        self._parent.append(n)
        a, *more = ins
        c, *rest = outs
        self.sides.extend(
            (base + a, base + more[0] if more else NO_OPERAND, base + c, base + rest[0] if rest else NO_OPERAND)
        )
        return n

    def copy(self) -> ENodes:
        """An independent copy."""
        made = ENodes()
        made.form, made._parent, made.visible = self.form.copy(), self._parent.copy(), self.visible
        made._hold(self.sides[:])
        return made

    def without_unions(self) -> ENodes:
        """A copy in which no two are equal yet."""
        made = self.copy()
        made._parent = list(range(len(self.form)))
        return made

    def find(self, n: int) -> int:
        """Representative of the expressions equal to one."""
        parent = self._parent
        while parent[n] != n:
            parent[n] = n = parent[parent[n]]
        return n

    def merge(self, a: int, b: int) -> bool:
        """State that two are equal; False where that was known. The one entered first represents both."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return False
        self._parent[max(a, b)] = min(a, b)
        return True

    def representatives(self) -> array[int]:
        """The first of every group of equal expressions."""
        shown = len(self.form) if self.visible is None else self.visible
        return array("q", [n for n, p in enumerate(self._parent) if p == n and n < shown])

    def equal(self, first: int) -> list[int]:
        """The expressions equal to ``first``, which represents them, in the order in which they entered."""
        if self._after is None:  # asked of a finished graph only
            count = len(self.form) if self.visible is None else self.visible
            after, head = array("q", [NO_OPERAND]) * count, dict[int, int]()
            for n in range(count - 1, -1, -1):
                root = self.find(n)
                after[n] = head.get(root, NO_OPERAND)
                head[root] = n
            self._after = after
        found, n = [first], self._after[first]
        while n != NO_OPERAND:
            found.append(n)
            n = self._after[n]
        return found

    def classes(self) -> dict[int, list[int]]:
        """The numbers of equal expressions by the first of them."""
        return {n: self.equal(n) for n in self.representatives()}
