"""Scatters: those that are selections, and the loops of the others.

Every entry of the index is on a thread where writers may come in any order; where the last one wins, they are in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from idgraph.arith import Expr, as_expr, simplify
from idgraph.errors import ScheduleError
from idgraph.ir import (
    SCATTERS,
    Fusion,
    IterDomain,
    Scalar,
    Tensor,
    TensorExpr,
    adds,
    check_fusion,
    entry_axes,
    is_integer,
    movement,
    ops,
)
from idgraph.ir.decisions import Decision, Option
from idgraph.ir.indexing import attr
from idgraph.schedule.gathers import named, place_of, rewrite, sample_points


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


# scatters that are selections -----------------------------------------------------------------------------------------


def scatter_plan(fusion: Fusion) -> tuple[Decision, ...]:
    """For each scatter the way `auto` takes it, with the reason and what it rejects; changes nothing.

    *where*: with one index a row every element decides by itself, ``where(index == iota, src, x)``, inside whatever
    reads it: nothing is stored. *atomic*: every entry adds on a thread of its own. *ordered*: the entries of one row
    are written in their order, rows in parallel, so that the last one wins.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(64, 9)), f.input("i", shape=(64, 1), dtype="int64")
    >>> t = f.output(ig.scatter(f.full((64, 9), 0.0), 1, i, 1.0) * x)
    >>> [(plan.chosen, plan.entries) for plan in ig.schedule.scatter_plan(f)]
    [('where', 'one')]
    """
    check_fusion(fusion, "scatter_plan", ScheduleError)
    return tuple(_decide(e) for e in fusion.exprs if e.op in SCATTERS)


def apply_scatter_plan(fusion: Fusion, plan: Sequence[Decision]) -> None:
    """Rewrite the scatters of ``plan`` that are selections.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> i = f.input("i", shape=(64, 1), dtype="int64")
    >>> t = f.output(ig.scatter(f.full((64, 9), 0.0), 1, i, 1.0))
    >>> ig.schedule.apply_scatter_plan(f, ig.schedule.scatter_plan(f))
    >>> [e.op for e in f.exprs]
    ['full', 'iota', 'reshape', 'eq', 'where']
    """
    for decision in plan:
        e = fusion[decision.tensor].definition
        if decision.chosen == "where" and e is not None and e.op in SCATTERS:
            rewrite(e, partial(_selection, e))


def _decide(e: TensorExpr) -> Decision:
    x, last = e.inputs[0], entry_axes(e)
    count = as_expr(1)
    for d in last:
        count = count * d.extent
    one = count == as_expr(1) and e.op != "index_put"
    entries = "one" if count == as_expr(1) else str(simplify(count))
    points = " x ".join(str(d.extent) for d in e.output.axes)
    store = f"it stores {e.output.name}, {points} elements, before anybody reads it"
    if one:
        other = "atomic" if adds(e) else "ordered"
        chosen, reason = (
            "where",
            "every element compares its coordinate with the one index of its row; nothing is stored",
        )
        rejected = (Option(other, _size(e.output) + _size_of(e.output.root), store),)
    else:
        why = "index_put takes elements together" if e.op == "index_put" else f"{entries} comparisons for each element"
        cost = None if e.op == "index_put" else _size(e.output) * _size_of(last)
        rejected = (Option("where", cost, why),)
        if adds(e):
            chosen, reason = "atomic", "entries may name one element, and the order of additions is free"
        else:
            chosen, reason = "ordered", "several entries may name one element, and the last one wins"
    return Decision("scatter", e.output.name, x.name, entries, place_of(e), chosen, reason, rejected)


def _size(t: Tensor) -> int:
    return _size_of(t.axes)


def _size_of(axes: Sequence[IterDomain]) -> int:
    return sample_points([d.extent for d in axes])


def _selection(e: TensorExpr) -> Tensor:
    """``where(index == iota, src, x)``; x + src where ``e`` adds."""
    x, index, fusion = e.inputs[0], e.inputs[1], e.output.fusion
    dim = e.attrs["dim"]
    at = dim % x.ndim if isinstance(dim, int) else 0
    last = e.args[-1]
    src: Tensor | Scalar = last if isinstance(last, (Tensor, bool, int, float)) else 0

    def count(p: int) -> Tensor:
        numbers = fusion.iota(attr(x.axes[p].extent), dtype="int64")
        return movement.reshape(numbers, [-1 if q == p else 1 for q in range(x.ndim)])

    pads: list[int | Expr] = []
    short: list[int] = []
    for p in reversed(range(x.ndim)):
        missing = as_expr(0) if p == at else simplify(x.axes[p].extent - index.axes[p].extent)
        pads += [0, attr(missing)]
        short += [p] if missing != as_expr(0) else []
    extents = {p: attr(index.axes[p].extent) for p in short}
    if short:  # a smaller index leaves the rest of x as it is
        index = movement.pad(index, pads, 0)
        src = movement.pad(src, pads, False if src.dtype == "bool" else 0) if isinstance(src, Tensor) else src
    hit = named(index, count(at), x.axes[at].extent)
    for p in short:
        hit = ops.logical_and(hit, ops.lt(count(p), extents[p]))
    if not isinstance(src, Tensor):
        src = bool(src) if x.dtype == "bool" else int(src) if is_integer(x.dtype) else float(src)
    return ops.where(hit, ops.add(x, src) if adds(e) else src, x)
