"""Reductions, gathers and compositions of primitives (softmax, cumsum), with torch's arguments.

Cross entropy with torch's arguments, forward and backward: row reductions and one gathered element a row.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Literal, get_args

from idgraph.arith import Expr, as_expr
from idgraph.errors import OperationError, arguments, one_of, short_repr, user_line
from idgraph.ir.argument_resolution import attr, is_int, product
from idgraph.ir.axis_read import Attr
from idgraph.ir.dtypes import DTypeLike, check_dtype, is_float, is_integer, is_short_float
from idgraph.ir.fusion import Tensor, apply_op
from idgraph.ir.op_builders import same_extent
from idgraph.ir.ops_pointwise import add, cast, checked, div, eq, exp, log, mul, ne, sub, where
from idgraph.ir.ops_ragged import padded_for, ragged_dim, row_lengths
from idgraph.ir.ops_view import Dims, at_user_line, flatten, reshape, resolve_dim, resolve_dims, squeeze, unsqueeze
from idgraph.ir.transaction import transactional_build


def _reduce(op: str, x: Tensor, dim: Dims, keepdim: bool, name: str | None, dtype: DTypeLike | None = None) -> Tensor:
    # torch: an empty list of axes means every axis; for any and all it means no axis.
    everything = isinstance(dim, (tuple, list)) and not dim and op not in ("any", "all")
    dims = resolve_dims(checked(x, op), None if everything else dim, op)
    attrs: dict[str, Attr] = {"dims": dims}
    if keepdim:
        attrs["keepdim"] = True
    if dtype is not None:
        attrs["dtype"] = check_dtype(dtype)
    return apply_op(op, padded_for(op, x, dims), name=name, **attrs)


@arguments(OperationError, keep=transactional_build)
def sum(
    x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
    """Sum over ``dim`` (None: all axes). Integers and bool add up as int64.

    >>> import idgraph as ig
    >>> t = ig.sum(ig.Fusion("f").input("x", shape=(4, 8)), dim=1)
    >>> t.shape, [d.kind for d in t.logical]
    ((4,), ['iteration', 'reduction'])
    """
    return _reduce("sum", x, dim, keepdim, name, dtype)


@arguments(OperationError, keep=transactional_build)
def prod(x: Tensor, dim: Dims = None, keepdim: bool = False, *, name: str | None = None) -> Tensor:
    """Product over ``dim``.

    >>> import idgraph as ig
    >>> ig.prod(ig.Fusion("f").input("x", shape=(4, 8)), 0).shape
    (8,)
    """
    return _reduce("prod", x, dim, keepdim, name)


@arguments(OperationError, keep=transactional_build)
def amax(x: Tensor, dim: Dims = None, keepdim: bool = False, *, name: str | None = None) -> Tensor:
    """Maximum over ``dim`` (NaN wins); an empty axis is an error.

    >>> import idgraph as ig
    >>> ig.amax(ig.Fusion("f").input("x", shape=(4, 8)), 1, keepdim=True).shape
    (4, 1)
    """
    return _reduce("amax", x, dim, keepdim, name)


@arguments(OperationError, keep=transactional_build)
def amin(x: Tensor, dim: Dims = None, keepdim: bool = False, *, name: str | None = None) -> Tensor:
    """Minimum over ``dim`` (NaN wins); an empty axis is an error.

    >>> import idgraph as ig
    >>> ig.amin(ig.Fusion("f").input("x", shape=(4, 8))).shape
    ()
    """
    return _reduce("amin", x, dim, keepdim, name)


@arguments(OperationError, keep=transactional_build)
def any(x: Tensor, dim: Dims = None, keepdim: bool = False, *, name: str | None = None) -> Tensor:
    """True where some element over ``dim`` is not zero.

    >>> import idgraph as ig
    >>> ig.any(ig.Fusion("f").input("x", shape=(4, 8)), 1).dtype
    'bool'
    """
    return _reduce("any", x, dim, keepdim, name)


@arguments(OperationError, keep=transactional_build)
def all(x: Tensor, dim: Dims = None, keepdim: bool = False, *, name: str | None = None) -> Tensor:
    """True where every element over ``dim`` is not zero.

    >>> import idgraph as ig
    >>> ig.all(ig.Fusion("f").input("x", shape=(4, 8)), 1).dtype
    'bool'
    """
    return _reduce("all", x, dim, keepdim, name)


@arguments(OperationError, keep=transactional_build)
def mean(x: Tensor, dim: Dims = None, keepdim: bool = False, *, name: str | None = None) -> Tensor:
    """Sum divided by the number of elements; floating point only. Halves are added and divided as float32.

    >>> import idgraph as ig
    >>> [e.op for e in ig.mean(ig.Fusion("f").input("x", shape=(4, 8)), 1).fusion.exprs]
    ['sum', 'div']
    """
    if not is_float(checked(x, "mean").dtype):
        raise OperationError(f"mean: {x.name} is {x.dtype}", where=user_line(), hint="cast it to float32 first")
    count = as_expr(1)
    is_half = is_short_float(x.dtype)
    total = sum(x, dim, keepdim, dtype="float32") if is_half else sum(x, dim, keepdim)
    dims = resolve_dims(x, dim if dim != () and dim != [] else None, "mean")
    rows = ragged_dim(x)
    for d in dims:
        count = count * (1 if d == rows else x.axes[d].extent)
    by: Tensor | float | Expr = float(int(count)) if count.is_const else count
    if rows is not None and rows in dims:
        by = _row_counts(x, rows, dims, keepdim, by)
    return cast(div(total, by), x.dtype, name=name) if is_half else div(total, by, name=name)


def _row_counts(x: Tensor, rows: int, dims: tuple[int, ...], keepdim: bool, others: float | Expr) -> Tensor:
    """How many elements each mean over the ragged axis is of, in its shape; ``others``: those along the other axes."""
    of = x.axes[rows].rows
    assert of is not None
    kept = [d for p, d in enumerate(x.axes) if keepdim or p not in dims]
    behind = len(kept) - 1 - kept.index(of.component)
    counts = cast(row_lengths(x), "float64" if x.dtype == "float64" else "float32")
    counts = counts if others == 1.0 else mul(counts, others)
    return unsqueeze(counts, list(range(1, 1 + behind))) if behind else counts


@arguments(OperationError, keep=transactional_build)
def softmax(x: Tensor, dim: int, *, name: str | None = None) -> Tensor:
    """exp(x - max) / sum(exp(x - max)) along ``dim``.

    >>> import idgraph as ig
    >>> [e.op for e in ig.softmax(ig.Fusion("f").input("x", shape=(4, 8)), 1).fusion.exprs]
    ['amax', 'sub', 'exp', 'sum', 'div']
    """
    at = resolve_dim(checked(x, "softmax"), dim, "softmax")
    e = exp(sub(x, amax(x, at, keepdim=True)))
    return div(e, sum(e, at, keepdim=True), name=name)


@arguments(OperationError, keep=transactional_build)
def log_softmax(x: Tensor, dim: int, *, name: str | None = None) -> Tensor:
    """x - max - log(sum(exp(x - max))) along ``dim``.

    >>> import idgraph as ig
    >>> [e.op for e in ig.log_softmax(ig.Fusion("f").input("x", shape=(4, 8)), 1).fusion.exprs]
    ['amax', 'sub', 'exp', 'sum', 'log', 'sub']
    """
    at = resolve_dim(checked(x, "log_softmax"), dim, "log_softmax")
    moved = sub(x, amax(x, at, keepdim=True))
    return sub(moved, log(sum(exp(moved), at, keepdim=True)), name=name)


@arguments(OperationError, keep=transactional_build)
def matmul(a: Tensor, b: Tensor, *, name: str | None = None) -> Tensor:
    """[..., M, K] x [..., K, N] -> [..., M, N]; leading axes broadcast. A 1-d operand is a row or a column.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> ig.matmul(f.input("a", shape=(2, 3)), f.input("b", shape=(3, 4))).shape
    (2, 4)
    """
    with at_user_line("matmul"):
        return product(checked(a, "matmul"), checked(b, "matmul"), name)


@arguments(OperationError, keep=transactional_build)
def gather(x: Tensor, dim: int, index: Tensor, *, name: str | None = None) -> Tensor:
    """out[i, j] = x[index[i, j], j] for dim 0; the shape is the index's, which may be smaller than x off ``dim``.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(4, 33)), f.input("i", shape=(4, 1), dtype="int64")
    >>> ig.gather(x, 1, i).shape
    (4, 1)
    """
    at = resolve_dim(checked(x, "gather"), dim, "gather")
    return apply_op("gather", x, checked(index, "gather"), dim=at, name=name)


@arguments(OperationError, keep=transactional_build)
def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None, *, name: str | None = None) -> Tensor:
    """Like `gather`, with the other axes of x and indices broadcast against each other; without ``dim`` both are flat.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(4, 33)), f.input("i", shape=(1, 2), dtype="int64")
    >>> ig.take_along_dim(x, i, 1).shape
    (4, 2)
    """
    op = "take_along_dim"
    if dim is None:
        return apply_op(op, flatten(checked(x, op)), flatten(checked(indices, op)), dim=0, name=name)
    at = resolve_dim(checked(x, op), dim, op)
    return apply_op(op, x, checked(indices, op), dim=at, name=name)


@arguments(OperationError, keep=transactional_build)
def index_select(x: Tensor, dim: int, index: Tensor, *, name: str | None = None) -> Tensor:
    """Rows of axis ``dim`` in the order of a 1-d index.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> ig.index_select(f.input("x", shape=(4, 8)), 1, f.input("i", shape=(3,), dtype="int64")).shape
    (4, 3)
    """
    at = resolve_dim(checked(x, "index_select"), dim, "index_select")
    return apply_op("index_select", x, checked(index, "index_select"), dim=at, name=name)


@arguments(OperationError, keep=transactional_build)
def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, *, name: str | None = None) -> Tensor:
    """weight[input[...], :]: rows of a table, torch's argument order. ``padding_idx`` matters to a gradient only.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> ids, table = f.input("ids", shape=(2, 5), dtype="int64"), f.input("table", shape=(100, 16))
    >>> ig.embedding(ids, table).shape
    (2, 5, 16)
    """
    rows = checked(weight, "embedding").shape[0] if padding_idx is not None and weight.ndim else 0
    if padding_idx is not None and not (is_int(padding_idx) and (not is_int(rows) or -rows <= padding_idx < rows)):
        raise OperationError(f"embedding: padding_idx {padding_idx!r} is not a row of {weight.name}", where=user_line())
    return apply_op("embedding", checked(input, "embedding"), checked(weight, "embedding"), name=name)


def _scan(op: str, x: Tensor, dim: int, dtype: DTypeLike | None, name: str | None) -> Tensor:
    attrs: dict[str, Attr] = {"dim": resolve_dim(checked(x, op), dim, op)}
    if dtype is not None:
        attrs["dtype"] = check_dtype(dtype)
    return apply_op(op, x, name=name, **attrs)


@arguments(OperationError, keep=transactional_build)
def cumsum(x: Tensor, dim: int, *, dtype: DTypeLike | None = None, name: str | None = None) -> Tensor:
    """Running sum along ``dim``, of x's shape; integers and bool add up as int64. Linear: a scan axis, see
    `ir.op_builders`.

    >>> import idgraph as ig
    >>> t = ig.cumsum(ig.Fusion("f").input("x", shape=(4, 8)), 1)
    >>> t.shape, t.definition.op
    ((4, 8), 'cumsum')
    """
    return _scan("cumsum", x, dim, dtype, name)


@arguments(OperationError, keep=transactional_build)
def cumprod(x: Tensor, dim: int, *, dtype: DTypeLike | None = None, name: str | None = None) -> Tensor:
    """Running product along ``dim``; integers and bool multiply as int64.

    >>> import idgraph as ig
    >>> ig.cumprod(ig.Fusion("f").input("x", shape=(4, 8)), 0).shape
    (4, 8)
    """
    return _scan("cumprod", x, dim, dtype, name)


@arguments(OperationError, keep=transactional_build)
def cummax(x: Tensor, dim: int, *, name: str | None = None) -> Tensor:
    """Running maximum along ``dim`` (NaN wins).

    >>> import idgraph as ig
    >>> ig.cummax(ig.Fusion("f").input("x", shape=(4, 8)), 0).dtype
    'float32'
    """
    return _scan("cummax", x, dim, None, name)


@arguments(OperationError, keep=transactional_build)
def cummin(x: Tensor, dim: int, *, name: str | None = None) -> Tensor:
    """Running minimum along ``dim`` (NaN wins).

    >>> import idgraph as ig
    >>> ig.cummin(ig.Fusion("f").input("x", shape=(4, 8)), 0).dtype
    'float32'
    """
    return _scan("cummin", x, dim, None, name)


@arguments(OperationError, keep=transactional_build)
def logcumsumexp(x: Tensor, dim: int, *, name: str | None = None) -> Tensor:
    """The logarithm of the running sum of exp(x) along ``dim``, of floats; no value is too large for it. One scan.

    >>> import idgraph as ig
    >>> t = ig.logcumsumexp(ig.Fusion("f").input("x", shape=(4, 8)), 1)
    >>> t.shape, t.definition.op
    ((4, 8), 'logcumsumexp')
    """
    return _scan("logcumsumexp", x, dim, None, name)


Reduction = Literal["mean", "sum", "none"]


@dataclass(frozen=True, slots=True)
class _Loss:
    """The parts that forward and backward share; tensors of one number a row keep the class axis with extent 1.

    ``wide`` are the logits in the type of the arithmetic; ``share`` the weight of each row's own class (0 where it is
    ignored, None where it is 1 everywhere); ``index`` the class axis.
    """

    wide: Tensor
    dim: int
    target: Tensor
    valid: Tensor | None
    share: Tensor | None
    weight: Tensor | None
    smoothing: float
    classes: int | None

    def per_row(self, t: Tensor) -> Tensor:
        """``t`` without the class axis."""
        return squeeze(t, self.dim)


def _check(op: str, x: Tensor, target: Tensor, reduction: str, smoothing: float) -> int:
    """The class axis; raises where the operands do not fit."""
    if reduction not in get_args(Reduction):
        raise OperationError(
            f"{op}: reduction {reduction!r} is not known",
            where=user_line(),
            hint=one_of(reduction, get_args(Reduction)),
        )
    if isinstance(smoothing, bool) or not isinstance(smoothing, (int, float)) or not 0.0 <= smoothing <= 1.0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OperationError(f"{op}: label_smoothing {smoothing!r} is not between 0 and 1", where=user_line())
    if not is_float(checked(x, op).dtype) or not x.ndim:
        raise OperationError(
            f"{op}: {x.name} is {x.dtype} with {x.ndim} axes", where=user_line(), hint="logits: (C,) or (N, C, ...)"
        )
    if not is_integer(checked(target, op).dtype):
        raise OperationError(
            f"{op}: target {target.name} is {target.dtype}, not the numbers of classes", where=user_line(),
            hint="for probabilities write ig.sum(-p * ig.log_softmax(x, 1), 1)",
        )  # fmt: skip
    dim = 0 if x.ndim == 1 else 1
    want = [n for p, n in enumerate(x.shape) if p != dim]
    fits = len(want) == target.ndim and builtins.all(
        same_extent(a.extent, b.extent)
        for a, b in zip([d for p, d in enumerate(x.axes) if p != dim], target.axes, strict=True)
    )
    if not fits:
        shape, need = (", ".join(map(str, s)) for s in (target.shape, want))
        raise OperationError(
            f"{op}: target {target.name} has shape ({shape}), the logits {x.name} ask for ({need})", where=user_line()
        )
    return dim


def _loss_terms(
    op: str,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int | None,
    reduction: str,
    smoothing: float,
) -> _Loss:
    dim = _check(op, x, target, reduction, smoothing)
    wide = cast(x, "float32") if is_short_float(x.dtype) else x
    row = unsqueeze(cast(target, "int64"), dim)
    if ignore_index is not None and not is_int(ignore_index):
        raise OperationError(f"ignore_index {short_repr(ignore_index)} is not an int")
    valid = None if ignore_index is None else ne(row, ignore_index)
    safe = row if valid is None else where(valid, row, 0)
    table, share = None, None
    if weight is not None:
        count = x.axes[dim].extent
        if checked(weight, op).ndim != 1 or not same_extent(weight.axes[0].extent, count):
            raise OperationError(f"{op}: weight {weight.name} has shape {weight.shape}, not ({count},)")
        table = cast(weight, wide.dtype) if weight.dtype != wide.dtype else weight
        share = reshape(index_select(table, 0, reshape(safe, -1)), *safe.shape)
    if valid is not None:
        share = where(valid, 1.0 if share is None else share, 0.0)
        share = cast(share, wide.dtype) if share.dtype != wide.dtype else share
    extent = x.axes[dim].extent
    return _Loss(wide, dim, safe, valid, share, table, float(smoothing), int(extent) if extent.is_const else None)


def _normalizer(p: _Loss) -> Tensor | float:
    """The divisor of a mean: the weights of the rows that count."""
    if p.share is not None:
        return sum(p.per_row(p.share))
    rows = 1
    for q, n in enumerate(p.wide.shape):
        if q == p.dim:
            continue
        if not isinstance(n, int):
            return sum(p.wide.fusion.full([attr(d.extent) for d in p.target.axes], 1.0, p.wide.dtype))
        rows *= n
    return float(rows)


def _smoothed(p: _Loss) -> float:
    if p.classes is None:
        raise OperationError("cross_entropy: label_smoothing needs a known number of classes", where=user_line())
    return p.smoothing / p.classes


def _class_weights(p: _Loss) -> Tensor | None:
    """The weights along the class axis of the logits."""
    if p.weight is None:
        return None
    return reshape(p.weight, [1] * p.dim + [-1] + [1] * (p.wide.ndim - p.dim - 1))


@arguments(OperationError, keep=transactional_build)
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int | None = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    *,
    name: str | None = None,
) -> Tensor:
    """Cross entropy of logits (C,) or (N, C, ...) and class numbers (), (N, ...): torch.nn.functional.cross_entropy.

    ``weight`` is one number a class; rows whose target is ``ignore_index`` (None: no such rows) count for nothing;
    ``reduction`` is "mean" (over the weights of the rows that count), "sum" or "none" (the shape of ``target``).
    Two-byte floats are computed in float32 and rounded at the end. A checked run refuses a target outside the classes.
    `ig.schedule.auto` reads the logits once. Raises `OperationError` for operands that do not fit.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, y = f.input("x", shape=(8, 100), dtype="bfloat16"), f.input("y", shape=(8,), dtype="int64")
    >>> ig.cross_entropy(x, y).shape, ig.cross_entropy(x, y, reduction="none").shape
    ((), (8,))
    """
    with at_user_line("cross_entropy"):
        p = _loss_terms("cross_entropy", input, target, weight, ignore_index, reduction, label_smoothing)
        top = amax(p.wide, p.dim, keepdim=True)
        logsum = log(sum(exp(sub(p.wide, top)), p.dim, keepdim=True))
        picked = cast(gather(input, p.dim, p.target), p.wide.dtype)
        # log(sum) + (max - logit): both terms small, where max + log(sum) could round away the difference.
        loss = add(logsum, sub(top, picked))
        if p.share is not None:
            loss = mul(loss, p.share)
        if p.smoothing:
            loss = add(mul(loss, 1.0 - p.smoothing), mul(_smoothing_loss(p, top, logsum), _smoothed(p)))
        if p.valid is not None:
            loss = where(p.valid, loss, 0.0)  # also where an ignored row holds no finite number
        rows = p.per_row(loss)
        if reduction == "none":
            result = rows
        else:
            result = sum(rows)
            if reduction == "mean":
                result = div(result, _normalizer(p))
        return cast(result, input.dtype, name=name)


def _smoothing_loss(p: _Loss, top: Tensor, logsum: Tensor) -> Tensor:
    """The sum over classes of weight * -log(p)."""
    weights = _class_weights(p)
    below = sub(top, p.wide)
    if weights is None:
        count = float(p.classes or 0)
        return add(mul(logsum, count), sum(below, p.dim, keepdim=True))
    total = reshape(sum(weights), [1] * p.wide.ndim)
    return add(mul(logsum, total), sum(mul(below, weights), p.dim, keepdim=True))


@arguments(OperationError, keep=transactional_build)
def cross_entropy_backward(
    grad: Tensor | None,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int | None = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    *,
    name: str | None = None,
) -> Tensor:
    """The gradient of `cross_entropy` in the logits, in their shape and type; ``grad`` is that of the loss (None: 1).

    The softmax minus one at the target, written as ``where(index == target, ...)``: no one-hot tensor. Raises
    `OperationError` for operands that do not fit.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, y = f.input("x", shape=(8, 100), dtype="bfloat16"), f.input("y", shape=(8,), dtype="int64")
    >>> ig.cross_entropy_backward(None, x, y).shape
    (8, 100)
    """
    with at_user_line("cross_entropy_backward"):
        p = _loss_terms("cross_entropy_backward", input, target, weight, ignore_index, reduction, label_smoothing)
        factor = _row_factor(p, grad, reduction)
        e = exp(sub(p.wide, amax(p.wide, p.dim, keepdim=True)))
        shares = div(e, sum(e, p.dim, keepdim=True))
        numbers = p.wide.fusion.iota(attr(p.wide.axes[p.dim].extent))
        hit = eq(_along(numbers, p), p.target)
        slope: Tensor = where(hit, sub(shares, 1.0), shares)
        if p.smoothing:
            own = (
                mul(slope, 1.0 - p.smoothing)
                if p.weight is None
                else mul(slope, mul(_own_weight(p), 1.0 - p.smoothing))
            )
            slope = add(own, mul(_spread_slope(p, shares), _smoothed(p)))
        elif p.weight is not None:
            factor = p.share if factor is None or p.share is None else mul(p.share, factor)
        # One product a column: what is fixed for a row is multiplied first.
        if p.valid is not None:  # ignored rows: 0 also where the mean, of no rows at all, divides by 0
            factor = where(p.valid, 1.0 if factor is None else factor, 0.0)
            factor = cast(factor, p.wide.dtype) if factor.dtype != p.wide.dtype else factor
        if factor is not None:
            slope = mul(slope, factor)
        return cast(slope, input.dtype, name=name)


def _own_weight(p: _Loss) -> Tensor:
    """The weight of each row's own class, 0 where the row is ignored."""
    if p.share is None:
        raise OperationError("cross_entropy: a loss without weights has none a row", where=user_line())
    return p.share


def _along(t: Tensor, p: _Loss) -> Tensor:
    """One number a class, along the class axis of the logits."""
    others = [q for q in range(p.wide.ndim) if q != p.dim]
    return unsqueeze(t, others) if others else t


def _row_factor(p: _Loss, grad: Tensor | None, reduction: Reduction) -> Tensor | float | None:
    """The factor of each row's slope."""
    wide = None
    if grad is not None:
        wide = cast(grad, p.wide.dtype) if grad.dtype != p.wide.dtype else grad
        wide = unsqueeze(wide, p.dim) if reduction == "none" else reshape(wide, [1] * p.wide.ndim)
    if reduction != "mean":
        return wide
    total = _normalizer(p)
    if not isinstance(total, Tensor):
        return 1.0 / total if wide is None else div(wide, total)
    spread = reshape(total, [1] * p.wide.ndim)
    return div(1.0, spread) if wide is None else div(wide, spread)


def _spread_slope(p: _Loss, shares: Tensor) -> Tensor:
    """The slope of `_smoothing_loss`."""
    weights = _class_weights(p)
    if weights is None:
        return sub(mul(shares, float(p.classes or 0)), 1.0)
    return sub(mul(shares, reshape(sum(weights), [1] * p.wide.ndim)), weights)
