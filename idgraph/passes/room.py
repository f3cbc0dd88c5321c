"""Arrays of registers that statements share, one after the other."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field


@dataclass(slots=True)
class RegisterArrayPool:
    """Arrays for the values of one level: those it may use, those it uses, those that statements inside are done with.

    Nothing behind a statement reads what is set inside it, so the next one may use its arrays; statements of the level
    itself may not, since a loop of theirs may move in front.

    >>> outer = Room(used=["a"])
    >>> outer = outer.behind(Room(used=["t"]), {"a", "t"})
    >>> outer.free, outer.inside().free
    ([], ['t'])
    """

    free: list[str] = field(default_factory=list[str])
    used: list[str] = field(default_factory=list[str])
    done: list[str] = field(default_factory=list[str])

    def inside(self) -> RegisterArrayPool:
        """The room of a level inside this one."""
        return RegisterArrayPool([*self.free, *self.done])

    def behind(self, inner: RegisterArrayPool, several: Set[str]) -> RegisterArrayPool:
        """The room behind a statement whose level had ``inner``; an array without ``several`` elements becomes a
        variable, and stays its own."""
        used = [*(x for x in inner.used if x in several), *inner.done]
        kept = [x for x in self.done if x in inner.free]
        return RegisterArrayPool([x for x in self.free if x in inner.free], self.used, [*kept, *used])
