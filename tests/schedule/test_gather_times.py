"""The way of a gather by the estimated time of what is emitted: what the estimate is of, and what it decides."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest

import idgraph as ig
from idgraph.ir.hooks import Estimate
from idgraph.ir.schedule_log import Decision
from idgraph.rewrite import gather_strategy as gather_times
from idgraph.rewrite.gather_lowering import GatherReplacement
from idgraph.rewrite.gather_strategy import MOST, cheapest, near, ways_of
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from tests.schedule.gather_programs import program


def plan(f: ig.Fusion, device: str = "H200") -> Decision:
    """The one decision that is open."""
    return next(d for d in ig.schedule.gather_plan(f, device=device) if d.chosen != "direct")


@pytest.mark.sampled
@pytest.mark.parametrize("seed", [*(pytest.param(n, marks=pytest.mark.nightly) for n in (101, 131)), 107, 113])
def test_the_choice_is_the_cheapest_program_as_it_is_emitted(seed: int) -> None:
    """A whole fusion is small: each way's cost is that of the program that is forced that way and emitted."""
    f, name = program(seed)
    decision = plan(f)
    told = {o.name: o.cost for o in decision.rejected if o.cost is not None and o.name != "one-hot"}
    least = float(decision.reason.partition(" us on H200")[0].replace(",", ""))
    assert all(least <= 1.03 * cost for cost in told.values())
    for way, cost in {**told, decision.chosen: least}.items():
        copy = ig.parse(str(f))
        ig.schedule.auto(copy, gathers={name: way})  # pyright: ignore[reportArgumentType]
        assert math.isclose(ig.cost(ig.emit(copy, target="cuda")).total.time_us, cost, rel_tol=0.02, abs_tol=0.02)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(200, 206))
def test_every_way_of_a_random_program_gives_its_values(seed: int) -> None:
    f, name = program(seed)
    text, given = str(f), random_inputs(f, seed)
    want = evaluate(f, given)
    possible = [d.name for d in plan(f).rejected if d.cost is not None]
    for way in (*possible, plan(f).chosen):
        copy = ig.parse(text)
        ig.schedule.auto(copy, gathers={name: way})  # pyright: ignore[reportArgumentType]
        for out, value in ig.emit(copy, target="numpy").run(given).items():
            assert np.allclose(value, want[out], rtol=2e-4, atol=2e-4), way


def test_the_device_decides() -> None:
    """A launch takes 2.5 us of an H200; of a CPU the same bytes take longer than another launch."""

    def build() -> ig.Fusion:
        f = ig.Fusion("f")
        x, i = f.input("x", (48, 600)), f.input("i", (48, 6000), "int64")
        f.output(ig.gather(ig.sin(ig.exp(ig.sin(ig.exp(x)))), 1, i))
        return f

    assert plan(build(), "H200").chosen == "recompute"
    assert plan(build(), "cpu").chosen == "global"
    assert "us on cpu" in plan(build(), "cpu").reason


def test_gathers_from_one_source_go_one_way() -> None:
    """Alone each would store the source anyway, as the other does: together they do not."""
    f = ig.Fusion("f")
    x = f.input("x", (64, 100))
    y = ig.exp(x)
    f.output(*(ig.index_select(y, 1, f.input(f"i{n}", (3,), "int64")) for n in range(3)))
    assert all(d.chosen != "global" for d in ig.schedule.gather_plan(f))
    ig.schedule.auto(f)
    assert len(ig.emit(f, target="cuda").kernels) == 1


@pytest.mark.thorough
def test_gathers_of_gathers_do_not_double_without_end() -> None:
    """Each recomputed block reads the one before at two places: 2^12 of the last one."""
    f = ig.Fusion("f")
    t, i = f.input("x", (64, 128)), f.input("i", (64, 128), "int64")
    for _ in range(12):
        t = t + ig.gather(ig.relu(t), 1, i) * 0.5
    f.output(t)
    found = ig.schedule.gather_plan(f)
    assert any("places for each element" in o.why for d in found for o in d.rejected)
    ig.schedule.auto(f)
    assert len(f.exprs) < 400


def test_the_part_is_near_and_small() -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", (8, 16)), f.input("i", (8, 1), "int64")
    for _ in range(100):
        x = ig.exp(x)
    t = ig.gather(x, 1, i)
    y = t
    for _ in range(100):
        y = y * 2.0
    f.output(y)
    e = t.definition
    assert e is not None
    found = near(e)
    assert len(found) == MOST and e in found
    assert [f.exprs.index(x) for x in found] == sorted(f.exprs.index(x) for x in found)
    costs = ways_of(e, ("recompute", "global"), GatherReplacement(), ig.cost.devices["H200"])
    assert all(isinstance(c, Estimate) for c in costs.values())


def test_close_times_are_decided_by_bytes() -> None:
    a, b = Estimate(1, 90, 5, 5.05), Estimate(2, 100, 1, 5.0)
    assert cheapest({"predicate": a, "global": b}) == "predicate"
    assert cheapest({}) is None


def chained(n: int) -> ig.Fusion:
    """Blocks that look a computed table up."""
    f = ig.Fusion("chained")
    x, w = f.input("x", (512, 128)), f.input("w", (512, 128))
    i, t = f.input("i", (64,), "int64"), f.input("t", (64, 128))
    while len(f.exprs) < n:
        t = ig.relu(t + ig.embedding(i, w * x)) * 0.5
    f.output(t)
    return f


def test_equal_parts_are_estimated_once() -> None:
    """A gather in each of 200 blocks costs a few estimates, and the plan stays one of seconds."""
    gather_times._estimate.cache_clear()  # pyright: ignore[reportPrivateUsage]
    ig.schedule.gather_plan(chained(60))
    made = gather_times._estimate.cache_info().misses  # pyright: ignore[reportPrivateUsage]
    start = time.process_time()
    assert len(ig.schedule.gather_plan(chained(1000))) == 200
    assert gather_times._estimate.cache_info().misses == made <= 16  # pyright: ignore[reportPrivateUsage]
    assert time.process_time() - start < 5


def test_nothing_is_estimated_where_nothing_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> Estimate:
        raise AssertionError("estimated")

    monkeypatch.setattr(gather_times, "_estimate", refused)
    f = ig.Fusion("f")
    x, i = f.input("x", (8, 16)), f.input("i", (8, 1), "int64")
    f.output(ig.gather(x, 1, i), ig.gather(x * 2.0, 1, i, name="t"))
    assert [d.chosen for d in ig.schedule.gather_plan(f, {"t": "global"})] == ["direct", "global"]


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "bool"])
def test_other_types_are_estimated_too(dtype: str) -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", (64, 256), dtype), f.input("i", (64, 2), "int64")
    make: Callable[[ig.Tensor], ig.Tensor] = ig.logical_not if dtype == "bool" else ig.neg
    f.output(ig.gather(make(x), 1, i))
    assert "us on H200" in plan(f).reason


def test_a_symbol_is_estimated_at_a_size_it_may_have() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    x, i = f.input("x", (n, 64)), f.input("i", (n, 1), "int64")
    f.output(ig.gather(ig.softmax(x, 1), 1, i))
    assert plan(f).chosen == "recompute" and "1,024" not in str(f)
