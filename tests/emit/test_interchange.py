"""Reductions of rows that lie side by side in memory, on the CPU: rows together, column by column."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import idgraph as ig

Build = Callable[[ig.Fusion], ig.Tensor]


def _by_columns(f: ig.Fusion, rows: int, columns: int) -> ig.Tensor:
    return f.input("x", shape=(rows, columns), strides=(1, rows))


CASES: dict[str, Build] = {
    "sum": lambda f: ig.sum(_by_columns(f, 256, 40), 1),
    "sum of 1000 rows": lambda f: ig.sum(_by_columns(f, 1000, 33), 1),
    "sum of 97 rows": lambda f: ig.sum(_by_columns(f, 97, 64), 1) * 2.0,
    "largest": lambda f: ig.amax(_by_columns(f, 300, 17) - 5.0, 1),
    "smallest": lambda f: ig.amin(_by_columns(f, 130, 9), 1, keepdim=True),
    "mean of two": lambda f: ig.mean(
        _by_columns(f, 515, 20) * f.input("y", shape=(515, 20), strides=(1, 520)), 1
    ),
    "channels": lambda f: ig.sum(f.input("x", shape=(5, 64, 9), strides=(576, 1, 64)), 2),
    "few columns": lambda f: ig.sum(f.input("x", shape=(5, 203)), 0),
    "leading axis": lambda f: ig.sum(f.input("x", shape=(31, 203)), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    f = ig.Fusion("f")
    t = f.output(CASES[name](f))
    rng = np.random.default_rng(0)
    arrays = {x.name: -rng.random([int(n) for n in x.shape], np.float32) - 1.0 for x in f.inputs}
    want = ig.emit(f, "numpy").run(arrays)[t.name]
    ig.schedule.auto(f)
    p = ig.emit(f, "cpu")
    assert np.allclose(p.run(arrays)[t.name], want, rtol=1e-5)
    assert "interchange" in p.kernels[0].passes and "_all[" in p.source
    assert ig.validate(f, target="cpu").ok


def test_rows_that_lie_one_behind_the_other_stay() -> None:
    f = ig.Fusion("f")
    f.output(ig.sum(f.input("x", shape=(256, 40)), 1))
    ig.schedule.auto(f)
    assert "interchange" not in ig.emit(f, "cpu").kernels[0].passes
