"""Rows of several column axes, as the channels of a group beside its pixels: read once and held by their threads."""

from __future__ import annotations

import numpy as np
import pytest

import idgraph as ig
from idgraph.ir import DType
from tests.emit.thread_runner import run_threads


def group_norm(pixels: int, groups: int, channels: int, dtype: DType = "float32") -> ig.Fusion:
    """Norms over groups of channels that lie innermost."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(2, pixels, groups * channels), dtype=dtype)
    w = f.input("w", shape=(groups * channels,))
    g = ig.reshape(ig.cast(x, "float32"), 2, pixels, groups, channels)
    apart = g - ig.mean(g, (1, 3), keepdim=True)
    unit = apart * ig.rsqrt(ig.mean(apart * apart, (1, 3), keepdim=True) + 1e-5)
    f.output(ig.mul(ig.reshape(unit, 2, pixels, groups * channels), w, name="y"))
    return f


@pytest.mark.parametrize(("pixels", "channels"), [(196, 8), (3136, 8), (784, 4), (784, 12), (100, 16)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_memory_is_read_once(pixels: int, channels: int, dtype: DType) -> None:
    f = group_norm(pixels, 32, channels, dtype)
    ig.schedule.auto(f)
    program = ig.emit(f, target="cuda")
    (kernel,) = ig.cost(program).kernels
    together = channels * (4 if dtype == "float32" else 2)
    assert kernel.sectors * min(32, together) < 1.5 * kernel.bytes_moved  # sectors of which so many bytes are a group's
    assert any("held by" in line for line in str(program.kernels[0]).splitlines()[:6])


@pytest.mark.parametrize(("pixels", "channels"), [(196, 8), (100, 16), (49, 6), (97, 8)])
def test_values(pixels: int, channels: int) -> None:
    f = group_norm(pixels, 4, channels)
    ig.schedule.auto(f)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, pixels, 4 * channels)).astype(np.float32)
    w = rng.standard_normal(4 * channels).astype(np.float32)
    (found,) = run_threads(ig.emit(f, "cuda"), {"x": x, "w": w}, seed=pixels).values()
    g = x.astype(np.float64).reshape(2, pixels, 4, channels)
    unit = (g - g.mean((1, 3), keepdims=True)) / np.sqrt(g.var((1, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(np.asarray(found).reshape(x.shape), unit.reshape(x.shape) * w, atol=1e-5)
