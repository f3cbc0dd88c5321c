"""Programs with their buffers laid out, for launches that are repeated or timed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from idgraph.runtime.binding import OutputMemory
from idgraph.runtime.cuda.numba_cuda import simulated
from idgraph.runtime.cuda.simulator import Simulated
from idgraph.runtime.host_launch import HostPrepared
from idgraph.runtime.program import Program
from idgraph.runtime.shape_specialized import PreparedLaunch


def prepare_launch(
    program: Program,
    inputs: Mapping[str, Any],
    symbols: Mapping[str, int] | None = None,
    checked: bool = True,
    poison: bool = False,
    overlap: bool = True,
) -> PreparedLaunch | HostPrepared | Simulated:
    """The program with its buffers laid out: ``launch()`` runs its kernels, any number of times. ``results()`` are its
    outputs, which another launch overwrites. ``overlap``: on CUDA, blocks of a kernel may be placed while the
    last ones of the kernel before it run (they wait for its memory); False starts each after the one before has
    ended."""
    if program.target in ("python", "numpy"):
        return HostPrepared(program, inputs, symbols, checked, OutputMemory(poison))
    if program.target == "cuda" and simulated():
        return Simulated(program, inputs, symbols, checked, OutputMemory(poison))
    return program.caller(checked).with_static_buffers(program.ordered(inputs), symbols, poison, overlap)
