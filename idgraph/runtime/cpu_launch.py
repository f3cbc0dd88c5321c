"""Launches on the CPU: one jump into machine code for each kernel, its words laid out but for the addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from idgraph.codegen.printers.scalar import runs_parallel, site_numbers
from idgraph.kernel.ir import Kernel
from idgraph.runtime.binding import Env, scalars_of
from idgraph.runtime.cpu_entry import blocks, no_memory
from idgraph.runtime.faults import fault_size, raise_fault

if TYPE_CHECKING:
    from idgraph.runtime.frozen import Addresses, Slot
    from idgraph.runtime.program import Program


class CpuMachine:
    """The processors of this machine."""

    def launches(self, program: Program, checked: bool, slots: Mapping[str, Slot], env: Env) -> CpuLaunches:
        """See `idgraph.runtime.frozen.Machine`."""
        entries: dict[str, Any] = dict(program.functions(checked))
        return CpuLaunches([_Start(k, entries[k.name].entry(env), slots, env, checked) for k in program.plan.kernels])


class CpuLaunches:
    """All kernels, in order."""

    __slots__ = ("_starts",)

    def __init__(self, starts: Sequence[_Start]) -> None:
        self._starts = tuple(starts)

    def __call__(self, addresses: Addresses, wait: bool = True) -> None:
        for start in self._starts:
            start(addresses)

    def check(self, wait: bool = False) -> None:
        """Each call has raised what failed."""


class _Start:
    """One kernel. A call has words of its own, so that several threads may call."""

    __slots__ = ("_entry", "_env", "_fault", "_kernel", "_places", "_template", "_words")

    def __init__(
        self, kernel: Kernel, entry: Callable[[Any], int], slots: Mapping[str, Slot], env: Env, checked: bool
    ) -> None:
        self._kernel, self._entry, self._env = kernel, entry, env
        template: list[int] = []
        places: list[tuple[int, int]] = []
        for b in kernel.buffers:
            places.append((len(template), slots[b.name].number))
            template += [0, slots[b.name].size]
        template += scalars_of(kernel, env)
        if runs_parallel(kernel):
            template += [0, blocks(kernel, env)]
        size = fault_size(kernel)
        self._fault: Any = None
        if checked:
            if site_numbers(kernel):
                self._fault = ctypes.c_int64 * size
            template += [0, size]
        self._places, self._template = tuple(places), tuple(template)
        self._words: Any = ctypes.c_int64 * len(template)

    def __call__(self, addresses: Addresses) -> None:
        words = self._words(*self._template)
        for at, number in self._places:
            words[at] = addresses[number]
        fault = None
        if self._fault is not None:
            fault = self._fault()
            words[len(words) - 2] = ctypes.addressof(fault)
        if self._entry(words):
            raise no_memory(self._kernel)
        if fault is not None and fault[0]:
            raise_fault(self._kernel, fault, self._env)
