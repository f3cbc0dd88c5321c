"""One rule table: the coordinates on one side of a domain expression from those on the other.

Written once over any arithmetic with + - * // % and ^ (ints, index expressions). Splits, merges, rolls and swizzles are
exact both ways; a resize is ``source + left``; a stride is ``source = start + step * out``.
"""

from __future__ import annotations

from typing import assert_never

from idgraph.arith import Expr, as_expr
from idgraph.ir.domains import DomainExpr, IterDomain, Merge, Resize, Roll, Split, Stride, Swizzle, is_one


def forward(e: DomainExpr, values: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Coordinates of ``e.outputs`` from those of ``e.inputs``.

    A stride gives (source - start) // step, which is the coordinate only where the division is exact.
    """
    match e:
        case Split():
            n = e.inner.extent
            (x,) = values
            return (x, as_expr(0)) if n == 0 else (x // n, x % n)
        case Merge():
            outer, inner = values
            return (outer * e.inner.extent + inner,)
        case Resize():
            return (values[0] + e.left,)
        case Stride():
            return ((values[0] - e.start) // e.step,)
        case Roll():
            n = e.source.extent
            return (values[0] if n == 0 else (values[0] + e.shift) % n,)
        case Swizzle():
            x, y = values
            return (x, x ^ y if e.kind == "xor" else (x + y) % e.y.extent)
        case _:
            assert_never(e)


def backward(e: DomainExpr, values: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Coordinates of ``e.inputs`` from those of ``e.outputs``."""
    match e:
        case Split():
            outer, inner = values
            return (outer * e.inner.extent + inner,)
        case Merge():
            n = e.inner.extent
            (x,) = values
            return (as_expr(0), x) if n == 0 else (x // n, x % n)
        case Resize():
            return (values[0] - e.left,)
        case Stride():
            return (e.start + e.step * values[0],)
        case Roll():
            n = e.source.extent
            return (values[0] if n == 0 else (values[0] - e.shift) % n,)
        case Swizzle():
            x, y = values
            return (x, x ^ y if e.kind == "xor" else (y - x) % e.y.extent)
        case _:
            assert_never(e)


def transparent(e: DomainExpr) -> tuple[tuple[IterDomain, IterDomain], ...]:
    """Pairs of axes with one coordinate on both sides of ``e``: merges with, and splits into, an axis of one element."""
    match e:
        case Merge():
            pairs = ((e.outer, e.out, e.inner), (e.inner, e.out, e.outer))
        case Split():
            pairs = ((e.source, e.outer, e.inner), (e.source, e.inner, e.outer))
        case Resize():
            return ((e.source, e.out),) if e.left == 0 and e.right == 0 else ()
        case _:
            return ()
    # The extents must agree too: an axis of one element split by 8 is not its padded part.
    return tuple((a, b) for a, b, other in pairs if is_one(other.extent) and a.extent == b.extent)
