"""Kernels of a stream that overlap at their ends: each waits for memory before it touches any, and is launched so."""

from __future__ import annotations

import itertools
import re
from types import SimpleNamespace
from typing import Any

import pytest

from idgraph.runtime import compile_ptx, emit
from idgraph.runtime.cuda.driver import DeviceKernel
from tests.emit.cases import CASES
from tests.emit.shared_cases import SHARED

WAITS = "griddepcontrol.wait"
MEMORY = re.compile(r"\b(ld|st|atom|red)\.(global|shared|volatile|relaxed|generic|f\d|u\d|s\d|b\d|v\d)|\bbar\.")


def waits_first(ptx: str) -> bool:
    """Nothing but arguments is read, and nothing is written, before the wait."""
    body = ptx[ptx.index("{", ptx.index(".entry")) :]
    before, found, _ = body.partition(WAITS)
    return bool(found) and MEMORY.search(before) is None


def test_every_kernel_begins_by_waiting() -> None:
    for make in [*CASES.values()][::20]:  # one function prints the head of all
        case = make()
        program = emit(case.fusion, "cuda")
        for kernel, checked in itertools.product(program.kernels, (False, True)):
            lines = [line.strip() for line in program.kernel_source(kernel, checked).splitlines()]
            statements = [line for line in lines if line and not line.startswith("#")]
            assert statements[1] == "in_stream_order()"


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["gather", "scatter_add_on_threads", "cross_entropy_rows", "vectors_both_ways"])
@pytest.mark.parametrize("checked", [False, True])
def test_nothing_in_ptx_comes_before_the_wait(name: str, checked: bool) -> None:
    pytest.importorskip("numba_cuda")
    case = CASES[name]()
    program = emit(case.fusion, "cuda")
    assert all(waits_first(ptx) for ptx in compile_ptx(program, checked=checked))


def test_kernels_with_shared_memory_wait_first_too() -> None:
    pytest.importorskip("numba_cuda")
    for name in ("tile_xor", "two_wide_tiles", "matmul_through_tiles"):
        assert all(waits_first(ptx) for ptx in compile_ptx(emit(SHARED[name](), "cuda")))


def test_older_devices_have_no_such_launch() -> None:
    pytest.importorskip("numba_cuda")
    assert all("griddepcontrol" not in ptx for ptx in compile_ptx(emit(SHARED["tile_xor"](), "cuda"), cc=(8, 0)))


class Driver:
    """A CUDA driver that records launches; its structures hold whatever is set."""

    CUlaunchAttribute = CUlaunchAttributeValue = CUlaunchConfig = SimpleNamespace
    CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION="overlap")

    def __init__(self) -> None:
        self.plain: list[Any] = []
        self.early: list[Any] = []

    def CUstream(self, number: int) -> int:
        return number

    def cuLaunchKernel(self, *asked: Any) -> tuple[int]:
        self.plain.append(asked[:9])
        return (0,)

    def cuLaunchKernelEx(self, config: Any, function: Any, address: int, extra: int) -> tuple[int]:
        self.early.append((function, config))
        return (0,)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
def test_only_kernels_that_wait_are_launched_early(waits: bool, overlap: bool) -> None:
    kernel, driver = DeviceKernel.__new__(DeviceKernel), Driver()
    vars(kernel).update(_driver=driver, _function="f", _waits=waits)
    kernel.bound((5, 2), (32,), [7], overlap=overlap)()
    if not (waits and overlap):
        assert (driver.plain, driver.early) == ([("f", 5, 2, 1, 32, 1, 1, 0, 0)], [])
        return
    ((function, config),) = driver.early
    assert (function, driver.plain) == ("f", [])
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (5, 2, 1)
    assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (32, 1, 1)
    assert (config.sharedMemBytes, config.hStream, config.numAttrs) == (0, 0, 1)
    assert config.attrs[0].id == "overlap" and config.attrs[0].value.programmaticStreamSerializationAllowed == 1
