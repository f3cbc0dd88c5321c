"""Fusions, scheduled and not, with arrays for their inputs: every target must compute what the oracle says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import idgraph as ig
from idgraph.ir import DTYPES, DType, is_float
from idgraph.runtime import emit
from idgraph.schedule import KernelConfig
from idgraph.validate.oracle import evaluate
from tests.emit.row_cases import (
    NORMS,
    cross_entropy,
    least_place,
    place,
    rows,
    safe_logsumexp,
    variance,
    weighted_norm,
)  # fmt: skip
from tests.emit.scatter_cases import SCATTERED, id_arrays
from tests.emit.shared_cases import SHARED
from tests.emit.side_cases import SIDE

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Case:
    """A fusion, arrays where random ones will not do, symbols that no shape tells.

    ``cancels``: the size of terms whose difference an output may be; rounding is then that of the terms.
    """

    fusion: ig.Fusion
    arrays: dict[str, Array] = field(default_factory=dict[str, Array])
    symbols: dict[str, int] = field(default_factory=dict[str, int])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    cancels: float = 0.0


CASES: dict[str, Callable[[], Case]] = {}


def case(f: Callable[[], Case | ig.Fusion]) -> Callable[[], Case | ig.Fusion]:
    """Register a case under its function's name."""

    def build() -> Case:
        made = f()
        return made if isinstance(made, Case) else Case(made)

    CASES[f.__name__] = build
    return f


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The array type at the border."""
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Values whose products and sums stay in range of every dtype."""
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if is_float(dtype):
        return rng.uniform(-2, 2, shape).astype(numpy_dtype(dtype))
    return rng.integers(0 if dtype == "uint8" else -9, 10, shape).astype(dtype)


def arrays_of(made: Case, seed: int = 0) -> dict[str, Array]:
    """An array for each input."""
    rng = np.random.default_rng(seed)
    sizes = {**made.symbols, **made.sizes}
    found: dict[str, Array] = {}
    for t in made.fusion.inputs:
        shape = tuple(int(d.extent.evaluate(sizes)) for d in t.axes)
        found[t.name] = made.arrays[t.name] if t.name in made.arrays else random_array(rng, shape, t.dtype)
    return found


def tolerance(dtype: DType) -> tuple[float, float]:
    """Relative and absolute error allowed: a few units in the last place of one operation."""
    match dtype:
        case "float64":
            return 1e-12, 1e-13
        case "float32":
            return 3e-6, 1e-6
        case "float16":
            return 2e-3, 1e-4
        case "bfloat16":
            return 1.6e-2, 1e-3
        case _:
            return 0.0, 0.0


def difference(made: Case, inputs: Mapping[str, Array], got: Mapping[str, Array]) -> str:
    """The differences of outputs from the oracle's; empty when there is none."""
    f = made.fusion
    wanted = evaluate(f, inputs, {**made.symbols, **made.sizes})
    for t in f.outputs:
        a, b = np.asarray(got[t.name]), wanted[t.name]
        if a.dtype != numpy_dtype(t.dtype) or a.shape != b.shape:
            return f"{t.name}: {a.dtype}{a.shape} instead of {t.dtype}{b.shape}"
        rtol, atol = tolerance(t.dtype)
        atol = max(atol, rtol * made.cancels)
        x, y = (a.astype(np.float64), b.astype(np.float64)) if is_float(t.dtype) else (a, b)
        same = np.isclose(x, y, rtol=rtol, atol=atol, equal_nan=True) if is_float(t.dtype) else x == y
        if not np.all(same):
            at = tuple(int(c) for c in np.argwhere(~same)[0])
            return f"{t.name}{at}: {a[at]} instead of {b[at]}, {int(np.sum(~same))} of {a.size} wrong"
    return ""


def outcome(name: str, target: Any, checked: bool = False) -> str:
    """Run one case on one target; empty when the values are right."""
    made = CASES[name]()
    inputs = arrays_of(made)
    program = emit(made.fusion, target)
    with np.errstate(all="ignore"):
        got = program.run(inputs, made.symbols, checked=checked, poison=True)
        return difference(made, inputs, got)


# moves ----------------------------------------------------------------------------------------------------------------


def _one(shape: tuple[int, ...], move: Callable[[Any], Any], dtype: DType = "float32", **declared: Any) -> ig.Fusion:
    f = ig.Fusion("move")
    f.output(move(f.input("x", shape, dtype, **declared)))
    return f


MOVES: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "slice": ((3, 10), lambda x: x[1:, 2:9]),
    "slice_step": ((3, 10), lambda x: x[:, 1::3]),
    "slice_back": ((10,), lambda x: x[8:1:-2]),
    "slice_nothing": ((10,), lambda x: x[4:4]),
    "select": ((3, 4, 5), lambda x: x[1, :, -1]),
    "pad": ((3, 4), lambda x: ig.pad(x, (1, 2, 2, 0), 0.5)),
    "pad_cut": ((3, 6), lambda x: ig.pad(x, (-1, 2, 1, -2), -1.5)),
    "pad_all_gone": ((4,), lambda x: ig.pad(x, (-4, 3), 7.0)),
    "cat": ((3, 4), lambda x: ig.cat([x, x * 2.0, x[:, :1]], dim=1)),
    "cat_same": ((5,), lambda x: ig.cat([x, x])),
    "cat_empty": ((5,), lambda x: ig.cat([x[:0], x, x[5:]])),
    "stack": ((3, 4), lambda x: ig.stack([x, -x], dim=1)),
    "roll": ((3, 7), lambda x: ig.roll(x, (2, -3), (0, 1))),
    "roll_flat": ((3, 5), lambda x: ig.roll(x, 4)),
    "flip": ((3, 5), lambda x: ig.flip(x, (0, 1))),
    "reshape": ((6, 4), lambda x: ig.reshape(x, 3, -1)),
    "reshape_ones": ((6, 1, 4), lambda x: ig.reshape(x, 1, 24, 1)),
    "reshape_uneven": ((6, 10), lambda x: ig.reshape(x, 4, 15)),
    "permute": ((2, 3, 4), lambda x: ig.permute(x, 2, 0, 1)),
    "expand": ((4, 1), lambda x: ig.expand(x, 2, -1, 3)),
    "repeat": ((2, 3), lambda x: ig.repeat(x, 2, 3)),
    "squeeze": ((2, 1, 3), lambda x: ig.unsqueeze(ig.squeeze(x, 1), 0)),
    "size_one": ((1, 1), lambda x: ig.cat([x, x], dim=1) + x[0, 0]),
    "zero_size": ((0, 4), lambda x: ig.pad(x + 1.0, (0, 0, 1, 1), 3.0)),
    "zero_reshape": ((0, 4), lambda x: ig.reshape(x, 2, 0)),
    "zero_roll": ((2, 0, 3, 2), lambda x: ig.roll(x, (1, 1, 1, -2), (0, 1, 2, 3))),
    "no_axis": ((), lambda x: x * 2.0 + 1.0),
    "rotation": ((16,), lambda x: x + ig.cat([x[8:], x[:8]])),
    "pixel_shuffle": ((4, 2, 3), lambda x: ig.reshape(ig.permute(ig.reshape(x, 2, 2, 2, 3), 2, 0, 3, 1), 4, 6)),
    "slice_scatter": ((6, 4), lambda x: ig.slice_scatter(x, x[:2] * 3.0, 0, 1, 5, 2)),
    "slice_scatter_whole": ((4,), lambda x: ig.slice_scatter(x, x * 3.0)),
    "transposed_twice": ((3, 4), lambda x: (x.T + 1.0).T * x),
}
for _name, (_shape, _move) in MOVES.items():
    case(lambda shape=_shape, move=_move: _one(shape, move))
    CASES[f"move_{_name}"] = CASES.pop("<lambda>")

# reductions and contractions ------------------------------------------------------------------------------------------

REDUCED: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "sum_inner": ((4, 5), lambda x: ig.sum(x, 1)),
    "sum_outer": ((4, 5), lambda x: ig.sum(x, 0)),
    "sum_all": ((4, 5), lambda x: ig.sum(x)),
    "sum_middle_keep": ((2, 3, 4), lambda x: ig.sum(x, 1, keepdim=True)),
    "sum_two": ((2, 3, 4), lambda x: ig.sum(x, (0, 2))),
    "sum_empty": ((3, 0), lambda x: ig.sum(x, 1)),
    "sum_of_none": ((3, 2), lambda x: ig.sum(x, ())),
    "prod": ((4, 5), lambda x: ig.prod(x, 0)),
    "prod_empty": ((0, 2), lambda x: ig.prod(x, 0)),
    "amax": ((4, 5), lambda x: ig.amax(x, 0)),
    "amin": ((4, 5), lambda x: ig.amin(x, 1)),
    "any_all": ((4, 5), lambda x: ig.logical_xor(ig.any(x > 1.5, 1), ig.all(x > -1.5, 1))),
    "mean": ((4, 5), lambda x: ig.mean(x, 1)),
    "softmax": ((3, 6), lambda x: ig.softmax(x, 1)),
    "log_softmax_outer": ((6, 3), lambda x: ig.log_softmax(x, 0)),
    "matmul": ((3, 4), lambda x: ig.matmul(x, x.T)),
    "matmul_batch": ((2, 3, 4), lambda x: ig.matmul(x, ig.permute(x[:1], 0, 2, 1))),
    "cumsum": ((3, 5), lambda x: ig.cumsum(x, 1)),
    "cumsum_outer": ((5, 3), lambda x: ig.cumsum(x * 2.0, 0) + x),
    "cumprod": ((2, 4, 3), lambda x: ig.cumprod(x, 1)),
    "cummax_cummin": ((5, 3), lambda x: ig.cummax(x, 0) - ig.cummin(x, 1)),
    "cumsum_of_one": ((3, 1), lambda x: ig.cumsum(x, 1)),
    "reduce_of_slice": ((6, 8), lambda x: ig.sum(x[1:5, ::2] * 2.0, 1)),
}
for _name, (_shape, _move) in REDUCED.items():
    case(lambda shape=_shape, move=_move: _one(shape, move))
    CASES[f"reduce_{_name}"] = CASES.pop("<lambda>")

# loaded indices -------------------------------------------------------------------------------------------------------


def _indexed(
    shape: tuple[int, ...], index: tuple[int, ...], below: int, f: Callable[[Any, Any], Any], dtype: DType = "int64"
) -> Case:
    fusion = ig.Fusion("indexed")
    x, i = fusion.input("x", shape), fusion.input("i", index, dtype)
    fusion.output(f(x, i))
    return Case(fusion, {"i": np.random.default_rng(1).integers(0, max(1, below), index).astype(dtype)})


@case
def gather() -> Case:
    return _indexed((4, 9), (4, 3), 9, lambda x, i: ig.gather(x, 1, i))


@case
def gather_smaller() -> Case:
    return _indexed((4, 9), (2, 1), 9, lambda x, i: ig.gather(x * 2.0, 1, i), "int32")


@case
def take_along_dim() -> Case:
    return _indexed((4, 9), (1, 3), 9, lambda x, i: ig.take_along_dim(x, i, 1) + 1.0, "int16")


@case
def index_select() -> Case:
    return _indexed((4, 9), (5,), 4, lambda x, i: ig.index_select(x, 0, i), "uint8")


@case
def embedding() -> Case:
    return _indexed((7, 3), (2, 4), 7, lambda x, i: ig.embedding(i, x))


@case
def embedding_of_computed_index() -> Case:
    return _indexed((7, 3), (2, 4), 6, lambda x, i: ig.embedding(i + 1, x[:, ::-1]))


@case
def gather_log_softmax() -> Case:
    return _indexed((4, 9), (4, 1), 9, lambda x, i: ig.gather(ig.log_softmax(x, 1), 1, i))


@case
def gather_of_itself() -> Case:
    f = ig.Fusion("permutation")
    p = f.input("p", (6,), "int64")
    f.output(ig.gather(p, 0, p))
    return Case(f, {"p": np.array([3, 1, 0, 5, 4, 2])})


@case
def scatter() -> Case:
    return _indexed((4, 6), (4, 3), 6, lambda x, i: ig.scatter(x, 1, i, x[:, :3] * 2.0))


@case
def scatter_add() -> Case:
    return _indexed((4, 6), (4, 3), 6, lambda x, i: ig.scatter_add(x, 1, i, x[:, :3]))


def _scheduled(made: Case) -> Case:
    ig.schedule.auto(made.fusion)
    return made


@case
def scatter_add_on_threads() -> Case:
    """Every entry on a thread of its own; far more entries than elements, so that many meet."""
    return _scheduled(_indexed((3, 5), (3, 40), 5, lambda x, i: ig.scatter_add(x * 2.0, 1, i, ig.cast(i, "float32"))))


@case
def scatter_in_order() -> Case:
    """Rows on threads, entries in order; the index is smaller than x, and several entries name one element."""
    return _scheduled(_indexed((4, 6), (3, 20), 6, lambda x, i: ig.scatter(x, 1, i, ig.cast(i * 3, "float32")) + 1.0))


@case
def scatter_one_a_row() -> Case:
    return _scheduled(_indexed((6, 9), (4, 1), 9, lambda x, i: x * ig.scatter(ig.full((6, 9), 0.5), 1, i, -1.0)))


@case
def index_put_accumulates() -> Case:
    """Two index tensors that broadcast, negative values too; added in float32, rounded once."""
    f = ig.Fusion("put")
    x, v = f.input("x", (3, 4, 2), "bfloat16"), f.input("v", (5, 7, 1), "bfloat16")
    i, j = f.input("i", (5, 1), "int64"), f.input("j", (7,), "int32")
    f.output(ig.index_put(x, [i, j], v, accumulate=True))
    rng = np.random.default_rng(1)
    return _scheduled(Case(f, {"i": rng.integers(-3, 3, (5, 1)), "j": rng.integers(-4, 4, 7).astype(np.int32)}))


def _rows_added(build: Callable[[], ig.Fusion]) -> Case:
    f = build()
    return Case(f, id_arrays(f))


for _name, _rows in SCATTERED.items():
    CASES[_name] = partial(_rows_added, _rows)


def _side(build: Callable[[], ig.Fusion], cancels: float) -> Case:
    f, rng = build(), np.random.default_rng(2)
    ids = {t.name: rng.integers(0, 500, [int(n) for n in t.shape]) for t in f.inputs if t.dtype == "int64"}
    return Case(f, ids, cancels=cancels)


for _name, _build in SIDE.items():
    if _name != "grey":  # as many rows as keep a GPU busy
        # partial sums of 700 and 2 100 terms between -2 and 2 are up to 50, and some of the sums are below 1
        CASES[f"side_{_name}"] = partial(_side, _build, 50.0 if _name in ("columns_many", "columns_two") else 0.0)


# arithmetic on all dtypes ---------------------------------------------------------------------------------------------

UNARY_FLOAT = (
    "neg", "abs", "relu", "sign", "square", "floor", "ceil", "round", "trunc", "exp", "exp2", "expm1", "log", "log2",
    "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh", "sigmoid", "erf", "reciprocal", "logical_not",
    "isnan", "isinf", "copy",
)  # fmt: skip
BINARY_FLOAT = (
    "add", "sub", "mul", "div", "maximum", "minimum", "remainder", "fmod", "floor_divide", "pow", "atan2", "eq", "ne",
    "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
)  # fmt: skip
UNARY_INT = ("neg", "abs", "relu", "sign", "square", "floor", "round", "bitwise_not", "logical_not", "isnan", "copy")
BINARY_INT = (
    "add", "sub", "mul", "div", "maximum", "minimum", "remainder", "fmod", "floor_divide", "eq", "lt", "ge",
    "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "shift_left", "shift_right",
)  # fmt: skip
BINARY_BOOL = ("add", "mul", "maximum", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_xor", "eq", "lt", "div")
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -0.5,
    -2.5,
    3.75,
    -7.25,
    1e-3,
    float("inf"),
    float("-inf"),
    float("nan"),
]


def _arithmetic(dtype: DType, unary: tuple[str, ...], binary: tuple[str, ...]) -> Case:
    f = ig.Fusion("arithmetic")
    values = SPECIAL if is_float(dtype) else [0, 1, 2, 3, 7, 100] if dtype == "uint8" else [0, 1, -1, 2, -3, 7, -8, 100]
    if dtype == "bool":
        values = [0, 1]
    pairs = np.array([(a, b) for a in values for b in values], np.float64).astype(numpy_dtype(dtype))
    keep = np.ones(len(pairs), bool) if is_float(dtype) or dtype == "bool" else pairs[:, 1] != 0
    pairs = pairs[keep]
    a, b = f.input("a", (len(pairs),), dtype), f.input("b", (len(pairs),), dtype)
    x = ig.copy(a)
    for op in unary:
        f.output(getattr(ig, op)(x, name=f"{op} of a"))
    for op in binary:
        f.output(getattr(ig, op)(x, b, name=f"{op} of a and b"))
    larger = x > b
    f.output(ig.where(larger, x, 2, name="chosen"))
    x.inline(1)  # one kernel for all of them
    larger.inline(1)
    return Case(f, {"a": np.ascontiguousarray(pairs[:, 0]), "b": np.ascontiguousarray(pairs[:, 1])})


for _dtype in DTYPES:
    if _dtype == "bool":
        _ops: tuple[tuple[str, ...], tuple[str, ...]] = (("logical_not", "bitwise_not", "copy"), BINARY_BOOL)
    else:
        _ops = (UNARY_FLOAT, BINARY_FLOAT) if is_float(_dtype) else (UNARY_INT, BINARY_INT)
    CASES[f"arithmetic_{_dtype}"] = lambda d=_dtype, u=_ops[0], b=_ops[1]: _arithmetic(d, u, b)


def _casts(dtype: DType) -> Case:
    f = ig.Fusion("casts")
    if is_float(dtype):
        values = np.array([0.0, -0.0, 0.1, 1.00390625, 1.01171875, -3.7, 100.5, 3e-8, 6.1e-5, -5e-6, 2049.0, 2051.0])
    elif dtype == "bool":
        values = np.array([0, 1])
    else:
        values = np.array([0, 1, 5, 100, 127] if dtype == "uint8" else [0, 1, -1, 5, 100, -100, 127])
    x = f.input("x", values.shape, dtype)
    y = ig.copy(x)
    for to in DTYPES:
        if not (to == "uint8" and is_float(dtype)):  # a negative float has no meaning as uint8
            f.output(ig.cast(y, to, name=f"as {to}"))
    y.inline(1)
    return Case(f, {"x": values.astype(numpy_dtype(dtype))})


for _dtype in DTYPES:
    CASES[f"casts_{_dtype}"] = lambda d=_dtype: _casts(d)


@case
def wrapping_integers() -> Case:
    f = ig.Fusion("wrap")
    outputs: dict[str, Array] = {}
    for d in ("uint8", "int8", "int16", "int32", "int64"):
        x = f.input(f"x {d}", (3,), d)
        info = np.iinfo(d)
        outputs[f"x {d}"] = np.array([info.min, info.max, 3], d)
        f.output(x + x, x * x, -x, ~x, x - 5)
    x = f["x int64"]
    f.output(ig.sum(x, 0), ig.prod(x, 0), ig.amax(x, 0), ig.amin(f["x int8"], 0))
    return Case(f, outputs)


@case
def promotion() -> ig.Fusion:
    f = ig.Fusion("promotion")
    x = {d: f.input(f"x_{d}", (4,), d) for d in DTYPES}
    f.output(
        x["int8"] + x["uint8"], x["int32"] + x["float16"], x["float16"] * x["bfloat16"], x["bool"] + x["float64"],
        x["int64"] < x["float32"], x["int32"] * 0.5, x["bfloat16"] + 0.1, x["uint8"] / 3, x["bool"] * 3,
        ig.cat([x["float16"], x["float32"]]), ig.where(x["bool"], x["int8"], 1.5), ig.pad(x["bfloat16"], (1, 1), 0.1),
        ig.pad(x["bool"], (1, 0), True), x["float32"] * float("inf"), x["float64"] + float("nan"),
    )  # fmt: skip
    return f


@case
def power_of_integers() -> Case:
    f = ig.Fusion("power")
    a, b = f.input("a", (5,), "int64"), f.input("b", (5,), "int64")
    f.output(a**b, a**2)
    return Case(f, {"a": np.array([2, -3, 0, 1, 7]), "b": np.array([10, 3, 0, 5, 30])})


@case
def reductions_of_all_dtypes() -> ig.Fusion:
    f = ig.Fusion("reductions")
    for d in DTYPES:
        x = f.input(f"x_{d}", (3, 4), d)
        f.output(ig.sum(x, 0), ig.sum(x, 1), ig.any(x, 1), ig.all(x, 0), ig.amax(x, 1), ig.amin(x, 0))
        if is_float(d):
            f.output(ig.prod(x, 1), ig.matmul(x, x.T))
    f.output(ig.sum(f["x_float32"], 1, dtype="float64"), ig.sum(f["x_int8"], 1, dtype="float32"))
    return f


@case
def nan_in_extrema() -> Case:
    f = ig.Fusion("nan")
    x = f.input("x", (3, 3))
    f.output(ig.amax(x, 1), ig.amin(x, 0))
    return Case(f, {"x": np.array([[1, np.nan, 2], [np.nan, 1, -np.inf], [5, 6, 7]], np.float32)})


@case
def iota_and_full() -> ig.Fusion:
    f = ig.Fusion("made")
    f.output(f.iota(7, 3, -2), f.iota(5, dtype="float16"), f.iota(4, 100, 50, dtype="uint8"), f.full((2, 3), 0.1))
    f.output(f.full((2,), 0.1, "bfloat16"), f.full((), -3, "int8"), f.full((2,), True), f.full((1,), float("-inf")))
    f.output(ig.sum(ig.reshape(f.iota(12), 3, 4) * 2, 0), f.full((0, 2), 1))
    return f


@case
def fused_multiply_add() -> ig.Fusion:
    f = ig.Fusion("fma")
    a, b, c = (f.input(n, (5,)) for n in "abc")
    from idgraph.ir.fusion import apply_op

    f.output(apply_op("fma", a, b, c))
    return f


@case
def unused_parts() -> ig.Fusion:
    f = ig.Fusion("unused")
    x, y = f.input("x", (4,)), f.input("y", (3,))
    ig.neg(y)  # unused
    f.output(x, x + 1.0)
    return f


# memory ---------------------------------------------------------------------------------------------------------------


@case
def strided_inputs() -> Case:
    f = ig.Fusion("strided")
    a = f.input("a", (3, 4), strides=(1, 3))
    b = f.input("b", (3, 4), strides=(4, 0))
    c = f.input("c", (3, 4), strides=(10, 2), offset=5)
    d = f.input("d", (3, 4), contiguity=(False, True))
    e = f.input("e", (3, 4), contiguity=(False, False))
    f.output(a + b * c - d / e)
    base = np.random.default_rng(3).uniform(1, 2, (8, 8)).astype(np.float32)
    return Case(
        f,
        {
            "a": base[:3, :4], "b": np.broadcast_to(base[:3, :1], (3, 4)), "c": base[::2, ::2][:3, :4],
            "d": base[1:4, 2:6], "e": base.T[2:5, 1:5],
        },
    )  # fmt: skip


@case
def negative_strides_are_copied() -> Case:
    f = ig.Fusion("backwards")
    x, y = f.input("x", (4, 3)), f.input("y", (4, 3), contiguity=(False, False))
    f.output(x - y)
    base = np.arange(24, dtype=np.float32).reshape(8, 3)
    return Case(f, {"x": base[::-2], "y": base[6::-2, ::-1]})


@case
def output_layouts() -> ig.Fusion:
    f = ig.Fusion("layouts")
    x = f.input("x", (3, 4, 5))
    a, b, c = f.output(x + 1.0), f.output(x * 2.0), x - 1.0
    f.output(b, c * 2.0)
    a.set_allocation([a.logical[2], a.logical[0], a.logical[1]])
    b.split(1, 2)
    b.set_allocation([b.loop[2], b.loop[0], b.loop[1], b.loop[3]])
    c.set_allocation([c.logical[1], c.logical[2], c.logical[0]])
    return f


@case
def bfloat16_layout() -> ig.Fusion:
    f = ig.Fusion("bf16")
    x = f.input("x", (3, 4), "bfloat16", strides=(1, 3))
    y = f.input("y", (3, 4), "float16", contiguity=(False, True))
    f.output(ig.cast(x * 2.0 + y, "bfloat16"), x.T, ig.flip(y, 0))
    return f


# symbols --------------------------------------------------------------------------------------------------------------


@case
def symbolic_rotation() -> Case:
    f = ig.Fusion("symbolic")
    n = f.symbol("n", min=2, multiple_of=2)
    x = f.input("x", (3, n))
    f.output(x + ig.cat([x[:, n // 2 :], x[:, : n // 2]], dim=1))
    return Case(f, sizes={"n": 10})


@case
def symbolic_product() -> Case:
    f = ig.Fusion("symbolic")
    n, m, k = f.symbol("for", min=1), f.symbol("m", min=1), f.symbol("lambda", min=1)
    x, y = f.input("x", (n, k)), f.input("y", (k, m))
    z = ig.matmul(x, y)
    f.output(ig.reshape(z, n * m), ig.sum(z, 0) / n, ig.full((n, m), 2.0) + z)
    return Case(f, sizes={"for": 3, "m": 4, "lambda": 5})


@case
def symbol_without_a_shape() -> Case:
    f = ig.Fusion("symbolic")
    n, m = f.symbol("n", min=0), f.symbol("m", min=1)
    x = f.input("x", (n + m,))
    f.output(ig.iota(m) * 2, x[:m])
    return Case(f, symbols={"m": 3, "n": 4})


# schedules ------------------------------------------------------------------------------------------------------------


@case
def split_uneven() -> ig.Fusion:
    f = _one((10, 7), lambda x: ig.exp(x) + 1.0)
    for t in (e.output for e in f.exprs):
        t.split(1, 4).merge(0, 1).split(0, 3, inner=False)
    return f


@case
def swizzled() -> ig.Fusion:
    f = _one((8, 8), lambda x: x.T + 0.5)
    f.outputs[0].swizzle("xor", 0, 1)
    f.exprs[0].output.swizzle("cyclic", 0, 1)
    return f


@case
def blocks_and_threads() -> ig.Fusion:
    f = _one((5, 14), lambda x: ig.sin(x) * 2.0)
    y = f.outputs[0]
    y.merge(0).split(0, 16).parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    ig.schedule.like(f, y)
    ig.schedule.inline_most(f)
    return f


def _chain(position: int, threads: bool = False) -> ig.Fusion:
    f = ig.Fusion("chain")
    x, w = f.input("x", (4, 6, 5)), f.input("w", (6, 1))
    a = ig.exp(x, name="a")
    b = a * w
    f.output(b + a)
    for t in (a, b):
        t.inline(position)
    if threads:
        for t in (a, b, f.outputs[0]):
            t.parallelize(0, "blockIdx.x").parallelize(2, "threadIdx.x")
    return f


for _k in range(4):
    CASES[f"inlined_at_{_k}"] = lambda k=_k: Case(_chain(k))
    CASES[f"inlined_at_{_k}_on_threads"] = lambda k=_k: Case(_chain(k, threads=True))


def _row(position: int, outer: str = "serial") -> ig.Fusion:
    f = ig.Fusion("rows")
    x = f.input("x", (4, 6))
    y = ig.exp(x)
    s = ig.sum(y, 1)
    f.output(s * 2.0, name_of(y))
    s.inline(position)
    y.inline(position)
    for t in (y, s, *f.outputs):
        t.parallelize(0, outer)
    return f


def name_of(t: ig.Tensor) -> ig.Tensor:
    """The tensor itself, as one more output."""
    return t


for _k in range(2):
    CASES[f"row_sums_inlined_at_{_k}"] = lambda k=_k: Case(_row(k))
CASES["row_sums_on_blocks"] = lambda: Case(_row(1, "blockIdx.x"))


@case
def softmax_one_kernel() -> ig.Fusion:
    f = _one((4, 6), lambda x: ig.softmax(x * 2.0, 1))
    for e in f.exprs:
        if e.output not in f.outputs:
            e.output.inline(1)
        e.output.parallelize(0, "blockIdx.x")
    return f


@case
def reduction_outside_loop() -> ig.Fusion:
    f = _one((4, 6, 3), lambda x: ig.sum(x, 1) + 1.0)
    s = f.exprs[0].output
    s.reorder({1: 0})
    return f


@case
def reduction_outside_threads() -> ig.Fusion:
    f = _one((4, 6, 5), lambda x: ig.amax(x, 1))
    (s,) = f.outputs
    s.reorder({1: 0}).split(2, 2).parallelize(1, "blockIdx.x").parallelize(3, "threadIdx.x")
    return f


@case
def split_reduction() -> ig.Fusion:
    f = _one((5, 7), lambda x: ig.prod(x, 1))
    f.outputs[0].split(1, 3).split(0, 2)
    return f


@case
def matmul_tiled() -> ig.Fusion:
    f = ig.Fusion("tiles")
    a, b = f.input("a", (6, 8)), f.input("b", (8, 5))
    c = f.output(ig.matmul(a, b))
    c.split(1, 2).split(0, 4).reorder({2: 1}).parallelize(0, "blockIdx.x").parallelize(1, "blockIdx.y")
    c.parallelize(3, "threadIdx.x")
    return f


@case
def bias_broadcast_inlined() -> ig.Fusion:
    """Case (b) of the defining examples: the broadcast axis is promoted in the shared loop."""
    f = ig.Fusion("b")
    t0, t4 = f.input("t0", (1, 6)), f.input("t4", (4, 6))
    t2 = ig.copy(t0)
    f.output(t2 + t4)
    t2.inline(1)
    return f


@case
def promoted_merge() -> ig.Fusion:
    f = ig.Fusion("promoted")
    t0, t4 = f.input("t0", (1, 6)), f.input("t4", (4, 6))
    t2 = ig.exp(t0)
    t3 = f.output(t2 + t4)
    for t in (t2, t3):
        t.merge(0).split(0, 5)
    t2.inline(1)
    return f


@case
def rotation_resized() -> ig.Fusion:
    f = ig.Fusion("rotation")
    t0 = f.input("t0", (16,))
    t1, t2 = t0[:8], t0[8:]
    t3 = ig.cat([t2, t1])
    t4 = f.output(t0 + t3)
    for t in (t1, t2):
        assert t.definition is not None
        ig.schedule.resize_to_inputs(f, t.definition)
    ig.schedule.like(f, t4)
    ig.schedule.inline_most(f)
    return f


@case
def rotation_auto() -> ig.Fusion:
    f = _one((4, 16), lambda x: x + ig.cat([-x[:, 8:], x[:, :8]], dim=1))
    ig.schedule.auto(f)
    return f


@case
def inlined_output() -> ig.Fusion:
    f = ig.Fusion("two outputs")
    x = f.input("x", (4, 6), "float16")
    a = f.output(x * 3.0)
    b = ig.cast(a, "bfloat16")
    f.output(b + 1.0, b)
    a.inline(2)
    b.inline(1)
    return f


@case
def symbolic_on_threads() -> Case:
    f = ig.Fusion("flat")
    n = f.symbol("n", min=1)
    x, y = f.input("x", (n, 3)), f.input("y", (n, 3))
    z = f.output(ig.where(x > y, x, y * 2.0) + 1.0)
    z.merge(0).split(0, 8).parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    ig.schedule.like(f, z)
    ig.schedule.inline_most(f)
    return Case(f, sizes={"n": 7})


@case
def large_private_array() -> Case:
    """Longer than a thread's local memory: a slice of global memory for each block."""
    f = ig.Fusion("large")
    n = f.symbol("n", min=1)
    x = f.input("x", (3, n))
    y = x * 2.0
    f.output(y + ig.flip(y, 1))
    y.inline(1)
    for t in (y, *f.outputs, f.exprs[1].output):
        t.parallelize(0, "blockIdx.x")
    f.exprs[1].output.inline(1)
    return Case(f, sizes={"n": 5})


@case
def vectorized_and_unrolled() -> ig.Fusion:
    f = _one((16,), lambda x: x * x)
    f.outputs[0].split(0, 4).split(0, 2).parallelize(2, "vectorize").parallelize(1, "unroll")
    return f


@case
def one_thread_for_a_row() -> ig.Fusion:
    """The sum runs on every thread of the block, and one of them stores it."""
    f = ig.Fusion("repeat")
    x = f.input("x", (3, 5))
    s = f.output(ig.sum(x, 1, keepdim=True))
    y = f.output(x / s)
    s.inline(1)
    for t in (s, y):
        t.parallelize(0, "blockIdx.x")
    y.parallelize(1, "threadIdx.x")
    return f


# shared memory --------------------------------------------------------------------------------------------------------

for _name, _build in SHARED.items():
    CASES[_name] = lambda build=_build: Case(build())


@case
def heads_of_several_sizes() -> ig.Fusion:
    """A joined projection split into parts of several sizes, two of them rotated: one launch, ranges of blocks."""
    f = ig.Fusion("heads")
    x = f.input("x", (1, 3, 4 * 16), "bfloat16")
    cos = f.input("cos", (1, 1, 3, 16), "bfloat16")
    start = 0
    for heads, turned in ((2, True), (1, True), (1, False)):
        part = ig.transpose(ig.reshape(x[..., start * 16 : (start + heads) * 16], 1, 3, heads, 16), 1, 2)
        start += heads
        moved = ig.cat([-part[..., 8:], part[..., :8]], dim=-1)
        f.output(part * cos + moved if turned else ig.copy(part))
    ig.schedule.auto(f, block=4)
    return f


@case
def pairs_float16() -> ig.Fusion:
    """16-bit floats in pairs, and single ones where the halves of a word go different ways."""
    f = ig.Fusion("pairs")
    x, c = f.input("x", (4, 16), "float16"), f.input("c", (4, 16), "float16")
    f.output(x * c + ig.cat([-x[:, 8:], ig.abs(x[:, :8])], dim=1))
    f.output(ig.flatten(ig.stack([x, ig.exp(c)], dim=-1), 1))
    ig.schedule.auto(f, block=4)
    return f


# rows -----------------------------------------------------------------------------------------------------------------


def _reduced(op: str, threads: int, rows: int, dtype: DType = "float32") -> Case:
    """A row of 70 on ``threads`` threads, ``rows`` rows a block."""
    f = ig.Fusion("block")
    y = f.output(getattr(ig, op)(f.input("x", (5, 70), dtype), 1))
    y.split(1, 2).split(1, threads).parallelize(2, "threadIdx.x").parallelize(3, "vectorize")
    if rows > 1:
        y.split(0, rows).parallelize(1, "threadIdx.y")
    y.parallelize(0, "blockIdx.x")
    return Case(f)


for _op, _threads, _rows in (
    ("sum", 32, 1), ("amax", 8, 4), ("amin", 12, 1), ("prod", 4, 1), ("any", 16, 2), ("all", 5, 3),
):  # fmt: skip
    CASES[f"block_{_op}"] = partial(_reduced, _op, _threads, _rows)
CASES["block_sum_of_ints"] = partial(_reduced, "sum", 8, 1, "int32")
CASES["block_amax_of_bools"] = partial(_reduced, "amax", 16, 2, "bool")


@case
def softmax_row() -> ig.Fusion:
    f = rows(lambda x: ig.softmax(x, 1), (2, 51))
    ig.schedule.auto(f)
    return f


@case
def cross_entropy_rows() -> Case:
    f = cross_entropy(3, 43, "mean", gradient=True, dtype="float32")
    ig.schedule.auto(f)
    return Case(f, {"y": np.array([0, 42, -100])})


def _turned(config: KernelConfig) -> Case:
    """A rotation with its tables, 40 elements a half: several vectors a thread, blocks that end within a row."""
    f = ig.Fusion("turned")
    x, cos, sin = f.input("x", (3, 80), "bfloat16"), f.input("cos", (1, 80), "bfloat16"), f.input("sin", (1, 80))
    f.output(x * cos + ig.cat([-x[..., 40:], x[..., :40]], dim=-1) * ig.cast(sin, "bfloat16"))
    ig.schedule.auto(f, config=config)
    return Case(f)


CASES.update({
    "turned_apart": lambda: _turned(KernelConfig(apart=True, block=32)),
    "turned_together": lambda: _turned(KernelConfig(apart=False, block=8)),
    "turned_two_vectors": lambda: _turned(KernelConfig(apart=False, vectors=2, block=4)),
    "turned_apart_four_vectors": lambda: _turned(KernelConfig(apart=True, vectors=4, block=32)),
})  # fmt: skip


@case
def constants_two_vectors() -> ig.Fusion:
    f = ig.Fusion("constants")
    f.output(f.full((5, 300), 2.5))
    ig.schedule.auto(f)
    return f


@case
def again_cross_entropy() -> Case:
    made = _kept(cross_entropy(3, 43, "mean", gradient=True, dtype="float32"), persistent=False)
    made.arrays["y"] = np.array([0, 42, -100])
    return made


@case
def norm_of_rows() -> ig.Fusion:
    f = rows(lambda x: (x - ig.mean(x, 1, keepdim=True)) * ig.rsqrt(ig.mean(x * x, 1, keepdim=True) + 1e-5), (3, 40))
    ig.schedule.auto(f)
    return f


@case
def largest_of_one_row() -> ig.Fusion:
    f = rows(lambda x: ig.amax(x, 0), (1, 9))
    ig.schedule.auto(f)
    return f


@case
def largest_of_all() -> Case:
    f = rows(lambda x: ig.amax(x), (50,))
    ig.schedule.auto(f)
    return Case(f, {"x": np.arange(-50, 0, dtype=np.float32)})


def _kept(f: ig.Fusion, persistent: bool = True, **choices: Any) -> Case:
    """Rows in registers (arrays on the CPU), or read again by each pass."""
    config = KernelConfig(persistent=persistent, **choices)
    ig.schedule.auto(f, config=config)
    return Case(f)


# Columns: as many as the threads take at once, a part more, fewer than one vector, odd; rows that fill no block.
CASES.update({
    "kept_softmax": lambda: _kept(rows(NORMS["softmax"], (3, 72)), threads=4),
    "kept_softmax_odd": lambda: _kept(rows(NORMS["softmax"], (2, 51)), threads=8, rows=4),
    "kept_log_softmax": lambda: _kept(rows(NORMS["log_softmax"], (2, 64), "bfloat16"), threads=2, rows=2),
    "kept_rms_norm": lambda: _kept(rows(NORMS["rms norm"], (2, 40), "bfloat16"), threads=4, rows=1),
    "kept_layer_norm": lambda: _kept(weighted_norm((3, 24), "float32"), threads=2, rows=2),
    "kept_short": lambda: _kept(rows(NORMS["softmax"], (5, 3))),
    "again_in_some_rows_of_a_block": lambda: _kept(rows(safe_logsumexp, (3, 8)), persistent=False, threads=4, rows=2),
    "again_softmax": lambda: _kept(rows(NORMS["softmax"], (3, 72)), persistent=False, threads=4),
    "again_softmax_passes": lambda: _kept(rows(NORMS["softmax"], (2, 51)), persistent=False, online=False, threads=8),
    "one_pass_variance": lambda: _kept(rows(lambda x: variance(x, 1), (3, 136)), persistent=False, threads=4),
    "one_pass_variance_odd": lambda: _kept(rows(lambda x: variance(x, 1), (2, 261)), False, threads=8, rows=4),
    "one_pass_variance_columns": lambda: _kept(rows(lambda x: variance(x, 0), (134, 8), "bfloat16"), False, threads=4),
    "one_pass_argmax": lambda: _kept(rows(lambda x: place(x, 1), (3, 72)), persistent=False, threads=4),
    "one_pass_argmin_odd": lambda: _kept(rows(lambda x: least_place(x, 1), (3, 51)), False, threads=8, rows=2),
    "one_pass_argmax_columns": lambda: _kept(rows(lambda x: place(x, 0), (70, 8)), persistent=False, threads=4),
    "again_layer_norm": lambda: _kept(weighted_norm((3, 24), "float32"), persistent=False, threads=2, rows=2),
})  # fmt: skip
