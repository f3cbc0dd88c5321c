"""Row fusions: reductions over the same axes, and what is pointwise around them, in one nest over the rows.

A *space* is the rows (kept axes) and columns (reduced axes) of a reduction; every tensor whose axes are rows, or rows
and columns, joins it. Reductions and tensors of one number a row are inlined at the rows, so that each row's results
stay with its threads; what is pointwise over the columns is computed again for each reduction or output that needs it
(`recompute`), so that nothing as large as the input is stored in between.

Rows that lie across memory and are written along it: what they are computed from is transposed first.

A reduction whose input has its rows side by side gets neighbouring threads on neighbouring rows (`is_outer_reduction`);
what it writes over its columns, where these are what is contiguous in the result, then goes to a sector of its own for
each element. Stored with its columns side by side, by a kernel that goes through tiles in shared memory, the row is
read and written along memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from idgraph.arith import Expr
from idgraph.graphs.index_graph import Legal
from idgraph.ir import SCANS, Fusion, IterDomain, LoadedCoordinate, Mapped, Tensor, TensorExpr, item_size
from idgraph.ir import loop_transforms as loop_steps
from idgraph.ir.device import current_device
from idgraph.ir.op_table import apply
from idgraph.ir.schedule_log import ReductionDecision, Ruled, TilingDecision
from idgraph.ir.walks import operands, reach
from idgraph.layout.stride_order import own_order
from idgraph.schedule.config import RULE, KernelConfig
from idgraph.schedule.fusion_segments import followed_scans, narrowest, repeated_gathers
from idgraph.schedule.inlining import inline_most, private_copy
from idgraph.schedule.legality import nest_error, sharing
from idgraph.schedule.reduction_domain import (
    NEAR,
    ReductionDomain,
    computes_sooner,
    product_of,
    reduces,
    reduction_domains,
)
from idgraph.schedule.reduction_persistence import ReductionGroup
from idgraph.schedule.reduction_tiling import BLOCK, ReductionTiling, choose_reduction_tiling, is_outer_reduction
from idgraph.schedule.tiling import base_axes, reference_accesses
from idgraph.schedule.tiling_cost import Tiling, tiling_cost

# private copies -------------------------------------------------------------------------------------------------------


# The reduction or output that a value is computed for; ROWS: anything of one number a row; ENDS: what is written over
# the columns, all in one pass.
Owner = Tensor | str
Order = dict[TensorExpr, tuple[int, ...]]
"""The order of operations while copies are made: one that stands in front of ``(p, 1)`` is ``(p, 0, n, 1)``.

One for all spaces: the fusion's own order would be made anew for each, in time proportional to all operations."""
_KEPT = frozenset({"iteration", "broadcast"})  # kinds of axes of what is not reduced, nor written at loaded places
ROWS = "rows"
ENDS = "ends"


def separate(
    space: ReductionDomain, home: Mapping[Tensor, ReductionDomain], outputs: Collection[Tensor], order: Order
) -> set[Tensor]:
    """Give each reduction and each output a copy of its own of what it computes over the columns.

    ``home`` has the members of all spaces: those of others are copied for readers here when theirs is separated.
    ``outputs`` are the fusion's; ``order`` gets the places of copies. Returns the members that end in memory and are
    read from there: outputs over the columns, what other kernels read.
    """
    ends = {t for t in space.labels if not space.uses(t) or (t in outputs and not space.is_row(t))}
    known, fixed = space.labels.keys() | space.beside, in_order(space.fixed, order)
    for t in reversed(fixed):
        if t in outputs or space.is_row(t):
            continue
        outside = [u for u in space.uses(t) if u.output not in known]
        if 0 < len(outside) < len(space.uses(t)) and computes_sooner(space, t, outside):
            _copied(space, t, outside, order)
    for t in fixed:
        outside = [u for u in space.uses(t) if u.output not in space.labels and u.output not in space.beside]
        if outside and len(outside) == len(space.uses(t)):
            ends.add(t)
        elif outside and t not in ends:
            ends.add(_stored_copy(space, t, outside, order))
    owner: dict[Tensor, Owner] = {}
    alone_: dict[Tensor, bool] = {}

    def stays(t: Tensor) -> bool:
        if t not in alone_:
            alone_[t] = home.get(t, space) is not space or _stays_alone(t)
        return alone_[t]

    for e in _members_and_neighbours(space, stays, order):
        t = e.output
        groups, alone = _by_owner(space, t, owner, ends), stays(t)
        if t in space.labels and space.is_row(t):
            owner[t] = t if reduces(t) or t in ends else ROWS
            copied = [] if alone or t in space.fixed or t in ends else _outside(space, t, groups)
        elif t in ends:
            owner[t] = ENDS
            copied = [] if alone else [(k, [u for u in g if u.output in space.labels]) for k, g in groups.items()]
        elif alone or not any(k in (ROWS, ENDS) or k in space.labels for k in groups):
            owner[t] = t if alone or len(groups) != 1 else next(iter(groups))
            copied = []
            if owner[t] is not t:  # its loops are those of a reader outside
                space.labels.pop(t, None)
        else:
            first, *rest = groups.items()
            owner[t] = first[0]
            copied = rest
        for key, uses in copied:
            if uses:
                owner[_copied(space, t, uses, order)] = key
    return ends


def in_order(tensors: Iterable[Tensor], order: Order) -> list[Tensor]:
    """Computed tensors in the order of the operations that make them."""
    made = [(e, t) for t in tensors if (e := t.definition) is not None]
    return [t for _, t in sorted(made, key=lambda pair: order[pair[0]])]


def _members_and_neighbours(space: ReductionDomain, stays: Callable[[Tensor], bool], order: Order) -> list[TensorExpr]:
    """The members, and what is computed for them or from them up to what stays by itself; readers first."""
    found = {t.definition for t in space.labels}
    up, down = list(found), list[TensorExpr]()
    while up:
        e = up.pop()
        if e is not None and (e.output in space.labels or not stays(e.output)):
            down.append(e)
            new = {p.definition for p in e.inputs} - found
            found |= new
            up += new
    while down:
        e = down.pop()
        if e.output in space.labels or not stays(e.output):
            new = set(e.output.uses) - found
            found |= new
            down += new
    return sorted((e for e in found if e is not None), key=order.__getitem__, reverse=True)


def _stays_alone(t: Tensor) -> bool:
    """True of what is not worth, or not able, to be computed twice: reductions, scans, scatters, what is gathered
    from."""
    e = t.definition
    if e is None or e.op in SCANS or not _KEPT.issuperset([d.kind for d in t.logical]):
        return True
    for u in t.uses:
        for p, row in zip(u.inputs, u.reads, strict=True):
            if p is t and LoadedCoordinate in map(type, row):
                return True
    return False


def _by_owner(
    space: ReductionDomain, t: Tensor, owner: dict[Tensor, Owner], ends: set[Tensor]
) -> dict[Owner, list[TensorExpr]]:
    found: dict[Owner, list[TensorExpr]] = {}
    for u in space.uses(t):
        o = u.output
        row = o in space.labels and space.is_row(o) and not reduces(o) and o not in ends
        found.setdefault(ROWS if row else owner.get(o, o), []).append(u)
    return found


def _outside(
    space: ReductionDomain, t: Tensor, groups: dict[Owner, list[TensorExpr]]
) -> list[tuple[Owner, list[TensorExpr]]]:
    """The readers of a number of each row that are not in the space, or read it along other axes of it."""
    return [(k, [u for u in g if not _reads_in_place(space, t, u)]) for k, g in groups.items()]


def _reads_in_place(space: ReductionDomain, t: Tensor, use: TensorExpr) -> bool:
    own, labels = space.labels[t], space.labels.get(use.output)
    if labels is None:
        return False
    reads = [
        (d, r) for x, row in zip(use.inputs, use.reads, strict=True) if x is t for d, r in zip(t.axes, row, strict=True)
    ]
    return all(labels.get(r.domain, own[d]) == own[d] for d, r in reads if d in own and isinstance(r, Mapped))


def _stored_copy(space: ReductionDomain, t: Tensor, outside: Sequence[TensorExpr], order: Order) -> Tensor:
    """A copy of ``t`` in memory, which other kernels read."""
    fusion = t.fusion
    with fusion.at_line(t.definition.source_line if t.definition is not None else None):
        made = apply(fusion, "copy", (t,), {}, None)
    first, *others = sorted(outside, key=order.__getitem__)
    for use in (*reversed(others), first):
        fusion.replace_operand(use, t, made)
    _in_front(made, first, order)
    space.labels[made] = {b: n for a, b in zip(t.axes, made.axes, strict=True) for n in _label(space, t, a)}
    return made


def _label(space: ReductionDomain, t: Tensor, d: IterDomain) -> list[int]:
    return [space.labels[t][d]] if d in space.labels[t] else []


def _copied(space: ReductionDomain, t: Tensor, uses: Sequence[TensorExpr], order: Order) -> Tensor:
    """A private copy of ``t`` for ``uses``; ``order`` gets its place, in front of the first of them."""
    fusion = t.fusion
    inside = t in space.labels and all(_reads_in_place(space, t, u) for u in uses)
    *others, last = sorted(uses, key=order.__getitem__)
    made = private_copy(t, last)
    for use in reversed(others):
        fusion.replace_operand(use, t, made)
    _in_front(made, others[0] if others else last, order)
    if inside:
        pairs = (*zip(t.root, made.root, strict=True), *zip(t.logical, made.logical, strict=True))
        space.labels[made] = {b: n for a, b in pairs for n in _label(space, t, a)}
    return made


def _in_front(made: Tensor, use: TensorExpr, order: Order) -> None:
    """Note that ``made`` is computed directly in front of its first reader."""
    if made.definition is not None:
        order[made.definition] = (*order[use][:-1], 0, len(order), 1)


def apply_loops(space: ReductionDomain, t: Tensor, how: ReductionTiling) -> None:
    """Loops of a member: rows on blocks, columns on threads and lanes."""
    labels = space.labels[t]
    if not all(d in t.loop for d in labels):
        t.set_loop(t.root)
    if not labels:
        return
    order = sorted(range(len(t.loop)), key=lambda p: labels.get(t.loop[p], len(space.extents)))
    t.row_loops(
        order[: space.rows], order[space.rows : len(labels)],
        threads=how.threads, rows=how.rows, lanes=how.lanes, side=how.side, across=how.across,
    )  # fmt: skip


@dataclass(slots=True)
class Scheduled:
    """``members`` have their loops; those in ``inlined`` are to be inlined at the position given. ``again`` are the
    reductions of rows with several passes, ``decisions`` and ``rules`` say what was decided, for each of ``groups``.
    ``loops`` are those of the whole fusion as it was left, where one graph has proved them legal. ``staged``: see
    `staged_rows`."""

    members: set[Tensor] = field(default_factory=set[Tensor])
    inlined: list[tuple[Tensor, int]] = field(default_factory=list[tuple[Tensor, int]])
    again: set[Tensor] = field(default_factory=set[Tensor])
    decisions: list[ReductionDecision] = field(default_factory=list[ReductionDecision])
    groups: list[ReductionGroup] = field(default_factory=list[ReductionGroup])
    rules: list[Ruled] = field(default_factory=list[Ruled])
    tilings: list[TilingDecision] = field(default_factory=list[TilingDecision])
    loops: Legal | None = None
    staged: set[Tensor] = field(default_factory=set[Tensor])

    def note(self, space: ReductionDomain, ends: set[Tensor], how: ReductionTiling, order: Order, count: int) -> None:
        """Record what was decided for a space, whose columns are passed over ``count`` times."""
        sums = in_order(filter(reduces, space.labels), order)
        self.again.update(sums if count > 1 else ())
        self.groups.append(
            ReductionGroup(space, how, in_order((*sums, *(t for t in ends if not space.is_row(t))), order))
        )
        rows, columns = (_times(space.extents[a:b]) for a, b in ((0, space.rows), (space.rows, None)))
        self.decisions.append(
            ReductionDecision(
                tuple(t.name for t in sums), rows, columns, how.threads, how.rows, how.lanes, count, how.why
            )
        )

    def inline(self, *, agreed: bool = False) -> None:
        """Inline what belongs to rows; what no loop nest can (``agreed``: one can all of it) stays in memory."""
        for t, position in self.inlined:
            loop_steps.inline(t, position)
        shared = [t for t, _ in self.inlined if t.inline_position]
        if shared and not agreed and nest_error(shared[0].fusion, sharing(*shared)) is not None:
            for t in shared:
                loop_steps.inline(t, 0)
            inline_most(shared[0].fusion, shared)


def passes(space: ReductionDomain, ends: set[Tensor], order: Order) -> int:
    """How often a kernel goes over the columns: a value over them that waits for a reduction is one pass behind it."""
    depth: dict[Tensor, int] = {}
    found = 1
    for t in _to_members(space, order):
        e = t.definition
        inputs = e.inputs if e is not None else ()
        depth[t] = max((depth.get(p, 0) + (reduces(p) and p in space.labels) for p in inputs), default=0)
        if t in space.labels and (reduces(t) or (t in ends and not space.is_row(t))):
            found = max(found, 1 + depth[t])
    return found


def _to_members(space: ReductionDomain, order: Order) -> list[Tensor]:
    """The members, and what stands between the first of them and those that are computed from it, in order."""
    first = min(order[e] for t in space.labels if (e := t.definition) is not None)

    def late(t: Tensor) -> list[Tensor]:
        return [p for p in operands(t) if p.definition is not None and order[p.definition] > first]

    return in_order(set(reach(space.labels, late)), order)


def _times(extents: Sequence[Expr]) -> str:
    return " x ".join(map(str, extents)) or "1"


def share_equal(fusion: Fusion) -> None:
    """Operations that do the same to the same tensors are done once: only the first of them stays.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(4, 8))
    >>> t = f.output(ig.sum(x, 1) * ig.sum(x, 1))
    >>> share_equal(f)
    >>> [u.name for u in t.definition.inputs]
    ['t1', 't1']
    """
    for t, first in equal_tensors(fusion).items():
        if first is not t:
            fusion.replace(t, first)


def equal_tensors(fusion: Fusion) -> dict[Tensor, Tensor]:
    """For each computed tensor the first one that does the same to the same; an output is equal to itself only."""
    found: dict[Tensor, Tensor] = {}
    known: dict[object, Tensor] = {}
    for e in fusion.exprs:
        args = tuple(id(found.get(a, a)) if isinstance(a, Tensor) else (type(a).__name__, repr(a)) for a in e.args)
        attrs = tuple((k, repr(v)) for k, v in sorted(e.attrs.items()))
        first = known.setdefault((e.op, args, attrs, e.output.dtype), e.output)
        alone = fusion.is_output(e.output) or len(e.outputs) != 1
        found[e.output] = e.output if alone else first
    return found


def schedule_rows(fusion: Fusion, config: KernelConfig = RULE) -> Scheduled:
    """Loops for every reduction and what belongs to its rows; the rest of the fusion follows them."""
    done = Scheduled()
    if any(reduces(t) for t in fusion.tensors):
        share_equal(fusion)
    again = repeated_gathers(fusion)
    scanned = {t for t in followed_scans(fusion).values() if reduces(t)}
    found = reduction_domains(fusion, again | scanned)
    done.staged = again | repeated_windows(fusion, found) | staged_rows(fusion, found)
    if done.staged != again:
        found = reduction_domains(fusion, scanned | done.staged)
    home = {t: space for space in found for t in space.labels} | {t: ReductionDomain(0, ()) for t in done.staged}
    outputs = frozenset(fusion.outputs)
    order: Order = {e: (n, 1) for n, e in enumerate(fusion.exprs)}
    for space in found:
        across = is_outer_reduction(
            space
        )  # asked here: what copies are read along follows from what they are copies of
        ends = separate(space, home, outputs, order)
        home.update(dict.fromkeys(space.labels, space))
        count = passes(space, ends, order)
        how = choose_reduction_tiling(space, any(not space.is_row(t) for t in ends), across, count, config)
        done.note(space, ends, how, order, count)
        for t in in_order(space.labels, order):
            if not (space.is_row(t) or t in ends):
                continue
            apply_loops(space, t, how)
            done.members.add(t)
            uses = space.uses(t)
            inside = [u for u in uses if u.output in space.labels]
            if t not in ends and inside and len(inside) == len(uses) and space.rows:
                done.inlined.append((t, how.row_loops))
    for space in found:
        space.orders.clear()  # nobody asks again, and they are as many as the tensors
    return done


def staged_rows(fusion: Fusion, spaces: Sequence[ReductionDomain]) -> set[Tensor]:
    """The tensors that are stored with the columns of their space side by side, by estimated time; those that are not
    outputs are laid out so."""
    found: set[Tensor] = set()
    for space in spaces:
        rows, count = product_of(space.extents[: space.rows]), product_of(space.extents[space.rows :])
        written = [t for t in space.labels if _is_written_along(space, t)]
        if rows is None or count is None or not written or not is_outer_reduction(space):
            continue
        cut = _boundary(space)
        if not cut or any(not _is_stageable(space, t) for t in cut):
            continue
        gpu, points = current_device(), rows * count
        scattered = sum(max(gpu.sector, item_size(t.dtype)) * points / gpu.cache_bandwidth for t in written)
        dense = sum(item_size(t.dtype) * points / gpu.bandwidth for t in written)
        moved = sum((1 + (t not in fusion.outputs)) * item_size(t.dtype) * points / gpu.bandwidth for t in cut)
        if (scattered - dense - moved) * 1e6 > gpu.launch_us:
            found.update(cut)
            for t in cut:
                if t not in fusion.outputs:
                    labels = space.labels[t]
                    t.set_allocation(sorted(t.axes, key=lambda d: labels.get(d, -1)))
    return found


def repeated_windows(fusion: Fusion, spaces: Sequence[ReductionDomain]) -> set[Tensor]:
    """Tensors that several kernels would compute over all columns of a space, from several places of memory for each
    element (means of windows between two stages of a norm), and that take less time stored once, by their accesses.

    >>> import idgraph as ig
    >>> from idgraph.schedule.reduction_domain import reduction_domains
    >>> f = ig.Fusion("f")
    >>> p = ig.pad(f.input("x", (512, 64, 64)), [1, 1, 1, 1])
    >>> y = sum(p[:, i : 64 + i, k : 64 + k] for i in range(3) for k in range(3))
    >>> rows, columns = f.output(ig.sum(y, 2)), f.output(ig.sum(y, 0))
    >>> repeated_windows(f, reduction_domains(f)) == {y}
    True
    """
    if not any(e.op == "slice" for e in fusion.exprs):  # a window is made of slices
        return set()
    home = {t: space for space in spaces for t in space.labels}
    found = dict[Tensor, None]()
    for space in spaces:
        for t in _boundary(space):
            times = len(_kernels_behind(t, home))
            if times > 1 and not fusion.is_output(t) and _is_cheaper_stored(t := narrowest(t, ()), times):
                found[t] = None
    return set(found)


def _kernels_behind(t: Tensor, home: Mapping[Tensor, ReductionDomain]) -> set[object]:
    """The kernels that a tensor is computed for: of spaces, and those of what is written outside of them."""
    found, seen, work = set[object](), {t}, [t]
    while work and len(seen) < NEAR:
        u = work.pop()
        ends = reduces(u) or not u.uses or u.fusion.is_output(u)
        found.update([id(home[u]) if u in home else u] if ends else [])
        new = [use.output for use in u.uses if use.output not in seen] if not reduces(u) else []
        seen.update(new)
        work += new
    return found


def _is_cheaper_stored(t: Tensor, times: int) -> bool:
    """Whether all kernels read ``t`` sooner, with the one that stores it, than they compute it."""
    base, gpu = base_axes(t), current_device()
    known = all(d.extent.is_const and int(d.extent) for d in base) and all(d.kind == "iteration" for d in base)
    accesses = reference_accesses(t, base, ()) if known and base else None
    if accesses is None or len(accesses) < 3:
        return False
    own, *reads = accesses
    tiling = Tiling(base, run=min(gpu.lanes(a.item) for a in accesses))
    read, again, store = (tiling_cost(tiling, x, BLOCK, gpu).time_us for x in ([own], reads, accesses))
    return store + times * read + gpu.launch_us < times * again


def _is_written_along(space: ReductionDomain, t: Tensor) -> bool:
    """Whether a member is written with its columns side by side."""
    if space.is_row(t) or (t.uses and not t.fusion.is_output(t)):
        return False
    order = [d for d in own_order(t).axes if d in space.labels[t]]
    return bool(order) and space.labels[t][order[-1]] >= space.rows


def _boundary(space: ReductionDomain) -> list[Tensor]:
    """The members over all columns, computed from no reduction of the space, that its reductions and what waits for
    those are computed from; before conversions to a wider type, and without those that are computed from others."""
    found: dict[Tensor, None] = {}  # in order, which is that of the steps in a schedule's text
    for t in space.labels:
        e = t.definition
        if e is not None and (reduces(t) or t in space.fixed):
            wide = [_unconverted(space, p) for p in e.inputs if _is_wide(space, p) and p not in space.fixed]
            found.update(dict.fromkeys(wide))
    return [t for t in found if not _is_computed_from(space, t, found.keys() - {t})]


def _is_computed_from(space: ReductionDomain, t: Tensor, others: Collection[Tensor]) -> bool:
    """Whether all that ``t`` reads over all columns are ``others``, or computed from those."""
    work, seen, met = [t], set[Tensor](), False
    while work:
        e = work.pop().definition
        for p in () if e is None else e.inputs:
            if p in seen:
                continue
            seen.add(p)
            if _unconverted(space, p) in others:
                met = True
            elif p in space.labels and not space.is_row(p):
                work.append(p)
            elif p.definition is None and len([d for d in p.logical if not d.is_broadcast]) == len(space.extents):
                return False
    return met


def _is_wide(space: ReductionDomain, t: Tensor) -> bool:
    return t in space.labels and not space.is_row(t) and t.definition is not None


def _unconverted(space: ReductionDomain, t: Tensor) -> Tensor:
    """The operand of a conversion to a wider type, where that is a member."""
    e = t.definition
    while e is not None and e.op == "cast" and _is_wide(space, e.inputs[0]):
        if item_size(e.inputs[0].dtype) > item_size(t.dtype):
            break
        t, e = e.inputs[0], e.inputs[0].definition
    return t


def _is_stageable(space: ReductionDomain, t: Tensor) -> bool:
    """Whether a member can be stored so: it has all axes, in any order, and no other layout is demanded of it."""
    labels = space.labels[t]
    if len(labels) != len(space.extents) or any(d.kind == "reduction" for d in t.logical) or t.domain.exprs:
        return False
    return not t.fusion.is_output(t) or _is_stored_along(space, t)


def _is_stored_along(space: ReductionDomain, t: Tensor) -> bool:
    order = [d for d in own_order(t).axes if d in space.labels[t]]
    return space.labels[t][order[-1]] >= space.rows
