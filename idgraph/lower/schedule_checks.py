"""Schedules that no kernel follows: refused by name before any is made, with the step and a way out.

Only sizes known without arrays are tested here; the launch tests the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from idgraph.arith import Expr, interval
from idgraph.errors import EmitError, ScheduleError, SourceLine
from idgraph.ir import Fusion, IterDomain, Tensor
from idgraph.ir.device import Target, current_device
from idgraph.kernel.ir import X, Y, Z, most_blocks
from idgraph.schedule.legality import runs_inside

_LOOPS = ("split", "merge", "reorder", "swizzle", "resize", "roll", "stride", "parallelize", "row_loops", "set_loop")


def check_schedule(fusion: Fusion, target: Target) -> None:
    """Raise `ScheduleError` for steps that no kernel would follow, `EmitError` for a launch that no device can do."""
    if target.threads and current_device().warp != target.warp:
        raise EmitError(
            f"{current_device().name} has warps of {current_device().warp} threads, kernels for {target.name} of "
            f"{target.warp}",
            hint="schedule and analyse for it within ig.cost.use_device, and emit outside",
        )
    limits = dict(target.limits)
    if not any(d.parallel in (Y, Z) for t in fusion.tensors for d in t.loop):
        limits[X] = most_blocks()  # which `idgraph.kernel.ir` counts along all three
    for t in fusion.tensors:
        if t.definition is None:
            _no_loops(t)
        else:
            _innermost(t)
            if target.threads:
                _check_limits(t, target, limits)


def _no_loops(t: Tensor) -> None:
    """An input has loops only to lay out its memory by them."""
    step = next((s for s in t.log if s.name in _LOOPS), None)
    if step is None or any(d not in t.logical for d in t.allocation):
        return
    reader = next((e.output.name for e in t.fusion.exprs if t in e.inputs), "")
    raise ScheduleError(
        f"{step.name}: {t.name} is an input of the fusion: it is read, and has no loops of its own",
        where=step.line,
        hint=f"schedule a tensor that reads it: {reader}.{step.name}(...)" if reader else "leave the step out",
    )


def _innermost(t: Tensor) -> None:
    """Refuse a vectorised loop that is not innermost: elements of a vector are neighbours."""
    for p, d in enumerate(t.loop):
        inside = runs_inside(t, p)
        if d.parallel != "vectorize" or inside is None:
            continue
        last = len(t.loop) - 1
        raise ScheduleError(
            f"vectorize of axis {p} of {t.name}, {d!r}: it is not the innermost loop",
            where=_line_of(t, "vectorize"),
            because=[f"the loop of {inside!r} runs inside it"],
            hint=f"{t.name}.reorder({{{p}: {last}}}) makes it the innermost",
        )


def _check_limits(t: Tensor, target: Target, limits: Mapping[str, int]) -> None:
    threads: list[tuple[int, IterDomain, int]] = []
    for p, d in enumerate(t.loop):
        most = limits.get(d.parallel)
        size = _least(d.extent)
        if most is None:
            continue
        if size > most:
            raise EmitError(
                f"axis {p} of {t.name}, {d!r}, is on {d.parallel}, which counts up to {most:,}",
                where=_line_of(t, d.parallel),
                hint=_way_out(t, p, d, max(1, _room(t, d, target.limits[d.parallel]))),
            )
        if d.parallel.startswith("threadIdx"):
            threads.append((p, d, size))
    total = prod(size for _, _, size in threads)
    most_threads = current_device().block_threads
    if total > most_threads:
        p, d, size = max(threads, key=lambda x: x[2])
        shape = " x ".join(str(s) for _, _, s in threads)
        raise EmitError(
            f"{t.name} asks for {shape} = {total:,} threads a block, of at most {most_threads:,}",
            where=_line_of(t, d.parallel),
            because=[f"axis {k} of {t.name}, {x!r}, is on {x.parallel}" for k, x, _ in threads],
            hint=_way_out(t, p, d, max(1, most_threads * size // total)),
        )


def _room(t: Tensor, d: IterDomain, most: int) -> int:
    """The part of an axis that fits beside the threads of the other axes."""
    if not d.parallel.startswith("threadIdx"):
        return most
    others = [x for x in t.loop if x is not d and x.parallel.startswith("threadIdx")]
    threads = current_device().block_threads
    return threads // prod(min(max(1, _least(x.extent)), threads) for x in others)


def _way_out(t: Tensor, p: int, d: IterDomain, most: int) -> str:
    used = {x.parallel for x in t.loop}
    if d.parallel.startswith("blockIdx") and "blockIdx.x" not in used:
        return f'blockIdx.x counts further: {t.name}.parallelize({p}, "blockIdx.x")'
    return f'put a part of it there: {t.name}.split({p}, {most}).parallelize({p + 1}, "{d.parallel}")'


def _least(extent: Expr) -> int:
    """The size of a loop, or the least that it may have."""
    return interval(extent)[0] or 0


def _line_of(t: Tensor, parallel: str) -> SourceLine | None:
    """The line that put an axis there."""
    return next(_lines_of_parallelize(t, parallel), t.source_line)


def _lines_of_parallelize(t: Tensor, parallel: str) -> Iterator[SourceLine | None]:
    for step in reversed(t.log):
        if (step.name == "parallelize" and parallel in step.args) or step.name == "row_loops":
            yield step.line
