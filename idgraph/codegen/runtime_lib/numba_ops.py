"""The functions that formulas name, for numba: plain Python that both its compilers (CPU and CUDA) accept.

Integers are int64. ``float_bits`` and ``bits_float`` are supplied by each target, as are conversions and ``math``.
"""

# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUndefinedVariable=false
# pyright: reportUnknownLambdaType=false
# ruff: noqa: F821
# The names a target supplies (f32, i64, floor, ...) are globals that `rebound` gives these functions.

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import numpy as np


def div(a, b):
    return a / b


def inverse(a):
    return f32(1.0) / a


def sign(a):
    return i64(a > 0) - i64(a < 0)


def maximum(a, b):
    return a if a != a or a >= b else b


def minimum(a, b):
    return a if a != a or a <= b else b


def logical_not(a):
    return not a


def logical_and(a, b):
    return a and b


def logical_or(a, b):
    return a or b


def int_floor_divide(a, b):
    if b == -1:  # numba has 0 for the least integer, whose quotient wraps to itself
        return -a
    return a // b if b != 0 else 0


def int_remainder(a, b):
    return a % b if b != 0 else 0


def int_fmod(a, b):
    rest = a % b if b != 0 else 0  # the least integer has no absolute value
    return rest - b if rest != 0 and (rest < 0) != (a < 0) else rest


def int_power(a, b):
    if b < 0:
        return (1 if b % 2 == 0 else a) if a == 1 or a == -1 else 0
    out = 1
    while b > 0:
        if b & 1 != 0:
            out = out * a
        a = a * a
        b = b >> 1
    return out


def remainder(a, b):
    rest = fmod(a, b)
    return rest + b if rest != 0 and (b < 0) != (rest < 0) else rest


def logistic_of(e):
    return f32(1.0) / (f32(1.0) + e)


def short_div(a, b):
    return a / b


def short_sqrt(a):
    return sqrt(a)


def short_rsqrt(a):
    return f32(1.0) / sqrt(a)


def one_plus_erf(a):
    return f32(1.0) + erf(a)


def one_minus_erf(a):
    return f32(1.0) - erf(a)


def log1p_exp(a):
    return log1p(exp(a))


def tanh_log1p(a):
    return tanh(log1p(a))


def near_expm1(a):
    return expm1(a)


def near_tanh(a):
    return tanh(a)


def exp_inside(a):
    return exp(a)


def fast_exp_sub(a, b):
    return exp(a - b)


def div_by(a, b, inverse):
    return div(a, b)


def logaddexp(a, b):
    top = maximum(a, b)
    return top if abs(top) == inf else top + log1p(exp(minimum(a, b) - top))


def near_logaddexp(a, b):
    top = maximum(a, b)
    return top if abs(top) == inf else top + f64(log1p(exp(f32(minimum(a, b) - top))))


def floor_divide(a, b):
    if b == 0:
        return a / b
    rest = fmod(a, b)
    quotient = (a - rest) / b
    if rest != 0 and (b < 0) != (rest < 0):
        quotient = quotient - 1
    if quotient == 0:
        return a / b * 0  # the zero with the quotient's sign
    below = floor(quotient)
    return below + 1 if quotient - below > 0.5 else below


def floor_divide_32(a, b):
    return floor_divide(a, b)


def u8(x):
    return i64(np.uint8(x))


def int8(x):
    return i64(np.int8(x))


def int16(x):
    return i64(np.int16(x))


def i32(x):
    return i64(np.int32(x))


def toint(x):
    return i64(x)


def near_int(x):
    return i64(np.int32(x))


def bf16_word(x):
    bits = i64(float_bits(x))
    if x != x:
        return np.uint16(0x7FC0)
    return np.uint16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)


def bf16_load(word):
    return bits_float(np.uint32(np.uint32(word) << np.uint32(16)))


def bf16(x):
    return bf16_load(bf16_word(x))


def f16_word(x):
    """The 16 bits of the nearest float16: halves to even, subnormals kept."""
    bits = i64(float_bits(x))
    sign = (bits >> 16) & 0x8000
    size = bits & 0x7FFFFFFF
    if size > 0x7F800000:
        return np.uint16(sign | 0x7E00)
    if size >= 0x477FF000:
        return np.uint16(sign | 0x7C00)
    if size <= 0x33000000:
        return np.uint16(sign)
    if size < 0x38800000:
        # Units of 2**-24: the mantissa with its hidden bit, shifted right with rounding.
        shift = 126 - (size >> 23)
        whole = (size & 0x7FFFFF) | 0x800000
        out = whole >> shift
        rest = whole & ((1 << shift) - 1)
        half = 1 << (shift - 1)
        if rest > half or (rest == half and out & 1 != 0):
            out = out + 1
        return np.uint16(sign | out)
    return np.uint16(sign | ((size + 0xFFF + ((size >> 13) & 1) - 0x38000000) >> 13))


def f16_load(word):
    bits = i64(word)
    sign = (bits & 0x8000) << 16
    exponent = (bits >> 10) & 31
    rest = bits & 0x3FF
    if exponent == 0:
        small = f32(rest) * f32(5.9604644775390625e-08)
        return -small if sign != 0 else small
    if exponent == 31:
        return bits_float(np.uint32(sign | 0x7F800000 | (rest << 13)))
    return bits_float(np.uint32(sign | ((exponent + 112) << 23) | (rest << 13)))


def f16(x):
    return f16_load(f16_word(x))


FUNCTIONS = tuple(f for f in list(globals().values()) if isinstance(f, FunctionType))


def rebound(base: Mapping[str, Any], jit: Callable[[Any], Any]) -> dict[str, Any]:
    """``base`` and all functions above that it lacks, compiled by ``jit``, each seeing the others under their names."""
    names: dict[str, Any] = {"np": np, **base}
    for f in FUNCTIONS:
        if f.__name__ not in base:
            made = FunctionType(f.__code__, names, f.__name__)
            names[f.__name__] = jit(made)
    return names
