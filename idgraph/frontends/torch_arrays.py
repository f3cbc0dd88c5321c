"""Between torch tensors and NumPy arrays, without a copy where the memory allows; torch is imported only when used."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

from idgraph.errors import FrontendError
from idgraph.frontends.dynamic_shapes import values_of
from idgraph.frontends.graph import TensorMeta

if TYPE_CHECKING:
    import types

    import torch

Array = npt.NDArray[np.generic]


def load_torch(why: str) -> types.ModuleType:
    """The torch module, or an error that says what needs it."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise FrontendError(f"torch cannot be imported, {why}: {error}", hint="pip install torch") from None


def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """NumPy's type for a dtype of the IR.

    >>> numpy_dtype("bfloat16").itemsize
    2
    """
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def dtype_name(array: Array) -> str:
    """torch's name of an array's type.

    >>> dtype_name(np.zeros(2, np.int32))
    'int32'
    """
    return array.dtype.name


def is_torch(value: object) -> TypeGuard[torch.Tensor]:
    """True of a torch tensor; does not import torch."""
    return _is_tensor_type(cast("Any", type(value)))


@lru_cache(maxsize=256)
def _is_tensor_type(kind: type) -> bool:
    return any(c.__module__.partition(".")[0] == "torch" and c.__name__ == "Tensor" for c in kind.__mro__)


_COUNTED = 1_000_000  # elements of a view whose places are compared one by one
ONE_MEMORY = "one argument, and views of it made inside of the program; or a clone of one of the two"


def shares_memory(a: Any, b: Any) -> bool:
    """Whether an element of one tensor or array is also one of the other; on a GPU, whether their ranges meet.

    >>> x = np.arange(6)
    >>> shares_memory(x[::2], x[1::2]), shares_memory(x[:3], x[2:])
    (False, True)
    """
    (first, last), (start, end) = _memory_span(a), _memory_span(b)
    if last <= start or end <= first:
        return False
    if any(is_torch(v) and v.device.type != "cpu" for v in (a, b)):
        return True
    x, y = (to_numpy(v) if is_torch(v) else v for v in (a, b))
    try:
        shares: Any = np.shares_memory  # its type knows two numbers of steps only
        return bool(shares(x, y, max_work=100_000))
    except np.exceptions.TooHardError:
        return True


def overlaps(value: Any) -> bool:
    """Whether two elements of a tensor lie at one address; of sizes that are not known, whether that is not excluded.

    >>> import torch
    >>> overlaps(torch.ones(4).as_strided((2, 2), (1, 1))), overlaps(torch.ones(4).as_strided((2, 2), (2, 1)))
    (True, False)
    """
    axes: list[tuple[int, int]] = sorted((s, n) for n, s in zip(value.shape, value.stride(), strict=True) if n != 1)
    reach = 0
    for stride, size in axes:
        if not stride > reach:
            break
        reach += (size - 1) * stride
    else:
        return False
    if not all(isinstance(v, int) for pair in cast("Any", axes) for v in pair) or value.numel() > _COUNTED:
        return True
    places: Any = np.zeros(1, np.int64)
    for stride, size in axes:
        places = (places[:, None] + np.arange(size) * stride).reshape(-1)
    return len(np.unique(places)) < places.size


def repeats(value: Any) -> bool:
    """Whether an axis of a tensor, of more than one element, has stride 0.

    >>> import torch
    >>> repeats(torch.ones(4).expand(2, 4)), repeats(torch.ones(4).expand(1, 4))
    (True, False)
    """
    axes: Any = zip(value.shape, value.stride(), strict=True)
    return any(isinstance(s, int) and s == 0 and not (isinstance(n, int) and n <= 1) for n, s in axes)


def _memory_span(value: Any) -> tuple[int, int]:
    """The first byte, and the one behind the last."""
    if 0 in value.shape:
        return 0, 0
    if is_torch(value):
        first, size, strides = (
            value.data_ptr(),
            value.element_size(),
            [s * value.element_size() for s in value.stride()],
        )
    else:
        first, size, strides = value.ctypes.data, value.itemsize, value.strides
    steps = [(n - 1) * s for n, s in zip(value.shape, strides, strict=True)]
    return first + sum(s for s in steps if s < 0), first + sum(s for s in steps if s > 0) + size


def to_numpy(tensor: torch.Tensor) -> Array:
    """The elements of a torch tensor, with its strides; shares memory with a CPU tensor."""
    torch = load_torch("which a tensor was given for")
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return plain.numpy()


def to_torch(array: Array) -> torch.Tensor:
    """The elements of an array as a torch tensor, with its strides; shares memory."""
    torch = load_torch("which is asked for tensors")
    own = array if array.flags.writeable and all(s >= 0 for s in array.strides) else array.copy()
    if own.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(own.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(own)


def laid_out(array: Array, meta: TensorMeta) -> Array:
    """The elements with the strides of ``meta``: the array itself where it has them, else a copy.

    Strides are elements; an axis of stride 0 must repeat one element.

    >>> laid_out(np.zeros((2, 3), np.float32), TensorMeta((2, 3), "float32", (1, 2))).strides
    (4, 8)
    """
    size = array.dtype.itemsize
    shape, strides = values_of(meta.shape, {}), values_of(meta.strides, {})
    wanted = tuple(s * size for s in strides)
    if array.size == 0 or all(n == 1 or a == b for n, a, b in zip(array.shape, array.strides, wanted, strict=True)):
        return array
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    memory = np.zeros(span, array.dtype)
    repeated = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)
    view = np.lib.stride_tricks.as_strided(memory, shape, wanted)
    view[repeated] = array[repeated]
    if not np.array_equal(view, array, equal_nan=array.dtype.kind in "fV"):
        raise FrontendError(f"an array of shape {shape} holds different elements where strides {strides} share one")
    return view


def with_strides(array: Array, meta: TensorMeta) -> Array:
    """A copy with the strides of ``meta`` in memory of its own, in as many bytes as they span.

    >>> with_strides(np.zeros((2, 3), np.float32), TensorMeta((2, 3), "float32", (1, 2))).strides
    (4, 8)
    """
    size = array.dtype.itemsize
    shape, strides = values_of(meta.shape, {}), values_of(meta.strides, {})
    if array.size == 0:
        return np.empty(shape, array.dtype)
    memory = np.empty(1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)), array.dtype)
    view = np.lib.stride_tricks.as_strided(memory, shape, tuple(s * size for s in strides))
    repeated = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)
    view[repeated] = array[repeated]
    return view
