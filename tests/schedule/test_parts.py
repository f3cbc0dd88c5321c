"""Loops over a part of a tensor: taken where every reader stays inside of it, refused by name where one does not."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

import idgraph as ig


def made(extent: int, start: int, step: int, count: int, *, inlined: bool = False) -> ig.Fusion:
    """``p`` runs over ``count`` elements from ``start`` on, its reader over every second from 2 to 9."""
    f = ig.Fusion("parts")
    p = ig.exp(f.input("x", (extent,)), name="p")
    f.output(ig.slice(p, 0, 2, 9, 2) * 2.0)
    p.stride(0, start, step, count)
    if inlined:
        ig.schedule.inline_most(f)
    return f


RUNS = [
    (start, step, count)
    for start, step, count in itertools.product(range(12), (-4, -3, -2, -1, 1, 2, 3, 4), range(1, 13))
    if 0 <= start + step * (count - 1) < 12
]


@pytest.mark.parametrize("step", [-4, -2, -1, 1, 2, 3, 4])
def test_every_run_of_an_axis(step: int) -> None:
    """Taken, and right, exactly where the elements that are read are among those that are made."""
    taken = 0
    for start, own, count in RUNS:
        if own != step:
            continue
        f = made(12, start, step, count)
        if {2, 4, 6, 8} <= {start + step * k for k in range(count)}:
            assert ig.validate(f, target="python").ok, str(f)
            taken += 1
        else:
            with pytest.raises(ig.ScheduleError, match="the schedule of p computes a part of it only: Stride"):
                ig.emit(f, target="python")
    assert bool(taken) == (abs(step) < 3)


def test_a_run_inside_of_a_run() -> None:
    f = made(24, 0, 2, 12)
    f["p"].stride(0, 1, 1, 4)  # 2, 4, 6, 8
    assert ig.validate(f, target="numpy").ok
    g = made(24, 0, 2, 12)
    g["p"].stride(0, 1, 2, 3)  # 2, 6, 10
    with pytest.raises(ig.ScheduleError, match="computes a part of it only"):
        ig.emit(g, target="numpy")


@pytest.mark.parametrize("inlined", [False, True])
def test_a_reader_of_everything(inlined: bool) -> None:
    """The places between the steps were taken for made ones: i//2 is inside for every i."""
    f = ig.Fusion("parts")
    p = ig.exp(f.input("x", (12,)), name="p")
    o = f.output(p * 2.0)
    p.stride(0, 0, 2, 6)
    before = str(f)
    with pytest.raises(ig.ScheduleError, match=r"computes a part of it only.*\n.*p\.stride\(0, 0, 2, 6\)"):
        ig.emit(f, target="numpy")
    assert str(f) == before
    o.stride(0, 0, 2, 6)
    with pytest.raises(ig.ScheduleError, match="is an output, all of its elements are needed"):
        ig.emit(f, target="numpy")


def test_what_two_passes_read_in_parts_is_stored_once() -> None:
    """A mean over windows is computed for its own output and for a sum over it, each from a copy of the padded rows."""
    f = ig.Fusion("pool")
    x = f.input("x", shape=(2, 3, 4, 5))
    n = x - ig.mean(x, (1, 2, 3), keepdim=True)
    twice = ig.exp(n)
    p = ig.pad(ig.tanh(twice * twice + 1.0), (1, 1, 1, 1))
    rows = [ig.slice(p, 2, i, i + 4) for i in range(3)]
    first, *rest = [ig.slice(r, 3, k, k + 5) for r in rows for k in range(3)]
    for part in rest:
        first = first + part
    y = f.output(n + first)
    f.output(y - ig.mean(y * y, (1, 2, 3), keepdim=True))
    assert p.definition is not None
    source = p.definition.inputs[0].name
    ig.schedule.auto(f)
    kernels = ig.emit(f, target="cuda").kernels
    stored = {b.title for k in kernels for b in k.buffers if b.place == "global"}
    assert source in stored and len(stored) == 2, stored  # and the mean; pads are read in place
    assert ig.validate(f, target="python").ok


@pytest.mark.parametrize("seed", range(40))
def test_resizes_reach_every_element_or_are_refused(seed: int) -> None:
    """Loops grown and cut up to four times, against the elements that each cut leaves, one by one."""
    rng = random.Random(seed)
    f = ig.Fusion("f")
    y = f.output(ig.copy(f.input("x", (6,))))
    left, extent = {s: s for s in range(6)}, 6
    for _ in range(rng.randint(1, 4)):
        before, behind = rng.randint(-2, 3), rng.randint(-2, 3)
        if extent + before + behind >= 1:
            y.resize(0, before, behind)
            extent += before + behind
            left = {s: at + before for s, at in left.items() if 0 <= at + before < extent}
    if len(left) < 6:
        with pytest.raises(ig.ScheduleError, match="computes a part of it only"):
            ig.emit(f, "python")
        return
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(ig.emit(f, "python").run({"x": x}, poison=True)[y.name], x)
