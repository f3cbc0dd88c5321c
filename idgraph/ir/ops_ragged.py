"""Ragged axes: a plain axis as rows whose lengths are loaded, and back; and what a reduction of rows is made of.

All three read where rows begin and how long they are (`row_ends`) at the component axis. The ragged axis
has space for the longest row that there may be: all elements. What lies behind the end of a row is not read, is 0 in
what `partition` makes, and is not written by `combine`.
"""

from __future__ import annotations

import math

from idgraph.arith import Expr, as_expr
from idgraph.errors import OperationError, arguments, user_line
from idgraph.ir.argument_resolution import shape_text
from idgraph.ir.axis_read import Attrs, AxisRead, Mapped
from idgraph.ir.dtypes import Scalar, int_limits, is_float
from idgraph.ir.fusion import Fusion, Operands, Tensor, apply_op
from idgraph.ir.iter_domain import IterDomain, RaggedRows, RowPartition, TensorDomain
from idgraph.ir.op_builders import check_axis, flat_domain, one_tensor, read_of, same_extent
from idgraph.ir.op_table import OPERATIONS, primitive
from idgraph.ir.ops_pointwise import checked
from idgraph.ir.ops_view import at_user_line, resolve_dim
from idgraph.ir.ragged_axes import COVERS, LENGTH, START, check_offsets, row_ends
from idgraph.ir.transaction import transactional_build
from idgraph.ir.view_builders import define


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
    (`idgraph.sum` to `idgraph.softmax`) and `idgraph.combine` take ragged axes; views, gathers, scans and products
    change the axes beside them (`idgraph.embedding` of ragged indices, too); others refuse them.
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


def _offsets_of(starts: Tensor, lengths: Tensor, extent: Expr) -> Tensor:
    """The offsets that both are made of; raises where they are not what `row_ends` makes of them, or copies of that."""
    made = lengths.definition
    first = _cut_of(starts, 0)
    if first is not None and made is not None and made.op == "sub" and len(made.inputs) == 2:
        covers, (stop, start) = made.attrs.get(COVERS), made.inputs
        whole = isinstance(covers, (int, Expr)) and same_extent(as_expr(covers), extent)
        if whole and _cut_of(stop, 1) is first and _cut_of(start, 0) is first:
            return first
    raise OperationError(
        f"{starts.name} and {lengths.name} are not where rows of {extent} elements begin and how long they are",
        hint="ig.partition(x, dim, offsets) makes them",
    )


def _cut_of(t: Tensor, start: int) -> Tensor | None:
    """The tensor of which ``t`` is all but the last element (``start`` 0), or all but the first one (1)."""
    e = t.definition
    if e is None or e.op != "slice" or e.attrs["starts"] != (start,) or e.attrs["steps"] != (1,):
        return None
    whole = e.inputs[0]
    fits = whole.ndim == 1 and same_extent(whole.axes[0].extent, t.axes[0].extent + 1)
    return whole if fits else None


def _ragged_rows(
    starts: Tensor, lengths: Tensor, component: IterDomain, extent: Expr
) -> tuple[RaggedRows, list[list[AxisRead]]]:
    check_offsets(offsets := _offsets_of(starts, lengths, extent))
    reads: list[list[AxisRead]] = [[read_of(t.axes[0], component)] for t in (starts, lengths)]
    return RaggedRows(offsets, starts, lengths, component), reads


@primitive("partition")
def build_partition(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``partition(x, starts, lengths; dim)``: axis dim as rows: out[b, j] = x[offsets[b] + j]."""
    x, starts, lengths = one_tensor(args, 3)
    dim = check_axis(x, attrs.get("dim"))
    component = fusion.new_domain(starts.axes[0].extent if starts.ndim else 1, "iteration")
    ragged = fusion.new_domain(x.axes[dim].extent, "iteration")
    rows, ends = _ragged_rows(starts, lengths, component, x.axes[dim].extent)
    root = [fusion.new_domain(d.extent) for d in x.axes]
    logical = [*root[:dim], component, ragged, *root[dim + 1 :]]
    made = RowPartition(root[dim], component, ragged, START, LENGTH, rows.offsets, line=fusion.line)
    define(made, component, ragged)
    ragged.rows = rows
    reads: list[list[AxisRead]] = [[Mapped(d) for d in root], *ends]
    own = tuple(logical)
    domain = TensorDomain(tuple(root), own, own, own, (None,) * len(own), (made,))
    return fusion.emit("partition", args, {**attrs, "dim": dim}, reads, x.dtype, domain, name)


@primitive("pad_ragged")
def build_pad_ragged(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``pad_ragged(x, starts, lengths; dim, value)``: plain axes dim and dim + 1, value behind row ends."""
    x, starts, lengths = one_tensor(args, 3)
    dim = check_axis(x, attrs.get("dim"))
    _check_rows(x, dim, starts, lengths)
    value = attrs.get("value")
    if not isinstance(value, (bool, int, float)) or (isinstance(value, float) and not is_float(x.dtype)):
        raise OperationError(f"value {value!r} is not a number of type {x.dtype}, as {x.name}")
    axes = [fusion.new_domain(d.extent, d.kind) for d in x.axes]
    _, ends = _ragged_rows(starts, lengths, axes[dim], axes[dim + 1].extent)
    reads: list[list[AxisRead]] = [[Mapped(d) for d in axes], *ends]
    return fusion.emit("pad_ragged", args, {**attrs, "dim": dim}, reads, x.dtype, flat_domain(axes), name)


@primitive("crop_ragged")
def build_crop_ragged(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``crop_ragged(x, starts, lengths; dim)``: plain axes dim, dim + 1 as rows; nothing behind a row's end is read."""
    x, starts, lengths = one_tensor(args, 3)
    dim = check_axis(x, attrs.get("dim"))
    if dim + 1 >= x.ndim or not same_extent(x.axes[dim].extent, starts.axes[0].extent):
        raise OperationError(
            f"axes {dim} and {dim + 1} of {x.name} are not {starts.axes[0].extent} padded rows",
            hint=f"{x.name} has shape {shape_text(x)}",
        )
    axes = [fusion.new_domain(d.extent, "iteration" if p in (dim, dim + 1) else d.kind) for p, d in enumerate(x.axes)]
    rows, ends = _ragged_rows(starts, lengths, axes[dim], axes[dim + 1].extent)
    axes[dim + 1].rows = rows
    reads: list[list[AxisRead]] = [[read_of(d, to) for d, to in zip(x.axes, axes, strict=True)], *ends]
    return fusion.emit("crop_ragged", args, {**attrs, "dim": dim}, reads, x.dtype, flat_domain(axes), name)


@primitive("combine")
def build_combine(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``combine(x, starts, lengths; dim)``: rows (axes dim, dim + 1) as one axis: out[offsets[b] + j] = x[b, j].

    Its loops run over the rows: its root axes.
    """
    x, starts, lengths = one_tensor(args, 3)
    dim = check_axis(x, attrs.get("dim"))
    _check_rows(x, dim, starts, lengths)
    root = [fusion.new_domain(d.extent, d.kind) for d in x.axes]
    rows, ends = _ragged_rows(starts, lengths, root[dim], root[dim + 1].extent)
    flat = fusion.new_domain(x.axes[dim + 1].extent)
    root[dim + 1].rows = rows
    logical = (*root[:dim], flat, *root[dim + 2 :])
    line = fusion.line
    made = RowPartition(flat, root[dim], root[dim + 1], START, LENGTH, rows.offsets, combines=True, line=line)
    define(made, flat)
    reads: list[list[AxisRead]] = [[Mapped(d) for d in root], *ends]
    domain = TensorDomain(tuple(root), logical, logical, tuple(root), (None,) * len(logical), (made,))
    return fusion.emit("combine", args, {**attrs, "dim": dim}, reads, x.dtype, domain, name)


def _check_rows(x: Tensor, dim: int, starts: Tensor, lengths: Tensor) -> None:
    """Raise unless axes dim and dim + 1 of x are the component and the ragged axis of these rows."""
    rows = x.axes[dim + 1].rows if dim + 1 < x.ndim else None
    if rows is None or rows.component is not x.axes[dim]:
        raise OperationError(
            f"axes {dim} and {dim + 1} of {x.name} are not a component axis and its ragged axis",
            hint="ig.permute them side by side, or ig.partition a plain axis",
        )
    offsets = _offsets_of(starts, lengths, x.axes[dim + 1].extent)
    if rows.offsets is not offsets:
        raise OperationError(f"the rows of {x.name} are those of {rows.offsets.name}, not of {offsets.name}")
