"""Exchange between the threads of a block: by shuffles where whole warps, or aligned parts of one, take part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from idgraph.ir.targets import GPU

WARP = GPU.warp


def by_shuffles(count: int, block: int) -> bool:
    """True where ``count`` threads in x, of ``block`` in all, are whole warps or an aligned part of one.

    >>> by_shuffles(512, 512), by_shuffles(8, 128), by_shuffles(8, 16), by_shuffles(96, 96), by_shuffles(24, 96)
    (True, True, False, True, False)
    """
    return block % WARP == 0 and (count % WARP == 0 or (count < WARP and count & (count - 1) == 0))


def by_columns(dims: Sequence[str], sizes: Mapping[str, int]) -> bool:
    """True where threads in y exchange for each of a few in x, both powers of two, and the block is whole warps.

    >>> by_columns(("threadIdx.y",), {"threadIdx.x": 8, "threadIdx.y": 64, "threadIdx.z": 1})
    True
    >>> by_columns(("threadIdx.y",), {"threadIdx.x": 8, "threadIdx.y": 2, "threadIdx.z": 1})
    False
    """
    x, y = sizes["threadIdx.x"], sizes["threadIdx.y"]
    whole = x <= WARP and x & (x - 1) == 0 and y & (y - 1) == 0 and x * y % WARP == 0
    return tuple(dims) == ("threadIdx.y",) and sizes["threadIdx.z"] == 1 and whole
