"""Forms that LLVM vectorises, for loops over the columns of a row on the CPU.

``exp32`` has no branch and no table (Cephes' polynomial on [-ln 2 / 2, ln 2 / 2], scaled in two steps so that the
smallest results are rounded once); within 1 unit in the last place of float32. None of its steps changes its meaning
where LLVM may take sums and products in another order, as in kernels of rows. ``order_key`` maps float32 to integers
in the order in which `maximum` has them, NaN above all: a maximum of integers may be reduced in any order, the
`maximum` of floats may not.
"""

# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import FunctionType
from typing import Any

import numpy as np

# Globals that `row_functions` gives its copies of the functions below.
int_float: Any = None
float_int: Any = None
multiply_add: Any = None


def exp32(x):
    """e ** x of a float32."""
    y = np.float32(-104.0) if x < np.float32(-104.0) else x
    y = np.float32(89.0) if y > np.float32(89.0) else y
    # Adding 1.5 * 2**23 rounds to an integer, which then stands in the last bits.
    t = multiply_add(y, np.float32(1.44269504), np.float32(12582912.0))
    n = t - np.float32(12582912.0)
    r = multiply_add(n, np.float32(-0.693359375), y)
    r = multiply_add(n, np.float32(2.12194440e-4), r)
    p = multiply_add(np.float32(1.9875691500e-4), r, np.float32(1.3981999507e-3))
    p = multiply_add(p, r, np.float32(8.3334519073e-3))
    p = multiply_add(p, r, np.float32(4.1665795894e-2))
    p = multiply_add(p, r, np.float32(1.6666665459e-1))
    p = multiply_add(p, r, np.float32(5.0000001201e-1))
    p = multiply_add(p, r * r, r) + np.float32(1.0)
    k = np.int32(float_int(t) - np.int32(0x4B400000))
    # 2**k in two steps, the first one in the exponent's bits: neither overflows where the result does not.
    half = np.int32(k >> np.int32(1))
    scaled = int_float(np.int32(float_int(p) + np.int32(half << np.int32(23))))
    out = scaled * int_float(np.int32(np.int32(np.int32(k - half) + np.int32(127)) << np.int32(23)))
    return out if x == x else x


def order_key(x):
    """An integer for a float32, larger for what `maximum` prefers."""
    bits = float_int(x)
    size = np.int32(bits & np.int32(0x7FFFFFFF))
    key = np.int32(bits ^ np.int32((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))
    return key if size <= np.int32(0x7F800000) else np.int32(0x7FFFFFFF)


def lowest_key():
    """An integer below the `order_key` of every float32."""
    return np.int32(-2147483648)


def larger_key(a, b):
    """The larger of two keys."""
    return a if a > b else b


def order_value(key):
    """The float32 of an `order_key`."""
    k = np.int32(key)
    return int_float(np.int32(k ^ np.int32((k >> np.int32(31)) & np.int32(0x7FFFFFFF))))


def _int_float(bits):
    return np.int32(bits).view(np.float32)


def _float_int(x):
    return np.float32(x).view(np.int32)


def bf16_word(x):
    """The 16 bits of the nearest bfloat16, halves to even; in 32-bit integers, as wide as what it rounds."""
    bits = np.uint32(float_int(x))
    odd = np.uint32(np.uint32(bits >> np.uint32(16)) & np.uint32(1))
    word = np.uint16(np.uint32(np.uint32(np.uint32(bits + np.uint32(0x7FFF)) + odd) >> np.uint32(16)))
    return word if x == x else np.uint16(0x7FC0)


def bf16(x):
    """The nearest bfloat16 as a float32."""
    bits = np.uint32(float_int(x))
    odd = np.uint32(np.uint32(bits >> np.uint32(16)) & np.uint32(1))
    near = np.uint32(np.uint32(np.uint32(bits + np.uint32(0x7FFF)) + odd) & np.uint32(0xFFFF0000))
    return int_float(np.int32(near)) if x == x else x


def _multiply_add() -> Any:
    """a * b + c of float32, rounded once where the machine has an instruction for it."""
    intrinsic: Any = import_module("numba.extending").intrinsic
    types: Any = import_module("numba.types")
    ir: Any = import_module("llvmlite.ir")

    def multiply_add(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            single = ir.FloatType()
            kind = ir.FunctionType(single, [single] * 3)
            return builder.call(builder.module.declare_intrinsic("llvm.fmuladd", [single], kind), args)

        return types.float32(types.float32, types.float32, types.float32), codegen

    return intrinsic(multiply_add)


def row_functions(jit: Callable[[Any], Any]) -> dict[str, Any]:
    """The functions by name, compiled by ``jit``."""
    names: dict[str, Any] = {
        "np": np, "int_float": jit(_int_float), "float_int": jit(_float_int), "multiply_add": _multiply_add(),
    }  # fmt: skip
    forms = (exp32, order_key, order_value, lowest_key, larger_key, bf16_word, bf16)
    return {f.__name__: jit(FunctionType(f.__code__, names, f.__name__)) for f in forms}
