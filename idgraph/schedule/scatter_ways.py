"""The ways of a scatter and what each costs, in microseconds of the device in force.

Bytes go at the device's bandwidth, a launch takes its time, and where entries are visited one after another each waits
for memory, which nothing hides.
"""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.arith import Expr, Proof, as_expr, prove, symbol, where
from idgraph.ir import (
    IterDomain,
    Mapped,
    Tensor,
    TensorExpr,
    adds,
    entry_axes,
    has_atomic_update,
    item_size,
    scatter_axes,
)
from idgraph.ir.device import current_device
from idgraph.ir.schedule_log import Decision, Option, Saving
from idgraph.ir.writer_order import ordered_entries
from idgraph.rewrite.gather_strategy import place_of, sample_points
from idgraph.schedule.config import ADDED_TOGETHER

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
    x = e.inputs[0]
    if e.op == "index_put":
        value = e.attrs["dims"]
        dims = [d % x.ndim for d in value if isinstance(d, int)] if isinstance(value, tuple) else []
        indices = e.inputs[1 : 1 + len(dims)]
        if not dims or dims != list(range(dims[0], dims[0] + len(dims))) or not any(t.ndim for t in indices):
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
