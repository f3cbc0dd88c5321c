"""Handlers of ATen operations that move, drop, repeat or join axes, or create a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import cast

from idgraph.arith import Expr, as_expr, is_true, simplify
from idgraph.frontends.dynamic_shapes import Size
from idgraph.frontends.graph import same_size
from idgraph.frontends.importer import Call, Parts, Unmapped, fixed_extent, handles
from idgraph.ir import Scalar, Tensor, is_float
from idgraph.ir import ops_index as indexed
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as composite
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr
from idgraph.ir.dtypes import check_dtype, scalar_dtype
from idgraph.ir.fusion import apply_op

END = 2**63 - 1


def _normalize_dim(c: Call, dim: int, rank: int) -> int:
    """A dim counted from either end, as a position."""
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise c.error(f"dim {dim} of a tensor with {rank} axes")
    return dim % max(rank, 1)


@handles("_operator.getitem")
def getitem(c: Call) -> Tensor:
    """One result of an operation with several."""
    parts, index = cast("Parts", c.items(0, "parts")), c.int(1, "index")
    if not -len(parts) <= index < len(parts):
        raise c.error(f"result {index} of {len(parts)}")
    part = parts[index]
    if isinstance(part, Tensor):
        return part
    if not callable(part):
        raise c.error(f"result {index} does not exist")
    return part()


@handles(
    "aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten._reshape_copy.default",
    "aten.view_copy.default", "aten._reshape_alias_copy.default",
)  # fmt: skip
def view(c: Call) -> Tensor:
    """The same elements in row-major order under another shape."""
    return movement.reshape(c.tensor(0, "self"), c.sizes(1, "size"))


@handles("aten.permute.default", "aten.permute_copy.default")
def permute(c: Call) -> Tensor:
    """Axes in another order."""
    return movement.permute(c.tensor(0, "self"), c.ints(1, "dims"))


@handles(
    "aten.t.default", "aten.transpose.int", "prims.transpose.default", "aten.t_copy.default", "aten.transpose_copy.int"
)
def transpose(c: Call) -> Tensor:
    """Two axes exchanged; aten.t of one axis is a copy."""
    x = c.tensor(0, "self")
    if c.node.target in ("aten.t.default", "aten.t_copy.default"):
        return movement.transpose(x, 0, 1) if x.ndim == 2 else ops.copy(x)
    if c.node.target == "prims.transpose.default":
        return movement.permute(x, c.ints(1, "permutation"))
    return movement.transpose(x, c.int(1, "dim0"), c.int(2, "dim1"))


@handles("aten.unsqueeze.default", "aten.unsqueeze_copy.default")
def unsqueeze(c: Call) -> Tensor:
    """A new axis of extent 1."""
    return movement.unsqueeze(c.tensor(0, "self"), c.int(1, "dim"))


@handles(
    "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims",
    "aten.squeeze_copy.default", "aten.squeeze_copy.dim", "aten.squeeze_copy.dims",
)  # fmt: skip
def squeeze(c: Call) -> Tensor:
    """Axes of extent 1 dropped; others named stay as they are."""
    x = c.tensor(0, "self")
    if c.node.target.endswith(".default"):
        return movement.squeeze(x)
    dims = [_normalize_dim(c, d, x.ndim) for d in c.ints(1, "dim")]
    return movement.squeeze(x, dims if x.ndim else ())


@handles("aten.expand.default", "aten.expand_copy.default")
def expand(c: Call) -> Tensor:
    """Axes of extent 1 repeated."""
    c.get(-1, "implicit", None)
    return movement.expand(c.tensor(0, "self"), c.sizes(1, "size"))


@handles("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(c: Call) -> Tensor:
    """x[start:end:step] along one axis."""
    start, end = c.size_or_none(2, "start"), c.size_or_none(3, "end")
    x, dim, step = c.tensor(0, "self"), c.int(1, "dim", 0), c.int(4, "step", 1)
    return movement.slice(x, dim, start, None if end == END else end, step)


@handles("aten.slice_scatter.default")
def slice_scatter(c: Call) -> Tensor:
    """self with a slice replaced by src."""
    x, src, dim = c.tensor(0, "self"), c.tensor(1, "src"), c.int(2, "dim", 0)
    start, end, step = c.size_or_none(3, "start"), c.size_or_none(4, "end"), c.int(5, "step", 1)
    if c.updates and isinstance(start, int) and start >= 0 and src.shape[dim] != 0:
        return _written_at(x, _cast_like(src, x), dim % x.ndim, start, step)
    return movement.slice_scatter(x, _cast_like(src, x), dim, start, None if end == END else end, step)


def _written_at(x: Tensor, src: Tensor, dim: int, start: int, step: int) -> Tensor:
    """x with every ``step``-th element of an axis from ``start`` on replaced, in its own memory."""
    at = x.fusion.iota(src.shape[dim], start, step)
    return indexed.put_at(x, (dim,), (at,), src, accumulate=False, in_place=True)


def _cast_like(src: Tensor, x: Tensor) -> Tensor:
    return src if src.dtype == x.dtype else ops.cast(src, x.dtype)


@handles("aten.select_scatter.default")
def select_scatter(c: Call) -> Tensor:
    """self with one index of an axis replaced by src."""
    x = c.tensor(0, "self")
    dim = _normalize_dim(c, c.int(2, "dim"), x.ndim)
    extent, index = x.axes[dim].extent, c.size(3, "index")
    index = attr(extent + index) if isinstance(index, int) and index < 0 else index
    src = movement.unsqueeze(_cast_like(c.tensor(1, "src"), x), dim)
    if c.updates and isinstance(index, int) and index >= 0:
        return _written_at(x, src, dim, index, 1)
    return movement.slice_scatter(x, src, dim, index, index + 1)


@handles("aten.select.int", "aten.select_copy.int")
def select(c: Call) -> Tensor:
    """One index of an axis."""
    return movement.select(c.tensor(0, "self"), c.int(1, "dim"), c.size(2, "index"))


@handles("aten.cat.default")
def cat(c: Call) -> Tensor:
    """Tensors joined along an axis; of an empty tensor of one axis torch takes the type only."""
    tensors, dim = c.tensors(0, "tensors"), c.int(1, "dim", 0)
    kept = [t for t in tensors if t.shape != (0,)] or list(tensors[:1])
    found = movement.cat(kept, dim)
    return found if found.dtype == c.meta.dtype else ops.cast(found, c.meta.dtype)


@handles("aten.stack.default")
def stack(c: Call) -> Tensor:
    """Tensors joined along a new axis."""
    return movement.stack(c.tensors(0, "tensors"), c.int(1, "dim", 0))


@handles("aten.constant_pad_nd.default")
def constant_pad(c: Call) -> Tensor:
    """Elements added in front and behind, last axis first."""
    x = c.tensor(0, "self")
    return movement.pad(x, c.sizes(1, "pad"), c.element(x.dtype, 2, "value", 0))


@handles("aten.flip.default", "prims.rev.default")
def flip(c: Call) -> Tensor:
    """The elements of axes in reverse order; a tensor without axes has one, as torch counts."""
    x, dims = c.tensor(0, "self"), c.ints(1, "dims")
    return movement.flip(x, dims) if x.ndim else movement.reshape(x, ())


@handles("aten.roll.default")
def roll(c: Call) -> Tensor:
    """The elements of axes rotated; without dims those of the flattened tensor."""
    dims = c.ints(2, "dims", ())
    return movement.roll(c.tensor(0, "self"), c.ints(1, "shifts"), dims or None)


@handles("aten.repeat.default")
def repeat(c: Call) -> Tensor:
    """Axes tiled."""
    return movement.repeat(c.tensor(0, "self"), c.ints(1, "repeats"))


def _split_slices(x: Tensor, dim: int, sizes: Sequence[Size]) -> Parts:
    """Slices one after another, each built when it is asked for."""
    starts: list[Size] = [0]
    for n in sizes:
        starts.append(attr(simplify(as_expr(starts[-1]) + n)))
    return tuple(partial(movement.slice, x, dim, a, b) for a, b in pairwise(starts))


@handles(
    "aten.split.Tensor", "aten.split_with_sizes.default", "aten.split_copy.Tensor",
    "aten.split_with_sizes_copy.default",
    "aten.unsafe_split.Tensor", "aten.unsafe_split_with_sizes.default",
)  # fmt: skip
def split(c: Call) -> Parts:
    """Pieces of equal size (the last may be shorter), or of given sizes."""
    x = c.tensor(0, "self")
    dim = _normalize_dim(c, c.int(2, "dim", 0), x.ndim)
    if "with_sizes" in c.node.target:
        sizes = list(c.sizes(1, "split_sizes"))
        total = as_expr(0)
        for n in sizes:
            total = total + n
        if not is_true(total.eq(x.axes[dim].extent)) or not all(is_true(as_expr(n) >= 0) for n in sizes):
            raise c.error(f"sizes {tuple(map(str, sizes))} do not add up to {x.axes[dim].extent}")
        return _split_slices(x, dim, sizes)
    extent, size = fixed_extent(x, dim) if x.ndim else 0, c.int(1, "split_size")
    if size < 1:
        raise c.error(f"pieces of size {size}")
    return _split_slices(x, dim, [min(size, extent - a) for a in range(0, extent, size)] or [0])


@handles("aten.unfold.default", "aten.unfold_copy.default")
def unfold(c: Call) -> Tensor:
    """Windows of ``size`` along an axis, ``step`` apart, as a new last axis.

    Windows side by side split the axis. Others are read at places that a program counts: ``window * step + place``.
    """
    x, size, step = c.tensor(0, "self"), c.int(2, "size"), c.int(3, "step")
    dim = _normalize_dim(c, c.int(1, "dimension"), x.ndim)
    extent = x.axes[dim].extent if x.ndim else as_expr(0)
    if size < 1 or step < 1 or is_true(extent < size):
        raise Unmapped(f"windows of {size}, {step} apart, of {extent} elements")
    count = attr(simplify((extent - size) // step + 1))
    shape = tuple(x.shape)
    if size == step:
        whole = same_size(attr(simplify(as_expr(count) * size)), attr(extent))
        flat = x if whole else movement.slice(x, dim, 0, count * size)
        split = movement.reshape(flat, (*shape[:dim], count, size, *shape[dim + 1 :]))
    else:
        start, place = x.fusion.iota(count, 0, step), x.fusion.iota(size)
        split = apply_op("index", x, ops.add(movement.unsqueeze(start, 1), place), dims=(dim,))
    return movement.permute(split, (*range(dim + 1), *range(dim + 2, x.ndim + 1), dim + 1))


@handles("aten.unbind.int", "aten.unbind_copy.int")
def unbind(c: Call) -> Parts:
    """Each index of an axis."""
    x = c.tensor(0, "self")
    dim = _normalize_dim(c, c.int(1, "dim", 0), x.ndim)
    return tuple(partial(movement.select, x, dim, k) for k in range(fixed_extent(x, dim)))


@handles("aten.copy.default")
def copy(c: Call) -> Tensor:
    """src in self's shape and type."""
    x, src = c.tensor(0, "self"), c.tensor(1, "src")
    wide = movement.expand(src, x.shape) if src.shape != x.shape else src
    return ops.cast(wide, x.dtype) if wide.dtype != x.dtype else ops.copy(wide)


def _filled(c: Call, shape: Sequence[Size], value: Scalar | Expr, dtype: str) -> Tensor:
    if isinstance(value, Expr):  # a size that is known when the program runs
        return ops.cast(ops.add(c.fusion.full(shape, 0, "int64"), value), dtype)
    kept = float(value) if is_float(check_dtype(dtype)) else value
    return c.fusion.full(shape, kept, dtype)


@handles("aten.full.default", "aten.scalar_tensor.default", "prims.scalar_tensor.default")
def full(c: Call) -> Tensor:
    """One value everywhere."""
    plain = c.node.target == "aten.full.default"
    given = c.get(1 if plain else 0, "fill_value" if plain else "s")
    value = given if isinstance(given, Expr) else c.number(1 if plain else 0, "fill_value" if plain else "s")
    if plain:
        return _filled(
            c, c.sizes(0, "size"), value, c.dtype("int64" if isinstance(value, Expr) else scalar_dtype(value))
        )
    return _filled(c, (), value, c.dtype("float32"))


@handles("aten.full_like.default", "aten.zeros_like.default", "aten.ones_like.default", "aten.empty_like.default")
def full_like(c: Call) -> Tensor:
    """One value in another tensor's shape; what torch leaves unset is 0 here."""
    x = c.tensor(0, "self")
    name = c.node.target
    value = c.number(1, "fill_value") if "full" in name else int("ones" in name)
    return _filled(c, x.shape, value, c.dtype(x.dtype))


@handles("aten.zeros.default", "aten.ones.default", "aten.empty.memory_format", "aten.empty_permuted.default")
def zeros(c: Call) -> Tensor:
    """Zeros or ones; what torch leaves unset is 0 here."""
    if "permuted" in c.node.target:
        c.ints(1, "physical_layout")
    return _filled(c, c.sizes(0, "size"), int("ones" in c.node.target), c.dtype("float32"))


@handles(
    "aten.new_zeros.default", "aten.new_ones.default", "aten.new_full.default", "aten.new_empty.default",
    "aten.new_empty_strided.default",
)  # fmt: skip
def new_full(c: Call) -> Tensor:
    """One value in a given shape and another tensor's type."""
    x, shape, name = c.tensor(0, "self"), c.sizes(1, "size"), c.node.target
    if "strided" in name:
        c.get(2, "stride")
    value = c.number(2, "fill_value") if "new_full" in name else int("ones" in name)
    return _filled(c, shape, value, c.dtype(x.dtype))


@handles("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def arange(c: Call) -> Tensor:
    """start, start + step, ... below end."""
    plain = c.node.target == "aten.arange.default"
    end = c.get(0 if plain else 1, "end")
    if isinstance(end, Expr) or (not plain and isinstance(c.get(0, "start"), Expr)):
        return _counted_to(c, 0 if plain else c.size(0, "start"), c.size(0 if plain else 1, "end"))
    start = 0 if plain else c.number(0, "start")
    end = c.number(0 if plain else 1, "end")
    step = c.number(2, "step", 1) if c.node.target.endswith("start_step") else 1
    return _arange(c, start, end, step)


def _counted_to(c: Call, start: Size, end: Size) -> Tensor:
    """start, start + 1, ... below end, one of them a size that is known only when the program runs."""
    step = c.int(2, "step", 1) if c.node.target.endswith("start_step") else 1
    dtype = c.dtype("int64")
    count = simplify(as_expr(end) - start)
    if step != 1 or not is_true(count >= 0):
        raise Unmapped("its length is not provably that of a range")
    numbers = c.fusion.iota(attr(count), 0 if isinstance(start, Expr) else start, 1, dtype)
    return ops.add(numbers, start) if isinstance(start, Expr) else numbers


def _arange(c: Call, start: Scalar, end: Scalar, step: Scalar) -> Tensor:
    given = [v for v in (start, end, step) if isinstance(v, float)]
    dtype = check_dtype(c.dtype("float32" if given else "int64"))
    if any(not v.is_integer() for v in given):
        # torch counts in float64 and rounds each number once
        if not float(step) or (float(end) - float(start)) * float(step) < 0 or not is_float(dtype):
            raise Unmapped("its start, end or step is not a whole number")
        count = math.ceil((float(end) - float(start)) / float(step))
        numbers = ops.mul(c.fusion.iota(count, dtype="float64"), float(step))
        return ops.cast(ops.add(numbers, float(start)), dtype)
    a, b, s = int(start), int(end), int(step)
    if s == 0 or (b - a) * s < 0:
        raise c.error(f"no numbers from {a} to {b} in steps of {s}")
    return c.fusion.iota(-((a - b) // s), a, s, dtype)


@handles("prims.iota.default")
def iota(c: Call) -> Tensor:
    """length numbers from start in steps."""
    length, start, step = c.size(0, "length"), c.int(-1, "start", 0), c.int(-1, "step", 1)
    return c.fusion.iota(length, start, step, c.dtype("int64"))


@handles("aten.cumsum.default")
def cumsum(c: Call) -> Tensor:
    """Running sum along an axis."""
    x = c.tensor(0, "self")
    dtype = c.dtype(x.dtype if is_float(x.dtype) else "int64")
    wide = ops.cast(x, dtype) if x.dtype != dtype else x
    return _running("cumsum", wide, c.int(1, "dim"))


def _running(op: str, x: Tensor, dim: int) -> Tensor:
    """A scan in a type wide enough for every step; two-byte floats are rounded once."""
    if not x.ndim:
        return ops.copy(x)
    f = {"cumsum": composite.cumsum, "cumprod": composite.cumprod}[op]
    if x.dtype == "bool":
        raise Unmapped("a scan in bool")
    found = f(x, dim)  # integers in 64 bits: cut to fewer, the last bits are those of a scan in fewer
    return found if found.dtype == x.dtype else ops.cast(found, x.dtype)


@handles("aten.cumprod.default")
def cumprod(c: Call) -> Tensor:
    """Running product along an axis."""
    x = c.tensor(0, "self")
    dtype = c.dtype(x.dtype if is_float(x.dtype) else "int64")
    wide = ops.cast(x, dtype) if x.dtype != dtype else x
    return _running("cumprod", wide, c.int(1, "dim"))


@handles("aten.cummax.default", "aten.cummin.default")
def cummax(c: Call) -> Parts:
    """(running maximum or minimum, the last index at which it was reached)."""
    x, dim = c.tensor(0, "self"), c.int(1, "dim")
    if not x.ndim or x.dtype == "bool":
        raise Unmapped(f"a running maximum of {x.dtype} with {x.ndim} axes")
    best = (composite.cummax if c.node.target == "aten.cummax.default" else composite.cummin)(x, dim)

    def places() -> Tensor:
        at = dim % x.ndim
        hit = ops.eq(x, best)
        if is_float(x.dtype):
            hit = ops.logical_or(hit, ops.isnan(x))
        n = attr(x.axes[at].extent)
        numbers = movement.reshape(c.fusion.iota(n), [n if p == at else 1 for p in range(x.ndim)])
        return composite.cummax(ops.where(hit, numbers, 0), at)

    return best, places
