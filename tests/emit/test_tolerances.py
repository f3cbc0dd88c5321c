"""Formulas rounded to 16 bits: which functions take short forms, and their errors of every number, beside torch's own.

The instructions are emulated in NumPy with the largest errors that their manual states (PTX ISA, `ex2.approx`,
`rcp.approx`, `rsqrt.approx`, `div.full`), all above or all below. The expected values are those of float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.ir import DType
from idgraph.kernel.ir import Compute, Kernel, Load, Local, Store, walk
from idgraph.passes.narrowing import ERFC as ERFC_ERROR
from idgraph.passes.narrowing import approximate_math
from idgraph.runtime.cuda.intrinsics_math import ERFC, EXPM1, LARGE, NEAR, TANH
from idgraph.runtime.program import stages
from tests.emit.test_short_functions import KINDS, Array, every, ulps

torch: Any = pytest.importorskip("torch")
Tensor = ig.Tensor
TINY = 2.0**-126
LOG2_E = np.float32(1.4426950408889634)
_erfc: Any = np.frompyfunc(math.erfc, 1, 1)


# the instructions ----------------------------------------------------------------------------------------------------


def single(x: Any) -> Array:
    return np.asarray(x).astype(np.float32)


def flushed(x: Any) -> Array:
    """Subnormal numbers as zeros, as ``.ftz`` has them."""
    return np.where(np.abs(x) < TINY, 0.0, x)


def fast_exp(x: Array, away: int) -> Array:
    """ex2.approx.ftz: off by 2 ** -22 of the value."""
    power = np.exp2(flushed(single(x * LOG2_E)).astype(np.float64))
    return single(flushed(power * (1 + away * 2.0**-22)))


def logistic_of(e: Array, away: int) -> Array:
    """A sum scaled by 2 ** -32, rcp.approx.ftz off by 2 ** -23, and the scale again."""
    total = single(e.astype(np.float64) * 2.0**-32 + 2.0**-32)
    return single(single(flushed(1 / total.astype(np.float64) * (1 - away * 2.0**-23))) * np.float32(2.0**-32))


def doubled(x: Array) -> Array:
    return single(x + x)


def fma(a: Array, b: Array, c: Any) -> Array:
    """The product of two float32 is exact in float64; the sum is rounded twice, which almost never matters."""
    return single(a.astype(np.float64) * b + c)


def one_plus_erf(x: Array, away: int) -> Array:
    """The polynomial of the magnitude, ex2.approx.ftz, and 2 less it above zero."""
    size, q = np.abs(x), np.full(x.shape, np.float32(ERFC[-1]))
    for c in ERFC[-2::-1]:
        q = fma(q, size, np.float32(c))
    tail = single(flushed(np.exp2(single(q * size).astype(np.float64)) * (1 + away * 2.0**-22)))
    return np.where(x >= 0, single(np.float32(2) - tail), tail)


def tanh_log1p(x: Array, away: int) -> Array:
    small = np.minimum(x, np.float32(LARGE))
    top = single(small * single(small + np.float32(2)))
    return single(top * single(flushed(1 / single(top + np.float32(2)).astype(np.float64) * (1 + away * 2.0**-23))))


def near_expm1(x: Array, away: int) -> Array:
    p = np.full(x.shape, np.float32(EXPM1[-1]))
    for c in EXPM1[-2::-1]:
        p = fma(p, x, np.float32(c))
    return np.where(np.abs(x) < NEAR, single(p * x), single(fast_exp(x, away) - np.float32(1)))


def near_tanh(x: Array, away: int) -> Array:
    """1 less a power of e, and rcp.approx.ftz of 1 and it, both off to the same side."""
    a, square = np.abs(x), single(x * x)
    power = fast_exp(single(a * np.float32(-2)), away)
    inverse = single(1 / single(np.float32(1) + power).astype(np.float64) * (1 - away * 2.0**-23))
    whole = np.copysign(single(single(np.float32(1) - power) * inverse), x)
    p = single(fma(square, np.full(x.shape, np.float32(TANH[1])), np.float32(TANH[0])) * square)
    return np.where(a < NEAR, fma(p, x, x), whole)


def near(exact: Any, away: int) -> Array:
    """A float32 that is off by 2 ** -22 of the value."""
    return single(exact * (1 + away * 2.0**-22))


def approximate(op: str, away: int, x: Array, *rest: Array) -> Array:
    """What the instructions of a short form give."""
    wide = x.astype(np.float64)
    match op:
        case "short_exp":
            return near(np.exp2(single(x * LOG2_E).astype(np.float64)), away)
        case "short_sigmoid":
            return logistic_of(fast_exp(-x, away), away)
        case "short_one_minus_sigmoid":
            return logistic_of(fast_exp(x, away), away)
        case "short_one_plus_tanh":
            return doubled(logistic_of(fast_exp(-doubled(x), away), away))
        case "short_one_minus_tanh":
            return doubled(logistic_of(fast_exp(doubled(x), away), away))
        case "short_one_plus_erf":
            return one_plus_erf(x, away)
        case "short_one_minus_erf":
            return one_plus_erf(-x, away)
        case "short_expm1":
            return near_expm1(x, away)
        case "short_tanh":
            return near_tanh(x, away)
        case "short_tanh_log1p":
            return tanh_log1p(x, away)
        case "short_sqrt":
            return near(np.sqrt(wide), away)
        case "short_div":
            return near(wide / rest[0], away)
        case "short_reciprocal":
            return near(1 / wide, away)
        case "short_rsqrt":
            return near(1 / np.sqrt(wide), away)
        case _:
            raise AssertionError(op)


def sigmoid64(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


def erf64(x: Array) -> Array:
    return 1.0 - np.asarray(_erfc(x)).astype(np.float64)


def chosen(condition: Array, a: Array, b: Array) -> Array:
    return np.where(condition != 0, a, b)


EXACT: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "tanh": np.tanh,
    "exp": np.exp, "log1p": np.log1p, "square": np.square, "abs": np.abs, "maximum": np.maximum, "cast": np.positive,
    "sqrt": np.sqrt, "sigmoid": sigmoid64, "erf": erf64,
    "expm1": np.expm1, "gt": np.greater, "where": chosen,
}  # fmt: skip


def lowered(f: ig.Fusion) -> Kernel:
    """The kernel of a fusion before all passes."""
    ig.schedule.auto(f)
    _, plan = next(iter(stages(f, "cuda")))
    (kernel,) = plan.kernels
    return kernel


def computed(f: ig.Fusion, x: Array, away: int) -> tuple[Array, set[str]]:
    """The output of a fusion of one input, by the statements of its kernel, and the short forms among them."""
    values: dict[str, Array] = {}
    short: set[str] = set()
    made = x

    def value(o: Any) -> Array:
        return values[o.name] if isinstance(o, Local) else single(o.value)

    for s in walk(approximate_math(lowered(f)).body):
        match s:
            case Load(local):
                values[local.name] = x
            case Compute(local, op, operands):
                given = [value(o) for o in operands]
                if op.startswith("short_"):
                    short.add(op)
                    found = approximate(op, away, *given)
                else:
                    found = single(EXACT[op](*(a.astype(np.float64) for a in given)))
                kind = KINDS[local.dtype][0] if local.dtype in KINDS else np.float32
                values[local.name] = single(found.astype(kind))
            case Store(value=Local() as last):
                made = values[last.name]
            case _:
                pass
    return made, short


def fusion(formula: Callable[[Tensor], Tensor], dtype: DType) -> ig.Fusion:
    """A formula in float32 of 16-bit numbers, rounded to 16 bits."""
    f = ig.Fusion("formula")
    x = f.input("x", (64,), dtype)
    f.output(ig.cast(formula(ig.cast(x, "float32")), dtype))
    return f


# formulas, as PyTorch's decompositions write them --------------------------------------------------------------------


def silu(x: Tensor) -> Tensor:
    return x * ig.sigmoid(x)


def silu_divided(x: Tensor) -> Tensor:
    return x / (1.0 + ig.exp(-x))


def gelu(x: Tensor) -> Tensor:
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return 0.5 * x * (1.0 + ig.tanh(inner))


def gelu_by_erf(x: Tensor) -> Tensor:
    return x * 0.5 * (1.0 + ig.erf(x * math.sqrt(0.5)))


def root(x: Tensor) -> Tensor:
    return ig.sqrt(ig.abs(x))


def softplus(x: Tensor) -> Tensor:
    return ig.log1p(ig.exp(x))


def elu(x: Tensor) -> Tensor:
    return ig.where(x > 0.0, x, ig.expm1(x))


def mish(x: Tensor) -> Tensor:
    return x * ig.tanh(ig.log1p(ig.exp(x)))


def not_gate(x: Tensor) -> Tensor:
    return 1.0 - ig.sigmoid(x)


def third(x: Tensor) -> Tensor:
    return x / 3.0


def scaled(x: Tensor) -> Tensor:
    return x * ig.rsqrt(x * x + 1e-6)


def gelu64(x: Array) -> Array:
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return x * sigmoid64(2 * u)


def gelu_of_torch(x: Any) -> Any:
    return torch.nn.functional.gelu(x, approximate="tanh")


def gelu_by_erf64(x: Array) -> Array:
    return 0.5 * x * np.asarray(_erfc(-x * math.sqrt(0.5))).astype(np.float64)


def of_single(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """torch's formula, in float32 and rounded, as its kernels have it."""

    def rounded(x: Any) -> Any:
        return f(x.float()).to(x.dtype)

    return rounded


FORMULAS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Array], Any, set[str]]] = {
    "silu": (silu, lambda x: x * sigmoid64(x), torch.nn.functional.silu, {"short_sigmoid"}),
    "silu as a quotient": (
        silu_divided, lambda x: x * sigmoid64(x), torch.nn.functional.silu, {"short_exp", "short_div"},
    ),
    "gelu": (gelu, gelu64, gelu_of_torch, {"short_one_plus_tanh"}),
    "softplus": (
        softplus, lambda x: np.logaddexp(x, 0.0), of_single(lambda x: torch.log1p(torch.exp(x))), {"short_exp"},
    ),
    "mish": (
        mish, lambda x: x * np.tanh(np.logaddexp(x, 0.0)), torch.nn.functional.mish,
        {"short_exp", "short_tanh_log1p"},
    ),
    "gelu by erf": (gelu_by_erf, gelu_by_erf64, torch.nn.functional.gelu, {"short_one_plus_erf"}),
    "sqrt": (root, lambda x: np.sqrt(np.abs(x)), of_single(lambda x: torch.sqrt(torch.abs(x))), {"short_sqrt"}),
    "tanh": (ig.tanh, np.tanh, of_single(torch.tanh), {"short_tanh"}),
    "expm1": (ig.expm1, np.expm1, of_single(torch.expm1), {"short_expm1"}),
    "elu": (
        elu, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), torch.nn.functional.elu, {"short_expm1"},
    ),
    "1 - sigmoid": (
        not_gate, lambda x: sigmoid64(-x), of_single(lambda x: 1 - torch.sigmoid(x)), {"short_one_minus_sigmoid"},
    ),
    "x / 3": (third, lambda x: x / 3.0, of_single(lambda x: x / 3.0), set()),
    "x * rsqrt": (
        scaled, lambda x: x / np.sqrt(x * x + 1e-6), of_single(lambda x: x * torch.rsqrt(x * x + 1e-6)),
        {"short_rsqrt"},
    ),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("away", [-1, 1])
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("name", FORMULAS)
def test_no_number_has_a_larger_error_than_torchs(name: str, dtype: DType, away: int) -> None:
    """In units in the last place of the result, 1/64 apart; where torch's is right, the result is within 0.516."""
    formula, exact, theirs, forms = FORMULAS[name]
    x = every(dtype)
    words = torch.from_numpy(np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.int16))
    given = words.view(getattr(torch, dtype))
    wanted = exact(x.astype(np.float64))
    found, short = computed(fusion(formula, dtype), x, away)
    assert short == forms
    peer = theirs(given).view(torch.int16).numpy().view(np.uint16).view(KINDS[dtype][0])
    ours, others = ulps(found, wanted, dtype), ulps(peer.astype(np.float32), wanted, dtype)
    worse = ours > others + 1 / 64
    assert not worse.any(), (x[worse][:5], found[worse][:5], ours[worse][:5], others[worse][:5])
    assert ours[others <= 0.51].max() <= 0.516


@pytest.mark.parametrize("away", [-1, 1])
def test_erfc_has_its_stated_error(away: int) -> None:
    """All of 200 001 places, and to infinity: a polynomial may rise behind what it was fitted to."""
    a = np.linspace(-7.5, 7.5, 200_001).astype(np.float32)
    found, exact = one_plus_erf(a, away).astype(np.float64), np.asarray(_erfc(-a.astype(np.float64))).astype(np.float64)
    apart = np.abs(found - exact)
    assert (apart <= np.maximum(ERFC_ERROR * exact, 2.0**-38)).all()
    assert (apart <= 0.04 * exact).all()
    places = [np.linspace(7.5, 100, 10_000), np.logspace(2, 38, 1000), [np.inf]]
    with np.errstate(over="ignore", invalid="ignore"):
        far = one_plus_erf(-np.concatenate(places).astype(np.float32), away)
    assert (np.diff(far) <= 0).all() and far[0] < 1e-25 and far[-1] == 0
    top, plus, minus, nothing = one_plus_erf(np.array([np.inf, 0.0, -0.0, np.nan], np.float32), away)
    assert top == 2 and plus == minus and abs(plus - 1) <= 2.0**-22 and np.isnan(nothing)


# which values have a tolerance ---------------------------------------------------------------------------------------


def forms(formula: Callable[[Tensor], Tensor], to: DType = "bfloat16", extra: bool = False) -> list[str]:
    """The functions of a formula of float32, rounded to ``to``; ``extra`` gives a float32 result as well."""
    f = ig.Fusion("formula")
    y = formula(f.input("x", (64,)))
    f.output(ig.cast(y, to))
    if extra:
        f.output(y)
    known = {"exp", "sigmoid", "tanh", "div", "rsqrt", "mul", "sub"}
    ops = [s.op for s in walk(approximate_math(lowered(f)).body) if isinstance(s, Compute)]
    return [op for op in ops if op in known or op.startswith("short_")]


def two_exponentials(x: Tensor) -> Tensor:
    return ig.exp(x) * ig.exp(-x * x)


def compared(x: Tensor) -> Tensor:
    e = ig.exp(x)
    return ig.where(e > 2.0, x, 0.0) * e


def test_an_addition_ends_a_tolerance() -> None:
    assert forms(lambda x: ig.exp(x) + x) == ["exp"]
    assert forms(lambda x: ig.exp(x) - 1.0) == ["exp", "sub"]
    assert forms(lambda x: ig.sigmoid(x) - 1.0) == ["sigmoid", "sub"]


def test_numbers_of_one_sign_do_not_cancel() -> None:
    assert forms(lambda x: ig.exp(x) + 1.0) == ["short_exp"]
    assert forms(lambda x: ig.exp(x) + ig.square(x)) == ["short_exp"]
    assert forms(lambda x: ig.exp(x) + -1.0) == ["exp"]


def test_every_use_counts() -> None:
    assert forms(lambda x: x * ig.sigmoid(x)) == ["short_sigmoid", "mul"]
    assert forms(lambda x: x * ig.sigmoid(x), extra=True) == ["sigmoid", "mul"]
    assert forms(lambda x: x * ig.sigmoid(x), "float32") == ["sigmoid", "mul"]
    assert forms(compared) == ["exp", "mul"]
    assert forms(lambda x: ig.exp(ig.exp(x))) == ["exp", "short_exp"]


def test_errors_add_up() -> None:
    assert forms(two_exponentials)[-2:] == ["short_exp", "mul"]
    assert "short_exp" not in forms(two_exponentials, "float16")
    assert forms(lambda x: ig.where(x > 0.0, ig.exp(-x), ig.exp(x)), "float16") == ["short_exp", "short_exp"]


def test_a_function_that_is_read_beside_its_sum_with_one_is_computed() -> None:
    def gate(x: Tensor) -> Tensor:
        t = ig.tanh(x)
        return (1.0 + t) * t

    assert forms(lambda x: (1.0 + ig.tanh(x)) * x) == ["tanh", "short_one_plus_tanh", "mul"]  # tanh is dead code
    assert forms(gate) == ["tanh", "mul"]
    assert forms(lambda x: (ig.tanh(x) + 1.0) * x) == ["tanh", "short_one_plus_tanh", "mul"]
    assert forms(lambda x: (1.0 - ig.tanh(x)) * x) == ["tanh", "short_one_minus_tanh", "mul"]
    assert forms(lambda x: 2.0 + ig.tanh(x)) == forms(lambda x: ig.tanh(x) + 2.0) == ["tanh"]
    assert forms(lambda x: ig.tanh(x) - 1.0) == ["tanh", "sub"]


def test_a_logarithm_of_less_than_one_keeps_its_sign() -> None:
    """tanh(log(1 + x)) of x below -1 is NaN, the quotient is not."""
    assert forms(lambda x: ig.tanh(ig.log1p(x))) == ["short_tanh"]
    assert forms(lambda x: ig.tanh(ig.log1p(ig.exp(x)))) == ["short_exp", "short_tanh_log1p"]
    assert forms(lambda x: ig.tanh(ig.log1p(ig.square(x)))) == ["short_tanh_log1p"]


def test_a_divisor_that_is_a_number() -> None:
    assert forms(lambda x: x / 3.0) == ["mul"]
    assert forms(lambda x: x / 4.0) == ["div"]  # the compiler has the exact product
    assert forms(lambda x: x / 1e-39) == ["div"]
    assert forms(lambda x: x / 3.0, "float32") == ["div"]


# through sums and private rows ---------------------------------------------------------------------------------------


def row_forms(formula: Callable[[Tensor], tuple[Tensor, ...]], to: DType = "bfloat16") -> set[str]:
    """The functions of rows of float32 whose first result is rounded to ``to``; the others are not."""
    f = ig.Fusion("rows")
    first, *others = formula(f.input("x", (64, 1024)))
    f.output(ig.cast(first, to))
    for t in others:
        f.output(t)
    ig.schedule.auto(f)
    known = {"exp", "short_exp", "div", "div_by", "reciprocal", "short_reciprocal"}
    made = ig.emit(f, "cuda").kernels
    return {s.op for k in made for s in walk(k.body) if isinstance(s, Compute)} & known


def softmax(x: Tensor) -> Tensor:
    e = ig.exp(x - ig.amax(x, 1, keepdim=True))
    return e / ig.sum(e, 1, keepdim=True)


def test_a_softmax_that_is_rounded_takes_short_forms() -> None:
    assert row_forms(lambda x: (softmax(x),)) == {"short_exp", "short_reciprocal"}
    assert row_forms(lambda x: (softmax(x),), "float16") == {
        "exp",
        "short_reciprocal",
    }  # two errors are too many for half
    assert row_forms(lambda x: (softmax(x),), "float32") == {"exp", "div_by", "reciprocal"}


def test_every_use_of_a_row_counts() -> None:
    def with_sum(x: Tensor) -> tuple[Tensor, ...]:
        e = ig.exp(x)
        s = ig.sum(e, 1, keepdim=True)
        return e / s, s

    assert "short_exp" not in row_forms(with_sum)
    assert "exp" in row_forms(lambda x: (softmax(x), softmax(x)))


def test_a_sum_of_both_signs_ends_a_tolerance() -> None:
    def moment(x: Tensor) -> tuple[Tensor, ...]:
        return (1.0 / ig.sum(ig.exp(x) * x, 1),)

    def positive(x: Tensor) -> tuple[Tensor, ...]:
        return (1.0 / ig.sum(ig.exp(x) * ig.square(x), 1),)

    assert "exp" in row_forms(moment) and "short_exp" not in row_forms(moment)
    assert "short_exp" in row_forms(positive) and "exp" not in row_forms(positive)
