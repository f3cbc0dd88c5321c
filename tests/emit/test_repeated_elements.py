"""A tensor of one element in a loop that a reader makes longer: each element has one writer among all threads."""

from __future__ import annotations

import numpy as np
import pytest

import idgraph as ig
from tests.emit.cuda_interpreter import interpret


def scaled(memory: str, way: str) -> ig.Fusion:
    """One element, beside a row on blocks or threads, and a thread dimension that only another tensor has."""
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(1,)), name="t")
    y = f.output(t * f.input("w", shape=(4,)))
    for u in (t, y):
        u.parallelize(0, way)
    t.set_memory(memory).inline(1)
    return f


@pytest.mark.parametrize(
    ("memory", "way"), [("shared", "threadIdx.x"), ("shared", "blockIdx.x"), ("global", "threadIdx.x")]
)
def test_it_is_written_once(memory: str, way: str) -> None:
    f = scaled(memory, way)
    inputs = {"x": np.array([0.5], np.float32), "w": np.arange(4, dtype=np.float32)}
    got = interpret(ig.emit(f, "cuda"), inputs, 0)
    assert np.allclose(got[f.outputs[0].name], np.exp(0.5) * inputs["w"])


def test_blocks_do_not_share_it() -> None:
    with pytest.raises(ig.ScheduleError, match="t would race: other blocks read it"):
        ig.emit(scaled("global", "blockIdx.x"), "cuda")
