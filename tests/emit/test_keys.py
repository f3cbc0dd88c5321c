"""Extrema by integers in the order of floats: where a sum stands beside them, and where loops hold loops."""

from __future__ import annotations

import numpy as np
import pytest

import idgraph as ig
from idgraph.passes.keys import keyed


def test_a_maximum_beside_a_sum() -> None:
    f = ig.Fusion("f")
    x = f.input("x", (6, 1000))
    t = f.output(ig.amax(x, 1) + ig.sum(ig.exp(x * 0.0), 1))  # one sweep, in blocks for the sum
    ig.schedule.auto(f)
    p = ig.emit(f, "cpu")
    assert "keys" in p.kernels[0].passes
    a = -np.arange(6000, dtype=np.float32).reshape(6, 1000)
    assert np.array_equal(p.run({"x": a})[t.name], a.max(1) + 1000)
    assert ig.validate(f, target="cpu").ok


def test_extrema_have_the_order_of_floats() -> None:
    f = ig.Fusion("f")
    x = f.input("x", (64, 40))
    tops = ig.amax(x, 0), ig.amin(x, 0), ig.amax(x, 1)
    f.output(*tops)
    a = np.random.default_rng(1).standard_normal((64, 40)).astype(np.float32)
    a[3, 5], a[7, 6], a[9, 7] = np.nan, np.inf, -np.inf
    ig.schedule.auto(f)
    found = ig.emit(f, "cpu").run({"x": a})
    for t, want in zip(tops, (a.max(0), a.min(0), a.max(1)), strict=True):
        assert np.array_equal(found[t.name], want, equal_nan=True)


def test_keys_take_32_bits() -> None:
    """Twice as many lie in a vector as 64-bit integers, which ``i32`` gives: a row of 4096 took twice the time."""
    f = ig.Fusion("f")
    f.output(ig.amax(f.input("x", (64, 4096)), 1))
    ig.schedule.auto(f)
    lines = [s.strip() for s in ig.emit(f, "cpu").source.splitlines() if s.strip().startswith("acc1_key =")]
    assert lines == ["acc1_key = np.int32((-2147483648))", "acc1_key = np.int32(maximum(acc1_key, acc1_number))"]


READ_BY_STEPS = """
kernel k():
  buffer x: float32[64] input "x"
  buffer y: float32[64] output "y"
  acc m: float32 = -inf
  for i < 64:
    u: float32 = x[i]
    m <- amax u
    y[i] = m
"""


@pytest.mark.parametrize(
    "more",
    ["    y[i] = m", "    m <- amin u", "    if i < m:\n      m <- amax u"],
    ids=str.strip,
)
def test_an_extremum_that_the_loop_reads_or_lowers_again_stays(more: str) -> None:
    k = ig.kernel.parse(READ_BY_STEPS.replace("    y[i] = m", more))
    assert keyed(k) == k
    alone = ig.kernel.parse(READ_BY_STEPS.replace("    y[i] = m\n", ""))
    assert keyed(alone) != alone
