"""The address check compiled for the CPU: one nest of loops for each operation, divided among threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from idgraph.errors import EmitError
from idgraph.loading import LOADING, load
from idgraph.validate.answers import Scan
from idgraph.validate.codegen import PLACE, index_names, memory_order, nest_source, point_source, split_loop
from idgraph.validate.concrete_access import Case
from idgraph.validate.kernel_source import NOTE
from idgraph.validate.lookup_tables import Tables
from idgraph.validate.oracle.moves import Array


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
        raise EmitError(
            "the compiled check needs numba", hint='pip install "idgraph[cpu]", or engine="numpy"'
        ) from error
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
        raise EmitError(
            "the compiled check needs numba", hint='pip install "idgraph[cpu]", or check a smaller size'
        ) from error
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
        with LOADING:
            from idgraph.validate.engine_numpy import scan_numpy  # noqa: PLC0415

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
