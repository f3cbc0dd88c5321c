"""`plan`: which operations share a kernel, before and after the automatic schedule, and what stays apart, why.

The launches of a fusion that `auto` has scheduled, where what each waits for leaves one order: without lowering.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from idgraph.cost import cost
from idgraph.display import Printed, Sheet
from idgraph.errors import ScheduleError, arguments, one_line
from idgraph.fuse.explain import count, obstacles, operations
from idgraph.fuse.obstacle import Obstacles
from idgraph.graphs.index_graph import Legal
from idgraph.graphs.loop_nest import LoopNests
from idgraph.graphs.loop_promotion import Promotion
from idgraph.index import IdModel
from idgraph.index.allocation import in_memory, live_exprs
from idgraph.index.id_model import LoopVariable, loops_of
from idgraph.index.loop_tree import outermost, same_launch
from idgraph.ir import SCANS, SCATTERS, Fusion, LoadedCoordinate, TensorExpr, check_fusion
from idgraph.ir.clone import clone_fusion, rewriting
from idgraph.ir.device import current_device
from idgraph.ir.parser import copy_fusion, snapshot
from idgraph.ir.walks import upstream
from idgraph.runtime.program import emit, launches
from idgraph.schedule import auto
from idgraph.schedule.auto import apply_gather_strategies, schedule_loops


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
