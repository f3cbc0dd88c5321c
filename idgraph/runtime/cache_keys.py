"""Which kernel cache a program has, and under which key a kernel of it is kept."""

from __future__ import annotations

from math import prod

from idgraph.ir.targets import GPU
from idgraph.kernel.ir import Kernel
from idgraph.runtime.cache import FORMAT, KernelCache, fallback, versions
from idgraph.runtime.executable import Executable


def cache_of(program: Executable) -> KernelCache | None:
    """Where the kernels of ``program`` are kept."""
    return program.cache or fallback()


def most_threads(kernel: Kernel) -> int:
    """The threads of a block, or the most that a block may have where their number is a symbol's.

    >>> from idgraph.arith import as_expr
    >>> most_threads(Kernel("k", (), (), (), {"threadIdx.x": (as_expr(64), as_expr(32)), "threadIdx.y": (as_expr(4),)}))
    256
    """
    extents = [found for dim, found in kernel.launch.items() if dim.startswith("threadIdx")]
    if any(not n.is_const for e in extents for n in e):
        return GPU.max_threads
    return prod(max(1, *(int(n) for n in e)) for e in extents)


def kernel_key(program: Executable, kernel: Kernel, checked: bool, cc: tuple[int, int]) -> str:
    """All that a kernel's PTX follows from: its source without comments, types, device and versions."""
    source = "\n".join(line.split("#")[0].rstrip() for line in program.kernel_source(kernel, checked).splitlines())
    types = ", ".join(b.dtype for b in kernel.buffers)
    form = f"{types}; {len(kernel.scalars)}; {checked}; {most_threads(kernel)} threads"
    return "\n".join([FORMAT, versions(), f"sm_{cc[0]}{cc[1]}", form, source])
