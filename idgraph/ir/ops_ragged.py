"""Ragged axes: a plain axis as rows whose lengths are loaded, and back; and what a reduction of rows is made of."""

from __future__ import annotations

import math

from idgraph.errors import OperationError, arguments, user_line
from idgraph.ir.dtypes import Scalar, int_limits, is_float
from idgraph.ir.fusion import Tensor, apply_op
from idgraph.ir.iter_domain import RaggedRows
from idgraph.ir.op_table import OPERATIONS
from idgraph.ir.ops_pointwise import checked
from idgraph.ir.ops_view import at_user_line, resolve_dim
from idgraph.ir.ragged_axes import check_offsets, row_ends
from idgraph.ir.transaction import transactional_build


def ragged_dim(x: Tensor) -> int | None:
    """The position of the ragged axis of ``x``; None where all its axes are plain.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, offsets = f.input("x", shape=(9, 2)), f.input("offsets", shape=(4,), dtype="int64")
    >>> ragged_dim(ig.partition(x, 0, offsets)), ragged_dim(x)
    (1, None)
    """
    return next((p for p, d in enumerate(x.axes) if d.rows is not None), None)


@arguments(OperationError, keep=transactional_build)
def partition(x: Tensor, dim: int, offsets: Tensor, *, name: str | None = None) -> Tensor:
    """Axis ``dim`` as rows of different length: two axes, the component b and in it the ragged axis j.

    ``out[b, j] = x[offsets[b] + j]`` for j below ``offsets[b + 1] - offsets[b]``. ``offsets`` are integers that begin
    at 0, never fall and end at the extent of the axis: one more than there are rows; a run refuses others by name. Rows
    may be empty. Two ragged axes are one if and only if their offsets are one tensor. Pointwise operations, reductions
    (`idgraph.sum` to `idgraph.softmax`) and `idgraph.combine` take ragged axes; others refuse them.
    (nvFuser: asNested; torch: nested tensors of layout jagged.) Raises `OperationError` for what cannot be offsets.

    >>> import idgraph as ig
    >>> f = ig.Fusion("segments")
    >>> x, offsets = f.input("x", shape=(9,)), f.input("offsets", shape=(4,), dtype="int64")
    >>> u = ig.partition(x, 0, offsets)
    >>> u.logical, ig.sum(u, 1).shape, ig.combine(u).shape
    ((I7[3], I8[offsets]), (3,), (9,))
    """
    at = resolve_dim(checked(x, "partition"), dim, "partition")
    with at_user_line("partition"):
        check_offsets(checked(offsets, "partition"))
        return apply_op("partition", x, *row_ends(offsets, x.axes[at].extent), name=name, dim=at)


@arguments(OperationError, keep=transactional_build)
def combine(x: Tensor, *, name: str | None = None) -> Tensor:
    """The rows of a ragged axis one behind the other, as one plain axis: the inverse of `partition`.

    Of a plain tensor that was partitioned its last partition is combined. Raises `OperationError` where there is none,
    and where the component axis does not stand in front of the ragged one.

    >>> import idgraph as ig
    >>> f = ig.Fusion("scaled")
    >>> x, offsets, s = f.input("x", (9,)), f.input("offsets", (4,), "int64"), f.input("s", (3,))
    >>> c, r = x.partition(0, offsets)
    >>> y = f.output(ig.combine(c.tensor * ig.unsqueeze(s, 1)))
    >>> y.shape, y.definition.op
    ((9,), 'combine')
    """
    u, at, rows = _ragged(x, "combine")
    return apply_op("combine", u, rows.starts, rows.lengths, name=name, dim=at - 1)


@arguments(OperationError, keep=transactional_build)
def pad_ragged(x: Tensor, value: Scalar = 0, *, name: str | None = None) -> Tensor:
    """The rows of a ragged axis as a plain axis, with ``value`` behind the end of each row.

    The axis is as long as all rows together, the bound that is known; a slice cuts it. (torch:
    ``torch.nested.to_padded_tensor``.) Raises `OperationError` where no axis is ragged.

    >>> import idgraph as ig
    >>> f = ig.Fusion("padded")
    >>> x, offsets = f.input("x", (9,)), f.input("offsets", (4,), "int64")
    >>> u = ig.partition(x, 0, offsets)
    >>> ig.pad_ragged(u, -1.0)[:, :4].shape
    (3, 4)
    """
    u, at, rows = _ragged(x, "pad_ragged")
    return apply_op("pad_ragged", u, rows.starts, rows.lengths, name=name, dim=at - 1, value=value)


@arguments(OperationError, keep=transactional_build)
def crop_ragged(x: Tensor, dim: int, offsets: Tensor, *, name: str | None = None) -> Tensor:
    """Axes ``dim`` and ``dim + 1`` of a padded tensor as rows that end at ``offsets``: the inverse of `pad_ragged`.

    Axis ``dim + 1`` is as long as all rows together; what lies behind the end of a row is not read. Raises
    `OperationError` where the axes are not as many rows, and for what cannot be offsets.

    >>> import idgraph as ig
    >>> f = ig.Fusion("cropped")
    >>> x, offsets = f.input("x", (3, 9)), f.input("offsets", (4,), "int64")
    >>> u = ig.crop_ragged(x, 0, offsets)
    >>> u.logical, ig.combine(u).shape
    ((I8[3], I9[offsets]), (9,))
    """
    at = resolve_dim(checked(x, "crop_ragged"), dim, "crop_ragged")
    with at_user_line("crop_ragged"):
        check_offsets(checked(offsets, "crop_ragged"))
        if at + 1 >= x.ndim:
            raise OperationError(f"{x.name} has no axis {at + 1} behind its rows")
        return apply_op("crop_ragged", x, *row_ends(offsets, x.axes[at + 1].extent), name=name, dim=at)


def row_lengths(x: Tensor) -> Tensor:
    """How many elements each row of a ragged tensor has: integers, along the component axis.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, offsets = f.input("x", (9,)), f.input("offsets", (4,), "int64")
    >>> row_lengths(ig.partition(x, 0, offsets)).definition.op
    'sub'
    """
    _, _, rows = _ragged(x, "row_lengths")
    return x.fusion[rows.lengths.name]


def padded_for(op: str, x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """``x`` for the reduction ``op`` over ``dims``: a ragged axis among them is plain, with the value behind the ends
    of rows that changes no result.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, offsets = f.input("x", (9,)), f.input("offsets", (4,), "int64")
    >>> padded_for("amax", ig.partition(x, 0, offsets), (1,)).definition.attrs["value"]
    -inf
    """
    at = ragged_dim(x)
    if at is None or at not in dims:
        return x
    end = OPERATIONS[op].identity
    value: Scalar = False
    if end == "low" or end == "high":
        if x.dtype == "bool":
            value = end == "high"
        elif is_float(x.dtype):
            value = -math.inf if end == "low" else math.inf
        else:
            value = int_limits(x.dtype)[0 if end == "low" else 1]
    elif op in ("any", "all"):
        value = bool(end) if x.dtype == "bool" else int(end)
    else:
        value = end
    return pad_ragged(x, value)


def _ragged(x: Tensor, op: str) -> tuple[Tensor, int, RaggedRows]:
    """(tensor, position of its ragged axis, its rows)."""
    u = checked(x, op)
    if ragged_dim(u) is None:
        parts = [e.output for e in u.uses if e.op == "partition" and e.inputs[0] is u]
        u = parts[-1] if parts else u
    at = ragged_dim(u)
    if at is None:
        raise OperationError(
            f"{op}: {x.name} has no ragged axis", where=user_line(), hint=f"{x.name}.partition(axis, offsets) makes one"
        )
    rows = u.axes[at].rows
    assert rows is not None
    if at == 0 or u.axes[at - 1] is not rows.component:
        raise OperationError(
            f"{op}: the component axis of {u.name} does not stand in front of its ragged axis {at}",
            where=user_line(),
            hint="ig.permute it there",
        )
    return u, at, rows
