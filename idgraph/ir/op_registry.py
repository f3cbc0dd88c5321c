"""The table of primitive operations by name; operators, builders and the text form all go through it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from idgraph.arith import Expr
from idgraph.errors import OperationError, one_of
from idgraph.ir.axis_read import Attr
from idgraph.ir.dtypes import Scalar
from idgraph.ir.verifier import AxisError

T = TypeVar("T")
F = TypeVar("F")
V = TypeVar("V")


class Builds(Protocol[T]):
    """A fusion whose tensors are of class ``T``, as far as the table knows it."""

    def check_args(self, op: str, args: Sequence[object]) -> None:
        """See `Fusion.check_args`."""
        ...

    def in_symbols(self, value: V, /) -> V:
        """See `Fusion.in_symbols`."""
        ...

    def building(self, op: str, build: Callable[[], T]) -> T:
        """See `Fusion.building`."""
        ...


Builder: TypeAlias = Callable[[F, "tuple[T | Scalar | Expr, ...]", Mapping[str, Attr], "str | None"], T]
"""A function of a fusion, operands, attributes and the output's name that adds the operation and gives its output."""

_BUILDERS: dict[str, Builder[Any, Any]] = {}


def primitive(*names: str) -> Callable[[Builder[F, T]], Builder[F, T]]:
    """Register a builder under its operation names (import time only)."""

    def register(builder: Builder[F, T]) -> Builder[F, T]:
        for name in names:
            if name in _BUILDERS:
                raise ValueError(f"operation {name} is registered twice")
            _BUILDERS[name] = builder
        return builder

    return register


def primitives() -> tuple[str, ...]:
    """Names of all primitive operations, sorted."""
    return tuple(sorted(_BUILDERS))


def apply(
    fusion: Builds[T],
    op: str,
    args: Sequence[T | Scalar | Expr],
    attrs: Mapping[str, Attr] | None = None,
    name: str | None = None,
) -> T:
    """Build one primitive operation in ``fusion`` and return its output tensor.

    Raises `OperationError` for an unknown operation, a tensor of another fusion, or operands without meaning.
    """
    builder = _BUILDERS.get(op)
    if builder is None:
        raise OperationError(f"unknown operation {op!r}", hint=one_of(op, primitives()))
    fusion.check_args(op, args)
    args, given = fusion.in_symbols(tuple(args)), fusion.in_symbols(dict(attrs or {}))
    try:
        return fusion.building(op, lambda: builder(fusion, args, given, name))
    except AxisError as error:
        tensors: dict[Any, None] = dict.fromkeys(a for a in args if not isinstance(a, (int, float, Expr)))
        named = [f"{a.name} of shape {a.shape}" for a in tensors]
        of = f" of {', '.join(named[:4])}{', ...' if len(named) > 4 else ''}" if named else ""
        raise OperationError(f"{op}{of}: {error.what}", where=error.where) from None
