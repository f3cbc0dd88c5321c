"""Launches on the CPU: one jump into machine code for each kernel, its words laid out but for the addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from idgraph.runtime.cpu_entry import Compiling, no_memory
from idgraph.runtime.faults import raise_fault

if TYPE_CHECKING:
    from idgraph.runtime.frozen import Addresses
    from idgraph.runtime.loaded import Loaded
    from idgraph.runtime.mold import KernelMold, Sizes


class CpuMachine:
    """The processors of this machine."""

    def launches(self, program: Loaded, checked: bool, sizes: Sizes) -> CpuLaunches:
        """See `idgraph.runtime.frozen.Machine`."""
        entries: dict[str, Any] = program.functions(checked)
        return CpuLaunches([_Start(k, entries[k.kernel.name], sizes, checked) for k in program.mold.kernels])


class CpuLaunches:
    """All kernels, in order."""

    __slots__ = ("_starts",)

    def __init__(self, starts: Sequence[_Start]) -> None:
        self._starts = tuple(starts)

    def resized(self, sizes: Sizes) -> CpuLaunches:
        """See `idgraph.runtime.frozen.Launches`."""
        return CpuLaunches([s.resized(sizes) for s in self._starts])

    def __call__(self, addresses: Addresses, wait: bool = True) -> None:
        for start in self._starts:
            start(addresses)

    def check(self, wait: bool = False) -> None:
        """Nothing is left to check: each call has raised its own failures."""


class _Start:
    """One kernel. A call has words of its own, so that several threads may call."""

    __slots__ = (
        "_checked",
        "_compiling",
        "_entry",
        "_env",
        "_fault",
        "_kernel",
        "_mold",
        "_places",
        "_template",
        "_words",
    )

    def __init__(self, mold: KernelMold, compiling: Compiling, sizes: Sizes, checked: bool) -> None:
        self._kernel, self._mold, self._compiling, self._env = mold.kernel, mold, compiling, sizes.env
        self._entry: Callable[[Any], int] = compiling.entry(sizes.numbers[mold.points] or 1)
        slots, template = sizes.slots, list[int]()
        for number in mold.buffers:
            template += 0, slots[number].size
        self._places = tuple([(2 * n, number) for n, number in enumerate(mold.buffers)])
        template += sizes.scalars(mold)
        if mold.blocks is not None:
            template += 0, cast("int", sizes.numbers[mold.blocks])
        self._fault: Any = None
        self._checked = checked
        if checked:
            if mold.sites:
                self._fault = ctypes.c_int64 * mold.fault_size
            template += 0, mold.fault_size
        self._words: Any = ctypes.c_int64 * len(template)
        self._template = bytes(self._words(*template))

    def resized(self, sizes: Sizes) -> _Start:
        """The same kernel for other sizes."""
        return _Start(self._mold, self._compiling, sizes, self._checked)

    def __call__(self, addresses: Addresses) -> None:
        words = self._words.from_buffer_copy(self._template)
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
