"""Spaces of row fusions: the rows and columns of a reduction, and the tensors that have a place in them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from idgraph.arith import Expr
from idgraph.ir import (
    SCANS,
    SCATTERS,
    Fixed,
    Fusion,
    IterDomain,
    LoadedCoordinate,
    Mapped,
    Merge,
    Split,
    Tensor,
    TensorExpr,
)
from idgraph.ir.device import current_device
from idgraph.ir.op_builders import REDUCTIONS, same_extent
from idgraph.ir.op_table import MOVES, OPERATIONS, POINTWISE
from idgraph.ir.walks import reach
from idgraph.layout.inference import bytes_of
from idgraph.layout.stride_order import own_order
from idgraph.schedule.access_strides import Orders, read_order
from idgraph.schedule.fusion_segments import CHEAP

Labels = dict[IterDomain, int]
NEAR = 64  # tensors looked at behind a reduction
MOST_PASSES = 8  # over the columns of a row in one kernel


@dataclass(slots=True)
class ReductionDomain:
    """Tensors over one set of rows and columns: ``labels`` says which row or column each axis of a member is.

    Rows are numbered from 0, columns after them; ``extents`` in that order. ``fixed`` holds members that depend on a
    reduction of the space, ``beside`` what is computed from those for members at other columns (a slice, a row turned
    round); ``orders`` what is known of the memory that tensors are computed from, for all spaces.
    """

    rows: int
    extents: tuple[Expr, ...]
    labels: dict[Tensor, Labels] = field(default_factory=dict[Tensor, Labels])
    fixed: set[Tensor] = field(default_factory=set[Tensor])
    beside: set[Tensor] = field(default_factory=set[Tensor])
    orders: Orders = field(default_factory=Orders)

    def is_row(self, t: Tensor) -> bool:
        """True of a member with one number a row: a reduction, or made of those."""
        labels = self.labels.get(t)
        if labels is None or reduces(t):
            return labels is not None
        return not labels or max(labels.values()) < self.rows

    def uses(self, t: Tensor) -> list[TensorExpr]:
        """The readers of ``t``, each once."""
        return list(dict.fromkeys(t.uses))

    def complete(self, labels: Labels) -> bool:
        """True where the axes are all rows, with all columns or none."""
        found = sorted(labels.values())
        return found in ([*range(self.rows)], [*range(len(self.extents))])


def reduces(t: Tensor) -> bool:
    """True of the output of a reduction with one operand."""
    e = t.definition
    return e is not None and e.op in REDUCTIONS and e.is_reduction


def reduction_domains(fusion: Fusion, stored: Collection[Tensor] = ()) -> list[ReductionDomain]:
    """The spaces of a fusion, those of the largest reductions first; a tensor is in one of them at most.

    Of equal ones those come first whose result goes back to all columns, as in a softmax: what is computed there waits
    the rows, and would be a kernel of its own in another space. Reductions that are `MOST_PASSES` or more behind the
    first are in another space too: each computes again what it reads, which many norms in a row would make quadratic.
    Those ``stored`` are in none: they are read from memory.
    """
    made: list[ReductionDomain] = []
    taken: set[Tensor] = set(stored)
    exprs, places, depth = fusion.exprs, dict[Tensor, int](), dict[Tensor, int]()
    orders = Orders({t: (own_order(t),) for t in stored})
    for n, e in enumerate(exprs):
        places[e.output] = n
        depth[e.output] = max((depth.get(p, 0) + reduces(p) for p in e.inputs), default=0)
    for seed in sorted(filter(reduces, places), key=lambda t: (-_size(t), not _goes_back(t))):
        if seed not in taken:
            space = _grown(seed, taken, depth, orders)
            found = [places[t] for t in space.labels]
            span = exprs[min(found) : max(found) + 1]
            _drop_late_members(span, space)
            _drop_members_for_others(span, space)
            taken.update(space.labels)
            made.append(space)
    return made


def _goes_back(seed: Tensor) -> bool:
    """Whether a tensor with as many elements as ``seed`` reduces is computed from its result."""
    near = reach([seed], lambda t: [e.output for e in t.uses if not (e.op in SCATTERS | SCANS or e.is_reduction)], NEAR)
    return any(_size(t) == _size(seed) for t in near if t is not seed)


def _size(t: Tensor) -> int:
    total = 1
    for d in t.logical:
        total *= int(d.extent) if d.extent.is_const else 1 << 20
    return total


def _grown(seed: Tensor, taken: set[Tensor], depth: Mapping[Tensor, int], orders: Orders) -> ReductionDomain:
    """The space of a reduction; ``depth``: reductions that each tensor waits for, one after the other."""
    own = read_order(seed.definition, orders) if seed.definition is not None else ()
    order = sorted(own, key=lambda d: d.kind == "reduction")
    space = ReductionDomain(sum(d.kind != "reduction" for d in own), tuple(d.extent for d in order), orders=orders)
    space.labels[seed] = {d: n for n, d in enumerate(order)}
    open_ = [seed]
    while open_:
        t = open_.pop()
        for other, labels in (*_producers(space, t), *_consumers(space, t)):
            near = abs(depth[other] - depth[seed]) < MOST_PASSES
            if near and other not in space.labels and other not in taken and space.complete(labels):
                space.labels[other] = labels
                open_.append(other)
        if not open_:
            open_ = _whole_again(space, {t for t in space.labels if depth[t] > depth[seed]}, taken)
    return space


def _whole_again(space: ReductionDomain, late: Collection[Tensor], taken: Collection[Tensor]) -> list[Tensor]:
    """New members that are put together of parts of rows: computed over all columns again, from ``late`` members."""
    beside: dict[Tensor, Labels] = {}
    work, made = list(late), list[Tensor]()
    while work:
        t = work.pop()
        for use in t.uses:
            o = use.output
            if o in space.labels or o in beside or o in taken or use.is_reduction:
                continue
            rows = _sibling_row_labels(space, use, beside, late)
            if not rows:
                continue
            rest = [d for d in o.logical if d not in rows and not d.is_broadcast]
            if _same_extents(rest, space.extents[space.rows :]) and not _is_narrow(space):
                space.labels[o] = {**rows, **{d: space.rows + n for n, d in enumerate(rest)}}
                made.append(o)
            else:
                beside[o] = rows
                work.append(o)
    return made


def _producers(space: ReductionDomain, t: Tensor) -> Iterator[tuple[Tensor, Labels]]:
    """Computed operands of ``t`` that could join, with the labels that ``t`` gives their axes."""
    e, known = t.definition, space.labels[t]
    if e is None:
        return
    for p, row in zip(e.inputs, e.reads, strict=True):
        labels: Labels = {}
        fits = p.definition is not None and p.definition.op not in SCATTERS and p.definition.op not in SCANS
        for axis, read in zip(p.axes, row, strict=True):
            match read:
                case Mapped(d) if d in known:
                    labels[axis] = known[d]
                case Fixed(why="broadcast" | "squeeze"):
                    pass
                case _:
                    fits = fits and axis.is_broadcast and not isinstance(read, LoadedCoordinate)
        if fits and _label_reduced(space, p, labels):
            yield p, labels


def _label_reduced(space: ReductionDomain, p: Tensor, labels: Labels) -> bool:
    """Label the reduced axes of ``p``: they must be the columns."""
    reduced = [d for d in p.logical if d.kind == "reduction"]
    columns = space.extents[space.rows :]
    if not reduced:
        return True
    if not reduces(p) or any(n >= space.rows for n in labels.values()) or not _same_extents(reduced, columns):
        return False
    labels.update({d: space.rows + n for n, d in enumerate(reduced)})
    return True


def few_rows() -> int:
    """Fewer rows than two blocks for each multiprocessor get more threads each.

    >>> few_rows()
    264
    """
    return 2 * current_device().processors


def _is_narrow(space: ReductionDomain) -> bool:
    """True where the rows are fewer than the processors, and longer than a block can hold: it would read them again."""
    rows, columns, gpu = (
        product_of(space.extents[: space.rows]),
        product_of(space.extents[space.rows :]),
        current_device(),
    )
    return space.rows == 0 or (
        rows is not None and rows < gpu.processors and (columns is None or columns > gpu.registers)
    )


def _same_extents(axes: Sequence[IterDomain], extents: Sequence[Expr]) -> bool:
    return len(axes) == len(extents) and all(same_extent(d.extent, n) for d, n in zip(axes, extents, strict=True))


def _consumers(space: ReductionDomain, t: Tensor) -> Iterator[tuple[Tensor, Labels]]:
    """Readers of ``t`` that could join, with labels for the axes they are computed over."""
    for use in space.uses(t):
        o, labels, clash = use.output, Labels(), False
        if use.op in SCATTERS or use.op in SCANS:
            continue  # loops over an index, or along an axis in order
        for p, row in zip(use.inputs, use.reads, strict=True):
            known = space.labels.get(p)
            if known is None or any(
                isinstance(r, Fixed) and r.why == "select" and not d.is_broadcast
                for d, r in zip(p.axes, row, strict=True)
            ):
                continue
            for axis, read in zip(p.axes, row, strict=True):
                if isinstance(read, Mapped) and axis in known:
                    clash = clash or labels.setdefault(read.domain, known[axis]) != known[axis]
        rest = [d for d in o.root if d not in labels and not d.is_broadcast]
        free = [n for n in range(len(space.extents)) if n not in labels.values()]
        if clash or (rest and not _same_extents(rest, [space.extents[n] for n in free])):
            continue
        labels.update(dict(zip(rest, free, strict=False)) if rest else {})
        reduced = sorted(labels[d] for d in o.root if d.kind == "reduction" and d in labels)
        columns = [*range(space.rows, len(space.extents))]
        if reduced and not (reduces(o) and reduced == columns):
            continue
        if not reduced and len(labels) > space.rows and _is_narrow(space):
            continue  # a few blocks would write it all: it is a kernel of its own
        # Tensors that are reshaped afterwards are computed over the axes from before.
        if all(isinstance(x, (Split, Merge)) for x in o.domain.exprs) and not (reduced and o.domain.exprs):
            yield o, labels


def _drop_late_members(exprs: Sequence[TensorExpr], space: ReductionDomain) -> None:
    """Drop members computed from tensors outside that depend on the space's reductions: they go to a later kernel.

    Those outside that stand *beside* the space (`_sibling_row_labels`) are computed where members read them.
    ``exprs`` are those from the first member to the last."""
    whole, away = dict(space.labels), set[Tensor]()
    while True:
        space.fixed.clear()
        beside = _fixed(exprs, space, away)
        lost = {t for t in beside if t.fusion.is_output(t) or not all(_stays(space, u, beside) for u in t.uses)}
        if not lost:
            space.beside = {*beside}
            return
        away |= lost
        space.labels.clear()
        space.labels.update(whole)


def _drop_members_for_others(exprs: Sequence[TensorExpr], space: ReductionDomain) -> None:
    """Drop members over the columns that only other kernels read, where these take no longer when they compute them
    from numbers of each row and what the columns are made of: then this one writes these numbers only."""
    away: set[Tensor] = set()
    for e in reversed(exprs):
        t = e.output
        if t not in space.fixed or space.is_row(t) or t.fusion.is_output(t):
            continue
        uses = space.uses(t)
        readers = [u for u in uses if u.output not in away]
        view = (
            e.op in MOVES and e.inputs[0] in space.fixed and _size(e.inputs[0]) == _size(t)
        )  # what it is of is stored
        if (
            uses
            and not any(_stays(space, u, {}) or u.output in space.beside for u in uses)
            and (not readers or view or computes_sooner(space, t, readers))
        ):
            if not view:  # its readers read what it is a view of
                away.add(t)
            space.fixed.remove(t)
            del space.labels[t]


def computes_sooner(space: ReductionDomain, t: Tensor, readers: Sequence[TensorExpr]) -> bool:
    """Whether readers compute ``t`` from what it is made of sooner than it is stored and read: by the bytes of each,
    and by its operations on all elements that they compute it for (each of a row, for all pairs of rows)."""
    if not all(u.op in POINTWISE or u.op in MOVES or u.op in REDUCTIONS for u in readers):
        return False
    gpu, points = current_device(), sum(map(_points_behind, readers))
    work = again = 0
    arithmetic = 0.0
    seen, stack = set[Tensor](), [t]
    while stack:
        u = stack.pop()
        e = u.definition
        if u in seen or (u in space.labels and space.is_row(u)):  # a number of each row
            continue
        seen.add(u)
        if e is None or reduces(u) or u.fusion.is_output(u):  # read from memory
            again += bytes_of(u)
            continue
        work += e.op in POINTWISE and _size(u) >= _size(t)
        if work > CHEAP or len(seen) > NEAR or (e.op not in POINTWISE and e.op not in MOVES):
            return False
        cycles = OPERATIONS[e.op].cycles if e.op in POINTWISE else "free"
        arithmetic += 0 if cycles == "free" else points / gpu.rate(u.dtype, special=cycles != "plain")
        stack += e.inputs
    return len(readers) * again / gpu.bandwidth + arithmetic <= (1 + len(readers)) * bytes_of(t) / gpu.bandwidth


def _points_behind(use: TensorExpr) -> int:
    """The elements that a reader's operands are computed for: of the largest tensor up to the next reduction."""
    return max(map(_size, reach([use.output], lambda u: () if reduces(u) else [x.output for x in u.uses], NEAR)))


def _stays(space: ReductionDomain, use: TensorExpr, beside: Mapping[Tensor, Labels]) -> bool:
    return use.output in space.labels or use.output in beside


def _fixed(exprs: Sequence[TensorExpr], space: ReductionDomain, away: Collection[Tensor]) -> dict[Tensor, Labels]:
    """Find the members that depend on the space's reductions, and drop those that do so through a tensor outside.

    Returns the tensors beside the space, with the labels of their rows; those ``away`` are not."""
    outside: set[Tensor] = set()
    beside: dict[Tensor, Labels] = {}
    for e in exprs:
        t = e.output
        late = any(p in space.fixed or p in beside for p in e.inputs)
        reads_beside = any(p in beside for p in e.inputs)
        asks = late and (reads_beside or t not in space.labels) and not any(p in outside for p in e.inputs)
        rows = _sibling_row_labels(space, e, beside, space.fixed) if asks else {}
        if t in space.labels and reads_beside:
            own = {d: n for d, n in space.labels[t].items() if n < space.rows}
            rows = rows if rows == own else None
        if any(p in outside for p in e.inputs) or rows is None or t in away:
            outside.add(t)
            space.labels.pop(t, None)
        elif t in space.labels:
            if reduces(t) or late:
                space.fixed.add(t)
        elif late:
            beside[t] = rows
    return beside


def _sibling_row_labels(
    space: ReductionDomain, e: TensorExpr, beside: Mapping[Tensor, Labels], late: Collection[Tensor]
) -> Labels | None:
    """The rows of a tensor that is read, or computed, at other columns of the same rows: part of a row, or a row turned
    round. Computed where it is read, it needs numbers of that row only. None where it needs other rows, or much work.
    ``late`` members depend on the space's reductions."""
    t, found = e.output, Labels()
    member = t in space.labels
    if not member and (e.op not in POINTWISE and e.op not in MOVES):
        return None
    for p, row in zip(e.inputs, e.reads, strict=True):
        known = beside.get(p) or (space.labels[p] if p in late else {})
        for axis, read in zip(p.axes, row, strict=True):
            n = known.get(axis, space.rows)
            if n < space.rows and not (
                isinstance(read, Mapped) and read.domain in t.logical and found.setdefault(read.domain, n) == n
            ):
                return None
        if not member and p in late and not space.is_row(p) and _work(space, p) > CHEAP:
            return None
    whole = sorted(found.values()) == [*range(space.rows)]
    return found if whole or member else None


def _work(space: ReductionDomain, t: Tensor) -> int:
    """Operations that compute a member from inputs and numbers of its row; many where it is made of a reduction."""
    count, stack, seen = 0, [t], set[Tensor]()
    while stack and count <= CHEAP:
        u = stack.pop()
        e = u.definition
        if u in seen or e is None or (u in space.labels and space.is_row(u)):
            continue
        seen.add(u)
        count += CHEAP + 1 if e.op not in POINTWISE and e.op not in MOVES else e.op in POINTWISE
        stack += e.inputs
    return count


def product_of(extents: Sequence[Expr]) -> int | None:
    """The number of points; None where an extent is open."""
    total = 1
    for n in extents:
        if not n.is_const:
            return None
        total *= int(n)
    return total
