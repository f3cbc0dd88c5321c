"""The four ways of a gather, each tried and costed as it is emitted; the choice by rule against the choice by cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import idgraph as ig


def two(x: tuple[int, ...], i: tuple[int, ...]) -> tuple[ig.Fusion, ig.Tensor, ig.Tensor]:
    """A fusion with a tensor and an index."""
    f = ig.Fusion("f")
    return f, f.input("x", x), f.input("i", i, "int64")


def loss() -> ig.Fusion:
    f, x, i = two((64, 1024), (64, 1))
    f.output(ig.gather(ig.log_softmax(x, 1), 1, i))
    return f


def running() -> ig.Fusion:
    f, x, i = two((1200, 64), (1200, 1))
    f.output(ig.gather(ig.cumsum(x, 1), 1, i))
    return f


def changed() -> ig.Fusion:
    f, x, i = two((1200, 64), (1200, 1))
    f.output(ig.gather(ig.slice_scatter(x, x[:, :10] * 2.0, 1, 0, 10), 1, i))
    return f


def sums() -> ig.Fusion:
    f, x, i = two((90, 700), (400,))
    f.output(ig.index_select(ig.sum(x, 1), 0, i))
    return f


def rows() -> ig.Fusion:
    f, x, i = two((3000, 16), (64,))
    f.output(ig.embedding(i, x + f.input("b", (16,))))
    return f


CASES: list[Callable[[], ig.Fusion]] = [loss, running, changed, sums, rows]


@pytest.mark.sampled
@pytest.mark.parametrize("build", CASES)
def test_the_rule_takes_a_way_that_costs_little_more(build: Callable[[], ig.Fusion]) -> None:
    """`auto` decides by counts of elements, without emitting: its way costs 1.25 of the best one tried at most."""
    f = build()
    text = str(f)
    (ways,) = ig.fuse.gathers(f)
    assert str(f) == text
    (decision,) = ig.schedule.gather_plan(f)
    time = {w.name: w.time_us for w in ways.ways}
    taken, best = time[decision.chosen], time[ways.best]  # pyright: ignore[reportArgumentType]
    assert taken is not None and best is not None and taken <= 1.25 * best


@pytest.mark.parametrize("build", [loss, sums])
def test_numbers_are_those_of_the_emitted_program(build: Callable[[], ig.Fusion]) -> None:
    (ways,) = ig.fuse.gathers(build(), "A100")
    assert {w.name for w in ways.ways} == {"recompute", "predicate", "one-hot", "global"}
    for w in ways.ways:
        f = build()
        if w.kernels is None:
            with pytest.raises(ig.ScheduleError, match="impossible"):
                ig.schedule.auto(f, gathers=w.name)
            continue
        ig.schedule.auto(f, gathers={ways.tensor: w.name})
        c = ig.cost(ig.emit(f, target="cuda"), "A100").total
        assert (w.kernels, w.bytes, w.time_us) == (c.launches, c.bytes_read + c.bytes_written, c.time_us)
        assert w.operations == c.flops + c.atomics
    f = build()
    ways.apply(f)
    assert f.decisions[0].chosen == ways.best


def test_threads_combine_what_a_predicate_leaves() -> None:
    (ways,) = ig.fuse.gathers(loss())
    assert "the threads combine" in next(w.why for w in ways.ways if w.name == "predicate")


def test_the_axis_is_run_as_the_user_scheduled_it() -> None:
    f, x, i = two((64, 512), (64, 1))
    y = ig.exp(x)
    f.output(ig.gather(y, 1, i))
    y.split(1, 128).parallelize(1, "blockIdx.y").parallelize(2, "threadIdx.x")
    (ways,) = ig.fuse.gathers(f)
    assert ways.runs == ("blockIdx.y", "threadIdx.x")
    assert ways.to_json()[0] == "{" and len(ways.sheet().rows) == 4


def test_a_barrier_is_offered_where_blocks_can_wait() -> None:
    f = running()
    (ways,) = ig.fuse.gathers(f, "H200")
    launch = ig.cost.devices["H200"].launch_us
    assert f"would save {launch:.1f} us" in ways.offer and "nothing emits one" in ways.offer
    assert "resident" in ways.offer  # the device's limit
    old = replace(ig.cost.devices["A100"], name="old", cc=(5, 2))
    assert not old.cooperative and not ig.cost.devices["cpu"].cooperative
    (ways,) = ig.fuse.gathers(running(), old)
    assert ways.offer == "old has no launch whose blocks can wait for each other"


def test_an_alignment_of_a_gather_stores_no_copy() -> None:
    """A private copy that a kernel of its own stores is no alignment: the reader's kernel computes what it reads."""
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(50, 16)), f.input("i", shape=(30,), dtype="int64")
    y = ig.relu(x)
    z = ig.index_select(y, 0, i)
    f.output(y, z * 2.0)
    o = ig.fuse.explain(f, y, z)
    assert o is not None and o.cause == "loaded index"
    assert o.alignment is not None and o.alignment.kernels_after <= o.alignment.kernels_before
    o.alignment.apply(f)
    reader = next(k for k in ig.emit(f, target="cuda").kernels if any(b.title == "i" for b in k.buffers))
    assert {b.title for b in reader.buffers if b.place == "input"} == {"x", "i"}
    assert not [b for b in reader.buffers if b.place == "global"]
