"""Arrays of inlined tensors: which of their axes need room at one point of the loops they share, and in what order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from idgraph.arith import Expr, as_expr, simplify
from idgraph.errors import IndexingError, ScheduleError
from idgraph.graphs.loop_classes import descendants
from idgraph.ir import IterDomain, Tensor
from idgraph.ir.loop_steps import reachable


class TileLoop(Protocol):
    """The facts that an array needs of the loops of its tensor."""

    @property
    def extent(self) -> Expr: ...
    @property
    def domain(self) -> IterDomain: ...


@dataclass(frozen=True, slots=True)
class ArrayTile:
    """An array over ``extents`` (elements): the tensor's own loops at the positions ``kept``, or with ``laid_out`` its
    allocation axes at those positions. ``strides`` (elements) are those that the user gave, None where an axis lies
    around what is inside it without a gap."""

    tensor: Tensor
    kept: tuple[int, ...]
    extents: tuple[Expr, ...]
    laid_out: bool
    given: tuple[Expr | None, ...] = ()

    @property
    def strides(self) -> tuple[Expr, ...]:
        """Elements between neighbours along each axis of the array."""
        made: list[Expr] = []
        inner = as_expr(1)
        given = self.given or (None,) * len(self.extents)
        for n, stride in zip(reversed(self.extents), reversed(given), strict=True):
            made.insert(0, inner if stride is None else stride)
            inner = simplify(made[0] * n)
        return tuple(made)

    @property
    def size(self) -> Expr:
        """Elements that the array holds, gaps between them included."""
        if any(n == 0 for n in self.extents):
            return as_expr(0)
        last = as_expr(0)
        for n, stride in zip(self.extents, self.strides, strict=True):
            last = last + (n - 1) * stride
        return simplify(last + 1)

    def place(self, slots: Sequence[Expr | None], allocation: Sequence[Expr]) -> Expr:
        """Element of the array for an access with these loop slots and allocation coordinates."""
        place = as_expr(0)
        dense = all(s is None for s in self.given)
        for n, stride, p in zip(self.extents, self.strides, self.kept, strict=True):
            at = allocation[p] if self.laid_out else slots[p]
            if at is None:
                raise IndexingError(f"loop axis {p} of {self.tensor.name} has no coordinate where it is read")
            place = place * n + at if dense else place + at * stride
        return simplify(place)


def tile(t: Tensor, own: Sequence[int], loops: Sequence[TileLoop], *, laid_out: bool = True) -> ArrayTile:
    """The array of ``t`` where each step of its loops at the positions ``own`` has a copy.

    ``loops`` are those of its definition. Axes of the allocation that the schedule made (padding, swizzles), or that
    have strides of their own, lay it out where ``laid_out`` says so; otherwise its loops do, in the order of the
    allocation. Raises `ScheduleError` for an array laid out by the allocation over loops that take their extent from
    another axis.
    """
    if laid_out and (any(d not in t.logical for d in t.allocation) or any(s is not None for s in t.domain.strides)):
        for p, (loop, d) in enumerate(zip(loops, t.loop, strict=True)):
            if p not in own and loop.domain is not d:
                raise ScheduleError(
                    f"the allocation of {t.name} says nothing about its loop {p}, which takes the extent "
                    f"{loop.extent} of {loop.domain.label}",
                    where=t.source_line,
                    hint=f"leave the allocation of {t.name} alone: its loops are laid out in their order",
                )
        follow = reachable([t.loop[p] for p in own], [*t.domain.exprs, *t.domain.loop_exprs])
        kept = tuple(p for p, d in enumerate(t.allocation) if d not in follow and not d.is_broadcast)
        given = tuple(t.domain.strides[p] for p in kept)
        return ArrayTile(t, kept, tuple(t.allocation[p].extent for p in kept), True, given)
    rest = [p for p, d in enumerate(t.loop) if p not in own and d.kind != "reduction"]
    if t.allocation != t.axes:
        exprs = [*t.domain.exprs, *t.domain.loop_exprs]
        made = [{d, *descendants(d, exprs)} for d in t.allocation]
        rest.sort(key=lambda p: max((n for n, of in enumerate(made) if t.loop[p] in of), default=-1))
    return ArrayTile(t, tuple(rest), tuple(loops[p].extent for p in rest), False)
