"""Loops of scatters: every entry of the index on a thread where writers may come in any order, else serially."""

from __future__ import annotations

from idgraph.ir import Tensor, TensorExpr, adds, entry_axes


def schedule_scatter(e: TensorExpr, block: int) -> None:
    """Blocks and threads over what ``e`` writes; where the last writer wins, the index's entries run in their order.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(64, 9)), f.input("i", shape=(64, 3), dtype="int64")
    >>> t = ig.scatter(x, 1, i, 1.0)
    >>> schedule_scatter(t.definition, 16)
    >>> [(str(d.extent), d.parallel) for d in t.loop]
    [('4', 'blockIdx.x'), ('16', 'threadIdx.x'), ('3', 'serial')]
    """
    t = e.output
    last = () if adds(e) else entry_axes(e)

    def rank(p: int) -> int:
        d = t.loop[p]
        return 2 if d.is_broadcast else int(d in last)

    order = sorted(range(len(t.loop)), key=rank)
    free = sum(rank(p) == 0 for p in order)
    if order != sorted(order):
        t.reorder(order)
    if free:
        _flat(t, free, block)


def _flat(t: Tensor, count: int, block: int) -> None:
    """The first ``count`` loops as blocks and threads."""
    for _ in range(count - 1):
        t.merge(0)
    t.split(0, block)
    t.parallelize(0, "blockIdx.x")
    t.parallelize(1, "threadIdx.x")
