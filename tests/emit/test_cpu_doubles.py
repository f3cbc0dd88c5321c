"""Functions of float64 on the CPU, and functions of functions: errors, and loops that are vectors."""

from __future__ import annotations

import math
import re
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import idgraph as ig
from idgraph.runtime.program import stages
from tests.emit.llvm_text import llvm_texts

mpmath: Any = import_module("mpmath")
Array = npt.NDArray[Any]
LIMITS = {"exp": 0.77, "expm1": 1.3, "log": 0.8, "log1p": 0.83}
BESIDE_TORCH = {"sin": 0.54, "cos": 0.54, "tan": 0.55, "tanh": 0.6, "atan": 0.6, "atan2": 1.0}
NEAREST = 0.55  # ulp; torch's sines, by a library that rounds sums of three parts, are within 0.51
ENDS = (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 5e-324, 2.3e-308, 709.78, 710.0, -745.1, -746.0, 38.0)


def places() -> Array:
    """float64 numbers of all sizes, and many of the sizes at which functions bend."""
    rng = np.random.default_rng(0)
    words = rng.integers(-(1 << 63), 1 << 63, 1 << 18, dtype=np.int64).view(np.float64)
    near = 1.0 + rng.standard_normal(1 << 16) * 1e-3
    tiny = rng.standard_normal(1 << 17) * 10.0 ** rng.integers(-20, 1, 1 << 17)
    return np.concatenate([words, rng.uniform(-750, 750, 1 << 17), rng.uniform(-2, 2, 1 << 17), near, tiny, ENDS])


def computed(name: str, *given: Array) -> Array:
    """The function of float64 arrays, compiled."""
    f = ig.Fusion(name)
    made: Any = getattr(ig, name)
    f.output(made(*(f.input(f"x{k}", x.shape, dtype="float64") for k, x in enumerate(given))))
    return np.asarray(ig.compile(f)(*given))


@pytest.mark.sampled
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


@pytest.mark.sampled
@pytest.mark.parametrize("name", BESIDE_TORCH)
def test_errors_beside_torch(name: str) -> None:
    """At places of every size, huge angles among them: the stated error, and no number where torch has another."""
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("longdouble has no more places than float64 here")
    x = np.concatenate([places(), np.random.default_rng(4).uniform(-100, 100, 1 << 17)])
    y = np.ones_like(x) if name == "atan" else np.random.default_rng(5).permutation(x)
    given = (x, y) if name in ("atan", "atan2") else (x,)
    found = computed("atan2" if name == "atan" else name, *given)
    torch: Any = import_module("torch")
    eager = getattr(torch, name)(*map(torch.from_numpy, given[: 1 if name == "atan" else 2])).numpy()
    with np.errstate(all="ignore"):
        exact: Array = getattr(np, {"atan": "arctan", "atan2": "arctan2"}.get(name, name))(
            *(v.astype(np.longdouble) for v in given[: 1 if name == "atan" else 2])
        )
        wanted = exact.astype(np.float64)
        step = np.spacing(np.minimum(np.abs(wanted), 1.7e308))
        ours, theirs = (np.abs(r - exact) / step for r in (found, eager))
    number = np.isfinite(wanted)
    assert np.array_equal(found[~number], eager[~number], equal_nan=True)
    assert np.array_equal(np.signbit(found[number]), np.signbit(wanted[number]))
    normal = number & (np.abs(wanted) > 1e-300)
    assert float(ours[number].max()) < BESIDE_TORCH[name]
    assert float(ours[normal].max()) < max(float(theirs[normal].max()), NEAREST)


def test_error_of_erf_beside_torch() -> None:
    rng = np.random.default_rng(0)
    near = [
        rng.uniform(-6, 6, 4000),
        rng.uniform(0.6, 1.1, 4000),
        rng.standard_normal(2000) * 10.0 ** rng.integers(-300, 1, 2000),
    ]
    x = np.concatenate([*near, [0.0, -0.0, 0.7, 5.9, 5.921, 6.0, 5e-324, 1e300, np.inf, -np.inf, np.nan]])
    torch: Any = import_module("torch")
    found, eager = computed("erf", x), torch.erf(torch.from_numpy(x)).numpy()
    with mpmath.workdps(40):
        exact = [mpmath.erf(mpmath.mpf(float(v))) for v in x[:-1]]

    def largest(results: Array) -> float:
        steps = (float(np.spacing(abs(float(w)))) for w in exact)
        pairs = zip(results[:-1].tolist(), exact, steps, strict=True)
        return max(float(abs(mpmath.mpf(r) - w) / s) for r, w, s in pairs)

    assert np.isnan(found[-1])
    assert np.array_equal(np.signbit(found[:-1]), np.signbit(x[:-1]))
    assert largest(found) < max(0.69, min(0.72, largest(eager)))


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_far_angles_among_near_ones(name: str) -> None:
    """A vector of a loop may have one far number, or all: those of C's functions. Near ones are mpmath's, also those
    that lie beside quarter turns."""
    x = np.linspace(-3, 3, 4099)
    x[7], x[513], x[-1], x[64:72] = 1e300, -1.7e308, 2.0**1000, 2.0**43 * np.arange(1, 9)
    x[2000:2003] = np.inf, -np.inf, np.nan
    x[3000:3005] = 5.319372648326541e255, 4.5e15, 1.5707963267948966 * 3, math.pi * 2.0**40, np.nextafter(2.0**43, 0)
    found = computed(name, x)
    assert np.isnan(found[2000:2003]).all()
    far = np.isfinite(x) & (np.abs(x) >= 2.0**43)
    assert found[far].tolist() == [getattr(math, name)(v) for v in x[far].tolist()]
    near = np.abs(x) < 2.0**43
    with mpmath.workdps(60):
        exact = [getattr(mpmath, name)(mpmath.mpf(v)) for v in x[near].tolist()]
        pairs = zip(found[near].tolist(), exact, strict=True)
        assert max(float(abs(v - w) / np.spacing(abs(float(w)))) for v, w in pairs if w != 0) < 0.55


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


@pytest.mark.sampled
@pytest.mark.parametrize("name", [*LIMITS, "sigmoid", "sin", "cos", "tan", "tanh", "erf", "atan2"])
def test_loops_over_float64_functions_are_vectors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call is left but that of what is far, which forms for vectors make in a branch of their own."""
    seen = llvm_texts(monkeypatch)
    f = ig.Fusion(f"vectors of {name}")
    made: Any = getattr(ig, name)
    given = [np.ones(1009)] * (2 if name == "atan2" else 1)
    f.output(made(*(f.input(f"x{k}", (1009,), dtype="float64") for k in range(len(given)))))
    ig.compile(f)(*given)
    assert any("x double>" in text for text in seen)
    called = {n for text in seen for n in re.findall(r"\bcall [^@\n]*@\"?([\w.$]+)", text)}
    far = {f"idgraph_far_{name}", name} if name in ("sin", "cos", "tan") else set[str]()
    assert {n for n in called if not n.startswith(("llvm.", "NRT_"))} == far
