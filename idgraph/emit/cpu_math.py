"""Forms that LLVM turns into vector code, for loops over the columns of a row on the CPU.

``exp32`` has no branch and no table (Cephes' polynomial on [-ln 2 / 2, ln 2 / 2], scaled in two steps so that the
smallest results are rounded once); within 1 unit in the last place of float32. ``order_key`` maps float32 to integers
in the order in which `maximum` has them, NaN above all: a largest integer can be looked for in any order, the
`maximum` of floats cannot.
"""

# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

# Globals that `row_functions` gives its copies of the functions below.
int_float: Any = None
float_int: Any = None


def exp32(x):
    """e ** x of a float32."""
    y = x if x > np.float32(-104.0) else np.float32(-104.0)
    y = y if y < np.float32(89.0) else np.float32(89.0)
    n = np.floor(y * np.float32(1.44269504) + np.float32(0.5))
    r = y - n * np.float32(0.693359375)
    r = r - n * np.float32(-2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * (r * r) + r + np.float32(1.0)
    k = np.int32(n)
    half = np.int32(k >> np.int32(1))
    first = int_float(np.int32((half + np.int32(127)) << np.int32(23)))
    second = int_float(np.int32((k - half + np.int32(127)) << np.int32(23)))
    out = p * first * second
    return out if x == x else x


def order_key(x):
    """An integer for a float32, larger for what `maximum` prefers."""
    bits = float_int(x)
    size = np.int32(bits & np.int32(0x7FFFFFFF))
    key = np.int32(bits ^ np.int32((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))
    return np.int64(key if size <= np.int32(0x7F800000) else np.int32(0x7FFFFFFF))


def order_value(key):
    """The float32 of an `order_key`."""
    k = np.int32(key)
    return int_float(np.int32(k ^ np.int32((k >> np.int32(31)) & np.int32(0x7FFFFFFF))))


def _int_float(bits):
    return np.int32(bits).view(np.float32)


def _float_int(x):
    return np.float32(x).view(np.int32)


def row_functions(jit: Callable[[Any], Any]) -> dict[str, Any]:
    """The functions by name, compiled by ``jit``."""
    names: dict[str, Any] = {"np": np, "int_float": jit(_int_float), "float_int": jit(_float_int)}
    return {f.__name__: jit(FunctionType(f.__code__, names, f.__name__)) for f in (exp32, order_key, order_value)}
