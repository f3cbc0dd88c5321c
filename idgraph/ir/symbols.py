"""Bounds of symbols: numbers, or expressions in symbols that the fusion has already."""

from __future__ import annotations

from collections.abc import Mapping

from idgraph.arith import Expr
from idgraph.errors import OperationError, short_repr, user_line


def symbol_bound(known: Mapping[str, Expr], name: str, value: object) -> int | Expr:
    """A bound of the new symbol ``name``; raises `OperationError` for another object, or one that names a symbol not
    ``known``.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, Expr) or value.is_condition:
        raise OperationError(
            f"symbol {name}: {short_repr(value)} is not a bound",
            where=user_line(),
            hint="an int, or an expression in symbols of the fusion",
        )
    strange = [s.name for s in value.symbols if known.get(s.name) != s]
    if strange:
        raise OperationError(
            f"symbol {name}: its bound {value} names {strange[0]}, which is not a symbol of the fusion",
            where=user_line(),
            hint=f"f.symbol({strange[0]!r}) first",
        )
    return int(value) if value.is_const else value
