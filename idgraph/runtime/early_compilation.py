"""Kernels compiled before the first call: by other processes, and by this one beside them."""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.runtime.cpu import compiler as cpu_entry
from idgraph.runtime.cuda.compiler import submit as cuda_submit
from idgraph.runtime.loaded_program import LoadedKernels


def start_compiling(program: LoadedKernels, checked: bool) -> None:
    """Have other processes compile the kernels, for the device there is, while this one emits others."""
    match program.target:
        case "cpu":
            cpu_entry.submit(program, _lazy(program, checked), checked)
        case "cuda":
            cuda_submit(program, checked)
        case _:
            pass


def share_compiling(programs: Sequence[LoadedKernels], checked: bool) -> None:
    """Compile kernels here, beside the other processes, until all have been begun with."""
    cpu_entry.share_waiting([k for p in programs if p.target == "cpu" for k in _lazy(p, checked)])


def _lazy(program: LoadedKernels, checked: bool) -> list[cpu_entry.LazyKernel]:
    return [k for k in program.functions(checked).values() if isinstance(k, cpu_entry.LazyKernel)]
