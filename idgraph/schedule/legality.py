"""The error of an illegal schedule, as a value: schedulers ask for it and then take another way."""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.errors import ScheduleError
from idgraph.graphs import build_index_graph
from idgraph.index import IdModel
from idgraph.index.loop_tree import check_order, check_scan
from idgraph.index.predicate import check_covered
from idgraph.ir import Fusion, IterDomain, Tensor, TensorExpr

_LANES = ("vectorize", "unroll")


def nest_error(fusion: Fusion, exprs: Sequence[TensorExpr] | None = None) -> ScheduleError | None:
    """Why the present inlining (of ``exprs``, by default of all) is not legal, or None."""
    try:
        build_index_graph(fusion, exprs, widen=True)
    except ScheduleError as error:
        return error
    return None


def loop_conflict(model: IdModel, t: Tensor) -> ScheduleError | None:
    """Why the loops of ``t`` are not legal, whoever shares them, or None: they leave out what is read, or visit a scan
    or the entries of a scatter out of order."""
    try:
        check_covered(model, t)
        if t.definition is not None:
            check_order(t.definition, model, model.ways)
            check_scan(t.definition, model, model.ways)
    except ScheduleError as error:
        return error
    return None


def runs_inside(t: Tensor, p: int) -> IterDomain | None:
    """A loop that runs step by step inside loop ``p`` of ``t``, whose elements are then not neighbours in time."""
    return next((d for d in t.loop[p + 1 :] if d.parallel not in _LANES and d.extent != 1), None)


def drop_inlining(t: Tensor) -> None:
    """Take back the compute-at position of ``t``; its loops stay."""
    t.inline_position = 0
    t.forget("inline")
