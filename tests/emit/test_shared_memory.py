"""Shared memory: slots agree, barriers stand where threads exchange values and each is needed, races are refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.kernel.ir import (
    Alloc,
    Barrier,
    BoundsCheck,
    If,
    Kernel,
    KernelModule,
    Loop,
    SharedLayout,
    SingleThread,
    Stmt,
    VectorLoad,
    VectorStore,
    shared_layout,
    walk,
)
from idgraph.runtime import Program, compile_ptx, emit
from idgraph.runtime.cuda.driver import DeviceKernel
from idgraph.validate import random_inputs
from tests.emit.cuda_interpreter import Fault, interpret
from tests.emit.shared_cases import SHARED, on, tile
from tests.emit.thread_oracle import faults, kernel_faults

# Barriers that a block meets.
BARRIERS = {
    "tile_in_a_loop": 2 * 5, "two_tiles_in_a_loop": 2 * 5, "row_sum_for_all_threads": 1, "partial_sums": 1,
    "matmul_through_tiles": 2 * 2, "tile_other_threads": 1, "past_a_thread_axis": 1, "through_global_memory": 1,
    "no_exchange": 0, "two_wide_tiles": 2, "shared_output": 1, "local_tile": 0,
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_no_thread_races(name: str) -> None:
    plan = emit(SHARED[name](), "cuda").plan
    (kernel,) = plan.kernels
    found, met = kernel_faults(kernel)
    assert found == []
    assert met == BARRIERS.get(name, 1)


def without(body: tuple[Stmt, ...], number: int, seen: list[Barrier]) -> Iterator[Stmt]:
    """``body`` without its barrier of that number."""
    for s in body:
        if isinstance(s, Barrier):
            seen.append(s)
            if len(seen) - 1 != number:
                yield s
        elif isinstance(s, (Loop, If, SingleThread, BoundsCheck)):
            yield replace(s, body=tuple(without(s.body, number, seen)))
        else:
            yield s


def changed(plan: KernelModule, change: Callable[[Kernel], tuple[Stmt, ...]]) -> KernelModule:
    return replace(plan, kernels=tuple(replace(k, body=change(k)) for k in plan.kernels))


@pytest.mark.parametrize("name", SHARED)
def test_every_barrier_is_needed(name: str) -> None:
    plan = emit(SHARED[name](), "cuda").plan
    count = sum(isinstance(s, Barrier) for k in plan.kernels for s in walk(k.body))
    for number in range(count):
        less = changed(plan, lambda k, number=number: tuple(without(k.body, number, [])))
        assert faults(less), f"barrier {number} of {name} could go unnoticed"


def test_a_barrier_inside_a_condition_is_found() -> None:
    """The fault that a barrier in divergent control flow would be, planted."""
    plan = emit(SHARED["row_sum_for_all_threads"](), "cuda").plan

    def nested(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        made: list[Stmt] = []
        for s in body:
            if isinstance(s, Barrier):
                made.append(SingleThread(("threadIdx.x",), (s,)))
            elif isinstance(s, (Loop, If, SingleThread)):
                made.append(replace(s, body=nested(s.body)))
            else:
                made.append(s)
        return tuple(made)

    assert any("different barriers" in f for f in faults(changed(plan, lambda k: nested(k.body))))


def sizes(f: ig.Fusion) -> dict[str, str]:
    kernels = emit(f, "cuda").plan.kernels
    arrays = [s.buffer for k in kernels for s in walk(k.body) if isinstance(s, Alloc)]
    return {b.title: f"{b.place} {b.size}" for b in arrays}


def test_sizes_follow_memory_and_inlining() -> None:
    """Axes left of the position need no room, nor blocks in shared memory, nor blocks and threads in local memory."""
    assert sizes(SHARED["tile_plain"]()) == {"t1": "shared 16"}
    assert sizes(SHARED["tile_pad"]()) == {"t1": "shared 20"}
    assert sizes(SHARED["past_a_thread_axis"]()) == {"a": "shared 12"}
    assert sizes(SHARED["no_exchange"]()) == {"a": "shared 12"}
    assert sizes(SHARED["row_sum_for_all_threads"]()) == {"s": "shared 1"}
    assert sizes(SHARED["local_tile"]()) == {"a": "private 16"}
    assert sizes(SHARED["matmul_through_tiles"]()) == {"ta": "shared 12", "tb": "shared 12"}  # 2 * 2 promoted * 3


def test_the_source_reads_like_the_tile() -> None:
    source = emit(tile(), "cuda").source
    lines = [line.strip() for line in source.splitlines()]
    assert "tile1 = cuda.shared.array(16, np.float32, shared_alignment)" in lines
    assert 'cuda.syncthreads()  # "t1" is complete' in lines
    assert '# barrier: "t1" is complete' in emit(tile(), "python").source


def test_the_barrier_is_outside_of_the_test_for_threads() -> None:
    source = emit(SHARED["tile_other_threads"](), "cuda").source
    lines = source.splitlines()
    (at,) = [n for n, line in enumerate(lines) if "syncthreads" in line]
    assert lines[at].startswith("    cuda.")
    assert any(line.lstrip().startswith("if i1 < ") for line in lines[at:])


def test_vectors_from_and_to_shared_memory() -> None:
    (kernel,) = emit(SHARED["vectors_both_ways"](), "cuda").plan.kernels
    found = [(type(s).__name__, s.buffer.place) for s in walk(kernel.body) if isinstance(s, (VectorLoad, VectorStore))]
    assert found == [
        ("VectorLoad", "input"),
        ("VectorStore", "shared"),
        ("VectorLoad", "shared"),
        ("VectorStore", "output"),
    ]


# what is refused ------------------------------------------------------------------------------------------------------


def rows(memory: str, way: str = "threadIdx.x", at: int = 1, n: int = 8) -> ig.Fusion:
    f = ig.Fusion("rows")
    a = ig.exp(f.input("x", (4, n)), name="a")
    b = f.output(ig.flip(a, 1, name="b"))
    on(a, "", way)
    on(b, "", way)
    a.inline(at).set_memory(memory)
    return f


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (rows("shared", "blockIdx.x"), ("a would race", "other blocks", "blockIdx.x", "do not inline a")),
        (rows("global", "blockIdx.x"), ("a would race", "other blocks", "blockIdx.x", "new launch")),
        (rows("local"), ("a would race", "other threads", 'a.set_memory("shared")')),
        (rows("auto"), ("a would race", "other threads", 'a.set_memory("shared")')),
        (rows("local", at=0), ("local memory", "another kernel", "inline a")),
        (rows("shared", "", n=58113), ("a needs 58113 elements of shared memory", "232448 bytes", "smaller tiles")),
    ],
)
def test_refused_with_both_accesses(f: ig.Fusion, words: tuple[str, ...]) -> None:
    with pytest.raises(ig.ScheduleError) as found:
        emit(f, "cuda")
    for word in words:
        assert word in str(found.value)
    if "race" in words[0] or "kernel" in words[1]:
        text = str(found.value)
        assert "exp(" in text
        assert "flip(" in text
        assert "test_shared_memory.py" in text


def test_two_nests_of_one_block_share_an_array() -> None:
    """Threads of one block, without a common loop: the second nest reads what the first wrote, behind a barrier."""
    f = rows("shared", at=0)
    program, inputs = emit(f, "cuda"), random_inputs(f, 0)
    assert len(program.kernels) == 1 and "syncthreads" in program.source
    for seed in range(3):
        np.testing.assert_allclose(interpret(program, inputs, seed)["b"], np.exp(inputs["x"])[:, ::-1], rtol=1e-6)
    race = [x for x in range(9) if fails(program, inputs, x)]
    assert race, "without its barrier some order of the threads reads what nobody has written"


def fails(program: Program, inputs: dict[str, Any], seed: int) -> bool:
    try:
        interpret(program, inputs, seed, lambda source: source.replace("cuda.syncthreads()", "pass"))
    except Fault:
        return True
    return False


def test_arrays_that_fit_alone_but_not_together() -> None:
    f = ig.Fusion("together")
    x = f.input("x", (2, 30000))
    a = ig.exp(x, name="a")
    b = ig.flip(a, 1, name="b")
    c = f.output(ig.flip(b, 1, name="c"))
    for t in (a, b, c):
        t.split(1, 100)
        on(t, "blockIdx.x", "", "threadIdx.x")
    for t in (a, b):
        t.inline(1).set_memory("shared")
    with pytest.raises(ig.ScheduleError, match="240000 bytes of at most 232448") as found:
        emit(f, "cuda")
    assert "a: 120000 bytes" in str(found.value)


def test_more_than_48_kib_is_one_dynamic_piece() -> None:
    """Each array has its own part, at a multiple of 16 bytes; less stays static."""
    program = emit(SHARED["two_wide_tiles"](), "cuda")
    (kernel,) = program.plan.kernels
    layout = shared_layout(kernel.body)
    assert layout == SharedLayout(24080 + 40208, 24080 + 40208, {"tile1": 0, "tile3": 24080})
    assert "tile1 = cuda.shared.array(0, dynamic_float32, shared_alignment)[0 : 6020]" in program.source
    assert "tile3 = cuda.shared.array(0, dynamic_float64, shared_alignment)[3010 : 8035]" in program.source
    (small,) = emit(SHARED["tile_plain"](), "cuda").plan.kernels
    assert shared_layout(small.body) == SharedLayout(64, 0, {})


class Driver:
    """A CUDA driver with ``most`` bytes of shared memory for a block; notes what it is asked."""

    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic")
    CUdevice_attribute = SimpleNamespace(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN="most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.asked: list[tuple[Any, ...]] = []

    def cuCtxGetDevice(self) -> tuple[int, int]:
        return 0, 3

    def cuDeviceGetAttribute(self, what: str, device: int) -> tuple[int, int]:
        assert (what, device) == ("most", 3)
        return 0, self.most

    def cuFuncSetAttribute(self, *asked: Any) -> tuple[int]:
        self.asked.append(asked)
        return (0,)

    def cuLaunchKernel(self, *asked: Any) -> tuple[int]:
        self.asked.append((*asked[:9], asked[10]))
        return (0,)


def test_the_launch_asks_for_the_dynamic_piece() -> None:
    def started(most: int, shared: int) -> list[tuple[Any, ...]]:
        kernel, driver = DeviceKernel.__new__(DeviceKernel), Driver(most)
        vars(kernel).update(_driver=driver, _function="f", _waits=False)
        kernel.bound((2,), (32,), [7], shared)()
        return driver.asked

    assert started(99 * 1024, 0) == [("f", 2, 1, 1, 32, 1, 1, 0, 0, 0)]
    assert started(99 * 1024, 65536) == [("f", "dynamic", 65536), ("f", 2, 1, 1, 32, 1, 1, 65536, 0, 0)]
    with pytest.raises(ig.EmitError, match="needs 101377 bytes of shared memory, this device grants a block 101376"):
        started(99 * 1024, 99 * 1024 + 1)


def test_a_symbolic_tile_is_refused_on_threads_only() -> None:
    f = ig.Fusion("symbolic")
    n = f.symbol("n", min=1)
    a = ig.exp(f.input("x", (4, n)), name="a")
    b = f.output(ig.flip(a, 1, name="b"))
    a.inline(1).set_memory("shared")
    on(a, "blockIdx.x")
    on(b, "blockIdx.x")
    with pytest.raises(ig.ScheduleError, match="needs n elements of shared memory"):
        emit(f, "cuda")
    assert ig.validate(f, target="numpy", symbols={"n": 5}).ok


# PTX ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tile_xor", "tile_bfloat16", "two_tiles_in_a_loop", "tile_other_threads"])
def test_ptx_has_shared_accesses_and_barriers(name: str) -> None:
    pytest.importorskip("numba_cuda")
    program = emit(SHARED[name](), "cuda")
    (ptx,) = compile_ptx(program)
    count = sum(isinstance(s, Barrier) for k in program.plan.kernels for s in walk(k.body))
    assert ptx.count("bar.sync") == count or "loop" in name  # a loop of five steps may be unrolled
    assert "bar.sync" in ptx
    assert "st.shared" in ptx
    assert "ld.shared" in ptx
    assert ".local" not in ptx


def test_dynamic_shared_memory_in_ptx() -> None:
    pytest.importorskip("numba_cuda")
    (ptx,) = compile_ptx(emit(SHARED["two_wide_tiles"](), "cuda"))
    declared = re.findall(r"^(.*)\.shared \.align (\d+) (.*);", ptx, re.MULTILINE)
    assert {(how.strip(), align) for how, align, _ in declared} == {(".extern", "16")}  # all begin at one address
    assert re.search(r"st\.shared\.f32", ptx)
    assert re.search(r"ld\.shared\.f64", ptx)
    assert ".local" not in ptx
