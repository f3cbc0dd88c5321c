"""Reductions, gathers and compositions of primitives (softmax, cumsum), with torch's arguments."""

from __future__ import annotations

from idgraph.arith import as_expr
from idgraph.errors import OperationError, arguments, user_line
from idgraph.ir.dtypes import DTypeLike, check_dtype, is_float
from idgraph.ir.exprs import Attr
from idgraph.ir.fusion import Tensor, apply_op
from idgraph.ir.guards import transactional_build
from idgraph.ir.indexing import is_int
from idgraph.ir.movement import Dims, at_user_line, flatten, resolve_dim, resolve_dims
from idgraph.ir.operators import product
from idgraph.ir.ops import cast, checked, div, exp, log, sub


def _reduce(op: str, x: Tensor, dim: Dims, keepdim: bool, name: str | None, dtype: DTypeLike | None = None) -> Tensor:
    # torch: an empty list of axes means every axis; for any and all it means no axis.
    everything = isinstance(dim, (tuple, list)) and not dim and op not in ("any", "all")
    dims = resolve_dims(checked(x, op), None if everything else dim, op)
    attrs: dict[str, Attr] = {"dims": dims}
    if keepdim:
        attrs["keepdim"] = True
    if dtype is not None:
        attrs["dtype"] = check_dtype(dtype)
    return apply_op(op, x, name=name, **attrs)


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
    is_half = x.dtype in ("float16", "bfloat16")
    total = sum(x, dim, keepdim, dtype="float32") if is_half else sum(x, dim, keepdim)
    for d in resolve_dims(x, dim if dim != () and dim != [] else None, "mean"):
        count = count * x.axes[d].extent
    by = float(int(count)) if count.is_const else count
    return cast(div(total, by), x.dtype, name=name) if is_half else div(total, by, name=name)


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
    """Running sum along ``dim``, of x's shape; integers and bool add up as int64. Linear: a scan axis, see `ir.scan`.

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
