"""Complex tensors: each is a pair of real ones here, and one real tensor with a last axis of two where it is stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from idgraph.frontends.graph import TensorMeta
from idgraph.ir import Tensor

PARTS = {"complex64": "float32", "complex128": "float64"}  # a complex dtype -> that of its parts


@dataclass(frozen=True, slots=True)
class Pair:
    """A complex tensor while a fusion is built."""

    real: Tensor
    imag: Tensor


def part_meta(meta: TensorMeta) -> TensorMeta:
    """The graph's facts about one part of a complex tensor.

    >>> part_meta(TensorMeta((4,), "complex64", (1,))).dtype
    'float32'
    """
    return TensorMeta(meta.shape, PARTS.get(meta.dtype, meta.dtype), meta.strides, meta.offset)


def as_reals(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """A complex array as a real one with a last axis of two, in the same memory; any other as it is.

    >>> as_reals(np.array([1 + 2j])).tolist()
    [[1.0, 2.0]]
    """
    if array.dtype.kind != "c":
        return array
    real = array.real  # the same memory, with the strides of the whole
    step = array.dtype.itemsize // 2
    return np.lib.stride_tricks.as_strided(real, (*array.shape, 2), (*array.strides, step))


def as_complex(array: npt.NDArray[np.generic], dtype: str) -> npt.NDArray[np.generic]:
    """A real array with a last axis of two as a complex one, where ``dtype`` is complex; else as it is.

    >>> as_complex(np.array([[1.0, 2.0]]), "complex128").tolist()
    [(1+2j)]
    """
    return np.ascontiguousarray(array).view(dtype)[..., 0] if dtype in PARTS else array
