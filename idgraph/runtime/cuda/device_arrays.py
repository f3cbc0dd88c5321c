"""Where calls of CUDA programs meet numba-cuda and the driver: machines by device, arrays of its interface.

Arrays on the device, by the CUDA array interface: taken as they lie, given without a copy.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Hashable, Mapping
from functools import cache, partial
from importlib import import_module
from math import prod
from typing import Any, cast

import numpy as np

from idgraph.codegen.runtime_lib.numpy_ops import storage_dtype
from idgraph.errors import EmitError
from idgraph.ir import DType, Tensor
from idgraph.loading import load
from idgraph.runtime.array_backends import NUMPY, ArrayBackend, MemoryExtent, Torch, is_tensor, torch_kind
from idgraph.runtime.binding import Array, BoundArray, Env, dtype_name, element_strides, masked
from idgraph.runtime.cuda.driver import load_context
from idgraph.runtime.cuda.launch import CudaMachine, LaunchContext
from idgraph.runtime.cuda.numba_cuda import load_cuda, need_device
from idgraph.runtime.interrupts import number_of


class View:
    """Device memory under another shape, for `numba.cuda.as_cuda_array`."""

    def __init__(self, owner: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": shape, "strides": strides, "typestr": dtype, "data": (address, False), "version": 3,
        }  # fmt: skip


def is_device(array: Any) -> bool:
    """True of an array on a device."""
    return not isinstance(array, (np.ndarray, np.generic)) and hasattr(array, "__cuda_array_interface__")


def declared_device_array(given_name: str, array: Any, device: str = "cuda:0") -> BoundArray:
    """A device array; 16-bit words (``<u2`` or ``<V2``) stand for bfloat16."""
    about = array.__cuda_array_interface__
    kind = np.dtype(about["typestr"])
    name = "bfloat16" if kind.str in ("<u2", "|V2") else dtype_name(kind)
    if about.get("mask") is not None:
        raise masked(given_name)
    shape = tuple(int(n) for n in about["shape"])
    return BoundArray(shape, name, element_strides(shape, about.get("strides"), kind.itemsize), array, device)


def copy_to_host(array: Any) -> Array:
    """A copy in the host's memory."""
    return array.copy_to_host()


class DeviceArrays:
    """Arrays with ``__cuda_array_interface__`` that are not torch's tensors; bfloat16 as 16-bit words.

    Kernels run on the default stream; a strided copy needs torch.
    """

    name = "device arrays"

    def key(self, value: Any) -> Hashable:
        about = value.__cuda_array_interface__
        return about["typestr"], tuple(about["shape"]), about.get("strides"), device_of(about)

    def unit(self, dtype: DType) -> int:
        return storage_dtype(dtype).itemsize

    def declared(self, name: str, value: Any) -> BoundArray:
        return declared_device_array(name, value, device_of(value.__cuda_array_interface__))

    def address(self, value: Any) -> int:
        return int(value.__cuda_array_interface__["data"][0])

    pointer = address

    def placing(self, value: Any) -> MemoryExtent:
        about = value.__cuda_array_interface__
        item = np.dtype(about["typestr"]).itemsize
        steps = about.get("strides") or [s * item for s in element_strides(about["shape"], None, item) or ()]
        return MemoryExtent(about["shape"], steps, item)

    def is_read_only(self, value: Any) -> bool:
        return bool(value.__cuda_array_interface__["data"][1])

    def flat(self, size: int, dtype: DType, device: Any) -> Any:
        with on(device):
            return load_cuda().device_array(size, storage_dtype(dtype))

    def adopt_buffer(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Any) -> Any:
        return self.view(self.flat(prod(shape), dtype, device), shape, strides, dtype)

    def allocator(self, dtype: DType, device: Any, whole: bool) -> Callable[..., Any]:
        return partial(self.adopt_buffer if whole else self.flat, dtype=dtype, device=device)

    def view(self, flat: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> Any:
        words = storage_dtype(dtype)
        made = View(flat, self.address(flat), shape, tuple(s * words.itemsize for s in strides), words.str)
        return load_cuda().as_cuda_array(made)

    def gathered(self, flat: Any, at: Array, dtype: DType) -> Any:
        with on(device_of(flat.__cuda_array_interface__)):
            return load_cuda().to_device(flat.copy_to_host()[at])

    def laid_out(self, t: Tensor, g: BoundArray, env: Env, size: int) -> Any:
        torch = _torch(load_it=True)
        if torch is None:
            raise EmitError(
                f"input {t.name} lies in memory in another order than declared, and a device array is not copied",
                hint="pip install torch, which copies on the device; or make it contiguous",
            )
        tensor = torch.as_tensor(g.data, device=g.device)
        tensor = tensor.view(torch.bfloat16) if t.dtype == "bfloat16" else tensor
        kind = torch_kind()
        made = kind.laid_out(t, kind.declared(t.name, tensor), env, size)
        return made.view(torch.int16) if t.dtype == "bfloat16" else made

    def fill(self, flat: Any, dtype: DType, value: float | None = None) -> None:
        size = prod(flat.shape)
        host = np.empty(size, storage_dtype(dtype))
        NUMPY.fill(host, dtype, value)
        with on(device_of(flat.__cuda_array_interface__)):
            self.view(flat, (size,), (1,), dtype).copy_to_device(host)

    def copied(self, value: Any) -> Any:
        with on(device_of(value.__cuda_array_interface__)):
            given = load_cuda().as_cuda_array(value)
            made = load_cuda().device_array_like(given)
            made.copy_to_device(given)
        return made

    def assign(self, target: Any, value: Any) -> None:
        with on(device_of(target.__cuda_array_interface__)):
            load_cuda().as_cuda_array(target).copy_to_device(value)


DEVICE_ARRAYS = DeviceArrays()


def _torch(*, load_it: bool = False) -> Any:
    """torch, where it is loaded, or installed and asked for, and can use a device."""
    torch = sys.modules.get("torch")
    if torch is None and load_it:
        with contextlib.suppress(ImportError):
            torch = load("torch")
    return torch if torch is not None and torch.cuda.is_available() else None


def device_of(about: Mapping[str, Any]) -> str:
    """The device that memory lies on, as torch names it.

    The driver's own question for it is not asked: cuda.bindings 13.0 answers 0 for memory of every device (NVIDIA's
    cuda-python, issue 2928).
    """
    address = int(about["data"][0])
    if not address:
        return current()
    runtime = import_module("cuda.bindings.runtime")
    code, found = runtime.cudaPointerGetAttributes(address)
    if int(code) != 0 or int(found.type) == int(runtime.cudaMemoryType.cudaMemoryTypeUnregistered):
        raise EmitError(f"the CUDA driver: memory at {address:#x} is on no device: {code!s}")
    return f"cuda:{int(found.device)}"


def place_of(array: Any) -> str | None:
    """The device of an array that is on one, torch's or another's; None for the host's."""
    if is_tensor(cast("Any", type(array))):
        return str(array.device) if array.device.type == "cuda" else None
    return device_of(array.__cuda_array_interface__) if is_device(array) else None


def on(device: str) -> Any:
    """A context in which this device is the current one, of numba and of the driver."""
    devices, number = need_device().gpus, number_of(device)
    if number >= len(devices):
        has = "one device" if len(devices) == 1 else f"{len(devices)} devices"
        raise EmitError(f"there is no {device}: this machine has {has}", hint='device="cuda:0"')
    return devices[number]


def machine_of(kind: ArrayBackend, device: str, overlap: bool = True) -> CudaMachine:
    """The device ``device`` for arrays of this kind."""
    load_context()
    return _machine(number_of(device), isinstance(kind, Torch), overlap)


@cache
def _machine(number: int, with_torch: bool, overlap: bool) -> CudaMachine:
    driver = import_module("cuda.bindings.driver")
    torch = _torch() if with_torch else None
    return CudaMachine(LaunchContext(driver, number, torch, on(f"cuda:{number}")), overlap)


def on_device(array: Array, device: str | None = None) -> Any:
    """NumPy's array on a device, the current one by default; bfloat16 as 16-bit words."""
    words = np.ascontiguousarray(array)
    words = words.view(np.uint16) if words.dtype.name == "bfloat16" else words
    with on(device or current()):
        return load_cuda().to_device(words.reshape(array.shape))


def current() -> str:
    """The device that this thread works on."""
    return f"cuda:{need_device().get_current_device().id}"


def on_host(array: Any) -> Array:
    """A device array in the host's memory, after the work of its device's default stream."""
    about = array.__cuda_array_interface__
    with on(device_of(about)):
        return _on_host(array, about)


def _on_host(array: Any, about: Mapping[str, Any]) -> Array:
    found = load_cuda().as_cuda_array(array)
    if about.get("strides") is None:
        return found.copy_to_host()
    words = np.dtype(about["typestr"])
    span = words.itemsize + sum((n - 1) * s for n, s in zip(about["shape"], about["strides"], strict=True))
    flat = View(array, int(about["data"][0]), (span // words.itemsize,), (words.itemsize,), words.str)
    host = load_cuda().as_cuda_array(flat).copy_to_host()
    return np.lib.stride_tricks.as_strided(host, tuple(about["shape"]), tuple(about["strides"]))
