"""Launches on a CUDA device, by the driver, on the stream that the caller's work is on."""

from __future__ import annotations

import atexit
import ctypes
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from idgraph.arith import Expr, as_expr, maximum
from idgraph.codegen.runtime_lib.numpy_ops import storage_dtype
from idgraph.errors import EmitError, IndexingError
from idgraph.ir.device import GPU, current_device
from idgraph.kernel.ir import Kernel, X, beyond_x, grid_exprs, grid_of, most_blocks
from idgraph.runtime.binding import Env, raise_fault
from idgraph.runtime.cuda.driver import ADDRESS, Launch, array_words
from idgraph.runtime.shape_specialized import LaunchArguments
from idgraph.runtime.source_function import function_of

if TYPE_CHECKING:
    from idgraph.runtime.call_signature import CallSizes, LaunchSpec
    from idgraph.runtime.loaded_program import LoadedKernels

_PORTABLE, _MAPPED = 1, 2  # memory of the host for all contexts, in the device's address space
_AT_ONCE = 8
_PLACES = {f"{what}.{d}": n for n, (what, d) in enumerate((w, d) for w in ("blockIdx", "threadIdx") for d in "xyz")}


def launch_shape(kernel: Kernel, env: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Blocks and threads of a launch: each dimension as large as the largest loop that runs on it."""
    sizes = {dim: max(1, *(int(e.evaluate(env)) for e in found)) for dim, found in kernel.launch.items()}
    return launch_of(sizes, beyond_x(kernel.launch))


def launch_of(sizes: Mapping[str, int], wide: bool = False) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Blocks and threads of a launch from the sizes of its dimensions; raises `EmitError` for an illegal one.

    ``wide``: the kernel counts its blocks along x, y and z (`idgraph.kernel.ir.beyond_x`)."""
    for dim, size in sizes.items():
        most = most_blocks() if wide and dim == X else GPU.limits[dim]
        if size > most:
            raise EmitError(f"{size} is more than the {most} that {dim} can count", hint=_launch_hint(dim, most))
    threads = tuple([sizes.get(f"threadIdx.{d}", 1) for d in "xyz"])
    most = current_device().block_threads
    if math.prod(threads) > most:
        raise EmitError(f"{threads} are {math.prod(threads)} threads in a block, of at most {most}")
    blocks = grid_of(sizes.get(X, 1)) if wide else tuple([sizes.get(f"blockIdx.{d}", 1) for d in "xyz"])
    return blocks, threads


def _launch_hint(dim: str, most: int) -> str:
    if dim == X and most < most_blocks():
        return "a symbol with max=... tells that there may be so many blocks: they are then counted along x, y and z"
    return "split the axis and put the outer part on blockIdx.x"


def check_limits(kernels: Sequence[Kernel]) -> None:
    """Raise `EmitError` for a kernel that no device can launch, as far as its sizes are known without arrays."""
    for kernel in kernels:
        known = {d: [int(e) for e in found if e.is_const] for d, found in kernel.launch.items()}
        launch_of({d: max(1, *sizes) for d, sizes in known.items() if sizes}, beyond_x(kernel.launch))


class LaunchContext:
    """The parts of a device that launches need: the caller's stream, and memory for failures. ``torch``: its tensors
    are the arguments, and its current stream is the caller's. ``context``: without torch, what makes the device current
    while it is entered.
    """

    def __init__(self, driver: Any, number: int, torch: Any = None, context: Any = None) -> None:
        self.driver, self.number = driver, number
        self._torch, self._context = torch, context
        self._raw = None if torch is None else torch._C._cuda_getCurrentRawStream

    def stream(self) -> int:
        """The stream that the caller's work is on."""
        return 0 if self._raw is None else self._raw(self.number)

    def enter(self) -> int | None:
        """Make it the current device; the one that was, where that is another."""
        if self._torch is None:
            return self._pushed()
        before = self._torch._C._cuda_getDevice()
        if before == self.number:
            return None
        self._torch._C._cuda_setDevice(self.number)
        return before

    def _pushed(self) -> int | None:
        """`enter` where there is no torch: -1 stands for the context that was current."""
        if self._context is None:
            return None
        code, now = self.driver.cuCtxGetDevice()
        if int(code) == 0 and int(now) == self.number:
            return None
        self._context.__enter__()
        return -1

    def leave(self, before: int) -> None:
        """Make the device ``before`` current again."""
        if self._torch is None:
            self._context.__exit__(None, None, None)
        else:
            self._torch._C._cuda_setDevice(before)

    def capturing(self, stream: int) -> bool:
        """True while ``stream`` is captured into a CUDA graph, so that no work is done."""
        code, status, *_ = self.driver.cuStreamIsCapturing(stream)
        return int(code) == 0 and int(status) != 0

    def wait(self, stream: int) -> None:
        """Wait until the work on ``stream`` is done."""
        (code,) = self.driver.cuStreamSynchronize(stream)
        if int(code) != 0:
            raise EmitError(f"the CUDA driver: the kernels failed with {code!s}")

    def wait_for_all(self) -> None:
        """Wait until all work of the device is done."""
        before = self.enter()
        try:
            (code,) = self.driver.cuCtxSynchronize()
        finally:
            if before is not None:
                self.leave(before)
        if int(code) != 0:
            raise EmitError(f"the CUDA driver: the kernels failed with {code!s}")

    def faults(self, size: int) -> list[tuple[Any, int]]:
        """Zeroed words that the device writes and the host reads: (words, address) for several calls at once, so that
        one that is captured finds some made before."""
        code, found = self.driver.cuMemHostAlloc(8 * size * _AT_ONCE, _PORTABLE | _MAPPED)
        if int(code) != 0:
            raise EmitError(
                f"the CUDA driver: memory for failed checks: {code!s}",
                hint="call once before a capture: what a call needs is made then",
            )
        first = int(found)
        ctypes.memset(first, 0, 8 * size * _AT_ONCE)
        places = range(first, first + 8 * size * _AT_ONCE, 8 * size)
        return [((ctypes.c_int64 * size).from_address(at), at) for at in places]


class CudaMachine:
    """A device; ``overlap``: blocks of a kernel may be placed while the last ones of the kernel before it run."""

    def __init__(self, device: LaunchContext, overlap: bool = True) -> None:
        self.device, self._overlap = device, overlap

    def launches(self, program: LoadedKernels, checked: bool, sizes: CallSizes) -> CudaLaunches:
        """See `idgraph.runtime.shape_specialized.Machine`."""
        before = self.device.enter()
        try:
            kernels = program.functions(checked, self.device.number)
            starts = [
                _CudaLaunch(k, kernels[k.kernel.name], sizes, checked, self._overlap) for k in program.mold.kernels
            ]
        finally:
            if before is not None:
                self.device.leave(before)
        return CudaLaunches(self.device, starts, sizes.env)


class _CudaLaunch:
    """One kernel: its launch, which a call gives the addresses of ``buffers``, then that of its failures' memory where
    it has one."""

    __slots__ = ("_buffers", "_checked", "_lent", "_mold", "buffers", "fault_size", "kernel", "launch")

    def __init__(self, mold: LaunchSpec, loaded: Any, sizes: CallSizes, checked: bool, overlap: bool) -> None:
        self.kernel, self._mold, self._checked = mold.kernel, mold, checked
        self._buffers = tuple((n, storage_dtype(sizes.slots[n].dtype).itemsize) for n in mold.buffers)
        self.buffers = tuple(mold.buffers)
        places = [7 * n + ADDRESS for n in range(len(mold.buffers))]
        self.fault_size = mold.fault_size if checked and mold.sites else 0
        if self.fault_size:
            places.append(7 * len(mold.buffers) + len(sizes.scalars(mold)) + ADDRESS)
        blocks, threads = launch_of(sizes.launch(mold), beyond_x(mold.kernel.launch))
        self.launch: Launch = loaded.prepared(blocks, threads, self._words(sizes), mold.shared, overlap, places)
        self._lent: list[Any] = []

    def _words(self, sizes: CallSizes) -> list[int]:
        """The arguments, but for the addresses."""
        slots, words = sizes.slots, list[int]()
        for number, item in self._buffers:
            words += array_words(0, slots[number].size, item)
        words += sizes.scalars(self._mold)
        if self._checked:
            words += array_words(0, self._mold.fault_size, 8)
        return words

    def part(self, elements: Mapping[int, Expr], exprs: Sequence[Expr]) -> LaunchArguments:
        """See `idgraph.runtime.shape_specialized.Launches.parts`: blocks and threads, and the arguments."""
        mold, shape, within = self._mold, [as_expr(1)] * 6, list[Expr]()
        for dim, cut in mold.launch:
            size = shape[_PLACES[dim]] = maximum(1, *exprs[cut])
            if dim == X and beyond_x(mold.kernel.launch):
                shape[:3] = grid_exprs(size)
                within.append(size <= most_blocks())
            else:
                within.append(size <= GPU.limits[dim])
        within.append(shape[3] * shape[4] * shape[5] <= current_device().block_threads)
        words: list[Expr | int] = []
        for number, item in self._buffers:
            words += array_words(0, elements[number], item)
        words += exprs[mold.scalars]
        if self._checked:
            words += array_words(0, mold.fault_size, 8)
        return LaunchArguments(shape, words, within)

    def resized(self, shape: tuple[int, ...], words: tuple[int, ...]) -> Launch:
        """The launch of the same kernel for other sizes."""
        return self.launch.resized(shape, words, self._lent)


@lru_cache(maxsize=512)
def _make_launcher(kernels: tuple[tuple[int, ...], ...]) -> Callable[..., Callable[[Sequence[int], bool], None]]:
    """Launches written out, one after the other, of kernels without checks: of each the numbers of its buffers."""
    given = [f"({', '.join(f'addresses[{n}]' for n in numbers)}{',' * (len(numbers) == 1)})" for numbers in kernels]
    lines = [
        "def bound(device, launches):",
        *(f"    launch{k} = launches[{k}]" for k in range(len(kernels))),
        "    enter, leave, stream_of = device.enter, device.leave, device.stream",
        "    def one(addresses, wait):",
        "        before = enter()",
        "        try:",
        "            stream = stream_of()",
        *(f"            launch{k}({values}, stream)" for k, values in enumerate(given)),
        "        finally:",
        "            if before is not None: leave(before)",
        "    return one",
        "",
    ]
    return function_of("\n".join(lines), "bound", {}, "call")


class CudaLaunches:
    """All kernels, in order, on the caller's stream.

    Where a check of a loaded index can fail, a call waits for the kernels and raises what failed, or leaves that to the
    next call, or to `check`: the words that a failed check writes lie in the host's memory, so that to look costs
    nothing. While the stream is captured into a graph nothing has run, and nothing can be waited for.
    """

    __slots__ = ("__weakref__", "_checks", "_device", "_env", "_free", "_later", "_launches", "_lock", "_starts")

    def __init__(self, device: LaunchContext, starts: Sequence[_CudaLaunch], env: Env) -> None:
        self._device, self._starts, self._env = device, tuple(starts), env
        self._launches = tuple([(s.launch, s) for s in starts])
        self._checks = sum(s.fault_size for s in starts)
        self._lock = Lock()
        # Of launches of all sizes; one is of the calls of this size that do not wait, the first of which is told.
        self._free: list[tuple[Any, int]] = []
        self._watch()

    def _watch(self) -> None:
        """Take memory for failures of calls that do not wait."""
        self._later = self._faults() if self._checks else None
        if self._later is not None:
            _TO_LOOK_AT.add(self)

    def _faults(self) -> tuple[Any, int]:
        try:
            return self._free.pop()
        except IndexError:
            faults, *rest = self._device.faults(self._checks)
            self._free.extend(rest)
            return faults

    def parts(self, elements: Mapping[int, Expr], exprs: Sequence[Expr]) -> list[LaunchArguments]:
        """See `idgraph.runtime.shape_specialized.Launches`."""
        return [s.part(elements, exprs) for s in self._starts]

    def resized(self, env: Env, parts: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> CudaLaunches:
        """See `idgraph.runtime.shape_specialized.Launches`."""
        made = CudaLaunches.__new__(CudaLaunches)
        made._device, made._starts, made._env = self._device, self._starts, env
        made._launches = tuple([(s.resized(*p), s) for s, p in zip(self._starts, parts, strict=True)])
        made._checks, made._lock, made._free = self._checks, self._lock, self._free
        made._watch()
        return made

    def direct(self) -> Callable[[Sequence[int], bool], None]:
        """See `idgraph.runtime.shape_specialized.Launches`."""
        if self._checks:
            return self.__call__
        return _make_launcher(tuple([s.buffers for s in self._starts]))(self._device, [x for x, _ in self._launches])

    def __call__(self, addresses: Sequence[int], wait: bool = True) -> None:
        device = self._device
        before = device.enter()
        try:
            stream = device.stream()
            if self._checks:
                self._checked(addresses, stream, wait)
            else:
                for launch, s in self._launches:
                    launch([addresses[n] for n in s.buffers], stream)
        finally:
            if before is not None:
                device.leave(before)

    def _checked(self, addresses: Sequence[int], stream: int, wait: bool) -> None:
        device = self._device
        self.check()
        wait = wait and not device.capturing(stream)
        faults = self._later
        if wait or faults is None:
            faults = self._faults()
        place = faults[1]
        for launch, s in self._launches:
            values = [addresses[n] for n in s.buffers]
            if s.fault_size:
                values.append(place)
                place += 8 * s.fault_size
            launch(values, stream)
        if wait:
            device.wait(stream)
            try:
                self._raise(faults[0])
            finally:
                self._free.append(faults)

    def check(self, wait: bool = False) -> None:
        """Raise what a call that did not wait, or a replayed graph, has found so far; ``wait``: after
        all queued work."""
        if self._later is None:
            return
        words = self._later[0]
        if wait:
            self._device.wait_for_all()
        if any(words[at] for at in self._places()):
            self._device.wait_for_all()  # its words are all written then
            with self._lock:
                self._raise(words)

    def _places(self) -> Iterator[int]:
        at = 0
        for s in self._starts:
            if s.fault_size:
                yield at
            at += s.fault_size

    def _raise(self, words: Any) -> None:
        at = 0
        for s in self._starts:
            if s.fault_size and words[at]:
                found = list(words[at : at + s.fault_size])
                for n in range(len(words)):
                    words[n] = 0
                raise_fault(s.kernel, found, self._env)
            at += s.fault_size


_TO_LOOK_AT: WeakSet[CudaLaunches] = WeakSet()


@atexit.register
def _look() -> None:
    """Warn at the end of the process of failures that no call has raised."""
    for launches in list(_TO_LOOK_AT):
        try:
            launches.check()
        except IndexingError as error:
            warnings.warn(f"a call before the end of the process: {error}", stacklevel=1)
