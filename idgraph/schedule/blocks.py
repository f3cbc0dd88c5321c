"""Blocks, threads and vectors: what the automatic schedules share of them."""

from __future__ import annotations

from typing import Final

from idgraph.ir import Tensor
from idgraph.ir.targets import GPU

VECTOR_BYTES: Final = GPU.vector_bytes  # of one access
ADDED_TOGETHER: Final = ("float32",)  # types of which a device adds several elements of memory at once


def cut_blocks(t: Tensor, count: int, block: int, vectors: int = 1) -> None:
    """The first ``count`` loops of ``t`` as one, cut into blocks of ``block`` threads.

    A thread takes ``vectors`` points, a block apart, so that neighbouring threads stay neighbours in memory.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", (64, 32)) + 1.0)
    >>> cut_blocks(t, 2, 128, vectors=4)
    >>> [(str(d.extent), d.parallel) for d in t.loop]
    [('4', 'serial'), ('128', 'serial'), ('4', 'unroll')]
    """
    for _ in range(count - 1):
        t.merge(0)
    t.split(0, block * vectors)
    if vectors > 1:
        t.split(1, block).reorder({1: 2}).parallelize(2, "unroll")
