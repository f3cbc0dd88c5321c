"""Handlers of pointwise operations that are formulas of others: inverse and hyperbolic functions, shifts, signs.

Handlers of numbers that Python computes of sizes; a value that is not an integer is a float64 scalar tensor.

Handlers of operations that look for an index or a size: argmax, buckets, norms, distances, masked scatter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from idgraph.arith import TRUE, Expr
from idgraph.frontends.aten.pointwise import aligned, common_dtype, narrowed, promoted, wide_of
from idgraph.frontends.importer import Call, Parts, Unmapped, handles
from idgraph.ir import Scalar, Tensor, is_float, is_integer
from idgraph.ir import ops_index as indexed
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as composite
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr
from idgraph.ir.dtypes import item_size
from idgraph.ir.fusion import apply_op

Operand = Tensor | Scalar


def _floating(c: Call) -> Tensor:
    """The operand in a type wide enough for a formula: integers as float32, two-byte floats too."""
    x = c.tensor(0, "self")
    return wide_of(x) if is_float(x.dtype) else ops.cast(x, "float32")


def _back(c: Call, y: Tensor) -> Tensor:
    x = c.tensor(0, "self")
    return narrowed(y, x) if is_float(x.dtype) else y


@handles("aten.round.decimals")
def round_decimals(c: Call) -> Tensor:
    """To the nearest multiple of 10 ** -decimals, of two the even one."""
    x, decimals = c.tensor(0, "self"), c.int(-1, "decimals")
    if not is_float(x.dtype):
        raise Unmapped(f"decimals of {x.dtype}")
    if not decimals:
        return ops.round(x)
    wide, ten = wide_of(x), 10.0 ** abs(decimals)
    if decimals < 0:
        return narrowed(ops.mul(ops.round(ops.div(wide, ten)), ten), x)
    return narrowed(ops.div(ops.round(ops.mul(wide, ten)), ten), x)


def _asin(x: Tensor) -> Tensor:
    return ops.atan2(x, _cathetus(x))


def _acos(x: Tensor) -> Tensor:
    return ops.atan2(_cathetus(x), x)


def _cathetus(x: Tensor) -> Tensor:
    """sqrt(1 - x * x), accurate near 1; NaN outside of [-1, 1]."""
    return ops.sqrt(ops.mul(ops.sub(1.0, x), ops.add(x, 1.0)))


def _odd(size: Tensor, x: Tensor) -> Tensor:
    """``size`` with the sign of ``x``, also of its zeros."""
    return ops.where(ops.eq(x, 0.0), x, ops.where(ops.lt(x, 0.0), ops.neg(size), size))


def _sinh(x: Tensor) -> Tensor:
    # expm1 keeps small values; the other half of the range would overflow before it is halved
    e = ops.expm1(ops.abs(x))
    small = ops.mul(ops.add(e, ops.div(e, ops.add(e, 1.0))), 0.5)
    half = ops.exp(ops.mul(ops.abs(x), 0.5))
    large = ops.mul(ops.mul(half, 0.5), half)
    size = ops.where(ops.gt(ops.abs(x), 20.0), large, small)
    return _odd(size, x)


def _cosh(x: Tensor) -> Tensor:
    half = ops.exp(ops.mul(ops.abs(x), 0.5))
    return ops.add(ops.mul(ops.mul(half, 0.5), half), ops.mul(ops.exp(ops.neg(ops.abs(x))), 0.5))


def _asinh(x: Tensor) -> Tensor:
    a = ops.abs(x)
    small = ops.log1p(ops.add(a, ops.div(ops.square(a), ops.add(ops.sqrt(ops.add(ops.square(a), 1.0)), 1.0))))
    size = ops.where(ops.gt(a, 1e8), ops.add(ops.log(a), 0.6931471805599453), small)
    return _odd(size, x)


def _acosh(x: Tensor) -> Tensor:
    t = ops.sub(x, 1.0)
    near = ops.log1p(ops.add(t, ops.sqrt(ops.mul(t, ops.add(t, 2.0)))))
    found = ops.where(ops.gt(x, 1e8), ops.add(ops.log(x), 0.6931471805599453), near)
    return ops.where(ops.lt(x, 1.0), math.nan, found)  # far below, the root is as large as t


def _atanh(x: Tensor) -> Tensor:
    return ops.mul(ops.sub(ops.log1p(x), ops.log1p(ops.neg(x))), 0.5)


_FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "asin": _asin, "acos": _acos, "sinh": _sinh, "cosh": _cosh, "asinh": _asinh, "acosh": _acosh, "atanh": _atanh,
    "atan": lambda x: ops.atan2(x, 1.0),
}  # fmt: skip


def _formula(f: Callable[[Tensor], Tensor]) -> Callable[[Call], Tensor]:
    return lambda c: _back(c, f(_floating(c)))


for _name, _f in _FORMULAS.items():
    handles(f"aten.{_name}.default")(_formula(_f))


@handles("aten.square.default")
def square(c: Call) -> Tensor:
    """x * x."""
    return ops.square(c.tensor(0, "self"))


def _negative(x: Tensor) -> Tensor:
    """True where the sign bit is set; -0.0 has it."""
    if not is_float(x.dtype):
        return ops.lt(x, 0)
    minus_zero = ops.logical_and(ops.eq(x, 0.0), ops.lt(ops.reciprocal(wide_of(x)), 0.0))
    return ops.logical_or(ops.lt(x, 0.0), minus_zero)


@handles("aten.signbit.default")
def signbit(c: Call) -> Tensor:
    """True where negative, -0.0 too."""
    return _negative(c.tensor(0, "self"))


@handles("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(c: Call) -> Tensor:
    """The size of self with the sign of other."""
    x, sign = c.tensor(0, "self"), c.operand(1, "other")
    b, dtype = aligned(x, sign, floats=True)[1], common_dtype([x, sign], floats=True)
    size = ops.abs(x if x.dtype == dtype else ops.cast(x, dtype))
    if not isinstance(b, Tensor):
        return ops.neg(size) if str(float(b)).startswith("-") else ops.copy(size)
    return ops.where(_negative(b), ops.neg(size), size)


@handles("aten.fmax.default", "aten.fmin.default")
def fmax(c: Call) -> Tensor:
    """The larger or smaller; a number beats NaN."""
    x, y = c.tensor(0, "self"), c.tensor(1, "other")
    a, b = aligned(x, y)
    f = ops.maximum if c.node.target == "aten.fmax.default" else ops.minimum
    both = f(a, b)
    if not is_float(promoted([x, y])) or not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return both
    left = ops.where(ops.isnan(b), a, both) if is_float(b.dtype) else both
    return ops.where(ops.isnan(a), b, left) if is_float(a.dtype) else left


def length(x: Tensor, y: Tensor) -> Tensor:
    """sqrt(x**2 + y**2), without overflow on the way."""
    a, b = ops.abs(x), ops.abs(y)
    top, low = ops.maximum(a, b), ops.minimum(a, b)
    ratio = ops.where(ops.eq(top, 0.0), 0.0, ops.div(low, top))
    size = ops.mul(top, ops.sqrt(ops.add(ops.square(ratio), 1.0)))
    return ops.where(ops.logical_or(ops.isinf(a), ops.isinf(b)), float("inf"), size)


@handles("aten.hypot.default")
def hypot(c: Call) -> Tensor:
    """sqrt(self**2 + other**2), without overflow on the way."""
    wide = "float64" if c.meta.dtype == "float64" else "float32"
    pair = [v for v in aligned(c.tensor(0, "self"), c.tensor(1, "other"), floats=True) if isinstance(v, Tensor)]
    found = length(*(v if v.dtype == wide else ops.cast(v, wide) for v in pair))
    return found if found.dtype == c.meta.dtype else ops.cast(found, c.meta.dtype)


@handles(
    "aten.bitwise_left_shift.Tensor", "aten.bitwise_left_shift.Tensor_Scalar", "aten.__lshift__.Scalar",
    "aten.__lshift__.Tensor", "aten.bitwise_right_shift.Tensor", "aten.bitwise_right_shift.Tensor_Scalar",
    "aten.__rshift__.Scalar", "aten.__rshift__.Tensor",
    "aten.bitwise_left_shift.Scalar_Tensor", "aten.bitwise_right_shift.Scalar_Tensor",
)  # fmt: skip
def shift(c: Call) -> Tensor:
    """x * 2**n, or x // 2**n; a shift by less than none or by all bits or more leaves zero, or the sign."""
    first, by = c.operand(0, "self"), c.operand(1, "other")
    dtype = promoted([first, by])
    if not is_integer(dtype) or isinstance(first, Expr):
        raise Unmapped(f"a shift of {dtype}")
    x = first if isinstance(first, Tensor) else c.fusion.full((), int(first), dtype)
    left = "l" in c.node.target.removeprefix("aten.").removeprefix("bitwise_").strip("_")[:1]
    if isinstance(by, int) and dtype == x.dtype and 0 <= by < 8 * item_size(dtype) - (dtype != "uint8") and not left:
        return ops.floor_divide(x, 2**by)
    count = aligned(first, by)[1]  # without axes it wraps in the type of the tensor
    n: Tensor = ops.cast(count, "int64") if isinstance(count, Tensor) else c.fusion.full((), int(by), "int64")
    good = ops.logical_and(ops.ge(n, 0), ops.lt(n, 8 * item_size(dtype)))
    value, n = (t if t.dtype == dtype else ops.cast(t, dtype) for t in (x, ops.minimum(ops.maximum(n, 0), 63)))
    if left:
        return ops.where(good, ops.shift_left(value, n), 0)
    beyond = 0 if dtype == "uint8" else ops.shift_right(value, 63)
    return ops.where(good, ops.shift_right(value, n), beyond)


@handles("aten._trilinear.default")
def trilinear(c: Call) -> Tensor:
    """The product of three tensors, each with new axes, summed over some; of two-byte floats rounded once."""
    parts = [
        wide_of(movement.unsqueeze(t, dims) if dims else t)
        for t, dims in ((c.tensor(k, f"i{k + 1}"), [int(d) for d in c.ints(3 + k, f"expand{k + 1}")]) for k in range(3))
    ]
    dims = c.ints(6, "sumdim")
    c.get(7, "unroll_dim", 1)
    whole = ops.mul(ops.mul(parts[0], parts[1]), parts[2])
    found = composite.sum(whole, dims) if dims else whole
    return narrowed(found, c.tensor(0, "i1"))


@handles("aten.fake_quantize_per_tensor_affine_cachemask.default")
def fake_quantize(c: Call) -> Parts:
    """(x quantised and dequantised, the mask of elements that were not clamped)."""
    x, scale, zero = c.tensor(0, "self"), float(c.number(1, "scale")), c.int(2, "zero_point")
    low, high = c.int(3, "quant_min"), c.int(4, "quant_max")
    if x.dtype != "float32":
        raise Unmapped(f"steps of {x.dtype}")
    step = ops.round(ops.add(ops.mul(x, float(np.float32(1.0) / np.float32(scale))), zero))
    kept = ops.logical_and(ops.ge(step, low), ops.le(step, high))
    return ops.mul(ops.sub(ops.minimum(ops.maximum(step, low), high), zero), scale), kept


@handles("aten.rrelu_with_noise_functional.default")
def rrelu(c: Call) -> Parts:
    """(x with the mean slope of the range where negative, the noise unchanged); training draws slopes and is opaque."""
    x, noise = c.tensor(0, "self"), c.tensor(1, "noise")
    low, high = float(c.number(2, "lower", 0.125)), float(c.number(3, "upper", 1 / 3))
    if c.flag(4, "training"):
        raise Unmapped("its values are random numbers of torch's generator")
    return ops.where(ops.le(x, 0.0), ops.mul(x, (low + high) / 2), x), ops.copy(noise)


Number = Tensor | Scalar | Expr


def _tensor(c: Call, value: Number) -> Tensor:
    """A number as a tensor without axes."""
    if isinstance(value, Tensor):
        return value if value.dtype == "float64" else ops.cast(value, "float64")
    if isinstance(value, Expr):
        return ops.add(c.fusion.full((), 0.0, "float64"), value)
    return c.fusion.full((), float(value), "float64")


def _one(f: Callable[[Tensor], Tensor]) -> Callable[[Call], Tensor]:
    return lambda c: f(_tensor(c, c.operand(0, "self")))


def _two(f: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Call], Tensor]:
    return lambda c: f(_tensor(c, c.operand(0, "self")), _tensor(c, c.operand(1, "other")))


for _target in ("torch.sym_float", "_operator.pos"):
    handles(_target)(_one(ops.copy))
for _name, _f in {"sqrt": ops.sqrt, "exp": ops.exp, "log2": ops.log2, "sin": ops.sin, "cos": ops.cos}.items():
    handles(f"torch._sym_{_name}", f"math.{_name}")(_one(_f))
handles("math.log")(_one(ops.log))
handles("_operator.neg")(_one(ops.neg))
for _name, _f in {"add": ops.add, "sub": ops.sub, "mul": ops.mul, "truediv": ops.div, "pow": ops.pow}.items():
    handles(f"_operator.{_name}")(_two(_f))


@handles("aten._assert_scalar.default")
def assert_scalar(c: Call) -> None:
    """A condition on sizes that their declared ranges imply; any other is checked when the program runs."""
    condition = c.get(0, "self")
    c.get(1, "assert_msg", None)
    holds = condition is True or (isinstance(condition, Expr) and condition == TRUE)
    if not holds:
        raise Unmapped("a check of values when the program runs")


@handles("aten._local_scalar_dense.default", "aten.item.default")
def item(c: Call) -> Tensor:
    """The one element of a tensor as a number: a float stays a tensor without axes, an integer is needed at once."""
    x = c.tensor(0, "self")
    if not x.dtype.startswith(("float", "bfloat")) or x.ndim:
        raise Unmapped("a number that depends on values")
    return _tensor(c, x)


def _ordered(x: Tensor) -> Tensor:
    """bool as a number, for a largest or a smallest."""
    return ops.cast(x, "int8") if x.dtype == "bool" else x


def place_of(x: Tensor, dim: int, largest: bool, keep: bool) -> Tensor:
    """The first position along ``dim`` of the largest or smallest element; NaN is both."""
    if x.axes[dim].extent == 1:
        kept = [1 if p == dim else attr(d.extent) for p, d in enumerate(x.axes) if keep or p != dim]
        return x.fusion.full(kept, 0, "int64")
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
