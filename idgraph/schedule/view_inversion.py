"""The axes that an operation reads, made of its result's loops: a merge undone by a split, a split by a merge.

Where a reshape stands between a tensor and its reader, the reader's own axes are those behind the reshape. Loops of the
tensor can be repeated on the reader once the axes before the reshape are among its loops.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from idgraph.arith import is_true
from idgraph.graphs.coordinate_rules import is_product
from idgraph.ir import DomainExpr, IterDomain, Merge, Roll, Split, Tensor
from idgraph.ir import loop_transforms as loop_steps


@dataclass(frozen=True, slots=True)
class LoopStop:
    """A tensor some of whose loops are not the reference's, as `idgraph.schedule.like` left it.

    ``axes`` are positions of the tensor's own axes, in order, whose loops are its own; ``why`` says where the way to
    them ends.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.exp(f.input("x", shape=(8,)))
    >>> y = f.output(t[2:])
    >>> t.split(0, 4).fusion is f
    True
    >>> (stop,) = ig.schedule.like(f, t)
    >>> stop.tensor is y, stop.axes
    (True, (0,))
    """

    tensor: Tensor
    axes: tuple[int, ...]
    why: str

    def __str__(self) -> str:
        at = f"axis {', '.join(map(str, self.axes))} of {self.tensor.name}" if self.axes else self.tensor.name
        return f"{at} keeps loops of its own: {self.why}"


def rebuild_axes(
    t: Tensor, wanted: Set[IterDomain]
) -> tuple[dict[IterDomain, IterDomain], dict[IterDomain, DomainExpr]]:
    """Undo what the operation of ``t`` does to the axes that it reads, on loops that are the tensor's own axes.

    Returns, for each wanted axis, the loop that runs over it now; and for those that no loop can run over, the
    expression that cannot be undone.
    """
    made: dict[IterDomain, IterDomain] = {d: d for d in t.logical}
    needed, stops = set(wanted), dict[IterDomain, DomainExpr]()
    for x in t.domain.exprs:
        if not needed.isdisjoint(x.inputs):
            needed.update(x.outputs)
    for x in reversed(t.domain.exprs):
        if needed.isdisjoint(x.inputs) or all(d in made for d in x.inputs):
            continue
        loops = [made.get(d) for d in x.outputs]
        here = [t.loop.index(d) for d in loops if d is not None and d in t.loop]
        if len(here) == len(x.outputs) and _undo(t, x, here):
            made.update(zip(x.inputs, t.domain.loop_exprs[-1].outputs, strict=True))
            continue
        stop = next((stops[d] for d in x.outputs if d in stops), x)
        stops.update(dict.fromkeys(x.inputs, stop))
    return {d: made[d] for d in wanted if d in made}, {d: x for d, x in stops.items() if d in wanted and d not in made}


def _undo(t: Tensor, x: DomainExpr, at: list[int]) -> bool:
    """Undo ``x`` on the loops at ``at``, which run over what it makes; False where that is not possible."""
    match x:
        case Merge() if is_true(x.inner.extent >= 1):
            loop_steps.split_parts(t, at[0], x.outer.extent, x.inner.extent)
        case Split() if is_product(x.outer.extent, x.inner.extent, x.source.extent):
            loop_steps.merge(t, at[0], at[1])
        case Roll():
            loop_steps.roll(t, at[0], -x.shift)
        case _:
            return False
    return True
