"""Source text of a plan: loops over scalars (Python, numba, numba.cuda), or whole grids at once (NumPy)."""

from __future__ import annotations

from idgraph.codegen.printers.scalar import scalar_kernel
from idgraph.codegen.printers.vector import vector_kernel
from idgraph.kernel.ir import Kernel, Plan

TARGETS = ("python", "numpy", "cpu", "cuda")


def kernel_source(kernel: Kernel, plan: Plan, target: str, checked: bool) -> str:
    """The function of one kernel in the language of ``target``."""
    if target == "numpy":
        return vector_kernel(kernel, plan, checked)
    return scalar_kernel(kernel, plan, target, checked)
