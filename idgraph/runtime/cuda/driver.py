"""Compiled kernels on a device by way of the driver: loaded once, arguments laid out once, started in microseconds.

PTX is numba-cuda's, and its kernels take seven 64-bit words for a flat array (two unused ones, elements, bytes of one,
address, shape, stride), one for an integer.

A kernel that begins by waiting for the memory of the kernels before it (`idgraph.runtime.cuda.order`) is started by
programmatic dependent launch: its blocks are placed while the last ones of the kernel before still run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from idgraph.errors import EmitError
from idgraph.runtime.cuda.device import need_device
from idgraph.runtime.cuda.order import waits

Grid = tuple[int, ...]


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

    def bound(
        self, blocks: Grid, threads: Grid, arguments: Sequence[Any], shared: int = 0, overlap: bool = True
    ) -> Callable[[], None]:
        """The launch with its arguments laid out: flat arrays on the device, and integers. ``shared`` are the bytes of
        dynamic shared memory that it asks for. ``overlap``: a kernel that waits by itself for the memory of those
        before it may have its blocks placed earlier."""
        if shared:
            self._grant(shared)
        words = np.array([w for a in arguments for w in words_of(a)], np.int64)
        pointers = np.array([words.ctypes.data + 8 * n for n in range(words.size)], np.uint64)
        driver, function, address = self._driver, self._function, pointers.ctypes.data
        grid, block = (*blocks, 1, 1)[:3], (*threads, 1, 1)[:3]
        config = self._config(grid, block, shared) if overlap and self._waits else None
        kept = (words, pointers, arguments, config)

        def start() -> None:
            if config is None:
                (code,) = driver.cuLaunchKernel(function, *grid, *block, shared, 0, address, 0)
            else:
                (code,) = driver.cuLaunchKernelEx(config, function, address, 0)
            if int(code) != 0:
                raise EmitError(f"the CUDA driver: a launch of {grid} blocks of {block} threads failed with {code!s}")
            _ = kept  # what the launch points to lives as long as it

        return start

    def _config(self, grid: Grid, block: Grid, shared: int) -> Any:
        """A launch on the default stream by programmatic dependent launch."""
        driver = self._driver
        early = driver.CUlaunchAttribute()
        early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        value = driver.CUlaunchAttributeValue()
        value.programmaticStreamSerializationAllowed = 1
        early.value = value
        made = driver.CUlaunchConfig()
        made.gridDimX, made.gridDimY, made.gridDimZ = grid
        made.blockDimX, made.blockDimY, made.blockDimZ = block
        made.sharedMemBytes, made.hStream = shared, driver.CUstream(0)
        made.attrs, made.numAttrs = [early], 1
        return made


def words_of(argument: Any) -> list[int]:
    """One argument as numba's kernels take it.

    >>> words_of(7)
    [7]
    """
    about = getattr(argument, "__cuda_array_interface__", None)
    if about is None:
        return [int(argument)]
    ((size,), item) = about["shape"], np.dtype(about["typestr"]).itemsize
    return [0, 0, int(size), item, int(about["data"][0]), int(size), item]


def load_context() -> None:
    """Make the device's primary context, which numba and PyTorch share, current in this thread."""
    need_device().current_context()
