"""A tensor whose loops are as wide as a reader's is computed by several threads, and written by the first of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.validate import random_inputs
from tests.emit.cuda_interpreter import interpret
from tests.property.budget import examples

Draw = st.DrawFn


def wide_reader(f: ig.Fusion, shape: tuple[int, ...], axis: int, count: int) -> tuple[ig.Tensor, ig.Tensor]:
    """(what all threads of ``count`` steps compute, its reader over these steps too): with another reader beside."""
    a = ig.exp(f.input("x", shape=shape), name="a")
    u = ig.unsqueeze(a, axis, name="u")
    c = f.output(u + f.input("g", shape=(*shape[:axis], count, *shape[axis:])))
    return a, c


def replicas(t: ig.Tensor) -> list[str]:
    """Coordinates at each of which the same elements of ``t`` are computed."""
    assert t.definition is not None
    return [str(x) for x in ig.IdModel(t.fusion).write(t.definition).replicas]


def all_written_once(f: ig.Fusion) -> None:
    """The interpreter raises where two threads write one element without a barrier between."""
    inputs: dict[str, Any] = random_inputs(f, 0)
    want = ig.emit(f, "python").run(inputs)
    got = interpret(ig.emit(f, "cuda"), inputs)
    for t in f.outputs:
        assert np.allclose(got[t.name], want[t.name], rtol=1e-6), t.name


def test_a_loop_of_the_reader_alone_on_blocks() -> None:
    f = ig.Fusion("f")
    a, c = wide_reader(f, (5,), 0, 3)
    f.output(a)
    c.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    ig.schedule.like(f, c)
    f["u"].inline(2)
    a.inline(1)
    assert replicas(a) == ["i0"]
    all_written_once(f)


@pytest.mark.parametrize("memory", ["auto", "global"])
def test_an_axis_merged_with_one_of_the_reader(memory: str) -> None:
    f = ig.Fusion("f")
    a, c = wide_reader(f, (2, 17), 1, 2)
    b = ig.neg(a, name="b")
    b.set_memory(memory)
    f.output(ig.sum(b, 1))
    c.merge(0).merge(0).split(0, 128).parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    ig.schedule.like(f, c)
    f["u"].inline(2)
    a.inline(2)
    assert replicas(b) == ["i1//17%2"]
    all_written_once(f)


READERS: tuple[Callable[[ig.Tensor], ig.Tensor], ...] = (
    ig.neg,
    lambda t: t,
    lambda t: ig.sum(-t, 0),
    lambda t: ig.flip(t * 2.0, (0,)),
)


@st.composite
def wide_readers(draw: Draw) -> ig.Fusion:
    """A tensor under the merged, split, parallel loops of a reader with one more axis, and another reader of it."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    f = ig.Fusion("wide")
    a, c = wide_reader(f, shape, draw(st.integers(0, len(shape))), draw(st.integers(1, 4)))
    f.output(draw(st.sampled_from(READERS))(a))
    for _ in range(draw(st.integers(0, c.ndim - 1))):
        c.merge(draw(st.integers(0, len(c.loop) - 2)))
    if draw(st.booleans()):
        c.split(draw(st.integers(0, len(c.loop) - 1)), draw(st.integers(1, 8)))
    for way, p in zip(
        draw(st.permutations(("blockIdx.x", "threadIdx.x", "threadIdx.y"))), range(len(c.loop)), strict=False
    ):
        c.parallelize(p, way)
    ig.schedule.like(f, c)
    ig.schedule.inline_most(f)
    return f


@settings(max_examples=examples(200), deadline=None)
@given(wide_readers())
def test_each_element_is_written_by_one_thread(f: ig.Fusion) -> None:
    note(str(f))
    # A reader inside the loops that compute a stored tensor takes it from memory: each thread writes, the same value.
    stored = any(b.title == "a" and b.place != "private" for b in ig.emit(f, "cuda").plan.buffers)
    assume(f["a"].inline_position == 0 or not stored)
    all_written_once(f)


@pytest.mark.parametrize("extents", [(1, 2), (4, 2), (8, 5), (3, 2, 4)])
@pytest.mark.parametrize("op", ["sum", "amax", "prod"])
def test_a_reduction_over_threads_with_a_kept_axis_inside(extents: tuple[int, ...], op: str) -> None:
    f = ig.Fusion("f")
    t = f.output(getattr(ig, op)(-f.input("x", shape=extents), 0))
    assert t.loop[0].kind == "reduction"
    t.parallelize(0, "threadIdx.y")
    f.tensors[1].inline(t.loop.index(t.loop[-1]) + 1)
    all_written_once(f)
