"""Loops of a reader beside those of what it reads: when one of one element widens."""

from __future__ import annotations

from idgraph.arith import is_true
from idgraph.graphs.broadcast_forwarding import sources
from idgraph.graphs.union_find import EquivalenceClasses
from idgraph.ir import Fixed, Fusion, IterDomain, Mapped, Resize, Tensor, TensorExpr


def scanned(e: TensorExpr) -> IterDomain:
    """The axis of its output along which a scan runs."""
    dim = e.attrs["dim"]
    assert isinstance(dim, int)
    return e.output.axes[dim % e.output.ndim]


def lacks(e: TensorExpr, k: int, loop: IterDomain) -> bool:
    """Whether none of the axes at which ``e`` reads operand ``k`` leads to a loop of its output."""
    read = (r.domain if isinstance(r, Mapped) else r.resolves if isinstance(r, Fixed) else None for r in e.reads[k])
    axes = [d for d in read if d is not None]
    return loop not in sources(axes, (*e.output.domain.exprs, *e.output.domain.loop_exprs))


def may_skip(t: Tensor) -> bool:
    """Whether loops of ``t`` may visit what its operands have not: some of its axes are padded."""
    resizes = (x for x in (*t.domain.exprs, *t.domain.loop_exprs) if isinstance(x, Resize))
    return not all(is_true(side <= 0) for x in resizes for side in (x.left, x.right))


def one_axis(fusion: Fusion) -> EquivalenceClasses[IterDomain]:
    """Axes that are one up to broadcasting: read at one coordinate, or resolved to each other."""
    found = EquivalenceClasses[IterDomain]()
    for e in fusion.exprs:
        for t, row in zip(e.inputs, e.reads, strict=True):
            for axis, read in zip(t.axes, row, strict=True):
                other = read.domain if isinstance(read, Mapped) else read.resolves if isinstance(read, Fixed) else None
                if other is not None:
                    found.union(axis, into=other)
    return found
