"""Operations with data-dependent coordinates: the gathered axis of an operand is read where an index tensor says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from idgraph.arith import Expr, as_expr, is_true, simplify
from idgraph.errors import OperationError
from idgraph.ir.argument_resolution import shape_text
from idgraph.ir.axis_read import Attr, AxisRead, LoadedCoordinate, Mapped
from idgraph.ir.dtypes import Scalar, is_integer
from idgraph.ir.fusion import Fusion, Tensor
from idgraph.ir.iter_domain import DomainExpr, IterDomain, Resize
from idgraph.ir.op_builders import aligned_reads, broadcast_axes, check_axis, one_tensor, read_of, same_extent
from idgraph.ir.op_registry import primitive
from idgraph.ir.view_builders import define, moved_domain


def check_index(index: Tensor) -> None:
    """Raise unless an index tensor holds integers."""
    if not is_integer(index.dtype):
        raise OperationError(f"index {index.name} is {index.dtype}", hint="an index tensor holds integers: ig.cast it")


def _same_rank(args: tuple[Tensor | Scalar | Expr, ...], attrs: Mapping[str, Attr]) -> tuple[Tensor, Tensor, int]:
    """(tensor, index of the same rank, gathered axis)."""
    x, index = one_tensor(args, 2)
    check_index(index)
    if x.ndim != index.ndim:
        raise OperationError(f"index {index.name} has {index.ndim} axes, {x.name} has {x.ndim}; they must agree")
    return x, index, check_axis(x, attrs.get("dim"))


@primitive("gather")
def build_gather(
    fusion: Fusion, args: tuple[Tensor | Scalar | Expr, ...], attrs: Mapping[str, Attr], name: str | None
) -> Tensor:
    """``gather(x, index; dim)``: out[i, j] = x[index[i, j], j]. The index may be smaller than x in the other axes."""
    x, index, dim = _same_rank(args, attrs)
    logical = [fusion.new_domain(d.extent) for d in index.axes]
    reads: list[AxisRead] = []
    root: list[IterDomain] = []
    exprs: list[DomainExpr] = []
    for p, (d, out) in enumerate(zip(x.axes, logical, strict=True)):
        if p == dim:
            reads.append(LoadedCoordinate(1))
            root.append(out)
        elif same_extent(d.extent, out.extent):
            reads.append(Mapped(out))
            root.append(out)
        elif is_true(out.extent <= d.extent):
            own = fusion.new_domain(d.extent)
            exprs.append(define(Resize(own, out, as_expr(0), simplify(out.extent - d.extent)), out))
            reads.append(Mapped(own))
            root.append(own)
        else:
            raise OperationError(
                f"axis {p} of index {index.name} has extent {out.extent}, more than {d.extent} of {x.name}",
                hint=f"{x.name} has shape {shape_text(x)}; gather reads x at the index's own coordinates off dim {dim}",
            )
    row: list[AxisRead] = [Mapped(d) for d in logical]
    return fusion.emit("gather", args, dict(attrs), [reads, row], x.dtype, moved_domain(root, logical, exprs), name)


@primitive("take_along_dim")
def build_take_along_dim(
    fusion: Fusion, args: tuple[Tensor | Scalar | Expr, ...], attrs: Mapping[str, Attr], name: str | None
) -> Tensor:
    """``take_along_dim(x, index; dim)``: like gather, the other axes broadcast against each other."""
    x, index, dim = _same_rank(args, attrs)
    logical: list[IterDomain] = []
    for p, (a, b) in enumerate(zip(x.axes, index.axes, strict=True)):
        if p == dim:
            logical.append(fusion.new_domain(b.extent))
            continue
        wide = a if b.is_broadcast else b
        if not a.is_broadcast and not b.is_broadcast and not same_extent(a.extent, b.extent):
            raise OperationError(
                f"axis {p} of index {index.name} has extent {b.extent}, axis {p} of {x.name} has {a.extent}",
                hint="off dim the extents must agree or be 1",
            )
        logical.append(fusion.new_domain(wide.extent))
    mine: list[AxisRead] = [
        LoadedCoordinate(1) if p == dim else read_of(d, o) for p, (d, o) in enumerate(zip(x.axes, logical, strict=True))
    ]
    domain = moved_domain(logical, logical)
    return fusion.emit(
        "take_along_dim", args, dict(attrs), [mine, aligned_reads(index, logical)], x.dtype, domain, name
    )


@primitive("index_select")
def build_index_select(
    fusion: Fusion, args: tuple[Tensor | Scalar | Expr, ...], attrs: Mapping[str, Attr], name: str | None
) -> Tensor:
    """``index_select(x, index; dim)``: axis dim of the result runs over the 1-d index."""
    x, index = one_tensor(args, 2)
    check_index(index)
    if index.ndim != 1:
        raise OperationError(f"index {index.name} has {index.ndim} axes, index_select takes one", hint="use ig.gather")
    dim = check_axis(x, attrs.get("dim"))
    logical = [fusion.new_domain(index.axes[0].extent if p == dim else d.extent) for p, d in enumerate(x.axes)]
    mine: list[AxisRead] = [LoadedCoordinate(1) if p == dim else Mapped(d) for p, d in enumerate(logical)]
    domain = moved_domain(logical, logical)
    return fusion.emit("index_select", args, dict(attrs), [mine, [Mapped(logical[dim])]], x.dtype, domain, name)


@primitive("embedding")
def build_embedding(
    fusion: Fusion, args: tuple[Tensor | Scalar | Expr, ...], attrs: Mapping[str, Attr], name: str | None
) -> Tensor:
    """``embedding(input, weight)``: out[..., d] = weight[input[...], d]."""
    index, weight = one_tensor(args, 2)
    check_index(index)
    if weight.ndim != 2:
        raise OperationError(f"weight {weight.name} has {weight.ndim} axes, not 2", hint="embedding(input, weight)")
    lead = [fusion.new_domain(d.extent) for d in index.axes]
    width = fusion.new_domain(weight.axes[1].extent)
    reads: list[list[AxisRead]] = [[Mapped(d) for d in lead], [LoadedCoordinate(0), Mapped(width)]]
    domain = moved_domain([*lead, width], [*lead, width])
    return fusion.emit("embedding", args, dict(attrs), reads, weight.dtype, domain, name)


@primitive("index")
def build_index(
    fusion: Fusion, args: tuple[Tensor | Scalar | Expr, ...], attrs: Mapping[str, Attr], name: str | None
) -> Tensor:
    """``index(x, i0, i1, ...; dims)``: x indexed along adjacent ``dims`` by broadcasting index tensors.

    With ``aligned`` the index tensors have the rank of the result: one element along what is not indexed.
    """
    if len(args) < 2:
        raise OperationError("takes a tensor and at least one index tensor")
    x, *indices = one_tensor(args, len(args))
    value = attrs.get("dims")
    dims = [check_axis(x, d) for d in value] if isinstance(value, tuple) else []
    if len(dims) != len(indices) or dims != list(range(dims[0], dims[0] + len(dims))):
        raise OperationError(f"dims {value!r} must be adjacent, increasing, one for each index tensor")
    for t in indices:
        check_index(t)
    before = [fusion.new_domain(d.extent) for d in x.axes[: dims[0]]]
    after = [fusion.new_domain(d.extent) for d in x.axes[dims[-1] + 1 :]]
    middle = index_axes(fusion, indices, attrs, len(before), len(after))
    mine: list[AxisRead] = [
        *(Mapped(d) for d in before),
        *(LoadedCoordinate(k + 1) for k in range(len(indices))),
        *(Mapped(d) for d in after),
    ]
    logical = [*before, *middle, *after]
    along = logical if attrs.get("aligned") is True else middle
    reads = [mine, *(aligned_reads(t, along) for t in indices)]
    return fusion.emit("index", args, dict(attrs), reads, x.dtype, moved_domain(logical, logical), name)


def index_axes(
    fusion: Fusion, indices: Sequence[Tensor], attrs: Mapping[str, Attr], before: int, after: int
) -> Sequence[IterDomain]:
    """Fresh axes of what index tensors broadcast to; ``aligned`` ones have this many more axes of one element."""
    if attrs.get("aligned") is not True:
        return broadcast_axes(fusion, indices)
    for t in indices:
        beside = (*t.axes[:before], *t.axes[t.ndim - after :])
        if t.ndim <= before + after or t.ndim != indices[0].ndim or not all(d.is_broadcast for d in beside):
            raise OperationError(
                f"index {t.name} of shape {shape_text(t)} is not aligned: one element along the {before} axes before "
                f"and the {after} after what is indexed",
                hint="leave aligned out: index tensors without those axes",
            )
    return broadcast_axes(fusion, indices)[before : indices[0].ndim - after]
