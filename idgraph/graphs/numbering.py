"""Numbers of keys: a graph works on integers, keys are looked up when somebody asks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, Protocol, TypeVar, cast

from idgraph.ir import IterDomain

K = TypeVar("K", bound=Hashable)


class Keys(Protocol[K]):
    """A numbering of keys from 0."""

    def __len__(self) -> int: ...

    def number(self, key: K) -> int | None:
        """The number of a key, None where it has none."""
        ...

    def at(self, number: int) -> K:
        """The key of a number."""
        ...


class KeyList(Generic[K]):
    """Keys numbered in the order in which they entered; the way back is made when a number is first asked for.

    >>> keys = KeyList[str]()
    >>> keys.enter(["a", "b"]), keys.number("b"), keys.at(0), keys.number("c")
    (0, 1, 'a', None)
    """

    __slots__ = ("_listed", "_numbers")

    def __init__(self) -> None:
        self._listed: list[K] = []
        self._numbers: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._listed)

    def enter(self, keys: Sequence[K]) -> int:
        """Number keys known to be new; returns the first of their consecutive numbers."""
        first = len(self._listed)
        self._listed.extend(keys)
        return first

    def number(self, key: K) -> int | None:
        """The number of a key, None where it has none."""
        known, count = len(self._numbers), len(self._listed)
        if known < count:
            self._numbers.update(zip(self._listed[known:], range(known, count), strict=True))
        return self._numbers.get(key)

    def at(self, number: int) -> K:
        """The key of a number."""
        return self._listed[number]


def axis_of(key: object) -> IterDomain:
    """The axis of a key: the key itself, or the first part of an index-graph key."""
    if isinstance(key, IterDomain):
        return key
    if isinstance(key, tuple):
        first: object = key[0]  # pyright: ignore[reportUnknownVariableType]
        if isinstance(first, IterDomain):
            return first
    raise TypeError(f"{key!r} is not a key of a domain graph")


def key_text(key: object) -> str:
    """``t1.I3``, or ``(t1.I3, slice -> t1)`` for a key of the index graph."""
    if isinstance(key, tuple):
        parts = cast("tuple[object, ...]", key)
        return f"({', '.join(map(key_text, parts))})"
    label = getattr(key, "label", None)
    if isinstance(label, str):
        return label
    op, output = getattr(key, "op", None), getattr(getattr(key, "output", None), "name", None)
    return f"{op} -> {output}" if output is not None else str(key)
