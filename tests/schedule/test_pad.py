"""Rows of tensors between kernels stay dense, and strides that a user asks for are checked."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.index.allocation import strides


def _table(picked: int, rows: int, columns: int) -> tuple[ig.Fusion, ig.Tensor]:
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(rows, columns)), f.input("i", shape=(picked,), dtype="int64")
    t = ig.exp(x * 0.5)
    f.output(ig.embedding(i, t) + 1.0)
    return f, t


def test_rows_stay_dense_and_gaps_are_advised() -> None:
    f, t = _table(5000, 20, 1030)
    ig.schedule.auto(f, gathers="global")
    assert t.domain.strides == (None, None)
    (row,) = (r for r in ig.layout.pad_strides(f) if r.tensor is t)
    assert row.strides == (1056, 1) and row.sectors_after < row.sectors_before


def test_strides_are_checked() -> None:
    f, t = _table(4, 6, 10)
    for wrong in ([9, 1], [10], [10, True], [10, 0], "ab"):
        with pytest.raises(ig.ScheduleError, match="set_allocation"):
            t.set_allocation(t.logical, strides=wrong)  # type: ignore[arg-type]
    with pytest.raises(ig.ScheduleError, match="not contiguous"):
        t.set_allocation(t.logical, [True, False], strides=[16, 1])
    assert t.domain.strides == (None, None) and not t.log
    t.set_allocation(t.logical, strides=[16, 1])
    assert [str(s) for s in strides(t)] == ["16", "1"]
    assert all(ig.validate(f, target=target).ok for target in ("python", "numpy"))
