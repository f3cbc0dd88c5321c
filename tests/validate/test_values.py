"""The value check: comparing, tolerances, poison, targets, reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.ir import Fusion
from idgraph.validate import Report, check_values, tolerance, validate
from idgraph.validate.value_check import compare


def rope(dtype: str = "bfloat16", shape: tuple[int, ...] = (1, 2, 6, 8)) -> Fusion:
    """Rotate-half RoPE with a residual."""
    f = ig.Fusion("rope")
    x = f.input("x", shape=shape, dtype=dtype)
    c = f.input("cos", shape=shape[-2:], dtype=dtype)
    s = f.input("sin", shape=shape[-2:], dtype=dtype)
    half = shape[-1] // 2
    f.output(x + (x * c + ig.cat([-x[..., half:], x[..., :half]], -1) * s))
    return f


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
def test_rope(target: str, dtype: str) -> None:
    """Every target, every floating point type; addition and multiplication leave no room for an error."""
    report = validate(rope(dtype), target="cpu" if target == "cpu" else "numpy" if target == "numpy" else "python")
    assert report.ok, str(report)
    assert report.values is not None
    assert report.values.errors[0].largest == 0.0


def test_the_report_prints() -> None:
    """Both checks, how much was looked at and how close the values were."""
    text = str(validate(rope(), target="python", seed=4))
    assert text.startswith("rope on python: ok (seed 4)")
    assert "checks (every point)" in text
    assert "(bfloat16): largest error 0" in text


def test_a_seed_repeats() -> None:
    """The same seed, the same data."""
    a, b = (check_values(rope("float32"), "numpy", seed=9).errors for _ in range(2))
    assert a == b


def test_softmax_and_sums_are_within_tolerance() -> None:
    """Transcendentals and sums in another order."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 50))
    f.output(ig.log_softmax(x, 1), ig.softmax(x, 0), ig.mean(x))
    report = validate(f, target="numpy")
    assert report.ok, str(report)


def test_integers_and_bool_are_exact() -> None:
    """No tolerance: one off is wrong."""
    assert tolerance("int32") == tolerance("bool") == 0
    right = np.array([1, 2, 3])
    assert compare("t", "int64", right, right).mismatch is None
    found = compare("t", "int64", np.array([1, 2, 4]), right).mismatch
    assert found is not None
    assert (found.coordinates, found.value, found.expected, found.wrong, found.elements) == ((2,), 4, 3, 1, 3)


def test_nan_and_infinity_compare_as_themselves() -> None:
    """NaN where the definition has none is an element never written."""
    want = np.array([1.0, np.nan, np.inf, -np.inf], np.float32)
    assert compare("t", "float32", want.copy(), want).mismatch is None
    for at, value in ((0, np.nan), (1, 0.0), (2, 1e30), (3, np.inf)):
        got = want.copy()
        got[at] = value
        found = compare("t", "float32", got, want).mismatch
        assert found is not None
        assert found.coordinates == (at,)


def test_another_shape_is_wrong() -> None:
    """A kernel that returns another shape is told so."""
    found = compare("t", "float32", np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32)).mismatch
    assert found is not None
    assert "shape" in found.note


def test_given_inputs_are_used() -> None:
    """Arrays of the caller, and an index out of range in them is the caller's error."""
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(3, 4)), f.input("i", shape=(3, 1), dtype="int64")
    f.output(ig.gather(x, 1, i))
    arrays = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "i": np.array([[3], [0], [2]])}
    assert validate(f, target="python", inputs=arrays).ok
    with pytest.raises(ig.IndexingError, match="outside the 4 elements"):
        validate(f, target="python", inputs={**arrays, "i": np.array([[4], [0], [2]])})


def test_reports_are_values() -> None:
    """A report cannot be changed, and says no without a counterexample only when nothing failed."""
    report = validate(rope(), target="python")
    assert isinstance(report, Report)
    with pytest.raises(AttributeError):
        report.seed = 1  # type: ignore[misc]
    assert bool(report)
    assert report.counterexample is None


@pytest.mark.nightly
def test_llama_rope_with_residual() -> None:
    """q and k of a Llama layer: every address and every value."""
    f = ig.Fusion("llama")
    shape = (2, 32, 4096, 128)
    c, s = (f.input(n, shape=(1, 1, 4096, 128), dtype="bfloat16") for n in ("cos", "sin"))
    for name in ("q", "k"):
        x = f.input(name, shape=shape, dtype="bfloat16")
        f.output(x + (x * c + ig.cat([-x[..., 64:], x[..., :64]], -1) * s))
    report = validate(f, target="cpu")
    assert report.ok, str(report)
    assert report.points > 10**9


EMPTY: dict[str, Callable[[ig.Fusion], ig.Tensor]] = {
    "mul": lambda f: f.input("x", (0, 4)) * 2.0,
    "sum": lambda f: ig.sum(f.input("x", (0, 4)), 0),
    "cat": lambda f: ig.cat([f.input("x", (0,)), f.input("y", (3,))], 0),
    "cumsum": lambda f: ig.cumsum(f.input("x", (0, 4)), 0),
    "pad": lambda f: ig.pad(f.input("x", (0,)), (2, 1)),
    "gather": lambda f: ig.gather(f.input("x", (3,)), 0, f.input("i", (0,), "int64")),
    "matmul": lambda f: ig.matmul(f.input("x", (3, 0)), f.input("y", (0, 2))),
}


@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
@pytest.mark.parametrize("name", EMPTY)
def test_tensors_without_elements(name: str, target: Any) -> None:
    f = ig.Fusion("empty")
    f.output(EMPTY[name](f))
    assert ig.validate(f, target=target).ok
