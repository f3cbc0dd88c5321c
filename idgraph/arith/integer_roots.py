"""The one integer at which an expression of one symbol has a value: sizes read off what was computed of them."""

from __future__ import annotations

from dataclasses import dataclass

from idgraph.arith.expr import Expr
from idgraph.arith.prove import is_true

_MOST = 2**63  # no size is larger


@dataclass(frozen=True, slots=True)
class Root:
    """The values of a symbol at which an expression of it is ``wanted``: ``value`` is the only one, or None where there
    are several (``several``), none, or where the expression may rise and fall (``known`` False)."""

    value: int | None = None
    several: bool = False
    known: bool = True


def integer_root(e: Expr, s: Expr, wanted: int) -> Root:
    """Where ``e``, an expression in the single symbol ``s``, is ``wanted``; found by halving, where it provably never
    falls.

    >>> from idgraph.arith import symbol
    >>> n = symbol("n", 1)
    >>> [integer_root(e, n, 36).value for e in (n * 4, n * n, n + 1, n * 5)]
    [9, 6, 35, None]
    >>> integer_root(n // 4, n, 3)
    Root(value=None, several=True, known=True)
    >>> m = symbol("m", 1, None, 4)
    >>> integer_root(m // 4, m, 3).value
    12
    """
    low, high, step, rest = s.symbol_bounds
    if not isinstance(low, int) or isinstance(high, Expr) or not is_true(e.substitute({s: s + step}) - e >= 0):
        return Root(known=False)
    low += (rest - low) % step
    most = None if high is None else (high - low) // step

    def at(count: int) -> int:
        return int(e.evaluate({s.name: low + step * count}))

    last = 1
    while (most is None or last < most) and last < _MOST and at(last) < wanted:
        last *= 2
    first, last = 0, last if most is None else min(last, most)
    while first < last:  # the first value that reaches it
        middle = (first + last) // 2
        first, last = (middle + 1, last) if at(middle) < wanted else (first, middle)
    if (most is not None and most < 0) or at(first) != wanted:
        return Root()
    more = (most is None or first < most) and at(first + 1) == wanted
    return Root(several=True) if more else Root(low + step * first)
