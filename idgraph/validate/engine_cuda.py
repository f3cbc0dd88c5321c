"""The address checks on a GPU: index maps by the point function of the CPU, kernels by kernels of their own IR."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np

from idgraph.ir.device import current_device
from idgraph.runtime.cuda.compiler import inlined, ptx_of
from idgraph.runtime.cuda.numba_cuda import load_cuda, need_device, simulated
from idgraph.validate.check_source import grid_source, point_source
from idgraph.validate.concrete_access import Case
from idgraph.validate.engines import arrays_of, check_points, load_source, scan_numba, scan_numpy
from idgraph.validate.fault import Scan
from idgraph.validate.kernel_check_cuda import VIEW_BYTES, DeviceSource
from idgraph.validate.kernel_check_source import OUT
from idgraph.validate.oracle.views import Array
from idgraph.validate.reference_tables import Tables

_PIECE: Final = 1 << 28  # points of one launch, so that progress shows


def _compile_grid(source: str) -> Any:
    """The grid function; its point function is inlined, since a device function would ask for a device."""
    module = load_source(source, "address_check_cuda")
    module.cuda = load_cuda()
    module.point = inlined(module.point)
    return module.grid


@lru_cache(maxsize=512)
def _compiled(source: str) -> Any:
    return need_device().jit(_compile_grid(source))


def _source(case: Case, tables: Tables) -> str:
    return "\n\n\n".join([point_source(case, tables), grid_source(case, tables)])


def address_check_ptx(case: Case, tables: Tables, cc: tuple[int, int] = (9, 0)) -> str:
    """PTX of one operation's check; needs the CUDA compiler libraries but no device."""
    given = (0, 0, np.zeros(2, np.int64), *arrays_of(case, tables))
    return ptx_of(_compile_grid(_source(case, tables)), given, cc)


def scan_cuda(case: Case, tables: Tables, advance: Callable[[int], None]) -> Scan:
    """Check every point on the device; a faulty point is checked again on the host to say what is wrong."""
    cuda = need_device()
    if not case.loops or case.points == 0 or any(0 in a.shape for a in tables.wanted):
        return scan_numpy(case, tables, advance)
    arrays = arrays_of(case, tables)
    if any(not a.flags.c_contiguous and a.nbytes > VIEW_BYTES for a in arrays):
        return scan_numba(case, tables, advance)
    run = _compiled(_source(case, tables))
    device = [cuda.to_device(np.ascontiguousarray(a)) for a in arrays]
    out = cuda.to_device(np.array([case.points, 0], np.int64))
    blocks, threads = (1, 4) if simulated() else (132 * 8, 256)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few threads are what small shapes need
        run[1, 1](np.int64(0), np.int64(0), out, *device)  # compiles, and looks at nothing
        cuda.synchronize()
        began = time.perf_counter()
        for lo in range(0, case.points, _PIECE):
            hi = min(case.points, lo + _PIECE)
            run[blocks, threads](np.int64(lo), np.int64(hi), out, *device)
            cuda.synchronize()
            advance((hi - lo) * (1 + len(case.reads)))
        seconds = time.perf_counter() - began
    bad, writes = (int(v) for v in out.copy_to_host())
    _fetch(tables.seen, device[0])
    if tables.terms is not None:
        _fetch(tables.terms, device[1])
    if bad == case.points:
        return Scan(writes, None, seconds=seconds)
    code, where = check_points(case, tables, np.asarray([bad], np.int64))
    return Scan(writes, bad, int(code[0]), int(where[0]), seconds)


@lru_cache(maxsize=512)
def _check(source: str) -> Any:
    """The kernel of `idgraph.validate.kernel_check_cuda`."""
    module = load_source(source, "kernel_check_cuda")
    module.cuda, module.np = load_cuda(), np
    return module.check


@lru_cache(maxsize=512)
def _compiled_check(source: str, threads: int) -> Any:
    """Compiled for blocks of as many threads: each gets the registers that there are for it, eight at a time."""
    cuda = need_device()
    gpu = current_device()
    most = min(gpu.thread_registers, gpu.registers // max(1, threads) // 8 * 8)
    registers = {} if simulated() else {"max_registers": most}
    return cuda.jit(_check(source), **registers)


def kernel_check_ptx(source: DeviceSource, text: str, cc: tuple[int, int] = (9, 0)) -> str:
    """PTX of the check of one operation in one kernel; needs the CUDA compiler libraries but no device."""
    return ptx_of(_check(text), (np.zeros(OUT, np.int64), *source.arrays.values()), cc)


def run_kernel_check(source: DeviceSource, text: str, out: Array) -> None:
    """Run it on the device; ``out`` and the marks in ``source.arrays`` are what it left."""
    cuda = need_device()
    marks = set(source.seen.values())
    given = {n: cuda.to_device(np.ascontiguousarray(a)) for n, a in source.arrays.items()}
    found = cuda.to_device(out)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few threads are what small shapes need
        _compiled_check(text, prod(source.block))[(source.blocks,), source.block](found, *given.values())
        cuda.synchronize()
    out[...] = found.copy_to_host()
    for name in marks:
        _fetch(source.arrays[name], given[name])


def _fetch(marks: Array, device: Any) -> None:
    """Marks made on the device."""
    marks[...] = device.copy_to_host().reshape(marks.shape)
