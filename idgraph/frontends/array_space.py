"""Where an imported program's values live while it runs: torch's tensors on the caller's device, or NumPy's arrays.

Nothing is copied between the two but what the caller mixes: a NumPy constant of a program that is called with tensors.
A complex tensor is a pair of real ones here, and one real tensor with a last axis of two where it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from idgraph.errors import FrontendError
from idgraph.frontends.dynamic_shapes import values_of
from idgraph.frontends.graph import TensorMeta
from idgraph.frontends.torch_arrays import (
    Array,
    dtype_name,
    is_torch,
    laid_out,
    load_torch,
    to_numpy,
    to_torch,
    with_strides,
)
from idgraph.ir import Tensor
from idgraph.runtime.host_launch import strided


class NumPySpace:
    """NumPy's arrays; values are arrays of the space."""

    def to_space(self, value: object) -> Any:
        """An argument as an array of this space; None for what is not an array."""
        return cast("Array", value) if isinstance(value, np.ndarray) else None

    def dtype(self, value: Any) -> str:
        """torch's name of its type."""
        return dtype_name(value)

    def reals(self, value: Any) -> Any:
        """A complex array as a real one with a last axis of two, any other as it is."""
        return as_reals(value)

    def complexes(self, value: Any, dtype: str) -> Any:
        """The way back, where ``dtype`` is complex."""
        return as_complex(value, dtype)

    def tensor(self, value: Any, meta: TensorMeta | None) -> Any:
        """As a tensor with the strides captured, for torch's own operations."""
        return to_torch(value if meta is None else laid_out(value, meta))

    def from_tensor(self, value: Any) -> Any:
        """A result of torch's."""
        return to_numpy(value)

    def back(self, meta: TensorMeta | None) -> Callable[[Any, bool], Any]:
        """The result for a value, with the strides captured; the second argument: whether its memory is its own."""
        if meta is None:
            return _as_it_is
        wanted = values_of(meta.strides, {})

        def returned(value: Any, mine: bool) -> Any:
            if dtype_name(value) != meta.dtype:
                return _as_it_is(value, mine)
            strides = tuple([s * value.itemsize for s in wanted])
            if mine and value.strides == strides:
                return value
            steps = [s // value.itemsize for s in value.strides]
            if mine and value.size and _same_layout(value.shape, steps, meta):  # strides of axes of one element
                return strided(value, value.shape, wanted, 0)
            return with_strides(value, meta)

        return returned

    def relayout(self, meta: TensorMeta) -> Callable[[Any], Any]:
        """The array itself where it has the strides captured, else a copy that has them."""
        return lambda value: laid_out(value, meta)

    def as_view(self, shape: tuple[int, ...], strides: tuple[int, ...], start: int) -> Callable[[Any], Any]:
        """The view of an array that begins ``start`` elements behind it; strides are elements."""
        return lambda base: strided(base, shape, strides, start)


def _as_it_is(value: Any, mine: bool) -> Any:
    """The array, or a copy in memory of its own."""
    return value if mine and value.flags.owndata else value.copy(order="K")


class TorchSpace:
    """torch's tensors on one device; its methods are those of `NumPySpace`."""

    def __init__(self, device: Any) -> None:
        self.torch: Any = load_torch("which a tensor was given for")
        self.device = device

    def to_space(self, value: object) -> Any:
        if is_torch(value):
            tensor = value.detach() if value.requires_grad else value
            return tensor if tensor.device == self.device else tensor.to(self.device)
        return to_torch(cast("Array", value)).to(self.device) if isinstance(value, np.ndarray) else None

    def dtype(self, value: Any) -> str:
        return str(value.dtype).removeprefix("torch.")

    def reals(self, value: Any) -> Any:
        return self.torch.view_as_real(value.resolve_conj().resolve_neg()) if value.is_complex() else value

    def complexes(self, value: Any, dtype: str) -> Any:
        if dtype not in PARTS:
            return value
        whole = value.contiguous()
        if not whole.numel():  # without elements, any strides are contiguous
            whole = whole.clone(memory_format=self.torch.contiguous_format)
        return self.torch.view_as_complex(whole)

    def tensor(self, value: Any, meta: TensorMeta | None) -> Any:
        if meta is None or value.numel() == 0 or _same_layout(value.shape, value.stride(), meta):
            return value
        return self._laid_out(value, meta)

    def from_tensor(self, value: Any) -> Any:
        if value._is_zerotensor():  # torch's gradient of nothing, which has no memory
            return self.torch.zeros(value.shape, dtype=value.dtype, device=value.device)
        return value.detach() if value.requires_grad else value

    def back(self, meta: TensorMeta | None) -> Callable[[Any, bool], Any]:
        dtype = None if meta is None else getattr(self.torch, meta.dtype)
        wanted = () if meta is None else tuple(values_of(meta.strides, {}))

        def returned(value: Any, mine: bool) -> Any:
            if meta is None or value.dtype != dtype:
                return value if mine else value.clone()
            if mine and not value.storage_offset():
                if value.stride() == wanted:
                    return value
                if value.numel() and _same_layout(value.shape, value.stride(), meta):  # strides of axes of one element
                    return value.set_(value.untyped_storage(), 0, value.shape, wanted)
            return self._laid_out(value, meta)

        return returned

    def relayout(self, meta: TensorMeta) -> Callable[[Any], Any]:
        return lambda value: self.tensor(value, meta)

    def as_view(self, shape: tuple[int, ...], strides: tuple[int, ...], start: int) -> Callable[[Any], Any]:
        return lambda base: base.as_strided(shape, strides, base.storage_offset() + start)

    def _laid_out(self, value: Any, meta: TensorMeta) -> Any:
        """A copy with these strides; an axis of stride 0 must repeat one element."""
        shape, strides = values_of(meta.shape, {}), values_of(meta.strides, {})
        made = self.torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)
        repeated = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)
        made[repeated] = value[repeated]
        if 0 in strides and not bool(self.torch.equal(made.nan_to_num(), value.nan_to_num())):
            raise FrontendError(f"a tensor of shape {shape} holds different elements where strides {strides} share one")
        return made


Place = tuple[tuple[int, ...], tuple[int, ...], int]  # of a view: shape, strides, elements before it


def place_of(of: TensorMeta, meta: TensorMeta) -> Place:
    """Shape and strides of a view, and the elements from where its base begins to where it does."""
    start, first = values_of((meta.offset, of.offset), {})
    return values_of(meta.shape, {}), values_of(meta.strides, {}), start - first


def _same_layout(shape: Sequence[int], strides: Sequence[int], meta: TensorMeta) -> bool:
    return all(n == 1 or a == b for n, a, b in zip(shape, strides, values_of(meta.strides, {}), strict=True))


ArraySpace: TypeAlias = NumPySpace | TorchSpace
NUMPY_SPACE = NumPySpace()


def space_of(given: Mapping[str, object], of_torch: bool = False) -> ArraySpace:
    """Tensors where one is given, on its device: of several devices that of the first with axes; else arrays.

    ``of_torch``: a program that torch captured, which returns tensors of the host where it is given neither.
    """
    tensors = [a for a in given.values() if is_torch(a)]
    if not tensors:
        if of_torch and not any(isinstance(a, np.ndarray) for a in given.values()):
            return TorchSpace(load_torch("which the program was captured from").device("cpu"))
        return NUMPY_SPACE
    return TorchSpace(next((t for t in tensors if t.dim()), tensors[0]).device)


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
