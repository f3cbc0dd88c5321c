"""Memory layout: from coordinates of the allocation axes to an address in elements."""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.arith import Expr, as_expr, simplify
from idgraph.errors import IndexingError, arguments
from idgraph.ir import Tensor


@arguments(IndexingError)
def strides(t: Tensor) -> tuple[Expr, ...]:
    """Elements between neighbours along each allocation axis: as given, else contiguous (inner extents multiplied).

    A free stride (a symbol) counts from the axis inside it: the axes outside it follow from it.

    >>> import idgraph as ig
    >>> [str(s) for s in strides(ig.Fusion("f").input("t", shape=(4, 8)))]
    ['8', '1']
    """
    made: list[Expr] = []
    inner = as_expr(1)
    for d, given in zip(reversed(t.allocation), reversed(t.domain.strides), strict=True):
        stride = given if given is not None else inner
        made.insert(0, stride)
        inner = simplify(stride * d.extent)
    return tuple(made)


@arguments(IndexingError)
def address_of(t: Tensor, allocation: Sequence[Expr]) -> Expr:
    """Elements from the start of t's buffer, its offset included."""
    if len(allocation) != len(t.allocation):
        raise IndexingError(
            f"{t.name} has {len(t.allocation)} allocation axes, {len(allocation)} coordinates are given"
        )
    address = as_expr(t.offset)
    for x, stride in zip(allocation, strides(t), strict=True):
        address = address + x * stride
    return simplify(address)


@arguments(IndexingError)
def buffer_size(t: Tensor) -> Expr:
    """Elements that the buffer must hold: one past the largest address, 0 for a tensor without elements."""
    if any(d.extent == 0 for d in t.allocation):
        return as_expr(0)
    size = as_expr(t.offset) + 1
    for d, stride in zip(t.allocation, strides(t), strict=True):
        size = size + (d.extent - 1) * stride
    return simplify(size)
