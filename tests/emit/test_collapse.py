"""Blocks, threads and lanes as loops over columns, on the CPU: every element once, in rows of any length."""

from __future__ import annotations

import numpy as np
import pytest

import idgraph as ig
from idgraph.passes.collapse import COLUMNS, LEAST

SHAPES = [(3, COLUMNS + 37), (2, 2 * COLUMNS), (5, 1003), (7, 131), (4 * COLUMNS + 3,), (9, 64, 3), (2, 3, COLUMNS + 8)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["alone", "by row", "by column", "two types"])
def test_every_element_once(shape: tuple[int, ...], kind: str) -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=shape, dtype="float16" if kind == "two types" else "float32")
    t = ig.cast(x, "float32") * 2.0
    if kind == "by row":
        t = t + f.input("m", shape=(*shape[:-1], 1))
    elif kind == "by column":
        t = t + f.input("b", shape=shape[-1:])
    f.output(t + 1.0)
    rng = np.random.default_rng(0)
    arrays = {a.name: rng.integers(-9, 9, [int(n) for n in a.shape]).astype(a.dtype) for a in f.inputs}
    want = ig.emit(f, "numpy").run(arrays)
    ig.schedule.auto(f)
    p = ig.emit(f, "cpu")
    assert all(np.array_equal(p.run(arrays, poison=True)[n], v) for n, v in want.items())
    assert "collapse" in p.kernels[0].passes or (shape[-1] < LEAST and kind != "alone")


def test_blocks_and_threads_of_a_schedule_of_ones_own() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(8, 9, 200))
    t = f.output(x[:, 1:, 40:168] * 2.0)
    t.merge(0)
    t.merge(0)
    t.split(0, 128)  # two loops: a block takes one row, however many there are
    t.parallelize(0, "blockIdx.x")
    t.parallelize(1, "threadIdx.x")
    ig.schedule.like(f, t)
    ig.schedule.inline_most(f)
    p = ig.emit(f, "cpu")
    assert p.kernels[0].passes == ("collapse",)
    a = np.random.default_rng(0).random((8, 9, 200), np.float32)
    assert np.array_equal(p.run({"x": a})[t.name], a[:, 1:, 40:168] * 2)
