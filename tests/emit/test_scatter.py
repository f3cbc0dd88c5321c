"""Kernels of scatters: atomics where threads meet, order where the last writer wins, and no write out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.codegen.printers.scalar import runs_parallel
from idgraph.kernel.ir import Accumulate, walk
from idgraph.runtime import Program, compile_ptx, emit


def fusion(op: str = "scatter_add", rows: int = 40, entries: int = 30) -> tuple[ig.Fusion, ig.Tensor]:
    """x[rows, 8] with a source of [rows, entries] written or added along the second axis."""
    f = ig.Fusion("f")
    x, s = f.input("x", (rows, 8)), f.input("s", (rows, entries))
    i = f.input("i", (rows, entries), "int64")
    return f, f.output((ig.scatter_add if op == "scatter_add" else ig.scatter)(x, 1, i, s))


def arrays(rows: int = 40, entries: int = 30) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.normal(size=(rows, 8)).astype(np.float32), "s": rng.normal(size=(rows, entries)).astype(np.float32),
        "i": rng.integers(0, 8, (rows, entries)),
    }  # fmt: skip


def shared(p: Program) -> list[bool]:
    """Whether the additions in place may meet, kernel by kernel."""
    return [s.shared for k in p.kernels for s in walk(k.body) if isinstance(s, Accumulate)]


@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
def test_the_last_of_several_writers_wins(target: Any) -> None:
    f, t = fusion("scatter")
    given = arrays()
    want = given["x"].copy()
    for row in range(40):
        for k in range(30):
            want[row, given["i"][row, k]] = given["s"][row, k]
    for _ in range(2):
        assert np.array_equal(emit(f, target).run(given)[t.name], want)
        ig.schedule.auto(f)


def test_the_last_writer_wins_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy works through pieces of the outermost loop; entries of one row may lie in several."""
    from idgraph.codegen.runtime_lib import numpy_ops as grids

    f, t = fusion("scatter", 1)
    t.reorder([1, 0])
    given = arrays(1)
    want = emit(f, "python").run(given)[t.name]
    monkeypatch.setattr(grids, "CHUNK", 7)
    assert np.array_equal(emit(f, "numpy").run(given)[t.name], want)


def test_threads_that_may_meet_add_atomically() -> None:
    f, _ = fusion()
    ig.schedule.auto(f)
    program = emit(f, "cuda")
    assert "cuda.atomic.add(" in program.source
    assert shared(program) == [True]


def test_rows_that_never_meet_need_no_atomics() -> None:
    f, t = fusion()
    t.split(0, 32).parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    program = emit(f, "cuda")
    assert "atomic" not in program.source
    assert shared(program) == [False]


def test_cpu_blocks_that_may_meet_run_one_after_another() -> None:
    f, _ = fusion()
    ig.schedule.auto(f)
    program = emit(f, "cpu")
    assert [runs_parallel(k) for k in program.kernels] == [True, False]  # the copy, the additions
    f, t = fusion()
    t.parallelize(0, "blockIdx.x")
    assert all(runs_parallel(k) for k in emit(f, "cpu").kernels)


def test_writers_on_threads_have_no_last_one() -> None:
    f, t = fusion("scatter")
    t.parallelize(1, "threadIdx.x")
    with pytest.raises(ig.ScheduleError, match="would race: loop i1 over the entries of its index"):
        emit(f, "cuda")


@pytest.mark.parametrize("merged", [True, False])
def test_writers_out_of_order_are_refused(merged: bool) -> None:
    f, t = fusion("scatter")
    t.split(1, 4)
    t.reorder({1: 2})
    with pytest.raises(ig.ScheduleError, match="in their order"):
        emit(f, "python")
    t.reorder({1: 2})
    if merged:
        t.merge(1)
    assert emit(f, "python").kernels


def test_what_is_made_for_a_scatter_is_made_where_it_is_scattered() -> None:
    """No copy, no second buffer; an input, and what others read too, stays as it is."""
    f = ig.Fusion("f")
    x, i, s = f.input("x", (4, 9)), f.input("i", (4, 2), "int64"), f.input("s", (4, 2))
    y = x * 2.0
    f.output(ig.scatter_add(y, 1, i, s))
    p = emit(f, "python")
    assert [b.place for b in p.plan.buffers] == ["input", "input", "input", "output"]
    assert len(p.kernels) == 2
    f.output(y + 1.0)
    p = emit(f, "python")
    assert sorted(b.place for b in p.plan.buffers if b.place != "input") == ["global", "output", "output"]
    assert ig.validate(f, target="numpy").ok


def test_chains_of_scatters_share_one_buffer() -> None:
    f = ig.Fusion("f")
    x, i, s = f.input("x", (4, 9)), f.input("i", (4, 2), "int64"), f.input("s", (4, 2))
    t = ig.copy(x)
    for _ in range(3):
        t = ig.scatter_add(t, 1, i, s)
    f.output(t)
    assert len([b for b in emit(f, "python").plan.buffers if b.place != "input"]) == 1
    assert ig.validate(f, target="numpy").ok


@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
@pytest.mark.parametrize("bad", [-1, 8, 10**12])
def test_nothing_is_written_out_of_range(target: Any, bad: int) -> None:
    """Checked runs name the place; others leave the memory alone."""
    f, t = fusion(rows=2, entries=3)
    given = arrays(2, 3)
    given["i"][1, 2] = bad
    want = given["x"].copy()
    for row, k in np.ndindex(2, 3):
        if (row, k) != (1, 2):
            want[row, given["i"][row, k]] += given["s"][row, k]
    assert np.allclose(emit(f, target).run(given, checked=False)[t.name], want)
    with pytest.raises(ig.IndexingError) as caught:
        emit(f, target).run(given, checked=True)
    text = str(caught.value)
    assert f"index {bad} loaded from i is outside axis 1 of x, of extent 8" in text
    assert "test_scatter.py" in text
    assert "i0=1, i1=2" in text


def test_a_scatter_is_whole_before_it_is_read() -> None:
    f = ig.Fusion("f")
    x, i, s = f.input("x", (4, 9)), f.input("i", (4, 2), "int64"), f.input("s", (4, 2))
    y = ig.exp(x)
    t = ig.scatter_add(y, 1, i, s)
    f.output(t * 2.0)
    for early in (y, t):
        early.inline(1)
        with pytest.raises(ig.ScheduleError, match="it must be whole in memory"):
            emit(f, "python")
        early.inline(0)
    ig.schedule.inline_most(f)
    assert (y.inline_position, t.inline_position) == (0, 0)


def test_ptx_adds_in_one_step() -> None:
    f, _ = fusion()
    ig.schedule.auto(f)
    copy, add = compile_ptx(emit(f, "cuda"))
    assert "ld.global.v4" in copy.replace(".nc", "")
    assert "st.global.v4" in copy
    assert any(word in add for word in ("red.global.add.f32", "atom.global.add.f32", "red.add.f32", "atom.add.f32"))


@pytest.mark.parametrize("kind", ["xor", "cyclic"])
def test_rows_mixed_with_entries_by_a_swizzle(kind: str) -> None:
    """Row i0 ^ i1 takes entry i1 at step i0: not in the order of the entries, and rows of several threads meet."""
    f, t = fusion("scatter", 8, 4)
    t.swizzle(kind, 1, 0)
    with pytest.raises(ig.ScheduleError, match="in their order"):
        emit(f, "python")
    t.parallelize(0, "blockIdx.x")
    with pytest.raises(ig.ScheduleError, match="would race: loop i0 over the entries of its index"):
        emit(f, "cuda")
    f, t = fusion("scatter", 8, 4)
    t.swizzle(kind, 1, 0).reorder([1, 0])  # entries outermost: whatever the rows' order
    given = arrays(8, 4)
    want = emit(fusion("scatter", 8, 4)[0], "python").run(given)["t3"]
    assert np.array_equal(emit(f, "python").run(given)[t.name], want)
    f, t = fusion("scatter_add", 8, 4)
    t.swizzle(kind, 1, 0).parallelize(0, "blockIdx.x")
    assert shared(emit(f, "cuda")) == [True]
