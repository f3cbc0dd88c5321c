"""An automatic schedule: every loop nest flattened over its kept axes, cut into blocks and threads, inlined within.

Each output (and each tensor that must be stored, because it is reduced or gathered from) is a reference: its kept axes
become one axis, split by the block size onto blockIdx.x and threadIdx.x; what only feeds it follows and is inlined. A
tensor that is read in several parts or places gets a private copy for each, where that is cheaper than storing it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from idgraph.errors import ScheduleError, arguments, one_line
from idgraph.graphs.index_graph import Legal
from idgraph.ir import SCANS, SCATTERS, Fusion, IterDomain, LoadedCoordinate, Tensor, TensorExpr, check_fusion
from idgraph.ir.clone import at_most, rewriting
from idgraph.ir.device import Device, current_device, device_of, use_device
from idgraph.ir.loop_transforms import reset
from idgraph.ir.op_table import MOVES
from idgraph.ir.schedule_log import Decided, TriedSchedule
from idgraph.ir.schedule_primitives import choose
from idgraph.layout.padding import lay_out, take_back
from idgraph.layout.stride_order import memory_order
from idgraph.loading import load
from idgraph.rewrite import constant_folding as constants
from idgraph.rewrite import one_hot_to_gather as one_hot
from idgraph.rewrite.canonicalize_views import (
    broadcasts_first,
    drop_single_axes,
    join_reshapes,
    join_views,
    numbers_into_readers,
    sink_reshapes_below_pointwise,
    wide_views,
)
from idgraph.rewrite.constant_folding import align_indices, has_formula_index, narrow_indices
from idgraph.rewrite.gather_strategy import Force, choose_gather_strategies
from idgraph.rewrite.pad_cat import fuse_circular_pad, split_reduction_over_cat, unroll_reductions_in_cat
from idgraph.rewrite.two_stage_reduction import scans_in_parts, two_stages
from idgraph.schedule.config import RULE, KernelConfig
from idgraph.schedule.fusion_segments import CHEAP, Read, narrowest, reads_all, reads_of, stored_tensors
from idgraph.schedule.inlining import inline_far, private_copy
from idgraph.schedule.pointwise_tiling import schedule_reference, sources_of
from idgraph.schedule.ragged_scheduling import has_rows, schedule_ragged
from idgraph.schedule.reduction_domain import reduces
from idgraph.schedule.reduction_groups import Scheduled, equal_tensors, schedule_rows
from idgraph.schedule.reduction_persistence import choose_persistence
from idgraph.schedule.replay_cache import ReplayRecipe
from idgraph.schedule.scatter_scheduling import apply_scatter_plan, scatter_plan
from idgraph.schedule.tiling import TilingChoice, tiling_decision
from idgraph.schedule.tiling_cost import TilingCost
from idgraph.schedule.transform_replay import like_consumer
from idgraph.schedule.transpose_scheduling import TransposeNest, tile_transposes

AGAIN = 4 * CHEAP  # operations on an element that its private copies compute in all; differences of differences double
BUILT = 1000, 400  # operations that rewrites may build: some, and some for each of the fusion; captured ones take 1
ROUNDS = 3  # of private copies, each making way for the next tensor upstream


@arguments(ScheduleError, first=True, keep=rewriting)
def auto(
    fusion: Fusion,
    *,
    block: int | None = None,
    gathers: Force = None,
    config: KernelConfig = RULE,
    layout: bool = True,
    device: Device | str | None = None,
) -> Decided:
    """Schedule a whole fusion for ``block`` threads a block (by default as measured); loops of before are dropped.

    ``config`` chooses among kernels that compute the same (see `idgraph.tune`, which measures them); what is not in
    the loops becomes steps on the tensors, such as `Tensor.persistent`, that ``print(fusion)`` shows. What a user chose
    so stays. Whether a row is held, and how often it is read, the target's rule decides where neither does
    (`Tensor.by_rule`), nest by nest. Returns what was decided and why: the ways of gathers and scatters, memory
    formats, the loops over rows, the rules.

    Tiles, widths and threads are those of ``device``: as many as its processors keep busy, as wide as its accesses, as
    large as its shared memory and registers can hold. By default the device in force (`ig.cost.use_device`), an
    H200. For a CPU, loops have the sizes of the GPU in force, and no tiles in shared memory.

    First constants are folded (`idgraph.rewrite.constant_folding`): a tensor of one number becomes a number in its
    readers. Then every gather of a computed tensor is taken the way of the least estimated time on ``device`` and
    every scatter the way that costs least (see `idgraph.schedule.gather_plan` and `scatter_plan`), or a gather the way
    that ``gathers`` says: "recompute", "predicate", "one-hot" or "global" for all, or by name of the gather's output.
    That may rewrite operations; outputs keep their names and tensors. ``fusion.decisions`` and the report of an emitted
    program say what was decided.

    Outputs, and tensors stored between kernels, get the memory format that `ig.layout.infer` decides, unless the user
    laid them out; ``fusion.formats`` tells which and why (`ig.layout.pad_strides` advises on gaps between rows).
    ``layout=False`` keeps their logical order. Loops follow the
    memory of what is read and written.

    Tensors that cannot be inlined into all their readers may get private copies (`recompute`), new tensors.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("a", shape=(64, 32)) * 2.0 + 1.0)
    >>> print(ig.schedule.auto(f))
    nothing to decide
    >>> [(str(d.extent), d.parallel) for d in t.loop]
    [('4', 'blockIdx.x'), ('128', 'threadIdx.x'), ('4', 'vectorize')]
    """
    check_fusion(fusion, "auto", ScheduleError)
    machine = current_device() if device is None else device_of(device)
    with one_line(), at_most(fusion, BUILT[0] + BUILT[1] * len(fusion.exprs)), use_device(machine):
        apply_gather_strategies(fusion, gathers, machine)
        rows = schedule_loops(fusion, block, config, layout, shared=machine.kind == "cuda")
    chosen = config.but(block=block) if block else config
    search = partial(_candidates, fusion, fusion.version, chosen, layout, machine, gathers)
    fusion.tilings = tuple(rows.tilings)
    found = tuple(rows.decisions), tuple(rows.rules), fusion.tilings
    return Decided(fusion.decisions, fusion.formats, *found, search)


def _candidates(*choice: object) -> tuple[TriedSchedule, ...]:
    """The schedules that were chosen among: their estimates need kernels, which are above this package."""
    return load("idgraph.cost.model").schedule_candidates(*choice)


def schedule_loops(
    fusion: Fusion, block: int | None = None, config: KernelConfig = RULE, layout: bool = True, *, shared: bool = True
) -> Scheduled:
    """The second half of `auto`: formats and loops for operations whose ways are taken. ``shared``: threads of a block
    have memory of their own, through which transposes go; the CPU's pass `tiles` has blocks of loops for them."""
    chosen = config.but(block=block) if block else config
    return _schedule(fusion, config, chosen, layout, shared)


def _schedule(fusion: Fusion, config: KernelConfig, chosen: KernelConfig, layout: bool, shared: bool) -> Scheduled:
    """Loops for the whole fusion."""
    for t in fusion.tensors:
        if t.definition is not None:
            t.memory = "auto"
            t.forget("set_memory")
            reset(t)
    if has_rows(fusion):
        schedule_ragged(fusion, config, threads=shared)
        return Scheduled()
    join_reshapes(fusion)
    numbers_into_readers(fusion)
    if shared:
        scans_in_parts(fusion)
    if any(e.is_reduction for e in fusion.exprs):
        split_reduction_over_cat(fusion)
        unroll_reductions_in_cat(fusion)
        drop_single_axes(fusion)
        sink_reshapes_below_pointwise(fusion)
        join_reshapes(fusion)
        broadcasts_first(fusion)
        two_stages(fusion)
    align_indices(fusion)
    join_views(fusion)
    take_back(fusion)
    if layout:
        kept, outputs = stored_tensors(fusion), set(fusion.outputs)
        lay_out(fusion, [t for t in fusion.tensors if t in kept and (t in outputs or not reduces(t))])
    rows = schedule_rows(fusion, config)
    nests = _Nests(chosen, stored_tensors(fusion) | rows.members | rows.staged, rows.members, shared)
    for e in reversed(fusion.exprs):
        nests.place(e.output)
    nests.share(fusion)
    proved, later = None, dict(rows.inlined)
    known: set[frozenset[str]] = set()  # names of tensors that are in each other's way
    for n in range(ROUNDS + 1):
        proved = _inline(fusion, [t for t in fusion.tensors if t not in nests.stored], later, known)
        if n == ROUNDS or not nests.part(fusion):
            break
    version = fusion.version
    staged = dict[Tensor, TilingCost]()
    if shared:
        nested = [
            TransposeNest(t, of) for t, of in nests.of.items() if t.definition and t.definition.op not in SCATTERS
        ]
        staged = tile_transposes(nested, nests.tilings)
    rows.tilings = [tiling_decision(t, c, staged.get(t)) for t, c in nests.tilings.items()]
    rows.tilings += [tiling_decision(t, c, None) for t, (c, loops) in nests.usual.items() if t.loop == loops]
    rows.loops = proved if fusion.version == version else None
    rows.inline(agreed=rows.loops is not None)
    _choose([t for t in fusion.tensors if t in nests.stored], rows.again, config)
    rows.rules = [rule for group in rows.groups for rule in choose_persistence(group)]
    return rows


def _choose(stored: Sequence[Tensor], again: Collection[Tensor], config: KernelConfig) -> None:
    """The choices of ``config`` beside loops, as steps of the tensors that it is about.

    Rows are held, or sums follow a maximum, where a row has several passes (``again``).
    """
    for t in stored:
        e = t.definition
        if e is not None and config.parallel is not None:
            _chosen(t, "parallel", config.parallel)
        if e is None or not e.is_reduction:
            continue
        if config.items_per_thread is not None:
            _chosen(t, "items_per_thread", config.items_per_thread)
        if config.persistent is not None and (t in again or not config.persistent):
            _chosen(t, "persistent", config.persistent)
        if config.online is not None and (t in again or not config.online):
            _chosen(t, "online", config.online)


def _chosen(t: Tensor, name: str, value: bool | int) -> None:
    """A choice of the config, unless the user made one on the tensor."""
    if getattr(t.choices, name) is None:
        choose(t, name, value, by="config")


def _inline(
    fusion: Fusion, tensors: Sequence[Tensor], later: Mapping[Tensor, int], known: set[frozenset[str]]
) -> Legal | None:
    """Inline ``tensors``; one that shares a block with its readers, but not its threads, is stored instead.

    Returns the loops, with those of ``later`` at their positions, where they are known to be legal then."""
    while tensors:
        for t in tensors:  # positions of an earlier round may not suit readers that are copies
            if t.inline_position:
                t.inline_position = 0
                t.forget("inline")
        proved = inline_far(fusion, tensors, later, known)
        apart = {t for t in tensors if t.inline_position and _has_threads(t.loop[t.inline_position :])}
        if not apart:
            return proved
        for t in apart:
            t.inline_position = 0
            t.forget("inline")
        tensors = [t for t in tensors if t not in apart]
    return None


def _has_threads(loops: Sequence[IterDomain]) -> bool:
    return any(d.parallel.startswith("threadIdx") for d in loops)


def apply_gather_strategies(fusion: Fusion, gathers: Force, device: Device) -> None:
    """The first half of `auto`: take gathers and scatters their cheapest way, and remember why; what an earlier call
    decided stays noted."""
    narrow_indices(fusion)
    constants.folded(fusion)
    fuse_circular_pad(fusion)
    folded = one_hot.fold_one_hot_sums(fusion)
    scatters = scatter_plan(fusion, device)
    if scatters:
        apply_scatter_plan(fusion, scatters)
    plan = choose_gather_strategies(fusion, gathers, device)
    new, names = (*plan, *scatters, *folded), {t.name for t in fusion.tensors}
    known = {d.tensor for d in new}
    fusion.decisions = (*(d for d in fusion.decisions if d.tensor in names and d.tensor not in known), *new)


@dataclass(slots=True)
class _Nests:
    """The loop nests so far. ``stored`` are tensors with a nest of their own, ``whole`` those computed completely,
    ``of`` says for each reference what follows it, ``leads`` the reference of each tensor. ``recipes`` hold replays,
    ``tilings`` what the ``search`` of a GPU chose, ``usual`` what it left as it was, with its loops."""

    config: KernelConfig
    stored: set[Tensor]
    rows: Collection[Tensor]
    search: bool
    whole: set[Tensor] = field(default_factory=set[Tensor])
    of: dict[Tensor, dict[Tensor, Read]] = field(default_factory=dict[Tensor, "dict[Tensor, Read]"])
    leads: dict[Tensor, Tensor] = field(default_factory=dict[Tensor, Tensor])
    recipes: dict[Hashable, ReplayRecipe] = field(default_factory=dict[Hashable, ReplayRecipe])
    tilings: dict[Tensor, TilingChoice] = field(default_factory=dict[Tensor, TilingChoice])
    usual: dict[Tensor, tuple[TilingChoice, tuple[IterDomain, ...]]] = field(
        default_factory=dict[Tensor, "tuple[TilingChoice, tuple[IterDomain, ...]]"]
    )

    def place(self, t: Tensor) -> None:
        """Loops for ``t``, whose readers have theirs."""
        if t in self.rows:
            self.whole.add(t)
            return
        if t not in self.stored and t.ndim:
            self.widen(t)
        leader = None
        if t not in self.stored:
            reads = reads_of(t)
            complete = self.complete(reads)
            keep = complete or reads[-1:]
            if len(reads) > len(complete) and _is_cheap(t, self.stored, len(reads) - len(keep)):
                self.copy(t, [r for r in reads if r not in keep])
                leader = self.leader(t)
            else:
                leader = self.led(t, reads, complete)
        if leader is None and t not in self.stored and (source := narrowest(t, self.stored)) is not t:
            self.stored.add(source)  # from where on only views are computed again
            self.place(t)
            return
        if leader is None:
            self.stored.add(t)
            self.whole.add(t)
            chosen = schedule_reference(t, sources_of(t, self.stored), self.stored, self.config, self.search)
            if chosen is not None and not chosen.usual:
                self.tilings[t] = chosen
            elif chosen is not None:
                self.usual[t] = chosen, t.loop
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
        like_consumer(t, use, k, recipes=self.recipes)
        if use.output in self.whole and reads_all(use, k):
            self.whole.add(t)

    def copy(self, t: Tensor, reads: Sequence[Read]) -> list[Tensor]:
        """Private copies of ``t`` for ``reads``, each with the loops of its reader."""
        made = [private_copy(t, use, operand=k) for use, k in reads]
        for u in made:
            self.place(u)
        return made

    def widen(self, t: Tensor) -> None:
        """Views of ``t`` with as many axes as its readers have, where those are more. Loops that merge axes run over a
        view's broadcasts; they could not run over what ``t`` has no axis for."""
        for view in wide_views(t):
            self.place(view)

    def share(self, fusion: Fusion) -> None:
        """Copies for readers that are stored all the same, as what is read in parts is, are one tensor again."""
        first: dict[tuple[Tensor, tuple[int, ...]], Tensor] = {}
        for t, equal in equal_tensors(fusion).items():
            if t in self.stored and t not in self.rows and not reduces(t) and not fusion.is_output(t):
                same = first.setdefault((equal, tuple(t.axes.index(d) for d in memory_order(t))), t)
                if same is not t:
                    self.replace(t, same)

    def replace(self, t: Tensor, same: Tensor) -> None:
        """Let all who read ``t`` read ``same``; what was computed for nobody else goes."""
        led, unread, gone = self.of.pop(t), [t], set[Tensor]()
        while unread:
            u = unread.pop()
            e = u.definition
            if e is None or u in gone or t.fusion.is_output(u) or (u.uses and u is not t):
                continue
            gone.add(u)
            t.fusion.replace(u, same)
            unread += e.inputs
            self.stored.discard(u)
            self.whole.discard(u)
            for of in (led, self.of.get(self.leads.pop(u, t), {}), self.tilings, self.usual):
                of.pop(u, None)
        for u in led:  # also computed for others
            del self.leads[u]
            self.place(u)

    def part(self, fusion: Fusion) -> bool:
        """Copies for the readers of tensors that could be inlined nowhere, and of what only these read: shared by the
        copies of two nests, it could be inlined into neither. True where there were such."""
        crowded = {t for t in fusion.tensors if t not in self.stored and not t.inline_position}
        fresh: set[TensorExpr] = set()
        for t in [e.output for e in reversed(fusion.exprs) if e.output not in self.stored]:
            reads = reads_of(t)
            if len(reads) < 2 and not fresh:
                continue
            leader = self.leader(t, fresh)
            others = [r for r in reads if r != leader and (t in crowded or r[0] in fresh)]
            if len(reads) > 1 and others and _is_cheap(t, self.stored, len(others)):
                fresh.update(e for use in self.copy(t, others) if (e := use.definition) is not None)
                leader = self.leader(t, fresh)
            if fresh and leader is not None:  # its reader may read a copy now, or have other loops itself
                self.follow(t, leader)
        return bool(fresh)

    def complete(self, reads: Sequence[Read]) -> list[Read]:
        """Those of a tensor's reads that need all of it, of uses that are themselves computed completely."""
        return [(use, k) for use, k in reads if use.output in self.whole and reads_all(use, k)]

    def leader(self, t: Tensor, fresh: Collection[TensorExpr] = ()) -> Read | None:
        """The read whose loops ``t`` follows: the last that needs all of it, of those not ``fresh`` if there are such.
        None where several need parts only, so that no loops of theirs visit all that the others read, and for a scan
        whose reader is looped over as a row reduction, which runs along another axis."""
        reads = reads_of(t)
        return self.led(t, reads, sorted(self.complete(reads), key=lambda r: r[0] not in fresh))

    def led(self, t: Tensor, reads: Sequence[Read], complete: Sequence[Read]) -> Read | None:
        """The same of reads that are known, with those that need all of it, the best one last."""
        found = complete[-1] if complete else reads[0] if len(reads) == 1 else None
        scan = t.definition is not None and t.definition.op in SCANS
        return None if scan and found is not None and found[0].output not in self.leads else found


def _is_cheap(t: Tensor, stored: Collection[Tensor], times: int) -> bool:
    """True where computing ``t`` again, ``times`` more, costs less than writing and reading it: few operations, each on
    one element."""
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
        loads = {r.operand for row in made.reads for r in row if isinstance(r, LoadedCoordinate)}
        if made.is_reduction or made.op in SCATTERS or made.op in SCANS:
            return False
        if not has_formula_index(made):
            return False
        work += made.op not in MOVES and not loads
        if work > CHEAP or work * times > AGAIN or len(seen) > 8 * CHEAP:
            return False
        stack.extend(x for k, x in enumerate(made.inputs) if k not in loads)
    return True
