"""Launches on the CPU: one jump into machine code for each kernel, its words laid out but for the addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from idgraph.runtime.cpu_entry import Compiling, no_memory
from idgraph.runtime.failed_checks import raise_fault
from idgraph.runtime.frozen import Part

if TYPE_CHECKING:
    from idgraph.arith import Expr
    from idgraph.runtime.binding import Env
    from idgraph.runtime.cpu_jump import Entry
    from idgraph.runtime.frozen import Addresses
    from idgraph.runtime.loaded import Loaded
    from idgraph.runtime.mold import KernelMold, Sizes


class CpuMachine:
    """The processors of this machine."""

    def launches(self, program: Loaded, checked: bool, sizes: Sizes) -> CpuLaunches:
        """See `idgraph.runtime.frozen.Machine`."""
        entries: dict[str, Any] = program.functions(checked)
        starts = [_Start(k, entries[k.kernel.name], checked) for k in program.mold.kernels]
        elements, numbers = {n: s.size for n, s in enumerate(sizes.slots)}, sizes.numbers
        jumps = [s.jump(numbers[s.mold.points], s.words(elements, numbers)) for s in starts]
        return CpuLaunches(starts, sizes.env, jumps)


class CpuLaunches:
    """All kernels, in order."""

    __slots__ = ("_env", "_jumps", "_starts")

    def __init__(self, starts: Sequence[_Start], env: Env, jumps: Sequence[tuple[_Start, Entry, bytes]]) -> None:
        self._starts, self._env, self._jumps = tuple(starts), env, jumps

    def parts(self, elements: Mapping[int, Expr], exprs: Sequence[Expr]) -> list[Part]:
        """See `idgraph.runtime.frozen.Launches`."""
        return [Part((exprs[s.mold.points],), s.words(elements, exprs)) for s in self._starts]

    def resized(self, env: Env, parts: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> CpuLaunches:
        """See `idgraph.runtime.frozen.Launches`."""
        jumps = [s.jump(points, words) for s, ((points,), words) in zip(self._starts, parts, strict=True)]
        return CpuLaunches(self._starts, env, jumps)

    def __call__(self, addresses: Addresses, wait: bool = True) -> None:
        for start, entry, template in self._jumps:
            start(entry, template, addresses, self._env)

    def check(self, wait: bool = False) -> None:
        """Nothing is left to check: each call has raised its own failures."""


class _Start:
    """One kernel, for calls of all sizes. A call has words of its own, so that several threads may call."""

    __slots__ = ("_checked", "_compiling", "_fault", "_places", "_words", "mold")

    def __init__(self, mold: KernelMold, compiling: Compiling, checked: bool) -> None:
        self.mold, self._compiling, self._checked = mold, compiling, checked
        self._places = tuple([(2 * n, number) for n, number in enumerate(mold.buffers)])
        count = 2 * len(mold.buffers) + mold.scalars.stop - mold.scalars.start
        count += 2 * (mold.blocks is not None) + 2 * checked
        self._words: Any = ctypes.c_int64 * count
        self._fault: Any = ctypes.c_int64 * mold.fault_size if checked and mold.sites else None

    def words(self, elements: Mapping[int, Any], numbers: Sequence[Any]) -> list[Any]:
        """Addresses, of which a call writes those of buffers, and elements; integers; blocks; the memory of failures.
        Sizes are numbers, or expressions of them."""
        mold, found = self.mold, list[Any]()
        for number in mold.buffers:
            found += 0, elements[number]
        found += numbers[mold.scalars]
        if mold.blocks is not None:
            found += 0, numbers[mold.blocks]
        if self._checked:
            found += 0, mold.fault_size
        return found

    def jump(self, points: int | None, words: Sequence[int]) -> tuple[_Start, Entry, bytes]:
        """The kernel for sizes with so many points of its loops, and these words."""
        return self, self._compiling.entry(points or 1), bytes(self._words(*words))

    def __call__(self, entry: Entry, template: bytes, addresses: Addresses, env: Env) -> None:
        words = self._words.from_buffer_copy(template)
        for at, number in self._places:
            words[at] = addresses[number]
        fault = None
        if self._fault is not None:
            fault = self._fault()
            words[len(words) - 2] = ctypes.addressof(fault)
        if entry(words):
            raise no_memory(self.mold.kernel)
        if fault is not None and fault[0]:
            raise_fault(self.mold.kernel, fault, env)
