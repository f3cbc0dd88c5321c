"""Functions of float32 on the CPU: their errors, their special numbers, and that loops of them are vectors of code."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import idgraph as ig
from idgraph.runtime.cpu import compiler as cpu_entry
from idgraph.runtime.cpu import namespace as cpu
from tests.emit.llvm_text import llvm_texts
from tools.bench import ulp

mpmath: Any = import_module("mpmath")
Array = npt.NDArray[Any]
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 1.5, 2.0, -2.0, 3.0, -3.0, 2.0**24,
                    -(2.0**24), 2.0**24 + 2, 2.0**25, 1e-45, -1e-45, 2.0**-126, 3.4028235e38, -3.4028235e38, 0.99999994,
                    1.0000001, 88.72284, 128.0, -149.0, -150.0, -150.5, 1e30, -1e30, 1e-30], np.float32)  # fmt: skip
COUNT = 1 << 20
ONE = {"exp": 0.51, "exp2": 0.85, "expm1": 0.51, "log": 0.51, "log2": 0.51, "log10": 0.51, "log1p": 0.51, "sin": 0.51,
       "cos": 0.51, "tan": 0.51, "tanh": 0.51, "erf": 0.51}  # fmt: skip
TWO = {"pow": 0.51, "atan2": 0.51, "fmod": 0.0, "remainder": 0.0}


def strata(seed: int) -> Array:
    """One float32 of each of 2**20 runs of neighbours: every exponent and sign, subnormal numbers and NaN too."""
    step = (1 << 32) // COUNT
    r = np.random.default_rng(seed)
    words = np.arange(COUNT, dtype=np.uint64) * step + r.integers(0, step, COUNT, dtype=np.uint64)
    return words.astype(np.uint32).view(np.float32)


def largest(found: Array, wanted: Array) -> float:
    """The largest error in ulp, of subnormal results too; infinity for a zero of the other sign."""
    rounded = wanted.astype(np.float32)
    zero = (rounded == 0) & (found == 0) & (np.signbit(rounded) != np.signbit(found))
    return float("inf") if zero.any() else float(ulp.ulps(found, wanted).max())


def computed(name: str, *given: Array) -> Array:
    """The function of arrays, compiled."""
    f = ig.Fusion(name)
    made: Any = getattr(ig, name)
    f.output(made(*(f.input(f"x{k}", x.shape) for k, x in enumerate(given))))
    k: Any = ig.compile(f)
    return k(*given)


def exact(name: str, a: Array, b: Array) -> Array:
    """float64's function of two arrays."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    if name == "remainder":
        rest = np.fmod(x, y)
        # Rounded once more where the divisor is added, as in torch.
        return np.where((rest != 0) & ((y < 0) != (rest < 0)), (rest.astype(np.float32) + b).astype(np.float64), rest)
    found: Array = {"pow": np.power, "atan2": np.arctan2, "fmod": np.fmod}[name](x, y)
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("name", list(ONE))
def test_one_number_of_each_run(name: str) -> None:
    x = np.concatenate([strata(3), np.linspace(-20, 20, 1 << 18, dtype=np.float32), SPECIAL])
    with np.errstate(all="ignore"):
        assert largest(computed(name, x), ulp.exact(name, x)) <= ONE[name]


@pytest.mark.sampled
@pytest.mark.parametrize("name", list(TWO))
def test_pairs_of_numbers(name: str) -> None:
    r = np.random.default_rng(5)
    near, far = (r.standard_normal(1 << 18).astype(np.float32) * s for s in (np.float32(1), np.float32(20)))
    a = np.concatenate([strata(7), near, np.abs(near), np.repeat(SPECIAL, SPECIAL.size)])
    b = np.concatenate([r.permutation(strata(8)), far, far, np.tile(SPECIAL, SPECIAL.size)])
    with np.errstate(all="ignore"):
        assert largest(computed(name, a, b), exact(name, a, b)) <= TWO[name]


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_of_every_size(name: str) -> None:
    """Against mpmath: numbers beside the bounds between parts of 2/pi, and those that are nearest to quarter turns."""
    r = np.random.default_rng(1)
    x = (r.uniform(1, 2, 128 * 8) * 2.0 ** np.repeat(np.arange(128), 8)).astype(np.float32)
    hard = np.array(
        [16367173 * 2.0**72, 6381956970095103 * 2.0**70, 2.0**51, 2.0**77, 2.0**103, 3.4028235e38], np.float32
    )
    below, above = np.nextafter(hard, np.float32(0)), np.nextafter(hard[:-1], np.float32(np.inf))
    x = np.concatenate([x, hard, below, above])
    found = computed(name, x)
    with mpmath.workdps(80):
        wanted = np.array([float(getattr(mpmath, name)(mpmath.mpf(float(v)))) for v in x])
    assert largest(found, wanted) <= 0.51


def test_float16_words() -> None:
    words = np.arange(1 << 16, dtype=np.uint16)
    f = ig.Fusion("wide")
    f.output(ig.cast(f.input("x", words.shape, "float16"), "float32"))
    wide: Any = ig.compile(f)
    np.testing.assert_array_equal(wide(words.view(np.float16)), words.view(np.float16).astype(np.float32))
    halves = words.view(np.float16).astype(np.float64)
    halves = halves[np.isfinite(halves)]
    middle = ((halves + np.roll(halves, 1)) / 2).astype(np.float32)  # most are as near to one float16 as to another
    beside = [np.nextafter(middle, np.float32(s)) for s in (-np.inf, np.inf)]
    x = np.concatenate([strata(2), middle, *beside, SPECIAL, np.array([65519.996, 65520.0, -65520.0], np.float32)])
    g = ig.Fusion("narrow")
    g.output(ig.cast(g.input("x", x.shape), "float16"))
    narrow: Any = ig.compile(g)
    found = narrow(x)
    with np.errstate(all="ignore"):
        wanted = x.astype(np.float16)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(x))
    np.testing.assert_array_equal(found.view(np.uint16)[~np.isnan(x)], wanted.view(np.uint16)[~np.isnan(x)])


@pytest.mark.sampled
@pytest.mark.parametrize("name", [*ONE, *TWO, "sigmoid", "sign", "floor_divide", "half", "several"])
def test_loops_are_vectors_without_a_call(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM's text of the kernel: vectors of floats, and no function but its own, also where it calls one often."""
    seen = llvm_texts(monkeypatch)
    x = np.linspace(0.1, 2, 4099, dtype=np.float32)
    if name in ("half", "several"):
        f = ig.Fusion(name)
        t = f.input("x", x.shape)
        f.output(ig.cast(t, "float16") if name == "half" else t**2.5 + (t + 1.0) ** 3.5 + ig.tan(t) ** 1.5)
        kernel: Any = ig.compile(f)
        kernel(x)
    else:
        computed(name, *([x, x[::-1].copy()] if name in TWO or name == "floor_divide" else [x]))
    called = {n for text in seen for n in re.findall(r"\bcall [^@\n]*@\"?([\w.$]+)", text)}
    assert not {n for n in called if not n.startswith(("llvm.", "NRT_"))}
    assert any(re.search(r"<(4|8|16|32) x (float|double|half)>", text) for text in seen)


def test_kernels_name_only_what_python_may_call() -> None:
    """Functions of float16 are called from Python too, by the tests of all words."""
    names = cpu.namespace()
    assert int(names["f16_word"](np.float32(1.0))) == 0x3C00
    assert float(names["f16_load"](np.uint16(0x3C00))) == 1.0


@pytest.mark.parametrize(("length", "short"), [(64, True), (1003, False)])
def test_short_rows_are_copied_by_calls(length: int, short: bool) -> None:
    f = ig.Fusion("f")
    f.output(ig.flip(f.input("x", (32, length)), 0))
    ig.schedule.auto(f)
    (kernel,) = ig.emit(f, "cpu").kernels
    assert cpu_entry.has_short_rows(kernel) is short


@pytest.mark.parametrize(("name", "short"), [("moved", True), ("added up", False), ("computed", False)])
def test_kernels_that_wait_for_memory_have_short_vectors(name: str, short: bool) -> None:
    f = ig.Fusion(name)
    x = f.input("x", (8, 1003))
    f.output({"moved": x * 2.0 + 1.0, "added up": ig.sum(x, 1), "computed": ig.exp(x)}[name])
    ig.schedule.auto(f)
    (kernel,) = ig.emit(f, "cpu").kernels
    assert cpu_entry.is_memory_bound(kernel) is short
    compiler = cpu_entry.compiler(short, not short)
    assert compiler is cpu_entry.compiler(short, not short)

    def doubled(a: Array, b: Array) -> None:
        for n in range(a.size):
            b[n] = a[n] * 2.0

    numba: Any = import_module("numba")
    made = numba.njit(pipeline_class=compiler)(doubled)
    a, b = np.arange(100.0), np.zeros(100)
    made(a, b)
    assert np.array_equal(b, 2 * a)
    text = next(iter(made.inspect_llvm().values()))
    assert ('"prefer-vector-width"="256"' in text) is short
    assert ('"no-builtin-memcpy"' in text) is short
    head = next(x for x in text.splitlines() if x.startswith("define") and "cpython" not in x and "cfunc" not in x)
    assert head.count(" noalias ") == 2 + 6  # the result, the exception; three pointers of each array
