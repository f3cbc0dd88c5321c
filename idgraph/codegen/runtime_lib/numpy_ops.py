"""The functions that formulas name, for NumPy arrays; and grids, loads, stores and reductions of the NumPy target.

Integers are int64 arrays, float16 and bfloat16 values float32 arrays on that type's grid.

Flat buffers as the Python and NumPy targets see them: every address is tested, 16-bit floats are decoded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from idgraph.codegen.runtime_lib import python_ops as scalars
from idgraph.errors import IndexingError
from idgraph.ir import DType
from idgraph.ir.dtypes import ELEMENT_TYPES, is_integer, is_short_float

Array = npt.NDArray[Any]
inf, nan = math.inf, math.nan
# Points of one piece of a grid: a dozen temporaries of this size stay below a gigabyte.
CHUNK: Final = 1 << 22


def f64(x: Any) -> Array:
    """As float64."""
    return np.asarray(x).astype(np.float64)


def f32(x: Any) -> Array:
    """Nearest float32."""
    return np.asarray(x).astype(np.float32)


def f16(x: Any) -> Array:
    """Nearest float16, in float32."""
    return np.asarray(x).astype(np.float16).astype(np.float32)


def bf16_word(x: Any) -> Array:
    """The 16 bits of the nearest bfloat16 of a float32."""
    single = np.asarray(x).astype(np.float32)
    bits = single.view(np.uint32).astype(np.uint64)
    words = ((bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)
    return np.where(single != single, np.uint16(0x7FC0), words)


def bf16_load(words: Any) -> Array:
    """The values of 16-bit words as bfloat16, in float32."""
    return (np.asarray(words).astype(np.uint32) << np.uint32(16)).view(np.float32)


def bf16(x: Any) -> Array:
    """Nearest bfloat16, in float32."""
    return bf16_load(bf16_word(x))


def _wrap_integer(dtype: type[np.integer[Any]]) -> Callable[[Any], Array]:
    def wrap(x: Any) -> Array:
        return np.asarray(x).astype(np.int64).astype(dtype).astype(np.int64)

    return wrap


u8, int8, int16, i32, i64 = (
    _wrap_integer(np.uint8),
    _wrap_integer(np.int8),
    _wrap_integer(np.int16),
    _wrap_integer(np.int32),
    _wrap_integer(np.int64),
)


def toint(x: Any) -> Array:
    """Truncation toward zero."""
    return np.asarray(x).astype(np.int64)


choose: Callable[[Any, Any, Any], Array] = np.where
div, inverse = np.divide, np.reciprocal


def maximum(a: Any, b: Any) -> Array:
    """The larger; NaN wins, and a of two that are equal (NumPy's own leaves open which zero it is)."""
    return choose((a != a) | (a >= b), a, b)


def minimum(a: Any, b: Any) -> Array:
    """The smaller; NaN wins, and a of two that are equal."""
    return choose((a != a) | (a <= b), a, b)


logical_not, logical_and, logical_or = np.logical_not, np.logical_and, np.logical_or
floor, ceil, trunc, rint = np.floor, np.ceil, np.trunc, np.rint
fmod, floor_divide, floor_divide_32, atan2 = np.fmod, np.floor_divide, np.floor_divide, np.arctan2
exp, exp2, expm1, log, log2, log10, log1p = np.exp, np.exp2, np.expm1, np.log, np.log2, np.log10, np.log1p
fast_exp = short_exp = exp_inside = exp


def remainder(a: Any, b: Any) -> Array:
    """The remainder with the sign of b; a zero has the sign of a."""
    rest = np.fmod(a, b)
    return choose((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


def logistic_of(e: Any) -> Array:
    """1 / (1 + e)."""
    return np.reciprocal(1 + e)


def tanh_log1p(a: Any) -> Array:
    """tanh(log(1 + a))."""
    return np.tanh(np.log1p(a))


near_expm1, near_tanh = np.expm1, np.tanh


def short_rsqrt(a: Any) -> Array:
    """1 / sqrt(a)."""
    return np.reciprocal(np.sqrt(a))


def fast_exp_sub(a: Any, b: Any) -> Array:
    """e ** (a - b)."""
    return np.exp(a - b)


def div_by(a: Any, b: Any, inverse: Any) -> Array:
    """a / b."""
    return np.divide(a, b)


short_div = np.divide


sqrt = short_sqrt = np.sqrt
sin, cos, tan, tanh = np.sin, np.cos, np.tan, np.tanh
int_floor_divide, int_remainder, int_fmod = np.floor_divide, np.remainder, np.fmod
logaddexp = near_logaddexp = np.logaddexp
_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Any) -> Array:
    """Error function."""
    return np.asarray(_erf(np.asarray(x).astype(np.float64))).astype(np.float64)


def one_plus_erf(x: Any) -> Array:
    """1 + erf(x)."""
    return 1 + erf(x)


def one_minus_erf(x: Any) -> Array:
    """1 - erf(x)."""
    return 1 - erf(x)


def log1p_exp(x: Any) -> Array:
    """log(1 + e ** x)."""
    return np.logaddexp(0.0, x)


def sign(a: Any) -> Array:
    """-1, 0 or 1; 0 for NaN, as in torch."""
    return np.asarray(a > 0).astype(np.int64) - np.asarray(a < 0).astype(np.int64)


def power(a: Any, b: Any) -> Array:
    """a ** b as C has it; of one exponent of 0.5 NumPy takes the root, also of -infinity and of -0.0."""
    found: Any = np.power(a, b)
    half: Any = np.asarray(b) == 0.5
    if not half.any():
        return found
    return np.where(half, np.where(np.equal(a, -np.inf), np.inf, found + 0.0), found)


def int_power(a: Any, b: Any) -> Array:
    """a ** b modulo 2**64; for b < 0, 1 / a**-b truncated."""
    base, exponent = np.broadcast_arrays(np.asarray(a, np.int64), np.asarray(b, np.int64))
    whole = np.power(base, np.maximum(exponent, 0))
    small = np.where(base == 1, 1, np.where(base == -1, np.where(exponent % 2 == 0, 1, -1), 0))
    return np.where(exponent < 0, small, whole)


# grids ----------------------------------------------------------------------------------------------------------------


def axis(extent: int, at: int, rank: int) -> Array:
    """0 .. extent - 1 along axis ``at`` of a grid of ``rank`` axes.

    >>> axis(3, 0, 2).shape
    (3, 1)
    """
    return np.arange(extent, dtype=np.int64).reshape([-1 if p == at else 1 for p in range(rank)])


def chunks(extent: int, inside: int, rank: int) -> Iterator[Array]:
    """Pieces of the outermost axis, each with its ``inside`` points at most `CHUNK` points large."""
    width = max(1, CHUNK // max(1, inside))
    for start in range(0, extent, width):
        piece = np.arange(start, min(extent, start + width), dtype=np.int64)
        yield piece.reshape([-1] + [1] * (rank - 1))


def shape(*loops: Array) -> tuple[int, ...]:
    """The shape of the grid of these loop variables."""
    return np.broadcast_shapes(*(v.shape for v in loops))


REDUCE: Final[dict[str, np.ufunc]] = {
    "sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum,
    "any": np.logical_or, "all": np.logical_and, "logsum": np.logaddexp,
    "near_logsum": np.logaddexp,
}  # fmt: skip


def combined(op: str, start: Any, acc: Any, value: Any, mask: Any, grid: tuple[int, ...], depth: int) -> Array:
    """``acc`` combined with ``value`` over the axes of ``grid`` right of ``depth``, where ``mask`` holds."""
    ufunc = REDUCE[op]
    terms = np.broadcast_to(np.asarray(value), grid)
    if mask is not None:
        terms = np.where(mask, terms, np.asarray(start).astype(terms.dtype))
    axes = tuple(range(depth, len(grid)))
    found = ufunc.reduce(terms, axis=axes, keepdims=True, initial=terms.dtype.type(start))
    return ufunc(acc, found)


def scanned(
    op: str, start: Any, acc: Any, value: Any, mask: Any, grid: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[Any, Array]:
    """(what ``acc`` is in the end, its value at every point) where it takes ``value`` in the order of ``axes``.

    >>> last, running = scanned("sum", 0, 0, np.arange(4.0), None, (4,), (0,))
    >>> running.tolist(), float(last[0])
    ([0.0, 1.0, 3.0, 6.0], 6.0)
    """
    ufunc = REDUCE[op]
    terms = np.broadcast_to(np.asarray(value), grid)
    if mask is not None:
        terms = np.where(mask, terms, np.asarray(start).astype(terms.dtype))
    back = range(len(grid) - len(axes), len(grid))
    moved = np.moveaxis(terms, axes, back)
    lead, inner = moved.shape[: len(grid) - len(axes)], moved.shape[len(grid) - len(axes) :]
    if 0 in grid:
        return acc, terms
    prior = np.moveaxis(np.broadcast_to(np.asarray(acc), grid), axes, back).reshape((*lead, -1))[..., :1]
    running = ufunc(prior, ufunc.accumulate(moved.reshape((*lead, -1)), axis=-1))
    last = np.moveaxis(running[..., -1:].reshape((*lead, *(1 for _ in inner))), back, axes)
    return last, np.moveaxis(running.reshape(moved.shape), back, axes)


def both(*masks: Any) -> Any:
    """The conjunction of masks; None where there is none."""
    real = [m for m in masks if m is not None]
    return np.logical_and.reduce(np.broadcast_arrays(*real)) if len(real) > 1 else real[0] if real else None


def broadcast(grid: Sequence[int], *parts: Any) -> tuple[Array, ...]:
    """Arrays of the grid's shape."""
    return tuple(np.broadcast_to(np.asarray(p), grid) for p in parts)


def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """How kernels see elements: bfloat16 as 16-bit words.

    >>> storage_dtype("bfloat16"), storage_dtype("int8")
    (dtype('uint16'), dtype('int8'))
    """
    return np.dtype(ELEMENT_TYPES[dtype].numpy or dtype)


class Memory:
    """A flat buffer of one tensor; ``at`` is where the slices of private memory start (0 for others)."""

    __slots__ = ("at", "data", "dtype", "size", "title")

    def __init__(self, data: Array, dtype: DType, title: str, size: int) -> None:
        self.data = data
        self.dtype: DType = dtype
        self.title = title
        self.size = size
        self.at: Any = 0

    def _outside(self, address: int) -> IndexingError:
        return IndexingError(
            f"address {address} of {self.title} is outside its {self.size} elements",
            hint="a loaded index is out of range: run(..., checked=True) names the point",
        )

    # one element --------------------------------------------------------------------------------------------------

    def __getitem__(self, address: int) -> Any:
        if not 0 <= address < self.size:
            raise self._outside(address)
        value = self.data.item(address)
        return scalars.bf16_load(value) if self.dtype == "bfloat16" else value

    def __setitem__(self, address: int, value: Any) -> None:
        if not 0 <= address < self.size:
            raise self._outside(address)
        self.data[address] = scalars.bf16_word(value) if self.dtype == "bfloat16" else value

    # many elements ------------------------------------------------------------------------------------------------

    def _checked(self, address: Array) -> None:
        if address.size and (int(address.min()) < 0 or int(address.max()) >= self.size):
            raise self._outside(int(address[(address < 0) | (address >= self.size)].flat[0]))

    def load(self, address: Any, mask: Any = None) -> Array:
        """Elements at the addresses where ``mask`` holds, any value elsewhere."""
        where = np.asarray(address)
        if mask is not None:
            mask, where = np.broadcast_arrays(mask, where)
            where = np.where(mask, where, 0)
            if not mask.any():
                return self._decoded(np.zeros(where.shape, self.data.dtype))
            self._checked(where[mask])
            where = np.where(mask, where, where[mask].flat[0])
        self._checked(where)
        return self._decoded(self.data[where])

    def _decoded(self, raw: Array) -> Array:
        if self.dtype == "bfloat16":
            return bf16_load(raw)
        if is_short_float(self.dtype):
            return raw.astype(np.float32)
        return raw.astype(np.int64) if is_integer(self.dtype) else raw

    def store(self, address: Any, value: Any, mask: Any, grid: tuple[int, ...]) -> None:
        """Write elements at the points of ``grid`` where ``mask`` holds."""
        where, values = self._writes(address, value, mask, grid)
        self.data[where] = bf16_word(values) if self.dtype == "bfloat16" else values

    def accumulate(self, op: str, address: Any, value: Any, mask: Any, grid: tuple[int, ...]) -> None:
        """Combine values into elements, each point once."""
        REDUCE[op].at(self.data, *self._writes(address, value, mask, grid))

    def _writes(self, address: Any, value: Any, mask: Any, grid: tuple[int, ...]) -> tuple[Array, Array]:
        """Addresses and values of the points of ``grid`` where ``mask`` holds."""
        where, values = broadcast(grid, address, value)
        if mask is not None:
            (kept,) = broadcast(grid, mask)
            where, values = where[kept], values[kept]
        self._checked(where)
        return where, values


def private(size: int, dtype: DType, title: str, grid: tuple[int, ...] = ()) -> Memory:
    """Memory of ``size`` elements for each point of ``grid``."""
    points = int(np.prod(grid, dtype=np.int64))
    made = Memory(np.zeros(max(1, points * size), storage_dtype(dtype)), dtype, title, points * size)
    if grid:
        made.at = np.arange(points, dtype=np.int64).reshape(grid) * size
    return made
