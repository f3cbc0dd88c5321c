"""One rule table: the coordinates on one side of a domain expression from those on the other.

Written once over any arithmetic with + - * // % and ^ (ints, index expressions). Splits, merges, rolls and swizzles are
exact both ways; a resize is ``source + left``; a stride is ``source = start + step * out``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from idgraph.arith import Expr, as_expr, is_true, simplify
from idgraph.ir.domains import DomainExpr, IterDomain, Merge, Resize, Roll, Split, Stride, Swizzle
from idgraph.ir.pointwise import same_extent

_ZERO, _ONE = as_expr(0), as_expr(1)


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


def is_bijective_at(e: DomainExpr, at: Mapping[IterDomain, Expr]) -> bool:
    """True where, at the coordinates ``at``, each side of ``e`` provably follows from the other."""
    ins, outs = tuple(at[d] for d in e.inputs), tuple(at[d] for d in e.outputs)
    pairs = (*zip(forward(e, ins), outs, strict=True), *zip(backward(e, outs), ins, strict=True))
    return all(simplify(a - b) == _ZERO for a, b in pairs)


def transparent(e: DomainExpr) -> tuple[tuple[IterDomain, IterDomain, IterDomain | None], ...]:
    """(a, b, beside): axes with one coordinate on both sides of ``e``, beside an axis of one element (None: alone).

    They are one only while ``beside`` stays at 0, see `resized_axes`.
    """
    match e:
        case Merge():
            pairs = ((e.outer, e.out, e.inner), (e.inner, e.out, e.outer))
        case Split():
            pairs = ((e.source, e.outer, e.inner), (e.source, e.inner, e.outer))
        case Resize():
            return ((e.source, e.out, None),) if e.left == 0 and e.right == 0 else ()
        case _:
            return ()
    # The extents must agree too: an axis of one element split by 8 is not its padded part.
    return tuple((a, b, other) for a, b, other in pairs if other.extent == _ONE and a.extent == b.extent)


def is_product(a: Expr, b: Expr, c: Expr) -> bool:
    """True where a * b = c by proof."""
    if a.is_const and b.is_const and c.is_const:
        return int(a) * int(b) == int(c)
    return same_extent(a * b, c)


def resized_axes(exprs: Sequence[DomainExpr]) -> set[IterDomain]:
    """Axes that loops made by ``exprs`` (in order) may run past: split with a remainder, grown, or made of such."""
    found: set[IterDomain] = set()
    for e in reversed(exprs):
        match e:
            case Split():
                loose = not is_product(e.outer.extent, e.inner.extent, e.source.extent)
            case Resize():
                loose = not all(int(x) <= 0 if x.is_const else is_true(x <= 0) for x in (e.left, e.right))
            case _:
                loose = False
        if loose or any(d in found for d in e.outputs):
            found.update(e.inputs)
    return found
