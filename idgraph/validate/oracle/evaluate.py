"""The values of every tensor of a fusion, computed from the definitions of its operations.

Which element each operation reads: the operation itself, applied to tensors of element numbers.

Pointwise operations by name, in float64 (integers in int64, conditions in bool), with torch's meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from idgraph.arith import Expr
from idgraph.errors import OperationError
from idgraph.ir import DType, Fusion, Scalar, Tensor, TensorExpr, is_float
from idgraph.ir.op_builders import REDUCTIONS, result_dtype
from idgraph.validate.oracle.views import (
    INDEXED,
    MOVES,
    ROWED,
    SCATTERED,
    Array,
    Symbols,
    bind,
    check_index,
    check_rows,
    index_operands,
    index_reads,
    move,
    number,
    numbers,
    region,
    row_reads,
    row_writes,
    rows,
    scatter,
    scatter_reads,
    shape_of,
)


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
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p,
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


def evaluate(
    f: Fusion,
    inputs: Mapping[str, Array],
    symbols: Symbols | None = None,
    *,
    wanted: Iterable[str] | None = None,
    rounded: bool = True,
) -> dict[str, Array]:
    """Values of the outputs of ``f`` (or of the tensors ``wanted``), from arrays for its inputs.

    Every operation is computed in float64 (integers exactly in int64). With ``rounded``, each tensor is then rounded
    to its own type, as memory holds it; without, float64 goes through. Values come back as float32 arrays where that
    holds them exactly, else float64, int64 or bool. Raises `OperationError` for a missing or wrongly shaped input and
    `IndexingError` for an index out of range.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.input("t", shape=(4,))
    >>> f.output(t + ig.roll(t, 1, 0)).name
    't2'
    >>> evaluate(f, {"t": np.arange(4.0)})["t2"].tolist()
    [3.0, 1.0, 3.0, 5.0]
    """
    at = bind(f, {n: np.shape(a) for n, a in inputs.items()}, symbols)
    names = tuple(wanted) if wanted is not None else tuple(t.name for t in f.outputs)
    needed = ancestors(f, names)
    known: dict[str, Array] = {}
    for t in f.inputs:
        if t in needed:
            known[t.name] = _input(t, inputs, at, rounded)
    last = {t: k for k, e in enumerate(f.exprs) if e.output in needed for t in e.inputs}
    for k, e in enumerate(f.exprs):
        if e.output not in needed:
            continue
        known[e.output.name] = evaluate_one(e, [known[t.name] for t in e.inputs], at, rounded)
        for t in dict.fromkeys(e.inputs):
            if last[t] == k and t.name not in names:
                del known[t.name]  # a real size holds a few tensors at a time, not all
    return {n: known[n] for n in names}


def ancestors(f: Fusion, names: Iterable[str]) -> set[Tensor]:
    """The tensors named and everything they are computed from."""
    needed = {f[n] for n in names}
    for e in reversed(f.exprs):
        if e.output in needed:
            needed.update(e.inputs)
    return needed


def _input(t: Tensor, inputs: Mapping[str, Array], symbols: Symbols, rounded: bool) -> Array:
    if t.name not in inputs:
        raise OperationError(f"no array for input {t.name}", hint=f'pass {{"{t.name}": array}}')
    x = np.asarray(inputs[t.name])
    wanted = shape_of(t, symbols)
    if x.shape != wanted:
        raise OperationError(f"input {t.name} has shape {wanted}, its array {x.shape}")
    return stored(x, t.dtype, rounded)


def evaluate_one(e: TensorExpr, operands: list[Array], symbols: Symbols, rounded: bool = True) -> Array:
    """The output of one operation from the kept values of its input tensors."""
    shape = shape_of(e.output, symbols)
    dtype = e.output.dtype
    if e.op == "eq" and "within" in e.attrs:  # an index beside the numbers of an axis
        check_index(operands[0], number(e.attrs["within"], symbols), e.op)
    if "covers" in e.attrs:
        check_rows(operands[1], operands[0], number(e.attrs["covers"], symbols))
    if e.op in POINTWISE:
        return evaluate_pointwise(e, operands, shape, rounded, symbols)
    if e.op in REDUCTIONS:
        x = operands[0]
        axes = tuple({d % x.ndim for d in numbers(e.attrs["dims"], symbols)}) if x.ndim else ()
        return stored(accumulate(e.op, x, axes, dtype, rounded), dtype, rounded).reshape(shape)
    if e.op in SCANNED:
        return stored(running(e.op, operands[0], numbers((e.attrs["dim"],), symbols)[0], dtype), dtype, rounded)
    if e.op == "matmul":
        wide = [x.astype(np.float64) if x.dtype.kind == "f" else x.astype(np.int64) for x in operands]
        return stored(np.matmul(wide[0], wide[1]), dtype, rounded)
    if e.op == "iota":
        counted = np.arange(shape[0], dtype=np.int64)
        start, step = e.attrs["start"], e.attrs["step"]
        if isinstance(start, (int, float)) and isinstance(step, (int, float)):
            return stored(start + step * counted, dtype, rounded)
    if e.op == "full":
        value = e.attrs["value"]
        if isinstance(value, (bool, int, float)):
            return np.broadcast_to(stored(np.asarray(value), dtype, rounded), shape)
    if e.op in SCATTERED:
        last = e.args[-1]
        src = operands[-1] if isinstance(last, Tensor) else stored(np.asarray(last), dtype, rounded)
        indices = [operands[k] for k in index_operands(e)]
        return stored(scatter(e.op, e.attrs, operands[0], indices, src), dtype, rounded)
    if e.op in ROWED:
        fill = e.attrs.get("value", 0)
        plain = fill if isinstance(fill, (bool, int, float)) else 0
        return stored(rows(e.op, e.attrs, operands, shape, stored(np.asarray(plain), dtype, rounded)), dtype, rounded)
    if e.op in MOVES:
        parts = [stored(x, dtype, rounded) for x in operands] if e.op in ("cat", "slice_scatter") else operands
        fill = e.attrs.get("value", 0)
        plain = fill if isinstance(fill, (bool, int, float)) else number(fill, symbols)
        return move(e.op, e.attrs, parts, symbols, stored(np.asarray(plain), dtype, rounded))
    raise OperationError(f"the oracle knows no operation {e.op!r}", where=e.source_line)


WRITTEN: Final = SCATTERED | {"combine"}
"""Operations whose points are not the elements of their output: values say which element each writes."""
LARGEST: Final = 1 << 31  # 8 GiB of numbers; beyond that no machine that runs the tests has the memory


def element_numbers(tensor: Tensor, symbols: Symbols) -> Array:
    """Row-major element numbers of ``tensor.shape``: int32 where they fit (real sizes are checked too), else int64."""
    shape = shape_of(tensor, symbols)
    count = math.prod(shape)
    if count > LARGEST:
        raise OperationError(
            f"{tensor.name} has {count:,} elements, more than the {LARGEST:,} that the oracle numbers",
            hint="check a smaller size of the same fusion",
        )
    return np.arange(count, dtype=np.int32 if count < 2**31 else np.int64).reshape(shape)


def reads(e: TensorExpr, k: int, values: Mapping[str, Array] | None = None, symbols: Symbols | None = None) -> Array:
    """Element number of operand ``k`` that ``e`` reads, one for each point of ``e.output.logical``.

    The axes are those of ``e.output.logical`` in that order, reduced axes included. Numbers are row-major over the
    operand's shape; -1 where the operation reads nothing of this operand (a pad's fill, another part of a cat).
    ``values`` holds index tensors by name, for operations that read at index values. The result may be a view. The
    points of a scatter are those of what it writes (its root axes); operand 0 stands for the element that is written.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("t", shape=(6,))
    >>> reads(ig.cat([t[4:], t[:2]]).definition, 0).tolist()
    [0, 1, -1, -1]
    >>> reads(ig.sum(ig.reshape(t, 2, 3), 1).definition, 0).tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    at = dict(symbols or {})
    ids = element_numbers(e.inputs[k], at)
    shape = shape_of(e.output, at)
    if e.op in POINTWISE or e.op in SCANNED:
        return np.broadcast_to(ids, shape)
    if e.op in REDUCTIONS:
        return _reduced(e, ids, at)
    if e.op == "matmul":
        return _contracted(e, k, ids, shape)
    if e.op in SCATTERED:
        known = values or {}
        indices = [known[e.inputs[j].name] for j in index_operands(e)]
        return scatter_reads(e, k, ids, shape_of(e.inputs[0], at), indices)
    if e.op in ROWED:
        points = shape_of(e.inputs[0], at) if e.op == "combine" else shape
        return row_reads(e.op, e.attrs, k, ids, _row_ends(e, values), points)
    if e.op not in MOVES:
        raise OperationError(f"the oracle knows no operation {e.op!r}")
    if e.op in INDEXED:
        if k != INDEXED[e.op]:
            return index_reads(e.op, e.attrs, ids, e.inputs[INDEXED[e.op]].ndim, shape)
        known = values or {}
        parts = [ids if p == k else known[t.name] for p, t in enumerate(e.inputs)]
        return move(e.op, e.attrs, parts, at, -1)
    nothing = np.full((), -1, ids.dtype)
    parts = [ids if p == k else np.broadcast_to(nothing, shape_of(t, at)) for p, t in enumerate(e.inputs)]
    return move(e.op, e.attrs, parts, at, -1)


def writes(e: TensorExpr, values: Mapping[str, Array] | None = None, symbols: Symbols | None = None) -> Array:
    """Element number of the output that each point of an operation of `WRITTEN` writes, -1 for none.

    The points are those of the index of a scatter, and the elements of the rows that are combined.
    """
    if e.op in SCATTERED:
        return reads(e, 0, values, symbols)
    at = dict(symbols or {})
    ids = element_numbers(e.output, at)
    return row_writes(e.attrs, ids, _row_ends(e, values), shape_of(e.inputs[0], at))


def _row_ends(e: TensorExpr, values: Mapping[str, Array] | None) -> list[Array]:
    known = values or {}
    return [known[t.name] for t in e.inputs[1:]]


def optional(e: TensorExpr, k: int, symbols: Symbols | None = None) -> Array | None:
    """Where reading operand ``k`` is allowed though nothing of it is used (None: nowhere).

    slice_scatter may read elements that the source then replaces: the result is the same.
    """
    if e.op != "slice_scatter" or k != 0:
        return None
    at = dict(symbols or {})
    ids = element_numbers(e.inputs[0], at)
    free = np.full(ids.shape, -1, ids.dtype)
    inside = region(e.attrs, ids.ndim, at)
    free[inside] = ids[inside]
    return free


def _reduced(e: TensorExpr, ids: Array, symbols: Symbols) -> Array:
    dims = sorted({d % ids.ndim for d in numbers(e.attrs["dims"], symbols)}) if ids.ndim else []
    kept = [p for p in range(ids.ndim) if p not in dims]
    moved = np.transpose(ids, (*kept, *dims))
    shape = shape_of(e.output, symbols)
    return _place(e, moved.reshape((*shape, *(ids.shape[d] for d in dims))))


def _contracted(e: TensorExpr, k: int, ids: Array, shape: tuple[int, ...]) -> Array:
    if k == 0:
        spread = ids[..., :, None, :]
    else:
        spread = np.swapaxes(ids, -1, -2)[..., None, :, :]
    return _place(e, np.broadcast_to(spread, (*shape, spread.shape[-1])))


def _place(e: TensorExpr, last: Array) -> Array:
    """Reduced axes stand last: move them to where the output's logical axes have them."""
    places = [p for p, d in enumerate(e.output.logical) if d.kind == "reduction"]
    count = last.ndim - len(places)
    return np.moveaxis(last, range(count, last.ndim), places)
