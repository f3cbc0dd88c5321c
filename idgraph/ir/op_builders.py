"""Pointwise operations: operands align at their last axes and broadcast as in NumPy and torch.

Reductions and matmul: the output keeps its reduced axes in ``logical`` with kind "reduction".

Element i of the result is made of elements 0 .. i of the operand. The axes of the two are one to one, as in a pointwise
operation; a kernel visits the scanned axis in order and keeps the running value, so that its cost is linear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from idgraph.arith import Expr, as_expr
from idgraph.arith.prove import equal_by_rules
from idgraph.errors import OperationError
from idgraph.ir.argument_resolution import shape_text
from idgraph.ir.axis_read import Attrs, AxisRead, Fixed, Mapped
from idgraph.ir.dtypes import DType, Scalar, check_dtype, is_float, promote, scalar_dtype
from idgraph.ir.fusion import Fusion, Operands, Tensor, TensorExpr
from idgraph.ir.iter_domain import IterDomain, TensorDomain
from idgraph.ir.op_table import OPERATIONS, SCANS, Result, names, primitive


def same_extent(a: Expr, b: Expr) -> bool:
    """Equal by proof: ``2*n`` and ``n + n`` are one extent, and so are ``(n + -n%4)//4`` and ``(n + 3)//4``."""
    return equal_by_rules(a, b)


def operand_dtype(arg: Tensor | Scalar | Expr) -> DType:
    """The type of a tensor, or torch's default type of a number."""
    if isinstance(arg, Tensor):
        return arg.dtype
    return "int64" if isinstance(arg, Expr) else scalar_dtype(arg)


def result_dtype(args: Sequence[Tensor | Scalar | Expr]) -> DType:
    """torch's promotion over operands."""
    tensors: list[DType] = [a.dtype for a in args if isinstance(a, Tensor)]
    return promote(tensors, [operand_dtype(a) for a in args if not isinstance(a, Tensor)])


def broadcast_axes(fusion: Fusion, tensors: Sequence[Tensor]) -> tuple[IterDomain, ...]:
    """Fresh output axes of broadcast operands; raises where two extents differ and neither is 1."""
    listed = [(t, t.axes) for t in tensors]
    rank = max((len(own) for _, own in listed), default=0)
    axes: list[IterDomain] = []
    for p in range(rank):
        chosen: tuple[Tensor, int, IterDomain] | None = None
        for t, own in listed:
            at = p - (rank - len(own))
            if at < 0 or own[at].is_broadcast:
                continue
            d = own[at]
            if chosen is None:
                chosen = (t, at, d)
            elif not same_extent(chosen[2].extent, d.extent):
                first, first_at, first_d = chosen
                if fusion.equate(first_d.extent, d.extent, _meeting(fusion, t, at, first, first_at)):
                    continue
                raise OperationError(
                    f"axis {at} of {t.name} has extent {d.extent}, axis {first_at} of {first.name} has "
                    f"{first_d.extent}: they are not the same axis and neither is a broadcast",
                    because=[f"{t.name} has shape {shape_text(t)}, {first.name} has shape {shape_text(first)}"],
                    hint="axes align from the last one; unsqueeze, expand or slice one of them",
                )
        axes.append(fusion.new_domain(chosen[2].extent if chosen else 1))
    return tuple(axes)


def _meeting(fusion: Fusion, t: Tensor, at: int, other: Tensor, other_at: int) -> str:
    line = fusion.line
    where = f" at {line.file}:{line.line}" if line is not None else ""
    return f"axis {at} of {t.name} meets axis {other_at} of {other.name}{where}"


def read_of(axis: IterDomain, to: IterDomain) -> AxisRead:
    """An operand's axis beside the root axis it meets: mapped, or coordinate 0 where a broadcast is resolved."""
    if axis.is_broadcast and not to.is_broadcast:
        return Fixed(as_expr(0), "broadcast", to)
    return Mapped(to)


def aligned_reads(tensor: Tensor, axes: Sequence[IterDomain]) -> tuple[AxisRead, ...]:
    """The reads of a broadcast operand: mapped axes, and coordinate 0 where a broadcast is resolved."""
    shift = len(axes) - tensor.ndim
    return tuple(read_of(d, axes[p + shift]) for p, d in enumerate(tensor.axes))


def _all_reads(tensors: Sequence[Tensor], axes: Sequence[IterDomain]) -> list[tuple[AxisRead, ...]]:
    """The same of all operands; those that are read alike share one row, since a fusion keeps them all."""
    made: list[tuple[AxisRead, ...]] = []
    whole: tuple[AxisRead, ...] | None = None
    for t in tensors:
        own = t.axes
        if len(own) == len(axes) and all(a.is_broadcast == b.is_broadcast for a, b in zip(own, axes, strict=True)):
            whole = whole or tuple(map(Mapped, axes))
            made.append(whole)
        else:
            made.append(aligned_reads(t, axes))
    return made


def flat_domain(axes: Sequence[IterDomain]) -> TensorDomain:
    """Root, logical, allocation and loop axes all the same."""
    own = tuple(axes)
    kept = tuple(d for d in own if d.kind != "reduction")
    if len(kept) == len(own):
        kept = own
    return TensorDomain(own, own, kept, own, (None,) * len(kept))


def emit_pointwise(fusion: Fusion, op: str, args: Operands, dtype: DType, name: str | None, attrs: Attrs) -> Tensor:
    """Add a pointwise expression of result type ``dtype``."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    axes = broadcast_axes(fusion, tensors)
    return fusion.emit(op, args, dict(attrs), _all_reads(tensors, axes), dtype, flat_domain(axes), name)


def _need(args: Sequence[object], count: int) -> None:
    if len(args) != count:
        raise OperationError(f"takes {count} operand(s), got {len(args)}")
    if not any(isinstance(a, Tensor) for a in args):
        raise OperationError("no operand is a tensor")


def _as_float(args: Sequence[Tensor | Scalar | Expr]) -> DType:
    dtype = result_dtype(args)
    return dtype if is_float(dtype) else "float32"


def _as_same(args: Sequence[Tensor | Scalar | Expr]) -> DType:
    return result_dtype(args)


def _as_number(args: Sequence[Tensor | Scalar | Expr]) -> DType:
    dtype = result_dtype(args)
    if dtype == "bool":
        raise OperationError("operands are bool; torch has no such arithmetic", hint="cast to int64 first")
    return dtype


def _as_difference(args: Sequence[Tensor | Scalar | Expr]) -> DType:
    if any(operand_dtype(a) == "bool" for a in args):
        raise OperationError(
            "an operand is bool; torch has no difference with a truth value", hint="cast it, or use logical_xor"
        )
    return result_dtype(args)


def _as_bits(args: Sequence[Tensor | Scalar | Expr]) -> DType:
    dtype = result_dtype(args)
    if is_float(dtype):
        raise OperationError(f"operands are {dtype}", hint="bitwise operations take integers or bool")
    return dtype


def _as_bool(args: Sequence[Tensor | Scalar | Expr]) -> DType:
    result_dtype(args)
    return "bool"


_RULES: Mapping[Result, Callable[[Sequence[Tensor | Scalar | Expr]], DType]] = {
    "number": _as_number, "same": _as_same, "difference": _as_difference, "bits": _as_bits, "float": _as_float,
    "bool": _as_bool,
}  # fmt: skip


def _register(op: str, count: int, rule: Callable[[Sequence[Tensor | Scalar | Expr]], DType]) -> None:
    def build(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
        _need(args, count)
        return emit_pointwise(fusion, op, args, rule(args), name, attrs)

    primitive(op)(build)


for _row in OPERATIONS.values():
    if _row.result is not None:
        _register(_row.name, _row.operands, _RULES[_row.result])


@primitive("cast")
def build_cast(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``cast(x; dtype)``: torch's conversion (floats to integers toward zero)."""
    _need(args, 1)
    return emit_pointwise(fusion, "cast", args, check_dtype(attrs.get("dtype")), name, attrs)


@primitive("where")
def build_where(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``where(condition, a, b)``: a where the condition holds, else b."""
    _need(args, 3)
    if operand_dtype(args[0]) != "bool":
        raise OperationError(f"the condition is {operand_dtype(args[0])}, not bool", hint="compare it: ig.ne(x, 0)")
    return emit_pointwise(fusion, "where", args, _where_dtype(args[1:]), name, attrs)


def _where_dtype(args: Sequence[Tensor | Scalar | Expr]) -> DType:
    if any(isinstance(a, Tensor) for a in args):
        return result_dtype(args)
    return promote([operand_dtype(a) for a in args])


REDUCTIONS = names(kind="reduction")
ROUNDED_TO: Final = "rounded_to"  # attribute of a sum that is a part of another: the type which that one is rounded to


def one_tensor(args: Operands, count: int = 1) -> tuple[Tensor, ...]:
    """The operands as tensors; raises unless there are exactly ``count``."""
    tensors = tuple(a for a in args if isinstance(a, Tensor))
    if len(tensors) != count or len(args) != count:
        raise OperationError(f"takes {count} tensor(s), got {len(args)} operand(s)")
    return tensors


def int_tuple(attrs: Attrs, key: str) -> tuple[int, ...]:
    """An attribute that is a tuple of ints."""
    value = attrs.get(key)
    if isinstance(value, tuple):
        found = tuple(v for v in value if isinstance(v, int) and not isinstance(v, bool))
        if len(found) == len(value):
            return found
    raise OperationError(f"attribute {key} is {value!r}, not a tuple of ints")


def check_axis(tensor: Tensor, dim: object, extra: int = 0) -> int:
    """A dim counted from either end, as a position; raises with the tensor's shape."""
    count = tensor.ndim + extra
    if not isinstance(dim, int) or isinstance(dim, bool) or not -count <= dim < count:
        shape = ", ".join(map(str, tensor.shape))
        hint = f"its shape is ({shape}): axes {-count} to {count - 1}"
        after = ", a number before other operands" if isinstance(dim, Tensor) else ""
        raise OperationError(f"tensor {tensor.name} has no axis {dim!r}", hint=hint + after)
    return dim % count


def _reduced_dtype(op: str, tensor: Tensor) -> DType:
    if op in ("any", "all"):
        return "bool"
    if op in ("sum", "prod") and not is_float(tensor.dtype):
        return "int64"
    return tensor.dtype


def finished_type(e: TensorExpr) -> DType:
    """The type that a reduction's value is rounded to in the end, maybe after other parts are added.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.sum(f.input("x", shape=(4, 8), dtype="bfloat16"), dim=1)
    >>> finished_type(f.exprs[-1])
    'bfloat16'
    """
    return check_dtype(e.attrs.get(ROUNDED_TO, e.output.dtype))


def _build_reduction(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None, *, op: str) -> Tensor:
    (x,) = one_tensor(args)
    dims = {check_axis(x, d) for d in int_tuple(attrs, "dims")}
    keep = bool(attrs.get("keepdim", False))
    if op in ("amax", "amin"):
        empty = [p for p in dims if x.axes[p].extent == 0]
        if empty:
            raise OperationError(f"axis {empty[0]} of {x.name} has no element to take the {op} of")
    axes: list[IterDomain] = []
    reads: list[AxisRead] = []
    for p, d in enumerate(x.axes):
        made = fusion.new_domain(d.extent, "reduction" if p in dims else None)
        axes.append(made)
        reads.append(Mapped(made))
        if p in dims and keep:
            axes.append(fusion.new_domain(1))
    dtype = check_dtype(attrs["dtype"]) if "dtype" in attrs else _reduced_dtype(op, x)
    check_dtype(attrs.get(ROUNDED_TO, dtype))
    return fusion.emit(op, args, dict(attrs), [reads], dtype, flat_domain(axes), name)


for _op in REDUCTIONS:
    primitive(_op)(partial(_build_reduction, op=_op))


@primitive("matmul")
def build_matmul(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``matmul(a, b)``: [..., M, K] x [..., K, N] -> [..., M, N, (K reduced)], leading axes broadcast."""
    a, b = one_tensor(args, 2)
    if a.ndim < 2 or b.ndim < 2:
        raise OperationError(f"{a.name} has {a.ndim} axes and {b.name} has {b.ndim}; each needs at least two")
    ka, kb = a.axes[-1], b.axes[-2]
    if not same_extent(ka.extent, kb.extent):
        raise OperationError(
            f"axis {a.ndim - 1} of {a.name} has extent {ka.extent}, axis {b.ndim - 2} of {b.name} has {kb.extent}",
            hint="the contracted axes must have one extent",
        )
    rank = max(a.ndim, b.ndim)
    lead: list[IterDomain] = []
    for p in range(rank - 2):
        found = [t.axes[p - rank + t.ndim] for t in (a, b) if p - rank + t.ndim >= 0]
        wide = [d for d in found if not d.is_broadcast]
        if len(wide) == 2 and not same_extent(wide[0].extent, wide[1].extent):
            raise OperationError(
                f"leading axes of {a.name} and {b.name} have extents {wide[0].extent} and {wide[1].extent}"
            )
        lead.append(fusion.new_domain(wide[0].extent if wide else 1))
    m, n = fusion.new_domain(a.axes[-2].extent), fusion.new_domain(b.axes[-1].extent)
    k = fusion.new_domain(ka.extent, "reduction")

    def row(t: Tensor, last: tuple[IterDomain, IterDomain]) -> list[AxisRead]:
        heads: list[AxisRead] = []
        for p, d in enumerate(t.axes[:-2]):
            to = lead[p + rank - t.ndim]
            heads.append(read_of(d, to))
        return [*heads, Mapped(last[0]), Mapped(last[1])]

    dtype = promote([a.dtype, b.dtype])
    return fusion.emit(
        "matmul", args, dict(attrs), [row(a, (m, k)), row(b, (k, n))], dtype, flat_domain([*lead, m, n, k]), name
    )


def _build_scan(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None, *, op: str) -> Tensor:
    (x,) = one_tensor(args)
    check_axis(x, attrs.get("dim"))
    if op in ("cummax", "cummin"):
        if x.dtype == "bool":
            raise OperationError(f"{x.name} is bool", hint="cast it to int8 first")
        dtype = x.dtype
    elif op == "logcumsumexp":
        if not is_float(x.dtype):
            raise OperationError(f"{x.name} is {x.dtype}", hint="cast it to a float type first")
        dtype = x.dtype
    else:
        dtype = x.dtype if is_float(x.dtype) else "int64"
    dtype = check_dtype(attrs.get("dtype", dtype))
    axes = [fusion.new_domain(d.extent) for d in x.axes]
    reads: list[AxisRead] = [Mapped(d) for d in axes]
    return fusion.emit(op, args, dict(attrs), [reads], dtype, flat_domain(axes), name)


for _op in sorted(SCANS):
    primitive(_op)(partial(_build_scan, op=_op))
