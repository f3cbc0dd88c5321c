"""The functions that formulas name, for Python numbers: IEEE results, never an exception, no warning.

float32, float16 and bfloat16 values are Python floats on that type's grid.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from typing import Any

inf, nan = math.inf, math.nan


def f64(x: float) -> float:
    """Nearest float64."""
    return float(x)


def f32(x: float) -> float:
    """Nearest float32, halves to even; too large becomes infinite.

    >>> f32(0.1) == 0.1, f32(1e39)
    (False, inf)
    """
    return ctypes.c_float(x).value


def f16(x: float) -> float:
    """Nearest float16 of the nearest float32: a product with a float32 number has more bits than that.

    >>> f16(0.00013965 * f32(0.7)), f16(1e6)
    (9.775161743164062e-05, inf)
    """
    try:
        return struct.unpack("<e", struct.pack("<e", f32(x)))[0]
    except OverflowError:
        return math.copysign(inf, x)


def bf16_word(x: float) -> int:
    """The 16 bits of the nearest bfloat16 of a float32."""
    if x != x:
        return 0x7FC0
    bits = struct.unpack("<I", struct.pack("<f", f32(x)))[0]
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def bf16_load(word: int) -> float:
    """The value of 16 bits as bfloat16."""
    return struct.unpack("<f", struct.pack("<I", word << 16))[0]


def bf16(x: float) -> float:
    """Nearest bfloat16 of a float32.

    >>> bf16(1.00390625), bf16(1.01171875)
    (1.0, 1.015625)
    """
    return bf16_load(bf16_word(x))


def _wrap(bits: int, signed: bool) -> Callable[[int], int]:
    size, half = 1 << bits, (1 << (bits - 1)) if signed else 0

    def wrap(x: int) -> int:
        return (int(x) + half) % size - half

    wrap.__doc__ = f"Two's complement in {bits} bits{'' if signed else ', unsigned'}."
    return wrap


u8, int8, int16, i32, i64 = _wrap(8, False), _wrap(8, True), _wrap(16, True), _wrap(32, True), _wrap(64, True)
u32 = _wrap(32, False)


def wrapped(a: int, n: int) -> int:
    """``a % n`` for ``a`` below ``2 * n``.

    >>> wrapped(5, 7), wrapped(12, 7)
    (5, 5)
    """
    return a - n if a >= n else a


def bits_xor(a: int, b: int) -> int:
    """The bits that one of the two has and the other has not.

    >>> bits_xor(5, 3)
    6
    """
    return a ^ b


def u64(x: int) -> int:
    """An address: itself."""
    return x


def toint(x: float) -> int:
    """Truncation toward zero; a value out of the 64-bit range becomes the smallest integer, as on processors."""
    return int(x) if -9223372036854775808.0 <= x < 9223372036854775808.0 else -(2**63)


def near_int(x: float) -> int:
    """Truncation toward zero of a number of 32 bits; 0 of NaN."""
    return 0 if x != x else int(x)


def div(a: float, b: float) -> float:
    """IEEE division."""
    if b == 0:
        return nan if a == 0 or a != a else math.copysign(inf, a) * math.copysign(1.0, b)
    return a / b


def sign(a: float) -> int:
    """-1, 0 or 1; 0 for NaN, as in torch."""
    return int(a > 0) - int(a < 0)


def maximum(a: Any, b: Any) -> Any:
    """The larger; NaN wins."""
    return a if a != a or a >= b else b


def minimum(a: Any, b: Any) -> Any:
    """The smaller; NaN wins."""
    return a if a != a or a <= b else b


def logical_not(a: bool) -> bool:
    """Not a."""
    return not a


def logical_and(a: bool, b: bool) -> bool:
    """Both."""
    return a and b


def logical_or(a: bool, b: bool) -> bool:
    """Either."""
    return a or b


def inverse(a: float) -> float:
    """1 / a; on a GPU one instruction, off by one unit in the last place."""
    return div(1.0, a)


def logistic_of(e: float) -> float:
    """1 / (1 + e) of e at least 0, which e ** -x makes the logistic function of x; on a GPU as `inverse`."""
    return div(1.0, 1.0 + e)


def int_floor_divide(a: int, b: int) -> int:
    """The quotient rounded down; 0 for a zero divisor."""
    return a // b if b != 0 else 0


def int_remainder(a: int, b: int) -> int:
    """The remainder with the sign of b; 0 for a zero divisor."""
    return a % b if b != 0 else 0


def int_fmod(a: int, b: int) -> int:
    """The remainder with the sign of a; 0 for a zero divisor."""
    rest = abs(a) % abs(b) if b != 0 else 0
    return -rest if a < 0 else rest


def int_power(a: int, b: int) -> int:
    """a ** b modulo 2**64; for b < 0, 1 / a**-b truncated."""
    if b < 0:
        return 1 if a == 1 else (1 if b % 2 == 0 else -1) if a == -1 else 0
    return pow(a, b, 1 << 64)


def _rounding_to_float(f: Callable[[float], int]) -> Callable[[float], float]:
    def g(x: float) -> float:
        # From 2**52 on every float is whole; the sign of zero stays.
        return math.copysign(float(f(x)), x) if abs(x) < 4503599627370496.0 else x

    g.__doc__ = f"{getattr(f, '__name__', 'round')} as a float."
    return g


floor, ceil, trunc, rint = (
    _rounding_to_float(math.floor),
    _rounding_to_float(math.ceil),
    _rounding_to_float(int),
    _rounding_to_float(round),
)


def fmod(a: float, b: float) -> float:
    """The remainder with the sign of a."""
    return nan if b == 0 or math.isinf(a) or a != a or b != b else math.fmod(a, b)


def remainder(a: float, b: float) -> float:
    """The remainder with the sign of b."""
    rest = fmod(a, b)
    return rest + b if rest != 0 and (b < 0) != (rest < 0) else rest


def floor_divide(a: float, b: float) -> float:
    """floor of the exact quotient."""
    if b == 0:
        return div(a, b)
    rest = fmod(a, b)
    quotient = (a - rest) / b - (1.0 if rest != 0 and (b < 0) != (rest < 0) else 0.0)
    if quotient == 0:
        return math.copysign(0.0, a / b)
    below = floor(quotient)
    return below + 1.0 if quotient - below > 0.5 else below


def floor_divide_32(a: float, b: float) -> float:
    """floor of the quotient of two float32, each step rounded to one, as torch has it.

    >>> floor_divide_32(1e10, -88.0), floor_divide(1e10, -88.0)
    (-113636360.0, -113636364.0)
    """
    if b == 0:
        return div(a, b)
    rest = fmod(a, b)
    quotient = f32(f32(a - rest) / b)
    quotient = f32(quotient - 1.0) if rest != 0 and (b < 0) != (rest < 0) else quotient
    if quotient == 0:
        return math.copysign(0.0, a / b)
    below = floor(quotient)
    return below + 1.0 if quotient - below > 0.5 else below


def _without_exceptions(f: Callable[[float], float]) -> Callable[[float], float]:
    """``f`` with infinity and NaN where ``math`` raises."""

    def g(x: float) -> float:
        try:
            return f(x)
        except OverflowError:
            return inf
        except ValueError:
            return nan

    g.__doc__ = getattr(f, "__doc__", None)
    return g


exp, exp2, expm1 = _without_exceptions(math.exp), _without_exceptions(math.exp2), _without_exceptions(math.expm1)
fast_exp = short_exp = exp  # on a GPU one instruction, off by up to 2**-17
exp_inside = exp  # on a CPU in float32 alone
log, log2, log10 = (
    _without_exceptions(lambda x: math.log(x) if x != 0 else -inf),
    _without_exceptions(lambda x: math.log2(x) if x != 0 else -inf),
    _without_exceptions(lambda x: math.log10(x) if x != 0 else -inf),
)
log1p = _without_exceptions(lambda x: math.log1p(x) if x != -1 else -inf)
sqrt, sin, cos, tan = (
    _without_exceptions(math.sqrt),
    _without_exceptions(math.sin),
    _without_exceptions(math.cos),
    _without_exceptions(math.tan),
)


short_div, short_sqrt = div, sqrt  # on a GPU off by two units in the last place, and by one


def short_rsqrt(a: float) -> float:
    """1 / sqrt(a); on a GPU off by two units in the last place."""
    return div(1.0, sqrt(a))


def fast_exp_sub(a: float, b: float) -> float:
    """e ** (a - b)."""
    return exp(f32(a - b))


def div_by(a: float, b: float, inverse: float) -> float:
    """a / b; a GPU takes it by the reciprocal of b."""
    return div(a, b)


def is_quotient(a: float, b: float, inverse: float) -> bool:
    """Whether `near_quotient` is a / b; a GPU has more such numbers."""
    return abs(a) < 2.0**20 and 2.0**-40 <= abs(b) < 2.0**40 and not 0 < abs(div(a, b)) < 2.0**-126


def near_quotient(a: float, b: float, inverse: float) -> float:
    """a / b where `is_quotient` says so; NaN elsewhere, so that a kernel that takes it there is found out."""
    return div(a, b) if is_quotient(a, b, inverse) else nan


def logaddexp(a: float, b: float) -> float:
    """log(e ** a + e ** b); of two infinities of one sign that one, NaN of NaN."""
    top = maximum(a, b)
    return top if abs(top) == inf else top + log1p(exp(minimum(a, b) - top))


near_logaddexp = logaddexp  # compiled: what the larger value grows by in float32
tanh, erf, atan2, one_minus_erf = math.tanh, math.erf, math.atan2, math.erfc
near_expm1, near_tanh = expm1, tanh  # on a GPU by their series near 0, else by the instruction of powers of two


def one_plus_erf(a: float) -> float:
    """1 + erf(a), which is erfc(-a); on a GPU by a polynomial."""
    return math.erfc(-a)


def log1p_exp(a: float) -> float:
    """log(1 + e ** a)."""
    return log1p(exp(-abs(a))) + max(a, 0.0) if a == a else a


def tanh_log1p(a: float) -> float:
    """tanh(log(1 + a)) of a at least 0; on a GPU by a quotient."""
    return tanh(log1p(a))


def power(a: float, b: float) -> float:
    """IEEE pow."""
    try:
        return math.pow(a, b)
    except OverflowError:
        return -inf if a < 0 and b % 2 == 1 else inf
    except ValueError:
        if a != 0:
            return nan
        return math.copysign(inf, a) if b % 2 == 1 else inf
