"""A slice_scatter with a step puts what is computed for it at every step-th element: one loop nest, with a bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.index.predicate import is_partial


def by_like(f: ig.Fusion) -> None:
    ig.schedule.like(f, f.outputs[0])
    ig.schedule.inline_most(f)


def by_auto(f: ig.Fusion) -> None:
    ig.schedule.auto(f)


def put(n: int, start: int, stop: int, step: int) -> ig.Fusion:
    """x with x[:, start:stop:step] = exp(y) * 2."""
    f = ig.Fusion("put")
    x = f.input("x", shape=(3, n))
    y = f.input("y", shape=(3, len(range(start, stop, step))))
    f.output(ig.slice_scatter(x, ig.mul(ig.exp(y, name="s"), 2.0, name="u"), 1, start, stop, step))
    return f


PLACES = [(8, 0, 8, 2), (9, 0, 9, 2), (9, 1, 9, 2), (16, 3, 14, 3), (7, 2, 7, 5), (11, 1, 4, 3), (12, 0, 12, 4)]


@pytest.mark.sampled
@pytest.mark.parametrize("schedule", [by_like, by_auto])
@pytest.mark.parametrize("place", PLACES)
def test_the_source_is_computed_in_the_loops_of_what_it_is_put_into(schedule: Any, place: tuple[int, ...]) -> None:
    n, start, stop, step = place
    f = put(n, start, stop, step)
    schedule(f)
    assert f["s"].inline_position and f["u"].inline_position
    draw = np.random.default_rng(0)
    x, y = (draw.random((3, k), np.float32) for k in (n, len(range(start, stop, step))))
    expected = x.copy()
    expected[:, start:stop:step] = np.exp(y) * 2
    for target in ("python", "numpy"):
        program = ig.emit(f, target)
        assert len(program.kernels) == 1
        (got,) = program.run({"x": x, "y": y}).values()
        np.testing.assert_allclose(got, expected, rtol=1e-6)
        report = ig.validate(f, target=target)
        assert report.ok, str(report)


@pytest.mark.parametrize("schedule", [by_like, by_auto])
def test_on_the_cpu(schedule: Any) -> None:
    f = put(9, 1, 9, 3)
    schedule(f)
    assert len(ig.emit(f, "cpu").kernels) == 1
    report = ig.validate(f, target="cpu")
    assert report.ok, str(report)


@pytest.mark.parametrize("schedule", [by_like, by_auto])
def test_symbolic_extent(schedule: Any) -> None:
    f = ig.Fusion("put")
    n = f.symbol("n", min=1)
    x, y = f.input("x", shape=(2 * n + 1,)), f.input("y", shape=(n,))
    f.output(ig.slice_scatter(x, ig.exp(y, name="s"), 0, 1, 2 * n + 1, 2))
    schedule(f)
    assert f["s"].inline_position == len(f["s"].loop)
    for size in (1, 2, 5):
        report = ig.validate(f, target="python", symbols={"n": size})
        assert report.ok, str(report)


@pytest.mark.parametrize("step", [2, 3])
def test_a_source_that_is_needed_elsewhere_is_computed_whole(step: int) -> None:
    """As an output, and for a reader without a step; 7 elements do not fill their last step."""
    f = ig.Fusion("both")
    x, y = f.input("x", shape=(7,)), f.input("y", shape=(len(range(0, 7, step)),))
    s = ig.exp(y, name="s")
    f.output(ig.slice_scatter(x, s, 0, 0, 7, step))
    f.output(s)
    f.output(s + 1.0)
    for schedule in (by_like, by_auto):
        schedule(f)
        report = ig.validate(f, target="python")
        assert report.ok, str(report)


def test_the_schedule_is_read_again_from_its_text() -> None:
    f = put(9, 1, 9, 2)
    by_like(f)
    again = ig.parse(str(f))
    assert str(again) == str(f)
    assert ig.validate(again, target="python").ok


@pytest.mark.parametrize(("size", "times", "lines_up"), [(12, 3, False), (6, 6, False), (4, 9, False), (18, 2, True)])
def test_a_slice_of_rows_of_repeats_cuts_only_what_lines_up(size: int, times: int, lines_up: bool) -> None:
    """Rows of 9 that start inside a repeat read other columns of what is repeated: its loops stay whole."""
    f = ig.Fusion("repeated")
    s = ig.exp(f.input("x", shape=(size,)), name="s")
    y = f.output(ig.reshape(ig.repeat(s, (times,)), (4, 9))[:, :3] + 1.0)
    ig.schedule.like(f, y)
    assert any(is_partial(e) for e in s.domain.loop_exprs) is lines_up
    assert ig.validate(f, target="python").ok
    ig.schedule.inline_most(f)
    assert s.inline_position == 2
    assert len(ig.emit(f, "python").kernels) == 1
    assert ig.validate(f, target="python").ok
