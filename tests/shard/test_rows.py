"""Ragged axes on devices: each has all rows, of its part of the axes beside them; the values are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import idgraph as ig

Array = npt.NDArray[Any]
ENDS = [0, 3, 3, 14, 15]  # of rows of 3, 0, 11 and 1 elements
X = np.random.default_rng(0).integers(-8, 9, (15, 4)).astype(np.float32)
ROWS = np.split(X, ENDS[1:-1])
Build = Callable[[ig.Fusion, ig.Tensor, ig.Tensor], ig.Tensor]


def softened(row: Array) -> Array:
    e = np.exp(row - row.max(0, initial=-np.inf))
    return e / e.sum(0)


def sums() -> Array:
    return np.stack([r.sum(0) for r in ROWS])


def doubled(f: ig.Fusion, x: ig.Tensor, ends: ig.Tensor) -> ig.Tensor:
    return ig.combine(ig.partition(x, 0, ends) * 2.0)


def softmax(f: ig.Fusion, x: ig.Tensor, ends: ig.Tensor) -> ig.Tensor:
    return ig.combine(ig.softmax(ig.partition(x, 0, ends), 1))


def of_all_columns(f: ig.Fusion, x: ig.Tensor, ends: ig.Tensor) -> ig.Tensor:
    """Rows lie in memory between the kernels before and after the move of the columns."""
    u = ig.partition(x, 0, ends)
    return ig.combine(ig.exp(u) * ig.sum(u * 0.5, 2, keepdim=True))


def row_sums(f: ig.Fusion, x: ig.Tensor, ends: ig.Tensor) -> ig.Tensor:
    return ig.sum(ig.partition(x, 0, ends), 1)


def row_sums_by_row(f: ig.Fusion, x: ig.Tensor, ends: ig.Tensor) -> ig.Tensor:
    return row_sums(f, x, ends).replicate().shard(0, "x") * 1.0


def padded_by_row(f: ig.Fusion, x: ig.Tensor, ends: ig.Tensor) -> ig.Tensor:
    return ig.pad_ragged(ig.partition(x, 0, ends), -1.0).replicate().shard(0, "x")


def two_tensors(f: ig.Fusion, x: ig.Tensor, ends: ig.Tensor) -> ig.Tensor:
    return ig.combine(ig.partition(x, 0, ends) + ig.partition(x * 3.0, 0, ends))


def padded() -> Array:
    return np.stack([np.pad(r, ((0, 15 - len(r)), (0, 0)), constant_values=-1) for r in ROWS])


# what is computed, what it is, and whether anything moves for columns and for rows of the values
CASES: dict[str, tuple[Build, Array, bool, bool]] = {
    "doubled": (doubled, 2 * X, False, True),
    "softmax": (softmax, np.concatenate([softened(r) for r in ROWS]), False, True),
    "of all columns": (of_all_columns, np.exp(X) * (X / 2).sum(1, keepdims=True), True, True),
    "row sums": (row_sums, sums(), False, True),
    "row sums by row": (row_sums_by_row, sums(), True, True),
    "padded by row": (padded_by_row, padded(), True, True),
    "two tensors": (two_tensors, 4 * X, False, True),
}


@pytest.mark.parametrize("mesh", [{"x": 2}, {"x": 3, "y": 2}], ids=["two", "six"])
@pytest.mark.parametrize("axis", [None, 0, 1], ids=["whole", "rows", "columns"])
@pytest.mark.parametrize("name", CASES)
def test_rows_on_devices(name: str, axis: int | None, mesh: dict[str, int]) -> None:
    build, want, columns, rows = CASES[name]
    f = ig.Fusion("rows")
    f.mesh = ig.Mesh(**mesh)
    x, ends = f.input("x", (15, 4)), f.input("ends", (5,), "int64")
    if axis is not None:
        x.shard(axis, "x")
    y = f.output(build(f, x, ends))
    run = ig.shard.emit(f)
    found = run.run({"x": X, "ends": np.array(ENDS)})[y.name]
    np.testing.assert_allclose(found, want, rtol=1e-5)
    moves = any(isinstance(s, ig.shard.Exchange) for s in run.steps)
    assert moves == {None: False, 0: rows, 1: columns}[axis]


def test_rows_that_are_apart_are_refused() -> None:
    for axis, what in ((0, "u"), (1, "u")):
        f = ig.Fusion("rows")
        f.mesh = ig.Mesh(x=2)
        u = ig.partition(f.input("x", (15, 4)), 0, f.input("ends", (5,), "int64"), name=what).shard(axis, "x")
        f.output(ig.combine(u))
        with pytest.raises(ig.MeshError, match="u is sharded over x along its rows"):
            ig.shard.emit(f)
    f = ig.Fusion("rows")
    f.mesh = ig.Mesh(x=2)
    f.output(doubled(f, f.input("x", (15, 4)), f.input("ends", (5,), "int64").shard(0, "x")))
    with pytest.raises(ig.MeshError, match=r"offsets ends of the rows of .* are spread"):
        ig.shard.emit(f)


def test_offsets_are_tested_on_devices() -> None:
    f = ig.Fusion("rows")
    f.mesh = ig.Mesh(x=2)
    f.output(doubled(f, f.input("x", (15, 4)).shard(1, "x"), f.input("ends", (5,), "int64")))
    with pytest.raises(ig.IndexingError, match="offsets"):
        ig.shard.emit(f).run({"x": X, "ends": np.array([0, 9, 3, 14, 15])})
