"""CUDA programs in numba's simulator: buffers, launches, outputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from idgraph.codegen.printers.scalar import site_numbers
from idgraph.kernel.ir import Kernel
from idgraph.kernel.shared import shared_layout
from idgraph.runtime.binding import bind, flat_input, given_array, global_buffer, output_array, scalars_of
from idgraph.runtime.cuda.arrays import on_host
from idgraph.runtime.cuda.device import need_device
from idgraph.runtime.cuda.launch import launch_shape
from idgraph.runtime.faults import fault_size, raise_fault

if TYPE_CHECKING:
    from idgraph.runtime.program import Program


class Simulated:
    """A CUDA program with its buffers in the simulator: `launch` runs its kernels, `results` are its outputs.

    Launching again computes again into the same buffers.
    """

    def __init__(
        self,
        program: Program,
        inputs: Mapping[str, Any],
        symbols: Mapping[str, int] | None = None,
        checked: bool = True,
        poison: bool = False,
    ) -> None:
        cuda, fusion = need_device(), program.fusion
        self.program = program
        given = {name: given_array(name, a) for name, a in inputs.items()}
        self.env = bind(fusion, given, symbols)
        program.check_sizes(self.env)
        self._given = given
        self._homes = {b.title: b.name for b in program.plan.buffers if b.place != "private"}
        self._flat: dict[str, Any] = {}
        for t in fusion.inputs:
            made = flat_input(t, given[t.name], self.env)
            if t.name in self._homes:
                self._flat[self._homes[t.name]] = cuda.to_device(made)
        for b in program.plan.buffers:
            if b.place in ("output", "global"):
                host = global_buffer(program, b, self.env, poison)
                self._flat[b.name] = cuda.to_device(host) if poison else cuda.device_array(host.shape, host.dtype)
        program.check_sizes(self.env)
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
                start()
            except (LookupError, NameError):  # the simulator's, of threads that go on after a failed check
                self._told(kernel, fault)
                raise
            self._told(kernel, fault)

    def _told(self, kernel: Kernel, fault: Any) -> None:
        """Raise what a failed check of a loaded index has left in ``fault``."""
        if fault is not None and site_numbers(kernel):
            found = fault.copy_to_host()
            if found[0]:
                raise_fault(kernel, found, self.env)

    def results(self) -> dict[str, Any]:
        """Outputs by name, NumPy arrays."""
        return {
            t.name: output_array(t, on_host(self._flat[self._homes[t.name]]), self.env)
            if t.definition is not None
            else np.array(self._given[t.name].data)
            for t in self.program.fusion.outputs
        }


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
