"""The cost of a fusion whose gathers are taken given ways: scheduled, emitted and counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from idgraph.cost.iteration_count import visiting
from idgraph.cost.model import program_cost
from idgraph.cost.report import Cost
from idgraph.errors import one_line
from idgraph.ir import Fusion
from idgraph.ir.device import Device
from idgraph.ir.hooks import Estimate, estimate_with
from idgraph.rewrite.gather_strategy import Force
from idgraph.runtime.program import Program, emit
from idgraph.schedule.auto import apply_gather_strategies, auto, schedule_loops

_KEPT = 1024  # estimates
_KNOWN: dict[tuple[str, str, tuple[tuple[str, int], ...]], Estimate] = {}  # by operations, device and symbols
VISITED = 1 << 18  # points of a statement that are visited one by one to compare ways


def as_emitted(
    fusion: Fusion, ways: Mapping[str, str], device: Device, symbols: Mapping[str, int]
) -> tuple[Program, Cost]:
    """The program of a fusion that `auto` schedules with these ways for the device's kind, and its cost."""
    auto(fusion, gathers=cast("Force", ways), device=device)
    program = emit(fusion, target=device.kind)
    return program, program_cost(program, device, symbols, {}, False)


def estimate_of(c: Cost) -> Estimate:
    """The numbers that ways are compared by."""
    t = c.total
    return Estimate(len(c.kernels), t.bytes_read + t.bytes_written, t.flops + t.atomics, t.time_us)


def estimate(fusion: Fusion, ways: Mapping[str, str], device: Device, symbols: Mapping[str, int]) -> Estimate:
    """Only the estimate; see `idgraph.ir.hooks`.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(8, 10)), f.input("i", shape=(8, 1), dtype="int64")
    >>> t = f.output(ig.gather(x * 2.0, 1, i))
    >>> estimate(f, {t.name: "recompute"}, ig.cost.devices["H200"], {}).kernels
    1
    """
    with visiting(VISITED), one_line():
        apply_gather_strategies(fusion, cast("Force", ways), device)
        key = (str(fusion), device.to_json(), tuple(sorted(symbols.items())))
        known = _KNOWN.get(key)
        if known is None:  # ways often leave the same operations: a gather of a gather takes the inner one with it
            schedule_loops(fusion)
            program = emit(fusion, target=device.kind)
            known = estimate_of(program_cost(program, device, symbols, {}, False))
            if len(_KNOWN) >= _KEPT:
                _KNOWN.clear()
            _KNOWN[key] = known
        return known


estimate_with(estimate)
