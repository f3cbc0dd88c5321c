"""Times of programs on this machine, for the metric tables: each kernel, pairs fused or not, rows held or reloaded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from idgraph.errors import IdGraphError
from idgraph.fuse import Obstacle
from idgraph.ir import Fusion
from idgraph.ir.clone import clone_fusion
from idgraph.runtime import emit
from idgraph.runtime.program import Program
from idgraph.runtime.tuning.trial import prepare_launch, shortest
from idgraph.runtime.tuning.tuner import Tuner
from idgraph.schedule import auto
from idgraph.schedule.config import KernelConfig
from idgraph.validate.value_check import random_inputs

Where = Literal["cpu", "cuda"]


MOST = 8  # kernels of a program that are timed one by one: each needs a program of its own


def program_time(program: Program, symbols: Mapping[str, int]) -> float:
    """Microseconds of a run of all kernels, the least of several; the inputs are random."""
    ready = prepare_launch(program, random_inputs(program.fusion, symbols=symbols), symbols)
    ready.launch()
    return shortest(ready.launch, "cuda" if program.target == "cuda" else "cpu")


def kernel_times(program: Program, symbols: Mapping[str, int]) -> dict[str, float]:
    """Microseconds of each kernel: of the program up to it, less of the program up to the one before.

    A kernel run by itself would read buffers that were never written. Empty for a program of more than `MOST` kernels.
    """
    if len(program.kernels) > MOST:
        return {}
    made: dict[str, float] = {}
    before = 0.0
    for n, k in enumerate(program.kernels, 1):
        plan = replace(program.plan, kernels=program.plan.kernels[:n])
        whole = n == len(program.kernels)
        part = program if whole else Program(program.fusion, program.target, plan, program.cache)
        until = program_time(part, symbols)
        made[k.name] = max(until - before, 0.0)
        before = max(until, before)
    return made


def _time(f: Fusion, where: Where, symbols: Mapping[str, int]) -> float:
    program = emit(f, where)
    ready = prepare_launch(program, random_inputs(f, symbols=symbols), symbols)
    ready.launch()
    return shortest(ready.launch, where)


def slow_pairs(
    f: Fusion, pairs: Iterable[Obstacle], where: Where, symbols: Mapping[str, int]
) -> Iterator[tuple[Obstacle, float, float]]:
    """Each pair that can be aligned, with microseconds of the program with the two apart and together."""
    apart: float | None = None
    for o in pairs:
        if o.alignment is None:
            continue
        fused = clone_fusion(f)
        try:
            o.alignment.apply(fused)
            together = _time(fused, where, symbols)
        except IdGraphError:
            continue  # the steps align the pair, and the program as a whole cannot be emitted with them
        apart = _time(f, where, symbols) if apart is None else apart
        yield o, apart, together


def persistent_times(f: Fusion, where: Where, symbols: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Microseconds with rows held between passes and without, where that makes other kernels."""
    texts: dict[bool, str] = {}
    times: dict[bool, float] = {}
    notes: list[str] = []
    kernels = 0
    for kept in (True, False):
        copy, config = clone_fusion(f), KernelConfig(persistent=kept)
        try:
            auto(copy, config=config)
            program = emit(copy, where)
            texts[kept], kernels = program.source, len(program.kernels)
        except IdGraphError as error:
            notes.append(f"persistent={kept}: {error.what}"[:200])
    if len(texts) == 2 and texts[True] == texts[False]:
        return
    for kept in texts:
        copy, config = clone_fusion(f), KernelConfig(persistent=kept)
        auto(copy, config=config)
        times[kept] = _time(copy, where, symbols)
    if times:
        chosen = min(times, key=lambda k: times[k])
        yield {
            "kernels": kernels, "persistent_us": times.get(True), "looped_us": times.get(False),
            "chosen": "persistent" if chosen else "looped", "note": "; ".join(notes) or None,
        }  # fmt: skip


def autotuned(f: Fusion, where: Where, timer: Callable[..., float] | None = None) -> Iterator[dict[str, Any]]:
    """Every config that the tuner tried."""
    found = (Tuner() if timer is None else Tuner(timer=timer)).tune(clone_fusion(f), where)
    for m in found.measured:
        yield {
            "config": str(m.config), "us": None if math.isnan(m.us) else m.us, "chosen": m.config == found.config,
            "note": m.note or None,
        }  # fmt: skip
