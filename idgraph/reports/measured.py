"""Times of programs on this machine, for the metric tables: kernels apart, pairs fused and not, rows kept and not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from idgraph.errors import IdGraphError
from idgraph.fuse import Obstacle
from idgraph.ir import Fusion
from idgraph.ir.rebuild import rebuild
from idgraph.runtime import emit
from idgraph.runtime.launch import prepared
from idgraph.runtime.program import Program
from idgraph.runtime.tuning.trials import shortest
from idgraph.runtime.tuning.tuner import Tuner
from idgraph.schedule import auto
from idgraph.schedule.config import KernelConfig
from idgraph.validate.inputs import random_inputs

Where = Literal["cpu", "cuda"]


def kernel_times(program: Program, symbols: Mapping[str, int]) -> dict[str, float]:
    """Microseconds of each kernel, the least of several runs; the inputs are random."""
    ready = prepared(program, random_inputs(program.fusion, symbols=symbols), symbols)
    ready.launch()
    where: Where = "cuda" if program.target == "cuda" else "cpu"
    return {name: shortest(work, where) for name, work in ready.works()}


def _time(f: Fusion, where: Where, symbols: Mapping[str, int], config: KernelConfig | None = None) -> float:
    program = emit(f, where, config=config)
    ready = prepared(program, random_inputs(f, symbols=symbols), symbols)
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
        fused = rebuild(f)
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
        copy, config = rebuild(f), KernelConfig(persistent=kept)
        try:
            auto(copy, config=config)
            program = emit(copy, where, config=config)
            texts[kept], kernels = program.source, len(program.kernels)
        except IdGraphError as error:
            notes.append(f"persistent={kept}: {error.what}"[:200])
    if len(texts) == 2 and texts[True] == texts[False]:
        return
    for kept in texts:
        copy, config = rebuild(f), KernelConfig(persistent=kept)
        auto(copy, config=config)
        times[kept] = _time(copy, where, symbols, config)
    if times:
        chosen = min(times, key=lambda k: times[k])
        yield {
            "kernels": kernels, "persistent_us": times.get(True), "looped_us": times.get(False),
            "chosen": "persistent" if chosen else "looped", "note": "; ".join(notes) or None,
        }  # fmt: skip


def autotuned(f: Fusion, where: Where, timer: Callable[..., float] | None = None) -> Iterator[dict[str, Any]]:
    """Every config that the tuner tried."""
    found = (Tuner() if timer is None else Tuner(timer=timer)).tune(rebuild(f), where)
    for m in found.measured:
        yield {
            "config": str(m.config), "us": None if math.isnan(m.us) else m.us, "chosen": m.config == found.config,
            "note": m.note or None,
        }  # fmt: skip
