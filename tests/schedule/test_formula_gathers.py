"""Gathers whose index is a formula are views: each reader computes pads that repeat or mirror again, none is stored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import idgraph as ig
from idgraph.rewrite.gather_strategy import is_view
from tests.emit.cuda_interpreter import interpret
from tests.property.budget import examples

Array = NDArray[np.generic]


def _replicated(x: ig.Tensor, dim: int, left: int, right: int) -> ig.Tensor:
    n = int(x.axes[dim].extent)
    place = x.fusion.iota(n + left + right) - left
    return ig.index_select(x, dim, ig.minimum(ig.maximum(place, 0), n - 1))


def _reflected(x: ig.Tensor, dim: int, left: int, right: int) -> ig.Tensor:
    n = int(x.axes[dim].extent)
    place = x.fusion.iota(n + left + right) - left
    near = ig.maximum(ig.minimum(place, 2 * n - 2 - place), ig.neg(place))
    return ig.index_select(x, dim, ig.minimum(ig.maximum(near, 0), n - 1))


PADS = {"edge": _replicated, "reflect": _reflected}


CROSS = ((0, 1), (1, 0), (1, 1), (2, 1))  # neighbours, one beside along either axis


def _cross(mode: str, shape: tuple[int, int], step: int) -> ig.Fusion:
    """Weighted neighbours along both axes behind a pad, every ``step``-th of them."""
    f = ig.Fusion("cross")
    p = f.input("x", shape=shape)
    for dim in (1, 0):
        p = PADS[mode](p, dim, 1, 1)
    total = p[0 : shape[0], 0 : shape[1]]
    for k, (a, b) in enumerate(CROSS):
        total = total + p[a : a + shape[0], b : b + shape[1]] * float(k + 2)
    f.output(total[::step, ::step])
    return f


def _expected(x: Array, mode: str, step: int) -> Array:
    plain = x.astype(np.float64)
    wide = np.pad(plain, 1, mode="edge") if mode == "edge" else np.pad(plain, 1, mode="reflect")
    made = wide[: x.shape[0], : x.shape[1]]
    for k, (a, b) in enumerate(CROSS):
        made = made + wide[a : a + x.shape[0], b : b + x.shape[1]] * (k + 2.0)
    return made[::step, ::step]


@pytest.mark.parametrize(("mode", "step"), [("edge", 1), ("reflect", 2)])
def test_a_stencil_behind_a_pad_is_one_kernel(mode: str, step: int) -> None:
    f = _cross(mode, (6, 10), step)
    x = np.random.default_rng(0).standard_normal((6, 10)).astype(np.float32)
    ig.schedule.auto(f)
    for target in ("numpy", "cpu"):
        (got,) = ig.emit(f, target).run({"x": x}).values()
        assert np.allclose(got, _expected(x, mode, step), rtol=1e-5, atol=1e-5)
    program = ig.emit(f, "cuda")
    assert len(program.kernels) == 1
    (got,) = interpret(program, {"x": x}).values()
    assert np.allclose(got, _expected(x, mode, step), rtol=1e-5, atol=1e-5)


@settings(max_examples=examples(4), deadline=None)
@given(
    mode=st.sampled_from(sorted(PADS)), n=st.integers(4, 40), left=st.integers(0, 3), right=st.integers(0, 3),
    step=st.integers(1, 3),
)  # fmt: skip
def test_no_stencil_stores_its_pad(mode: str, n: int, left: int, right: int, step: int) -> None:
    """Nothing but x and the result is in memory, and values are those of NumPy's pads."""
    f = ig.Fusion("line")
    p = PADS[mode](f.input("x", shape=(3, n)), 1, left, right)
    count = n + left + right - 2
    f.output((p[:, :count] - 2.0 * p[:, 1 : count + 1] + p[:, 2 : count + 2])[:, ::step])
    ig.schedule.auto(f)
    x = np.random.default_rng(1).standard_normal((3, n)).astype(np.float32)
    (got,) = ig.emit(f, "numpy").run({"x": x}).values()
    sides = ((0, 0), (left, right))
    wide = np.pad(x, sides, mode="edge") if mode == "edge" else np.pad(x, sides, mode="reflect")
    assert np.allclose(got, np.diff(wide.astype(np.float64), n=2)[:, ::step], rtol=1e-4, atol=1e-4)
    assert [b.title for b in ig.emit(f, "cuda").plan.buffers if b.place == "global"] == []


def test_an_index_that_is_loaded_is_no_view() -> None:
    """A stencil of rows that an index picks: what is gathered is stored once, or the index is loaded for each read."""
    f = ig.Fusion("f")
    x, i = f.input("x", (6, 9)), f.input("i", (6,), "int64")
    t = ig.index_select(x, 0, i)
    u = ig.index_select(t, 0, ig.maximum(f.iota(6) - 1, 0))
    f.output(u + t)
    assert not is_view(u.definition)  # type: ignore[arg-type]


def test_a_pad_of_a_pad_reads_its_source_once() -> None:
    """Both formulas meet in one read: no way is estimated, none stores the inner pad."""
    f = ig.Fusion("f")
    t = _replicated(_reflected(f.input("x", (5, 7)), 1, 2, 2), 0, 1, 1)
    f.output(t)
    (inner, outer) = ig.schedule.gather_plan(f)
    assert (inner.chosen, outer.chosen) == ("direct", "recompute")
    ig.schedule.auto(f)
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    (got,) = ig.emit(f, "numpy").run({"x": x}).values()
    assert np.array_equal(got, np.pad(np.pad(x, ((0, 0), (2, 2)), mode="reflect"), ((1, 1), (0, 0)), mode="edge"))
