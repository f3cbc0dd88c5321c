"""Functions of float64 on the CPU, and functions of functions: errors, and loops that are vectors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import idgraph as ig
from idgraph.runtime.program import stages
from tests.emit.llvm_text import llvm_texts

Array = npt.NDArray[Any]
LIMITS = {"exp": 0.77, "expm1": 1.3, "log": 0.8, "log1p": 0.83}
ENDS = (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 5e-324, 2.3e-308, 709.78, 710.0, -745.1, -746.0, 38.0)


def places() -> Array:
    """float64 numbers of all sizes, and many of the sizes at which functions bend."""
    rng = np.random.default_rng(0)
    words = rng.integers(-(1 << 63), 1 << 63, 1 << 18, dtype=np.int64).view(np.float64)
    near = 1.0 + rng.standard_normal(1 << 16) * 1e-3
    tiny = rng.standard_normal(1 << 17) * 10.0 ** rng.integers(-20, 1, 1 << 17)
    return np.concatenate([words, rng.uniform(-750, 750, 1 << 17), rng.uniform(-2, 2, 1 << 17), near, tiny, ENDS])


@pytest.mark.parametrize("name", LIMITS)
def test_errors_of_float64_functions(name: str) -> None:
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("longdouble has no more places than float64 here")
    x = places()
    f = ig.Fusion(name)
    f.output(getattr(ig, name)(f.input("x", x.shape, dtype="float64")))
    found = np.asarray(ig.compile(f)(x))
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.astype(np.longdouble))
        wanted = exact.astype(np.float64)
        away = np.abs(found - exact) / np.spacing(np.minimum(np.abs(wanted), 1.7e308))
    number = np.isfinite(wanted)
    assert np.array_equal(found[~number], wanted[~number], equal_nan=True)
    assert np.array_equal(np.signbit(found[number]), np.signbit(wanted[number]))
    assert float(away[number].max()) < LIMITS[name]


def single(f: ig.Fusion, x: ig.Tensor, name: str) -> ig.Tensor:
    if name == "softplus":
        return ig.log1p(ig.exp(x))
    return 1.0 + ig.erf(x) if name == "1 + erf" else 1.0 - ig.erf(x)


@pytest.mark.parametrize("name", ["softplus", "1 + erf", "1 - erf"])
def test_functions_of_functions(name: str) -> None:
    """No place of a small result is lost, as a difference from 1 would lose it."""
    x = np.concatenate([np.linspace(-5.9, 5.9, 100_001), np.linspace(-110, 110, 5001), ENDS]).astype(np.float32)
    f = ig.Fusion("f")
    f.output(single(f, f.input("x", x.shape), name))
    ig.schedule.auto(f)
    (kernel,) = dict(stages(f, "cpu"))["composed"].kernels
    assert {"softplus": "log1p_exp", "1 + erf": "one_plus_erf", "1 - erf": "one_minus_erf"}[name] in str(kernel)
    found = np.asarray(ig.emit(f, "cpu").run({"x": x})[f.outputs[0].name])
    a = x.astype(np.float64)
    with np.errstate(all="ignore"):
        if name == "softplus":
            exact: Array = np.logaddexp(0.0, a)
        else:
            exact = np.array([math.erfc(v if name == "1 - erf" else -v) for v in a.tolist()])
        step = np.spacing(np.minimum(np.abs(exact.astype(np.float32)), np.float32(3e38)))
        away = np.abs(found - exact) / step
    number = np.isfinite(a)
    assert np.array_equal(found[~number], exact.astype(np.float32)[~number], equal_nan=True)
    if name == "softplus":
        assert float(away[number].max()) < 0.52
        return
    side = -a if name == "1 + erf" else a  # erfc of it
    assert float(away[number & (side < 0)].max()) < 1.2
    near = number & (side >= 0) & (side < 6)
    assert float((away[near] / (3 + 20 * side[near] ** 2)).max()) < 1.0
    assert float(np.abs(found - exact)[number & (side >= 6)].max()) < 1e-17


def test_inner_functions_that_others_read_stay() -> None:
    f = ig.Fusion("f")
    x = f.input("x", (1003,))
    e = ig.exp(x)
    f.output(ig.log1p(e) + e)
    ig.schedule.auto(f)
    assert "composed" not in dict(stages(f, "cpu"))


@pytest.mark.parametrize("name", [*LIMITS, "sigmoid"])
def test_loops_over_float64_functions_are_vectors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = llvm_texts(monkeypatch)
    f = ig.Fusion(f"vectors of {name}")
    f.output(getattr(ig, name)(f.input("x", (1009,), dtype="float64")))
    ig.compile(f)(np.ones(1009))
    assert any("x double>" in text for text in seen)
