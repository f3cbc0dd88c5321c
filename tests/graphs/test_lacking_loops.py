"""Loops over what a tensor lacks: its readers' broadcasts, and axes that only other operands have."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import idgraph as ig


def right(f: ig.Fusion) -> None:
    """Every address and every value, by the oracle."""
    report = ig.validate(f)
    assert report.ok, report


def test_a_producer_under_a_broadcast_loop_of_its_reader() -> None:
    f = ig.Fusion("f")
    t0, t1 = f.input("t0", shape=(5,)), f.input("t1", shape=(3, 5))
    t2 = ig.exp(t0)
    t3 = ig.unsqueeze(t2, 0)
    f.output(t3 + t1)
    t3.inline(2)
    t2.inline(1)
    assert [int(d.extent) for d in t2.loop] == [1, 5] and t2.inline_position == 2
    right(f)
    right(ig.parse(str(f)))


@pytest.mark.parametrize("factor", [1, 3, 8, 60, 64])
def test_two_broadcasts_merged_with_each_other(factor: int) -> None:
    f = ig.Fusion("f")
    t0, t3 = f.input("t0", shape=(3,)), f.input("t3", shape=(3, 4, 5))
    t1 = ig.unsqueeze(t0, 1)
    t2 = ig.unsqueeze(t1, 2)
    y = f.output(t2 + t3)
    y.merge(1)
    y.merge(0)
    y.split(0, factor)
    ig.schedule.like(f, y)
    t1.inline(1)
    t2.inline(1)
    right(f)
    t1.inline(2)
    t2.inline(2)
    right(f)


def test_a_slice_of_rows_reshaped_with_an_axis_of_one_element() -> None:
    f = ig.Fusion("f")
    x, w = f.input("x", shape=(3, 24)), f.input("w", shape=(1, 3, 2, 4))
    q = x[:, :8]
    r = ig.reshape(q, 1, 3, 2, 4)
    f.output(r * w)
    r.inline(4)
    q.inline(1)
    assert q.inline_position == 2
    right(f)


def test_a_loop_of_one_element_that_the_reader_has_not() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(1, 3, 24))
    q = x[:, :, 2:10]
    r = f.output(ig.reshape(q, 3, 8) * 2.0)
    ig.schedule.like(f, r)
    middle = r.definition.inputs[0]  # type: ignore[union-attr]
    q.reorder([2, 0, 1]) if q.loop[0].extent != 1 else None
    middle.inline(2)
    q.inline(2)
    right(f)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("factor", [1, 2, 4, 7, 15, 20])
def test_implicit_broadcasting_scheduled_by_hand(order: tuple[int, int], factor: int) -> None:
    f = ig.Fusion("f")
    t0, t1 = f.input("t0", shape=(5,)), f.input("t1", shape=(3, 5))
    t2 = ig.exp(t0)
    y = f.output(t2 + t1)
    y.reorder(list(order))
    y.merge(0)
    y.split(0, factor)
    ig.schedule.like(f, y)
    for at in (2, 1):
        t2.inline(at)
        right(f)
    ig.schedule.inline_most(f)
    assert t2.inline_position == 2
    right(f)


def test_two_operands_that_each_lack_an_axis() -> None:
    f = ig.Fusion("f")
    a, b = f.input("a", shape=(4, 1)), f.input("b", shape=(6,))
    u, v = ig.exp(a), ig.sin(b)
    y = f.output(u * v)
    y.merge(0)
    y.split(0, 5)
    ig.schedule.like(f, y)
    ig.schedule.inline_most(f)
    assert (u.inline_position, v.inline_position) == (2, 2)
    right(f)


ORDERED: dict[str, Callable[[ig.Tensor], ig.Tensor]] = {
    "scan": lambda x: ig.cumsum(x, 0),
    "scatter": lambda x: ig.scatter_add(x, 0, x.fusion.iota(3), x[:3]),
}


@pytest.mark.parametrize("kind", ORDERED)
def test_what_takes_terms_in_order_is_not_repeated(kind: str) -> None:
    f = ig.Fusion("f")
    t = ORDERED[kind](f.input("x", shape=(5,)))
    y = f.output(t + f.input("z", shape=(3, 5)))
    y.merge(0)
    ig.schedule.like(f, y)
    t.inline(1)
    with pytest.raises(ig.ScheduleError):
        ig.emit(f, "python")
    g = ig.Fusion("g")
    t = ORDERED[kind](g.input("x", shape=(5,)))
    g.output(t + g.input("z", shape=(3, 5)))
    t.inline(1)
    with pytest.raises(ig.ScheduleError):
        ig.emit(g, "python")


def test_a_reduction_is_repeated_as_a_whole() -> None:
    f = ig.Fusion("f")
    t = ig.sum(f.input("x", shape=(5, 4)), 1)
    f.output(t + f.input("z", shape=(3, 5)))
    t.inline(1)
    assert [int(d.extent) for d in t.loop] == [1, 5, 4] and t.inline_position == 2
    right(f)


def test_producers_follow_what_they_are_inlined_into() -> None:
    f = ig.Fusion("f")
    a = ig.exp(f.input("x", shape=(5,)))
    b = ig.sin(a)
    f.output(b + f.input("z", shape=(3, 5)))
    a.inline(1)
    b.inline(1)
    assert (a.inline_position, b.inline_position) == (2, 2)
    right(f)
    right(ig.parse(str(f)))


def test_one_loop_runs_one_number_of_steps() -> None:
    """A reader inlined into a wider loop runs it as often; another reader of what it reads does not."""
    f = ig.Fusion("f")
    t = ig.cos(f.input("x", shape=(1,)))
    u = ig.flip(t, 0)
    f.output(u + f.input("z", shape=(3, 3)), ig.sin(t))
    t.inline_position = u.inline_position = 1
    with pytest.raises(ig.ScheduleError, match="its loop 0"):
        ig.emit(f, "python")
    t.inline_position = 0
    right(f)


def test_readers_that_differ_are_refused_by_name() -> None:
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(5,)))
    f.output(t + f.input("z", shape=(3, 5)), t * 2.0)
    t.inline(1)
    with pytest.raises(ig.ScheduleError, match="its loop 0"):
        ig.emit(f, "python")


@pytest.mark.parametrize("seed", range(60))
def test_random_implicit_broadcasting(seed: int) -> None:
    """Every schedule of one expression whose operands lack axes, followed by ``like``: legal at every depth."""
    r = random.Random(seed)
    f = ig.Fusion("f")
    shape = [r.randrange(2, 5) for _ in range(r.randrange(2, 4))]
    y = f.input("z", shape=shape)
    for n in range(r.randrange(1, 4)):
        own = [s if r.random() < 0.6 else 1 for s in shape[r.randrange(len(shape)) :]]
        t = ig.exp(f.input(f"x{n}", shape=own))
        y = y + (ig.sin(t) if r.random() < 0.4 else t)
    y = f.output(y)
    for _ in range(r.randrange(1, 5)):
        count = len(y.loop)
        match r.choice(("split", "merge", "merge", "reorder")):
            case "split" if count < 5:
                y.split(r.randrange(count), r.randrange(1, 5), inner=r.random() < 0.7)
            case "merge" if count > 1:
                y.merge(r.randrange(count - 1))
            case _:
                y.reorder(r.sample(range(count), count))
    ig.schedule.like(f, y)
    ig.schedule.inline_most(f)
    right(f)
    for e in reversed(f.exprs[:-1]):
        e.output.inline(r.randrange(e.output.inline_position + 1))
    right(f)


def beside_a_merged_loop(f: ig.Fusion) -> None:
    t1 = ig.sin(f.input("x", shape=(2,)))
    y = f.output(t1 + f.input("w", shape=(3, 2)))
    t1.split(0, 3)
    y.merge(0)
    t1.inline_position = 1


def beside_several_loops(f: ig.Fusion) -> None:
    t1 = ig.sin(f.input("x", shape=(1,)))
    f.output(t1 + f.input("w", shape=(2, 2)))
    t1.split(0, 1)
    t1.inline_position = 2


def beside_a_reduced_axis(f: ig.Fusion) -> None:
    t1 = ig.sin(f.input("x", shape=(1, 3, 3)))
    y = f.output(ig.sum(t1, 0))
    y.merge(1)
    y.split(0, 2, inner=False)
    t1.inline_position = 1


def in_two_nests_of_other_lengths(f: ig.Fusion) -> None:
    """One of two readers takes the axis to a loop of one step, the other not."""
    t1 = ig.sin(f.input("x", shape=(3, 3, 1)))
    f.output(t1[:3] * 1.0)
    t4 = t1 + f.input("w", shape=(3, 3, 3))
    f.output(ig.sum(t4, 1))
    t4.split(2, 3)
    t1.inline_position, t4.inline_position = 3, 2


def of_other_axes(f: ig.Fusion) -> None:
    t1 = ig.sin(f.input("x", shape=(1, 1, 1)))
    t2, t4 = f.output(ig.cos(t1)), f.output(ig.sum(t1, 0))
    t1.split(0, 1)
    t2.merge(1)
    t4.merge(1)
    t1.inline_position = 1


def of_a_padded_stand_in(f: ig.Fusion) -> None:
    t1 = ig.sin(f.input("x", shape=(1, 1)))
    y = f.output(ig.cos(t1) + f.input("w", shape=(3, 2, 2)))
    t2 = t1.uses[0].output
    for t in (t1, t2):
        t.reorder([1, 0]).split(1, 1).split(0, 1)
    y.reorder([2, 1, 0]).split(1, 1).split(1, 1)
    t1.inline_position, t2.inline_position = 2, 3


ONE_STEP = (
    beside_a_merged_loop,
    beside_several_loops,
    beside_a_reduced_axis,
    in_two_nests_of_other_lengths,
    of_other_axes,
    of_a_padded_stand_in,
)


@pytest.mark.parametrize("schedule", ONE_STEP)
def test_a_loop_of_one_step_runs_at_each_step_of_any(schedule: Callable[[ig.Fusion], None]) -> None:
    """It computes the same at all of them, whatever axes it is made of."""
    f = ig.Fusion("f")
    schedule(f)
    right(f)
    right(ig.parse(str(f)))


def test_one_step_is_not_the_elements_of_another_axis() -> None:
    """Loops of several steps stay what they are made of: nothing follows from one of one step beside them."""
    f = ig.Fusion("f")
    t1 = ig.sin(f.input("x", shape=(1, 4)))
    f.output(ig.flip(t1, 1) * f.input("w", shape=(3, 4)))
    t1.inline_position = 2
    with pytest.raises(ig.ScheduleError):
        ig.validate(f)
    t1.inline_position = 1
    t1.uses[0].output.inline_position = 2
    right(f)


def test_a_scan_is_not_repeated_at_steps_of_a_wider_loop() -> None:
    f = ig.Fusion("f")
    t1 = ig.cumsum(f.input("x", shape=(3,)), 0)
    y = f.output(t1 + f.input("w", shape=(2, 3)))
    t1.split(0, 3)
    y.merge(0)
    t1.inline_position = 1
    with pytest.raises(ig.ScheduleError):
        ig.validate(f)


def test_what_one_reader_makes_longer_and_another_does_not() -> None:
    """A mean in loops of what it is subtracted from, and transposed: `emit` takes what `inline_most` has left."""
    f = ig.Fusion("f")
    x = f.input("x", (1, 11))
    i, s = f.input("i", (1, 1), "int32"), f.input("s", (1, 1))
    t = ig.cumsum(x, 1)
    total = ig.sum(t, 1, keepdim=True)
    mean = total / 11.0
    y = f.output(t - ig.neg(mean))
    z, w = f.output(ig.scatter_add(total, 1, i, s)), f.output(ig.permute(mean, 1, 0))
    ig.schedule.inline_most(f)
    data = np.arange(11, dtype=np.float32).reshape(1, 11)
    got = ig.emit(f, "numpy").run({"x": data, "i": np.zeros((1, 1), np.int32), "s": np.ones((1, 1), np.float32)})
    sums = data.cumsum(1)
    np.testing.assert_allclose(got[y.name], sums + sums.mean(), rtol=1e-6)
    np.testing.assert_allclose(got[z.name], [[sums.sum() + 1]], rtol=1e-6)
    np.testing.assert_allclose(got[w.name], [[sums.mean()]], rtol=1e-6)
