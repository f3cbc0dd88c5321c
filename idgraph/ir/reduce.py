"""Reductions and matmul: the output keeps its reduced axes in ``logical`` with kind "reduction"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from idgraph.arith import Expr
from idgraph.errors import OperationError
from idgraph.ir.domains import IterDomain
from idgraph.ir.dtypes import DType, Scalar, check_dtype, is_float, promote
from idgraph.ir.exprs import Attr, AxisRead, Mapped
from idgraph.ir.fusion import Fusion, Tensor, TensorExpr
from idgraph.ir.optable import names
from idgraph.ir.pointwise import flat_domain, read_of, same_extent
from idgraph.ir.registry import primitive

REDUCTIONS = names(kind="reduction")
ROUNDED_TO: Final = "rounded_to"  # attribute of a sum that is a part of another: the type which that one is rounded to


def one_tensor(args: tuple[Tensor | Scalar | Expr, ...], count: int = 1) -> tuple[Tensor, ...]:
    """The operands as tensors; raises unless there are exactly ``count``."""
    tensors = tuple(a for a in args if isinstance(a, Tensor))
    if len(tensors) != count or len(args) != count:
        raise OperationError(f"takes {count} tensor(s), got {len(args)} operand(s)")
    return tensors


def int_tuple(attrs: Mapping[str, Attr], key: str) -> tuple[int, ...]:
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
        raise OperationError(
            f"tensor {tensor.name} has no axis {dim!r}", hint=f"its shape is ({shape}): axes {-count} to {count - 1}"
        )
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


def _build_reduction(
    fusion: Fusion, op: str, args: tuple[Tensor | Scalar | Expr, ...], attrs: Mapping[str, Attr], name: str | None
) -> Tensor:
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

    def _builder(
        fusion: Fusion,
        args: tuple[Tensor | Scalar | Expr, ...],
        attrs: Mapping[str, Attr],
        name: str | None,
        op: str = _op,
    ) -> Tensor:
        return _build_reduction(fusion, op, args, attrs, name)

    primitive(_op)(_builder)


@primitive("matmul")
def build_matmul(
    fusion: Fusion, args: tuple[Tensor | Scalar | Expr, ...], attrs: Mapping[str, Attr], name: str | None
) -> Tensor:
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
