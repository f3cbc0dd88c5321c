"""Transposes through tiles in shared memory: inputs whose memory runs along another axis than the output's.

An input read along axis a, an output written along axis b: no order of threads makes both accesses coalesced.
A block copies a tile of a by b into shared memory along a, waits, and computes along b. Rows of the tile are
128 bytes; its 16-byte chunks are permuted by their row ("xor"), so that neither the rows that are written nor the
columns that are read meet in one bank.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd, prod

from idgraph.arith import Expr, as_expr, simplify
from idgraph.index.allocation import strides
from idgraph.ir import SCANS, IterDomain, Mapped, Merge, Tensor, TensorExpr, item_size
from idgraph.ir.device import current_device, floor_power_of_two
from idgraph.ir.loop_transforms import reset
from idgraph.ir.op_table import apply
from idgraph.schedule.inlining import inline_far
from idgraph.schedule.tiling import TilingChoice
from idgraph.schedule.tiling_cost import TilingCost, staged_cost
from idgraph.schedule.transform_replay import like_consumer

Axes = Mapping[IterDomain, IterDomain]
# Rows and columns of a tile, in times that all banks are filled: on an H200 256 bytes moved at 0.96 of a copy's speed,
# 128 at 0.92, 64 at 0.78.
SIDES = ((2, 2), (2, 1), (1, 1))
WASTE = 1.1  # threads of tiles that lie across the end of an axis, beside those with work
STEPS = 4  # vectors that one thread moves at most, so that several loads are on their way
LANES = 32  # elements that one thread moves at most: more take long to compile
THREADS = 512
BLOCKS = 4  # at least, that have to find room for all their tiles in a multiprocessor
LEAST = 8  # elements along each of the two axes for which a tile is worth its barrier


@dataclass(frozen=True, slots=True)
class Tiled:
    """An input to be read through a tile: ``use`` reads it as operand ``operand``, along ``fast`` of the output."""

    use: TensorExpr
    operand: int
    fast: IterDomain
    axes: Axes  # the input's axes -> axes of the output

    @property
    def tensor(self) -> Tensor:
        """The input."""
        return self.use.inputs[self.operand]


@dataclass(frozen=True, slots=True)
class TransposeNest:
    """A reference with the tensors that follow it, consumers first, each with the use and operand that it follows."""

    reference: Tensor
    members: Mapping[Tensor, tuple[TensorExpr, int]]


@dataclass(frozen=True, slots=True)
class SharedTile:
    """A copy of an input in shared memory; its loops follow ``use``, which reads it as operand ``operand``."""

    copy: Tensor
    use: TensorExpr
    operand: int


@dataclass(frozen=True, slots=True)
class TransposePlan:
    """The loops of a reference: ``axes`` in ``groups``, those numbered ``columns`` (along which inputs run)
    and ``rows`` (along which the output runs) cut into tiles of ``wide`` columns by ``tall`` rows.

    ``width`` elements make a chunk; ``threads`` threads move a tile, ``beside`` of them side by side along a row of it;
    ``waste`` times as many as have work.
    """

    axes: tuple[IterDomain, ...]
    groups: tuple[tuple[IterDomain, ...], ...]
    columns: int
    rows: int
    wide: int
    tall: int
    width: int
    threads: int
    beside: int
    waste: float


def tile_transposes(nests: Sequence[TransposeNest], direct: Mapping[Tensor, TilingChoice]) -> dict[Tensor, TilingCost]:
    """Reschedule those of ``nests`` that read inputs along another axis than they write, unless the ``direct`` way that
    the search found for a reference costs no more. Returns what those that are rescheduled cost beside it."""
    done: dict[Tensor, TilingCost] = {}
    stored = {nest.reference for nest in nests if not nest.reference.inline_position}
    for nest in nests:
        base = _base(nest.reference)
        fast = _fast(nest.reference, base)
        if fast is None or _scans(nest):
            continue
        found = _tiled(nest, base, fast, stored)
        for count in range(len(found), 0, -1):  # as many as shared memory has room for
            plan = _plan(nest.reference, base, fast, found[:count])
            if plan is None:
                continue
            choice = direct.get(nest.reference)
            if choice is not None:
                done[nest.reference] = _staged(choice, plan, found[:count])
                if choice.cost.time_us <= done[nest.reference].time_us and not choice.tiling.warp:
                    del done[nest.reference]
                    break
            _schedule(nest, plan, [_tile(nest, x) for x in found[:count]])
            break
    return done


def _staged(choice: TilingChoice, plan: TransposePlan, found: Sequence[Tiled]) -> TilingCost:
    """The estimated cost of a plan, by the accesses that the search has looked at."""
    points = prod(int(d.extent) for d in choice.tiling.axes)
    staged = sum(points * item_size(x.tensor.dtype) for x in found)
    return staged_cost(
        choice.accesses, points, staged, plan.waste, (plan.wide * plan.tall, plan.width), current_device()
    )


def _scans(nest: TransposeNest) -> bool:
    """Whether running values are made in the nest: their axis stays in order, and a tile would cut it into blocks."""
    made = (t.definition for t in (nest.reference, *nest.members))
    return any(e is not None and e.op in SCANS for e in made)


# which inputs ---------------------------------------------------------------------------------------------------------


def _base(t: Tensor) -> tuple[IterDomain, ...]:
    """The axes of a reference to loop over: before a final flattening, so that the axes that it joins can be
    distinguished."""
    if t.domain.exprs and all(isinstance(x, Merge) for x in t.domain.exprs) and t.allocation == t.axes:
        return t.root
    return t.logical


def _fast(t: Tensor, base: Sequence[IterDomain]) -> IterDomain | None:
    """The axis along which neighbours of ``t`` stand side by side in memory; None where no tile helps."""
    if any(d.kind == "reduction" or not d.extent.is_const for d in t.logical):
        return None
    order = _in_memory(t, base)
    return order[-1][0] if order and order[-1][1] == 1 else None


def _in_memory(t: Tensor, base: Sequence[IterDomain] = ()) -> list[tuple[IterDomain, int, int]]:
    """(axis, stride, extent) of the axes with more than one element, the slowest first; empty where a stride is open.

    For a reference, of its ``base`` axes: those before a flattening are contiguous.
    """
    axes, steps = (t.allocation, strides(t)) if not base or tuple(base) == t.logical else (base, _contiguous(base))
    found = [(d, s, d.extent) for d, s in zip(axes, steps, strict=True) if not d.is_broadcast]
    if any(not (s.is_const and n.is_const) for _, s, n in found) or (base and any(d not in base for d in axes)):
        return []
    return sorted(((d, int(s), int(n)) for d, s, n in found), key=lambda x: -x[1])


def _contiguous(axes: Sequence[IterDomain]) -> list[Expr]:
    made: list[Expr] = []
    inner = as_expr(1)
    for d in reversed(axes):
        made.insert(0, inner)
        inner = simplify(inner * d.extent)
    return made


def _traced(e: TensorExpr, known: Axes) -> Iterator[Axes]:
    """For each operand of ``e`` its axes with the reference's axes, but for those that a split or merge hides."""
    inside = {d: known[d] for d in e.output.root if d in known}
    for t, row in zip(e.inputs, e.reads, strict=True):
        pairs = zip(t.axes, row, strict=True)
        yield {axis: inside[r.domain] for axis, r in pairs if isinstance(r, Mapped) and r.domain in inside}


def _tiled(
    nest: TransposeNest, base: Sequence[IterDomain], fast: IterDomain, stored: Collection[Tensor]
) -> list[Tiled]:
    """Inputs (or what an earlier kernel has ``stored``) that run along one other axis of the output, and have all of
    its axes; those of the first such axis."""
    known: dict[Tensor, Axes] = {nest.reference: {d: d for d in base}}
    wide = {d for d in base if not d.is_broadcast}
    found: list[Tiled] = []
    for t in (nest.reference, *nest.members):
        e = t.definition
        if e is None or t not in known:
            continue
        for k, axes in enumerate(_traced(e, known[t])):
            p = e.inputs[k]
            if nest.members.get(p) == (e, k):
                known[p] = axes
            elif (p.definition is None or p in stored) and e.inputs.count(p) == 1 and _has_all_axes(p, axes, wide):
                along = _runs_along(p, axes)
                if along is not None and along is not fast:
                    found.append(Tiled(e, k, along, axes))
    return [x for x in found if x.fast is found[0].fast]


def _has_all_axes(p: Tensor, axes: Axes, wide: set[IterDomain]) -> bool:
    """True where an input has all axes of the output and no others: one element of it for each of the output."""
    return set(axes.values()) == wide and all(d in axes or d.is_broadcast for d in p.axes)


def _runs_along(p: Tensor, axes: Axes) -> IterDomain | None:
    """The output's axis along which an input's elements stand side by side."""
    order = _in_memory(p)
    return axes.get(order[-1][0]) if order and order[-1][1] == 1 else None


# the schedule ---------------------------------------------------------------------------------------------------------


def _plan(t: Tensor, base: Sequence[IterDomain], fast: IterDomain, found: Sequence[Tiled]) -> TransposePlan | None:
    """Chunks as wide as an access and both axes allow, rows that fill all banks (or a chunk for a thread of a warp)."""
    axes = tuple(sorted(base, key=lambda d: d.is_broadcast))
    groups = _groups(t, base, found[0])
    columns = next(n for n, g in enumerate(groups) if found[0].fast in g)
    rows = next(n for n, g in enumerate(groups) if fast in g)
    lengths = [prod(int(d.extent) for d in groups[n]) for n in (columns, rows)]
    if columns == rows or min(lengths) < LEAST:
        return None
    size = max(item_size(x.dtype) for x in (t, *(y.tensor for y in found)))
    gpu = current_device()
    width = gcd(gpu.lanes(size), *lengths)
    chunk = width * size
    most = floor_power_of_two(gpu.shared // BLOCKS) // (size * len(found))
    sides = [tuple(width * min(gpu.warp, n * gpu.bank_row // chunk) for n in both) for both in SIDES]
    sides = [(w, h) for w, h in sides if w * h <= most]
    if not sides:
        return None
    waste = {(w, h): prod(-(-n // k) * k / n for n, k in zip(lengths, (w, h), strict=True)) for w, h in sides}
    wide, tall = next((x for x in sides if waste[x] <= WASTE), min(sides, key=lambda x: waste[x]))
    threads = max(gpu.warp, min(THREADS, wide * tall // (width * min(STEPS, LANES // width))))
    beside = min(tall // width, gpu.warp, gpu.bank_row // chunk)
    return TransposePlan(axes, tuple(groups), columns, rows, wide, tall, width, threads, beside, waste[wide, tall])


def _schedule(nest: TransposeNest, plan: TransposePlan, tiles: Sequence[SharedTile]) -> None:
    t = nest.reference
    members = {u: lead for u, lead in nest.members.items() if u not in {x.copy for x in tiles}}
    reset(t)
    t.set_loop(plan.axes)
    _tile_loops(t, plan)
    for u, (use, k) in members.items():
        like_consumer(u, use, k)
    for x in tiles:
        like_consumer(x.copy, x.use, x.operand)
        _load_tile(x.copy, plan)
    t.split(2, plan.width)
    if plan.tall // plan.width > plan.beside:
        t.split(2, plan.beside).reorder({2: 1}).merge(1)
    _on_threads(t, plan)
    for u, (use, k) in members.items():
        like_consumer(u, use, k)
    inline_far(t.fusion, list(members))
    for u in members:
        if u.inline_position < len(u.loop):
            u.inline(0)  # threads would exchange it


def _groups(t: Tensor, axes: Sequence[IterDomain], x: Tiled) -> list[tuple[IterDomain, ...]]:
    """Axes that stand next to each other, without a gap, in the output and in the input alike, as one."""
    mine = _next_to(_in_memory(t, axes))
    theirs = {x.axes.get(a): x.axes.get(b) for a, b in _next_to(_in_memory(x.tensor)).items()}
    groups: list[tuple[IterDomain, ...]] = []
    for d in axes:
        if d.is_broadcast:
            continue
        last = groups[-1][-1] if groups else None
        if last is not None and mine.get(last) is d and theirs.get(last) is d:
            groups[-1] = (*groups[-1], d)
        else:
            groups.append((d,))
    return groups


def _next_to(order: Sequence[tuple[IterDomain, int, int]]) -> Axes:
    """For each axis the one whose end is its next step."""
    return {a: b for (a, s, _), (b, step, n) in pairwise(order) if s == step * n}


def _tile(nest: TransposeNest, x: Tiled) -> SharedTile:
    """The copy of an input for one use: the user's own, or a new one."""
    own, lead = x.use.output, nest.members.get(x.use.output)
    if x.use.op == "copy" and lead is not None and own.uses == (lead[0],):
        return SharedTile(own.set_memory("shared"), *lead)
    source, fusion = x.tensor, x.tensor.fusion
    with fusion.at_line(x.use.source_line):
        made = apply(fusion, "copy", (source,))
    fusion.replace_operand(x.use, source, made)
    return SharedTile(made.set_memory("shared"), x.use, x.operand)


def _tile_loops(t: Tensor, plan: TransposePlan) -> None:
    """Loops [blocks, column of the tile, row of the tile]."""
    for n, g in enumerate(plan.groups):
        for _ in g[1:]:
            t.merge(n)
    for at in sorted((plan.columns, plan.rows), reverse=True):
        t.split(at, plan.wide if at == plan.columns else plan.tall)
    # Splitting shifts what stands right of it.
    column = plan.columns + (plan.rows < plan.columns) + 1
    row = plan.rows + (plan.columns < plan.rows) + 1
    count = len(plan.groups) + 2
    outer = [p for p in range(count) if p not in (column, row)]
    t.reorder([*outer, column, row, *range(count, len(t.loop))])
    for _ in outer[1:]:
        t.merge(0)
    t.parallelize(0, "blockIdx.x")


def _on_threads(t: Tensor, plan: TransposePlan) -> None:
    """Loops [blocks, line, chunk, element] as [blocks, threads, steps, element]: neighbours in a line are neighbouring
    threads."""
    t.merge(1).split(1, plan.threads).reorder({1: 2})
    t.parallelize(1, "threadIdx.x").parallelize(2, "unroll").parallelize(3, "vectorize")


def _load_tile(copy: Tensor, plan: TransposePlan) -> None:
    """From loops [blocks, column, row]: filled row by row, chunks of a row permuted by the row's number."""
    copy.reorder({1: 2})
    blocks, row, _, *rest = copy.loop
    copy.split(2, plan.width).split(1, plan.width)
    chunk, inside = copy.loop[3:5]
    copy.swizzle("xor", 1, 3)
    _, many, one, *columns = copy.loop
    # Rows shorter than 128 bytes fill the banks together: those of one column's threads lie next to each other.
    short = plan.wide * item_size(copy.dtype) < current_device().bank_row
    copy.set_allocation([blocks, *((one, many) if short else (many, one)), *columns])
    copy.set_loop([blocks, row, chunk, inside, *rest])
    _on_threads(copy, plan)
    copy.inline(1)
