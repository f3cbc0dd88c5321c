"""Grids: how many blocks a device counts along x, y and z, the shape of a grid for more blocks than x counts, and the
threads of a block.

Shared memory of one kernel: static up to what every device grants, else one dynamic piece that its arrays share.

Devices grant a block 48 KiB of static shared memory; more has to be asked for at the launch (99 KiB on compute 8.6 and
8.9, 163 KiB on 8.0, 227 KiB on 9.0 and 10.0), and arrays are then parts of one piece, at offsets of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from idgraph.arith import Expr, as_expr, ceildiv, interval, maximum
from idgraph.errors import ScheduleError
from idgraph.ir import item_size
from idgraph.ir.device import current_device
from idgraph.ir.target import ALIGNMENT, GPU
from idgraph.kernel.ir import Alloc, BlockReduce, Buffer, Stmt, walk

X, Y, Z = BLOCK_DIMS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
BLOCK_NUMBER: Final = (
    "i64(cuda.blockIdx.x) + i64(cuda.gridDim.x) * (i64(cuda.blockIdx.y) + i64(cuda.gridDim.y) * i64(cuda.blockIdx.z))"
)
"""The number of a block in a grid of three dimensions, x fastest, as a source says it."""


def most_blocks() -> int:
    """The number of blocks that x, y and z count together: over 2^62.

    >>> most_blocks() > 2**62
    True
    """
    return GPU.limits[X] * GPU.limits[Y] * GPU.limits[Z]


def beyond_x(launch: Mapping[str, Sequence[Expr]]) -> bool:
    """True of a launch that may have more blocks along x than a device counts there, and none along y and z: its blocks
    are then counted along all three. A number of blocks without an upper bound is left as it is.

    >>> beyond_x({"blockIdx.x": (as_expr(2**32),)}), beyond_x({"blockIdx.x": (as_expr(2**31 - 1),)})
    (True, False)
    >>> beyond_x({"blockIdx.x": (as_expr(2**32),), "blockIdx.y": (as_expr(2),)})
    False
    """
    most = [interval(e)[1] for e in launch.get(X, ())]
    return Y not in launch and Z not in launch and any(n is not None and n > GPU.limits[X] for n in most)


def grid_of(blocks: int) -> tuple[int, int, int]:
    """A grid of at least ``blocks`` blocks and fewer than y times z more: as few as possible along z, then along y.

    >>> grid_of(5), grid_of(2**31 - 1), grid_of(2**32), grid_of(2**50)
    ((5, 1, 1), (2147483647, 1, 1), (1431655766, 3, 1), (2147454977, 58255, 9))
    """
    y = -(-blocks // GPU.limits[X])
    z = max(1, -(-y // GPU.limits[Y]))
    y = max(1, -(-y // z))
    return max(1, -(-blocks // (y * z))), y, z


def grid_exprs(blocks: Expr) -> tuple[Expr, Expr, Expr]:
    """The same of a number of blocks that a call tells.

    >>> [str(e) for e in grid_exprs(as_expr(2**32))]
    ['1431655766', '3', '1']
    """
    one = as_expr(1)
    y = ceildiv(blocks, as_expr(GPU.limits[X]))
    z = maximum(one, ceildiv(y, as_expr(GPU.limits[Y])))
    y = maximum(one, ceildiv(y, z))
    return maximum(one, ceildiv(blocks, y * z)), y, z


def most_threads(launch: Mapping[str, Sequence[Expr]]) -> int:
    """The threads of a block, or the most that a block may have where their number is a symbol's.

    >>> most_threads({"threadIdx.x": (as_expr(64), as_expr(32)), "threadIdx.y": (as_expr(4),)})
    256
    """
    extents = [found for dim, found in launch.items() if dim.startswith("threadIdx")]
    if any(not n.is_const for e in extents for n in e):
        return current_device().block_threads
    return prod(max(1, *(int(n) for n in e)) for e in extents)


EXCHANGE = 8 * 1024  # bytes, at most, in which the threads of a block combine values of one type by one operation


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """``offsets`` in bytes of each array in the dynamic piece of ``dynamic`` bytes; none where all are static.
    ``total`` bytes are needed in all, those for exchanges between threads among them."""

    total: int
    dynamic: int
    offsets: dict[str, int]


def bytes_of(b: Buffer) -> int:
    """Bytes of a shared array, padded to the alignment of the next one."""
    return -(-max(1, int(b.size)) * item_size(b.dtype) // ALIGNMENT) * ALIGNMENT


def shared_arrays(body: Sequence[Stmt]) -> tuple[Buffer, ...]:
    """The shared arrays of a kernel, in the order of their places."""
    found = {s.buffer.name: s.buffer for s in walk(tuple(body)) if isinstance(s, Alloc) and s.buffer.place == "shared"}
    return tuple(found.values())


def shared_layout(body: Sequence[Stmt]) -> SharedLayout:
    """Where the shared arrays of a kernel lie."""
    offsets: dict[str, int] = {}
    at = 0
    for b in shared_arrays(body):
        offsets[b.name] = at
        at += bytes_of(b)
    exchanged = {(s.op, s.acc.dtype, s.before is None) for s in walk(tuple(body)) if isinstance(s, BlockReduce)}
    total = at + EXCHANGE * len(exchanged) if at else 0
    return SharedLayout(total, at, offsets) if total > current_device().static_shared else SharedLayout(total, 0, {})


def check_shared_total(body: Sequence[Stmt]) -> None:
    """Raise `ScheduleError` where the shared arrays of a kernel do not fit together."""
    arrays, total = shared_arrays(body), shared_layout(body).total
    most = current_device().shared
    if total > most:
        exchanges = total - sum(map(bytes_of, arrays))
        rest = [f"exchanges between its threads: {exchanges} bytes"] if exchanges else []
        raise ScheduleError(
            f"a kernel's shared arrays need {total} bytes of at most {most}",
            because=[*(f"{b.title}: {bytes_of(b)} bytes" for b in arrays), *rest],
            hint="split the loops into smaller tiles, or keep one of them elsewhere",
        )
