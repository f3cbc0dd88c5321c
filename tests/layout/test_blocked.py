"""Blocked layouts: each element lies where the formula of the scales' layout says, on each target."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

import idgraph as ig


def place(r: int, c: int, width: int, rows: int, columns: int, lanes: int) -> int:
    """The element of memory of row r, column c, by hand."""
    across = -(-width // columns)
    tile = r // rows * across + c // columns
    r, c = r % rows, c % columns
    groups = rows // lanes if rows > lanes else 1
    return tile * rows * columns + (r % lanes * groups + r // lanes) * columns + c


@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((256, 8), (128, 4, 32)),
        ((200, 10), (128, 4, 32)),
        ((7, 5), (4, 2, 32)),
        ((12, 6), (6, 3, 2)),
        ((9, 4), (4, 4, 4)),
    ],
)
def test_elements_lie_in_tiles(
    target: Literal["python", "numpy", "cpu"], shape: tuple[int, int], tile: tuple[int, int, int]
) -> None:
    rows, columns, lanes = tile
    f = ig.Fusion("scales")
    t = f.output(f.input("x", shape=shape) * 2.0)
    before = t.loop
    t.set_allocation(ig.layout.blocked(t, rows=rows, columns=columns, lanes=lanes))
    assert t.loop == before and str(ig.parse(str(f))) == str(f)
    x = np.arange(1, 1 + shape[0] * shape[1], dtype=np.float32).reshape(shape)
    raw = ig.emit(f, target).run({"x": x}, raw=True, fill=0.0)[t.name]
    want = np.zeros(-(-shape[0] // rows) * -(-shape[1] // columns) * rows * columns, np.float32)
    for r in range(shape[0]):
        for c in range(shape[1]):
            want[place(r, c, shape[1], rows, columns, lanes)] = 2 * x[r, c]
    np.testing.assert_array_equal(np.asarray(raw.buffer)[: want.size], want)


def test_a_batch_stays_outside_and_a_scheduled_tensor_keeps_its_loops() -> None:
    f = ig.Fusion("scales")
    t = f.output(ig.copy(f.input("x", shape=(3, 128, 4))))
    t.split(2, 2)
    t.reorder({0: 1})
    loop = t.loop
    t.set_allocation(ig.layout.blocked(t, rows=128, columns=4))
    assert t.loop == loop and t.allocation[0] is t.axes[0]
    x = np.random.default_rng(0).random((3, 128, 4), dtype=np.float32)
    raw = ig.emit(f, "python").run({"x": x}, raw=True)[t.name]
    np.testing.assert_array_equal(np.asarray(raw.buffer).reshape(3, 32, 4, 4), x.reshape(3, 4, 32, 4).swapaxes(1, 2))


def test_refusals_leave_the_tensor_as_it_was() -> None:
    f = ig.Fusion("scales")
    t, v = ig.copy(f.input("x", shape=(256, 8))), ig.copy(f.input("v", shape=(8,)))
    f.output(t)
    f.output(v)
    before = str(f)
    for bad, rows, columns, said in (
        (v, 128, 4, "has no two axes"),
        (t, 100, 4, "32 lanes do not divide"),
        (t, 0, 4, "rows is 0"),
    ):
        with pytest.raises(ig.ScheduleError, match=said):
            ig.layout.blocked(bad, rows=rows, columns=columns)
    assert str(f) == before
