"""An automatic schedule: every loop nest flattened over its kept axes, cut into blocks and threads, inlined within.

Each output (and each tensor that must be stored, because it is reduced or gathered from) is a reference: its kept axes
become one axis, split by the block size onto blockIdx.x and threadIdx.x; what feeds it alone follows and is inlined. A
tensor that is read in several parts or places gets a private copy for each, where that is cheaper than storing it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import gcd

from idgraph.errors import ScheduleError, arguments
from idgraph.index.warps import WARP
from idgraph.ir import (
    SCANS,
    SCATTERS,
    Fusion,
    IterDomain,
    Loaded,
    Merge,
    Resize,
    Tensor,
    TensorExpr,
    check_fusion,
    item_size,
)
from idgraph.ir.indexing import attr
from idgraph.ir.loops import reset
from idgraph.ir.registry import apply
from idgraph.ir.state import rewriting
from idgraph.layout.carry_out import lay_out, take_back
from idgraph.layout.infer import bytes_of
from idgraph.layout.padding import PaddedStrides
from idgraph.rewrite.broadcasts import broadcasts_first, wide_views
from idgraph.rewrite.constants import fold_constants
from idgraph.rewrite.gathers import Force, apply_gather_plan, gather_plan
from idgraph.rewrite.one_hot import fold_one_hots
from idgraph.rewrite.sink import drop_single_axes, sink_reshapes
from idgraph.rewrite.two_stage import two_stages
from idgraph.schedule.blocks import VECTOR_BYTES, cut_blocks
from idgraph.schedule.config import RULE, KernelConfig
from idgraph.schedule.follow import Cut, flat_cut, loop_order
from idgraph.schedule.inline import inline_far, recompute, scan_loops
from idgraph.schedule.pad import pad, paying
from idgraph.schedule.reads import Read, picks_elements, reads_all, reads_of, stored_tensors
from idgraph.schedule.replay import like_consumer
from idgraph.schedule.rows import reduces, schedule_rows
from idgraph.schedule.scan import cut_scan, scanned_axis
from idgraph.schedule.scatter import apply_scatter_plan, scatter_plan, schedule_scatter
from idgraph.schedule.transpose import Nest, tile_transposes

BLOCK = 128
GATHER_BLOCK = 1024  # elements gathered from one row by many threads of a block are found in its cache
FEW = 4  # operations for which 1024 threads have registers enough
STEPS = 2
LARGE = 1 << 22  # bytes that keep all threads busy with several vectors each
MAX_VECTORS = 4  # that one thread loads for the parts of a rotation
ROWS_BY_INDEX = frozenset({"embedding", "index_select"})
GATHERS = frozenset({"gather", "take_along_dim"})
MAX_PARTS = 4
CHEAP = 8  # operations on an element that are computed again rather than stored
ROUNDS = 3  # of private copies, each making way for the next tensor upstream
MOVES = frozenset(
    {"copy", "unsqueeze", "squeeze", "expand", "permute", "reshape", "slice", "select", "flip", "roll", "pad", "cat"}
)


@arguments(ScheduleError, first=True, keep=rewriting)
def auto(
    fusion: Fusion,
    *,
    block: int | None = None,
    gathers: Force = None,
    config: KernelConfig = RULE,
    layout: bool = True,
) -> None:
    """Schedule a whole fusion for ``block`` threads a block (by default as measured); earlier schedules are dropped.

    ``config`` chooses among kernels that compute the same (see `idgraph.tune`, which measures them); `ig.emit` takes
    the same one unless it is given another.

    First constants are folded (`idgraph.rewrite.constants`): a tensor of one number becomes a number in its readers.
    Then every gather of a computed tensor, and every scatter, is taken the way that costs least (see
    `idgraph.schedule.gather_plan` and `scatter_plan`), or the way that ``gathers`` says: "recompute", "predicate",
    "one-hot" or "global" for all, or by name of the gather's output. That may rewrite operations; outputs keep their
    names and tensors. ``fusion.decisions`` and the report of an emitted program say what was decided.

    Outputs, and tensors stored between kernels, get the memory format that `ig.layout.infer` decides, unless the user
    laid them out, and rows padded to a boundary where that pays (`ig.layout.pad_strides`); ``fusion.formats`` tells
    which and why. ``layout=False`` keeps their logical order. Loops follow the
    memory of what is read and written.

    Tensors that cannot be inlined into all their readers may get private copies (`recompute`), new tensors.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("a", shape=(64, 32)) * 2.0 + 1.0)
    >>> ig.schedule.auto(f)
    >>> [(str(d.extent), d.parallel) for d in t.loop]
    [('4', 'blockIdx.x'), ('128', 'threadIdx.x'), ('4', 'vectorize')]
    """
    _decide(check_fusion(fusion, "auto", ScheduleError), gathers)
    chosen = config.but(block=block) if block else config
    _schedule(fusion, config, chosen, layout)
    padded = paying(fusion) if layout else ()
    if padded:
        _schedule(fusion, config, chosen, layout, padded)


def _schedule(
    fusion: Fusion, config: KernelConfig, chosen: KernelConfig, layout: bool, padded: tuple[PaddedStrides, ...] = ()
) -> None:
    """Loops for the whole fusion; rows of the ``padded`` tensors have gaps."""
    for t in fusion.tensors:
        if t.definition is not None:
            t.memory = "auto"
            t.log[:] = [s for s in t.log if s.name != "set_memory"]
            reset(t)
    _join_reshapes(fusion)
    if any(e.is_reduction for e in fusion.exprs):
        drop_single_axes(fusion)
        sink_reshapes(fusion)
        _join_reshapes(fusion)
        broadcasts_first(fusion)
        two_stages(fusion)
    _join_views(fusion)
    take_back(fusion)
    if layout:
        kept = stored_tensors(fusion)
        lay_out(fusion, [t for t in fusion.tensors if t in kept and (t in fusion.outputs or not reduces(t))])
    pad(fusion, padded)
    fusion.config = config.to_data()
    rows = schedule_rows(fusion, config)
    nests = _Nests(chosen, stored_tensors(fusion) | rows.members, rows.members)
    for e in reversed(fusion.exprs):
        nests.place(e.output)
    for n in range(ROUNDS + 1):
        _inline(fusion, [t for t in fusion.tensors if t not in nests.stored])
        if n == ROUNDS or not nests.part(fusion):
            break
    tile_transposes([Nest(t, of) for t, of in nests.of.items() if t.definition and t.definition.op not in SCATTERS])
    rows.inline()


def _inline(fusion: Fusion, tensors: Sequence[Tensor]) -> None:
    """Inline ``tensors``; one that shares a block with its readers, but not its threads, is stored instead."""
    while tensors:
        for t in tensors:  # positions of an earlier round may not suit readers that are copies
            t.inline_position = 0
            t.log[:] = [s for s in t.log if s.name != "inline"]
        inline_far(fusion, tensors)
        apart = {t for t in tensors if t.inline_position and _has_threads(t.loop[t.inline_position :])}
        if not apart:
            return
        for t in apart:
            t.inline_position = 0
            t.log[:] = [s for s in t.log if s.name != "inline"]
        tensors = [t for t in tensors if t not in apart]


def _has_threads(loops: Sequence[IterDomain]) -> bool:
    return any(d.parallel.startswith("threadIdx") for d in loops)


def _decide(fusion: Fusion, gathers: Force) -> None:
    """Take gathers and scatters their cheapest way, and remember why; what an earlier call decided stays noted."""
    fold_constants(fusion)
    folded = fold_one_hots(fusion)
    scatters = scatter_plan(fusion)
    apply_scatter_plan(fusion, scatters)
    plan = gather_plan(fusion, gathers)
    apply_gather_plan(fusion, plan)
    new, names = (*plan, *scatters, *folded), {t.name for t in fusion.tensors}
    known = {d.tensor for d in new}
    fusion.decisions = (*(d for d in fusion.decisions if d.tensor in names and d.tensor not in known), *new)


def _join_views(fusion: Fusion) -> None:
    """One unsqueeze for several in a row: loops that merge all of their axes run over axes that their operand lacks."""
    for t in fusion.tensors:
        if t.definition is not None and t.definition.op == "unsqueeze":
            wide_views(t)
    for e in fusion.exprs:
        view = e.inputs[0] if e.op == "unsqueeze" else None
        inner = view.definition if view is not None else None
        if view is None or inner is None or inner.op != "unsqueeze":
            continue
        outer, own = ([p for p in x.attrs["dims"] if isinstance(p, int)] for x in (e, inner))  # type: ignore[union-attr]
        kept = [p for p in range(e.output.ndim) if p not in outer]  # where the view's axes are
        dims = tuple(sorted((*outer, *(kept[p] for p in own))))
        x = inner.inputs[0]
        build = partial(apply, fusion, "unsqueeze", (x,), {"dims": dims})
        fusion.adopt(e.output, *fusion.trying(build, e.source_line))
        if not view.uses and view not in fusion.outputs:
            fusion.remove([inner])


def _join_reshapes(fusion: Fusion) -> None:
    """A reshape of a reshape reads what the first one does: loops are then one step away from those before."""
    for e in fusion.exprs:
        inner = e.inputs[0].definition if e.op == "reshape" else None
        if inner is None or inner.op != "reshape":
            continue
        shape = tuple(attr(d.extent) for d in e.output.axes)
        build = partial(apply, fusion, "reshape", (inner.inputs[0],), {"shape": shape})
        fusion.adopt(e.output, *fusion.trying(build, e.source_line))
        if not inner.output.uses and inner.output not in fusion.outputs:
            fusion.remove([inner])


@dataclass(slots=True)
class _Nests:
    """The loop nests so far. ``stored`` are tensors with a nest of their own, ``whole`` those computed completely,
    ``of`` says for each reference what follows it, and ``leads`` the reference of each tensor."""

    config: KernelConfig
    stored: set[Tensor]
    rows: Collection[Tensor]
    whole: set[Tensor] = field(default_factory=set[Tensor])
    of: dict[Tensor, dict[Tensor, Read]] = field(default_factory=dict[Tensor, "dict[Tensor, Read]"])
    leads: dict[Tensor, Tensor] = field(default_factory=dict[Tensor, Tensor])

    def place(self, t: Tensor) -> None:
        """Loops for ``t``, whose readers have theirs."""
        if t in self.rows:
            self.whole.add(t)
            return
        if t not in self.stored and t.ndim:
            self.widen(t)
        if t not in self.stored and _is_cheap(t, self.stored):
            complete, reads = self.complete(t), reads_of(t)
            if len(reads) > len(complete):
                keep = complete or reads[-1:]
                self.copy(t, [r for r in reads if r not in keep])
        leader = None if t in self.stored else self.leader(t)
        if leader is None:
            self.stored.add(t)
            self.whole.add(t)
            _reference(t, _sources(t, self.stored), self.stored, self.config)
            self.of[t], self.leads[t] = {}, t
            return
        self.follow(t, leader)

    def follow(self, t: Tensor, leader: Read) -> None:
        """Give ``t`` the loops of a reader."""
        use, k = leader
        if t in self.leads:
            self.of[self.leads.pop(t)].pop(t, None)
        if use.output in self.leads:  # what follows a row reduction is looped over as that
            self.leads[t] = self.leads[use.output]
            self.of[self.leads[t]][t] = leader
        like_consumer(t, use, k)
        if use.output in self.whole and reads_all(use, k):
            self.whole.add(t)

    def copy(self, t: Tensor, reads: Sequence[Read]) -> list[Tensor]:
        """Private copies of ``t`` for ``reads``, each with the loops of its reader."""
        made = [recompute(t, use, operand=k) for use, k in reads]
        for u in made:
            self.place(u)
        return made

    def widen(self, t: Tensor) -> None:
        """Views of ``t`` with as many axes as its readers have, where those are more. Loops that merge axes run over a
        view's broadcasts; they could not run over what ``t`` has no axis for."""
        for view in wide_views(t):
            self.place(view)

    def part(self, fusion: Fusion) -> bool:
        """Copies for the readers of tensors that could be inlined nowhere, and of what only these read: shared by the
        copies of two nests, it could be inlined into neither. True where there were such."""
        crowded = {t for t in fusion.tensors if t not in self.stored and not t.inline_position}
        fresh: set[TensorExpr] = set()
        for t in [e.output for e in reversed(fusion.exprs) if e.output not in self.stored]:
            reads, leader = reads_of(t), self.leader(t, fresh)
            others = [r for r in reads if r != leader and (t in crowded or r[0] in fresh)]
            if len(reads) > 1 and others and _is_cheap(t, self.stored):
                fresh.update(e for use in self.copy(t, others) if (e := use.definition) is not None)
                leader = self.leader(t, fresh)
            if fresh and leader is not None:  # its reader may read a copy now, or have other loops itself
                self.follow(t, leader)
        return bool(fresh)

    def complete(self, t: Tensor) -> list[Read]:
        """The reads that need all of ``t``, of uses that are themselves computed completely."""
        return [(use, k) for use, k in reads_of(t) if use.output in self.whole and reads_all(use, k)]

    def leader(self, t: Tensor, fresh: Collection[TensorExpr] = ()) -> Read | None:
        """The read whose loops ``t`` follows: the last that needs all of it, of those not ``fresh`` if there are such.
        None where several need parts only, so that no loops of theirs visit all that the others read."""
        complete, reads = sorted(self.complete(t), key=lambda r: r[0] not in fresh), reads_of(t)
        return complete[-1] if complete else reads[0] if len(reads) == 1 else None


def _is_cheap(t: Tensor, stored: Collection[Tensor]) -> bool:
    """True where computing ``t`` again costs less than writing and reading it: few operations, each on one element."""
    e = t.definition
    if e is None or any(use.is_reduction for use in t.uses):
        return False
    work = 0
    seen: set[Tensor] = set()
    stack = [t]
    while stack:
        u = stack.pop()
        made = u.definition
        if u in seen or made is None or (u in stored and u is not t):
            continue
        seen.add(u)
        if (
            made.is_reduction
            or made.op in SCATTERS
            or made.op in SCANS
            or any(isinstance(r, Loaded) for row in made.reads for r in row)
        ):
            return False
        work += made.op not in MOVES
        if work > CHEAP or len(seen) > 8 * CHEAP:
            return False
        stack.extend(made.inputs)
    return True


def _reference(t: Tensor, sources: _Sources, stored: Collection[Tensor], config: KernelConfig) -> None:
    """Kept axes flattened and cut into blocks and threads; reduced axes inside them, axes of one element last."""
    ops = {e.op for e in sources.exprs}
    small = len(sources.exprs) <= FEW and len(sources.inputs) <= 2
    block = config.block or ((GATHER_BLOCK if small else GATHER_BLOCK // 2) if ops & GATHERS else BLOCK)
    if t.definition is not None and t.definition.op in SCATTERS:
        schedule_scatter(t.definition, block, config.vectors or 1)
        return
    if _interleaves(t):
        _interleaved(t, block)
        return
    if cut_scan(t, sources.exprs, _vector(t, sources), stored):
        return

    kept = _in_order(t, stored, scanned_axis(t, sources.exprs))
    if not kept:
        return
    alone = kept == len(t.loop) or all(d.is_broadcast for d in t.loop[kept:])
    most, single = _vector(t, sources), picks_elements(sources.exprs)
    parts, width = _lanes(t, kept, sources) if alone and not single else (1, 1)
    flat = alone and parts == 1 and width < most and not single
    cut = flat_cut(t, t.loop[:kept], stored, most) if flat else None
    if cut is not None and cut.axes:
        kept, width = _flattened(t, kept, cut), 1
    elif width > 1 and cut is None:
        t.split(kept - 1, width).parallelize(kept, "vectorize")
    if parts > 1:
        t.split(kept - 1, parts, inner=False).reorder({kept - 1: kept}).parallelize(kept, "unroll")
    # A row that an index selects has the latency of two loads, so several are in flight at once; so are constants.
    waits = not sources.inputs or bool(ops & ROWS_BY_INDEX)
    usual = most if single else STEPS if waits else _deep(sources, most)
    steps = config.vectors or (cut.steps if cut is not None and cut.steps > 1 else usual if parts == 1 else 1)
    many = parts * len(sources.inputs) > MAX_VECTORS
    apart = parts > 1 and (many if config.apart is None else config.apart)
    if apart:  # each part has threads of its own, whole warps of them
        block = max(WARP, block // parts // WARP * WARP)
    cut_blocks(t, kept, block, steps)
    if apart:
        at = 3 if steps > 1 else 2
        t.reorder({at: 1}).parallelize(1, "serial").merge(1)
    t.parallelize(0, "blockIdx.x")
    t.parallelize(1, "threadIdx.x")


def _in_order(t: Tensor, stored: Collection[Tensor], scanned: IterDomain | None) -> int:
    """Loops as memory lies: first those that are kept, whose number is returned; reduced ones and those that go in
    order inside them, axes of one element last."""
    serial = (*scan_loops(t), scanned)

    def rank(d: IterDomain) -> int:
        return 2 if d.is_broadcast else 1 if d.kind == "reduction" or d in serial else 0

    kept = [d for d in t.loop if rank(d) == 0]
    order = loop_order(t, kept, stored) if len(kept) > 1 and t.loop == t.logical else kept
    wanted = [*order, *sorted((d for d in t.loop if rank(d)), key=rank)]
    if wanted != list(t.loop):
        t.reorder([t.loop.index(d) for d in wanted])
    return len(kept)


def _flattened(t: Tensor, kept: int, cut: Cut) -> int:
    """The innermost kept loops as one, cut into vectors; returns the number of kept loops outside of the vectors."""
    for _ in range(cut.axes - 1):
        kept -= 1
        t.merge(kept - 1)
    if cut.chunks is not None:  # a row has vectors of its own, whole and not
        t.split(kept - 1, cut.chunks * cut.width)
        kept += 1
    t.split(kept - 1, cut.width).parallelize(kept, "vectorize")
    return kept


@dataclass(frozen=True, slots=True)
class _Sources:
    """The tensors computed for a tensor, and the inputs that it reads."""

    exprs: tuple[TensorExpr, ...]
    inputs: tuple[Tensor, ...]


def _sources(t: Tensor, stored: Collection[Tensor]) -> _Sources:
    exprs: dict[TensorExpr, None] = {}
    inputs: dict[Tensor, None] = {}
    stack = [t]
    while stack:
        u = stack.pop()
        e = u.definition
        if e is None or (u in stored and u is not t):
            inputs[u] = None
        elif e not in exprs:
            exprs[e] = None
            stack += e.inputs
    return _Sources(tuple(exprs), tuple(inputs))


def _interleaves(t: Tensor) -> bool:
    """True where a few tensors lie interleaved in the last axis: joined on a short last axis, then flattened."""
    exprs = t.domain.exprs
    if not exprs or not all(isinstance(x, Merge) for x in exprs) or not isinstance(exprs[-1], Merge):
        return False
    last, n = exprs[-1], exprs[-1].inner.extent
    own = [d for d in t.root if not d.is_broadcast]
    short = n.is_const and 1 < int(n) <= MAX_PARTS
    return (
        short and last.inner is own[-1] and last.out is t.loop[-1] and own[-2].extent.is_const and t.loop == t.logical
    )


def _interleaved(t: Tensor, block: int) -> None:
    """Loops over the axes before flattening, so that what the parts share is computed once for all of them."""
    own = [d for d in t.root if not d.is_broadcast]
    t.set_loop(own)
    rows, parts, width = len(own) - 1, int(own[-1].extent), VECTOR_BYTES // item_size(t.dtype)
    width = max(1, width // parts)
    while int(own[-2].extent) % width:
        width //= 2
    t.split(rows - 1, width).parallelize(rows, "vectorize").parallelize(rows + 1, "unroll")
    cut_blocks(t, rows, block)
    t.parallelize(0, "blockIdx.x")
    t.parallelize(1, "threadIdx.x")


def _vector(t: Tensor, sources: _Sources) -> int:
    """Elements of one access: 16 bytes of the reference, or of what it reads where that is a byte wide."""
    size = item_size(t.dtype)
    if size == 1 and sources.inputs:
        size = max(size, min(item_size(x.dtype) for x in sources.inputs))
    return VECTOR_BYTES // size


def _deep(sources: _Sources, width: int) -> int:
    """Vectors of a thread where those of the largest input are narrow: together they are 16 bytes of it."""
    largest = max(sources.inputs, key=bytes_of, default=None)
    if largest is None or bytes_of(largest) < LARGE:
        return 1
    return max(1, min(MAX_VECTORS, VECTOR_BYTES // (width * item_size(largest.dtype))))


def _lanes(t: Tensor, kept: int, sources: _Sources) -> tuple[int, int]:
    """(parts, width) for the last kept loop axis: equal parts that cuts leave, and elements of one vector access."""
    extent = t.loop[kept - 1].extent
    if not extent.is_const or extent == 0:
        return 1, 1
    n, width = int(extent), _vector(t, sources)
    part = n
    for cut in _cuts(t, n):
        part = gcd(part, cut)
    parts = n // part
    if parts > MAX_PARTS:
        parts = 1
    while width > 1 and (n // parts) % width:
        width //= 2
    return parts, width


def _cuts(t: Tensor, n: int) -> set[int]:
    """Places at which resizes of what feeds ``t`` cut an axis of ``n`` elements."""
    found: set[int] = set()
    seen: set[Tensor] = set()
    stack = [t]
    while stack:
        u = stack.pop()
        if u in seen or u.definition is None:
            continue
        seen.add(u)
        for x in u.domain.exprs:
            if isinstance(x, Resize) and n in (x.source.extent, x.out.extent):
                found.update(abs(int(c)) for c in (x.left, x.right) if c.is_const)
        stack.extend(u.definition.inputs)
    return found - {0}
