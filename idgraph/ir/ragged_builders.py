"""Operations on rows of loaded length: a plain axis as rows, rows with what lies behind their ends, rows as one axis.

All three read where rows begin and how long they are (`row_ends`) at the component axis. The ragged axis
has space for the longest row that there may be: all elements. What lies behind the end of a row is not read, is 0 in
what `partition` makes, and is not written by `combine`.
"""

from __future__ import annotations

from collections.abc import Mapping

from idgraph.arith import Expr, as_expr
from idgraph.errors import OperationError
from idgraph.ir.argument_resolution import shape_text
from idgraph.ir.axis_read import Attr, AxisRead, Mapped
from idgraph.ir.dtypes import Scalar, is_float
from idgraph.ir.fusion import Fusion, Tensor
from idgraph.ir.iter_domain import IterDomain, RaggedRows, RowPartition, TensorDomain
from idgraph.ir.op_builders import check_axis, flat_domain, one_tensor, read_of, same_extent
from idgraph.ir.op_registry import primitive
from idgraph.ir.ragged_axes import COVERS, LENGTH, START, check_offsets
from idgraph.ir.view_builders import define


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
def build_partition(
    fusion: Fusion, args: tuple[Tensor | Scalar | Expr, ...], attrs: Mapping[str, Attr], name: str | None
) -> Tensor:
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
def build_pad_ragged(
    fusion: Fusion, args: tuple[Tensor | Scalar | Expr, ...], attrs: Mapping[str, Attr], name: str | None
) -> Tensor:
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
def build_crop_ragged(
    fusion: Fusion, args: tuple[Tensor | Scalar | Expr, ...], attrs: Mapping[str, Attr], name: str | None
) -> Tensor:
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
def build_combine(
    fusion: Fusion, args: tuple[Tensor | Scalar | Expr, ...], attrs: Mapping[str, Attr], name: str | None
) -> Tensor:
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
