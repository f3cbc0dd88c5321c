"""Kernels: one plan (loops, lets, predicates, loads, stores, buffers), printed for four targets and run.

Importing this package loads no NumPy; emitting does.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from idgraph.errors import EmitError, arguments, no_attribute
from idgraph.ir import Fusion
from idgraph.ir.device import TargetName as Target
from idgraph.loading import LOADING, load

if TYPE_CHECKING:
    from pathlib import Path

    from idgraph.index.loop_tree import IndexMaps
    from idgraph.kernel.ir import Kernel, KernelModule
    from idgraph.runtime.cuda.compiler import compile_ptx
    from idgraph.runtime.cuda.numba_cuda import available as cuda_available
    from idgraph.runtime.program import Program

__all__ = ["Kernel", "KernelModule", "Program", "Target", "compile_ptx", "cuda_available", "emit"]

_LATER = {
    "Kernel": ("kernel.ir", "Kernel"), "KernelModule": ("kernel.ir", "KernelModule"), "Program": ("runtime.program",
    "Program"), "compile_ptx": ("runtime.cuda.compiler", "compile_ptx"), "cuda_available":
    ("runtime.cuda.numba_cuda", "available"),
}  # fmt: skip


@arguments(EmitError, first=True)
def emit(
    fusion: Fusion,
    target: Target = "python",
    *,
    model: IndexMaps | None = None,
    cache: str | Path | None = None,
    views: bool = False,
) -> Program:
    """Kernels that compute the outputs of ``fusion`` as scheduled.

    ``target`` is "python" (reads like the mathematics), "numpy" (whole grids), "cpu" (numba) or "cuda" (numba.cuda; its
    source needs no GPU). ``model`` replaces the index maps, for tests of wrong ones. ``cache`` is a folder that keeps
    compiled CUDA kernels, safe to share and to damage. With ``views``, outputs that are views of inputs
    (`idgraph.layout.alias`) have no kernel, and what runs gives views of the arrays it was given. Raises `FusionError`,
    `ScheduleError` for a race or an inlining no loop nest can do, `EmitError` for what a target cannot express, or a
    kernel cannot obey (`Tensor.persistent`).

    >>> import idgraph as ig, numpy as np
    >>> from idgraph.runtime import emit  # or ig.emit
    >>> f = ig.Fusion("half")
    >>> t = f.output(f.input("x", shape=(8,))[4:])
    >>> emit(f, target="numpy").run({"x": np.arange(8, dtype=np.float32)})["t1"]
    array([4., 5., 6., 7.], dtype=float32)
    """
    with LOADING:
        from idgraph.runtime.program import emit as build  # noqa: PLC0415 - loads NumPy

    return build(fusion, target, model=model, cache=cache, views=views)


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise no_attribute(sys.modules[__name__], name)
    module, attribute = _LATER[name]
    return getattr(load(f"idgraph.{module}"), attribute)


class _EmitModule(ModuleType):
    """``ig.emit`` is the function; where a tool puts the package in its place, calling that does the same."""

    __call__ = staticmethod(emit)


sys.modules[__name__].__class__ = _EmitModule
