"""The table of primitive operations by name; operators, builders and the text form all go through it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from idgraph.arith import Expr
from idgraph.errors import OperationError
from idgraph.ir.dtypes import Scalar
from idgraph.ir.exprs import Attr
from idgraph.ir.verify import AxisError

if TYPE_CHECKING:
    from idgraph.ir.fusion import Fusion
    from idgraph.ir.tensor import Tensor

Builder = Callable[["Fusion", "tuple[Tensor | Scalar | Expr, ...]", Mapping[str, Attr], "str | None"], "Tensor"]

_BUILDERS: dict[str, Builder] = {}


def primitive(*names: str) -> Callable[[Builder], Builder]:
    """Register a builder under its operation names (import time only)."""

    def register(builder: Builder) -> Builder:
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
    fusion: Fusion,
    op: str,
    args: Sequence[Tensor | Scalar | Expr],
    attrs: Mapping[str, Attr] | None = None,
    name: str | None = None,
) -> Tensor:
    """Build one primitive operation in ``fusion`` and return its output tensor.

    Raises `OperationError` for an unknown operation, a tensor of another fusion, or operands without meaning.
    """
    builder = _BUILDERS.get(op)
    if builder is None:
        raise OperationError(f"unknown operation {op!r}", hint=f"one of {', '.join(primitives())}")
    fusion.check_args(op, args)
    try:
        return fusion.building(op, lambda: builder(fusion, tuple(args), dict(attrs or {}), name))
    except AxisError as error:
        named = [f"{a.name} of shape {a.shape}" for a in dict.fromkeys(args) if not isinstance(a, (int, float, Expr))]
        of = f" of {', '.join(named[:4])}{', ...' if len(named) > 4 else ''}" if named else ""
        raise OperationError(f"{op}{of}: {error.what}", where=error.where) from None
