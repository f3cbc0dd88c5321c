"""The launches of a fusion that `auto` has scheduled, where what each waits for leaves one order: without lowering.

Two launches become one only where neither waits for the other (`idgraph.passes.fuse_launches`). Where each waits for
the one before it, the launches are the loop nests, and which operations each has follows from the schedule.
"""

from __future__ import annotations

from idgraph.graphs.index_graph import Legal
from idgraph.graphs.loops import LoopNests
from idgraph.graphs.promotion import Promotion
from idgraph.index import IdModel
from idgraph.index.live import live_exprs
from idgraph.index.model import LoopVariable, loops_of
from idgraph.index.nest import outermost, same_launch
from idgraph.index.storage import in_memory
from idgraph.ir import SCANS, SCATTERS, Fusion, LoadedCoordinate, Tensor, TensorExpr


def ordered_launches(fusion: Fusion, loops: Legal | None = None) -> tuple[tuple[str, ...], ...] | None:
    """The tensors that each CUDA launch makes, in launch order; None where only the lowered kernels tell.

    That is where a launch does not wait for the one before it, where an index is loaded, in scans and in updates.
    ``fusion`` is scheduled by `auto`, which has proved that its loop nests can be done; ``loops`` are what it proved.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> y = f.output(ig.exp(f.input("x", shape=(64, 128))) * 2.0)
    >>> _ = ig.schedule.auto(f)
    >>> ordered_launches(f)
    (('t1', 't2'),)
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
    return tuple(
        tuple(e.output.name for e in sorted(_inside(stored, wanted - stored), key=order.__getitem__))
        for stored, wanted in zip(made, read, strict=True)
    )


def _inside(stored: set[Tensor], read: set[Tensor]) -> set[TensorExpr]:
    """The operations behind what a launch stores, up to what it reads."""
    inside: set[TensorExpr] = set()
    work = [t.definition for t in stored]
    while work:
        e = work.pop()
        if e is not None and e not in inside and e.output not in read:
            inside.add(e)
            work += [t.definition for t in e.inputs]
    return inside


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
