"""Hardware stands in `Device` alone: with other numbers come other schedules, widths, conflicts and refusals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

import idgraph as ig
from idgraph.arith import symbol
from idgraph.errors import EmitError, IdGraphError, ScheduleError
from idgraph.index.bank_conflicts import warp_bytes
from idgraph.ir import item_size
from idgraph.ir.device import Device, current_device, devices, floor_power_of_two, use_device
from idgraph.kernel.ir import VectorLoad, VectorStore, most_threads, shared_layout, walk
from idgraph.runtime import emit
from idgraph.schedule import KernelConfig
from idgraph.schedule.reduction_domain import few_rows
from idgraph.schedule.reduction_persistence import cached_row_bytes, most_values

H200 = devices["H200"]
T4 = replace(  # NVIDIA's data sheet of the T4 and the table of compute capability 7.5
    H200, name="T4", bandwidth=3.0e11, cache=4 << 20, processors=40, threads=1024, blocks=16, shared=64 << 10,
    cc=(7, 5), clock=1.59e9,
)  # fmt: skip
OTHER = replace(H200, name="other", warp=64, banks=64, vector_bytes=8)  # nobody makes it
WIDE = replace(H200, name="wide", warp=64)  # nor this one: a warp wants all banks twice
CARDS = [H200, devices["H100"], devices["A100"], T4, OTHER, WIDE]
card = pytest.mark.parametrize("d", CARDS, ids=[d.name for d in CARDS])


def tile(rows: int, columns: int, dtype: Any = "float32") -> tuple[ig.Fusion, ig.Tensor]:
    """A tile in shared memory that is written by rows and read by columns."""
    f = ig.Fusion("tile")
    t = ig.copy(f.input("a", shape=(rows, columns), dtype=dtype), name="t").set_memory("shared")
    u = f.output(t.T)
    for x in (t, u):
        _ = x.parallelize(0, "threadIdx.y").parallelize(1, "threadIdx.x")
    return f, t


def loops(t: ig.Tensor) -> list[tuple[str, str]]:
    return [(str(d.extent), d.parallel) for d in t.loop]


def scheduled(device: Device, build: Callable[[ig.Fusion], ig.Tensor]) -> list[tuple[str, str]]:
    f = ig.Fusion("f")
    t = f.output(build(f))
    ig.schedule.auto(f, device=device)
    return loops(t)


@card
def test_conflicts_are_those_of_its_banks(d: Device) -> None:
    """By hand: the words that lanes of a warp ask each bank for, with the numbers of the device."""
    f, t = tile(64, 64)
    with use_device(d):
        found = ig.IdModel(f).access(t.uses[0], t).bank_conflicts()
    together = min(d.warp, d.bank_row // 4)  # lanes of one phase
    words = {lane * 64 for lane in range(together)}
    assert found.ways == max(Counter(w % d.banks for w in words).values())
    assert found.phases == max(1, d.warp * 4 // d.bank_row)


@card
def test_accesses_are_as_wide_as_its_own(d: Device) -> None:
    f = ig.Fusion("f")
    for dtype in ("float32", "bfloat16", "float64", "uint8"):
        x = f.input(dtype, shape=(4096,), dtype=dtype)
        t = f.output(x + x)
        with use_device(d):
            assert t.definition is not None
            assert ig.IdModel(f).access(t.definition, x).vector_width("i0") == d.vector_bytes // item_size(x.dtype)
            assert loops(t) == [("4096", "serial")]
    ig.schedule.auto(f, device=d)
    for t in f.outputs:
        width = d.vector_bytes // item_size(t.dtype)
        assert width == 1 or (str(width), "vectorize") == loops(t)[-1]


@card
def test_a_warp_asks_for_its_sectors(d: Device) -> None:
    with use_device(d):
        assert warp_bytes(((1 << 20, 1),), 4) == (d.warp * 4, d.warp * 4)
        assert warp_bytes(((1 << 20, 1000),), 4) == (d.warp * d.sector, d.warp * 4)


def test_schedules_are_for_its_processors() -> None:
    """132 rows are a block each for 10 processors, and too few for 132, which get more threads a row."""

    def rows(f: ig.Fusion) -> ig.Tensor:
        return ig.sum(f.input("x", shape=(132, 1 << 14)), 1)

    assert scheduled(H200, rows) == [
        ("132", "blockIdx.x"), ("4", "serial"), ("1024", "threadIdx.x"), ("4", "vectorize"),
    ]  # fmt: skip
    assert scheduled(replace(H200, processors=10), rows) == [
        ("132", "blockIdx.x"), ("16", "serial"), ("256", "threadIdx.x"), ("4", "vectorize"),
    ]  # fmt: skip


def test_one_sum_is_cut_for_its_processors() -> None:
    def stages(d: Device) -> int:
        f = ig.Fusion("f")
        f.output(ig.sum(f.input("x", shape=(1 << 22,))))
        ig.schedule.auto(f, device=d)
        (first, *_) = (e for e in f.exprs if e.op == "sum")
        return int(first.output.shape[0])

    assert (stages(H200), stages(T4), stages(replace(H200, processors=10))) == (1024, 256, 64)


def test_tiles_find_room_in_its_shared_memory() -> None:
    def bytes_of_tile(d: Device) -> int:
        f = ig.Fusion("f")
        f.output(f.input("x", shape=(1024, 1024)).T + f.input("y", shape=(1024, 1024)))
        ig.schedule.auto(f, device=d)
        with use_device(d):
            return max(shared_layout(k.body).total for k in emit(f, "cuda").kernels)

    assert bytes_of_tile(H200) == 16384 and bytes_of_tile(replace(T4, shared=32 << 10)) < 16384


def test_a_kernel_has_its_shared_memory_and_no_more() -> None:
    f, _ = tile(160, 160)
    for t in f.tensors[1:]:
        t.parallelize(0, "serial").parallelize(1, "serial").split(1, 160).parallelize(2, "threadIdx.x")
    assert shared_layout(emit(f, "cuda").kernels[0].body).total == 102400
    with use_device(T4), pytest.raises(ScheduleError, match="at most 65536 bytes in all"):
        emit(f, "cuda")


def test_a_block_has_its_threads_and_no_more() -> None:
    small = replace(T4, block_threads=512)
    f = ig.Fusion("f")
    t = f.output(f.input("x", shape=(1024,)) + 1.0).parallelize(0, "threadIdx.x")
    emit(f, "cuda")
    with use_device(small):
        with pytest.raises(EmitError, match="at most 512"):
            emit(f, "cuda")
        with pytest.raises(ScheduleError, match="1 to 512"):
            KernelConfig(threads=1024)
    assert t.loop[0].extent == 1024


def test_kernels_have_its_widths() -> None:
    """An emitted kernel has no access wider than the device's, whichever device its loops were made for."""
    narrow = replace(H200, vector_bytes=8)
    f = ig.Fusion("f")
    f.output(f.input("x", shape=(4096,), dtype="bfloat16") * 2.0)
    found: dict[int, set[int]] = {}
    ig.schedule.auto(f, device=H200)
    for d in (H200, narrow):
        with use_device(d):
            (kernel,) = emit(f, "cuda").kernels
        found[d.vector_bytes] = {
            4 * len(s.locals if isinstance(s, VectorLoad) else s.values)  # words of two
            for s in walk(kernel.body)
            if isinstance(s, (VectorLoad, VectorStore))
        }
    assert found == {16: {16}, 8: {8}}


def test_no_kernel_is_made_for_warps_that_the_language_lacks() -> None:
    f = ig.Fusion("f")
    f.output(ig.sum(f.input("x", shape=(64, 64)), 1))
    ig.schedule.auto(f, device=OTHER)
    with use_device(OTHER), pytest.raises(EmitError, match="warps of 64 threads"):
        emit(f, "cuda")
    emit(f, "cuda")
    with use_device(OTHER):
        emit(f, "python")


PROBES: dict[str, Callable[[], object]] = {
    "processors": few_rows,
    "threads": lambda: current_device().resident_threads,
    "registers": lambda: most_values(1024),
    "warp": lambda: warp_bytes(((1 << 20, 1),), 4),
    "sector": lambda: warp_bytes(((1 << 20, 1000),), 4),
    "vector_bytes": lambda: current_device().lanes(2),
    "block_threads": lambda: most_threads({"threadIdx.x": (symbol("n", 1, 4096),)}),
    "banks": lambda: current_device().bank_row,
    "bank_bytes": lambda: current_device().bank_row,
}


@pytest.mark.parametrize("name", PROBES)
def test_the_number_in_force_is_asked(name: str) -> None:
    before = PROBES[name]()
    with use_device(replace(H200, **{name: getattr(H200, name) // 2})):
        assert PROBES[name]() != before
    assert PROBES[name]() == before


def test_a_core_keeps_what_its_cache_holds() -> None:
    cpu = devices["cpu"]
    assert cached_row_bytes() == cpu.levels[-1][0] // cpu.processors // 2
    with use_device(replace(cpu, levels=((64 << 10, 2e11),))):
        assert cached_row_bytes() == 16 << 10
        assert current_device() is H200
    with use_device(T4), use_device(cpu):
        assert current_device() is T4  # devices of the other kind stay


def test_the_device_before_is_in_force_again_after_an_error() -> None:
    def broken() -> None:
        with use_device(T4):
            assert current_device() is T4
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert current_device() is H200
    none_of_them: list[Any] = ["T9", None, [], 3, {"name": "T4"}]
    for wrong in none_of_them:
        with pytest.raises(IdGraphError, match="no device"), use_device(wrong):
            pass
        with pytest.raises(IdGraphError, match="device"):
            ig.schedule.auto(ig.Fusion("f"), device=wrong if wrong is not None else "")


@card
def test_json_holds_every_number(d: Device) -> None:
    assert Device.from_json(d.to_json()) == d


@pytest.mark.parametrize("name", ["warp", "vector_bytes", "sector", "line", "banks", "bank_bytes"])
@pytest.mark.parametrize("value", [0, -32, 3, 48, 1.5, True, "32", 1 << 21])
def test_sizes_that_no_memory_has_are_refused(name: str, value: object) -> None:
    text = H200.to_json().replace(f'"{name}": {getattr(H200, name)}', f'"{name}": {json.dumps(value)}')
    with pytest.raises(IdGraphError, match=name):
        Device.from_json(text)


def test_powers_of_two() -> None:
    assert [floor_power_of_two(n) for n in (1, 2, 3, 127, 128, 132)] == [1, 2, 2, 64, 128, 128]
    assert {f.name for f in fields(Device)} >= {"clock", "line", "thread_registers", "static_shared"}
