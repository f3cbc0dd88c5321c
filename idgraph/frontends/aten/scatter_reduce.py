"""Handlers of scatters that join all writers of one element, and of the running logarithm of a sum.

A sum or a mean is a scatter that adds. A product, a maximum or a minimum is a reduction for each element over all that
may write it: every pair of element and writer is a loop point, so that there is a limit to it.
"""

from __future__ import annotations

import math

from idgraph.frontends.aten.pointwise import narrowed, wide_of
from idgraph.frontends.importer import Call, Unmapped, fixed_shape, handles
from idgraph.ir import Scalar, Tensor, is_float, is_integer
from idgraph.ir import ops_index as indexed
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as composite
from idgraph.ir import ops_view as movement
from idgraph.ir.dtypes import item_size

MAX_PAIRS = 2**24
_NAMES = {
    "sum": "sum", "add": "sum", "mean": "mean", "prod": "prod", "multiply": "prod", "amax": "amax", "amin": "amin",
}  # fmt: skip


def _front(src: Tensor, index: Tensor) -> Tensor:
    """The part of src that the index speaks of."""
    pads = [n for a, b in zip(fixed_shape(src), fixed_shape(index), strict=True) for n in (b - a, 0)]
    return movement.pad(src, pads[::-1]) if any(pads) else src


def _identity(x: Tensor, how: str) -> Scalar:
    """The identity of a reduction: joined with any value it gives that value."""
    if how == "prod":
        return 1.0 if is_float(x.dtype) else 1
    if is_float(x.dtype):
        return float("-inf" if how == "amax" else "inf")
    bits = 8 * item_size(x.dtype)
    low, high = (0, 2**bits - 1) if x.dtype == "uint8" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return low if how == "amax" else high


def _reduce_writers(x: Tensor, dim: int, index: Tensor, src: Tensor, how: str) -> Tensor:
    """For each element of x the product, largest or smallest of its writers, or the identity where it has none."""
    shape, extent = fixed_shape(index), fixed_shape(x)[dim]
    pairs = math.prod(shape) * extent
    if pairs > MAX_PAIRS:
        raise Unmapped(f"writers of one element joined by {how}: {pairs} pairs of element and writer to look at")
    places = movement.reshape(x.fusion.iota(extent), [1] * index.ndim + [extent])
    hit = ops.eq(movement.unsqueeze(index, index.ndim), places)
    none = _identity(src, how)
    values = ops.where(hit, movement.unsqueeze(src, src.ndim), none)
    folded = {"prod": composite.prod, "amax": composite.amax, "amin": composite.amin}[how](values, dim)
    order = [*range(dim), index.ndim - 1, *range(dim, index.ndim - 1)]
    found = movement.permute(folded, order) if index.ndim > 1 else folded
    pads = [n for a, b in zip(fixed_shape(x), fixed_shape(found), strict=True) for n in (a - b, 0)]
    return movement.pad(found, pads[::-1], none) if any(pads) else found


def _reduced(x: Tensor, dim: int, index: Tensor, src: Tensor, how: str, include_self: bool) -> Tensor:
    if not is_integer(index.dtype) or x.dtype == "bool" or not x.ndim or x.dtype != src.dtype:
        raise Unmapped(f"a scatter of {src.dtype} into {x.dtype} with {x.ndim} axes at {index.dtype}")
    shape = fixed_shape(x)
    wide, source = wide_of(x), wide_of(_front(src, index))
    ones = x.fusion.full(fixed_shape(index), 1, "int64")
    # Counting checks the index too: out of range is an error, never a write that is lost.
    count = indexed.scatter_add(x.fusion.full(shape, 0, "int64"), dim, index, ones)
    touched = ops.gt(count, 0)
    zero: Scalar = 0.0 if is_float(x.dtype) else 0
    if how in ("sum", "mean"):
        base = wide if include_self else ops.where(touched, zero, wide)
        found = indexed.scatter_add(base, dim, index, source)
        if how == "mean":
            writers = ops.maximum(ops.add(count, 1) if include_self else count, 1)
            found = ops.div(found, ops.cast(writers, wide.dtype)) if is_float(x.dtype) else _floored(found, writers)
        return narrowed(found, x)
    found = _reduce_writers(wide, dim, index, source, how)
    if include_self:
        found = {"prod": ops.mul, "amax": ops.maximum, "amin": ops.minimum}[how](wide, found)
    return narrowed(ops.where(touched, found, wide), x)


def _floored(total: Tensor, count: Tensor) -> Tensor:
    found = ops.floor_divide(ops.cast(total, "int64"), count)
    return ops.cast(found, total.dtype) if total.dtype != "int64" else found


@handles("aten.scatter_reduce.two", "aten.scatter.reduce")
def scatter_reduce(c: Call) -> Tensor:
    """x with src joined to what stands at loaded coordinates; without include_self only writers are joined."""
    x, dim, index, src = c.tensor(0, "self"), c.int(1, "dim"), c.tensor(2, "index"), c.tensor(3, "src")
    how = _how(c, 4)
    return _reduced(x, dim % max(x.ndim, 1), index, src, how, c.flag(-1, "include_self", True))


@handles("aten.scatter.value_reduce")
def scatter_value_reduce(c: Call) -> Tensor:
    """x with a number added to, or multiplied by, what stands at loaded coordinates."""
    x, dim, index = c.tensor(0, "self"), c.int(1, "dim"), c.tensor(2, "index")
    src = c.fusion.full(fixed_shape(index), c.element(x.dtype, 3, "value"), x.dtype)
    return _reduced(x, dim % max(x.ndim, 1), index, src, _how(c, 4), True)


@handles("aten.index_reduce.default")
def index_reduce(c: Call) -> Tensor:
    """x with the slices of source joined to its slices at an index."""
    x, dim, index, src = c.tensor(0, "self"), c.int(1, "dim"), c.tensor(2, "index"), c.tensor(3, "source")
    if not x.ndim or index.ndim != 1:
        raise Unmapped("an index or a tensor without axes")
    at = dim % x.ndim
    row = movement.reshape(index, [-1 if p == at else 1 for p in range(x.ndim)])
    wide = movement.expand(row, fixed_shape(src))
    return _reduced(x, at, wide, src, _how(c, 4), c.flag(-1, "include_self", True))


def _how(c: Call, position: int) -> str:
    told = c.text(position, "reduce", "")
    if told not in _NAMES:
        raise c.error(f"reduce {told!r} is not one of {', '.join(_NAMES)}")
    return _NAMES[told]


@handles("aten.logcumsumexp.default")
def logcumsumexp(c: Call) -> Tensor:
    """log of the running sum of exp(x)."""
    x, dim = c.tensor(0, "self"), c.int(1, "dim")
    if not x.ndim or not is_float(x.dtype):
        raise Unmapped(f"a running logsumexp of {x.dtype} with {x.ndim} axes")
    return composite.logcumsumexp(x, dim % x.ndim)
