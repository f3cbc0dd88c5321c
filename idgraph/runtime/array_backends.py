"""Kinds of arrays that callers pass: NumPy's, torch's tensors, and memory on a device by the CUDA array interface.

A kind describes an array (`declared`), says what its binding follows from (`key`, fast), where it lies (`address`), and
makes memory of its own sort on the same device. torch is loaded by callers that pass a tensor, never here.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Callable, Hashable, Sequence
from functools import cache, lru_cache, partial
from math import prod
from typing import Any, NamedTuple, Protocol, get_args

import numpy as np
import numpy.typing as npt

from idgraph.codegen.runtime_lib.numpy_ops import storage_dtype
from idgraph.errors import EmitError
from idgraph.ir import DType, Tensor
from idgraph.runtime.binding import (
    BoundArray,
    Env,
    element_strides,
    fill_words,
    flat_input,
    given_array,
    logical_strides,
    overlap_message,
    places,
)

Array = npt.NDArray[Any]
HOST = "cpu"
UNMAPPED = 1 << 16  # bytes at the front of every address space that no system maps


class MemoryExtent(NamedTuple):
    """The shape of an array, its strides in bytes, and the bytes of an element.

    >>> MemoryExtent((2, 3), (12, -4), 4).span
    (-8, 16)
    >>> MemoryExtent((3, 2), (4, 4), 4).repeats, MemoryExtent((3, 2), (4, 12), 4).repeats
    (True, False)
    >>> MemoryExtent((1 << 20, 1 << 20), (4, 4), 4).repeats, MemoryExtent((4, 3), (8, 12), 4).repeats
    (True, True)
    """

    shape: Sequence[int]
    strides: Sequence[int]
    item: int

    @property
    def span(self) -> tuple[int, int]:
        """The bytes that the elements lie in, counted from the first element: first one, and behind the last."""
        if 0 in self.shape:
            return 0, 0
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + self.item

    @property
    def repeats(self) -> bool:
        """Whether two elements share a byte."""
        if 0 in self.shape:
            return False
        axes = sorted((abs(s), n) for n, s in zip(self.shape, self.strides, strict=True) if n > 1)
        reach = self.item
        for stride, n in axes:
            if stride < reach:
                break
            reach += (n - 1) * stride
        else:
            return False  # each step goes past all that lies inside it
        low, high = self.span
        if prod(self.shape) * self.item > high - low:
            return True  # more elements than their memory has room for
        first = np.zeros((), np.int64)
        for stride, n in axes:
            first = np.add.outer(first, np.arange(n, dtype=np.int64) * stride)
        return bool((np.diff(np.sort(first, axis=None)) < self.item).any())


class ArrayBackend(Protocol):
    """See the module. Sizes and strides count elements; a flat array holds words as kernels see them."""

    name: str

    def key(self, value: Any) -> Hashable:
        """All that a binding follows from, but the address: see `shape_place`."""
        ...

    def unit(self, dtype: DType) -> int:
        """The number that a stride of one element is in keys."""
        ...

    def declared(self, name: str, value: Any) -> BoundArray:
        """The array as declarations are compared with it; raises `EmitError` for one that no kernel can read."""
        ...

    def address(self, value: Any) -> int:
        """Where its first element lies, in bytes; below `UNMAPPED` where it has no memory, which `declared` refuses."""
        ...

    @property
    def pointer(self) -> Callable[[Any], int]:
        """`address` of an array that has memory, in the fewest steps; of others it may raise `RuntimeError`."""
        ...

    def placing(self, value: Any) -> MemoryExtent:
        """Where its elements lie, beside the first."""
        ...

    def is_read_only(self, value: Any) -> bool:
        """Whether its owner lets nobody write it."""
        ...

    def flat(self, size: int, dtype: DType, device: Any) -> Any:
        """New memory of ``size`` elements."""
        ...

    def adopt_buffer(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Any) -> Any:
        """New memory as an array of the caller's kind; its elements are in these places, and no others between."""
        ...

    def allocator(self, dtype: DType, device: Any, whole: bool) -> Callable[..., Any]:
        """`adopt_buffer` of a shape and strides, or `flat` of a size, in as few steps as there are."""
        ...

    def view(self, flat: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> Any:
        """Flat memory as an array of the caller's kind."""
        ...

    def gathered(self, flat: Any, at: Array, dtype: DType) -> Any:
        """The elements at these places, as an array of its own."""
        ...

    def laid_out(self, t: Tensor, g: BoundArray, env: Env, size: int) -> Any:
        """A flat copy of the array, laid out as ``t`` is declared."""
        ...

    def fill(self, flat: Any, dtype: DType, value: float | None = None) -> None:
        """Write a number into every element; None: poison, NaN or an odd integer."""
        ...

    def copied(self, value: Any) -> Any:
        """A copy of an array of this kind, where it is: an input that is a result too."""
        ...

    def assign(self, target: Any, value: Any) -> None:
        """Copy the elements of ``value`` into ``target``."""
        ...


_DATA = object.__basicsize__  # bytes from the head of a NumPy array's object to the pointer to its first element
_word_at = ctypes.c_size_t.from_address


def _read_pointer(value: Any) -> int:
    """The first member of NumPy's own structure, which its C interface makes public (``PyArrayObject_fields.data``)."""
    return _word_at(id(value) + _DATA).value


def _asked_pointer(value: Any) -> int:
    return value.__array_interface__["data"][0]


def pointer_of() -> Callable[[Any], int]:
    """How the address of a NumPy array is found: read from the object where that gives what NumPy says of several.

    >>> import numpy as np
    >>> x = np.arange(6.0)[2:]
    >>> pointer_of()(x) == x.__array_interface__["data"][0]
    True
    """
    some = np.zeros((3, 4), np.float32)
    tried = (some, some[1:], some[:, ::-1], np.zeros(0), np.zeros((), np.int8))
    if importlib.import_module("platform").python_implementation() != "CPython":
        return _asked_pointer
    return _read_pointer if all(_read_pointer(x) == _asked_pointer(x) for x in tried) else _asked_pointer


class NumPy:
    """Arrays of NumPy's, bfloat16 as ml_dtypes has it."""

    name = "NumPy arrays"

    pointer = staticmethod(pointer_of())

    def key(self, value: Any) -> Hashable:
        return value.dtype, value.shape, value.strides

    def unit(self, dtype: DType) -> int:
        return storage_dtype(dtype).itemsize

    def declared(self, name: str, value: Any) -> BoundArray:
        return given_array(name, value)

    def address(self, value: Any) -> int:
        return self.pointer(value)

    def placing(self, value: Any) -> MemoryExtent:
        return MemoryExtent(value.shape, value.strides, value.itemsize)

    def is_read_only(self, value: Any) -> bool:
        return not value.flags.writeable

    def flat(self, size: int, dtype: DType, device: Any) -> Any:
        return np.empty(size, storage_dtype(dtype))

    def adopt_buffer(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Any) -> Any:
        if strides == element_strides(shape, None, 1):
            return np.empty(shape, numpy_type(dtype))
        return self.view(self.flat(prod(shape), dtype, device), shape, strides, dtype)

    def allocator(self, dtype: DType, device: Any, whole: bool) -> Callable[..., Any]:
        return partial(self.adopt_buffer if whole else self.flat, dtype=dtype, device=device)

    def view(self, flat: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> Any:
        array = flat.view(numpy_type(dtype))
        if array.size == int(np.prod(shape)) and strides == element_strides(shape, None, 1):
            return array.reshape(shape)
        return np.lib.stride_tricks.as_strided(array, shape, tuple(s * array.itemsize for s in strides))

    def gathered(self, flat: Any, at: Array, dtype: DType) -> Any:
        return flat.view(numpy_type(dtype))[at]

    def laid_out(self, t: Tensor, g: BoundArray, env: Env, size: int) -> Any:
        return flat_input(t, g, env)

    def fill(self, flat: Any, dtype: DType, value: float | None = None) -> None:
        fill_words(flat.view(storage_dtype(dtype)), dtype, value)

    def copied(self, value: Any) -> Any:
        return value.copy()

    def assign(self, target: Any, value: Any) -> None:
        target[...] = value


@cache
def numpy_type(dtype: DType) -> np.dtype[Any]:
    """NumPy's type; bfloat16 is that of ml_dtypes."""
    if dtype == "bfloat16":
        return np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    return np.dtype(dtype)


class Torch:
    """Tensors of torch's, on the host or on a CUDA device, as they lie; no gradient flows through kernels."""

    name = "torch tensors"

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.pointer: Callable[[Any], int] = torch.Tensor.data_ptr
        self._plain = (torch.Tensor, torch.nn.Parameter)
        self._types = {d: getattr(torch, d) for d in get_args(DType)}
        self._names = {t: d for d, t in self._types.items()}

    def is_plain(self, kind: Any) -> bool:
        """Whether tensors of this type are memory, and nothing that stands for other tensors."""
        return kind in self._plain

    def key(self, value: Any) -> Hashable:
        return value.dtype, value.device, value.shape, value.stride(), value.is_neg()

    def unit(self, dtype: DType) -> int:
        return 1

    def declared(self, name: str, value: Any) -> BoundArray:
        torch = self.torch
        if not isinstance(value, torch.Tensor):
            raise EmitError(
                f"input {name} is of type {type(value).__name__}: it is not a tensor",
                hint="pass the tensor itself, or torch.as_tensor(x)",
            )
        if not self.is_plain(type(value)):
            raise EmitError(
                f"input {name} is a {type(value).__name__}, a tensor that stands for something else",
                hint="pass plain tensors: the parts it is made of, or x.as_subclass(torch.Tensor)",
            )
        if value.layout != torch.strided or value.is_nested or value.device.type not in ("cpu", "cuda"):
            what = value.layout if value.layout != torch.strided else f"a tensor on {value.device}"
            what = "a nested tensor" if value.is_nested else what
            raise EmitError(
                f"input {name} is {what}: its elements have no address",
                hint="x.to_dense(), x.to_padded_tensor(0), x.to('cpu') or x.to('cuda')",
            )
        dtype = self._names.get(value.dtype) or str(value.dtype).removeprefix("torch.")
        device = HOST if value.device.type == "cpu" else str(value.device)
        if value.numel() and self.address(value) < UNMAPPED:
            raise EmitError(
                f"input {name} has no memory of its own: it stands for another tensor, or its storage was freed",
                hint="call kernels outside of torch.func's transforms, with tensors that hold their elements",
            )
        if value.is_neg():  # a view that must be copied
            return BoundArray(tuple(value.shape), dtype, None, value.resolve_neg(), device)
        return BoundArray(tuple(value.shape), dtype, value.stride(), value, device)

    def address(self, value: Any) -> int:
        try:
            return value.data_ptr()
        except RuntimeError:  # of a transform: it has none
            return 0

    def placing(self, value: Any) -> MemoryExtent:
        return MemoryExtent(value.shape, [s * value.itemsize for s in value.stride()], value.itemsize)

    def is_read_only(self, value: Any) -> bool:
        return False

    def flat(self, size: int, dtype: DType, device: Any) -> Any:
        return self.torch.empty(size, dtype=self._types[dtype], device=device)

    def adopt_buffer(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Any) -> Any:
        return self.torch.empty_strided(shape, strides, dtype=self._types[dtype], device=device)

    def allocator(self, dtype: DType, device: Any, whole: bool) -> Callable[..., Any]:
        make = self.torch.empty_strided if whole else self.torch.empty
        return partial(make, dtype=self._types[dtype], device=self.torch.device(device))

    def view(self, flat: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> Any:
        return flat.as_strided(shape, strides)

    def gathered(self, flat: Any, at: Array, dtype: DType) -> Any:
        return flat[self.torch.from_numpy(np.ascontiguousarray(at)).to(flat.device)]

    def laid_out(self, t: Tensor, g: BoundArray, env: Env, size: int) -> Any:
        torch, data = self.torch, g.data.detach()
        flat = torch.zeros(max(size, 1), dtype=data.dtype, device=data.device)
        if 0 in g.shape:
            return flat
        want = logical_strides(t, env)
        if want is None:
            flat[torch.from_numpy(np.array(places(t, env))).to(data.device)] = data
            return flat
        view = flat.as_strided(
            g.shape, want, int(t.offset.evaluate(env)) if not isinstance(t.offset, int) else t.offset
        )
        repeated = tuple(slice(0, 1) if s == 0 else slice(None) for s in want)
        view[repeated] = data[repeated]
        if 0 in want and not bool(((view == data) | ((view != view) & (data != data))).all()):
            raise overlap_message(t, want)
        return flat

    def fill(self, flat: Any, dtype: DType, value: float | None = None) -> None:
        poison = float("nan") if flat.dtype.is_floating_point else 85
        flat.fill_(poison if value is None else value)

    def copied(self, value: Any) -> Any:
        return value.clone()

    def assign(self, target: Any, value: Any) -> None:
        target.detach().copy_(value)

    def numpy(self, value: Any) -> Array:
        """The elements as NumPy's array, with their strides; shares memory with a tensor of the host."""
        plain = value.detach().cpu().resolve_conj().resolve_neg()
        if plain.dtype == self.torch.bfloat16:
            return plain.view(self.torch.int16).numpy().view(numpy_type("bfloat16"))
        return plain.numpy()

    def tensor(self, array: Array) -> Any:
        """The elements of NumPy's array as a tensor of the host, with their strides; shares memory where it may."""
        own = array if array.flags.writeable and all(s >= 0 for s in array.strides) else array.copy()
        if own.dtype.name == "bfloat16":
            return self.torch.from_numpy(own.view(np.int16)).view(self.torch.bfloat16)
        return self.torch.from_numpy(own)


NUMPY = NumPy()


@cache
def torch_kind() -> Torch:
    """The kind of torch's tensors, once torch is loaded."""
    return Torch(sys.modules["torch"])


@lru_cache(256)
def is_tensor(kind: type) -> bool:
    """True of torch's tensors and of classes derived from them; does not load torch."""
    return any(c.__module__.partition(".")[0] == "torch" and c.__name__ == "Tensor" for c in kind.__mro__)


def shape_place(key: Sequence[Any]) -> int | None:
    """The place of the shape in a key of an array, `ArrayBackend.key` behind any other words; its strides stand behind
    it, as the array counts them. None where a key has no strides, or is not of an array."""
    at = next((n for n, x in enumerate(key) if isinstance(x, tuple)), len(key))
    return at if at + 1 < len(key) and isinstance(key[at + 1], tuple) else None


def check_writable(kind: ArrayBackend, name: str, target: Any) -> None:
    """Raise where results cannot be written into an array of ``out=``: it has no memory, or nobody may write it, or
    several of its elements are one."""
    kind.declared(f"out of {name}", target)
    if kind.is_read_only(target):
        raise EmitError(f"out of {name} is read-only", hint="pass an array that may be written, or a copy of it")
    if kind.placing(target).repeats:
        raise EmitError(
            f"out of {name} has several elements at one address", hint="pass memory of its own for each element"
        )


def from_dlpack(name: str, value: Any) -> Any:
    """An object that speaks DLPack as a tensor of torch's where that is installed, else as NumPy's array; no copy."""
    try:
        return importlib.import_module("torch").from_dlpack(value)
    except ImportError:
        pass
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise EmitError(
            f"input {name}: NumPy cannot take this {type(value).__name__} by DLPack: {error}",
            hint="pip install torch, which takes arrays of any device and type",
        ) from None


def given_back(result: Any, like: Any) -> Any:
    """A result as an array of the library that ``like`` is of, which has ``__array_namespace__``; no copy."""
    space = like.__array_namespace__()
    return space.asarray(result) if hasattr(like, "__cuda_array_interface__") else space.from_dlpack(result)
