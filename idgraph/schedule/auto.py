"""An automatic schedule: every loop nest flattened over its kept axes, cut into blocks and threads, inlined within.

Each output (and each tensor that must be stored, because it is reduced or gathered from) is a reference: its kept axes
become one axis, split by the block size onto blockIdx.x and threadIdx.x; what feeds it alone follows and is inlined.
"""

from __future__ import annotations

from idgraph.ir import Fusion, Loaded, Tensor
from idgraph.ir.loops import reset
from idgraph.schedule.inline import inline_most
from idgraph.schedule.replay import like_consumer

BLOCK = 256


def auto(fusion: Fusion, *, block: int = BLOCK) -> None:
    """Schedule a whole fusion for ``block`` threads a block; earlier schedules are dropped.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("a", shape=(64, 32)) * 2.0 + 1.0)
    >>> ig.schedule.auto(f)
    >>> [(str(d.extent), d.parallel) for d in t.loop]
    [('8', 'blockIdx.x'), ('256', 'threadIdx.x')]
    """
    for t in fusion.tensors:
        if t.definition is not None:
            reset(t)
    stored = _stored(fusion)
    done: set[Tensor] = set()
    for e in reversed(fusion.exprs):
        t = e.output
        if t in stored:
            _reference(t, block)
            done.add(t)
        for k, p in enumerate(e.inputs):
            if p.definition is not None and p not in stored and p not in done and e.output in done:
                like_consumer(p, e, k)
                done.add(p)
    inline_most(fusion, [t for t in fusion.tensors if t not in stored])


def _stored(fusion: Fusion) -> set[Tensor]:
    """Tensors that get a nest of their own: outputs, reductions, what is gathered from, what has several readers
    that do not read it alike."""
    kept: set[Tensor] = set(fusion.outputs)
    for e in fusion.exprs:
        if e.is_reduction:
            kept.add(e.output)
        for t, row in zip(e.inputs, e.reads, strict=True):
            if any(isinstance(r, Loaded) for r in row) and t.definition is not None:
                kept.add(t)
    # A tensor that nothing reads is still computed where it is named as an output only; others are dead but legal.
    kept |= {e.output for e in fusion.exprs if not e.output.uses}
    return kept


def _reference(t: Tensor, block: int) -> None:
    """Kept axes flattened and cut into blocks and threads; reduced axes inside them, axes of one element last."""

    def rank(p: int) -> int:
        d = t.loop[p]
        return 2 if d.is_broadcast else 1 if d.kind == "reduction" else 0

    order = sorted(range(len(t.loop)), key=rank)
    kept = sum(rank(p) == 0 for p in order)
    if order != sorted(order):
        t.reorder(order)
    if not kept:
        return
    for _ in range(kept - 1):
        t.merge(0)
    t.split(0, block)
    t.parallelize(0, "blockIdx.x")
    t.parallelize(1, "threadIdx.x")
