"""Tensors made without operands: one value, or counted numbers."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from idgraph.arith import Expr
from idgraph.errors import OperationError, short_repr
from idgraph.ir.dtypes import Scalar, check_dtype, is_float
from idgraph.ir.exprs import Attr
from idgraph.ir.fusion import Fusion, Tensor
from idgraph.ir.pointwise import flat_domain
from idgraph.ir.registry import primitive
from idgraph.ir.shape import expr_tuple
from idgraph.ir.verify import LARGEST


@primitive("full")
def build_full(
    fusion: Fusion, args: tuple[Tensor | Scalar | Expr, ...], attrs: Mapping[str, Attr], name: str | None
) -> Tensor:
    """``full(; shape, value, dtype)``."""
    extents = [fusion.extent("full", p, int(e) if e.is_const else e) for p, e in enumerate(expr_tuple(attrs, "shape"))]
    value = attrs.get("value")
    if not isinstance(value, (bool, int, float)) or args:
        raise OperationError(f"value {value!r} is not a number")
    axes = [fusion.new_domain(e) for e in extents]
    return fusion.emit("full", (), dict(attrs), [], check_dtype(attrs.get("dtype")), flat_domain(axes), name)


@primitive("iota")
def build_iota(
    fusion: Fusion, args: tuple[Tensor | Scalar | Expr, ...], attrs: Mapping[str, Attr], name: str | None
) -> Tensor:
    """``iota(; n, start, step, dtype)``: element c is start + step * c."""
    (n,) = expr_tuple({"n": (attrs.get("n"),)}, "n")
    for key in ("start", "step"):
        value = attrs.get(key)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise OperationError(f"{key} {short_repr(value)} is not a number")
        if isinstance(value, float) and not isfinite(value):
            raise OperationError(f"{key} {value!r} is not finite")
        if isinstance(value, int) and not -LARGEST - 1 <= value <= LARGEST:
            raise OperationError(f"{key} {value} does not fit an int64")
        if isinstance(value, float) and not is_float(check_dtype(attrs.get("dtype"))):
            raise OperationError(f"{key} {value!r} is not an integer, and dtype is {attrs.get('dtype')}")
    if args:
        raise OperationError("takes no operand")
    start, step, last = attrs["start"], attrs["step"], 0
    if n.is_const and isinstance(start, int) and isinstance(step, int):
        last = start + step * max(int(n) - 1, 0)
    if not -LARGEST - 1 <= last <= LARGEST:
        raise OperationError(f"its last number, {last}, does not fit an int64")
    axes = [fusion.new_domain(fusion.extent("iota", 0, int(n) if n.is_const else n))]
    return fusion.emit("iota", (), dict(attrs), [], check_dtype(attrs.get("dtype")), flat_domain(axes), name)
