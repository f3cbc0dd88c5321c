"""Shared memory of one kernel: static up to what every device grants, else one dynamic piece that its arrays share.

Devices grant a block 48 KiB of static shared memory; more has to be asked for at the launch (99 KiB on compute 8.6 and
8.9, 163 KiB on 8.0, 227 KiB on 9.0 and 10.0), and arrays are then parts of one piece, at offsets of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from idgraph.errors import ScheduleError
from idgraph.ir import item_size
from idgraph.ir.targets import GPU
from idgraph.kernel.ir import Alloc, BlockReduce, Buffer, Stmt, walk

STATIC_LIMIT, LIMIT = GPU.static_shared, GPU.shared_bytes
EXCHANGE = 8 * 1024  # bytes, at most, in which the threads of a block combine values of one type by one operation
ALIGNMENT = 16


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
    return SharedLayout(total, at, offsets) if total > STATIC_LIMIT else SharedLayout(total, 0, {})


def check_shared_total(body: Sequence[Stmt]) -> None:
    """Raise `ScheduleError` where the shared arrays of a kernel do not fit together."""
    arrays, total = shared_arrays(body), shared_layout(body).total
    if total > LIMIT:
        exchanges = total - sum(map(bytes_of, arrays))
        rest = [f"exchanges between its threads: {exchanges} bytes"] if exchanges else []
        raise ScheduleError(
            f"a kernel's shared arrays need {total} bytes of at most {LIMIT}",
            because=[*(f"{b.title}: {bytes_of(b)} bytes" for b in arrays), *rest],
            hint="split the loops into smaller tiles, or keep one of them elsewhere",
        )
