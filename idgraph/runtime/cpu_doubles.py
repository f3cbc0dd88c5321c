"""Functions of float64 for loops on the CPU, without a branch: exp, expm1, log, log1p.

A library's function is a call for each element; LLVM makes vectors of loops over these. Errors in units in the last
place, against 80-bit floats at 4 million places: exp 0.65 (subnormal results 0.76), expm1 1.28, log 0.79, log1p 0.81;
torch's are 0.53, 1.00, 0.75 and 1.00. The logarithm is that of fdlibm (Sun Microsystems, 1993, e_log.c), with the same
constants.

The names that these functions have in common with `idgraph.runtime.cpu_math` are globals that `row_functions` gives
them.
"""

# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUndefinedVariable=false
# ruff: noqa: F821

from __future__ import annotations

from math import factorial
from typing import Final

import numpy as np

POLYNOMIALS: Final[dict[str, tuple[float, ...]]] = {
    # (e ** r - 1 - r) / r ** 2 of -ln 2 / 2 to ln 2 / 2: e ** r to 2**-57
    "exp_rest": tuple(1.0 / factorial(n) for n in range(13, 1, -1)),
    # (log((1 + s) / (1 - s)) / s - 2) / w of w = s * s
    "log_more": (
        1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
        2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01,
    ),
}  # fmt: skip
"""Coefficients by name, that of the highest power first."""


def reduced(x):
    """(r, q, k) of a float64: r is x less k * ln 2, and q is e ** r - 1 - r, with what r has lost."""
    t = multiply_add64(x, 1.4426950408889634, 6755399441055744.0)
    n = t - 6755399441055744.0
    # The first part of ln 2 ends in zeros, so that its product is exact.
    most = multiply_add64(n, -6.93147180369123816490e-01, x)
    r = multiply_add64(n, -1.90821492927058770002e-10, most)
    lost = multiply_add64(n, -1.90821492927058770002e-10, most - r)
    return r, multiply_add64(r * r, exp_rest(r), lost), np.int64(double_long(t) - np.int64(0x4338000000000000))


def power_of_two(k):
    """2 ** k of an int64 from -1022 to 1023."""
    return long_double(np.int64(np.int64(k + np.int64(1023)) << np.int64(52)))


def exp_double(x):
    """e ** x."""
    a = -746.0 if x < -746.0 else x  # where it rounds to 0
    a = 710.0 if a > 710.0 else a  # where it is infinite
    r, q, k = reduced(a)
    half = np.int64(k >> np.int64(1))  # in two steps, of which neither overflows where the result does not
    whole = 1.0 + r
    p = whole + (q + (r - (whole - 1.0)))
    out = p * power_of_two(half) * power_of_two(np.int64(k - half))
    return out if x == x else x


def expm1_double(x):
    """e ** x - 1."""
    a = -40.0 if x < -40.0 else x  # where it rounds to -1
    a = 710.0 if a > 710.0 else a  # where it is infinite
    r, q, k = reduced(a)
    half = power_of_two(np.int64(k - np.int64(1)))
    out = multiply_add64(half, q, multiply_add64(half, r, half - 0.5)) * 2.0
    return x if x == 0.0 or x != x else out


def log_parts(x, lost):
    """The logarithm of a positive float64 that is not infinite, and ``lost``, which is less than a last place of it."""
    small = x < 2.2250738585072014e-308
    bits = double_long(x * 18014398509481984.0 if small else x)  # 2**54
    shifted = np.int64(bits + np.int64(0x00095F6198000000))  # a number of sqrt(1/2) to sqrt(2) has the exponent 0
    rest = np.int64(np.int64(shifted & np.int64(0x000FFFFFFFFFFFFF)) + np.int64(0x3FE6A09E68000000))
    # 1.5 * 2**52 + the exponent in its bits, and 1023 less.
    power = long_double(np.int64(np.int64(shifted >> np.int64(52)) | np.int64(0x4338000000000000))) - 6755399441056767.0
    power = power - 54.0 if small else power
    f = long_double(rest) - 1.0
    s = f / (2.0 + f)
    w = s * s
    square = 0.5 * f * f
    more = multiply_add64(s, square + w * log_more(w), multiply_add64(power, 1.90821492927058770002e-10, lost))
    return multiply_add64(power, 6.93147180369123816490e-01, -((square - more) - f))


def log_double(x):
    """The natural logarithm."""
    out = log_parts(x, 0.0)
    out = out if x > 0.0 else np.nan
    out = -np.inf if x == 0.0 else out
    return x if x == np.inf else out


def log1p_double(x):
    """log(1 + x); what 1 + x has lost is added."""
    u = 1.0 + x
    lost = 1.0 - (u - x) if u >= 2.0 else x - (u - 1.0)
    out = log_parts(u, lost / u)
    out = out if x > -1.0 else np.nan
    out = -np.inf if x == -1.0 else out
    return x if x == 0.0 or x == np.inf else out


HELPERS: Final = (reduced, power_of_two, log_parts)  # of one another
FORMS: Final = (exp_double, expm1_double, log_double, log1p_double)
