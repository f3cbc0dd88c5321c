"""CUDA programs in numba's simulator: buffers, launches, outputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from idgraph.codegen.printers.scalar import site_numbers
from idgraph.errors import IndexingError
from idgraph.kernel.ir import Kernel, shared_layout
from idgraph.runtime.binding import Array, OutputMemory, fault_size, raise_fault, scalars_of
from idgraph.runtime.cuda.device_arrays import copy_to_host
from idgraph.runtime.cuda.launch import launch_shape
from idgraph.runtime.cuda.numba_cuda import need_device
from idgraph.runtime.host_launch import HostPrepared

if TYPE_CHECKING:
    from idgraph.runtime.loaded_program import LoadedKernels


_OUTSIDE = "outside a buffer"
_ONE = Lock()  # the simulator puts itself in the place of numba.cuda while a kernel runs


class Guarded(np.ndarray[Any, Any]):
    """Flat memory whose addresses are tested: NumPy counts a negative one from the end, and a device does not."""

    def __getitem__(self, at: Any) -> Any:
        return super().__getitem__(self._tested(at))

    def __setitem__(self, at: Any, value: Any) -> None:
        super().__setitem__(self._tested(at), value)

    def _tested(self, at: Any) -> Any:
        if isinstance(at, (int, np.integer)) and not 0 <= int(cast("int", at)) < self.size:
            raise IndexError(f"address {at} is {_OUTSIDE} of {self.size} elements")
        return cast("Any", at)


class Simulated(HostPrepared):
    """A CUDA program with its buffers in the simulator: `launch` runs its kernels, `results` are its outputs.

    Launching again computes again into the same buffers.
    """

    reuses = False

    def __init__(
        self,
        program: LoadedKernels,
        inputs: Mapping[str, Any],
        symbols: Mapping[str, int] | None = None,
        checked: bool = True,
        memory: OutputMemory | None = None,
    ) -> None:
        self._cuda = cuda = need_device()
        super().__init__(program, inputs, symbols, checked, memory)
        functions: dict[str, Any] = dict(program.functions(checked))
        self._kernels: list[tuple[Kernel, Callable[[], None], Any]] = []
        for kernel in program.plan.kernels:
            fault = cuda.to_device(np.zeros(fault_size(kernel), np.int64)) if checked else None
            arguments = [*(self._flat[b.name] for b in kernel.buffers), *map(np.int64, scalars_of(kernel, self.env))]
            blocks, threads = launch_shape(kernel, self.env)
            arguments += [] if fault is None else [fault]
            shared = shared_layout(kernel.body).dynamic
            start = _start(functions[kernel.name], blocks, threads, arguments, shared)
            self._kernels.append((kernel, start, fault))

    def launch(self) -> None:
        """Start all kernels in order; a checked program raises `IndexingError` for a loaded index out of range."""
        for kernel, start, fault in self._kernels:
            try:
                with _ONE:
                    start()
            except (LookupError, NameError) as error:  # the simulator's, of threads that go on after a failed check
                self._raise_fault(kernel, fault)
                if _OUTSIDE not in str(error):
                    raise
                raise IndexingError(
                    f"{kernel.name}: {error}",
                    hint="a loaded index is out of range: run(..., checked=True) names the point",
                ) from error
            self._raise_fault(kernel, fault)

    def _raise_fault(self, kernel: Kernel, fault: Any) -> None:
        """Raise what a failed check of a loaded index has left in ``fault``."""
        if fault is not None and site_numbers(kernel):
            found = fault.copy_to_host()
            if found[0]:
                raise_fault(kernel, found, self.env)

    def placed(self, array: Array) -> Any:
        return self._cuda.to_device(array.view(Guarded))

    def on_host(self, flat: Any) -> Array:
        return copy_to_host(flat)


def _start(
    function: Any, blocks: tuple[int, ...], threads: tuple[int, ...], arguments: list[Any], shared: int
) -> Callable[[], None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few threads are what small shapes need
        configured = function[blocks, threads, 0, shared]

    def simulate() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the simulator's threads warn of the infinities that kernels make
            configured(*arguments)

    return simulate
