"""Lanes across the ends of rows, as the threads of a block run them: every element once, with vectors in the middle."""

from __future__ import annotations

import numpy as np
import pytest

import idgraph as ig
from idgraph.ir import DType
from tests.emit.thread_runner import run_threads

SHAPES = [(7, 131), (3, 1031), (5, 3, 67), (1003,), (2, 515)]


@pytest.mark.sampled
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kind", ["alone", "by column", "by row"])
def test_every_element_once(shape: tuple[int, ...], dtype: DType, kind: str) -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=shape, dtype=dtype)
    t = x * 2.0
    if kind == "by column":  # rows of different vectors: no flattening hides where they begin
        t = t + f.input("b", shape=shape[-1:], dtype=dtype)
    elif kind == "by row":
        t = t + f.input("m", shape=(*shape[:-1], 1), dtype=dtype)
    f.output(t)
    rng = np.random.default_rng(0)
    arrays = {a.name: rng.integers(-9, 9, [int(n) for n in a.shape]).astype(a.dtype) for a in f.inputs}
    want = ig.emit(f, "numpy").run(arrays)
    ig.schedule.auto(f)
    p = ig.emit(f, "cuda")
    found = run_threads(p, arrays, seed=1)
    assert all(np.array_equal(found[n], v) for n, v in want.items())
    assert "peel" in p.kernels[0].passes


def test_chunks_are_counted_from_an_aligned_element() -> None:
    f = ig.Fusion("f")
    f.output(f.input("x", shape=(3, 1031)) + f.input("m", shape=(3, 1)))
    ig.schedule.auto(f)
    source = ig.emit(f, "cuda").source
    assert "peel_shift" in source and "vload4" in source and "vstore4" in source
