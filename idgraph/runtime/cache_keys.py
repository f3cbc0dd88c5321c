"""Which kernel cache a program has, and under which key a kernel of it is kept."""

from __future__ import annotations

from idgraph.kernel.grids import most_threads
from idgraph.kernel.ir import Kernel
from idgraph.runtime.cache import FORMAT, KernelCache, fallback, versions
from idgraph.runtime.executable import Executable


def cache_of(program: Executable) -> KernelCache | None:
    """Where the kernels of ``program`` are kept."""
    return program.cache or fallback()


def kernel_key(program: Executable, kernel: Kernel, checked: bool, cc: tuple[int, int]) -> str:
    """All that a kernel's PTX follows from: its source without comments, types, device and versions."""
    source = "\n".join(line.split("#")[0].rstrip() for line in program.kernel_source(kernel, checked).splitlines())
    types = ", ".join(b.dtype for b in kernel.buffers)
    form = f"{types}; {len(kernel.scalars)}; {checked}; {most_threads(kernel.launch)} threads"
    return "\n".join([FORMAT, versions(), f"sm_{cc[0]}{cc[1]}", form, source])
