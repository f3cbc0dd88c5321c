"""Worked numbers: bytes, sectors of warps, passes, arithmetic, atomics and time, each counted by hand here."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.arith import symbol
from idgraph.cost import Device
from idgraph.cost.access_sites import EnclosingLoop
from idgraph.cost.calibrate import find_assembler
from idgraph.cost.iteration_count import count_points
from idgraph.cost.memory_traffic import in_order
from idgraph.cost.report import KernelCost
from idgraph.ir import DType


def copied(shape: tuple[int, ...], dtype: DType = "float32", turned: bool = False) -> ig.Fusion:
    """A copy, each element by a thread of its own."""
    f = ig.Fusion("copy")
    x = f.input("x", shape, dtype)
    a = ig.transpose(x, 0, 1) if turned else x
    y = f.output(ig.copy(a))
    for t in (y, a) if turned else (y,):
        t.merge(0)
        t.split(0, 128)
        t.parallelize(0, "blockIdx.x")
        t.parallelize(1, "threadIdx.x")
    ig.schedule.inline_most(f)
    return f


def test_two_kernels_that_read_a_tensor_read_it_twice() -> None:
    f = ig.Fusion("sums")
    x = f.input("x", (1024, 1024))
    f.output(ig.sum(x, 0))
    f.output(ig.sum(x, 1))
    for scheduled in (False, True):
        if scheduled:
            ig.schedule.auto(f)
        cost = ig.cost(ig.emit(f, "cuda" if scheduled else "python"), "H200")
        assert cost.total.bytes_read >= 8 << 20
        assert cost.total.bytes_read < (8 << 20) * 1.02  # partial sums of the second stage


def test_values_in_registers_are_not_memory() -> None:
    f = ig.Fusion("inlined")
    x = f.input("x", (1, 1))
    wide = ig.exp(ig.expand(x, (128, 256)))
    y = f.output(ig.sum(wide))
    ig.schedule.inline_most(f)
    cost = ig.cost(ig.emit(f, "python"), "H200")
    assert (cost.total.bytes_read, cost.total.bytes_written) == (4, 4)
    assert y.shape == ()


@pytest.mark.parametrize(("dtype", "item"), [("float32", 4), ("bfloat16", 2), ("float64", 8), ("uint8", 1)])
def test_a_copy_asks_for_each_sector_once(dtype: DType, item: int) -> None:
    k = ig.cost(ig.emit(copied((64, 256), dtype), "cuda")).kernels[0]
    assert k.bytes_read == k.bytes_written == 64 * 256 * item
    assert k.bytes_moved == k.sectors * 32 == 2 * 64 * 256 * item
    assert (k.blocks, k.threads, k.atomics, k.flops, k.exact) == (128, 128, 0, 0, True)


def test_a_transpose_by_threads_asks_for_a_sector_a_lane() -> None:
    """Lanes of a warp read 32 rows: 32 sectors; they write 128 bytes: 4."""
    k = ig.cost(ig.emit(copied((256, 128), turned=True), "cuda")).kernels[0]
    reads = sum(a.sectors for a in k.accesses if a.kind == "read")
    writes = sum(a.sectors for a in k.accesses if a.kind == "write")
    warps = 256 * 128 // 32
    assert (reads, writes) == (32 * warps, 4 * warps)
    assert k.bytes_moved == 2 * 256 * 128 * 4


def test_sectors_as_a_loop_over_warps_counts_them() -> None:
    """Every third column from the seventh on, threads of 96: warps straddle blocks of rows."""
    f = ig.Fusion("columns")
    x = f.input("x", (50, 100), "bfloat16")
    a = x[:, 7:97:3]
    y = f.output(ig.copy(a))
    for t in (y, a):
        t.merge(0)
        t.split(0, 96)
        t.parallelize(0, "blockIdx.x")
        t.parallelize(1, "threadIdx.x")
    a.inline(2)
    k = ig.cost(ig.emit(f, "cuda")).kernels[0]
    asked = set[tuple[int, int, str, int]]()
    for at in range(50 * 30):
        block, thread = divmod(at, 96)
        row, column = divmod(at, 30)
        asked.add((block, thread // 32, "read", (row * 100 + 7 + 3 * column) * 2 // 32))
        asked.add((block, thread // 32, "write", at * 2 // 32))
    assert k.sectors == len(asked)
    assert k.bytes_asked == 2 * 50 * 30 * 2


@pytest.mark.parametrize(("columns", "passes"), [(65536, 2), (12288, 1)])
def test_rows_of_all_resident_blocks_share_the_cache(columns: int, passes: int) -> None:
    """512 rows of 256 KB are under way at once, which no 50 MB hold, in whatever pieces a thread reads them (70 us on
    an H200, 34 for one pass); 512 of 48 KB are 24 MB."""
    f = ig.Fusion("margin")
    x = f.input("x", (512, columns))
    top = ig.amax(x, 1, keepdim=True)
    f.output(ig.squeeze(top, 1) - ig.amax(ig.where(ig.eq(x, top), -1e30, x), 1))
    ig.schedule.auto(f, config=ig.schedule.KernelConfig(persistent=False))
    (k,) = ig.cost(ig.emit(f, "cuda")).kernels
    assert [t.passes for t in k.tensors if t.tensor == "x"] == [passes]


@pytest.mark.thorough
def test_a_row_that_fits_no_cache_is_read_once_for_each_pass() -> None:
    f = ig.Fusion("softmax")
    f.output(ig.softmax(f.input("x", (256, 100_000)), 1))
    ig.schedule.auto(f)
    program = ig.emit(f, "cuda")
    size = 4 * 256 * 100_000
    large = ig.cost(program, replace(ig.cost.devices["H200"], cache=1 << 30)).kernels[-1]
    small = ig.cost(program, replace(ig.cost.devices["H200"], cache=1 << 20))
    assert large.bytes_read < size * 1.01
    assert small.total.bytes_read > 2 * size * 0.99
    passes = max(t.passes for k in small.kernels for t in k.tensors if t.tensor == "x")
    assert passes == 2
    assert small.total.time_us > large.time_us


def test_rows_added_to_are_updated_element_by_element() -> None:
    f = ig.Fusion("add")
    x, i, s = f.input("x", (8000, 64)), f.input("i", (5000,), "int64"), f.input("s", (5000, 64))
    f.output(ig.index_put(x, [i], s, accumulate=True))
    ig.schedule.auto(f)
    program = ig.emit(f, "cuda")
    assert ig.cost(program).total.atomics == 5000 * 64
    rows = np.arange(5000, dtype=np.int64) % 100
    told = ig.cost(program, inputs={"i": rows})
    assert sum(k.collisions or 0 for k in told.kernels) == (5000 - 100) * 64
    touched = next(t for t in told.kernels[-1].tensors if t.place == "output")
    assert touched.bytes_written == 100 * 64 * 4


def test_flops_by_type() -> None:
    f = ig.Fusion("flops")
    x = f.input("x", (10, 10))
    f.output(ig.exp(x * 2.0 + 1.0) * ig.cast(x, "float64"))
    k = ig.cost(ig.emit(f, "python")).total
    assert (k.flops, k.special) == (400, 100)


def test_sites_that_a_loaded_one_meets_by_chance_stay_apart() -> None:
    """Two halves of each row's chunks and one element at an index: samples met by chance, and half of the bytes was
    told."""
    f = ig.Fusion("cross_entropy")
    x, y = f.input("x", (8192, 32768), "bfloat16"), f.input("y", (8192,), "int64")
    f.output(ig.cross_entropy(x, y))
    ig.schedule.auto(f)
    cost = ig.cost(ig.emit(f, "cuda"))
    (read,) = (t for t in cost.kernels[0].tensors if t.tensor == "x")
    assert 1.0 <= read.bytes_read / (2 * 8192 * 32768) <= 1.001


@pytest.mark.parametrize("bound", [0, 1, 999, 1000, 1001, 123456, 4 << 20])
def test_linear_conditions_are_counted_in_closed_form(bound: int) -> None:
    loops = [
        EnclosingLoop("i", 1024, "serial", 1),
        EnclosingLoop("j", 2048, "serial", 2),
        EnclosingLoop("k", 2, "serial", 3),
    ]
    i, j, k = (symbol(x.var, 0, x.extent - 1) for x in loops)
    found = count_points(loops, [i * 4096 + j * 2 + k < bound * 2], {}, {})
    assert (found.points, found.exact) == (min(bound * 2, 1024 * 4096), True)


def test_blocks_are_the_slowest_loops() -> None:
    loops = [
        EnclosingLoop("t", 4, "threadIdx.x", 1),
        EnclosingLoop("x", 4, "blockIdx.x", 2),
        EnclosingLoop("s", 4, "serial", 3),
    ]
    assert [a.var for a in in_order([*loops, EnclosingLoop("y", 4, "blockIdx.y", 4)])] == ["y", "x", "s", "t"]


def test_symbols_need_numbers() -> None:
    f = ig.Fusion("s")
    n = f.symbol("n", min=1, max=1 << 20)
    f.output(ig.exp(f.input("x", (n, 32))))
    program = ig.emit(f, "python")
    with pytest.raises(ig.IdGraphError, match="symbol n has no number"):
        ig.cost(program)
    assert ig.cost(program, symbols={"n": 100}).total.bytes_read == 100 * 32 * 4


def test_bad_arguments_end_in_one_error() -> None:
    f = ig.Fusion("s")
    f.output(ig.exp(f.input("x", (4, 32))))
    program = ig.emit(f, "python")
    for wrong in ({"device": "H900"}, {"inputs": {"y": np.zeros(3)}}, {"inputs": {"x": np.zeros(3, np.float32)}}):
        with pytest.raises(ig.IdGraphError):
            ig.cost(program, **wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ig.IdGraphError, match="program is"):
        ig.cost(f)  # pyright: ignore[reportArgumentType]


def test_other_classes_of_that_name_do_no_harm() -> None:
    assert ig.frontends.from_torch is not None
    assert ig.check.program is not None
    f = ig.Fusion("s")
    f.output(ig.exp(f.input("x", (4, 32))))
    assert ig.cost(ig.emit(f, "python")).total.launches == 1


def test_devices_are_data() -> None:
    for d in ig.cost.devices.values():
        assert Device.from_json(d.to_json()) == d
    for text in ("", "[]", "{}", '{"kind": "cpu"}', '{"name": "x", "kind": "tpu", "bandwidth": 1}'):
        with pytest.raises(ig.IdGraphError, match="not a device"):
            Device.from_json(text)
    assert Device.from_json('{"name": "x", "kind": "cuda", "bandwidth": 1e12}').processors == 132


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested too deep"),
        ("9" * 10_000, "digits"),
        (" " * (1 << 20) + "{}", "characters, at most"),
        ('"bandwidth": 1e400', "bandwidth is inf"),
        ('"bandwidth": NaN', "bandwidth is nan"),
        ('"bandwidth": 0', "bandwidth is 0"),
        ('"bandwidth": 1e12, "processors": 0.5', "processors is 0.5"),
        ('"bandwidth": 1e12, "threads": -1', "threads is -1"),
        ('"bandwidth": 1e12, "cc": [true, 0]', "cc is"),
        ('"bandwidth": 1e12, "name": "a\\nb"', "not a name for a device"),
        ('"bandwidth": 1e12, "flops": {"float32": 1, "a\\u202e": 1}', "not a name for a type"),
    ],
)
def test_a_device_file_is_read_within_limits(text: str, why: str) -> None:
    whole = f'{{"name": "x", "kind": "cuda", {text}}}' if text.startswith('"') else text
    with pytest.raises(ig.IdGraphError, match=why) as caught:
        Device.from_json(whole)
    assert len(str(caught.value)) < 600


def test_tables_have_the_same_columns_always(tmp_path: Path) -> None:
    cost = ig.cost(ig.emit(copied((64, 256)), "cuda"))
    paths = cost.to_csv(tmp_path / "made")
    assert [p.name for p in paths] == ["kernels.csv", "accesses.csv", "tensors.csv"]
    with paths[0].open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["program"], row["bytes_read"], row["registers"]) == ("copy", str(64 * 256 * 4), "")
    told = json.loads(cost.to_json())
    assert told["schema"] == "idgraph-cost/1"
    assert told["kernels"][0]["accesses"][0]["points"] == 64 * 256
    assert "kernel0" in str(cost)


@pytest.mark.skipif(find_assembler() is None, reason="no ptxas on this machine")
def test_registers_come_from_the_assembler() -> None:
    pytest.importorskip("numba.cuda")
    k = ig.cost(ig.emit(copied((64, 256)), "cuda"), assemble=True).kernels[0]
    assert k.registers is not None
    assert 4 <= k.registers <= 64
    assert k.spills == 0
    assert k.occupancy == 1.0


def test_other_targets_have_no_registers() -> None:
    k = ig.cost(ig.emit(copied((64, 256)), "python"), assemble=True).kernels[0]
    assert (k.registers, k.spills) == (None, None)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_cpu_is_measured() -> None:
    d = ig.cost.measure_device("cpu", size=1 << 14, name="this")
    assert (d.kind, d.name) == ("cpu", "this")
    assert min(d.bandwidth, d.loads, d.atomics, d.launch_us, *d.flops.values(), *d.special.values()) > 0
    assert Device.from_json(d.to_json()) == d


def test_a_device_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ig.IdGraphError, match="kind"):
        ig.cost.measure_device("tpu")  # pyright: ignore[reportArgumentType]


def test_a_masked_maximum_on_a_cpu_costs_as_much_as_a_sum() -> None:
    """Both have lanes there, as `tests.emit.test_extrema` holds: 0.25 ns a step were measured, 1.1 to 2.5 without."""

    def kernel(build: Callable[[ig.Tensor, ig.Tensor], ig.Tensor], kind: str) -> KernelCost:
        f = ig.Fusion("f")
        f.output(build(f.input("x", (4096, 3000), kind), f.input("hit", (4096, 3000), "bool")))
        ig.schedule.auto(f)
        (found,) = ig.cost(ig.emit(f, target="cpu"), "cpu").kernels
        return found

    def most(x: ig.Tensor, hit: ig.Tensor) -> ig.Tensor:
        return ig.amax(ig.where(hit, x, -math.inf if x.dtype.startswith("float") else -(2**31)), 1)

    for kind in ("float32", "float64", "int32"):
        masked, summed = kernel(most, kind), kernel(lambda x, hit: ig.sum(ig.where(hit, x, 0), 1), kind)
        assert masked.bound == summed.bound and math.isclose(masked.time_us, summed.time_us, rel_tol=0.05)
    known = Device.from_json('{"name": "x", "kind": "cpu", "bandwidth": 1e10}')
    assert known.scalar == ig.cost.devices["cpu"].scalar


def test_a_tensor_comes_from_the_cache_that_still_holds_it() -> None:
    """Two kernels: what the first one stores is read from the last cache, or from memory where more lies between."""
    f = ig.Fusion("two")
    x, y = f.input("x", (512, 512)), f.input("y", (512, 512))
    a = f.output(ig.cumsum(x, 0))
    f.output(ig.cumsum(a + y, 1))
    ig.schedule.auto(f)
    program = ig.emit(f, "cpu")
    size, few = 1 << 20, 1e9
    rates: dict[str, Any] = {"flops": {"float32": 1e15}, "loads": 1e15, "launch_us": 0.0}
    device = replace(ig.cost.devices["cpu"], bandwidth=few, cache_bandwidth=4 * few, **rates)
    assert len(program.kernels) == 2

    def memory_us(cache: int, warm: bool) -> float:
        return ig.cost(program, replace(device, cache=cache), warm=warm).total.time_us

    slow, fast = 1e6 * size / few, 1e6 * size / (4 * few)
    assert math.isclose(memory_us(1 << 18, warm=False), 5 * slow, rel_tol=0.01)  # x, a; a, y, the result
    assert math.isclose(memory_us(15 << 18, warm=True), 5 * slow, rel_tol=0.01)  # 4 MiB since the last use of each
    assert math.isclose(memory_us(17 << 18, warm=False), 4 * slow + fast, rel_tol=0.01)
    assert math.isclose(memory_us(17 << 18, warm=True), 5 * fast, rel_tol=0.01)
    near = replace(device, cache=64 << 18, levels=((32 << 18, 8 * few),))
    assert math.isclose(ig.cost(program, near).total.time_us, 5 * fast / 2, rel_tol=0.01)


def test_a_loop_that_divides_has_no_vectors_on_a_cpu() -> None:
    """Each element five times: its place is a quotient. A sum of the same elements has none."""
    device = replace(ig.cost.devices["cpu"], scalar=1e9, launch_us=0.0)

    def kernel(build: Callable[[ig.Tensor], ig.Tensor]) -> KernelCost:
        f = ig.Fusion("f")
        f.output(build(f.input("x", (300, 253))))
        ig.schedule.auto(f)
        (k,) = ig.cost(ig.emit(f, "cpu"), device).kernels
        return k

    slow = kernel(lambda x: ig.reshape(ig.expand(ig.unsqueeze(x, 2), (300, 253, 5)), (300, 1265)) * 2.0)
    fast = kernel(lambda x: x + x)
    assert slow.bound == "steps"
    assert 300 * 1265 * 4 / 1e9 <= slow.time_us / 1e6 <= 300 * 1265 * 16 / 1e9  # load, store, division, and a test
    assert fast.bound != "steps"
    assert fast.time_us < slow.time_us / 10


def test_functions_have_rates_by_name_and_type() -> None:
    special = {"float32": 1e12, "float64": 1e12, "exp float32": 1e9, "libm float64": 1e8, "libm": 5e8}
    device = replace(ig.cost.devices["cpu"], special=special, launch_us=0.0)

    def time_us(function: Callable[[ig.Tensor], ig.Tensor], dtype: DType) -> float:
        f = ig.Fusion("one")
        f.output(function(f.input("x", (1 << 20,), dtype)))
        ig.schedule.auto(f)
        return ig.cost(ig.emit(f, "cpu"), device).total.time_us

    found = [time_us(ig.exp, "float32"), time_us(ig.exp, "float64"), time_us(ig.sin, "float32")]
    assert [round(us * 1e3 / (1 << 20), 1) for us in found] == [1.0, 10.0, 2.0]
