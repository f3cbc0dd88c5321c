"""Between which numbers the values of a tensor lie, from how they are made; integers wrap around as the type does."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from idgraph.arith import Expr, interval
from idgraph.ir.dtypes import DType, Scalar, int_limits, is_float, is_integer
from idgraph.ir.fusion import Tensor, TensorExpr
from idgraph.ir.op_table import VIEWS

Bounds = tuple[float, float]  # the least and the largest value; of integers both are exact

MOST = 2**48  # elements of an axis whose extent has no bound: no memory holds more
_DEPTH = 64  # operations behind each other that are followed
_ROUNDED = 2.0**-7  # what one operation of bfloat16 may add, relatively
_FINITE = {"float16": 6e4}  # below the largest number of a type; of others:
_LARGE = 2.0**120
# The values of operand 0, at other places or in another type.
_SAME = VIEWS | {"cast", "gather", "index_select", "index", "amax", "amin"}
_OPERATIONS = frozenset(
    {"add", "sub", "mul", "maximum", "minimum", "remainder", "fmod", "floor_divide", "where", "cat", "sum"}
)


def value_bounds(t: Tensor) -> Bounds:
    """The least and the largest value of an element of ``t``; all that its type holds where nothing is known.

    A result that may leave the range of its type wraps around, so that any number of the type is possible.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> i = f.iota(100, dtype="int8")
    >>> value_bounds(i), value_bounds(i + 28), value_bounds(i * 2), value_bounds(ig.cast(i, "int64") * 2)
    ((0, 99), (28, 127), (-128, 127), (0, 198))
    """
    return _Known().of(t, _DEPTH)


def _widest(dtype: DType) -> Bounds:
    if dtype == "bool":
        return 0, 1
    return int_limits(dtype) if is_integer(dtype) else (-inf, inf)


class _Known:
    """The bounds of one question, each tensor once: operands are shared."""

    def __init__(self) -> None:
        self._found: dict[Tensor, Bounds] = {}

    def of(self, t: Tensor, depth: int) -> Bounds:
        """The bounds of a tensor's values."""
        found = self._found.get(t)
        if found is not None:
            return found
        widest, e = _widest(t.dtype), t.definition
        made = self._unrounded(e, depth - 1) if e is not None and depth else None
        room = widest
        if made is not None and is_float(t.dtype):
            made = made[0] - abs(made[0]) * _ROUNDED, made[1] + abs(made[1]) * _ROUNDED
            most = _FINITE.get(t.dtype, _LARGE)  # beyond it a result may be infinite, and NaN what is made of it
            room = -most, most
        found = made if made is not None and room[0] <= made[0] <= made[1] <= room[1] else widest
        self._found[t] = found
        return found

    def _operand(self, a: Tensor | Scalar | Expr, depth: int) -> Bounds:
        if isinstance(a, Tensor):
            return self.of(a, depth)
        if isinstance(a, Expr):
            low, high = interval(a)
            return -inf if low is None else low, inf if high is None else high
        return a, a

    def _unrounded(self, e: TensorExpr, depth: int) -> Bounds | None:
        """The bounds of a result before it is a number of its type; None where nothing is known."""
        if e.op == "where" and _is_wrapped(e.args):
            return 0, int_limits("int64")[1]  # whatever is left of it is refused by the bounds of the axis
        if e.op == "iota":
            return _iota_range(e)
        if e.op == "full":
            value = e.attrs["value"]
            return (value, value) if isinstance(value, (int, float)) else None
        if e.op in _SAME:
            low, high = self._operand(e.args[0], depth)
            return (int(low), int(high)) if _is_cut(e) and max(-low, high) < inf else (low, high)
        if e.op not in _OPERATIONS:
            return None
        given = [self._operand(a, depth) for a in (e.args[1:] if e.op == "where" else e.args)]
        # a float without bounds may be NaN, and so may be what is made of it
        return _combined(e, given) if all(-inf < low and high < inf for low, high in given) else None


def _is_cut(e: TensorExpr) -> bool:
    """Whether floats become integers, which cuts them towards zero."""
    return e.op == "cast" and is_integer(e.outputs[0].dtype)


def _combined(e: TensorExpr, given: Sequence[Bounds]) -> Bounds | None:
    """The bounds of a result of operands."""
    (low, high), (least, most) = given[0], given[-1]
    match e.op:
        case "add":
            return low + least, high + most
        case "sub":
            return low - most, high - least
        case "mul":
            corners = [a * b for a in (low, high) for b in (least, most)]
            return min(corners), max(corners)
        case "maximum":
            return max(low, least), max(high, most)
        case "minimum":
            return min(low, least), min(high, most)
        case "where" | "cat":
            return min(b[0] for b in given), max(b[1] for b in given)
        case "remainder":
            return (0, most) if least > 0 else None
        case "fmod":
            return (0, high) if low >= 0 and least >= 0 else None
        case "floor_divide":
            return (0, high) if low >= 0 and least >= 0 and is_integer(e.outputs[0].dtype) else None
        case _:  # a sum
            times = _terms(e)
            return min(low * times, low), max(high * times, high)


def _terms(e: TensorExpr) -> int:
    """At most so many terms has each sum."""
    read, made = e.inputs[0].shape, e.outputs[0].shape  # without the axes that are added up
    sizes = [int(n) for n in (*read, *made) if not isinstance(n, Expr)]
    if len(sizes) < len(read) + len(made):
        return MOST
    return prod(sizes[: len(read)]) // max(prod(sizes[len(read) :]), 1)


def _iota_range(e: TensorExpr) -> Bounds | None:
    start, step, n = e.attrs["start"], e.attrs["step"], e.outputs[0].logical[0].extent
    if not isinstance(start, (int, float)) or not isinstance(step, (int, float)):
        return None
    high = interval(n)[1]
    last = start + step * max((MOST if high is None else min(high, MOST)) - 1, 0)
    return min(start, last), max(start, last)


def _is_wrapped(args: Sequence[Tensor | Scalar | Expr]) -> bool:
    """``where(i < 0, i + n, i)``: made by `idgraph.ir.ops_index.counted_from_front`."""
    condition, moved, index = args
    if not isinstance(condition, Tensor) or not isinstance(moved, Tensor):
        return False
    test, shift = condition.definition, moved.definition
    return (
        test is not None and shift is not None and test.op == "lt" and shift.op == "add"
        and test.args[0] is index and shift.args[0] is index and test.args[1] == 0
    )  # fmt: skip
