"""Handlers of ATen reductions, norms and matrix products. Two-byte floats are summed as float32, as in torch."""

from __future__ import annotations

from idgraph.arith import Expr, as_expr, is_true
from idgraph.frontends.aten.pointwise import narrowed, wide_of
from idgraph.frontends.dynamic_shapes import Size
from idgraph.frontends.graph import TensorMeta, same_size
from idgraph.frontends.importer import Call, Parts, Unmapped, handles
from idgraph.ir import Scalar, Tensor, is_float
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as composite
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr
from idgraph.ir.dtypes import check_dtype


def reduced_dims(c: Call, x: Tensor, position: int, name: str = "dim") -> tuple[int, ...]:
    """The axes to reduce, from the front; none named means all."""
    value = c.get(position, name, None)
    named = () if value is None else c.ints(position, name)
    rank = max(x.ndim, 1)
    if any(not -rank <= d < rank for d in named):
        raise c.error(f"dims {named} of a tensor with {x.ndim} axes")
    found = tuple(d % rank for d in named) if named else tuple(range(x.ndim))
    if len(set(found)) != len(found):
        raise c.error(f"dims {named} name an axis twice")
    return found if x.ndim else ()


def _cast_to_meta(c: Call, part: int, made: Tensor) -> Tensor:
    """``made`` in the type that the graph says of this result: a mean of bfloat16 is float32 on a GPU only."""
    meta = c.node.meta[part] if isinstance(c.node.meta, tuple) else c.node.meta
    wanted = check_dtype(meta.dtype) if isinstance(meta, TensorMeta) else made.dtype
    return ops.cast(made, wanted) if wanted != made.dtype and is_float(wanted) else made


def _element_count_of(x: Tensor, dims: tuple[int, ...]) -> Size:
    total: Size = 1
    for d in dims:
        total = attr(x.axes[d].extent * total)
    return total


@handles("aten.sum.default", "aten.sum.dim_IntList")
def sum_(c: Call) -> Tensor:
    """Sum over axes."""
    x = c.tensor(0, "self")
    whole = c.node.target == "aten.sum.default"
    dims = tuple(range(x.ndim)) if whole else reduced_dims(c, x, 1)
    keep = False if whole else c.flag(2, "keepdim")
    dtype = c.dtype(x.dtype if is_float(x.dtype) else "int64")
    wide = ops.cast(x, dtype) if x.dtype != dtype else x
    return narrowed(composite.sum(wide, dims, keep), wide) if dims else ops.copy(wide)


@handles("aten.mean.default", "aten.mean.dim")
def mean(c: Call) -> Tensor:
    """Mean over axes."""
    x = c.tensor(0, "self")
    whole = c.node.target == "aten.mean.default"
    dims = tuple(range(x.ndim)) if whole else reduced_dims(c, x, 1)
    keep = False if whole else c.flag(2, "keepdim")
    dtype = c.dtype(x.dtype)
    like = ops.cast(x, dtype) if x.dtype != dtype else x
    return narrowed(_mean(wide_of(like), dims, keep), like)


def _mean(x: Tensor, dims: tuple[int, ...], keep: bool) -> Tensor:
    return composite.mean(x, dims, keep) if dims else ops.copy(x)


@handles("aten.amax.default", "aten.amin.default")
def amax(c: Call) -> Tensor:
    """Largest or smallest over axes."""
    x = c.tensor(0, "self")
    dims, keep = reduced_dims(c, x, 1), c.flag(2, "keepdim")
    f = composite.amax if c.node.target == "aten.amax.default" else composite.amin
    return f(x, dims, keep) if dims else ops.copy(x)


@handles("aten.max.default", "aten.min.default")
def max_(c: Call) -> Tensor:
    """Largest or smallest of all."""
    x = c.tensor(0, "self")
    f = composite.amax if c.node.target == "aten.max.default" else composite.amin
    return f(x) if x.ndim else ops.copy(x)


@handles(
    "aten.any.default", "aten.any.dim", "aten.any.dims", "aten.all.default", "aten.all.dim", "aten.all.dims"
)  # fmt: skip
def any_(c: Call) -> Tensor:
    """Whether some, or all, elements over axes are not zero."""
    x = c.tensor(0, "self")
    whole = c.node.target.endswith(".default")
    dims = tuple(range(x.ndim)) if whole else reduced_dims(c, x, 1)
    keep = False if whole else c.flag(2, "keepdim")
    f = composite.any if c.node.target.startswith("aten.any") else composite.all
    found = f(x, dims, keep) if dims else ops.ne(x, False if x.dtype == "bool" else 0)
    return ops.cast(found, "uint8") if x.dtype == "uint8" else found  # torch gives bytes for bytes


@handles("aten.prod.default", "aten.prod.dim_int")
def prod(c: Call) -> Tensor:
    """Product over one axis or all."""
    x = c.tensor(0, "self")
    dtype = check_dtype(c.dtype(x.dtype if is_float(x.dtype) else "int64"))
    wide = wide_of(x if x.dtype == dtype else ops.cast(x, dtype))
    dims = tuple(range(x.ndim)) if c.node.target == "aten.prod.default" else reduced_dims(c, x, 1)
    keep = c.node.target != "aten.prod.default" and c.flag(2, "keepdim")
    found = composite.prod(wide, dims, keep) if dims else ops.copy(wide)
    return found if found.dtype == dtype else ops.cast(found, dtype)


def _moments(x: Tensor, dims: tuple[int, ...], correction: Scalar) -> tuple[Tensor, Tensor]:
    """(variance, mean) with reduced axes kept."""
    mu = _mean(x, dims, True)
    squares = ops.square(ops.sub(x, mu))
    total = composite.sum(squares, dims, True) if dims else squares
    count = _element_count_of(x, dims)
    if isinstance(count, Expr):
        if float(correction) != int(correction) or not is_true(count > int(correction)):
            raise Unmapped(f"a variance of {count} elements, not provably more than its correction")
        return ops.div(total, count - int(correction)), mu
    freedom = max(float(count) - float(correction), 0.0)
    return ops.div(total, freedom), mu


def _dropped(x: Tensor, dims: tuple[int, ...], keep: bool) -> Tensor:
    return x if keep or not dims else movement.squeeze(x, dims)


@handles("aten.var_mean.correction", "aten.var.correction")
def var_mean(c: Call) -> Tensor | Parts:
    """Variance with a correction, and mean."""
    x = c.tensor(0, "self")
    dims, correction = reduced_dims(c, x, 1), c.get(-1, "correction", 1)
    keep = c.flag(-1, "keepdim")
    if correction is None:
        correction = 1
    if isinstance(correction, bool) or not isinstance(correction, (int, float)):
        raise c.wrong("correction", correction, "a number")
    variance, mu = (narrowed(_dropped(t, dims, keep), x) for t in _moments(wide_of(x), dims, correction))
    return variance if c.node.target.startswith("aten.var.") else (variance, mu)


@handles("aten._softmax.default", "aten._log_softmax.default", "aten.softmax.int", "aten.log_softmax.int")
def softmax(c: Call) -> Tensor:
    """exp(x - max) / sum, or its logarithm."""
    x, dim = c.tensor(0, "self"), c.int(1, "dim")
    wide = wide_of(x)
    if c.node.target.endswith(".int"):
        to = c.dtype(x.dtype, 2)
    else:
        to = "float32" if c.flag(2, "half_to_float") else x.dtype
    if not is_float(x.dtype):
        raise Unmapped(f"a softmax of {x.dtype}")
    f = composite.log_softmax if "log_softmax" in c.node.target else composite.softmax
    if not x.ndim:
        result = movement.squeeze(f(movement.unsqueeze(wide, 0), dim), 0)
    else:  # an empty tensor has no maximum and needs no division
        result = ops.copy(wide) if 0 in x.shape else f(wide, dim)
    return ops.cast(result, to) if result.dtype != to else result


@handles("aten.native_layer_norm.default")
def layer_norm(c: Call) -> Parts:
    """((x - mean) * rstd * weight + bias, mean, rstd) over the last axes."""
    x, shape = c.tensor(0, "input"), c.sizes(1, "normalized_shape")
    weight, bias, eps = c.tensor_or_none(2, "weight"), c.tensor_or_none(3, "bias"), c.number(4, "eps")
    if len(shape) > x.ndim or not all(map(same_size, x.shape[x.ndim - len(shape) :], shape)):
        raise c.error(f"normalized_shape {shape} is not how shape {x.shape} ends")
    wide = wide_of(x)
    variance, mu = _moments(wide, tuple(range(x.ndim - len(shape), x.ndim)), 0)
    rstd = ops.rsqrt(ops.add(variance, eps))
    scaled = ops.mul(ops.sub(wide, mu), rstd)
    if weight is not None:
        scaled = ops.mul(scaled, wide_of(weight))
    if bias is not None:
        scaled = ops.add(scaled, wide_of(bias))
    return narrowed(scaled, x), _cast_to_meta(c, 1, mu), _cast_to_meta(c, 2, rstd)


@handles("aten.native_group_norm.default")
def group_norm(c: Call) -> Parts:
    """((x - mean) * rstd * weight + bias, mean, rstd) over groups of channels and all positions."""
    x, weight, bias = c.tensor(0, "input"), c.tensor_or_none(1, "weight"), c.tensor_or_none(2, "bias")
    batch, channels, places = c.size(3, "N"), c.int(4, "C"), c.size(5, "HxW")
    groups, eps = c.int(6, "group"), c.number(7, "eps")
    if groups < 1 or channels % groups or not all(map(same_size, x.shape[:2], (batch, channels))):
        raise c.error(f"{groups} groups of {channels} channels of shape {x.shape}")
    if not all(is_true(as_expr(n) >= 1) for n in (batch, channels, places)):
        raise Unmapped("a group normalisation of no elements")
    grouped = movement.reshape(wide_of(x), (batch, groups, attr(as_expr(places) * (channels // groups))))
    variance, mu = _moments(grouped, (2,), 0)
    rstd = ops.rsqrt(ops.add(variance, eps))
    out = movement.reshape(ops.mul(ops.sub(grouped, mu), rstd), x.shape)
    wide = [1, channels, *(1 for _ in range(x.ndim - 2))]
    out = ops.mul(out, movement.reshape(wide_of(weight), wide)) if weight is not None else out
    out = ops.add(out, movement.reshape(wide_of(bias), wide)) if bias is not None else out
    flat_mu, flat_rstd = movement.squeeze(mu, 2), movement.squeeze(rstd, 2)
    return narrowed(out, x), _cast_to_meta(c, 1, flat_mu), _cast_to_meta(c, 2, flat_rstd)


@handles("aten._native_batch_norm_legit_functional.default")
def batch_norm(c: Call) -> Parts:
    """(normalised, mean, rstd, running mean, running variance) over all axes but the second, in training."""
    x, weight, bias = c.tensor(0, "input"), c.tensor_or_none(1, "weight"), c.tensor_or_none(2, "bias")
    old_mean, old_var = c.tensor(3, "running_mean"), c.tensor(4, "running_var")
    training, momentum, eps = c.flag(5, "training"), c.number(6, "momentum"), c.number(7, "eps")
    if not training or x.dtype != "float32":
        raise Unmapped("batch normalisation other than in float32 training")
    dims = tuple(d for d in range(x.ndim) if d != 1)
    count = _element_count_of(x, dims)
    if not isinstance(count, int) or count < 2:
        raise Unmapped("batch normalisation of one element for each channel")
    variance, mu = _moments(x, dims, 0)
    rstd = ops.rsqrt(ops.add(variance, eps))
    out = ops.mul(ops.sub(x, mu), rstd)
    wide = [1 if d != 1 else -1 for d in range(x.ndim)]
    out = ops.mul(out, movement.reshape(weight, wide)) if weight is not None else out
    out = ops.add(out, movement.reshape(bias, wide)) if bias is not None else out
    flat_mu, flat_var = movement.squeeze(mu, dims), movement.squeeze(variance, dims)
    keep = 1.0 - float(momentum)
    new_mean = ops.add(ops.mul(flat_mu, momentum), ops.mul(old_mean, keep))
    new_var = ops.add(ops.mul(flat_var, float(momentum) * count / (count - 1)), ops.mul(old_var, keep))
    return out, flat_mu, movement.squeeze(rstd, dims), new_mean, new_var


@handles("aten.mm.default", "aten.bmm.default", "aten.matmul.default")
def matmul(c: Call) -> Tensor:
    """A matrix product, of batches too."""
    a, b = c.tensor(0, "self"), c.tensor(1, "mat2")
    if min(a.ndim, b.ndim) < 2 or a.dtype == "bool":
        raise Unmapped(f"a product of {a.dtype} with {a.ndim} and {b.ndim} axes")
    return composite.matmul(a, b)


_FACTORS = {
    "aten.baddbmm.default": ("batch1", "batch2"), "aten.addbmm.default": ("batch1", "batch2"),
    "aten.addmv.default": ("mat", "vec"),
}  # fmt: skip


@handles("aten.addmm.default", "aten.baddbmm.default", "aten.addbmm.default", "aten.addmv.default")
def addmm(c: Call) -> Tensor:
    """beta * self + alpha * (mat1 @ mat2), rounded once."""
    first, second = _FACTORS.get(c.node.target, ("mat1", "mat2"))
    x, a, b = c.tensor(0, "self"), c.tensor(1, first), c.tensor(2, second)
    beta, alpha = c.element(x.dtype, -1, "beta", 1), c.element(x.dtype, -1, "alpha", 1)
    if a.dtype == "bool":
        raise Unmapped("a product of bool")
    product = composite.matmul(wide_of(a), wide_of(b))
    if c.node.target == "aten.addbmm.default":
        product = composite.sum(product, 0)
    product = product if alpha == 1 else ops.mul(product, alpha)
    if beta != 0:
        wide = wide_of(x)
        product = ops.add(wide if beta == 1 else ops.mul(wide, beta), product)
    return narrowed(product, x)


@handles("aten.mv.default", "aten.dot.default")
def mv(c: Call) -> Tensor:
    """A matrix or a vector times a vector."""
    a, b = c.tensor(0, "self"), c.tensor(1, "vec" if c.node.target == "aten.mv.default" else "tensor")
    if a.dtype == "bool":
        raise Unmapped("a product of bool")
    rows = a if a.ndim == 2 else movement.unsqueeze(a, 0)
    column = composite.matmul(rows, movement.unsqueeze(b, 1))
    return movement.squeeze(column, 1 if a.ndim == 2 else (0, 1))
