"""What threads hand each other takes time: it is in the estimate, and schedules are chosen by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import idgraph as ig
from idgraph.ir.device import Device
from idgraph.runtime import Program

H200 = ig.cost.devices["H200"]


def scheduled(f: ig.Fusion, device: Device = H200) -> Program:
    ig.schedule.auto(f, device=device)
    return ig.emit(f, target="cuda")


def running_sums(rows: int = 8192, columns: int = 8192) -> ig.Fusion:
    f = ig.Fusion("running")
    f.output(ig.cumsum(f.input("x", (rows, columns)), 1))
    return f


def short_rows(rows: int = 1 << 19) -> ig.Fusion:
    f = ig.Fusion("short")
    x = f.input("x", (rows, 64))
    f.output(ig.sum(ig.softmax(x, 1) * x, 1))
    return f


def threads_of_a_row(f: ig.Fusion) -> int:
    return int(next(str(e) for e in scheduled(f).kernels[0].launch["threadIdx.x"]))


@pytest.mark.parametrize("make", [running_sums, short_rows])
def test_time_grows_with_the_exchange(make: Callable[[], ig.Fusion]) -> None:
    program = scheduled(make())
    slow = ig.cost(program, device=replace(H200, exchange_cycles=50.0))
    none = ig.cost(program, device=replace(H200, exchange_cycles=1e-9))
    assert none.total.time_us < ig.cost(program, device=H200).total.time_us < slow.total.time_us / 2
    assert slow.kernels[0].bound == "exchanges"


def test_values_that_a_warp_hands_on_are_counted() -> None:
    """2^19 rows of 4 threads: a maximum of one word, two sums of two, handed on twice each."""
    program = scheduled(short_rows())
    dear = replace(H200, exchange_cycles=1e4)
    by_hand = (1 << 19) * 4 / 32 * (1 + 2 + 2) * 2 * 1e4 / (H200.processors * H200.clock) * 1e6
    assert ig.cost(program, device=dear).total.time_us == pytest.approx(by_hand, rel=0.01)


def test_few_threads_take_a_short_row() -> None:
    """16 threads of a vector each would exchange for longer than memory takes; 4 of four vectors do not."""
    assert threads_of_a_row(short_rows()) == 4
    few = ig.Fusion("sum")  # one sum of a row is little beside memory
    few.output(ig.sum(few.input("x", (1 << 15, 64)), 1))
    assert threads_of_a_row(few) > 4


def test_a_scan_has_the_width_of_the_least_time() -> None:
    """Wider where exchanges are dear, narrower where they are free."""
    widths: list[int] = []
    for cycles in (1e-9, H200.exchange_cycles):
        f = running_sums()
        ig.schedule.auto(f, device=replace(H200, exchange_cycles=cycles))
        widths.append(int(str(f.outputs[0].loop[-1].extent)))
    assert widths == [4, 8]


def test_a_scan_of_wide_numbers_asks_for_few_lines_more() -> None:
    """Eight int64 of a thread are four accesses, each of parts of all lines: stores of them take longer than memory."""
    f = ig.Fusion("count")
    s = f.output(ig.cumsum(f.input("start", (4096, 4096), "int64"), 1))
    f.output(f.input("x", (4096, 4096)) * ig.cast(s % 2, "float32"))
    ig.schedule.auto(f, device=H200)
    assert {int(str(t.loop[-1].extent)) for t in f.outputs} == {4}


@pytest.mark.parametrize(("dtype", "columns", "each"), [("float32", 64, 4), ("bfloat16", 64, 8), ("bfloat16", 128, 8)])
def test_rows_whose_exchange_hides_behind_memory_have_a_vector_a_thread(dtype: str, columns: int, each: int) -> None:
    f = ig.Fusion("rows")
    f.output(ig.cast(ig.softmax(ig.cast(f.input("x", (1 << 19, columns), dtype), "float32"), 1), dtype))
    assert threads_of_a_row(f) == columns // each


def test_rows_read_again_and_again_are_several_of_a_thread() -> None:
    """Products of all pairs of rows are loaded from a cache, one load of a row for several pairs of it."""
    f = ig.Fusion("pairs")
    x = f.input("x", (64, 512, 64))
    f.output(ig.sum(ig.unsqueeze(x, 2) * ig.unsqueeze(x, 1), 3))
    launch = scheduled(f).kernels[0].launch
    pairs = 64 * 512 * 512
    assert [int(str(e)) for e in (*launch["blockIdx.x"], *launch["threadIdx.x"])] == [pairs * 8 // 128 // 4, 8]
