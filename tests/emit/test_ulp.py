"""Errors of functions in units in the last place, as `tools/docs/pages/numbers.md` states them; tanh, erf and exp no
worse than torch's."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.runtime.cpu import namespace as cpu
from tools.bench import ulp

mpmath: Any = import_module("mpmath")
torch: Any = pytest.importorskip("torch")
PAGE = Path(__file__).parents[2] / "tools" / "docs" / "pages" / "numbers.md"
X = ulp.places()


def stated() -> dict[str, float]:
    """The page's figures for kernels on a CPU."""
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: float(error) for name, error in rows}


@pytest.mark.sampled
@pytest.mark.parametrize("name", ulp.FUNCTIONS)
def test_errors_on_a_cpu_are_as_stated(name: str) -> None:
    ours, theirs = ulp.measured(name, X, "cpu")
    assert ours <= stated()[name]
    if name in ("tanh", "erf", "exp"):
        assert ours <= theirs + 0.01


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ["exp", "tanh", "erf"])
def test_errors_on_a_gpu_are_no_larger_than_torchs(name: str) -> None:
    ours, theirs = ulp.measured(name, X, "cuda")
    assert ours <= theirs + 0.01


@pytest.mark.parametrize("sums", [False, True], ids=["as written", "sums in any order"])
def test_the_exponential_within_a_formula(sums: bool) -> None:
    """A function's own steps keep their order in kernels of rows, too."""
    jit: Any = import_module("numba").njit(error_model="numpy", fastmath={"reassoc"} if sums else False)
    cpu.namespace.cache_clear()
    inside: Any = cpu.namespace()["exp_half"]

    def each(x: Any, y: Any) -> None:
        for i in range(x.size):
            y[i] = inside(x[i])

    run = jit(each)
    x = X[(X > -86.9) & (X < 88.72)]
    found = np.empty_like(x)
    run(x, found)
    error = ulp.largest(found, ulp.exact("exp", x))
    assert error <= 0.69
    edges = np.array([np.nan, np.inf, 0.0, 88.72284, 100.0], np.float32)
    found = np.empty_like(edges)
    run(edges, found)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, ulp.exact("exp", edges).astype(np.float32))
    tiny = np.array([-87.0, -87.5, -103.97, -104.5, -3e38, -np.inf], np.float32)
    found = np.empty_like(tiny)
    run(tiny, found)
    assert ((found >= 0) & (found <= 2.0**-125)).all()


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "sigmoid"])
def test_rows_of_a_kernel_have_no_larger_errors(name: str) -> None:
    """Loops over columns may take sums in another order, which the steps of a function must not."""
    size = X.size // 4096 * 4096
    x = X[:size].reshape(-1, 4096)
    f = ig.Fusion("rows")
    y = getattr(ig, name)(f.input("x", x.shape))
    f.output(y)
    f.output(ig.sum(y * 0.0, 1))
    found: Any = ig.compile(f)(x)
    assert ulp.largest(found[0].reshape(-1), ulp.exact(name, X[:size])) <= stated()[name] + 0.5 * (name == "exp")


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_subnormal_and_special_numbers(name: str) -> None:
    tiny = np.array([1e-45, 3e-42, 1e-38, 1.2e-38, 2e-38], np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    x = np.concatenate([tiny, -tiny, special, np.zeros(17, np.float32)])
    found: Any = ig.compile(ulp.fusion(name, x.size))(x)
    with np.errstate(all="ignore"):
        wanted = ulp.exact(name, x).astype(np.float32)
    np.testing.assert_array_equal(found, wanted)
    assert (np.signbit(found) == np.signbit(wanted))[:-1].all()


@pytest.mark.parametrize("name", ["exp", "tanh", "erf"])
def test_float64_is_near_the_exact_result(name: str) -> None:
    x = np.concatenate([np.linspace(-9, 9, 1500), 10.0 ** np.linspace(-300, 0, 300)])
    f = ig.Fusion("wide")
    f.output(getattr(ig, name)(f.input("x", x.shape, "float64")))
    found: Any = ig.compile(f)(x)
    with mpmath.workdps(40):
        exact: list[Any] = [getattr(mpmath, name)(mpmath.mpf(v)) for v in x.tolist()]

        def largest(results: Any) -> float:
            pairs = zip(results.tolist(), exact, strict=True)
            return float(max(abs(mpmath.mpf(y) - w) / mpmath.mpf(float(np.spacing(abs(float(w))))) for y, w in pairs))

        eager = getattr(torch, name)(torch.from_numpy(x)).numpy()
        assert largest(found) <= max(2.0, largest(eager))


def test_the_float64_reference_is_exact_enough() -> None:
    """float64's functions against mpmath: their error is far below an ulp of float32."""
    x = X[:: X.size // 400]
    for name in ("exp", "tanh", "erf", "log", "sin", "expm1"):
        got = ulp.exact(name, x)
        with mpmath.workdps(60):
            for v, y in zip(x.tolist(), got.tolist(), strict=True):
                w: Any = getattr(mpmath, name)(mpmath.mpf(v))
                if isinstance(w, mpmath.mpf) and np.isfinite(y) and abs(y) > 1e-300:
                    assert abs(mpmath.mpf(y) - w) <= abs(w) * mpmath.mpf(2) ** -48, (name, v)
