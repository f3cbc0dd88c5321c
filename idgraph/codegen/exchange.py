"""Exchange between the threads of a block: by shuffles where whole warps, or aligned parts of one, take part."""

from __future__ import annotations

from idgraph.ir.targets import GPU

WARP = GPU.warp


def by_shuffles(count: int, block: int) -> bool:
    """True where ``count`` threads in x, of ``block`` in all, are whole warps or an aligned part of one.

    >>> by_shuffles(512, 512), by_shuffles(8, 128), by_shuffles(8, 16), by_shuffles(96, 96), by_shuffles(24, 96)
    (True, True, False, True, False)
    """
    return block % WARP == 0 and (count % WARP == 0 or (count < WARP and count & (count - 1) == 0))
