"""Where tensors are inlined: fits their readers' loops, and a scatter's target is whole in memory."""

from __future__ import annotations

from idgraph.errors import ScheduleError
from idgraph.ir import SCATTERS, Fusion, Tensor, TensorExpr


def check_positions(fusion: Fusion) -> None:
    """Every inlined tensor fits its consumers' loops in number, and shares no reducing loop of its own."""
    for t in fusion.tensors:
        k = t.inline_position
        if not k:
            if t.memory in ("local", "shared") and t.definition is not None and t.definition.op in SCATTERS:
                _check_whole(t, f"asks for {t.memory} memory")
            continue
        _check_whole(t, f"is inlined at {k}")
        if k > len(t.loop) or "reduction" in [d.kind for d in t.loop[:k]]:
            raise ScheduleError(
                f"tensor {t.name} is inlined at {k}, but its loops were rescheduled to {', '.join(map(repr, t.loop))}",
                where=t.source_line,
                subject=(t.name,),
            )
        for e in t.uses:
            if len(e.output.loop) < k:
                raise _past_consumer(t, e, k)


def _check_whole(t: Tensor, wish: str) -> None:
    """A tensor that a scatter writes at loaded coordinates is whole in memory before, and read when it is done."""
    readers = [e for e in t.uses if e.op in SCATTERS and e.inputs[0] is t]
    made = t.definition
    if made is not None and made.op in SCATTERS:
        because = f"{made!r} writes at loaded coordinates: an element is final when all its loops have ended"
    elif readers:
        because = f"{readers[0]!r} updates elements at loaded coordinates: all of {t.name} must be there before"
    else:
        return
    raise ScheduleError(
        f"tensor {t.name} {wish}, but it must be whole in memory",
        where=t.source_line,
        because=[because],
        subject=(t.name,),
    )


def _past_consumer(t: Tensor, e: TensorExpr, k: int) -> ScheduleError:
    """The error for an inlining past a consumer's loops."""
    return ScheduleError(
        f"tensor {t.name} is inlined at {k}, past its consumer {e.output.name}, which has {len(e.output.loop)} loops",
        where=t.source_line,
        because=[f"{e!r}" + (f" at {e.source_line}" if e.source_line else "")],
        subject=(t.name, e.output.name),
    )
