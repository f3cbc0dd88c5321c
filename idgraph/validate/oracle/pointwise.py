"""Pointwise operations by name, in float64 (integers in int64, conditions in bool), with torch's meaning.

Rounding: each tensor as it would be in memory. Types up to float32 are in float32 arrays (which have all values of
bfloat16 and float16), integers in int64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from idgraph.arith import Expr
from idgraph.ir import DType, Scalar, Tensor, TensorExpr, is_float
from idgraph.ir.op_builders import result_dtype
from idgraph.validate.oracle.views import Array, Symbols, number


def kept_dtype(dtype: DType, rounded: bool) -> np.dtype[np.generic]:
    """The array type that holds values of a tensor type."""
    if dtype == "bool":
        return np.dtype(np.bool_)
    if not is_float(dtype):
        return np.dtype(np.int64)
    return np.dtype(np.float32 if rounded and dtype != "float64" else np.float64)


def round_bfloat16(x: Array) -> Array:
    """float32 values rounded to the nearest bfloat16, ties to even; still float32.

    >>> round_bfloat16(np.array([1.0, 1.00390625, 2.5], np.float32)).tolist()
    [1.0, 1.0, 2.5]
    """
    with np.errstate(over="ignore"):
        words = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
        even = (words >> np.uint32(16)) & np.uint32(1)
        cut = ((words + (np.uint32(0x7FFF) + even)) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(x), np.float32(np.nan), cut).reshape(x.shape)


def stored(x: Array, dtype: DType, rounded: bool = True) -> Array:
    """``x`` as a tensor of ``dtype`` holds it: rounded (half types through float32), wrapped, or true for non-zero."""
    with np.errstate(all="ignore"):
        if dtype == "bool":
            return x.astype(np.bool_)
        if not is_float(dtype):
            whole = x if x.dtype.kind in "iub" else np.trunc(x)
            wide = whole.astype(np.int64)
            return wide if dtype == "int64" else wide.astype(np.dtype(dtype)).astype(np.int64)
        if not rounded or dtype == "float64":
            return x.astype(np.float64)
        single = x.astype(np.float32)
        if dtype == "float32":
            return single
        return round_bfloat16(single) if dtype == "bfloat16" else single.astype(np.float16).astype(np.float32)


_BLOCK: Final = 1 << 18  # points at a time: the operands of a block stay in the cache

_erf = np.frompyfunc(math.erf, 1, 1)


def _nonzero(f: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: f(a != 0, b != 0)


def _floats(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """``f``, a rounding, for floats; integers stay as they are."""
    return lambda x: f(x) if x.dtype.kind == "f" else x


UNARY: Final[Mapping[str, Callable[[Array], Array]]] = {
    "neg": np.negative, "abs": np.abs, "relu": lambda x: np.maximum(x, np.zeros((), x.dtype)),
    "sign": lambda x: (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype),
    "square": lambda x: x * x, "floor": _floats(np.floor), "ceil": _floats(np.ceil), "round": _floats(np.rint),
    "trunc": _floats(np.trunc), "copy": lambda x: x, "cast": lambda x: x, "bitwise_not": np.invert,
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1.0 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "tanh": np.tanh, "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "erf": lambda x: np.asarray(_erf(x)).astype(np.float64), "reciprocal": lambda x: 1.0 / x,
    "logical_not": lambda x: x == 0, "isnan": lambda x: x != x, "isinf": lambda x: np.isinf(x),
}  # fmt: skip


def _power(a: Array, b: Array) -> Array:
    """a ** b as C has it; NumPy's own takes the root where one exponent is 0.5, also of -infinity."""
    return np.power(a, b) if a.dtype.kind != "f" and b.dtype.kind != "f" else np.float_power(a, b)


def _shifted(x: Array, n: Array, left: bool) -> Array:
    """``x`` times 2 to the power of ``n`` modulo 64 or of its negative, rounded down, by plain integers."""
    one = np.frompyfunc(lambda a, b: a * 2 ** (b % 64) if left else a // 2 ** (b % 64), 2, 1)
    dtype = np.result_type(x, n)
    made = one(np.asarray(x).astype(object), np.asarray(n).astype(object))
    bits = 8 * dtype.itemsize
    signed = dtype.kind == "i"
    wrap = np.frompyfunc(
        lambda a: (int(a) + (2 ** (bits - 1) if signed else 0)) % 2**bits - signed * 2 ** (bits - 1), 1, 1
    )
    return np.asarray(wrap(made)).astype(dtype)


BINARY: Final[Mapping[str, Callable[[Array, Array], Array]]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "maximum": np.maximum,
    "minimum": np.minimum, "remainder": np.remainder, "fmod": np.fmod, "floor_divide": np.floor_divide,
    "pow": _power, "atan2": np.arctan2, "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "logical_and": _nonzero(np.logical_and),
    "logical_or": _nonzero(np.logical_or), "logical_xor": _nonzero(np.logical_xor),
    "shift_left": partial(_shifted, left=True), "shift_right": partial(_shifted, left=False),
}  # fmt: skip
POINTWISE: Final = frozenset({*UNARY, *BINARY, "fma", "where"})
SCANNED: Final = frozenset({"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"})
_COMPARE: Final = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_AS_THEY_ARE: Final = frozenset({"cast", "logical_not", "isnan", "isinf", "logical_and", "logical_or", "logical_xor"})


def compute(op: str, args: Sequence[Array]) -> Array:
    """One operation on arrays of its computing type.

    >>> compute("remainder", [np.array([-5, 5]), np.array([3, -3])]).tolist()
    [1, -1]
    """
    with np.errstate(all="ignore"):
        if op == "where":
            return np.where(args[0], args[1], args[2])
        if op == "fma":
            return args[0] * args[1] + args[2]
        if op in UNARY:
            return UNARY[op](args[0])
        return BINARY[op](args[0], args[1])


def blocks(shape: tuple[int, ...], limit: int = _BLOCK) -> Iterator[tuple[slice, ...]]:
    """Slices of leading axes that cover ``shape`` in pieces of at most ``limit`` points (or one row)."""
    if 0 in shape:
        return
    axis, size = len(shape), 1
    while axis > 0 and size * shape[axis - 1] <= limit:
        axis -= 1
        size *= shape[axis]
    if axis == 0:
        yield ()
        return
    rows = max(1, limit // size)
    for lead in np.ndindex(*shape[: axis - 1]):
        head = tuple(slice(c, c + 1) for c in lead)
        for start in range(0, shape[axis - 1], rows):
            yield (*head, slice(start, min(shape[axis - 1], start + rows)))


def _computing_type(e: TensorExpr) -> DType | None:
    """The type the operands are converted to (None: they stay as they are)."""
    if e.op in _AS_THEY_ARE:
        return None
    return result_dtype(e.args) if e.op in _COMPARE else e.output.dtype


def _scalar(value: Scalar | Expr, dtype: DType | None, rounded: bool, symbols: Symbols) -> Array:
    """A number as torch's kernels take it: half types compute in float32, so the number is rounded to that."""
    plain = number(value, symbols) if isinstance(value, Expr) else value
    if dtype is None:
        return np.asarray(plain)
    half = dtype in ("float16", "bfloat16")
    return stored(np.asarray(plain), "float32" if half else dtype, rounded)


def _as_float64(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype == np.float32 else x


def evaluate_pointwise(
    e: TensorExpr, operands: Sequence[Array], shape: tuple[int, ...], rounded: bool, symbols: Symbols
) -> Array:
    """The output of ``e``, of ``shape``, from the kept values of its input tensors; float64 inside."""
    kind = _computing_type(e)
    given = iter(operands)
    args: list[tuple[Array, DType | None]] = []
    for k, a in enumerate(e.args):
        convert = None if e.op == "where" and k == 0 else kind
        if isinstance(a, Tensor):
            x = np.broadcast_to(next(given), shape)
            args.append((x, convert if convert is not None and convert != a.dtype else None))
        else:
            args.append((np.broadcast_to(_scalar(a, convert, rounded, symbols), shape), None))
    out = np.empty(shape, kept_dtype(e.output.dtype, rounded))
    for block in blocks(shape):
        parts = [x[block] if to is None else stored(x[block], to, rounded) for x, to in args]
        out[block] = stored(compute(e.op, [_as_float64(p) for p in parts]), e.output.dtype, rounded)
    return out


def _extremum_identity(x: Array, sign: int) -> float:
    """The identity of a minimum or maximum: its value over no element (a symbolic axis may turn out empty)."""
    if x.dtype.kind == "f":
        return sign * np.inf
    if x.dtype.kind == "b":
        return sign > 0
    return np.iinfo(x.dtype).max if sign > 0 else np.iinfo(x.dtype).min


def accumulate(op: str, x: Array, axes: tuple[int, ...], dtype: DType, rounded: bool) -> Array:
    """A reduction over ``axes``: sums and products of floats in float64, of integers in int64."""
    with np.errstate(all="ignore"):
        wide = np.float64 if is_float(dtype) else np.int64
        match op:
            case "sum":
                return np.asarray(np.sum(stored(x, dtype, rounded), axis=axes, dtype=wide))
            case "prod":
                return np.asarray(np.prod(stored(x, dtype, rounded), axis=axes, dtype=wide))
            case "amax":
                return np.asarray(
                    np.max(x, axis=axes, initial=_extremum_identity(x, -1)) if x.size == 0 else np.max(x, axis=axes)
                )
            case "amin":
                return np.asarray(
                    np.min(x, axis=axes, initial=_extremum_identity(x, 1)) if x.size == 0 else np.min(x, axis=axes)
                )
            case "any":
                return np.asarray(np.any(x != 0, axis=axes))
            case _:
                return np.asarray(np.all(x != 0, axis=axes))


def running(op: str, x: Array, dim: int, dtype: DType) -> Array:
    """The sum, product, maximum, minimum or log-sum-exp of elements up to each, along one axis: floats in float64."""
    if op in ("cummax", "cummin"):
        return (np.maximum if op == "cummax" else np.minimum).accumulate(x, axis=dim)
    if op == "logcumsumexp":
        return np.asarray(np.logaddexp.accumulate(x.astype(np.float64), axis=dim))
    wide = x.astype(np.float64 if x.dtype.kind == "f" or dtype.startswith(("float", "bfloat")) else np.int64)
    return (np.add if op == "cumsum" else np.multiply).accumulate(wide, axis=dim)
