"""How values are kept: floating point exactly, each tensor rounded to its type as it would be in memory.

Types up to float32 are kept in float32 arrays (which hold bfloat16 and float16 values exactly), integers in int64.
"""

from __future__ import annotations

import numpy as np

from idgraph.ir import DType, is_float
from idgraph.validate.oracle.views import Array


def kept_dtype(dtype: DType, rounded: bool) -> np.dtype[np.generic]:
    """The array type that holds values of a tensor type."""
    if dtype == "bool":
        return np.dtype(np.bool_)
    if not is_float(dtype):
        return np.dtype(np.int64)
    return np.dtype(np.float32 if rounded and dtype != "float64" else np.float64)


def round_bfloat16(x: Array) -> Array:
    """float32 values rounded to the nearest bfloat16, ties to even; still float32.

    >>> round_bfloat16(np.array([1.0, 1.00390625, 2.5], np.float32)).tolist()
    [1.0, 1.0, 2.5]
    """
    with np.errstate(over="ignore"):
        words = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
        even = (words >> np.uint32(16)) & np.uint32(1)
        cut = ((words + (np.uint32(0x7FFF) + even)) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(x), np.float32(np.nan), cut).reshape(x.shape)


def stored(x: Array, dtype: DType, rounded: bool = True) -> Array:
    """``x`` as a tensor of ``dtype`` holds it: rounded (half types through float32), wrapped, or true for non-zero."""
    with np.errstate(all="ignore"):
        if dtype == "bool":
            return x.astype(np.bool_)
        if not is_float(dtype):
            whole = x if x.dtype.kind in "iub" else np.trunc(x)
            wide = whole.astype(np.int64)
            return wide if dtype == "int64" else wide.astype(np.dtype(dtype)).astype(np.int64)
        if not rounded or dtype == "float64":
            return x.astype(np.float64)
        single = x.astype(np.float32)
        if dtype == "float32":
            return single
        return round_bfloat16(single) if dtype == "bfloat16" else single.astype(np.float16).astype(np.float32)
