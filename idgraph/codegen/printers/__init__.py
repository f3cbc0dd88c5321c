"""Source text of a plan: loops over scalars (Python, numba, numba.cuda), or whole grids at once (NumPy)."""

from __future__ import annotations

from idgraph.codegen.printers.grid import vector_kernel
from idgraph.codegen.printers.scalar import scalar_kernel
from idgraph.ir.device import Target
from idgraph.kernel.ir import Kernel, KernelModule


def kernel_source(kernel: Kernel, plan: KernelModule, target: Target, checked: bool) -> str:
    """The function of one kernel in the language of a target."""
    if target.grids:
        return vector_kernel(kernel, plan, checked)
    return scalar_kernel(kernel, plan, target, checked)
