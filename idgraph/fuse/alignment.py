"""Schedule steps that put two operations into one kernel, as data that can be taken on the user's fusion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from idgraph.errors import IdGraphError, ScheduleError, arguments
from idgraph.ir import Fusion, Tensor
from idgraph.ir.axis_read import Attr
from idgraph.ir.clone import rewriting
from idgraph.ir.loop_transforms import reset
from idgraph.ir.op_table import apply as build
from idgraph.ir.parser import replay_step
from idgraph.runtime.program import emit
from idgraph.schedule import auto


@dataclass(frozen=True, slots=True)
class AlignmentStep:
    """One schedule step: ``name`` of a `Tensor` method with its arguments, or "recompute" of ``tensor`` for a reader.

    >>> str(AlignmentStep("t3", "split", (0, 8)))
    't3.split(0, 8)'
    """

    tensor: str
    name: str
    args: tuple[Attr, ...] = ()
    copy: str = ""  # the name of a private copy
    named: tuple[tuple[str, Attr], ...] = ()  # arguments by name

    def __str__(self) -> str:
        named = (f"{k}={v!r}" for k, v in self.named)
        given = ", ".join([*(repr(a) if isinstance(a, str) else str(a) for a in self.args), *named])
        if self.name == "recompute":
            return f"ig.schedule.recompute({self.tensor}, {self.args[0]}.definition, name={self.copy!r})"
        if self.name == "auto":
            return "ig.schedule.auto(f" + (f", gathers={dict(self.args)}" if self.args else "") + ")"  # type: ignore[arg-type]
        if self.name == "reset":
            return f"{self.tensor}: loops as its axes are"
        return f"{self.tensor}.{self.name}({given})"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class Alignment:
    """``steps`` after which both operations access the same element of the buffer in the same iteration of the same
    loops.

    They were taken on a copy whose kernels were emitted and validated: ``kernels_before`` and ``kernels_after`` are
    those of the two operations and what lies between, ``points`` the addresses that were checked (0 where the sizes are
    too large for the oracle's tables: then the index graph is proved free of conflicts and races, no more).
    ``one_kernel`` says whether the emitted CUDA program then has both in one kernel; sums beside each other have one
    each so far. ``once``: the producer's loops stand in front of its reader's others, so each element is computed once,
    whatever `Obstacle.recompute_factor` says.
    """

    steps: tuple[AlignmentStep, ...]
    kernels_before: int
    kernels_after: int
    points: int
    one_kernel: bool = True
    once: bool = False

    @arguments(ScheduleError, keep=rewriting)
    def apply(self, fusion: Fusion) -> None:
        """Take the steps on ``fusion``, whose tensors have the names they had; earlier schedules of those tensors are
        dropped. A private copy gets another name where its own is taken. Raises `ScheduleError` where a step is not
        legal there, or `emit` would refuse what they make, and leaves the fusion as it was.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> x = ig.exp(f.input("x", shape=(32, 64)))
        >>> y = f.output(ig.transpose(x, 0, 1) * 2.0)
        >>> ig.fuse.explain(f, x, y).alignment.apply(f)
        >>> len(ig.emit(f, target="cuda").kernels)
        1
        """
        replay(fusion, self.steps)
        try:
            emit(fusion, target="cuda" if self.one_kernel else "python")
        except IdGraphError as error:
            raise ScheduleError(
                f"the steps cannot be taken on fusion {fusion.name}: it could not be emitted",
                because=(error.what, *error.because),
                hint="ask again: ig.fuse.explain(f, a, b) tries them on the fusion as it is",
            ) from None

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    __repr__ = __str__


def replay(fusion: Fusion, steps: Sequence[AlignmentStep]) -> None:
    """Take the steps."""
    by_name = {t.name: t for t in fusion.tensors}
    for step in steps:
        if step.name == "auto":
            auto(fusion, gathers=dict(step.args) or None)  # type: ignore[arg-type]
            continue
        t = by_name.get(step.tensor)
        if t is None:
            raise ScheduleError(
                f"{step}: fusion {fusion.name} has no tensor {step.tensor!r}",
                hint="apply the alignment to the fusion that was asked about, or to a copy of it",
            )
        if step.name == "recompute":
            by_name[step.copy] = _copy(fusion, t, by_name[str(step.args[0])], step.copy)
        elif step.name == "reset":
            reset(t)
        else:
            replay_step(t, step.name, step.args, dict(step.named))


def _copy(fusion: Fusion, t: Tensor, reader: Tensor, name: str) -> Tensor:
    e, use = t.definition, reader.definition
    if e is None or use is None or t not in use.inputs:
        raise ScheduleError(f"{reader.name} does not read {t.name}", where=t.source_line, hint="as when it was asked")
    taken = any(t.name == name for t in fusion.tensors)
    with fusion.at_line(e.source_line):
        made = build(fusion, e.op, e.args, e.attrs, None if taken else name)
    fusion.replace_operand(use, t, made, None)
    return made
