"""Rows of tensors between kernels get gaps where that pays: both sides of the decision, sectors counted one by one."""

from __future__ import annotations

import numpy as np
import pytest

import idgraph as ig
from idgraph.index.allocation import strides


def _table(picked: int, rows: int, columns: int, whole: bool = False) -> tuple[ig.Fusion, ig.Tensor]:
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(rows, columns)), f.input("i", shape=(picked,), dtype="int64")
    t = ig.exp(x * 0.5)
    f.output(ig.embedding(i, t) + 1.0)
    if whole:
        f.output(t * 3.0)
    return f, t


def _sectors(starts: list[int], columns: int, width: int) -> int:
    """Sectors that warps ask for, a row after the other, from the elements at which rows begin."""
    total = 0
    for s in starts:
        for first in range(0, columns, 32 * width):
            last = min(first + 32 * width, columns)
            total += len({b // 32 for b in range((s + first) * 4, (s + last) * 4)})
    return total


@pytest.mark.parametrize(
    ("picked", "columns"), [(2, 1030), (40, 1030), (60, 1030), (5000, 1030), (5000, 1032), (900, 1601)]
)
def test_padded_where_and_only_where_sectors_outweigh_bytes(picked: int, columns: int) -> None:
    rows = 20
    f, t = _table(picked, rows, columns)
    ig.schedule.auto(f, gathers="global")
    wide = -(-columns // 32) * 32
    each = [_sectors([r * step for r in range(rows)], columns, w) for step, w in ((columns, 1), (wide, 4))]
    if columns % 4 == 0:
        each[0] = _sectors([r * columns for r in range(rows)], columns, 4)
    elif columns % 2 == 0:
        each[0] = _sectors([r * columns for r in range(rows)], columns, 2)
    saved = (each[0] - each[1]) * 32 * picked // rows
    added = (rows - 1) * (wide - columns) * 4
    padded = t.domain.strides[0] is not None
    assert padded == (saved > added), (saved, added)
    told = [n.told for n in f.formats if n.tensor == t.name]
    assert bool(told) == padded
    if padded:
        assert (
            f"saves {saved} bytes" in told[0]
            and f"adds {added}" in told[0]
            and told[0] in str(ig.emit(f, "cuda").report)
        )
        assert int(t.domain.strides[0] or 0) == wide


@pytest.mark.sampled
@pytest.mark.parametrize("target", ["numpy", "cpu"])
def test_values_and_text(target: str) -> None:
    f, t = _table(400, 12, 1027)
    ig.schedule.auto(f, gathers="global")
    assert t.domain.strides[0] is not None
    rng = np.random.default_rng(1)
    x, i = rng.random((12, 1027), np.float32), rng.integers(0, 12, 400)
    (found,) = ig.emit(f, target).run({"x": x, "i": i}).values()  # type: ignore[arg-type]
    assert np.allclose(found, np.exp(x * 0.5)[i] + 1.0, rtol=1e-5)
    assert str(ig.parse(str(f))) == str(f) and ig.validate(f, target=target).ok  # type: ignore[arg-type]
    before = str(f)
    ig.schedule.auto(f, gathers="global")
    assert [n.told for n in f.formats] and str(f) == before
    ig.schedule.auto(f, gathers="global", layout=False)
    assert t.domain.strides == (None, None) and not f.formats


def test_readers_of_the_whole_keep_it_dense() -> None:
    f, t = _table(5000, 20, 1030, whole=True)
    ig.schedule.auto(f, gathers="global")
    assert t.domain.strides == (None, None)


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
