"""Handlers of operations that look for an index or a size: argmax, buckets, norms, distances, masked scatter."""

from __future__ import annotations

import math
from functools import partial

from idgraph.frontends.aten.pointwise import narrowed, wide_of
from idgraph.frontends.aten.reduce import reduced_dims
from idgraph.frontends.importer import Call, Parts, Unmapped, handles
from idgraph.ir import Tensor, is_float, is_integer
from idgraph.ir import ops_index as indexed
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as composite
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr
from idgraph.ir.dtypes import check_dtype
from idgraph.ir.fusion import apply_op


def _ordered(x: Tensor) -> Tensor:
    """bool as a number, for a largest or a smallest."""
    return ops.cast(x, "int8") if x.dtype == "bool" else x


def place_of(x: Tensor, dim: int, largest: bool, keep: bool) -> Tensor:
    """The first position along ``dim`` of the largest or smallest element; NaN is both."""
    x = _ordered(x)
    best = (composite.amax if largest else composite.amin)(x, dim, True)
    hit = ops.eq(x, best)
    if is_float(x.dtype):
        hit = ops.logical_or(hit, ops.isnan(x))
    n = attr(x.axes[dim].extent)
    numbers = movement.reshape(x.fusion.iota(n), [n if p == dim else 1 for p in range(x.ndim)])
    return composite.amin(ops.where(hit, numbers, x.axes[dim].extent), dim, keep)


@handles("aten.argmax.default", "aten.argmin.default")
def argmax(c: Call) -> Tensor:
    """The position of the largest or smallest, the first of equal ones; without dim, of the flattened tensor."""
    x, dim, keep = c.tensor(0, "self"), c.int_or_none(1, "dim"), c.flag(2, "keepdim")
    largest = c.node.target == "aten.argmax.default"
    if not x.ndim:
        return c.fusion.full((), 0, "int64")
    if dim is None:
        found = place_of(movement.reshape(x, -1), 0, largest, False)
        return movement.reshape(found, [1] * x.ndim) if keep else found
    return place_of(x, dim % x.ndim, largest, keep)


@handles("aten.max.dim", "aten.min.dim")
def max_dim(c: Call) -> Parts:
    """(largest or smallest along an axis, its first position)."""
    x, dim, keep = c.tensor(0, "self"), c.int(1, "dim"), c.flag(2, "keepdim")
    largest = c.node.target == "aten.max.dim"
    if not x.ndim:
        return ops.copy(x), partial(c.fusion.full, (), 0, "int64")
    f = composite.amax if largest else composite.amin
    best = f(_ordered(x), dim, keep)
    values = ops.cast(best, "bool") if x.dtype == "bool" else best
    return values, partial(place_of, x, dim % x.ndim, largest, keep)


@handles("aten.bucketize.Tensor", "aten.searchsorted.Tensor")
def buckets(c: Call) -> Tensor:
    """The number of sorted boundaries that lie before each value (``right``: or are equal to it)."""
    if c.node.target == "aten.bucketize.Tensor":
        x, edges = c.tensor(0, "self"), c.tensor(1, "boundaries")
        right = c.flag(-1, "right")
    else:
        edges, x = c.tensor(0, "sorted_sequence"), c.tensor(1, "self")
        side = c.get(-1, "side", None)
        right = c.flag(-1, "right") or side == "right"
    narrow = c.flag(-1, "out_int32")
    if edges.ndim > 1 and edges.ndim != x.ndim:
        raise c.error(f"{edges.ndim} axes of boundaries for {x.ndim} axes of values")
    wide = movement.unsqueeze(x, x.ndim)
    along = movement.unsqueeze(edges, edges.ndim - 1) if edges.ndim > 1 else edges
    before = ops.le(along, wide) if right else ops.lt(along, wide)
    if is_float(x.dtype):
        before = ops.logical_or(before, ops.isnan(wide))  # torch sorts NaN behind everything
    count = composite.sum(ops.cast(before, "int64"), -1)
    return ops.cast(count, "int32") if narrow else count


@handles("aten.masked_scatter.default")
def masked_scatter(c: Call) -> Tensor:
    """self where the mask does not hold; there the elements of source in their order."""
    x, mask, source = c.tensor(0, "self"), c.tensor(1, "mask"), c.tensor(2, "source")
    shape = c.meta.shape  # of both, broadcast
    x, wide = (movement.expand(t, *shape) if t.shape != shape else t for t in (x, mask))
    if not x.ndim or 0 in source.shape:
        raise Unmapped("a masked scatter of no axis or from no element")
    flat = movement.reshape(ops.cast(wide, "int64"), -1)
    count = composite.cumsum(flat, 0)
    # Where the mask does not hold the count may be zero; no element is used there.
    place = ops.maximum(ops.sub(count, flat), 0)
    pool = movement.reshape(source, -1)
    last = ops.minimum(place, pool.axes[0].extent - 1)
    taken = movement.reshape(apply_op("index", pool, ops.where(ops.ne(flat, 0), place, last), dims=(0,)), *x.shape)
    return ops.where(wide, taken, x)


@handles("aten.linalg_vector_norm.default")
def vector_norm(c: Call) -> Tensor:
    """(sum |x|**ord) ** (1 / ord) over axes; inf, -inf and 0 as torch means them."""
    x, order = c.tensor(0, "self"), float(c.number(1, "ord", 2))
    dims, keep = reduced_dims(c, x, 2), c.flag(3, "keepdim")
    dtype = check_dtype(c.dtype(x.dtype))
    if not is_float(dtype):
        raise Unmapped(f"a norm of {dtype}")
    like = ops.cast(x, dtype) if x.dtype != dtype else x
    size = ops.abs(wide_of(like))
    if not dims:
        return narrowed(ops.cast(ops.ne(size, 0.0), size.dtype) if order == 0.0 else size, like)
    if math.isinf(order):
        found = (composite.amax if order > 0 else composite.amin)(size, dims, keep)
    elif order == 0.0:
        found = composite.sum(ops.cast(ops.ne(size, 0.0), size.dtype), dims, keep)
    elif order == 1.0:
        found = composite.sum(size, dims, keep)
    elif order == 2.0:
        found = ops.sqrt(composite.sum(ops.square(size), dims, keep))
    else:
        found = ops.pow(composite.sum(ops.pow(size, order), dims, keep), 1.0 / order)
    return narrowed(found, like)


@handles("aten._cdist_forward.default")
def cdist(c: Call) -> Tensor:
    """The p-norm of every row of x1 less every row of x2."""
    a, b, p = c.tensor(0, "x1"), c.tensor(1, "x2"), float(c.number(2, "p"))
    c.get(3, "compute_mode", None)  # how torch computes it; the values are the same
    size = ops.abs(ops.sub(movement.unsqueeze(a, a.ndim - 1), movement.unsqueeze(b, b.ndim - 2)))
    if math.isinf(p):
        return composite.amax(size, -1)
    if p == 0.0:
        return composite.sum(ops.cast(ops.ne(size, 0.0), size.dtype), -1)
    if p == 1.0:
        return composite.sum(size, -1)
    if p == 2.0:
        return ops.sqrt(composite.sum(ops.square(size), -1))
    return ops.pow(composite.sum(ops.pow(size, p), -1), 1.0 / p)


@handles("aten.put.default")
def put(c: Call) -> Tensor:
    """The flattened tensor with values written, or added, at positions."""
    x, index, source = c.tensor(0, "self"), c.tensor(1, "index"), c.tensor(2, "source")
    accumulate = c.flag(3, "accumulate")
    if not is_integer(index.dtype) or not x.ndim:
        raise Unmapped("positions that are not integers, or a tensor without axes")
    flat = movement.reshape(x, -1)
    place = movement.reshape(index, -1)
    wrapped = ops.where(ops.lt(place, 0), ops.add(place, flat.axes[0].extent), place)
    done = indexed.index_put(flat, [wrapped], movement.reshape(source, -1), accumulate)
    return movement.reshape(done, *x.shape)
