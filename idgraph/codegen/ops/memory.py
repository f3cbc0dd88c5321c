"""Flat buffers as the Python and NumPy targets see them: every address is tested, 16-bit floats are decoded."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from idgraph.codegen.ops import arrays, scalars
from idgraph.errors import IndexingError
from idgraph.ir import DType

Array = npt.NDArray[Any]


def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """How kernels see elements: bfloat16 as 16-bit words.

    >>> storage_dtype("bfloat16"), storage_dtype("int8")
    (dtype('uint16'), dtype('int8'))
    """
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


class Memory:
    """A flat buffer of one tensor; ``at`` is where the slices of private memory start (0 for others)."""

    __slots__ = ("at", "data", "dtype", "size", "title")

    def __init__(self, data: Array, dtype: DType, title: str, size: int) -> None:
        self.data = data
        self.dtype: DType = dtype
        self.title = title
        self.size = size
        self.at: Any = 0

    def _outside(self, address: int) -> IndexingError:
        return IndexingError(
            f"address {address} of {self.title} is outside its {self.size} elements",
            hint="a loaded index is out of range: run(..., checked=True) names the point",
        )

    # one element --------------------------------------------------------------------------------------------------

    def __getitem__(self, address: int) -> Any:
        if not 0 <= address < self.size:
            raise self._outside(address)
        value = self.data.item(address)
        return scalars.bf16_load(value) if self.dtype == "bfloat16" else value

    def __setitem__(self, address: int, value: Any) -> None:
        if not 0 <= address < self.size:
            raise self._outside(address)
        self.data[address] = scalars.bf16_word(value) if self.dtype == "bfloat16" else value

    # many elements ------------------------------------------------------------------------------------------------

    def _checked(self, address: Array) -> None:
        if address.size and (int(address.min()) < 0 or int(address.max()) >= self.size):
            raise self._outside(int(address[(address < 0) | (address >= self.size)].flat[0]))

    def load(self, address: Any, mask: Any = None) -> Array:
        """Elements at the addresses where ``mask`` holds, any value elsewhere."""
        where = np.asarray(address)
        if mask is not None:
            mask, where = np.broadcast_arrays(mask, where)
            where = np.where(mask, where, 0)
            if not mask.any():
                return self._decoded(np.zeros(where.shape, self.data.dtype))
            self._checked(where[mask])
            where = np.where(mask, where, where[mask].flat[0])
        self._checked(where)
        return self._decoded(self.data[where])

    def _decoded(self, raw: Array) -> Array:
        match self.dtype:
            case "bfloat16":
                return arrays.bf16_load(raw)
            case "float16":
                return raw.astype(np.float32)
            case "uint8" | "int8" | "int16" | "int32":
                return raw.astype(np.int64)
            case "bool" | "int64" | "float32" | "float64":
                return raw

    def store(self, address: Any, value: Any, mask: Any, grid: tuple[int, ...]) -> None:
        """Write elements at the points of ``grid`` where ``mask`` holds."""
        where, values = arrays.broadcast(grid, address, value)
        if mask is not None:
            (kept,) = arrays.broadcast(grid, mask)
            where, values = where[kept], values[kept]
        self._checked(where)
        self.data[where] = arrays.bf16_word(values) if self.dtype == "bfloat16" else values

    def accumulate(self, op: str, address: Any, value: Any, mask: Any, grid: tuple[int, ...]) -> None:
        """Combine values into elements, each point once."""
        where, values = arrays.broadcast(grid, address, value)
        if mask is not None:
            (kept,) = arrays.broadcast(grid, mask)
            where, values = where[kept], values[kept]
        self._checked(where)
        arrays.REDUCE[op].at(self.data, where, values)


def private(size: int, dtype: DType, title: str, grid: tuple[int, ...] = ()) -> Memory:
    """Memory of ``size`` elements for each point of ``grid``."""
    points = int(np.prod(grid, dtype=np.int64))
    made = Memory(np.zeros(max(1, points * size), storage_dtype(dtype)), dtype, title, points * size)
    if grid:
        made.at = np.arange(points, dtype=np.int64).reshape(grid) * size
    return made
