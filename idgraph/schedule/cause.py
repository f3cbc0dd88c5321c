"""The schedule step after which an inlining is no longer legal: steps are taken again on copies, up to each in turn."""

from __future__ import annotations

from idgraph.errors import IdGraphError, ScheduleError
from idgraph.graphs import build_index_graph
from idgraph.ir import Fusion, Tensor
from idgraph.ir.parsing import parse_fusion
from idgraph.ir.step import ScheduleStep

_BISECTION_LIMIT = 300  # operations of a fusion that is worth copying a dozen times
Taken = tuple[Tensor, ScheduleStep]


def bisect_illegal_step(fusion: Fusion, error: ScheduleError, hint: str) -> ScheduleError:
    """``error`` at the line of the step that causes it, with ``hint``; where none is found, at its operation's line."""
    found = _causing(fusion, error)
    where, because = error.where, list(error.because)
    if found is not None:
        t, step = found
        made = f", and {error.subject[0]} is made at {error.where}" if error.where and error.subject else ""
        because.append(f"the schedule is legal before the step {t.name}.{step}{made}")
        where = str(step.line) if step.line is not None else where
    return ScheduleError(error.what, where=where, because=because, hint=hint or error.hint, subject=error.subject)


def _causing(fusion: Fusion, error: ScheduleError) -> Taken | None:
    taken = sorted(((t, step) for t in fusion.tensors for step in t.log), key=lambda pair: pair[1].at)
    if len(fusion.exprs) > _BISECTION_LIMIT:
        own = [pair for pair in taken if pair[0].name in error.subject and pair[1].name == "inline"]
        return own[-1] if own else None
    lines = str(fusion).splitlines()
    steps = [n for n, line in enumerate(lines) if line.startswith("  schedule ")]
    if len(steps) != len(taken) or not steps:
        return None

    def legal(count: int) -> bool:
        """The fusion with its first ``count`` steps."""
        try:
            build_index_graph(parse_fusion("\n".join([*lines[: steps[0]], *lines[steps[0] : steps[0] + count], "}"])))
        except IdGraphError:
            return False
        return True

    low, high, back = len(steps), len(steps), 1
    while low and not legal(low):
        low, high, back = max(0, low - back), low, 2 * back
    if low == len(steps) or not legal(low):
        return None
    while high - low > 1:  # legal after ``low`` steps, not after ``high``
        middle = (low + high) // 2
        low, high = (middle, high) if legal(middle) else (low, middle)
    return taken[low]
