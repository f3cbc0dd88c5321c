"""How an operation reads the axes of its operands, and what its attributes are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from idgraph.arith import Expr
from idgraph.ir.iter_domain import IterDomain


@dataclass(frozen=True, slots=True)
class Mapped:
    """The operand's axis is read at the coordinate of this root axis of the output."""

    domain: IterDomain


@dataclass(frozen=True, slots=True)
class Fixed:
    """The operand's axis is read at one coordinate: 0 where a broadcast is resolved or squeezed, or a selected index.

    A resolved broadcast names the root axis of the output that it ``resolves`` to.
    """

    index: Expr
    why: Literal["broadcast", "squeeze", "select", "empty"]
    resolves: IterDomain | None = None


@dataclass(frozen=True, slots=True)
class LoadedCoordinate:
    """The operand's axis is read at the value loaded from the operand number ``operand`` (a gathered axis)."""

    operand: int


AxisRead = Mapped | Fixed | LoadedCoordinate


def read_along(read: AxisRead, image: Mapping[IterDomain, IterDomain]) -> AxisRead:
    """The same way of reading, by an operation whose axes are ``image`` of those that it names."""
    match read:
        case Mapped(domain):
            return Mapped(image[domain])
        case Fixed(index, why, IterDomain() as resolves):
            return Fixed(index, why, image[resolves])
        case _:
            return read


Attr: TypeAlias = "bool | int | float | str | Expr | tuple[Attr, ...] | None"
Attrs: TypeAlias = "Mapping[str, Attr]"


def plain_text(value: Attr) -> str:
    """An attribute for messages: expressions as they print, tuples of them too."""
    if isinstance(value, tuple):
        return f"({', '.join(map(plain_text, value))}{',' if len(value) == 1 else ''})"
    return str(value)


def from_the_front(attrs: Mapping[str, Attr], rank: int) -> dict[str, Attr]:
    """``attrs`` with the axes of "dim" and "dims", which a builder has checked, counted from the front.

    >>> from_the_front({"dims": (-1, 0), "shifts": (-1, 2)}, rank=3)
    {'dims': (2, 0), 'shifts': (-1, 2)}
    """
    return {k: _positions(v, rank) if k in ("dim", "dims") else v for k, v in attrs.items()}


def _positions(value: Attr, rank: int) -> Attr:
    if isinstance(value, tuple):
        return tuple(_positions(v, rank) for v in value)
    return value % rank if isinstance(value, int) and rank else value
