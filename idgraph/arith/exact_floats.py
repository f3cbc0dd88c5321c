"""Whole numbers that are computed with floats: ``ceil(n / 0.5)`` as an integer expression.

PyTorch computes some sizes in double precision (``arange`` with a float step, a scale factor of ``interpolate``).
Integers, dyadic numbers of few digits, their sums and products, and quotients by powers of two are exact there. Any
other quotient of two exact numbers is rounded once: no integer lies between it and the true quotient, and it is an
integer only where that is one, as long as both stay below 2**53 in units of their last digit. So floor, ceiling and
truncation of such numbers are those of the rational number. (Goldberg, *What every computer scientist should know about
floating-point arithmetic*, 1991.) What is rounded twice has no form here.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from idgraph.arith.expr import ArithError, Expr, add, ceildiv, const, floordiv, mul, where

ROUNDINGS = frozenset({"CeilToInt", "FloorToInt", "TruncToInt"})
_FLOATS = frozenset({"ToFloat", "FloatTrueDiv", "IntTrueDiv", "Float", "Rational", "Half"})
_DIGITS = 2**20  # of a constant's numerator and denominator: sizes below 2**33 stay exact


class Ratio(NamedTuple):
    """``top / bottom``; not ``exact``: the nearest double."""

    top: Expr
    bottom: Expr
    exact: bool = True


def integer_parts(x: Any) -> list[Any]:
    """The largest parts of a sympy tree below a rounding that are integers."""
    if type(x).__name__ not in _FLOATS and getattr(x, "is_integer", False):
        return [x]
    return [part for a in x.args for part in integer_parts(a)]


def round_to_integer(x: Any, known: Mapping[Any, Expr]) -> Expr:
    """Rounding ``x`` (a sympy node of `ROUNDINGS`) as an integer expression; ``known``: of its `integer_parts`.

    Raises ArithError where more than one step of the float computation may round.
    """
    top, bottom, _ = _ratio(x.args[0], known)
    match type(x).__name__:
        case "CeilToInt":
            return ceildiv(top, bottom)
        case "FloorToInt":
            return floordiv(top, bottom)
        case _:
            down = floordiv(top, bottom)
            return where(mul([top, bottom]) >= 0, down, ceildiv(top, bottom))


def _ratio(x: Any, known: Mapping[Any, Expr]) -> Ratio:
    found = known.get(x)
    if found is not None:
        return Ratio(found, const(1))
    name = type(x).__name__
    if getattr(x, "is_Float", False) or getattr(x, "is_Rational", False):
        number = Fraction(float(x)) if x.is_Float else Fraction(int(x.p), int(x.q))
        if max(abs(number.numerator), number.denominator) > _DIGITS or number.denominator & (number.denominator - 1):
            raise _inexact(x)
        return Ratio(const(number.numerator), const(number.denominator))
    parts = [_ratio(a, known) for a in x.args]
    match name, parts:
        case "ToFloat", [a]:
            return a
        case "Mul", _:
            return _exact_product(parts, x)
        case "Add", _ if all(p.exact for p in parts):
            bottoms = [int(p.bottom) for p in parts]
            bottom = max(map(abs, bottoms))  # powers of two
            return Ratio(
                add([mul([p.top, const(bottom // b)]) for p, b in zip(parts, bottoms, strict=True)]), const(bottom)
            )
        case (("FloatTrueDiv" | "IntTrueDiv"), [a, b]) if a.exact and b.exact:
            return _exact_quotient(a, b)
        case _:
            raise _inexact(x)


def _exact_product(parts: list[Ratio], x: Any) -> Ratio:
    """A product; a factor that was rounded may only be scaled by powers of two."""
    near = [p for p in parts if not p.exact]
    if len(near) > 1 or (near and not all(_is_power(p) for p in parts if p.exact)):
        raise _inexact(x)
    return Ratio(mul([p.top for p in parts]), mul([p.bottom for p in parts]), not near)


def _exact_quotient(a: Ratio, b: Ratio) -> Ratio:
    top, bottom = mul([a.top, b.bottom]), mul([a.bottom, b.top])
    if not _is_power(b):
        return Ratio(top, bottom, exact=False)
    if int(bottom) < 0:
        top, bottom = mul([const(-1), top]), mul([const(-1), bottom])
    return Ratio(top, bottom)


def _is_power(p: Ratio) -> bool:
    """A constant that is a power of two or its negative: its denominator is one, so its numerator must be."""
    return p.top.is_const and int(p.top) != 0 and abs(int(p.top)) & (abs(int(p.top)) - 1) == 0


def _inexact(x: Any) -> ArithError:
    return ArithError(
        f"sympy {type(x).__name__} is rounded as a float, and no integer expression says how",
        because=(f"in {x}",),
        hint="integer arithmetic (// and %), or a step that is a power of two",
    )
