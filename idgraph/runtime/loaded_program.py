"""An executable with its kernels as functions, and the size-independent parts of its calls, each made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from idgraph.errors import EmitError, arguments
from idgraph.index.int_width import Size
from idgraph.ir import Fusion
from idgraph.ir.device import TargetName as Target
from idgraph.kernel.ir import KernelModule
from idgraph.loading import LOADING
from idgraph.runtime.executable import Executable
from idgraph.runtime.kernel_cache import KernelCache

if TYPE_CHECKING:
    from idgraph.runtime.call_signature import CallSignature


class LoadedKernels(Executable):
    """Kernels that a launch can start."""

    __slots__ = ("_functions", "_mold")

    def __init__(
        self,
        fusion: Fusion,
        target: Target,
        plan: KernelModule,
        cache: KernelCache | None = None,
        sizes: tuple[Size, ...] = (),
    ) -> None:
        super().__init__(fusion, target, plan, cache, sizes)
        self._functions: dict[tuple[bool, int], dict[str, Callable[..., Any]]] = {}
        self._mold: CallSignature | None = None

    @arguments(EmitError)
    def functions(self, checked: bool = True, device: int = 0) -> dict[str, Callable[..., Any]]:
        """The kernels as functions by name, compiled once: of flat buffers and integers, on the CPU of a block of words
        (`idgraph.runtime.cpu.compiler`), on CUDA to be launched on ``device``."""
        with LOADING:
            from idgraph.runtime.compile_kernels import compile_functions  # noqa: PLC0415  # NumPy, and the targets' compilers behind it

        found = self._functions.get((checked, device))
        if found is None:
            found = self._functions[checked, device] = compile_functions(self, checked)
        return found

    @property
    def mold(self) -> CallSignature:
        """The size-independent parts of its calls."""
        if self._mold is None:
            with LOADING:
                from idgraph.runtime.call_signature import CallSignature  # noqa: PLC0415  # NumPy

            self._mold = CallSignature(self)
        return self._mold
