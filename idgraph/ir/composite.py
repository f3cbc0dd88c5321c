"""Reductions, gathers and what is built of several primitives (softmax, scatter, cumsum), with torch's arguments."""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.arith import as_expr, is_true
from idgraph.errors import OperationError, user_line
from idgraph.ir.dtypes import Scalar, check_dtype, is_float
from idgraph.ir.exprs import Attr
from idgraph.ir.fusion import apply_op
from idgraph.ir.indexing import attr, listed
from idgraph.ir.movement import Dims, at_user_line, expand, pad, reshape, resolve_dim, resolve_dims, squeeze, unsqueeze
from idgraph.ir.ops import add, cast, checked, div, eq, exp, ge, le, log, maximum, sub, where
from idgraph.ir.tensor import Tensor


def _reduce(op: str, x: Tensor, dim: Dims, keepdim: bool, name: str | None, dtype: str | None = None) -> Tensor:
    # torch: no axis named means every axis; any and all take an empty list at its word.
    everything = not isinstance(dim, int) and not dim and op not in ("any", "all")
    dims = resolve_dims(checked(x, op), None if everything else dim, op)
    attrs: dict[str, Attr] = {"dims": dims}
    if keepdim:
        attrs["keepdim"] = True
    if dtype is not None:
        attrs["dtype"] = check_dtype(dtype)
    return apply_op(op, x, name=name, **attrs)


def sum(
    x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: str | None = None, name: str | None = None
) -> Tensor:
    """Sum over ``dim`` (None: all axes). Integers and bool add up as int64.

    >>> import idgraph as ig
    >>> t = ig.sum(ig.Fusion("f").input("x", shape=(4, 8)), dim=1)
    >>> t.shape, [d.kind for d in t.logical]
    ((4,), ['iteration', 'reduction'])
    """
    return _reduce("sum", x, dim, keepdim, name, dtype)


def prod(x: Tensor, dim: Dims = None, keepdim: bool = False, *, name: str | None = None) -> Tensor:
    """Product over ``dim``.

    >>> import idgraph as ig
    >>> ig.prod(ig.Fusion("f").input("x", shape=(4, 8)), 0).shape
    (8,)
    """
    return _reduce("prod", x, dim, keepdim, name)


def amax(x: Tensor, dim: Dims = None, keepdim: bool = False, *, name: str | None = None) -> Tensor:
    """Maximum over ``dim`` (NaN wins); an empty axis is an error.

    >>> import idgraph as ig
    >>> ig.amax(ig.Fusion("f").input("x", shape=(4, 8)), 1, keepdim=True).shape
    (4, 1)
    """
    return _reduce("amax", x, dim, keepdim, name)


def amin(x: Tensor, dim: Dims = None, keepdim: bool = False, *, name: str | None = None) -> Tensor:
    """Minimum over ``dim`` (NaN wins); an empty axis is an error.

    >>> import idgraph as ig
    >>> ig.amin(ig.Fusion("f").input("x", shape=(4, 8))).shape
    ()
    """
    return _reduce("amin", x, dim, keepdim, name)


def any(x: Tensor, dim: Dims = None, keepdim: bool = False, *, name: str | None = None) -> Tensor:
    """True where some element over ``dim`` is not zero.

    >>> import idgraph as ig
    >>> ig.any(ig.Fusion("f").input("x", shape=(4, 8)), 1).dtype
    'bool'
    """
    return _reduce("any", x, dim, keepdim, name)


def all(x: Tensor, dim: Dims = None, keepdim: bool = False, *, name: str | None = None) -> Tensor:
    """True where every element over ``dim`` is not zero.

    >>> import idgraph as ig
    >>> ig.all(ig.Fusion("f").input("x", shape=(4, 8)), 1).dtype
    'bool'
    """
    return _reduce("all", x, dim, keepdim, name)


def mean(x: Tensor, dim: Dims = None, keepdim: bool = False, *, name: str | None = None) -> Tensor:
    """Sum divided by the number of elements; floating point only.

    >>> import idgraph as ig
    >>> [e.op for e in ig.mean(ig.Fusion("f").input("x", shape=(4, 8)), 1).fusion.exprs]
    ['sum', 'div']
    """
    if not is_float(checked(x, "mean").dtype):
        raise OperationError(f"mean: {x.name} is {x.dtype}", where=user_line(), hint="cast it to float32 first")
    count = as_expr(1)
    for d in resolve_dims(x, dim if isinstance(dim, int) or dim else None, "mean"):
        count = count * x.axes[d].extent
    total = sum(x, dim, keepdim)
    return div(total, float(int(count)) if count.is_const else count, name=name)


def softmax(x: Tensor, dim: int, *, name: str | None = None) -> Tensor:
    """exp(x - max) / sum(exp(x - max)) along ``dim``.

    >>> import idgraph as ig
    >>> [e.op for e in ig.softmax(ig.Fusion("f").input("x", shape=(4, 8)), 1).fusion.exprs]
    ['amax', 'sub', 'exp', 'sum', 'div']
    """
    e = exp(sub(x, amax(x, dim, keepdim=True)))
    return div(e, sum(e, dim, keepdim=True), name=name)


def log_softmax(x: Tensor, dim: int, *, name: str | None = None) -> Tensor:
    """x - max - log(sum(exp(x - max))) along ``dim``.

    >>> import idgraph as ig
    >>> [e.op for e in ig.log_softmax(ig.Fusion("f").input("x", shape=(4, 8)), 1).fusion.exprs]
    ['amax', 'sub', 'exp', 'sum', 'log', 'sub']
    """
    moved = sub(x, amax(x, dim, keepdim=True))
    return sub(moved, log(sum(exp(moved), dim, keepdim=True)), name=name)


def matmul(a: Tensor, b: Tensor, *, name: str | None = None) -> Tensor:
    """[..., M, K] x [..., K, N] -> [..., M, N]; leading axes broadcast. A 1-d operand is a row or a column.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> ig.matmul(f.input("a", shape=(2, 3)), f.input("b", shape=(3, 4))).shape
    (2, 4)
    """
    row, column = checked(a, "matmul").ndim == 1, checked(b, "matmul").ndim == 1
    if not (row or column):
        return apply_op("matmul", a, b, name=name)
    with at_user_line("matmul"):
        product = apply_op("matmul", unsqueeze(a, 0) if row else a, unsqueeze(b, 1) if column else b)
    drop = [p for p, d in ((-1, column), (-2, row)) if d]
    return squeeze(product, [p % product.ndim for p in drop], name=name)


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


def take_along_dim(x: Tensor, index: Tensor, dim: int, *, name: str | None = None) -> Tensor:
    """Like `gather`, with the other axes of x and index broadcast against each other.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(4, 33)), f.input("i", shape=(1, 2), dtype="int64")
    >>> ig.take_along_dim(x, i, 1).shape
    (4, 2)
    """
    at = resolve_dim(checked(x, "take_along_dim"), dim, "take_along_dim")
    return apply_op("take_along_dim", x, checked(index, "take_along_dim"), dim=at, name=name)


def index_select(x: Tensor, dim: int, index: Tensor, *, name: str | None = None) -> Tensor:
    """Rows of axis ``dim`` in the order of a 1-d index.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> ig.index_select(f.input("x", shape=(4, 8)), 1, f.input("i", shape=(3,), dtype="int64")).shape
    (4, 3)
    """
    at = resolve_dim(checked(x, "index_select"), dim, "index_select")
    return apply_op("index_select", x, checked(index, "index_select"), dim=at, name=name)


def embedding(input: Tensor, weight: Tensor, *, name: str | None = None) -> Tensor:
    """weight[input[...], :]: rows of a table, torch's argument order.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> ids, table = f.input("ids", shape=(2, 5), dtype="int64"), f.input("table", shape=(100, 16))
    >>> ig.embedding(ids, table).shape
    (2, 5, 16)
    """
    return apply_op("embedding", checked(input, "embedding"), checked(weight, "embedding"), name=name)


def _one_hot(x: Tensor, dim: int, index: Tensor, op: str) -> tuple[Tensor, Tensor]:
    """(hit, k): hit[..., v, ..., k] says that index entry k along ``dim`` names element v; k is moved to the end."""
    if index.ndim != x.ndim:
        raise OperationError(
            f"{op}: index {index.name} has {index.ndim} axes, {x.name} has {x.ndim}", where=user_line()
        )
    for p, (a, b) in enumerate(zip(x.axes, index.axes, strict=True)):
        if p != dim and not is_true(b.extent <= a.extent):
            raise OperationError(
                f"{op}: axis {p} of index {index.name} has extent {b.extent}, more than {a.extent} of {x.name}",
                where=user_line(),
            )
    spread = _to_last(index, dim)
    shape = [1] * (x.ndim + 1)
    shape[dim] = -1
    numbers = reshape(x.fusion.iota(attr(x.axes[dim].extent), dtype=index.dtype), shape)
    return eq(spread, numbers), spread


def _to_last(t: Tensor, dim: int) -> Tensor:
    """Axis ``dim`` becomes the last one, with a new axis of extent 1 in its place."""
    moved = apply_op("permute", t, dims=(*(p for p in range(t.ndim) if p != dim), dim))
    return unsqueeze(moved, dim)


def _fill_up(t: Tensor, x: Tensor, dim: int, value: Scalar) -> Tensor:
    """Pad the axes off ``dim`` behind, to x's extents (an index may be smaller than x)."""
    pads: list[int] = []
    for p in reversed(range(x.ndim)):
        short = x.axes[p].extent - t.axes[p].extent
        pads += [0, 0 if p == dim else int(short)]
    return pad(t, pads, value) if pads and max(pads) > 0 else t


def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor, *, name: str | None = None) -> Tensor:
    """x with src added at the indices: out[index[i, j], j] += src[i, j] for dim 0.

    Built as a sum over index entries of ``where(index == iota, src, 0)``: no two threads write one element. Its cost
    is extent(x) times the index's extent along ``dim``.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i, s = f.input("x", shape=(4, 9)), f.input("i", shape=(4, 1), dtype="int64"), f.input("s", shape=(4, 1))
    >>> ig.scatter_add(x, 1, i, s).shape
    (4, 9)
    """
    at = resolve_dim(checked(x, "scatter_add"), dim, "scatter_add")
    with at_user_line("scatter_add"):
        hit, _ = _one_hot(x, at, checked(index, "scatter_add"), "scatter_add")
        values = _to_last(_cut(checked(src, "scatter_add"), index, "scatter_add"), at)
        zero: Scalar = 0.0 if is_float(x.dtype) else 0
        added = sum(where(hit, values, zero), -1, dtype=x.dtype)
        return add(x, _fill_up(added, x, at, zero), name=name)


def scatter(x: Tensor, dim: int, index: Tensor, src: Tensor | Scalar, *, name: str | None = None) -> Tensor:
    """x with src written at the indices: out[index[i, j], j] = src[i, j]; of several writers the last one wins.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(4, 9)), f.input("i", shape=(4, 1), dtype="int64")
    >>> ig.scatter(x, 1, i, 1.0).shape
    (4, 9)
    """
    at = resolve_dim(checked(x, "scatter"), dim, "scatter")
    with at_user_line("scatter"):
        hit, _ = _one_hot(x, at, checked(index, "scatter"), "scatter")
        if not isinstance(src, Tensor):
            written = _fill_up(cast(any(hit, -1), "int8"), x, at, 0)
            return where(ge(written, 1), src, x, name=name)
        count = attr(index.axes[at].extent)
        order = reshape(x.fusion.iota(count), [1] * x.ndim + [-1])
        last = amax(where(hit, order, -1), -1)
        source = _cut(src, index, "scatter")
        picked = gather(source, at, maximum(last, 0))
        return where(ge(_fill_up(last, x, at, -1), 0), _fill_up(picked, x, at, 0), x, name=name)


def _cut(src: Tensor, index: Tensor, op: str) -> Tensor:
    """src cut to the index's shape, as torch allows it to be larger."""
    if src.ndim != index.ndim:
        raise OperationError(f"{op}: src {src.name} has {src.ndim} axes, index {index.name} has {index.ndim}")
    pads: list[int] = []
    for p in reversed(range(src.ndim)):
        a, b = src.axes[p].extent, index.axes[p].extent
        if not is_true(b <= a):
            raise OperationError(f"{op}: axis {p} of src {src.name} has extent {a}, the index {b}")
        pads += [0, int(b - a)]
    return pad(src, pads) if min(pads, default=0) < 0 else src


def index_put(
    x: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False, *, name: str | None = None
) -> Tensor:
    """x with values written (or added) at the leading axes that ``indices`` name; the last writer wins.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i, v = f.input("x", shape=(9, 4)), f.input("i", shape=(3,), dtype="int64"), f.input("v", shape=(3, 4))
    >>> ig.index_put(x, [i], v, accumulate=True).shape
    (9, 4)
    """
    checked(x, "index_put")
    for t in listed(indices, "index_put: indices"):
        checked(t, "index_put")
    checked(values, "index_put")
    if not indices or len(indices) > x.ndim or len({t.ndim for t in indices}) != 1 or indices[0].ndim != 1:
        raise OperationError("index_put: takes one 1-d index for each of the leading axes", where=user_line())
    count, rest = indices[0].axes[0].extent, x.shape[len(indices) :]
    with at_user_line("index_put"):
        spread = expand(values, [attr(count), *rest])
        flat_rows = 1
        for n in x.shape[: len(indices)]:
            flat_rows = flat_rows * n
        row: Tensor = indices[0]
        for t, n in zip(indices[1:], x.shape[1 : len(indices)], strict=True):
            row = add(row * n, t)
        table = reshape(x, [flat_rows, *rest])
        where_to = expand(reshape(row, [-1, *(1 for _ in rest)]), [attr(count), *rest])
        put = scatter_add(table, 0, where_to, spread) if accumulate else scatter(table, 0, where_to, spread)
        return reshape(put, *x.shape, name=name)


def cumsum(x: Tensor, dim: int, *, name: str | None = None) -> Tensor:
    """Running sum along ``dim``, as a sum over where(j <= i, x[j], 0): quadratic in the axis, no order between threads.

    >>> import idgraph as ig
    >>> ig.cumsum(ig.Fusion("f").input("x", shape=(4, 8)), 1).shape
    (4, 8)
    """
    at = resolve_dim(checked(x, "cumsum"), dim, "cumsum")
    n = attr(x.axes[at].extent)
    shape = [1] * (x.ndim + 1)
    shape[at] = -1
    upto = reshape(x.fusion.iota(n), shape)
    number = reshape(x.fusion.iota(n), [1] * x.ndim + [-1])
    zero: Scalar = 0.0 if is_float(x.dtype) else 0
    return sum(where(le(number, upto), _to_last(x, at), zero), -1, name=name)
