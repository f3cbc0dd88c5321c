"""Compiled kernels on a device by way of the driver: loaded once, arguments laid out once, started in microseconds.

PTX is numba-cuda's, and its kernels take seven 64-bit words for a flat array (two unused ones, elements, bytes of one,
address, shape, stride), one for an integer.

A kernel that begins by waiting for the memory of the kernels before it (`idgraph.runtime.cuda.numba_cuda`) is
started by programmatic dependent launch: its blocks are placed while the last ones of the kernel before still run.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from struct import Struct
from typing import Any

import numpy as np

from idgraph.errors import EmitError
from idgraph.runtime.cuda.numba_cuda import need_device, waits

Grid = tuple[int, ...]
ADDRESS = 4  # the word of a flat array's seven that is its address
_NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT: a thread that has not used the device yet


def _done(result: Any, what: str) -> Any:
    """The value of a driver call, or an error that names it."""
    code, *values = result
    if int(code) != 0:
        raise EmitError(f"the CUDA driver: {what} failed with {code!s}")
    return values[0] if values else None


def entry_name(ptx: str) -> str:
    """The kernel in a PTX text."""
    found = re.search(r"\.entry\s+([\w$]+)\s*\(", ptx)
    if found is None:
        raise EmitError("this PTX has no kernel")
    return found.group(1)


class DeviceKernel:
    """A kernel on the current device; ``kernel[blocks, threads](*arguments)`` starts it, as numba's would."""

    def __init__(self, ptx: str) -> None:
        load_context()
        self._driver: Any = import_module("cuda.bindings.driver")
        self._waits = waits(ptx)
        image = np.frombuffer(ptx.encode() + b"\0", np.uint8)
        self._module = _done(self._driver.cuModuleLoadData(image.ctypes.data), "loading a kernel")
        found = self._driver.cuModuleGetFunction(self._module, entry_name(ptx).encode())
        self._function = _done(found, "finding a kernel")

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        what = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS
        return int(_done(self._driver.cuFuncGetAttribute(what, self._function), "asking for registers"))

    def __getitem__(self, shape: tuple[Grid, Grid]) -> Callable[..., None]:
        blocks, threads = shape

        def start(*arguments: Any) -> None:
            self.bound(blocks, threads, arguments)()

        return start

    def _grant(self, shared: int) -> None:
        """Ask for ``shared`` bytes of dynamic shared memory; raises where this device has no such amount."""
        driver = self._driver
        device = _done(driver.cuCtxGetDevice(), "asking for the device")
        what = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        most = int(_done(driver.cuDeviceGetAttribute(what, device), "asking for shared memory"))
        if shared > most:
            raise EmitError(
                f"the kernel needs {shared} bytes of shared memory, this device grants a block {most}",
                hint="split the loops into smaller tiles, or keep one of the shared tensors elsewhere",
            )
        limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _done(driver.cuFuncSetAttribute(self._function, limit, shared), "asking for more shared memory")

    def prepared(
        self, blocks: Grid, threads: Grid, words: Sequence[int], shared: int = 0, overlap: bool = True,
        places: Sequence[int] = (),
    ) -> Launch:  # fmt: skip
        """The launch with its arguments laid out as `words_of` says. ``shared`` are the bytes of dynamic shared memory
        that it asks for. ``overlap``: a kernel that waits by itself for the memory of those before it may have its
        blocks placed earlier. ``places`` are the numbers of the words that each call gives."""
        if shared:
            self._grant(shared)
        early = overlap and self._waits
        shape = (*(*blocks, 1, 1)[:3], *(*threads, 1, 1)[:3])
        return Launch(self._driver, self._function, shape, shared, words, early, places)

    def bound(
        self, blocks: Grid, threads: Grid, arguments: Sequence[Any], shared: int = 0, overlap: bool = True
    ) -> Callable[[], None]:
        """The launch of these arguments, flat arrays on the device and integers, on the default stream."""
        words = [w for a in arguments for w in words_of(a)]
        launch = self.prepared(blocks, threads, words, shared, overlap)

        def start() -> None:
            launch((), 0)
            _ = arguments  # what the launch points to lives as long as it

        return start


@dataclass(frozen=True, slots=True)
class _Room:
    """The arguments of one launch under way: words, what writes those of a call, the address of the pointers to all,
    these, and how kernels that overlap are started, by stream."""

    words: Any
    write: Callable[..., None]
    address: int
    pointers: Any
    configs: dict[int, Any]


class Launch:
    """One launch of a kernel: its arguments stand in a block of words; those at ``places``, addresses, in one of their
    own, which a call writes.

    The driver reads the blocks before it returns, so that they serve one thread after another: ``_rooms`` are those
    that no call is using. The first call of a launch that was made of another takes one of ``_lent``, which all made
    of one share: sizes that do not come again need no block of their own.
    """

    __slots__ = ("_driver", "_early", "_function", "_lent", "_places", "_rooms", "_shape", "_shared", "_words")

    def __init__(
        self, driver: Any, function: Any, shape: Grid, shared: int, words: Sequence[int], early: bool,
        places: Sequence[int],
    ) -> None:  # fmt: skip
        self._driver, self._function, self._shared, self._early = driver, function, shared, early
        self._shape, self._words, self._places = shape, tuple(words), tuple(places)
        self._rooms: list[_Room] = []
        self._lent: list[_Room] | None = None

    def resized(self, shape: Grid, words: tuple[int, ...], lent: list[_Room]) -> Launch:
        """The same kernel with another shape and other arguments."""
        made = Launch(self._driver, self._function, shape, self._shared, words, self._early, self._places)
        made._lent = lent
        return made

    def _room(self) -> tuple[list[_Room], _Room]:
        """An unused argument block, and the list that it returns to."""
        lent, self._lent = self._lent, None
        rooms = self._rooms if lent is None else lent
        try:
            room = rooms.pop()
        except IndexError:
            return rooms, self._new_room()
        if lent is not None:
            room.words[:] = self._words
            for config in room.configs.values():
                self._shaped(config)
        return rooms, room

    def _new_room(self) -> _Room:
        words = (ctypes.c_int64 * len(self._words))(*self._words)
        values = (ctypes.c_int64 * max(1, len(self._places)))()
        at = [ctypes.addressof(words) + 8 * n for n in range(len(self._words))]
        for n, place in enumerate(self._places):
            at[place] = ctypes.addressof(values) + 8 * n
        pointers = (ctypes.c_uint64 * len(at))(*at)
        write = partial(Struct(f"{len(self._places)}q").pack_into, values, 0)
        return _Room(words, write, ctypes.addressof(pointers), pointers, {})

    def __call__(self, values: Sequence[int], stream: int) -> None:
        """Start on ``stream`` with these values of the words that each call gives."""
        if self._lent is None and self._rooms:
            rooms = self._rooms
            room = rooms.pop()
        else:
            rooms, room = self._room()
        room.write(*values)
        if self._early:
            config = room.configs.get(stream)
            if config is None:
                config = room.configs[stream] = self._config(stream)
            (code,) = self._driver.cuLaunchKernelEx(config, self._function, room.address, 0)
        else:
            shape, shared = self._shape, self._shared
            (code,) = self._driver.cuLaunchKernel(self._function, *shape, shared, stream, room.address, 0)
        rooms.append(room)
        if code != 0:
            self._failed(values, stream, int(code), code)

    def _failed(self, values: Sequence[int], stream: int, number: int, code: Any) -> None:
        """Try again where this thread only had no context yet; else the error."""
        if number == _NO_CONTEXT and not _is_current(self._driver):
            load_context()
            self(values, stream)
            return
        x, y = self._shape[:3], self._shape[3:]
        raise EmitError(f"the CUDA driver: a launch of {x} blocks of {y} threads failed with {code!s}")

    def _config(self, stream: int) -> Any:
        """A launch by programmatic dependent launch."""
        driver = self._driver
        early = driver.CUlaunchAttribute()
        early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        value = driver.CUlaunchAttributeValue()
        value.programmaticStreamSerializationAllowed = 1
        early.value = value
        made = driver.CUlaunchConfig()
        self._shaped(made)
        made.sharedMemBytes, made.hStream = self._shared, driver.CUstream(stream)
        made.attrs, made.numAttrs = [early], 1
        return made

    def _shaped(self, config: Any) -> None:
        """Write the blocks and threads."""
        shape = self._shape
        config.gridDimX, config.gridDimY, config.gridDimZ = shape[:3]
        config.blockDimX, config.blockDimY, config.blockDimZ = shape[3:]


def array_words(address: int, size: Any, item: int) -> list[Any]:
    """A flat array as numba's kernels take it; its address is word `ADDRESS`.

    >>> array_words(4096, 3, 4)
    [0, 0, 3, 4, 4096, 3, 4]
    """
    return [0, 0, size, item, address, size, item]


def _is_current(driver: Any) -> bool:
    code, context = driver.cuCtxGetCurrent()
    return int(code) == 0 and int(context) != 0


def words_of(argument: Any) -> list[int]:
    """One argument as numba's kernels take it.

    >>> words_of(7)
    [7]
    """
    about = getattr(argument, "__cuda_array_interface__", None)
    if about is None:
        return [int(argument)]
    ((size,), item) = about["shape"], np.dtype(about["typestr"]).itemsize
    return array_words(int(about["data"][0]), int(size), item)


def load_context() -> None:
    """Make the device's primary context, which numba and PyTorch share, current in this thread."""
    need_device().current_context()
