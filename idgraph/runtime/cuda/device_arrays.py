"""Arrays on the device, by the CUDA array interface: taken as they lie, given without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from idgraph.runtime.binding import BoundArray, dtype_name, element_strides, masked

Array = npt.NDArray[Any]


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


def device_given(given_name: str, array: Any, device: str = "cuda:0") -> BoundArray:
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
