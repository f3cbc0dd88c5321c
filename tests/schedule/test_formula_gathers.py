"""Gathers whose index is a formula are views: pads that repeat or mirror are computed again by each reader, not stored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import idgraph as ig
from idgraph.rewrite.gather_strategy import is_view
from tests.property.budget import examples
from tests.emit.cuda_interpreter import interpret

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


def _stencil(mode: str, shape: tuple[int, int, int], radius: int, step: int) -> ig.Fusion:
    """Weighted neighbours within ``radius`` along the last two axes, every ``step``-th of them."""
    f = ig.Fusion("stencil")
    x = f.input("x", shape=shape)
    p = x
    for dim in (2, 1):
        p = PADS[mode](p, dim, radius, radius)
    total: ig.Tensor | None = None
    for a in range(2 * radius + 1):
        for b in range(2 * radius + 1):
            part = p[:, a : a + shape[1], b : b + shape[2]] * float(1 + a + 3 * b)
            total = part if total is None else total + part
    assert total is not None
    f.output(total[:, ::step, ::step])
    return f


def _expected(x: Array, mode: str, radius: int, step: int) -> Array:
    wide = np.pad(x.astype(np.float64), ((0, 0), (radius, radius), (radius, radius)), mode="edge" if mode == "edge" else "reflect")
    made = np.zeros(x.shape)
    for a in range(2 * radius + 1):
        for b in range(2 * radius + 1):
            made += wide[:, a : a + x.shape[1], b : b + x.shape[2]] * (1 + a + 3 * b)
    return made[:, ::step, ::step]


@pytest.mark.parametrize("mode", PADS)
@pytest.mark.parametrize("step", [1, 2])
def test_a_stencil_behind_a_pad_is_one_kernel(mode: str, step: int) -> None:
    f = _stencil(mode, (2, 6, 10), 1, step)
    x = np.random.default_rng(0).standard_normal((2, 6, 10)).astype(np.float32)
    ig.schedule.auto(f)
    for target in ("numpy", "cpu"):
        (got,) = ig.emit(f, target).run({"x": x}).values()
        assert np.allclose(got, _expected(x, mode, 1, step), rtol=1e-5, atol=1e-5)
    program = ig.emit(f, "cuda")
    assert len(program.kernels) == 1
    (got,) = interpret(program, {"x": x}).values()
    assert np.allclose(got, _expected(x, mode, 1, step), rtol=1e-5, atol=1e-5)


@settings(max_examples=examples(8), deadline=None)
@given(
    mode=st.sampled_from(sorted(PADS)), rows=st.integers(3, 7), columns=st.integers(3, 9), radius=st.integers(1, 2),
    step=st.integers(1, 3),
)  # fmt: skip
def test_no_stencil_stores_its_pad(mode: str, rows: int, columns: int, radius: int, step: int) -> None:
    """Nothing but x and the result is in memory, and values are those of NumPy's pads."""
    f = _stencil(mode, (2, rows, columns), radius, step)
    ig.schedule.auto(f)
    program = ig.emit(f, "numpy")
    x = np.random.default_rng(1).standard_normal((2, rows, columns)).astype(np.float32)
    (got,) = program.run({"x": x}).values()
    assert np.allclose(got, _expected(x, mode, radius, step), rtol=1e-4, atol=1e-4)
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
