"""Schedules without a right order of loops or threads are refused before anything is printed."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.kernel.ir import BlockReduce, Loop, walk
from idgraph.runtime import emit
from idgraph.runtime.program import Target

TARGETS: tuple[Target, ...] = ("python", "numpy", "cpu", "cuda")


def racing(f: ig.Fusion, *words: str) -> None:
    for target in TARGETS:
        with pytest.raises(ig.ScheduleError) as found:
            emit(f, target)
        for word in words:
            assert word in str(found.value)


@pytest.mark.parametrize("way", ["blockIdx.x", "blockIdx.y"])
def test_a_reduced_axis_on_blocks_races(way: str) -> None:
    f = ig.Fusion("f")
    s = f.output(ig.sum(f.input("x", (4, 8)), 1, name="total"))
    s.parallelize(1, way)
    racing(f, "total would race", way, "test_schedules.py")


def test_a_split_reduced_axis_on_blocks_races() -> None:
    f = ig.Fusion("f")
    s = f.output(ig.amax(f.input("x", (4, 8)), 1))
    s.split(1, 4).parallelize(1, "blockIdx.x")
    racing(f, "would race")


def test_threads_combine_what_each_reduced() -> None:
    f = ig.Fusion("f")
    s = f.output(ig.amax(f.input("x", (4, 64)), 1))
    s.split(1, 32).parallelize(2, "threadIdx.x").parallelize(0, "blockIdx.x")
    (kernel,) = emit(f, "cuda").kernels
    assert [c.dims for c in walk(kernel.body) if isinstance(c, BlockReduce)] == [("threadIdx.x",)]
    assert not any(isinstance(c, BlockReduce) for k in emit(f, "cpu").kernels for c in walk(k.body))


def test_no_thread_waits_for_one_that_never_comes() -> None:
    f = ig.Fusion("f")
    shared = ig.exp(f.input("z", (8, 1)))
    for name, rows in (("x", 4), ("y", 2)):
        s = ig.sum(f.input(name, (8, rows, 64)), 2)
        t = f.output(s + shared)
        s.split(2, 32).parallelize(3, "threadIdx.x").parallelize(1, "threadIdx.y").inline(2)
        t.parallelize(1, "threadIdx.y")
    shared.inline(1)
    with pytest.raises(ig.ScheduleError, match="not every thread of the block comes"):
        emit(f, "cuda")


def test_an_element_of_another_thread() -> None:
    f = ig.Fusion("f")
    x = f.input("x", (4, 8))
    a = ig.exp(x, name="a")
    b = f.output(ig.flip(a, 1, name="b"))
    a.inline(1)
    for t in (a, b):
        t.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    racing(f, "a would race", "a[", "b[", "threadIdx.x")


def test_the_same_thread_may_read_what_it_wrote() -> None:
    f = ig.Fusion("f")
    a = ig.exp(f.input("x", (4, 8)))
    b = f.output(a * 2.0)
    a.inline(1)
    for t in (a, b):
        t.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    assert len(emit(f, "cuda").kernels) == 1


def test_one_thread_dimension_twice() -> None:
    f = ig.Fusion("f")
    a = ig.exp(f.input("x", (4, 8)))
    b = f.output(a * 2.0)
    a.inline(1)
    a.parallelize(1, "threadIdx.x")
    b.parallelize(0, "threadIdx.x")
    racing(f, "both run on threadIdx.x")


def test_two_ways_for_one_loop() -> None:
    f = ig.Fusion("f")
    a = ig.exp(f.input("x", (4, 8)))
    b = f.output(a * 2.0)
    a.inline(1)
    a.parallelize(0, "blockIdx.x")
    b.parallelize(0, "blockIdx.y")
    racing(f, "one by inlining", "blockIdx.x", "blockIdx.y")


def test_a_shared_loop_takes_the_parallel_way() -> None:
    f = ig.Fusion("f")
    a = ig.exp(f.input("x", (4, 8)))
    b = f.output(a * 2.0)
    a.inline(2)
    b.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    (kernel,) = emit(f, "cuda").kernels
    assert set(kernel.launch) == {"blockIdx.x", "threadIdx.x"}


def test_an_expression_between_stands_outside() -> None:
    """x -> a -> c and x -> c share loop 0 through x, but a is made for all of c's loop beforehand."""
    f = ig.Fusion("f")
    x = ig.exp(f.input("in", (4, 8)), name="x")
    a = ig.sum(x, 0, name="a")
    f.output(ig.add(x, a, name="c"))
    x.inline(1)
    for target in TARGETS:
        with pytest.raises(ig.ScheduleError) as found:
            emit(f, target)
        assert "a" in str(found.value)


def test_a_sum_is_not_read_while_it_runs() -> None:
    """softmax with the exponentials inlined into sum and division: the loop would need its own sum."""
    f = ig.Fusion("f")
    y = ig.exp(f.input("x", (4, 8)), name="y")
    s = ig.sum(y, 1, keepdim=True, name="s")
    f.output(ig.div(y, s, name="z"))
    s.inline(1)
    y.inline(2)
    for target in TARGETS:
        with pytest.raises(ig.ScheduleError) as found:
            emit(f, target)
        assert "s" in str(found.value)


def test_one_nest_is_one_kernel() -> None:
    f = ig.Fusion("f")
    a = ig.exp(f.input("x", (4, 8)))
    b = a * 2.0
    f.output(b + 1.0)
    assert len(emit(f).kernels) == 3
    b.inline(2)
    assert len(emit(f).kernels) == 2
    a.inline(1)
    plan = emit(f).plan
    assert len(plan.kernels) == 1
    (outer,) = plan.kernels[0].body
    assert isinstance(outer, Loop)
    assert [s.var for s in outer.body if isinstance(s, Loop)] == ["i1", "i1"]


def test_the_plan_prints_the_rotation() -> None:
    f = ig.Fusion("rotation")
    t0 = f.input("t0", (16,))
    t1, t2 = t0[:8], t0[8:]
    t3 = ig.cat([t2, t1])
    t4 = f.output(t0 + t3)
    ig.schedule.like(f, t4)
    ig.schedule.inline_most(f)
    source = emit(f).source
    lines = [line.split("  #")[0].rstrip() for line in source.splitlines() if "#" not in line.strip()[:1]]
    assert [line.strip() for line in lines if line.strip()] == [
        "def kernel0(buf0, buf4):",
        "for i0 in range(16):",
        "if 8 <= i0:",
        "t0 = buf0[i0 - 8]",
        "t1 = t0",
        "if i0 < 8:",
        "t0_s2 = buf0[i0 + 8]",
        "t2 = t0_s2",
        "t3 = t2 if i0 < 8 else t1",
        "t0_s3 = buf0[i0]",
        "t4 = f32(t0_s3 + t3)",
        "buf4[i0] = t4",
    ]
