"""Kernels with their loops over columns as sweeps: joined, and on the GPU in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from idgraph.emit.plan import Accumulate, If, Kernel, Loop, Plan, Stmt, Store, walk
from idgraph.emit.rows.chunks import lowered, settled, stores
from idgraph.emit.rows.join import with_sweeps
from idgraph.emit.rows.serial import serial
from idgraph.emit.rows.sweep import Sweep, sweep_of, tidied


def with_rows(plan: Plan, *, threads: bool = True) -> Plan:
    """The plan with reductions over the threads of a block, and what stands beside them, in aligned chunks.

    Without ``threads``, for the CPU: in plain loops over the columns.
    """
    return replace(plan, kernels=tuple(_kernel(k, threads) for k in plan.kernels))


def _kernel(kernel: Kernel, threads: bool) -> Kernel:
    if not any(isinstance(s, Accumulate) and s.buffer is None for s in walk(kernel.body)):
        return kernel
    written = {s.buffer.name for s in walk(kernel.body) if isinstance(s, (Store, Accumulate)) and s.buffer is not None}
    read_only = frozenset(b.name for b in kernel.buffers if b.name not in written)
    return replace(kernel, body=tuple(_level(tidied(kernel.body), read_only, threads)))


def _level(body: Sequence[Stmt], read_only: frozenset[str], threads: bool) -> list[Stmt]:
    """The statements of one level; sweeps stand where a level has a reduction over threads or lanes."""
    if not any(_is_row(s) for s in body):
        return [
            replace(s, body=tuple(_level(s.body, read_only, threads))) if isinstance(s, (Loop, If)) else s for s in body
        ]
    parts = with_sweeps(body, online=threads)
    if not threads:
        return [x for p in parts for x in (serial(p, read_only) if isinstance(p, Sweep) else (p,))]
    writes = any(isinstance(p, Sweep) and stores(p) for p in parts)
    made: list[Stmt] = []
    for n in range(len(parts) - 1, -1, -1):
        part = parts[n]
        if isinstance(part, Sweep):
            made = [*lowered(part, read_only, writes), *settled(part, made)]
        else:
            made = [part, *made]
    return made


def _is_row(s: Stmt) -> bool:
    """A loop over columns that accumulates one number."""
    sweep = sweep_of(s) if isinstance(s, Loop) else None
    return sweep is not None and any(isinstance(x, Accumulate) and x.buffer is None for x in sweep.body)
