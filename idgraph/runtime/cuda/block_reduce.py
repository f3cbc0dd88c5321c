"""Block-wide reductions and scans over the values that the threads hold.

``tree_OP_TYPE(x, index, group, count)`` combines values of any number of threads along any dimensions, in shared
memory only, which the simulator can do too. ``block_OP_TYPE(x, count, again)`` does it along threadIdx.x, and
``columns_OP_TYPE(x, held, wide, count)`` along threadIdx.y, for threads that reduce rows side by side; with shuffles
they are those of `idgraph.runtime.cuda.intrinsics_shuffle`. Each gives every thread the same value, bit by bit: the
order of the operands is fixed by the thread numbers. ``scan_OP_TYPE`` and ``scan_tree_OP_TYPE`` give the exclusive
scan and the total.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import numpy as np

OPS = ("sum", "prod", "amax", "amin", "logsum", "near_logsum")
KINDS: Mapping[str, Any] = {"f32": np.float32, "f64": np.float64, "int": np.int64}
# Globals that `exchanges` gives each copy of the functions below.
cuda: Any = None
combine: Any = None
dtype: Any = None
everyone: Any = None


def exchanges(device: Any, jit: Callable[[Any], Any], pairs: Mapping[str, Any], shuffles: bool) -> dict[str, Any]:
    """The functions by name; ``pairs`` has a device function of two values for each of `OPS`."""
    made: dict[str, Any] = {}
    for op in OPS:
        for kind, held in KINDS.items():
            names = {"np": np, "cuda": device, "combine": pairs[op], "dtype": held, "everyone": np.uint32(0xFFFFFFFF)}
            made[f"tree_{op}_{kind}"] = names["tree"] = jit(_with(tree, names, len(made)))
            if not shuffles:
                made[f"block_{op}_{kind}"] = jit(_with(along_x, names, len(made)))
                made[f"columns_{op}_{kind}"] = jit(_with(along_y, names, len(made)))
            made[f"scan_tree_{op}_{kind}"] = names["scan_tree"] = jit(_with(scan_tree, names, len(made)))
            made[f"scan_columns_{op}_{kind}"] = jit(_with(scan_columns if shuffles else scan_along_y, names, len(made)))
            made[f"scan_{op}_{kind}"] = jit(_with(scan if shuffles else scan_along_x, names, len(made)))
    return made


def _with(f: Any, names: Mapping[str, Any], number: int) -> FunctionType:
    """``f`` with global names of its own, on lines of its own: the simulator tells shared arrays apart by line."""
    code = f.__code__
    return FunctionType(code.replace(co_firstlineno=code.co_firstlineno + 1000 * number), dict(names), f.__name__)


def tree(x: Any, index: Any, group: Any, count: Any) -> Any:
    """One value of ``count`` threads, halved in shared memory; ``group`` numbers those that combine with each other."""
    held = cuda.shared.array(1024, dtype)
    at = group * count + index
    cuda.syncthreads()  # threads may still read from an earlier exchange
    held[at] = x
    left: Any = count
    while left > 1:
        half = (left + 1) // 2
        cuda.syncthreads()
        if index < left - half:
            held[at] = combine(held[at], held[at + half])
        left = half
    cuda.syncthreads()
    return held[group * count]


def along_x(x: Any, count: Any, again: Any) -> Any:
    """`tree` along threadIdx.x, with the arguments of the exchange by shuffles."""
    return tree(x, cuda.threadIdx.x, cuda.threadIdx.y + cuda.blockDim.y * cuda.threadIdx.z, count)


def along_y(x: Any, held: Any, wide: Any, count: Any) -> Any:
    """`tree` along threadIdx.y, with the arguments of the exchange by shuffles."""
    return tree(x, cuda.threadIdx.y, cuda.threadIdx.x, count)


def scan_tree(x: Any, first: Any, index: Any, group: Any, count: Any) -> Any:
    """(exclusive scan, total) in shared memory; ``first`` is the identity, which the first thread gets."""
    held = cuda.shared.array(1024, dtype)
    at = group * count + index
    cuda.syncthreads()  # threads may still read from an earlier exchange
    held[at] = x
    step: Any = 1
    while step < count:
        cuda.syncthreads()
        other = first
        if index >= step:
            other = held[at - step]
        cuda.syncthreads()
        if index >= step:
            held[at] = combine(other, held[at])
        step = step * 2
    cuda.syncthreads()
    before = first
    if index > 0:
        before = held[at - 1]
    return before, held[group * count + count - 1]


def scan_along_x(x: Any, first: Any, count: Any) -> Any:
    """`scan_tree` along threadIdx.x."""
    return scan_tree(x, first, cuda.threadIdx.x, cuda.threadIdx.y + cuda.blockDim.y * cuda.threadIdx.z, count)


def scan(x: Any, first: Any, count: Any) -> Any:
    """`scan_tree` along threadIdx.x: within warps by shuffles, then over the warps' values."""
    width = min(count, 32)
    lane = np.uint32(np.uint32(cuda.threadIdx.x) & np.uint32(width - 1))
    step = 1
    while step < width:
        other = cuda.shfl_up_sync(everyone, x, step)
        if lane >= np.uint32(step):
            x = combine(other, x)
        step = step * 2
    before = cuda.shfl_up_sync(everyone, x, 1)
    if lane == np.uint32(0):
        before = first
    if count <= 32:
        return before, cuda.shfl_sync(everyone, x, np.uint32(cuda.laneid) | np.uint32(width - 1))
    held = cuda.shared.array(32, dtype)
    warps = count // 32
    warp = np.uint32(np.uint32(cuda.threadIdx.x) >> np.uint32(5))
    row = np.uint32(np.uint32(cuda.threadIdx.y + cuda.blockDim.y * cuda.threadIdx.z) * np.uint32(warps))
    cuda.syncthreads()
    if lane == np.uint32(31):
        held[np.uint32(row + warp)] = x
    cuda.syncthreads()
    total = first
    mine = first
    for n in range(warps):
        if np.uint32(n) == warp:
            mine = total
        total = combine(total, held[np.uint32(row + np.uint32(n))])
    return combine(mine, before), total


def scan_along_y(x: Any, first: Any, count: Any) -> Any:
    """`scan_tree` along threadIdx.y, for 32 threads along threadIdx.x."""
    return scan_tree(x, first, cuda.threadIdx.y, cuda.threadIdx.x, count)


def scan_columns(x: Any, first: Any, count: Any) -> Any:
    """`scan_tree` along threadIdx.y, for 32 threads along threadIdx.x: a tile, transposed in shared memory."""
    held = cuda.shared.array(1056, dtype)  # 32 rows of 33
    whole = cuda.shared.array(32, dtype)
    lane, row = np.uint32(cuda.threadIdx.x), np.uint32(cuda.threadIdx.y)
    own = np.uint32(np.uint32(row * np.uint32(33)) + lane)
    cuda.syncthreads()
    held[own] = x
    cuda.syncthreads()
    for n in range(32 // count):  # a warp takes so many of the columns
        column = np.uint32(np.uint32(row * np.uint32(32 // count)) + np.uint32(n))
        at = np.uint32(np.uint32(lane * np.uint32(33)) + column)
        y = first
        if lane < np.uint32(count):
            y = held[at]
        step = 1
        while step < count:
            other = cuda.shfl_up_sync(everyone, y, step)
            if lane >= np.uint32(step):
                y = combine(other, y)
            step = step * 2
        before = cuda.shfl_up_sync(everyone, y, 1)
        if lane == np.uint32(0):
            before = first
        if lane < np.uint32(count):
            held[at] = before
        if lane == np.uint32(count - 1):
            whole[column] = y
    cuda.syncthreads()
    return held[own], whole[lane]
