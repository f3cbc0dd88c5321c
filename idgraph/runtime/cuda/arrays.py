"""Arrays on the device, by the CUDA array interface: taken as they lie, given without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from idgraph.codegen.ops.memory import storage_dtype
from idgraph.errors import EmitError
from idgraph.index import buffer_size
from idgraph.ir import Tensor
from idgraph.runtime.binding import (
    Env,
    Given,
    bind_strides,
    dtype_name,
    element_strides,
    extents,
    fits,
    flat_input,
    logical_strides,
    masked,
    output_array,
)
from idgraph.runtime.cuda.device import load_cuda

Array = npt.NDArray[Any]


class _View:
    """Device memory under another shape, for `numba.cuda.as_cuda_array`."""

    def __init__(self, owner: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": shape, "strides": strides, "typestr": dtype, "data": (address, False), "version": 3,
        }  # fmt: skip


def is_device(array: Any) -> bool:
    """True of an array on a device."""
    return not isinstance(array, (np.ndarray, np.generic)) and hasattr(array, "__cuda_array_interface__")


def device_given(given_name: str, array: Any) -> Given:
    """A device array; 16-bit words (``<u2`` or ``<V2``) stand for bfloat16."""
    about = array.__cuda_array_interface__
    kind = np.dtype(about["typestr"])
    name = "bfloat16" if kind.str in ("<u2", "|V2") else dtype_name(kind)
    if about.get("mask") is not None:
        raise masked(given_name)
    shape = tuple(int(n) for n in about["shape"])
    return Given(shape, name, element_strides(shape, about.get("strides"), kind.itemsize), array)


def device_flat(t: Tensor, g: Given, env: Env) -> Any:
    """The buffer that the declaration describes: the array's own memory where it has that layout."""
    cuda = load_cuda()
    bind_strides(t, env, g.shape, g.strides)
    size = int(buffer_size(t).evaluate(env)) if 0 not in g.shape else 0
    words = storage_dtype(t.dtype)
    want = logical_strides(t, env)
    address = int(g.data.__cuda_array_interface__["data"][0])
    if size and t.offset == 0 and want is not None and fits(g.shape, g.strides, want):
        if address % t.alignment:  # vector accesses were proved with the declared alignment
            raise EmitError(
                f"the array for {t.name} starts at an address that {t.alignment} bytes do not divide",
                where=t.source_line,
                hint=f"declare what it has: f.input(..., alignment={min(t.alignment, address & -address)})",
            )
        return cuda.as_cuda_array(_View(g.data, address, (size,), (words.itemsize,), words.str))
    if 0 in g.shape:
        return cuda.to_device(np.zeros(1, words))
    if g.strides is None:
        raise EmitError(f"input {t.name}: the device array's strides are not whole elements", where=t.source_line)
    span = 1 + sum((n - 1) * s for n, s in zip(g.shape, g.strides, strict=True))
    flat = cuda.as_cuda_array(_View(g.data, address, (span,), (words.itemsize,), words.str)).copy_to_host()
    array = np.lib.stride_tricks.as_strided(flat, g.shape, tuple(s * words.itemsize for s in g.strides))
    return cuda.to_device(flat_input(t, Given(g.shape, g.dtype, g.strides, array), env))


def device_output(t: Tensor, flat: Any, env: Env) -> Any:
    """An output on the device; bfloat16 as 16-bit words."""
    cuda = load_cuda()
    words = storage_dtype(t.dtype)
    shape, want = extents(t, env), logical_strides(t, env)
    if want is None or 0 in shape:
        made = output_array(t, on_host(flat), env)
        return cuda.to_device(np.ascontiguousarray(made).view(words) if t.dtype == "bfloat16" else made)
    address = int(flat.__cuda_array_interface__["data"][0])
    return cuda.as_cuda_array(_View(flat, address, shape, tuple(s * words.itemsize for s in want), words.str))


def on_host(array: Any) -> Array:
    """A copy in the host's memory."""
    return array.copy_to_host()
