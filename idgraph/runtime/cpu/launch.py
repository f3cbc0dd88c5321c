"""Launches on the CPU: one jump into machine code for each kernel, its words laid out but for the addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from idgraph.runtime.binding import raise_fault
from idgraph.runtime.cpu.compiler import LazyKernel, no_memory
from idgraph.runtime.shape_specialized import LaunchArguments
from idgraph.runtime.source_function import function_of

if TYPE_CHECKING:
    from idgraph.arith import Expr
    from idgraph.kernel.ir import Kernel
    from idgraph.runtime.binding import Env
    from idgraph.runtime.call_signature import CallSizes, LaunchSpec
    from idgraph.runtime.cpu.trampoline import Entry
    from idgraph.runtime.loaded_program import LoadedKernels


class _Jump(NamedTuple):
    """A kernel's jump for certain sizes. The words are those that ``pick`` takes from a list of the addresses, the
    address of the memory of failures, and ``fixed``; ``pack`` writes them as bytes, which each call has of its own."""

    start: _CpuLaunch
    entry: Entry
    pack: Callable[..., bytes]
    pick: Callable[[Sequence[int]], Sequence[int]]
    fixed: Sequence[int]


def _fail(kernel: Kernel) -> None:
    raise no_memory(kernel)


@lru_cache(maxsize=512)
def _make_launcher(kernels: tuple[tuple[int, ...], ...]) -> Callable[..., Callable[[Sequence[int], bool], None]]:
    """Jumps written out, one after the other. Of each the places of its words: addresses by their numbers, or fixed
    ones, counted from the last.

    >>> from struct import Struct
    >>> jumps = [(print, Struct("2b").pack, None, (0, n)) for n in (7, 8)]
    >>> _make_launcher(((0, -1), (1, -1)))(jumps)((100, 101), True)
    b'd\\x07'
    b'e\\x08'
    """
    head, lines = ["def bound(jumps):"], ["    def one(addresses, wait):"]
    for k, places in enumerate(kernels):
        words = [f"addresses[{n}]" if n >= 0 else f"f{k}_{-n}" for n in places]
        fixed = [f"f{k}_{n}" for n in range(len(places), 0, -1)]
        head += [f"    entry{k}, pack{k}, fail{k}, fixed = jumps[{k}]"]
        head += [f"    {', '.join(fixed)}, = fixed"] if fixed else []
        lines += [f"        if entry{k}(pack{k}({', '.join(words)})):", f"            fail{k}()"]
    return function_of("\n".join([*head, *lines, "    return one", ""]), "bound", {}, "call")


class CpuMachine:
    """The processors of this machine."""

    def launches(self, program: LoadedKernels, checked: bool, sizes: CallSizes) -> CpuLaunches:
        """See `idgraph.runtime.shape_specialized.Machine`."""
        entries: dict[str, Any] = program.functions(checked)
        starts = [_CpuLaunch(k, entries[k.kernel.name], checked) for k in program.mold.kernels]
        elements, numbers = {n: s.size for n, s in enumerate(sizes.slots)}, sizes.numbers
        jumps = [s.jump(numbers[s.mold.points], s.words(elements, numbers)) for s in starts]
        return CpuLaunches(starts, sizes.env, jumps)


class CpuLaunches:
    """All kernels, in order."""

    __slots__ = ("_env", "_jumps", "_starts")

    def __init__(self, starts: Sequence[_CpuLaunch], env: Env, jumps: Sequence[_Jump]) -> None:
        self._starts, self._env, self._jumps = tuple(starts), env, jumps

    def parts(self, elements: Mapping[int, Expr], exprs: Sequence[Expr]) -> list[LaunchArguments]:
        """See `idgraph.runtime.shape_specialized.Launches`."""
        return [LaunchArguments((exprs[s.mold.points],), s.words(elements, exprs)) for s in self._starts]

    def resized(self, env: Env, parts: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> CpuLaunches:
        """See `idgraph.runtime.shape_specialized.Launches`."""
        jumps = [s.jump(points, words) for s, ((points,), words) in zip(self._starts, parts, strict=True)]
        return CpuLaunches(self._starts, env, jumps)

    def direct(self) -> Callable[[Sequence[int], bool], None]:
        """See `idgraph.runtime.shape_specialized.Launches`."""
        if not self._jumps or any(j.start.fault is not None for j in self._jumps):
            return self.__call__
        jumps = [(j.entry, j.pack, partial(_fail, j.start.mold.kernel), j.fixed) for j in self._jumps]
        return _make_launcher(tuple([j.start.places for j in self._jumps]))(jumps)

    def __call__(self, addresses: Sequence[int], wait: bool = True) -> None:
        for start, entry, pack, pick, fixed in self._jumps:
            fault = None if start.fault is None else start.fault()
            at = 0 if fault is None else ctypes.addressof(fault)
            if entry(pack(*pick((*addresses, at, *fixed)))):
                raise no_memory(start.mold.kernel)
            if fault is not None and fault[0]:
                raise_fault(start.mold.kernel, fault, self._env)

    def check(self, wait: bool = False) -> None:
        """Nothing is left to check: each call has raised its own failures."""


def _picked(places: Sequence[int], words: Sequence[int]) -> tuple[int, ...]:
    return tuple([words[p] for p in places])


class _CpuLaunch:
    """One kernel, for calls of all sizes. A call has words of its own, so that several threads may call. ``fault``
    makes the memory of failures, where accesses are checked; ``places`` of its words are those of `_Jump.pick`."""

    __slots__ = ("_checked", "_compiling", "_pack", "_pick", "fault", "mold", "places")

    def __init__(self, mold: LaunchSpec, compiling: LazyKernel, checked: bool) -> None:
        self.mold, self._compiling, self._checked = mold, compiling, checked
        count = 2 * len(mold.buffers) + mold.scalars.stop - mold.scalars.start
        count += 2 * (mold.blocks is not None) + 2 * checked
        self.fault: Any = ctypes.c_int64 * mold.fault_size if checked and mold.sites else None
        places = list(range(-count, 0))  # from the end: programs differ in the number of addresses
        places[: 2 * len(mold.buffers) : 2] = mold.buffers
        if self.fault is not None:
            places[count - 2] = -count - 1
        self.places = tuple(places)
        self._pack = Struct(f"{count}q").pack
        few = len(places) < 2  # of which an itemgetter makes no tuple
        self._pick = partial(_picked, places) if few else itemgetter(*places)

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

    def jump(self, points: int | None, words: Sequence[int]) -> _Jump:
        """The kernel for sizes with so many points of its loops, and these words."""
        return _Jump(self, self._compiling.entry(points or 1), self._pack, self._pick, tuple(words))
