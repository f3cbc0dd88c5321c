"""Constants folded before anything is scheduled: a tensor of one number becomes `full`, or a number in its readers.

A decomposition computes with constants as with tensors: a shift by 2 compares 2, takes the lesser of 2 and 62, raises
2 to it, each a kernel of one element. Only numbers that every target has alike are folded: finite ones, whose zero is
not negative.
"""

# The functions of `operator` have no types:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeGuard

from idgraph.errors import OperationError, ScheduleError, arguments
from idgraph.ir import DType, Fusion, Tensor, TensorExpr, check_fusion
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr
from idgraph.ir.clone import rewriting
from idgraph.ir.dtypes import ELEMENT_TYPES, Scalar, is_float, is_short_float, item_size
from idgraph.ir.op_table import POINTWISE, VIEWS, apply
from idgraph.rewrite.canonicalize_views import replace_operation

EXACT = 1 << 24  # a float32 holds every integer up to this one


def _square(a: Any) -> Any:
    return a * a


def _both(a: Scalar, b: Scalar) -> bool:
    return bool(a) and bool(b)


def _logical_or(a: Scalar, b: Scalar) -> bool:
    return bool(a) or bool(b)


def _either(a: Scalar, b: Scalar) -> bool:
    return bool(a) != bool(b)


_INTEGERS: Mapping[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "abs": abs,
    "maximum": max, "minimum": min, "square": _square, "bitwise_and": operator.and_,
    "bitwise_or": operator.or_, "bitwise_xor": operator.xor, "bitwise_not": operator.invert,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "pow": pow,
}  # fmt: skip
_FLOATS: Mapping[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "neg": operator.neg,
    "abs": abs, "maximum": max, "minimum": min, "square": _square, "sqrt": math.sqrt, "exp": math.exp,
    "log": math.log, "sin": math.sin, "cos": math.cos, "tanh": math.tanh, "reciprocal": partial(operator.truediv, 1.0),
}  # fmt: skip
_TRUTHS: Mapping[str, Callable[..., Any]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "logical_not": operator.not_, "logical_and": _both, "logical_or": _logical_or, "logical_xor": _either,
}  # fmt: skip


@arguments(ScheduleError, first=True, keep=rewriting)
def fold_constants(fusion: Fusion) -> int:
    """Compute what follows from constants; returns the number of operations removed.

    >>> import idgraph as ig
    >>> f = ig.Fusion("shift")
    >>> x, two = f.input("x", (64,), "int64"), f.full((), 2, "int64")
    >>> inside = ig.logical_and(ig.ge(two, 0), ig.lt(two, 64))
    >>> t = f.output(ig.where(inside, ig.floor_divide(x, ig.pow(2, ig.minimum(two, 62))), -1))
    >>> fold_constants(f)
    6
    >>> print("; ".join(str(e) for e in f.exprs))
    t7[I3] = floor_divide(x[I0], 4); t8[I4] = copy(t7[I3])
    """
    return folded(check_fusion(fusion, "fold_constants", ScheduleError))


def folded(fusion: Fusion) -> int:
    """`fold_constants` for a scheduler, whose own call guards the fusion."""
    before = len(fusion.exprs)
    known: dict[Tensor, Scalar] = {}
    for e in fusion.exprs:
        value = _uniform_value(e, known) if len(e.outputs) == 1 else None
        if value is not None:
            known[e.output] = value
    for e in fusion.exprs:
        if e.op in POINTWISE and e.output not in known and any(t in known for t in e.inputs):
            _with_numbers(e, known)
    _sweep(fusion, known)
    return before - len(fusion.exprs)


def _with_numbers(e: TensorExpr, known: Mapping[Tensor, Scalar]) -> None:
    """Let ``e`` read numbers for the tensors that are one, where it then computes the same."""
    fusion, t = e.output.fusion, e.output
    args = [known.get(a, a) if isinstance(a, Tensor) else a for a in e.args]
    if e.op == "where" and not isinstance(args[0], Tensor):
        picked = args[1] if args[0] else args[2]
        if isinstance(picked, Tensor):
            replace_operation(e, lambda: picked if picked.ndim == t.ndim else movement.expand(picked, list(t.shape)))
        return
    changed = [a for a, new in zip(e.args, args, strict=True) if isinstance(a, Tensor) and not isinstance(new, Tensor)]
    if not any(isinstance(a, Tensor) for a in args) or any(
        a.ndim and not _is_exact(known[a], "float32") for a in changed
    ):
        return
    build = partial(apply, fusion, e.op, args, e.attrs)
    mark = fusion.mark
    try:
        made = build()
        same = made.dtype == t.dtype and made.ndim == t.ndim
    except OperationError:  # a number that its neighbours' type does not hold
        same = False
    fusion.undo(mark)
    if same:
        replace_operation(e, build)


def _full(t: Tensor, value: Scalar) -> Tensor:
    return t.fusion.full([attr(d.extent) for d in t.axes], value, t.dtype)


def _sweep(fusion: Fusion, known: Mapping[Tensor, Scalar]) -> None:
    """Remove operations that nobody reads; those that are read become one number everywhere."""
    for e in reversed(fusion.exprs):
        t = e.outputs[0]
        if t not in known or t.definition is not e or t not in fusion.tensors:
            continue
        if not t.uses and not fusion.is_output(t):
            fusion.remove([e])
        elif e.op != "full":
            replace_operation(e, partial(_full, t, known[t]))


# values ---------------------------------------------------------------------------------------------------------------


def _uniform_value(e: TensorExpr, known: Mapping[Tensor, Scalar]) -> Scalar | None:
    """The one number that the output of ``e`` holds everywhere; None where it is not known."""
    dtype = e.outputs[0].dtype
    if e.op == "full":
        value = e.attrs["value"]
        return _representable(value, dtype) if isinstance(value, (bool, int, float)) else None
    if e.op in VIEWS:
        return known.get(e.inputs[0])
    if e.op not in POINTWISE:
        return None
    values = [known.get(a) if isinstance(a, Tensor) else a for a in e.args]
    if e.op == "where" and _is_number(values[0]):
        picked = values[1] if values[0] else values[2]
        return _representable(picked, dtype) if _is_number(picked) else None
    if not all(_is_number(v) for v in values):
        return None
    numbers = [v for v in values if _is_number(v)]
    if e.op in ("cast", "copy"):
        return _representable(numbers[0], dtype)
    wide = all(a.dtype == "float64" for a in e.args if isinstance(a, Tensor))
    if not wide and not all(_is_exact(v, "float32") for v in numbers if isinstance(v, float)):
        return None
    return _computed(e.op, numbers, dtype)


def _computed(op: str, numbers: list[Scalar], dtype: DType) -> Scalar | None:
    floats = any(isinstance(v, float) for v in numbers) or is_float(dtype)
    if floats and any(abs(v) > EXACT for v in numbers if not isinstance(v, float)):
        return None
    table: Mapping[str, Callable[..., Any]] = _TRUTHS if dtype == "bool" else _FLOATS if floats else _INTEGERS
    if op not in table or (floats and dtype != "bool" and not is_float(dtype)):
        return None
    if op == "pow" and not 0 <= numbers[1] < 64:
        return None
    if floats and dtype != "bool":
        numbers = [float(v) for v in numbers]
    elif not floats:
        numbers = [int(v) for v in numbers]
    try:
        found: Any = table[op](*numbers)
    except (ArithmeticError, ValueError):
        return None
    if floats and is_short_float(dtype):
        found = _rounded(float(found), "float32")
    return None if found is None else _representable(found, dtype)


def _is_number(value: object) -> TypeGuard[Scalar]:
    return isinstance(value, (bool, int, float))


def _representable(value: Scalar, dtype: DType) -> Scalar | None:
    """``value`` as a tensor of this type holds it; None where targets may differ."""
    if isinstance(value, float) and (not math.isfinite(value) or (value == 0.0 and math.copysign(1, value) < 0)):
        return None
    if dtype == "bool":
        return bool(value)
    if is_float(dtype):
        if not isinstance(value, float) and abs(value) > EXACT:
            return None
        return _rounded(float(value), dtype)
    bits, signed = 8 * item_size(dtype), ELEMENT_TYPES[dtype].signed
    if isinstance(value, float):
        low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
        return int(value) if low <= int(value) < high else None
    value = int(value) & ((1 << bits) - 1)
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def _is_exact(value: Scalar, dtype: DType) -> bool:
    return not isinstance(value, float) or _rounded(value, dtype) == value


def _rounded(value: float, dtype: DType) -> float | None:
    """The nearest number of the type, halves to even; None beyond its range."""
    if dtype == "float64":
        return value
    try:
        if dtype == "float16":
            return float(struct.unpack("<e", struct.pack("<e", value))[0])
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
    except OverflowError:
        return None
    if dtype == "bfloat16":
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    found = float(struct.unpack("<f", struct.pack("<I", bits))[0])
    return found if math.isfinite(found) else None
