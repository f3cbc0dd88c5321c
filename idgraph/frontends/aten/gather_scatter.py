"""Handlers of ATen operations whose coordinates are loaded: gather, index, embedding, scatter, index_put.

Handlers of scatters that join all writers of one element, and of the running logarithm of a sum.

A sum or a mean is a scatter that adds. A product, a maximum or a minimum is a reduction for each element over all that
may write it: every pair of element and writer is a loop point, so that there is a limit to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from idgraph.arith import Expr, as_expr, is_true, minimum, simplify
from idgraph.frontends.aten.pointwise import narrowed, wide_of
from idgraph.frontends.dynamic_shapes import Size
from idgraph.frontends.graph import same_size
from idgraph.frontends.importer import Call, Unmapped, fixed_shape, handles
from idgraph.ir import Scalar, Tensor, is_float, is_integer
from idgraph.ir import ops_index as indexed
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as composite
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr
from idgraph.ir.dtypes import item_size
from idgraph.ir.fusion import apply_op
from idgraph.ir.ops_index import counted_from_front


def _index_of(t: Tensor) -> Tensor:
    if not is_integer(t.dtype):
        raise Unmapped(f"index {t.name} is {t.dtype}: a mask selects a number of elements that depends on values")
    return t


def _indices(c: Call, x: Tensor, position: int) -> tuple[list[int], list[Tensor]]:
    """The indexed axes and their index tensors, from torch's list with holes."""
    items = c.items(position, "indices")
    if len(items) > x.ndim or not all(t is None or isinstance(t, Tensor) for t in items):
        raise c.error(f"argument 'indices' is not a list of at most {x.ndim} index tensors")
    dims = [p for p, t in enumerate(items) if isinstance(t, Tensor)]
    return dims, [_index_of(t) for t in items if isinstance(t, Tensor)]


@handles("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(c: Call) -> Tensor:
    """x[..., i, j, ...]: elements at loaded coordinates; torch moves the axes to the front where they are apart."""
    x = c.tensor(0, "self")
    dims, found = _indices(c, x, 1)
    if not dims:
        return ops.copy(x)
    return _indexed(x, dims, [counted_from_front(t, x.axes[d].extent) for d, t in zip(dims, found, strict=True)])


def _indexed(x: Tensor, dims: Sequence[int], found: Sequence[Tensor]) -> Tensor:
    at = list(dims)
    if at != list(range(at[0], at[0] + len(at))):
        x = movement.permute(x, [*dims, *(p for p in range(x.ndim) if p not in dims)])
        at = list(range(len(dims)))
    return apply_op("index", x, *found, dims=tuple(at))


@handles("aten._unsafe_masked_index.default")
def masked_index(c: Call) -> Tensor:
    """x at clamped coordinates where the mask holds, else the fill value."""
    x, mask = c.tensor(0, "self"), c.tensor(1, "mask")
    dims, found = _indices(c, x, 2)
    value = c.number(3, "fill")
    return ops.where(mask, _indexed(x, dims, _clamped(x, dims, found)), value)


def _clamped(x: Tensor, dims: Sequence[int], found: Sequence[Tensor]) -> list[Tensor]:
    sizes = [x.axes[d].extent for d in dims]
    if not all(is_true(n >= 1) for n in sizes) or not sizes:
        raise Unmapped("it indexes an axis without elements")
    return [ops.minimum(ops.maximum(t, 0), n - 1) for t, n in zip(found, sizes, strict=True)]


@handles("aten._unsafe_masked_index_put_accumulate.default")
def masked_index_put(c: Call) -> Tensor:
    """x with values added at clamped coordinates where the mask holds."""
    x, mask = c.tensor(0, "self"), c.tensor(1, "mask")
    dims, found = _indices(c, x, 2)
    values = c.tensor(3, "values")
    kept = ops.where(mask, values, 0.0 if values.dtype.startswith(("float", "bfloat")) else 0)
    return _put(x, dims, _clamped(x, dims, found), kept, True)


@handles("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(c: Call) -> Tensor:
    """x with values written, or added, at loaded coordinates."""
    x, values, accumulate = c.tensor(0, "self"), c.tensor(2, "values"), c.flag(3, "accumulate")
    mask = _only_mask(c)
    if mask is not None:
        return _put_where(x, *mask, values, accumulate)
    dims, found = _indices(c, x, 1)
    if not dims:
        raise Unmapped("no index tensor")
    return _put(x, dims, found, values, accumulate, c.updates)


@handles("aten.index_add.default", "aten.index_copy.default")
def index_add(c: Call) -> Tensor:
    """x with slices of source added to, or put in the place of, those at an index, which counts from 0."""
    self, dim, index_, source = c.tensor(0, "self"), c.int(1, "dim"), c.tensor(2, "index"), c.tensor(3, "source")
    x, row = _of_one_axis(self), _of_one_axis(_index_of(index_))
    at = dim % x.ndim if -x.ndim <= dim < x.ndim else x.ndim
    if at == x.ndim or row.ndim > 1 or source.dtype != x.dtype:
        raise c.error(f"dim {dim} of {self.ndim} axes, an index of {row.ndim}, {source.dtype} to {x.dtype}")
    adds = c.node.target == "aten.index_add.default"
    shape = [row.shape[0] if p == at else n for p, n in enumerate(x.shape)]
    values = source if source.ndim == x.ndim else movement.reshape(source, shape)
    if not all(map(same_size, values.shape, shape)):
        raise c.error(f"source has the shape {values.shape}, not {tuple(shape)}")
    alpha = c.element(x.dtype, 4, "alpha", 1) if adds else 1
    values = values if alpha == 1 else ops.mul(values, alpha)
    made = indexed.put_at(x, (at,), (row,), values, adds, in_place=c.updates)
    return made if self.ndim else movement.squeeze(made, 0)


def _only_mask(c: Call) -> tuple[int, Tensor] | None:
    """The mask of ``x[:, mask] = v``, one boolean index, and its first axis."""
    given = [(p, t) for p, t in enumerate(c.items(1, "indices")) if t is not None]
    at, mask = given[0] if len(given) == 1 else (0, None)
    return (at, mask) if isinstance(mask, Tensor) and mask.dtype == "bool" else None


def _put_where(x: Tensor, at: int, mask: Tensor, values: Tensor, accumulate: bool) -> Tensor:
    """Values that do not change along the mask, written wherever it holds."""
    behind = x.ndim - at - mask.ndim
    same = behind >= 0 and all(map(same_size, x.shape[at : at + mask.ndim], mask.shape))
    chosen = values.ndim - 1 - behind  # the axis of values that counts what the mask selects
    if not same or chosen > at or (chosen >= 0 and values.shape[chosen] != 1):
        raise Unmapped("a mask selects a number of elements that depends on values")
    row = values
    if chosen >= 0 and mask.ndim != 1:
        ones = [1] * mask.ndim
        row = movement.reshape(values, [*values.shape[:chosen], *ones, *values.shape[chosen + 1 :]])
    wide = movement.unsqueeze(mask, list(range(mask.ndim, mask.ndim + behind))) if behind else mask
    cast = ops.cast(row, x.dtype) if row.dtype != x.dtype else row
    if accumulate:
        return ops.add(x, ops.where(wide, cast, False if x.dtype == "bool" else 0.0 if is_float(x.dtype) else 0))
    return ops.where(wide, cast, x)


def _put(
    x: Tensor, dims: Sequence[int], found: Sequence[Tensor], values: Tensor, accumulate: bool, in_place: bool = False
) -> Tensor:
    at: list[Tensor | None] = [None] * (max(dims) + 1)
    for p, t in zip(dims, found, strict=True):
        at[p] = t
    return indexed.index_put(x, at, values, accumulate, in_place=in_place)


@handles("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(c: Call) -> Tensor:
    """Elements of x's memory, which may hold more than x, at storage_offset + sum of i * stride."""
    view, size, strides = c.tensor(0, "self"), c.ints(1, "size"), c.ints(2, "stride")
    source = c.int_or_none(3, "storage_offset")
    offset = c.operand_offset if source is None else source
    if isinstance(offset, Expr):
        raise c.error(f"the dynamic offset {offset} of its operand is not known here")
    x = c.memory
    if x is None or x.dtype != view.dtype:
        # Not opaque either: torch would be handed the elements of the view, not the memory it lies in.
        raise c.error(
            "the memory of its operand is not known here", "give the program the whole tensor and take the view in it"
        )
    count = math.prod(fixed_shape(x))
    last = offset + sum((n - 1) * s for n, s in zip(size, strides, strict=True))
    if len(size) != len(strides) or min(strides, default=0) < 0 or (0 not in size and not 0 <= offset <= last < count):
        raise c.error(f"sizes {size} with strides {strides} from {offset} reach outside of {count} elements")
    order = c.memory_order
    return _at_places(c, x if order == tuple(range(x.ndim)) else movement.permute(x, order), size, strides, offset)


@handles("aten.diagonal_scatter.default")
def diagonal_scatter(c: Call) -> Tensor:
    """self with the elements of a diagonal replaced by src."""
    x, src, offset = c.tensor(0, "self"), c.tensor(1, "src"), c.int(2, "offset", 0)
    a, b = c.int(3, "dim1", 0), c.int(4, "dim2", 1)
    if not (-x.ndim <= a < x.ndim and -x.ndim <= b < x.ndim) or a % x.ndim == b % x.ndim:
        raise c.error(f"dims {a} and {b} of a tensor with {x.ndim} axes")
    a, b = a % x.ndim, b % x.ndim
    shape = fixed_shape(x)
    front = max(-offset, 0)
    rows = movement.pad(src, [front, shape[a] - front - fixed_shape(src)[-1]], False if x.dtype == "bool" else 0)
    rest = [p for p in range(x.ndim) if p not in (a, b)]
    wide = movement.unsqueeze(rows, rows.ndim)  # [rest..., rows, 1]
    placed = movement.permute(wide, [[*rest, a, b].index(p) for p in range(x.ndim)])
    row = movement.reshape(c.fusion.iota(shape[a], offset), [shape[a] if p == a else 1 for p in range(x.ndim)])
    column = movement.reshape(c.fusion.iota(shape[b]), [shape[b] if p == b else 1 for p in range(x.ndim)])
    return ops.where(ops.eq(row, column), placed if placed.dtype == x.dtype else ops.cast(placed, x.dtype), x)


@handles("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(c: Call) -> Tensor:
    """x[i, i + offset] of two axes, the new axis last."""
    x, offset = c.tensor(0, "self"), c.int(1, "offset", 0)
    a, b = c.int(2, "dim1", 0), c.int(3, "dim2", 1)
    if not (-x.ndim <= a < x.ndim and -x.ndim <= b < x.ndim) or a % x.ndim == b % x.ndim:
        raise c.error(f"dims {a} and {b} of a tensor with {x.ndim} axes")
    a, b = a % x.ndim, b % x.ndim
    length = _diagonal_length(x.axes[a].extent, x.axes[b].extent, offset)
    if length is None:
        raise Unmapped(f"which of {x.axes[a].extent} rows and {x.axes[b].extent} columns is shorter is not known here")
    shape = x.shape
    steps = [attr(simplify(as_expr(math.prod(shape[p + 1 :])))) for p in range(x.ndim)]
    rest = [p for p in range(x.ndim) if p not in (a, b)]
    start = offset * steps[b] if offset >= 0 else -offset * steps[a]
    return _at_places(
        c, x, (*(shape[p] for p in rest), length), (*(steps[p] for p in rest), steps[a] + steps[b]), start
    )


def _diagonal_length(rows: Expr, columns: Expr, offset: int) -> Size | None:
    """The number of elements of a diagonal; None where which side ends first depends on sizes."""
    down, across = (rows, columns - offset) if offset >= 0 else (rows + offset, columns)
    for n, m in ((down, across), (across, down)):
        if is_true(n <= m):
            return attr(simplify(n)) if is_true(n >= 0) else 0 if is_true(n <= 0) else None
    return attr(simplify(minimum(down, across))) if is_true(down >= 0) and is_true(across >= 0) else None


def _at_places(c: Call, x: Tensor, size: Sequence[Size], strides: Sequence[Size], offset: Size) -> Tensor:
    """Elements of x in row-major order, number offset + sum of i * stride of each."""
    if 0 in size:
        return c.fusion.full(size, False if x.dtype == "bool" else 0, x.dtype)
    place: Tensor | None = None
    for p, (n, step) in enumerate(zip(size, strides, strict=True)):
        line = c.fusion.iota(n, 0, step) if isinstance(step, int) else ops.mul(c.fusion.iota(n), attr(step))
        steps = movement.reshape(line, [n if q == p else 1 for q in range(len(size))])
        place = steps if place is None else ops.add(place, steps)
    flat = movement.reshape(x, (attr(simplify(as_expr(math.prod(x.shape)))),))
    if place is None:
        return movement.select(flat, 0, offset)
    return apply_op("index", flat, ops.add(place, attr(offset)), dims=(0,))


@handles("aten.gather.default")
def gather(c: Call) -> Tensor:
    """x[index[i, j], j] for dim 0."""
    x, dim, index_ = c.tensor(0, "self"), c.int(1, "dim"), c.tensor(2, "index")
    c.get(-1, "sparse_grad", False)
    if 0 in index_.shape:  # torch takes an index without elements of any number of axes
        return c.fusion.full(fixed_shape(index_), False if x.dtype == "bool" else 0, x.dtype)
    wide, places = (_of_one_axis(t) for t in (x, _index_of(index_)))
    found = composite.gather(wide, dim, places)
    return found if index_.ndim else movement.squeeze(found, 0)


def _of_one_axis(x: Tensor) -> Tensor:
    """A tensor without axes as one axis of one element, which torch takes it for where a dim is named."""
    return x if x.ndim else movement.unsqueeze(x, 0)


@handles("aten.index_select.default")
def index_select(c: Call) -> Tensor:
    """Rows of an axis in the order of an index."""
    x, dim, index_ = c.tensor(0, "self"), c.int(1, "dim"), _index_of(c.tensor(2, "index"))
    if index_.ndim > 1:
        raise c.error(f"an index of {index_.ndim} axes")
    row = _of_one_axis(index_)
    if not x.ndim:  # a scalar: index 0, any number of times (torch: once)
        return movement.squeeze(composite.index_select(movement.unsqueeze(x, 0), 0, row), 0)
    return composite.index_select(x, dim, row)


@handles("aten.embedding.default")
def embedding(c: Call) -> Tensor:
    """Rows of a table; padding_idx matters to gradients only."""
    weight, index_ = c.tensor(0, "weight"), c.tensor(1, "indices")
    c.get(2, "padding_idx", -1)
    c.get(3, "scale_grad_by_freq", False)
    c.get(4, "sparse", False)
    return composite.embedding(_index_of(index_), weight)


@handles("aten.scatter.value", "aten.scatter.src")
def scatter(c: Call) -> Tensor:
    """x with a value or src written at loaded coordinates."""
    self, dim, index_ = c.tensor(0, "self"), c.int(1, "dim"), _of_one_axis(_index_of(c.tensor(2, "index")))
    x = _of_one_axis(self)
    if c.node.target == "aten.scatter.src":
        made = indexed.scatter(x, dim, index_, _of_one_axis(c.tensor(3, "src")))
    else:
        made = indexed.scatter(x, dim, index_, c.element(x.dtype, 3, "value"))
    return made if self.ndim else movement.squeeze(made, 0)


@handles("aten.scatter_add.default")
def scatter_add(c: Call) -> Tensor:
    """x with src added at loaded coordinates."""
    x, dim, index_, src = c.tensor(0, "self"), c.int(1, "dim"), c.tensor(2, "index"), c.tensor(3, "src")
    made = indexed.scatter_add(_of_one_axis(x), dim, _of_one_axis(_index_of(index_)), _of_one_axis(src))
    return made if x.ndim else movement.squeeze(made, 0)


MAX_PAIRS = 2**24
_NAMES = {
    "sum": "sum", "add": "sum", "mean": "mean", "prod": "prod", "multiply": "prod", "amax": "amax", "amin": "amin",
}  # fmt: skip


def _front(src: Tensor, index: Tensor) -> Tensor:
    """The part of src that the index speaks of."""
    if src.shape == index.shape:
        return src
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
    wide, source = wide_of(x), wide_of(_front(src, index))
    ones = x.fusion.full(index.shape, 1, "int64")
    # Counting checks the index too: out of range is an error, never a write that is lost.
    count = indexed.scatter_add(x.fusion.full(x.shape, 0, "int64"), dim, index, ones)
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
    wide = movement.expand(row, src.shape)
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
