"""Squared deviations from a mean in two stages: each part of its own mean, one pass over memory."""

from __future__ import annotations

import numpy as np
import pytest

import idgraph as ig
from idgraph.rewrite.two_stage_reduction import deviation_of

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "everything": ((300, 256), (0, 1)),
    "one axis": ((80_000,), (0,)),
    "no equal parts": ((70_001,), (0,)),
    "rows of a few": ((3, 80_000), (1,)),
    "axes apart": ((8, 3, 70, 71), (0, 2, 3)),
    "channels innermost": ((2, 40, 50, 8), (1, 2)),
    "the first axis": ((4_000, 24), (0,)),
}


def deviations(shape: tuple[int, ...], dims: tuple[int, ...], scalar: bool = False) -> ig.Fusion:
    """The variance along ``dims``, and elements of deviation 1; ``scalar``: mean and variance have no axes."""
    f = ig.Fusion("f")
    x = f.input("x", shape=shape)
    apart = x - (ig.mean(x) if scalar else ig.mean(x, dims, keepdim=True))
    var = f.output(ig.mean(apart * apart, dims, keepdim=not scalar, name="var"))
    f.output(ig.mul(apart, ig.rsqrt(var), name="unit"))
    return f


@pytest.mark.parametrize("name", CASES)
def test_values_far_from_zero_keep_their_deviation(name: str) -> None:
    shape, dims = CASES[name]
    x = (1000 + np.random.default_rng(0).standard_normal(shape)).astype(np.float32)
    f = deviations(shape, dims)
    ig.schedule.auto(f)
    found = ig.emit(f, target="numpy").run({"x": x})
    np.testing.assert_allclose(found["var"], x.astype(np.float64).var(dims, keepdims=True), rtol=2e-5)
    wide = x.astype(np.float64)
    unit = (wide - wide.mean(dims, keepdims=True)) / wide.std(dims, keepdims=True)
    np.testing.assert_allclose(found["unit"], unit, atol=1e-3)


@pytest.mark.parametrize("name", [n for n in CASES if n != "no equal parts"])
def test_memory_is_read_once_for_mean_and_deviation(name: str) -> None:
    shape, dims = CASES[name]
    f = deviations(shape, dims)
    ig.schedule.auto(f)
    program = ig.emit(f, target="cuda")
    size = 4 * int(np.prod(shape))
    cost = ig.cost(program)
    assert len(program.kernels) == 3
    assert sum(k.bytes_moved for k in cost.kernels[:2]) < 1.2 * size


def test_a_mean_without_axes() -> None:
    x = np.random.default_rng(0).standard_normal((300, 256)).astype(np.float32)
    f = deviations((300, 256), (0, 1), scalar=True)
    ig.schedule.auto(f)
    assert len(ig.emit(f, target="cuda").kernels) == 3
    np.testing.assert_allclose(ig.emit(f, target="numpy").run({"x": x})["var"], x.var(), rtol=2e-5)


@pytest.mark.parametrize("kind", ["of another tensor", "that changes", "not squared", "of a product"])
def test_what_is_no_deviation(kind: str) -> None:
    f = ig.Fusion("f")
    x, y = f.input("x", shape=(300, 256)), f.input("y", shape=(300, 256))
    apart = x - (ig.mean(y) if kind == "of another tensor" else ig.mean(x, 1, keepdim=True))
    whole = apart * (x if kind == "of a product" else apart) if kind != "not squared" else ig.abs(apart)
    t = f.output(ig.sum(whole))
    assert t.definition is not None
    assert not any(map(deviation_of, f.exprs))
    ig.schedule.auto(f)
    rng = np.random.default_rng(0)
    given = {
        n: rng.standard_normal((300, 256)).astype(np.float32) for n in ("x", "y") if n in [u.name for u in f.inputs]
    }
    a, b = given["x"].astype(np.float64), given["y"].astype(np.float64)
    want = a - (b.mean() if kind == "of another tensor" else a.mean(1, keepdims=True))
    want = want * a if kind == "of a product" else abs(want) if kind == "not squared" else want * want
    np.testing.assert_allclose(ig.emit(f, target="numpy").run(given)[t.name], want.sum(), rtol=1e-4)
