"""Scatters: those that are selections, and the loops of the others.

Every entry of the index is on a thread where writers may come in any order; where the last one wins, they are in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

from idgraph.arith import Expr, as_expr, simplify
from idgraph.errors import ScheduleError, arguments
from idgraph.ir import SCATTERS, Fusion, Scalar, Tensor, TensorExpr, adds, check_fusion, entry_axes, is_integer
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as rows
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr
from idgraph.ir.axis_read import Attr
from idgraph.ir.clone import rewriting
from idgraph.ir.device import Device, device_of
from idgraph.ir.op_table import apply
from idgraph.ir.reshape import product
from idgraph.ir.schedule_log import Decision
from idgraph.ir.writer_order import ordered_entries
from idgraph.rewrite.canonicalize_views import replace_operation
from idgraph.rewrite.gather_lowering import named
from idgraph.rewrite.rematerialize import Along, Coordinate, Picked, Rematerializer
from idgraph.schedule.config import cut_blocks
from idgraph.schedule.scatter_ways import best_copies, broadcast_extents, scatter_decision, scatter_lanes


def schedule_scatter(e: TensorExpr, block: int, vectors: int = 1, cores: bool = False) -> None:
    """Blocks and threads over what ``e`` writes; where the last writer wins, the index's entries run in their order.

    Where they come in any order one thread takes ``vectors`` of them. For ``cores`` a block is all that may add to one
    element: the axes in front of the entries, which no two cores share.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(64, 9)), f.input("i", shape=(64, 3), dtype="int64")
    >>> t = ig.scatter(x, 1, i, f.input("v", shape=(64, 3)))
    >>> schedule_scatter(t.definition, 16)
    >>> [(str(d.extent), d.parallel) for d in t.loop]
    [('4', 'blockIdx.x'), ('16', 'threadIdx.x'), ('3', 'serial')]
    """
    t, entries = e.output, entry_axes(e)
    rows = next((p for p, d in enumerate(t.loop) if d in entries), 0) if cores and adds(e) else 0
    if rows:
        for _ in range(rows - 1):
            t.merge(0)
        t.parallelize(0, "blockIdx.x")
        return
    owned = adds(e) and scatter_decision(e).chosen == "owner"
    last = entries if owned else ordered_entries(e)

    def rank(p: int) -> int:
        d = t.loop[p]
        return 2 if d.is_broadcast else int(d in last)

    order = sorted(range(len(t.loop)), key=rank)
    free = sum(rank(p) == 0 for p in order)
    width = 1 if last else scatter_lanes(e)
    if order != sorted(order):
        t.reorder(order)
    if width > 1:
        t.split(free - 1, width).parallelize(free, "vectorize")
    if free:
        cut_blocks(t, free, block, 1 if last else vectors)
        t.parallelize(0, "blockIdx.x")
        t.parallelize(1, "threadIdx.x")


# scatters that are selections -----------------------------------------------------------------------------------------


@arguments(ScheduleError, first=True, keep=rewriting)
def scatter_plan(fusion: Fusion, device: Device | str | None = None) -> tuple[Decision, ...]:
    """For each scatter the way `auto` takes it, with the reason and what it rejects; changes nothing.

    *where*: with one index a row (or a few) every element decides by itself, ``where(index == iota, src, x)``, inside
    whatever reads it: nothing is stored, and the decision tells the bytes ``saved`` and carries the ``proof``.
    *owner*: the entries of one row are added by one thread. *atomic*: every entry adds on a thread of its own.
    *copies*: where many entries add to few elements, parts of the entries add to a table each, and the tables are
    summed: updates of one line of memory wait for each other (`Device.line_atomics`).
    *any-order*: every entry writes on a thread of its own, since those that name one element write the same value.
    *ordered*: the entries of one row are written in their order, rows in parallel, so that the last one wins.
    *winners*: a first launch compares the entries with each other, and each then writes the value of the last one that
    names its element.
    *last-writer*: a first launch finds the last entry for each target, and every element then takes that one's value,
    inside whatever reads it.

    The way of the least estimated time on ``device`` is taken (by default that in force); entries are not compared
    with each other on a CPU, whose cores take many rows one after another anyway.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(64, 9)), f.input("i", shape=(64, 1), dtype="int64")
    >>> t = f.output(ig.scatter(f.full((64, 9), 0.0), 1, i, 1.0) * x)
    >>> [(plan.chosen, plan.entries) for plan in ig.schedule.scatter_plan(f)]
    [('where', 'one')]
    """
    check_fusion(fusion, "scatter_plan", ScheduleError)
    pairs = device is None or device_of(device).kind == "cuda"
    return tuple(scatter_decision(e, pairs) for e in fusion.exprs if e.op in SCATTERS)


@arguments(ScheduleError, first=True, keep=rewriting)
def apply_scatter_plan(fusion: Fusion, plan: Sequence[Decision]) -> None:
    """Rewrite the scatters of ``plan`` that become selections.

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
        if e is None or e.op not in SCATTERS:
            continue
        if decision.chosen == "where":
            replace_operation(e, partial(_selection, e))
        elif decision.chosen == "winners":
            replace_operation(e, partial(_by_winners, e))
        elif decision.chosen == "last-writer":
            replace_operation(e, partial(_by_last_writer, e))
        elif decision.chosen == "copies":
            replace_operation(e, partial(_in_copies, e, best_copies(e)))


def _by_winners(e: TensorExpr) -> Tensor:
    """The same scatter of the values of each element's last entry, which all entries that name it write."""
    x, src, fusion = e.inputs[0], e.args[-1], e.output.fusion
    if not isinstance(src, Tensor):
        return e.output
    put = e.op == "index_put"
    indices = list(_targets(e)[0]) if put else [e.inputs[1]]
    at = 0 if put else _dim(e)
    middle = [attr(n) for n in broadcast_extents(indices)]
    hits: list[Tensor] = []
    for index in indices:
        short = put and any(d.is_broadcast for d in index.axes)
        wide = movement.expand(index, middle) if short else index  # type: ignore[arg-type]
        hits.append(ops.eq(movement.unsqueeze(wide, at + 1), movement.unsqueeze(wide, at)))
    shape = [-1 if p == at + 1 else 1 for p in range(len(middle) + 1)]
    numbers = movement.reshape(fusion.iota(middle[at], dtype="int64"), shape)
    last = rows.amax(ops.where(reduce(ops.logical_and, hits), numbers, 0), at + 1)
    if put:
        behind = x.ndim - 1 - _targets(e)[2][-1]
        value = apply(fusion, "index_select", (src, last), {"dim": src.ndim - 1 - behind})  # the axis of the entries
    else:
        value = apply(fusion, "gather", (src, last), {"dim": at})
    return apply(fusion, e.op, (*e.inputs[:-1], value), dict(e.attrs))


def _dim(e: TensorExpr) -> int:
    dim = e.attrs["dim"]
    return dim % e.output.ndim if isinstance(dim, int) else 0


def _in_copies(e: TensorExpr, copies: int) -> Tensor:
    """``x`` and the sum of tables of zeros to which equal parts of the entries add."""
    x, fusion = e.inputs[0], e.output.fusion
    indices, own, dims = _targets(e)
    middle = [attr(n) for n in broadcast_extents(indices)]
    length = int(as_expr(middle[0])) // copies
    first = dims[0] if own else 0

    def cut(t: Tensor, front: Sequence[Attr], behind: Sequence[Attr]) -> Tensor:
        """``t``, which broadcasts to (front, entries, behind), with the entries in parts."""
        wide = movement.expand(t, [*front, *middle, *behind])  # type: ignore[list-item]
        return movement.reshape(wide, [*front, copies, length, *middle[1:], *behind])  # type: ignore[list-item]

    shape = [attr(d.extent) for d in x.axes]
    front, behind = (shape[:first], shape[dims[-1] + 1 :]) if own else ([], [])
    number = movement.reshape(fusion.iota(copies, dtype="int64"), [copies, *[1] * len(middle)])
    zero = fusion.full([*shape[:first], copies, *shape[first:]], _typed_scalar(0, x), x.dtype)
    source = e.args[-1]
    value = cut(source, front, behind) if isinstance(source, Tensor) else source
    attrs: dict[str, Attr] = {"dims": tuple(range(first, first + len(dims) + 1)), "accumulate": True}
    inputs = (zero, number, *(cut(t, [], []) for t in indices), value)
    return ops.add(x, rows.sum(apply(fusion, "index_put", inputs, attrs), first))


def _selection(e: TensorExpr) -> Tensor:
    """``where(index == iota, src, x)``, one entry of each row after the other; x + src where ``e`` adds."""
    x, index = e.inputs[0], e.inputs[1]
    dim = e.attrs["dim"]
    at = dim % x.ndim if isinstance(dim, int) else 0
    last = e.args[-1]
    src: Tensor | Scalar = last if isinstance(last, (Tensor, bool, int, float)) else 0
    entries = int(index.axes[at].extent) if index.axes[at].extent.is_const else 1
    for j in range(entries):
        one = index if entries == 1 else movement.slice(index, at, j, j + 1)
        value = movement.slice(src, at, j, j + 1) if isinstance(src, Tensor) and entries > 1 else src
        x = _selected(e, x, at, one, value)
    return x


def _selected(e: TensorExpr, x: Tensor, at: int, index: Tensor, src: Tensor | Scalar) -> Tensor:
    """``x`` with one entry of each row written along axis ``at``."""
    fusion = e.output.fusion

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
        src = _typed_scalar(src, x)
    return ops.where(hit, ops.add(x, src) if adds(e) else src, x)


def _by_last_writer(e: TensorExpr) -> Tensor:
    """``where(last >= 0, src[last], x)``, last[target] being the number of the last entry that names the target."""
    x, fusion = e.inputs[0], e.output.fusion
    indices, own, dims = _targets(e)
    middle = broadcast_extents(indices)
    number = fusion.iota(attr(product(middle)), dtype="int64")
    numbers = movement.reshape(number, [attr(n) for n in middle])
    none = fusion.full([attr(x.axes[p].extent) for p in dims], -1, "int64")
    attrs: dict[str, Attr] = {"dims": tuple(range(len(dims))), "accumulate": "amax"}
    last = apply(fusion, "index_put", (none, *indices, numbers), attrs)
    behind = tuple(range(dims[-1] + 1, x.ndim))
    wide = apply(fusion, "unsqueeze", (last,), {"dims": (*range(dims[0]), *behind)}) if own else last
    src = e.args[-1]
    if isinstance(src, Tensor):
        reader = Rematerializer(fusion, tuple(d.extent for d in x.axes))
        place, at = ops.maximum(wide, 0), list[Coordinate]()
        for n in reversed(middle):
            at.insert(0, Picked(ops.remainder(place, attr(n)), n, given=False))
            place = ops.floor_divide(place, attr(n))
        coordinates = [*(Along(p) for p in range(dims[0])), *at, *(Along(p) for p in behind)] if own else at
        kept = coordinates[len(coordinates) - src.ndim :]  # values may lack leading axes
        value: Tensor | Scalar = reader.leaf(
            src, [as_expr(0) if d.is_broadcast else c for d, c in zip(src.axes, kept, strict=True)]
        )
    else:
        value = _typed_scalar(src, x)
    return ops.where(ops.ge(wide, 0), value, x)


def _targets(e: TensorExpr) -> tuple[list[Tensor], bool, tuple[int, ...]]:
    """(index tensors, whether other axes stand beside the indexed ones, the indexed axes of x)."""
    x, fusion = e.inputs[0], e.output.fusion
    if e.op == "index_put":
        value = e.attrs["dims"]
        dims = tuple(d % x.ndim for d in value if isinstance(d, int)) if isinstance(value, tuple) else ()
        return list(e.inputs[1 : 1 + len(dims)]), True, dims
    dim, index = e.attrs["dim"], e.inputs[1]
    at = dim % x.ndim if isinstance(dim, int) else 0
    made: list[Tensor] = []
    for p, d in enumerate(index.axes):
        numbers = fusion.iota(attr(d.extent), dtype="int64")
        made.append(index if p == at else movement.reshape(numbers, [-1 if q == p else 1 for q in range(x.ndim)]))
    return made, False, tuple(range(x.ndim))


def _typed_scalar(value: object, x: Tensor) -> Scalar:
    """A number as a tensor of x's type holds it, so that ``where`` keeps that type."""
    plain = value if isinstance(value, (bool, int, float)) else 0
    return bool(plain) if x.dtype == "bool" else int(plain) if is_integer(x.dtype) else float(plain)
