"""`plan`: which operations share a kernel, before and after the automatic schedule, and what stays apart, why.

Where each launch waits for the one before it, the launches are the loop nests, and which operations each has follows
from the schedule, without lowering. `gathers`: the ways of each gather of a computed tensor, each tried on a copy and
costed as it is emitted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import get_args

from idgraph.cost import Cost, Device, cost
from idgraph.cost.model import as_emitted, estimate_of
from idgraph.cost.report import KernelCost, occupancy
from idgraph.display import Printed, Sheet
from idgraph.errors import IdGraphError, ScheduleError, arguments, one_line
from idgraph.fuse.explain import count, obstacles, operations
from idgraph.fuse.obstacle import Obstacles
from idgraph.graphs.index_graph import Legal
from idgraph.graphs.loop_nest import LoopNests
from idgraph.graphs.loop_promotion import Promotion
from idgraph.index import IdModel
from idgraph.index.allocation import in_memory, live_exprs
from idgraph.index.id_model import LoopVariable, loops_of
from idgraph.index.loop_tree import outermost, same_launch
from idgraph.ir import SCANS, SCATTERS, Fusion, LoadedCoordinate, Tensor, TensorExpr, check_fusion
from idgraph.ir.clone import clone_fusion, rewriting
from idgraph.ir.device import current_device, device_of
from idgraph.ir.hooks import Estimate
from idgraph.ir.op_table import GATHERS
from idgraph.ir.parser import copy_fusion, snapshot
from idgraph.ir.walks import upstream
from idgraph.rewrite.gather_lowering import Strategy, source_of, source_operand
from idgraph.rewrite.gather_strategy import cheapest
from idgraph.runtime.program import emit, launches
from idgraph.schedule import auto
from idgraph.schedule.auto import apply_gather_strategies, schedule_loops


@dataclass(frozen=True, slots=True)
class GatherStrategy:
    """One way of a gather, as the whole fusion costs with it: ``kernels``, ``bytes`` read and written, ``operations``
    (of floats, and atomics), ``time_us`` as `ig.cost` estimates. All are None where the way is impossible."""

    name: Strategy
    kernels: int | None
    bytes: int | None
    operations: int | None
    time_us: float | None
    why: str

    def __str__(self) -> str:
        if self.time_us is None:
            return f"{self.name}: impossible; {self.why}"
        return (
            f"{self.name}: {self.kernels} kernel{'s' * (self.kernels != 1)}, {self.bytes:,} bytes, "
            f"{self.operations:,} operations, {self.time_us:.2f} us; {self.why}"
        )

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class GatherWays(Printed):
    """The ways of the gather ``tensor`` from ``source`` on ``device``: the one that `auto` takes, then by time.

    ``runs``: what runs the loops over the indexed axis where the source is computed, by the user's schedule or else by
    the automatic one. ``offer``: what a grid-wide barrier in place of a launch would save, and how many blocks can be
    resident at one time for it; nothing emits one.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(64, 1000)), f.input("i", shape=(64, 1), dtype="int64")
    >>> _ = f.output(ig.gather(ig.log_softmax(x, 1), 1, i))
    >>> [g] = ig.fuse.gathers(f)
    >>> g.best, [w.kernels for w in g.ways], g.runs
    ('recompute', [1, 1, 1, 4], ('blockIdx.x', 'threadIdx.x', 'vectorize'))
    """

    tensor: str
    source: str
    device: str
    runs: tuple[str, ...]
    ways: tuple[GatherStrategy, ...]
    offer: str

    @property
    def best(self) -> Strategy:
        """The way of least estimated time; of those close to it, of fewest bytes, then operations."""
        return self.ways[0].name

    @arguments(ScheduleError, keep=rewriting)
    def apply(self, fusion: Fusion) -> None:
        """Schedule the fusion automatically, this gather by the best way.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> x, i = f.input("x", shape=(8, 10)), f.input("i", shape=(8, 1), dtype="int64")
        >>> _ = f.output(ig.gather(x * 2.0, 1, i))
        >>> ig.fuse.gathers(f)[0].apply(f)
        >>> f.decisions[0].chosen
        'recompute'
        """
        auto(fusion, gathers={self.tensor: self.best})

    def __str__(self) -> str:
        run = ", ".join(self.runs) or "one step"
        head = f"gather {self.tensor} of {self.source} on {self.device}, whose indexed axis is run by {run}"
        return "\n".join([head, *(f"  {w}" for w in self.ways), f"  barrier: {self.offer}"])

    __repr__ = __str__

    def sheet(self) -> Sheet:
        """One row a way."""
        rows = [
            (w.name, *("" if v is None else f"{v:,}" for v in (w.kernels, w.bytes, w.operations)),
             "" if w.time_us is None else f"{w.time_us:.2f}", w.why)
            for w in self.ways
        ]  # fmt: skip
        head = ("way", "kernels", "bytes", "operations", "us", "why")
        return Sheet(f"gather {self.tensor} of {self.source}", head, tuple(rows), (f"barrier: {self.offer}",))

    def to_json(self) -> str:
        """All of it as one JSON object.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> x, i = f.input("x", shape=(8, 10)), f.input("i", shape=(8, 1), dtype="int64")
        >>> _ = f.output(ig.gather(x * 2.0, 1, i))
        >>> '"best": "recompute"' in ig.fuse.gathers(f)[0].to_json()
        True
        """
        return json.dumps({**asdict(self), "best": self.best}, indent=1)


@arguments(ScheduleError, first=True)
def gathers(
    fusion: Fusion, device: Device | str | None = None, *, symbols: Mapping[str, int] | None = None
) -> tuple[GatherWays, ...]:
    """The ways of each gather of a computed tensor: each tried on a copy that `auto` schedules, emitted, and costed.

    ``symbols`` gives numbers to symbolic extents. The fusion stays as it is. Raises what scheduling, emitting and
    `ig.cost` raise.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(64, 512)), f.input("i", shape=(64, 1), dtype="int64")
    >>> _ = f.output(ig.gather(ig.cumsum(x, 1), 1, i))
    >>> [g] = ig.fuse.gathers(f, "H200")
    >>> [(w.name, w.kernels) for w in g.ways if w.kernels is None], "barrier" in str(g)
    ([('recompute', None)], True)
    """
    check_fusion(fusion, "gathers", ScheduleError)
    on = current_device() if device is None else device_of(device)
    found = [e for e in fusion.exprs if e.op in GATHERS and source_of(e).definition is not None]
    return tuple(_strategies_of(fusion, e, on, symbols) for e in found)


def _strategies_of(fusion: Fusion, e: TensorExpr, device: Device, symbols: Mapping[str, int] | None) -> GatherWays:
    made, estimates = list[GatherStrategy](), list[Estimate | None]()
    offer, runs = "no launch is left that one would replace", _source_parallel_types(e)
    for name in get_args(Strategy):
        copy = copy_fusion(fusion)
        try:
            _, c = as_emitted(copy, {e.output.name: name}, device, symbols or {})
        except ScheduleError as error:
            made.append(GatherStrategy(name, None, None, None, None, "; ".join(map(str, error.because)) or error.what))
            estimates.append(None)
            continue
        t = estimate_of(c)
        estimates.append(t)
        made.append(GatherStrategy(name, t.kernels, t.bytes, t.operations, t.time_us, _why(copy, e)))
        if name == "global":
            offer = _offer(c, device)
            runs = runs or _source_parallel_types(_of(copy, e))
    order = {n: k for k, n in enumerate(get_args(Strategy))}
    best = cheapest({w.name: t for w, t in zip(made, estimates, strict=True) if t is not None})
    made.sort(key=lambda w: (w.name != best, w.time_us is None, w.time_us or 0.0, order[w.name]))
    return GatherWays(e.output.name, source_of(e).name, device.name, runs, tuple(made), offer)


def _of(copy: Fusion, e: TensorExpr) -> TensorExpr | None:
    """The same gather in the copy, where it is one still."""
    t: Tensor | None = next((t for t in copy.tensors if t.name == e.output.name), None)
    made = t.definition if t is not None else None
    return made if made is not None and made.op in GATHERS else None


def _why(copy: Fusion, e: TensorExpr) -> str:
    told = next((d for d in copy.decisions if d.tensor == e.output.name), None)
    return told.reason.partition("; ")[2] if told is not None else ""


def _source_parallel_types(e: TensorExpr | None) -> tuple[str, ...]:
    """The parallel types of the loops over the axis that the gather indexes, where the source is computed; empty: no
    threads."""
    if e is None:
        return ()
    x, reads = source_of(e), e.reads[source_operand(e)]
    found = {d for d, r in zip(x.axes, reads, strict=True) if isinstance(r, LoadedCoordinate)}
    for step in x.domain.loop_exprs:
        if found & {*step.inputs}:
            found |= {*step.outputs}
    ways = tuple(d.parallel for d in x.loop if d in found)
    return ways if any(w != "serial" for w in ways) else ()


def _offer(c: Cost, device: Device) -> str:
    """The saving of a grid-wide barrier where the source is stored and read by a later launch."""
    if len(c.kernels) < 2:
        return "the source and its reader share a launch already"
    if not device.cooperative:
        return f"{device.name} has no launch whose blocks can wait for each other"
    blocks = max(k.blocks for k in c.kernels)
    resident = min(_resident(k, device) for k in c.kernels)
    saved = (len(c.kernels) - 1) * device.launch_us
    told = f"one cooperative launch in place of {len(c.kernels)} would save {saved:.1f} us of {c.total.time_us:.1f}"
    if blocks > resident:
        told += f", if each of the {resident:,} blocks that are resident did the work of {-(-blocks // resident)}"
    else:
        told += f": its blocks, {blocks:,} at most, can be resident at one time, as {resident:,} can"
    return f"{told} (estimated; nothing emits one)"


def _resident(k: KernelCost, device: Device) -> int:
    """Blocks of a kernel that the device runs at one time."""
    share = occupancy(device, k.threads, k.shared, 0)
    if share is None:
        raise IdGraphError(f"{device.name} has no limit of threads", hint="a CUDA device")
    return int(share * device.threads / (-(-k.threads // device.warp) * device.warp)) * device.processors


def ordered_launches(fusion: Fusion, loops: Legal | None = None) -> tuple[tuple[str, ...], ...] | None:
    """The tensors that each CUDA launch makes, in launch order; None where only the lowered kernels tell.

    That is where a launch does not wait for the one before it, where an index is loaded, in scans and in updates.
    ``fusion`` is scheduled by `auto`, which has proved that its loop nests can be done; ``loops`` are what it proved.
    """
    run = live_exprs(fusion)
    if any(
        e.op in SCATTERS or e.op in SCANS or any(isinstance(r, LoadedCoordinate) for row in e.reads for r in row)
        for e in run
    ):
        return None
    model, nests = _Proved(fusion), outermost(run)
    ways = (loops or Legal(model.all_loops, {})).ways(run)
    groups = [[e for n in group for e in nests[n]] for group in same_launch(nests, ways, model)]
    outputs, live = frozenset(fusion.outputs), frozenset(run)
    memory = {t for e in run for t in e.outputs if in_memory(t, outputs, live)}
    made = [{t for e in group for t in e.outputs if t in memory} for group in groups]
    read = [{t for e in group for t in e.inputs if t.definition is None or t in memory} for group in groups]
    if any(not made[n - 1] & read[n] for n in range(1, len(groups))):
        return None
    order = {e: n for n, e in enumerate(fusion.exprs)}
    between = [upstream(x, lambda e, read=y - x: e.output not in read) for x, y in zip(made, read, strict=True)]
    return tuple(tuple(e.output.name for e in sorted(x, key=order.__getitem__)) for x in between)


class _Proved(IdModel):
    """The model of a legal schedule, whose loops are known without another proof, made where any are asked for."""

    def __init__(self, fusion: Fusion) -> None:
        super().__init__(fusion, threads=True)

    @property
    def all_loops(self) -> Promotion:
        """The axes that all loops run over, and the way they run."""
        return self._keep("loops", lambda: Promotion(LoopNests(self.fusion)))

    def loops(self, e: TensorExpr) -> tuple[LoopVariable, ...]:
        """Loops of an operation, outermost first."""
        found = self._loops.get(e)
        if found is None:
            found = self._loops[e] = loops_of(e, self.all_loops)
        return found


@dataclass(frozen=True, slots=True)
class FusionPlan(Printed):
    """``kernels``: the operations of each CUDA kernel after `auto`, by the names of the tensors that they make, in
    launch order. ``before``, ``after``: numbers of kernels as given and after `auto`. ``scheduled`` is the copy of
    the fusion that was scheduled; it may hold private copies.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.copy(f.input("x", shape=(8, 6)), name="t")
    >>> u = f.output(t.T + 1.0)
    >>> p = ig.fuse.plan(f)
    >>> p.before, p.after, p.kernels, p.to_json()[:1]
    (3, 1, (('t', 't2', 't3'),), '{')
    """

    kernels: tuple[tuple[str, ...], ...]
    before: int
    after: int
    scheduled: Fusion
    _as_given: Callable[[], Fusion] = field(repr=False, compare=False)
    _given: list[Fusion] = field(default_factory=list[Fusion], repr=False, compare=False)
    _apart: list[Obstacles] = field(default_factory=list[Obstacles], repr=False, compare=False)

    @property
    def planned_fusion(self) -> Fusion:
        """A copy of the fusion as it was planned, made when first asked for.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> y = f.output(ig.exp(f.input("x", shape=(64,))) * 2.0)
        >>> p = ig.fuse.plan(f)
        >>> p.planned_fusion == f, p.scheduled == f
        (True, False)
        """
        if not self._given:
            self._given.append(self._as_given())
        return self._given[0]

    @property
    def apart(self) -> Obstacles:
        """The obstacles between kernels that share a buffer, looked for when first asked: a fan of n outputs in k
        launches has some n * n / 2 pairs.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> x = f.input("x", shape=(64, 32))
        >>> y = ig.exp(x)
        >>> _ = f.output(y, ig.sum(y, (0, 1)) * x)
        >>> sorted({o.cause for o in ig.fuse.plan(f).apart})
        ['synchronisation']
        """
        if not self._apart:
            self._apart.append(obstacles(self.scheduled))
        return self._apart[0]

    @arguments(ScheduleError, first=True)
    def moved(self, symbols: Mapping[str, int] | None = None) -> tuple[int, int]:
        """Bytes that the kernels ask memory for before and after, as `ig.cost` counts them in the emitted programs.

        ``symbols`` gives numbers to symbolic extents. Raises what emitting and `ig.cost` raise.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> y = f.output(ig.exp(f.input("x", shape=(1024,))) * 2.0)
        >>> ig.fuse.plan(f).moved()  # the exponential is neither stored nor read
        (16384, 8192)
        """
        totals = [
            cost(emit(copy_fusion(f), target="cuda"), symbols=symbols).total
            for f in (self.planned_fusion, self.scheduled)
        ]
        before, after = (t.bytes_read + t.bytes_written for t in totals)
        return before, after

    @arguments(ScheduleError, keep=rewriting)
    def apply(self, fusion: Fusion) -> None:
        """Schedule the user's fusion like this: `ig.schedule.auto`.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> y = f.output(ig.exp(f.input("x", shape=(64,))) * 2.0)
        >>> ig.fuse.plan(f).apply(f)
        >>> len(ig.emit(f, target="cuda").kernels)
        1
        """
        auto(fusion)

    def __str__(self) -> str:
        lines = [f"{self.before} kernels before, {self.after} after"]
        lines += [f"  kernel{n}: {', '.join(names)}" for n, names in enumerate(self.kernels)]
        lines += [f"  apart: {o.a.output.name} and {o.b.output.name}, {o.cause} of {o.buffer.name}" for o in self.apart]
        return "\n".join(lines)

    __repr__ = __str__

    def sheet(self) -> Sheet:
        """One row a kernel."""
        rows = [(f"kernel{n}", str(len(names)), ", ".join(names)) for n, names in enumerate(self.kernels)]
        return Sheet(
            f"{self.before} kernels before, {self.after} after", ("kernel", "operations", "tensors"), tuple(rows)
        )

    def to_json(self) -> str:
        """Kernels, their numbers, and the pairs that stay apart."""
        data = {"kernels": self.kernels, "before": self.before, "after": self.after,
                "apart": [o.row() for o in self.apart]}  # fmt: skip
        return json.dumps(data, indent=1)


@arguments(ScheduleError, first=True)
def plan(fusion: Fusion) -> FusionPlan:
    """Which operations of ``fusion`` share a kernel where `auto` schedules it; the fusion stays as it is.

    Launches that wait for each other one by one are counted from the loop nests; others are lowered, to see which
    of them share a launch. Raises what scheduling and, for those, emitting raise.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(64, 128))
    >>> y = ig.exp(x)
    >>> z = f.output(y / ig.sum(y, 1, keepdim=True))
    >>> p = ig.fuse.plan(f)
    >>> p.before, p.after, p.apart.rows
    (3, 1, ())
    """
    check_fusion(fusion, "plan", ScheduleError)
    with one_line():
        as_given, made = snapshot(fusion), clone_fusion(fusion)
        before = count(made)
        apply_gather_strategies(made, None, current_device())
        found = ordered_launches(made, schedule_loops(made).loops)
        kernels = operations(made, launches(made)) if found is None else found
        return FusionPlan(kernels, before, len(kernels), made, as_given)
