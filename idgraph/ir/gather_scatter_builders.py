"""Operations that write at loaded coordinates: each point of the index's axes updates one element of the output.

``out = scatter(x, index, src)`` is x with src written at the indices. The output's *logical* axes are x's; its *root*
axes, over which its loops run, are the index's. The axis that the index names is of kind "gather_scatter": no loop
leads to it, its coordinate is a loaded value, no graph maps it. The other axes of x are the same as the index's (or a
part of them, where the index is smaller). x itself is operand 0: it is read at the element that is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from idgraph.arith import Expr, as_expr, is_true, simplify
from idgraph.errors import OperationError
from idgraph.ir.argument_resolution import shape_text
from idgraph.ir.axis_read import Attrs, AxisRead, LoadedCoordinate, Mapped
from idgraph.ir.dtypes import is_integer
from idgraph.ir.fusion import Fusion, Operands, Tensor, TensorExpr
from idgraph.ir.iter_domain import DomainExpr, IterDomain, Resize, TensorDomain
from idgraph.ir.op_builders import aligned_reads, broadcast_axes, check_axis, one_tensor, read_of, same_extent
from idgraph.ir.op_table import SCATTERS, primitive
from idgraph.ir.view_builders import define, moved_domain


def check_index(index: Tensor) -> None:
    """Raise unless an index tensor holds integers."""
    if not is_integer(index.dtype):
        raise OperationError(f"index {index.name} is {index.dtype}", hint="an index tensor holds integers: ig.cast it")


def _same_rank(args: Operands, attrs: Attrs) -> tuple[Tensor, Tensor, int]:
    """(tensor, index of the same rank, gathered axis)."""
    x, index = one_tensor(args, 2)
    check_index(index)
    if x.ndim != index.ndim:
        raise OperationError(f"index {index.name} has {index.ndim} axes, {x.name} has {x.ndim}; they must agree")
    return x, index, check_axis(x, attrs.get("dim"))


@primitive("gather")
def build_gather(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
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
def build_take_along_dim(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
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
def build_index_select(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
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
def build_embedding(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
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
def build_index(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``index(x, i0, i1, ...; dims)``: x indexed along adjacent ``dims`` by broadcasting index tensors.

    With ``aligned`` the index tensors have the rank of the result: one element along what is not indexed.
    """
    if len(args) < 2:
        raise OperationError("takes a tensor and at least one index tensor")
    x, *indices = one_tensor(args, len(args))
    _, before, middle, after, reads = _indexed_axes(fusion, x, indices, attrs)
    logical = [*before, *middle, *after]
    return fusion.emit("index", args, dict(attrs), reads, x.dtype, moved_domain(logical, logical), name)


def _indexed_axes(
    fusion: Fusion, x: Tensor, indices: Sequence[Tensor], attrs: Attrs
) -> tuple[list[int], list[IterDomain], Sequence[IterDomain], list[IterDomain], list[Sequence[AxisRead]]]:
    """The axes of ``x`` that are indexed; fresh ones before, of the index tensors, and after; the reads of all."""
    value = attrs.get("dims")
    dims = [check_axis(x, d) for d in value] if isinstance(value, tuple) else []
    if len(dims) != len(indices) or dims != list(range(dims[0], dims[0] + len(dims))):
        raise OperationError(f"dims {value!r} must be adjacent, increasing, one for each index tensor")
    for t in indices:
        check_index(t)
    before = [fusion.new_domain(d.extent) for d in x.axes[: dims[0]]]
    after = [fusion.new_domain(d.extent) for d in x.axes[dims[-1] + 1 :]]
    middle = index_axes(fusion, indices, attrs, len(before), len(after))
    loaded = (LoadedCoordinate(k + 1) for k in range(len(indices)))
    along = [*before, *middle, *after] if attrs.get("aligned") is True else middle
    own: list[AxisRead] = [*(Mapped(d) for d in before), *loaded, *(Mapped(d) for d in after)]
    return dims, before, middle, after, [own, *(aligned_reads(t, along) for t in indices)]


def index_axes(
    fusion: Fusion, indices: Sequence[Tensor], attrs: Attrs, before: int, after: int
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


ADDED = ("float32", "float64", "int32", "int64")
"""Types in which elements are added up in place; `idgraph.scatter_add` widens the others first."""


def scatter_axes(e: TensorExpr) -> tuple[tuple[IterDomain, int], ...]:
    """Output axes whose coordinate is a loaded value, each with the operand it is loaded from; only a scatter has any.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(4, 9)), f.input("i", shape=(4, 1), dtype="int64")
    >>> scatter_axes(ig.scatter(x, 1, i, 1.0).definition)
    ((g6[9], 1),)
    """
    if e.op not in SCATTERS:
        return ()
    pairs = zip(e.output.axes, e.reads[0], strict=True)
    return tuple((d, read.operand) for d, read in pairs if isinstance(read, LoadedCoordinate))


def entry_axes(e: TensorExpr) -> tuple[IterDomain, ...]:
    """Root axes of a scatter whose points may write one element: those that the written axes do not follow, but for
    those along which an index counts (``x[arange(n), i]``): no two of its entries are equal.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i, y = f.input("x", shape=(4, 9)), f.input("i", shape=(4,), dtype="int64"), f.input("y", shape=(4,))
    >>> [len(entry_axes(ig.index_put(x, at, y[: n]).definition)) for at, n in (([None, i], 1), ([f.iota(4), i], 4))]
    [1, 0]
    """
    if e.op not in SCATTERS:
        return ()
    kept = {d for x in e.output.domain.exprs for d in x.inputs} | set(e.output.logical)
    if e.op == "index_put":
        kept |= {d for _, k in scatter_axes(e) if (d := _iota_axis(e, k)) is not None}
    return tuple(d for d in e.output.root if d not in kept)


def _iota_axis(e: TensorExpr, k: int) -> IterDomain | None:
    """The axis along which index ``k`` counts, and no other: it is an iota, perhaps with axes of one element."""
    along = [(p, r.domain) for p, r in enumerate(e.reads[k]) if isinstance(r, Mapped)]
    t = e.inputs[k]
    wide = [d for p, d in along if not t.axes[p].is_broadcast]
    while (made := t.definition) is not None and made.op in ("unsqueeze", "squeeze", "copy"):
        t = made.inputs[0]
    counts = made is not None and made.op == "iota" and isinstance(step := made.attrs["step"], int) and step != 0
    return wide[0] if counts and len(wide) == 1 else None


def has_atomic_update(e: TensorExpr) -> Literal["sum", "amax"] | None:
    """The operation that combines an element with the value scattered to it; None where the value replaces it."""
    if e.op == "scatter_add" or (e.op == "index_put" and e.attrs.get("accumulate") is True):
        return "sum"
    return "amax" if e.op == "index_put" and e.attrs.get("accumulate") == "amax" else None


def adds(e: TensorExpr) -> bool:
    """True of a scatter whose points may come in any order: it combines them with what is there."""
    return has_atomic_update(e) is not None


def _scatter_axis(
    fusion: Fusion, x: Tensor, p: int, entries: IterDomain
) -> tuple[IterDomain, IterDomain, list[DomainExpr]]:
    """(root, logical, expressions) of an axis that the index shares with x, whole or the front part of it."""
    wide = x.axes[p].extent
    if same_extent(entries.extent, wide):
        own = fusion.new_domain(wide)
        return own, own, []
    if not is_true(entries.extent <= wide):
        raise OperationError(
            f"axis {p} of the index has extent {entries.extent}, more than {wide} of {x.name}",
            hint=f"{x.name} has shape {shape_text(x)}; off dim the index's own coordinates are written",
        )
    root, logical = fusion.new_domain(entries.extent), fusion.new_domain(wide)
    return root, logical, [define(Resize(root, logical, as_expr(0), simplify(wide - entries.extent)), logical)]


def _target(fusion: Fusion, extent: Expr) -> IterDomain:
    """An axis that is written at loaded coordinates."""
    return fusion.new_domain(extent, "broadcast" if extent == as_expr(1) else "gather_scatter")


def _domain(root: Sequence[IterDomain], logical: Sequence[IterDomain], exprs: Sequence[DomainExpr]) -> TensorDomain:
    """Loops run over the root axes, memory holds the logical ones."""
    own = tuple(logical)
    return TensorDomain(tuple(root), own, own, tuple(root), (None,) * len(own), tuple(exprs))


def _scatter_operands(args: Operands) -> tuple[Tensor, list[Tensor], Tensor | None]:
    """(x, the index tensors, src or None where it is a number)."""
    x, *middle, last = args if len(args) >= 3 else (None, None, None)
    if not isinstance(x, Tensor) or not all(isinstance(t, Tensor) for t in middle) or isinstance(last, Expr):
        raise OperationError("takes x, index and src, the last of which may be a number")
    indices = [t for t in middle if isinstance(t, Tensor)]
    for t in indices:
        check_index(t)
    if isinstance(last, Tensor) and last.dtype != x.dtype:
        raise OperationError(
            f"src {last.name} is {last.dtype}, {x.name} is {x.dtype}",
            hint=f'torch refuses that too: ig.cast(src, "{x.dtype}")',
        )
    return x, indices, last if isinstance(last, Tensor) else None


def _build_scatter(fusion: Fusion, op: str, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    x, indices, src = _scatter_operands(args)
    if len(indices) != 1 or indices[0].ndim != x.ndim:
        raise OperationError(f"takes one index with as many axes as {x.name}, which has shape {shape_text(x)}")
    index, dim = indices[0], check_axis(x, attrs.get("dim"))
    root: list[IterDomain] = []
    logical: list[IterDomain] = []
    exprs: list[DomainExpr] = []
    for p, d in enumerate(index.axes):
        if p == dim:
            root.append(fusion.new_domain(d.extent))
            logical.append(_target(fusion, x.axes[p].extent))
        else:
            own, out, more = _scatter_axis(fusion, x, p, d)
            root.append(own)
            logical.append(out)
            exprs += more
    _check_source_shape(src, root, x)
    row: list[AxisRead] = [Mapped(d) for d in root]
    kept: list[AxisRead] = [LoadedCoordinate(1) if p == dim else Mapped(d) for p, d in enumerate(logical)]
    reads = [kept, row, *([row] if src is not None else [])]
    return fusion.emit(op, args, dict(attrs), reads, x.dtype, _domain(root, logical, exprs), name)


def _check_source_shape(src: Tensor | None, root: Sequence[IterDomain], x: Tensor) -> None:
    if src is None:
        return
    wanted = ", ".join(str(d.extent) for d in root)
    if src.ndim != len(root) or not all(same_extent(a.extent, b.extent) for a, b in zip(src.axes, root, strict=True)):
        raise OperationError(f"src {src.name} has shape {shape_text(src)}, what is written to {x.name} has ({wanted})")


def _check_added(x: Tensor) -> None:
    if x.dtype not in ADDED:
        raise OperationError(
            f"{x.name} is {x.dtype}: it cannot be added to in place",
            hint=f"one of {', '.join(ADDED)}; ig.scatter_add and ig.index_put add the others up in a wider type",
        )


@primitive("scatter")
def build_scatter(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``scatter(x, index, src; dim)``: out[index[i, j], j] = src[i, j] for dim 0; the last of several writers wins."""
    return _build_scatter(fusion, "scatter", args, attrs, name)


@primitive("scatter_add")
def build_scatter_add(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``scatter_add(x, index, src; dim)``: out[index[i, j], j] += src[i, j] for dim 0."""
    made = _build_scatter(fusion, "scatter_add", args, attrs, name)
    _check_added(made)
    return made


@primitive("index_put")
def build_index_put(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``index_put(x, i0, i1, ..., values; dims, accumulate)``: x[..., i0, i1, ...] = (or +=) values.

    ``dims`` are adjacent; the index tensors broadcast against each other, the values against what is written.
    ``accumulate`` is False, True, or "amax" for the larger of the two (integers only). With ``aligned`` the index
    tensors have the rank of what is written: one element along what is not indexed.
    """
    x, indices, values = _scatter_operands(args)
    accumulate = attrs.get("accumulate")
    if not isinstance(accumulate, bool) and accumulate != "amax":
        raise OperationError('accumulate is not one of True, False, "amax"')
    if accumulate:
        _check_added(x)
    if accumulate == "amax" and x.dtype not in ("int32", "int64"):
        raise OperationError(f"{x.name} is {x.dtype}: only integers keep the larger one", hint="int32 or int64")
    dims, before, middle, after, reads = _indexed_axes(fusion, x, indices, attrs)
    root = [*before, *middle, *after]
    targets = [_target(fusion, x.axes[p].extent) for p in dims]
    if values is not None:
        _broadcasts_to(values, root, x)
        reads.append(aligned_reads(values, root))
    return fusion.emit(
        "index_put", args, dict(attrs), reads, x.dtype, _domain(root, [*before, *targets, *after], []), name
    )


def _broadcasts_to(values: Tensor, root: Sequence[IterDomain], x: Tensor) -> None:
    fits = values.ndim <= len(root) and all(
        a.is_broadcast or same_extent(a.extent, b.extent)
        for a, b in zip(reversed(values.axes), reversed(root), strict=False)
    )
    if not fits:
        wanted = ", ".join(str(d.extent) for d in root)
        raise OperationError(
            f"values {values.name} of shape {shape_text(values)} do not broadcast to the ({wanted}) elements of "
            f"{x.name} that are written"
        )
