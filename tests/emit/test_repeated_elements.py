"""A tensor of one element in a loop that a reader makes longer: each element has one writer among all threads."""

from __future__ import annotations

from typing import Any

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


def right(f: ig.Fusion, want: np.ndarray[Any, Any], inputs: dict[str, Any]) -> None:
    """Every kernel is well formed without a race, and the source for a GPU gives these values, by an interpreter."""
    program = ig.emit(f, "cuda")
    for kernel in program.plan.kernels:
        assert kernel.verify().races
    assert np.allclose(interpret(program, inputs, 0)[f.outputs[0].name], want)


@pytest.mark.parametrize("memory", ["auto", "shared", "local", "global"])
def test_one_thread_along_a_dimension_is_every_thread(memory: str) -> None:
    """A loop of one step on threads, which the reader has not."""
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(4, 1)), name="t").parallelize(0, "threadIdx.x").parallelize(1, "threadIdx.y")
    f.output(t * 2.0).parallelize(0, "threadIdx.x")
    t.set_memory(memory).inline(1)
    right(f, np.full((4, 1), 2 * np.e), {"x": np.ones((4, 1), np.float32)})


def test_one_thread_of_several_is_not_every_thread() -> None:
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(4, 2)), name="t").parallelize(0, "threadIdx.x").parallelize(1, "threadIdx.y")
    f.output(t * 2.0).parallelize(0, "threadIdx.x")
    t.set_memory("local").inline(1)
    with pytest.raises(ig.ScheduleError, match="t would race: other threads read it"):
        ig.emit(f, "cuda")


def test_threads_that_have_no_element_read_none() -> None:
    """The reader's padded loop has four threads, of which the first alone has an element to read."""
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(5, 1)), name="t").parallelize(1, "threadIdx.x").set_memory("local")
    y = f.output(t * 2.0).split(1, 4, inner=False).reorder({1: 2, 2: 1}).parallelize(1, "threadIdx.x")
    t.inline(1)
    x = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    right(f, 2 * np.exp(x), {"x": x})
    y.parallelize(1, "serial")
    right(f, 2 * np.exp(x), {"x": x})


def test_the_one_thread_with_an_element_reads_at_a_constant() -> None:
    """The writer's axis of one has the coordinate 0, the reader's padded one a coordinate below 1."""
    f = ig.Fusion("f")
    t = ig.sin(f.input("x", shape=(3,)), name="t").split(0, 3).reorder({0: 1, 1: 0}).parallelize(1, "threadIdx.x")
    f.output(ig.reshape(t, (1, 3))).split(0, 4).reorder({2: 0, 0: 1, 1: 2}).parallelize(2, "threadIdx.x")
    t.set_memory("local").inline(1)
    x = np.linspace(-1, 1, 3, dtype=np.float32)
    right(f, np.sin(x)[None], {"x": x})


def test_each_thread_has_what_all_compute() -> None:
    """Blocks repeat one element, each for itself: it is read in whichever block."""
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(1, 1)), name="t").merge(0).split(0, 3)
    y = f.output(t + f.input("w", shape=(3, 3, 1))).reorder({0: 2, 1: 0, 2: 1})
    for u in (t, y):
        u.parallelize(0, "threadIdx.x").parallelize(1, "blockIdx.y")
    t.inline(1)
    inputs = {"x": np.array([[0.5]], np.float32), "w": np.arange(9, dtype=np.float32).reshape(3, 3, 1)}
    right(f, np.exp(0.5) + inputs["w"], inputs)
