"""Checking accesses with NumPy, many loop points at a time. The compiled engines do the same, point by point.

The address check compiled for the CPU: one nest of loops for each operation, divided among threads.

The address checks on a GPU: index maps by the point function of the CPU, kernels by kernels of their own IR.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from math import prod
from types import ModuleType
from typing import Any, Final

import numpy as np

from idgraph.errors import EmitError
from idgraph.ir.device import current_device
from idgraph.loading import load
from idgraph.runtime.cuda.compiler import inlined, ptx_of
from idgraph.runtime.cuda.numba_cuda import load_cuda, need_device, simulated
from idgraph.validate.check_source import (
    PLACE,
    grid_source,
    index_names,
    memory_order,
    nest_source,
    point_source,
    split_loop,
)
from idgraph.validate.concrete_access import Case
from idgraph.validate.kernel_check_cuda import VIEW_BYTES, DeviceSource
from idgraph.validate.kernel_check_source import NOTE, OUT
from idgraph.validate.oracle.views import Array
from idgraph.validate.reference_tables import Tables
from idgraph.validate.report import Scan

CHUNK: Final = 1 << 18


Env = dict[str, Array | int]


class _Codes:
    """Fault codes of many points; the first fault of a point stands. What a check's source calls ``found``."""

    def __init__(self, size: int) -> None:
        self.every = np.ones(size, np.bool_)
        self.code = np.zeros(size, np.int32)
        self.where = np.zeros(size, np.int32)

    def fault(self, mask: Array, code: int, place: int) -> None:
        hit = mask & (self.code < 2)
        self.code[hit] = code
        self.where[hit] = place

    def writes(self, mask: Array) -> None:
        self.code[mask & (self.code < 2)] = 1

    def at(self, table: Array, *coordinates: Array) -> Array | int:
        """Elements of a table; coordinates outside are clipped (they are faults already)."""
        return table[_clipped(table, coordinates)] if table.size else -1

    def mark(self, mask: Array, table: Array, *coordinates: Array) -> None:
        if table.size:
            at = _clipped(table, coordinates)
            table[tuple(np.broadcast_to(c, mask.shape)[mask] for c in at)] = 1


def _clipped(table: Array, coordinates: Sequence[Array]) -> tuple[Array, ...]:
    inside = zip(coordinates or (np.zeros(1, np.int64),), table.shape, strict=True)
    return tuple(np.clip(c, 0, n - 1) for c, n in inside)


def loop_values(case: Case, flat: Array) -> Env:
    """Loop variables at points numbered row-major over the loops."""
    shape = tuple(n for _, n in case.loops)
    if not shape:
        return {}
    return dict(zip((name for name, _ in case.loops), np.unravel_index(flat, shape), strict=True))


@lru_cache(maxsize=512)
def _array_check(source: str) -> Callable[..., None]:
    module = load_source(source, "address_check")
    module.np = np
    return module.points


def check_points(case: Case, tables: Tables, flat: Array) -> tuple[Array, Array]:
    """(codes, access numbers) at loop points; marks what was written."""
    found = _Codes(flat.size)
    check = _array_check(point_source(case, tables, arrays=True))
    check(found, *loop_values(case, flat).values(), *arrays_of(case, tables))
    return found.code, found.where


def scan_numpy(case: Case, tables: Tables, advance: Callable[[int], None]) -> Scan:
    """Look at every point, a chunk at a time."""
    writes = 0
    for start in range(0, case.points, CHUNK):
        flat = np.arange(start, min(case.points, start + CHUNK), dtype=np.int64)
        code, where = check_points(case, tables, flat)
        wrong = np.flatnonzero(code >= 2)
        if wrong.size:
            first = int(wrong[0])
            return Scan(writes, start + first, int(code[first]), int(where[first]))
        writes += int(np.count_nonzero(code))
        advance(flat.size * (1 + len(case.reads)))
    return Scan(writes, None)


def load_source(source: str, name: str) -> Any:
    """A module of source text that we made."""
    module = ModuleType(name)
    exec(compile(source, f"<idgraph {name}>", "exec"), vars(module))  # noqa: S102  # no user text: names are our own
    return module


@lru_cache(maxsize=512)
def _compiled(source: str) -> Callable[..., int]:
    try:
        numba: Any = load("numba")
    except ImportError as error:
        raise EmitError("the compiled check needs numba", hint='pip install numba, or engine="numpy"') from error
    module = load_source(source, "address_check")
    module.point = numba.njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, no_cpython_wrapper=True)(
        module.point
    )
    return numba.njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True)(module.nest)


@cache
def _note() -> Callable[..., None]:
    """The function of all checks that writes a fault down; one, so that each of its types is compiled once."""
    return load("numba").njit(no_cfunc_wrapper=True, no_cpython_wrapper=True)(load_source(NOTE, "note").note)


@lru_cache(maxsize=512)
def compiled_check(source: str) -> Callable[..., None]:
    """The check of one operation in one kernel, compiled."""
    try:
        numba: Any = load("numba")
    except ImportError as error:
        raise EmitError("the compiled check needs numba", hint="pip install numba, or check a smaller size") from error
    module = load_source(source, "kernel_check")
    module.note = _note()
    return numba.njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True)(module.check)


def arrays_of(case: Case, tables: Tables) -> list[Array]:
    """The arrays behind `codegen.table_names`; arrays without axes get one."""
    none = np.zeros((1, 1), np.uint8)
    made = [tables.seen, tables.terms if tables.terms is not None else none]
    for want, free in zip(tables.wanted, tables.allowed, strict=True):
        made.append(want.transpose(memory_order(want)))
        if free is not None:
            made.append(free.transpose(memory_order(free)))
    made += [tables.values[n] for n in index_names(case)]
    return [a.reshape(1) if a.ndim == 0 else a for a in made]


def scan_numba(case: Case, tables: Tables, advance: Callable[[int], None]) -> Scan:
    """Look at every point, all cores, without the interpreter lock."""
    if not case.loops or case.points == 0 or any(0 in a.shape for a in tables.wanted):
        return scan_numpy(case, tables, advance)
    threads = os.cpu_count() or 1
    divided = split_loop(case, threads)
    run = _compiled("\n\n\n".join([point_source(case, tables), nest_source(case, tables, divided)]))
    arrays = arrays_of(case, tables)
    extent = case.loops[divided][1]
    pieces = min(extent, 4 * threads)
    bounds = [extent * k // pieces for k in range(pieces + 1)]
    outs = np.zeros((pieces, 1 + len(case.loops)), np.int64)
    run(0, 0, outs[0], *arrays)  # compiles, once, before the threads start
    per_piece = case.checks // pieces

    def part(k: int) -> int:
        writes = int(run(bounds[k], bounds[k + 1], outs[k], *arrays))
        advance(per_piece)
        return writes

    with ThreadPoolExecutor(threads) as pool:
        writes = sum(pool.map(part, range(pieces)))
    return _scan(case, writes, outs)


def _scan(case: Case, writes: int, outs: Array) -> Scan:
    """The first fault over all pieces, in the order of the loops."""
    wrong = outs[outs[:, 0] != 0]
    if not len(wrong):
        return Scan(writes, None)
    shape = tuple(n for _, n in case.loops)
    flats = [int(np.ravel_multi_index(tuple(row[1:]), shape)) for row in wrong]
    first = min(range(len(flats)), key=lambda k: flats[k])
    place, code = divmod(int(wrong[first][0]), PLACE)
    return Scan(writes, flats[first], code, place)


_PIECE: Final = 1 << 28  # points of one launch, so that progress shows


def _compile_grid(source: str) -> Any:
    """The grid function; its point function is inlined, since a device function would ask for a device."""
    module = load_source(source, "address_check_cuda")
    module.cuda = load_cuda()
    module.point = inlined(module.point)
    return module.grid


@lru_cache(maxsize=512)
def _compiled_for_gpu(source: str) -> Any:
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
    run = _compiled_for_gpu(_source(case, tables))
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
