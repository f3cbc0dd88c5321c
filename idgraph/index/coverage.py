"""Loops that were cut (a negative resize, a stride) compute a part of a tensor: every reader must stay inside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from idgraph.arith import FALSE, and_, enumerate_points, is_true, simplify
from idgraph.errors import ScheduleError
from idgraph.graphs import key_of
from idgraph.index.access_relation import AccessFunction, LoopVariable
from idgraph.index.index_solver import IndexSolver
from idgraph.ir import SCATTERS, DomainExpr, Fusion, IterDomain, Resize, Stride, Tensor, TensorExpr

POINTS = 1 << 20  # of the loops that are looked at where no rule proves that a reader stays inside


class CoverageMaps(Protocol):
    """The part of an index model that the check asks."""

    fusion: Fusion

    def loops(self, e: TensorExpr, /) -> tuple[LoopVariable, ...]: ...
    def lengths(self, t: Tensor, /) -> Mapping[int, Resize]: ...
    def read(self, e: TensorExpr, operand: int, /) -> AccessFunction: ...
    def solver(self, e: TensorExpr, /) -> IndexSolver: ...


# The cutting expressions, and the axes that a reader must stay inside of.
Cut = tuple[DomainExpr, tuple[IterDomain, ...]]


def is_partial(x: DomainExpr) -> bool:
    """True of an expression through which loops do not reach every element: a negative resize, a stride that skips."""
    match x:
        case Resize():
            return not (is_true(x.left >= 0) and is_true(x.right >= 0))
        case Stride():
            return not is_true(x.out.extent.eq(x.source.extent))
        case _:
            return False


def cuts(model: CoverageMaps, t: Tensor) -> tuple[Cut, ...]:
    """Expressions through which t's loops do not reach every element, with the axes a reader must stay inside of.

    A cut or stride that the schedule made, or the end of a shared loop that its readers run shorter; for loops upstream
    of the logical axes, a resize that grows.
    """
    found: list[Cut] = []
    found += [(x, x.outputs) for x in (*t.domain.loop_exprs, *model.lengths(t).values()) if is_partial(x)]
    if t.definition is not None and t.definition.op in SCATTERS:
        return tuple(found)  # its loops are upstream by nature, and write a part of what operand 0 holds whole
    if t.definition is not None and t.loop != t.logical and t.domain.exprs:
        steps = model.solver(t.definition).own.step
        for d in t.logical:
            step = steps.get(d)
            while step is not None and step.is_forward:
                x = step.expr
                if isinstance(x, Resize) and not (is_true(x.left <= 0) and is_true(x.right <= 0)):
                    found.append((x, x.inputs))
                step = steps.get(x.inputs[0])
    return tuple(found)


def check_reads_covered(model: CoverageMaps) -> None:
    """Raise `ScheduleError` where a cut tensor is an output, or is read outside of what its loops compute."""
    check_written(model)
    for t in model.fusion.tensors:
        check_covered(model, t)


def check_covered(model: CoverageMaps, t: Tensor) -> None:
    """`check_reads_covered` of one tensor."""
    steps = cuts(model, t) if t.definition is not None else ()
    if not steps:
        return
    if model.fusion.is_output(t):
        raise _outside_error(t, steps[0][0], f"{t.name} is an output, all of its elements are needed")
    if t.definition is not None and t.definition.op in SCATTERS:
        raise _outside_error(t, steps[0][0], f"{t.definition!r} writes at every element of its index")
    for e in t.uses:
        for k in e.operands_of(t):
            _check_read(model, e, k, t, steps)


def check_written(model: CoverageMaps) -> None:
    """Raise `ScheduleError` where an output is inlined into a loop of another extent that may be empty."""
    for t in model.fusion.outputs:
        if t.definition is None or not t.inline_position:
            continue
        for loop, d in zip(model.loops(t.definition)[: t.inline_position], t.loop, strict=False):
            if loop.domain is not d and not is_true(loop.extent >= 1):
                raise ScheduleError(
                    f"{t.name} is an output, and inlined at {t.inline_position} into a loop that may be empty: it "
                    "would not be written",
                    where=t.source_line,
                    because=[f"the loop has the extent {loop.extent} of {loop.domain.label}, not {d.extent}"],
                    hint=f"inline {t.name} at 0, or give the extent a min of 1",
                )


def _check_read(model: CoverageMaps, e: TensorExpr, k: int, t: Tensor, steps: tuple[Cut, ...]) -> None:
    read = model.read(e, k)
    if read.predicate == FALSE or any(loop.extent == 0 for loop in model.loops(e)):
        return  # these loops never read it
    solver, key = model.solver(e), key_of(e, k)
    for x, inside_of in steps:
        for d in inside_of:
            if not solver.known(key(d)):
                raise _outside_error(t, x, f"{e!r} reads it at a coordinate that its loops do not lead to")
            c = solver.unclamped_coordinate(key(d))
            inside = and_(c >= 0, c < d.extent)
            if isinstance(x, Stride) and x.step not in (1, -1):  # between the steps there is nothing
                if not solver.known(key(x.source)):
                    raise _outside_error(t, x, f"{e!r} reads it at a coordinate that its loops do not lead to")
                inside = and_(inside, ((solver.unclamped_coordinate(key(x.source)) - x.start) % x.step).eq(0))
            facts = (*read.conditions, *read.load_bounds)
            if not is_true(simplify(inside, facts=facts), facts) and not enumerate_points(inside, POINTS, facts):
                at = f" at {e.source_line}" if e.source_line else ""
                raise _outside_error(
                    t, x, f"{e!r}{at} reads it at {', '.join(map(str, read.coordinates))}, not provably inside"
                )


def _outside_error(t: Tensor, x: DomainExpr, because: str) -> ScheduleError:
    return ScheduleError(
        f"the schedule of {t.name} computes a part of it only: {x}",
        where=x.line or t.source_line,
        because=[because],
        hint=f"give the cut use its own copy (ig.schedule.recompute), or leave the loops of {t.name} whole",
    )
