"""Coordinates of the axes of one operation's output: from its loops to everything that its schedule and reads make.

They are solved one by one, since a padded loop takes an axis out of range where its equals are not; which of those
points count is what the bounds on the way say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from idgraph.arith import Expr, simplify
from idgraph.graphs.coordinate_rules import backward, forward, is_bijective_at
from idgraph.ir import DomainExpr, IterDomain, RowPartition, Stride

Side = Literal["start", "stop", "step"]


@dataclass(frozen=True, slots=True)
class Bound:
    """``condition``: that the coordinate of ``axis`` is not below 0 ("start"), below the extent ("stop"), or one that a
    stride takes ("step"). ``expr`` is the expression through which the coordinate was found; None for a loop itself."""

    condition: Expr
    axis: IterDomain
    side: Side
    expr: DomainExpr | None


@dataclass(frozen=True, slots=True)
class CoordinateStep:
    """The step by which an axis' coordinate was found: through ``expr``, forward or backward."""

    expr: DomainExpr
    is_forward: bool

    @property
    def sources(self) -> tuple[IterDomain, ...]:
        """The axes it was found from."""
        return self.expr.inputs if self.is_forward else self.expr.outputs


class CoordinateSolver:
    """Coordinates of an output's axes: backward from the loops first, then wherever its expressions lead."""

    def __init__(self, start: Iterable[tuple[IterDomain, Expr]], exprs: Sequence[DomainExpr]) -> None:
        self.value: dict[IterDomain, Expr] = {}
        self.step: dict[IterDomain, CoordinateStep] = {}
        self._exact: dict[IterDomain, bool] = {}
        for d, v in start:
            self.value.setdefault(d, v)
        for x in reversed(exprs):
            self._take(x, is_forward=False)
        before = -1
        while before != len(self.value):  # loops upstream of logical axes need forward steps
            before = len(self.value)
            for x in exprs:
                self._take(x, is_forward=True)
            for x in reversed(exprs):
                self._take(x, is_forward=False)

    def _take(self, x: DomainExpr, is_forward: bool) -> None:
        known, wanted = (x.inputs, x.outputs) if is_forward else (x.outputs, x.inputs)
        if not all(d in self.value for d in known) or all(d in self.value for d in wanted):
            return
        if isinstance(x, RowPartition):
            if x.flat not in known:  # which row an element is in no expression says
                self.value[x.flat] = simplify(x.start + self.value[x.ragged])
                self.step[x.flat] = CoordinateStep(x, is_forward)
            return
        values = tuple(self.value[d] for d in known)
        for d, v in zip(wanted, forward(x, values) if is_forward else backward(x, values), strict=True):
            if d not in self.value:
                self.value[d] = simplify(v)
                self.step[d] = CoordinateStep(x, is_forward)

    def is_invertible_path(self, d: IterDomain) -> bool:
        """Whether every expression on the way to ``d`` relates both of its sides at every point of the loops, so that
        either side follows from the other: a stride does not beside the elements it takes, nor a merge of an inner
        coordinate out of range."""
        found = self._exact.get(d)
        if found is None:
            step = self.step.get(d)
            found = step is None or (
                is_bijective_at(step.expr, self.value) and all(map(self.is_invertible_path, step.sources))
            )
            self._exact[d] = found
        return found

    def bounds_on_path(self, domains: Iterable[IterDomain], stop: frozenset[IterDomain]) -> Iterator[Bound]:
        """Bounds of every axis on the way to ``domains`` (those in ``stop`` are known to be in theirs)."""
        seen: set[IterDomain] = set(stop)
        pending = [d for d in domains if d in self.value]
        while pending:
            d = pending.pop()
            if d in seen:
                continue
            seen.add(d)
            step = self.step.get(d)
            made_by = step.expr if step is not None else None
            if isinstance(made_by, RowPartition):  # the rows cover the axis, and no row is longer than it is
                yield Bound(self.value[made_by.ragged] < made_by.length, d, "stop", made_by)
                pending += (*made_by.inputs, *made_by.outputs)
                continue
            yield Bound(self.value[d] >= 0, d, "start", made_by)
            yield Bound(self.value[d] < d.extent, d, "stop", made_by)
            if step is None:
                continue
            if isinstance(step.expr, Stride) and step.is_forward:
                taken = ((self.value[step.expr.source] - step.expr.start) % step.expr.step).eq(0)
                yield Bound(taken, d, "step", made_by)
            # The axes that a step fixes beside this one must be in bounds too, for the point to be the only one.
            pending += step.expr.inputs
            pending += step.expr.outputs
