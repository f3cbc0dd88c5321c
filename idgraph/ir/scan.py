"""Scans: the running sum, product, maximum, minimum or logarithm of the sum of exp along one axis.

Element i of the result is made of elements 0 .. i of the operand. The axes of the two are one to one, as in a pointwise
operation; a kernel visits the scanned axis in order and keeps the running value, so that its cost is linear.
"""

from __future__ import annotations

from collections.abc import Mapping

from idgraph.arith import Expr
from idgraph.errors import OperationError
from idgraph.ir.dtypes import Scalar, check_dtype, is_float
from idgraph.ir.exprs import SCANS, Attr, AxisRead, Mapped
from idgraph.ir.fusion import Fusion, Tensor
from idgraph.ir.pointwise import flat_domain
from idgraph.ir.reduce import check_axis, one_tensor
from idgraph.ir.registry import primitive


def _build_scan(
    fusion: Fusion, op: str, args: tuple[Tensor | Scalar | Expr, ...], attrs: Mapping[str, Attr], name: str | None
) -> Tensor:
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

    def _builder(
        fusion: Fusion,
        args: tuple[Tensor | Scalar | Expr, ...],
        attrs: Mapping[str, Attr],
        name: str | None,
        op: str = _op,
    ) -> Tensor:
        return _build_scan(fusion, op, args, attrs, name)

    primitive(_op)(_builder)
