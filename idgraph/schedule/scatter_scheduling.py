"""Scatters: those that are selections, and the loops of the others.

Every entry of the index is on a thread where writers may come in any order; where the last one wins, they are in order.
The cheapest way is taken, in microseconds of the device in force: bytes go at its bandwidth, a launch takes its time,
and where entries are visited one after another each waits for memory, which nothing hides.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

from idgraph.arith import Expr, Proof, as_expr, prove, simplify, symbol, where
from idgraph.errors import ScheduleError, arguments
from idgraph.ir import (
    SCATTERS,
    Fusion,
    IterDomain,
    Mapped,
    Scalar,
    Tensor,
    TensorExpr,
    adds,
    check_fusion,
    entry_axes,
    has_atomic_update,
    is_integer,
    item_size,
    scatter_axes,
)
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as rows
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr
from idgraph.ir.axis_read import Attr
from idgraph.ir.clone import rewriting
from idgraph.ir.device import Device, current_device, device_of
from idgraph.ir.op_table import apply
from idgraph.ir.reshape import product
from idgraph.ir.schedule_log import Decision, Option, Saving
from idgraph.ir.writer_order import ordered_entries
from idgraph.rewrite.canonicalize_views import replace_operation
from idgraph.rewrite.gather_lowering import named
from idgraph.rewrite.gather_strategy import place_of, sample_points
from idgraph.rewrite.rematerialize import Along, Coordinate, Picked, Rematerializer
from idgraph.schedule.config import ADDED_TOGETHER, cut_blocks


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

    ranks = [2 if d.is_broadcast else int(d in last) for d in t.loop]
    order, free = sorted(range(len(ranks)), key=ranks.__getitem__), ranks.count(0)
    width = 1 if last else scatter_lanes(e)
    if order != sorted(order):
        t.reorder(order)
    if width > 1:
        t.split(free - 1, width).parallelize(free, "vectorize")
    if free:
        cut_blocks(t, free, block, 1 if last else vectors)
        t.parallelize(0, "blockIdx.x")
        t.parallelize(1, "threadIdx.x")


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
    forms = {"where": _selection, "winners": _by_winners, "last-writer": _by_last_writer, "copies": _in_copies}
    for decision in plan:
        e = fusion[decision.tensor].definition
        if e is not None and e.op in SCATTERS and decision.chosen in forms:
            replace_operation(e, partial(forms[decision.chosen], e))


def _by_winners(e: TensorExpr) -> Tensor:
    """The same scatter of the values of each element's last entry, which all entries that name it write."""
    x, src, fusion = e.inputs[0], e.args[-1], e.output.fusion
    if not isinstance(src, Tensor):
        return e.output
    put = e.op == "index_put"
    indices = list(_targets(e)[0]) if put else [e.inputs[1]]
    at = 0 if put else _dim(e)
    middle = [attr(n) for n in broadcast_extents(indices)]
    if put:
        indices = [movement.expand(t, middle) if any(d.is_broadcast for d in t.axes) else t for t in indices]  # type: ignore[arg-type]
    hits = [ops.eq(movement.unsqueeze(t, at + 1), movement.unsqueeze(t, at)) for t in indices]
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
    """The axis that a scatter goes along."""
    dim = e.attrs["dim"]
    return dim % e.output.ndim if isinstance(dim, int) else 0


def _put_dims(e: TensorExpr) -> tuple[int, ...]:
    """The axes that an `index_put` indexes."""
    value, rank = e.attrs["dims"], e.inputs[0].ndim
    return tuple(d % rank for d in value if isinstance(d, int)) if isinstance(value, tuple) else ()


def _in_copies(e: TensorExpr) -> Tensor:
    """``x`` and the sum of tables of zeros to which equal parts of the entries add."""
    x, fusion, copies = e.inputs[0], e.output.fusion, best_copies(e)
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
    x, index, at = e.inputs[0], e.inputs[1], _dim(e)
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
        dims = _put_dims(e)
        return list(e.inputs[1 : 1 + len(dims)]), True, dims
    index, at = e.inputs[1], _dim(e)
    made: list[Tensor] = []
    for p, d in enumerate(index.axes):
        numbers = fusion.iota(attr(d.extent), dtype="int64")
        made.append(index if p == at else movement.reshape(numbers, [-1 if q == p else 1 for q in range(x.ndim)]))
    return made, False, tuple(range(x.ndim))


def _typed_scalar(value: object, x: Tensor) -> Scalar:
    """A number as a tensor of x's type holds it, so that ``where`` keeps that type."""
    plain = value if isinstance(value, (bool, int, float)) else 0
    return bool(plain) if x.dtype == "bool" else int(plain) if is_integer(x.dtype) else float(plain)


COMPARED = 4  # indices of a row that each element is compared with: operations of the graph, each
INDEX = 8  # bytes of the number of an entry


def scatter_decision(e: TensorExpr, pairs: bool = True) -> Decision:
    """The cheapest way of a scatter, with the others and their costs (see `scatter_plan`). ``pairs``: entries may be
    compared with each other.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(64, 9)), f.input("i", shape=(64, 3), dtype="int64")
    >>> found = scatter_decision(ig.scatter(x, 1, i, 1.0).definition)
    >>> found.chosen, [(o.name, o.cost) for o in found.rejected]
    ('where', [('any-order', 5.0), ('last-writer', 7.5)])
    """
    t, few = e.output, _compared(e)
    entries = _entries_text(e)
    points = " x ".join(str(d.extent) for d in t.axes)
    store = f"it stores {t.name}, {points} elements, before anybody reads it"
    options = [_where(e, few, entries), *(_sum_ways(e, store) if adds(e) else _write_ways(e, store, pairs))]
    best = min((o for o in options if o.cost is not None), key=lambda o: o.cost or 0)
    chosen = best.name == "where"
    return Decision(
        "scatter", t.name, e.inputs[0].name, entries, place_of(e), best.name, f"{best.amount()}; {best.why}",
        tuple(o for o in options if o is not best),
        saved=_saved(e) if chosen else None, proof=_proof(e, few) if chosen else (),
    )  # fmt: skip


def _entries_text(e: TensorExpr) -> str:
    wide = [str(d.extent) for d in entry_axes(e) if d.extent != as_expr(1)]
    return " x ".join(wide) or "one"


def _option(name: str, seconds: float, why: str) -> Option:
    return Option(name, round(seconds * 1e6, 2), why, f"us on {current_device().name}")


def _where(e: TensorExpr, few: int, entries: str) -> Option:
    if not few:
        why = "index_put takes elements together" if e.op == "index_put" else f"a row has {entries} indices, not one"
        return Option("where", None, why)
    device, whole = current_device(), size_of(e.output.axes)
    which = "the one index" if few == 1 else f"the {few} indices"
    compared = f"each element compares its coordinate with {which} of its row; nothing is stored"
    operations = 2 * few * whole / device.rate("int64", special=False)
    return _option("where", whole * item_size(e.output.dtype) / device.bandwidth + operations, compared)


def _copy_seconds(e: TensorExpr) -> float:
    """Seconds to copy x, whose elements are then updated: two launches, of which the second moves little."""
    device = current_device()
    return 2 * size_of(e.output.axes) * item_size(e.output.dtype) / device.bandwidth + 2e-6 * device.launch_us


def _sum_ways(e: TensorExpr, store: str) -> list[Option]:
    """The ways of a scatter whose entries come in any order."""
    device, item = current_device(), item_size(e.output.dtype)
    whole, moved = size_of(e.output.axes) * item, size_of(e.output.root) * item
    own = "rows are independent: one thread adds up each, in order"
    owner = _copy_seconds(e) + moved / device.bandwidth + size_of(entry_axes(e)) * device.latency
    width, copies = scatter_lanes(e), best_copies(e)
    order = f"additions come in any order{f', {width} neighbours at once' if width > 1 else ''}"
    atomic = _copy_seconds(e) + 2 * moved / device.bandwidth
    options = [_option("owner", owner, f"{own}; {store}")]
    options.append(_option("atomic", atomic + _waiting(e, 1), f"{order}; {store}"))
    if copies > 1:
        several = 3 * copies * whole / device.bandwidth + _waiting(e, copies) + 2e-6 * device.launch_us
        options.append(_option("copies", atomic + several, f"{order}, to {copies} tables, which are summed; {store}"))
    return options


def _write_ways(e: TensorExpr, store: str, pairs: bool) -> list[Option]:
    """The ways of a scatter whose last entry wins."""
    device, t, ordered = current_device(), e.output, ordered_entries(e)
    written = size_of(t.root) * item_size(t.dtype) / device.bandwidth
    count, launch = size_of(ordered), 1e-6 * device.launch_us
    if not ordered:
        what = "write the same value" if entry_axes(e) else "do not exist"
        own = f"entries that name one element {what}; {store}"
        options = [_option("any-order", _copy_seconds(e) + written, own)]
    else:
        order = f"{count:,} entries are written one after another, so that the last one wins"
        options = [_option("ordered", _copy_seconds(e) + written + count * device.latency, f"{order}; {store}")]
    if pairs and winners_possible(e, ordered):
        entries = size_of(e.inputs[1].axes) if e.op != "index_put" else count
        compared = 3 * len(scatter_axes(e)) * entries * count / device.rate("int64", special=False)
        why = f"each entry looks for the last one of {count:,} that names its element, in the launch that copies"
        cost = _copy_seconds(e) + 2 * written + compared
        options.append(_option("winners", cost, f"{why}, and writes its value; {store}"))
    targets = 2 * INDEX * size_of([d for d, _ in scatter_axes(e)] if e.op == "index_put" else t.axes)
    why = "the number of the last entry is kept for each target, then every element takes its own"
    cost = _copy_seconds(e) + targets / device.bandwidth + written + launch
    options.append(_option("last-writer", cost, why))
    return options


def winners_possible(e: TensorExpr, ordered: Sequence[IterDomain]) -> bool:
    """Whether the entries that may name one element lie along one axis of a known size, so that pairs of them can be
    compared."""
    return (
        len(ordered) == 1
        and ordered[0].extent.is_const
        and isinstance(e.args[-1], Tensor)
        and e.attrs.get("aligned") is not True
        and (e.op != "index_put" or max(x.ndim for x in e.inputs[1 : 1 + len(scatter_axes(e))]) == 1)
    )


def scatter_lanes(e: TensorExpr) -> int:
    """Neighbouring elements that one thread writes, or adds to, at once: the last axis is whole rows, which no index
    varies along, and lies in memory as it is visited."""
    t, combined = e.output, has_atomic_update(e)
    d = t.axes[-1] if t.ndim else None
    if (
        d is None
        or (combined is not None and (combined != "sum" or t.dtype not in ADDED_TOGETHER))
        or d is not t.root[-1]
        or d is not t.allocation[-1]
    ):
        return 1
    if t.domain.strides[-1] is not None or not d.extent.is_const or d.extent == 0:
        return 1
    for _, k in scatter_axes(e):
        read = zip(e.inputs[k].axes, e.reads[k], strict=True)
        if any(isinstance(r, Mapped) and r.domain is d and not _repeats(e.inputs[k], a) for a, r in read):
            return 1
    width = current_device().vector_bytes // item_size(t.dtype)
    while int(d.extent) % width:
        width //= 2
    return width


def _repeats(t: Tensor, axis: IterDomain) -> bool:
    """True where ``t`` is one element expanded along ``axis``."""
    e = t.definition
    if axis.is_broadcast:
        return True
    if e is None or e.op != "expand":
        return False
    return all(not (isinstance(r, Mapped) and r.domain is axis) for r in e.reads[0])


def _compared(e: TensorExpr) -> int:
    """Indices of a row that each element can be compared with; 0 where they are too many, or unknown."""
    if e.op == "index_put":
        return 0
    sizes = [d.extent for d in entry_axes(e) if d.extent != as_expr(1)]
    if not sizes:
        return 1
    return int(sizes[0]) if len(sizes) == 1 and sizes[0].is_const and 1 < int(sizes[0]) <= COMPARED else 0


def _waiting(e: TensorExpr, copies: int) -> float:
    """Seconds that updates of one line of memory wait, each for the one before it, where entries spread evenly over
    ``copies`` of the result."""
    device = current_device()
    whole = size_of(e.output.axes) * item_size(e.output.dtype)
    if has_atomic_update(e) != "sum" or not device.line_atomics or not whole:
        return 0.0
    updates = size_of(e.output.root) / scatter_lanes(e)
    return updates / (max(1.0, whole / device.line) * copies * device.line_atomics)


def best_copies(e: TensorExpr) -> int:
    """The number of tables that the entries add to at least cost; 1 where they are not cut into equal parts."""
    if has_atomic_update(e) != "sum" or not e.output.root or not all(d.extent.is_const for d in e.output.root):
        return 1
    if any(_iota_index(t) for t in e.inputs[1:]):
        return 1  # an index that counts: entries are cut already
    device, length = current_device(), _entry_length(e)
    table = 3 * size_of(e.output.axes) * item_size(e.output.dtype) / device.bandwidth
    parts = (p for p in range(1, min(length, device.resident_threads // 64) + 1) if length % p == 0)
    return min(parts, key=lambda p: p * table + _waiting(e, p), default=1)


def _entry_length(e: TensorExpr) -> int:
    """Entries along the first axis of the indices; 1 where the indexed axes do not lie side by side."""
    if e.op == "index_put":
        dims = _put_dims(e)
        indices = e.inputs[1 : 1 + len(dims)]
        if not dims or dims != tuple(range(dims[0], dims[0] + len(dims))) or not any(t.ndim for t in indices):
            return 1
        first = broadcast_extents(indices)[0]
    else:
        first = e.inputs[1].axes[0].extent if e.inputs[1].ndim else as_expr(1)
    return int(first) if first.is_const else 1


def _iota_index(t: Tensor) -> bool:
    e = t.definition
    while e is not None and e.op in ("reshape", "unsqueeze", "expand"):
        e = e.inputs[0].definition
    return e is not None and e.op == "iota"


def _saved(e: TensorExpr) -> Saving | None:
    """The bytes that a scatter saves when its result is never stored nor read again; None where sizes are symbols."""
    t = e.output
    if not all(d.extent.is_const for d in t.axes):
        return None
    size = size_of(t.axes) * item_size(t.dtype)
    kept = t.fusion.is_output(t)  # it is stored once all the same: what is saved is the copy that would be updated
    return Saving(0 if kept else size, size if kept else 2 * size)


def _proof(e: TensorExpr, few: int) -> tuple[str, ...]:
    """For each entry the claim, decided by the algebra, that the comparisons take the entry that the scatter leaves."""
    n = symbol("n", 1)
    c = symbol("c", 0, n - 1)
    named_ = [symbol(f"index{j}", 0, n - 1) for j in range(few)]
    taken = as_expr(-1)
    for j, i in enumerate(named_):
        taken = where(i.eq(c), j, taken)
    told: list[str] = []
    for j, i in enumerate(named_):
        later = [k.ne(c) for k in named_[j + 1 :]]
        if not isinstance(prove(taken.eq(j), facts=(i.eq(c), *later)), Proof):
            return ()
        rest = " and no later one does" if later else ""
        told.append(f"proved: where index {j} of its row names coordinate c{rest}, element c is entry {j}'s")
    if not isinstance(prove(taken.eq(-1), facts=tuple(k.ne(c) for k in named_)), Proof):
        return ()
    told.append(f"proved: where none does, element c is {e.inputs[0].name}'s own")
    if adds(e):
        told.append("each entry is added where it names the element, in the order of the entries")
    return tuple(told)


def size_of(axes: Sequence[IterDomain]) -> int:
    return sample_points([d.extent for d in axes])


def broadcast_extents(tensors: Sequence[Tensor]) -> list[Expr]:
    """The common shape of tensors that broadcast."""
    rank = max(t.ndim for t in tensors)
    made = [as_expr(1)] * rank
    for t in tensors:
        for p, d in enumerate(t.axes):
            if not d.is_broadcast:
                made[p + rank - t.ndim] = d.extent
    return made
