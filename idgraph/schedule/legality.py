"""The error of an illegal schedule, as a value: schedulers ask for it and then take another way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from idgraph.errors import ScheduleError
from idgraph.graphs import build_index_graph
from idgraph.index import IdModel
from idgraph.index.allocation import live_exprs
from idgraph.index.loop_tree import check_order, check_scan
from idgraph.index.predicate import check_covered, check_written
from idgraph.index.races import race_conflicts
from idgraph.ir import Fusion, IterDomain, Tensor, TensorExpr
from idgraph.ir import loop_transforms as loop_steps
from idgraph.ir.hooks import advised
from idgraph.ir.iter_domain import is_one
from idgraph.ir.parser import snapshot
from idgraph.ir.walks import reach

_LANES = ("vectorize", "unroll")


def nest_error(fusion: Fusion, exprs: Sequence[TensorExpr] | None = None) -> ScheduleError | None:
    """Why the present inlining (of ``exprs``, by default of all) is not legal, or None."""
    try:
        build_index_graph(fusion, exprs, widen=True)
    except ScheduleError as error:
        return error
    return None


def sharing(*tensors: Tensor) -> tuple[TensorExpr, ...]:
    """The operations that share a loop with those of ``tensors``, through tensors inlined, in order: no other can
    conflict."""

    def joined(e: TensorExpr) -> list[TensorExpr]:
        made = [p.definition for p in e.inputs if p.definition is not None and p.inline_position]
        return [*made, *(e.output.uses if e.output.inline_position else ())]

    found = reach([e for t in tensors if (e := t.definition) is not None], joined)
    return tuple(e for e in tensors[0].fusion.exprs if e in found)


def loop_conflict(model: IdModel, t: Tensor) -> ScheduleError | None:
    """Why the loops of ``t`` are not legal, whoever shares them, or None: they leave out what is read, or visit a scan
    or the entries of a scatter out of order."""
    try:
        check_covered(model, t)
        if t.definition is not None:
            check_order(t.definition, model, model.ways)
            check_scan(t.definition, model, model.ways)
    except ScheduleError as error:
        return error
    return None


def runs_inside(t: Tensor, p: int) -> IterDomain | None:
    """A loop that runs step by step inside loop ``p`` of ``t``, whose elements are then not neighbours in time."""
    return next((d for d in t.loop[p + 1 :] if d.parallel not in _LANES and d.extent != 1), None)


def drop_inlining(t: Tensor) -> None:
    """Take back the compute-at position of ``t``; its loops stay."""
    t.inline_position = 0
    t.forget("inline")


@dataclass(frozen=True, slots=True)
class InlineStop:
    """A tensor that `idgraph.schedule.inline_most` has left outside some of its loops.

    It shares the first ``position`` of its loops with its readers; ``refusal`` is the error of one more.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = ig.exp(f.input("x", shape=(4, 8)))
    >>> y = f.output(x[:, :4] + x[:, 4:])
    >>> (stop,) = ig.schedule.inline_most(f)
    >>> stop.tensor is x, stop.position
    (True, 1)
    >>> print(stop.refusal.what)
    tensor t1 is inlined at 2, but its loop 1, I3[8], is not loop 1, I9[4], of its consumer t3
    """

    tensor: Tensor
    position: int
    _fusion: Callable[[], Fusion] = field(repr=False, compare=False)

    @property
    def refusal(self) -> ScheduleError:
        """Why the next position is not legal: tried on copies of the fusion as `inline_most` left it."""
        f, at = self._fusion(), self.position + 1
        by_hand, has_loops = f"{self.tensor.name}.inline({at})", False
        try:
            loop_steps.inline(f[self.tensor.name], at)
            has_loops = True
            self._check(f)
        except ScheduleError as error:
            g = self._fusion()
            try:
                self._check(g[self.tensor.name].inline(at).fusion)
            except ScheduleError as other:
                return advised(f, error) if has_loops else advised(g, other)
            return ScheduleError(error.what, because=error.because, hint=f"{by_hand}, which changes its loops")
        return ScheduleError(f"loop {self.position} of {self.tensor.name} would be longer or shorter", hint=by_hand)

    def _check(self, fusion: Fusion) -> None:
        """Raise the `ScheduleError` of a copy in which the tensor shares more loops, if any."""
        t = fusion[self.tensor.name]
        build_index_graph(fusion, sharing(t), widen=True)
        if fusion.is_output(t):
            check_written(IdModel(fusion))
        before = self._fusion()
        known = {e.what for _, e in race_conflicts(IdModel(before), live_exprs(before))}
        for _, error in race_conflicts(IdModel(fusion), live_exprs(fusion)):
            if error.what not in known:
                raise error

    def __str__(self) -> str:
        error = self.refusal
        facts = "".join(f"\n  because {fact}" for fact in error.because)
        hint = f"\n  hint: {error.hint}" if error.hint else ""
        stays = f"{self.tensor.name} is inlined at {self.position} of its {len(self.tensor.loop)} loops"
        return f"{stays}; one more: {error.what}{facts}{hint}"


def inline_stops(fusion: Fusion, tensors: Sequence[Tensor]) -> tuple[InlineStop, ...]:
    """Those of ``tensors`` that others read, and that could have been inlined deeper but for what is in the way."""
    as_now = snapshot(fusion)
    return tuple(
        InlineStop(t, t.inline_position, as_now)
        for t in tensors
        if t.definition is not None and t.uses
        if any(d.kind != "reduction" and not is_one(d.extent) for d in t.loop[t.inline_position :])
    )
