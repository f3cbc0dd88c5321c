"""CUDA programs on arrays: buffers on the device, launches, outputs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from idgraph.codegen.printers.scalar import site_numbers
from idgraph.errors import EmitError
from idgraph.kernel.ir import Kernel
from idgraph.kernel.shared import shared_layout
from idgraph.runtime.binding import bind, flat_input, given_array, global_buffer, output_array, scalars_of
from idgraph.runtime.cuda.arrays import device_flat, device_given, device_output, is_device, on_host
from idgraph.runtime.cuda.device import need_device
from idgraph.runtime.cuda.driver import DeviceKernel
from idgraph.runtime.faults import fault_size, raise_fault

if TYPE_CHECKING:
    from idgraph.runtime.program import Program

_LIMITS = {
    "blockIdx.x": 2**31 - 1, "blockIdx.y": 65535, "blockIdx.z": 65535,
    "threadIdx.x": 1024, "threadIdx.y": 1024, "threadIdx.z": 64,
}  # fmt: skip


def launch_shape(kernel: Kernel, env: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Blocks and threads of a launch: each dimension as large as the largest loop that runs on it."""
    sizes: dict[str, int] = {}
    for dim, found in kernel.launch.items():
        sizes[dim] = max(1, *(int(e.evaluate(env)) for e in found))
        if sizes[dim] > _LIMITS[dim]:
            raise EmitError(
                f"{sizes[dim]} is more than the {_LIMITS[dim]} that {dim} can count",
                hint="split the axis and put the outer part on blockIdx.x",
            )
    threads = tuple(sizes.get(f"threadIdx.{d}", 1) for d in "xyz")
    if math.prod(threads) > 1024:
        raise EmitError(f"{threads} are {math.prod(threads)} threads in a block, of at most 1024")
    return tuple(sizes.get(f"blockIdx.{d}", 1) for d in "xyz"), threads


class Prepared:
    """A CUDA program with its buffers on the device: `launch` starts its kernels, `results` are its outputs.

    Launching again computes again into the same buffers; nothing waits for the device. ``overlap``: blocks of a kernel
    may be placed while the last ones of the kernel before it run (they wait for its memory); False starts each alone.
    """

    def __init__(
        self,
        program: Program,
        inputs: Mapping[str, Any],
        symbols: Mapping[str, int] | None = None,
        checked: bool = False,
        poison: bool = False,
        overlap: bool = True,
    ) -> None:
        cuda, fusion = need_device(), program.fusion
        self.program = program
        self._on_device = any(is_device(a) for a in inputs.values())
        given = {name: device_given(name, a) if is_device(a) else given_array(name, a) for name, a in inputs.items()}
        self.env = bind(fusion, given, symbols)
        program.check_sizes(self.env)
        self._homes = {b.title: b.name for b in program.plan.buffers if b.place != "private"}
        self._flat: dict[str, Any] = {}
        for t in fusion.inputs:
            g = given[t.name]
            device = is_device(g.data)
            self._flat[self._homes[t.name]] = (
                device_flat(t, g, self.env) if device else cuda.to_device(flat_input(t, g, self.env))
            )
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
            start = _start(functions[kernel.name], blocks, threads, arguments, shared, overlap)
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
        """Outputs by name: on the device when some input was, else NumPy arrays."""
        made: dict[str, Any] = {}
        for t in self.program.fusion.outputs:
            buffer = self._flat[self._homes[t.name]]
            made[t.name] = (
                device_output(t, buffer, self.env) if self._on_device else output_array(t, on_host(buffer), self.env)
            )
        return made


def _start(
    function: Any,
    blocks: tuple[int, ...],
    threads: tuple[int, ...],
    arguments: list[Any],
    shared: int,
    overlap: bool,
) -> Callable[[], None]:
    if isinstance(function, DeviceKernel):
        return function.bound(blocks, threads, arguments, shared, overlap)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few threads are what small shapes need
        configured = function[blocks, threads, 0, shared]

    def simulate() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the simulator's threads warn of the infinities that kernels make
            configured(*arguments)

    return simulate


def run(
    program: Program, inputs: Mapping[str, Any], symbols: Mapping[str, int] | None, checked: bool, poison: bool
) -> dict[str, Any]:
    """Run once on the device."""
    prepared = Prepared(program, inputs, symbols, checked, poison)
    prepared.launch()
    return prepared.results()
