"""Functions of float32 for loops on the CPU, in float64, without a branch: logarithms, powers, sines, angles, `fmod`.

Each is computed in float64 to 2**-31 of its result or better and rounded once, so that the error is within 0.51 units
in the last place, subnormal results too; only `exp2_32` is computed in float32. What a function is at infinity, zero
and NaN is chosen at the end, so that LLVM makes vectors of the loops. No argument is too large: `sin`, `cos` and
`tan` have the bits of 2/pi that a number of that size needs, and `fmod` divides by multiples of the divisor first.

The names that these functions have in common with `idgraph.runtime.cpu.vector_math` are globals that `row_functions`
gives them.
"""

# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUndefinedVariable=false
# ruff: noqa: F821

from __future__ import annotations

from typing import Final

import numpy as np

POLYNOMIALS: Final[dict[str, tuple[float, ...]]] = {
    # (log((1 + s) / (1 - s)) / s - 2) / w of w = s * s, for numbers of sqrt(1/2) to sqrt(2): log to 2**-43 of itself
    "log_rest": (
        0.19362654945463584, 0.22191400766937835, 0.2857175453691263, 0.399999987973327, 0.666666666673751,
    ),
    # sin(pi / 2 * r) / r and (cos(pi / 2 * r) - 1) / z of z = r * r, r of -0.64 to 0.64: to 2**-34
    "sin_part": (
        0.00015679451549533108, -0.004680451558130827, 0.07969243598508752, -0.6459640877715285, 1.5707963267151601,
    ),
    "cos_part": (
        -2.4723977164013097e-05, 0.0009190894293102758, -0.020863455803378835, 0.2536695066238445, -1.2337005501257081,
    ),
    # (e ** r - 1) / r of -ln 2 / 2 to ln 2 / 2: to 2**-31
    "expm1_part": (
        0.0001989927395864936, 0.0013941108433972674, 0.008333298483754886, 0.04166635289677516, 0.16666666718997508,
        0.5000000047117757, 1.0,
    ),
    # log(1 + e) / e of 0 to 1: to 2**-30
    "log1p_part": (
        0.0020302319502704725, -0.013407483319998387, 0.0414781284255888, -0.08244163730072572, 0.12418427953634069,
        -0.1610568798199551, 0.19890746776092225, -0.24987270721513966, 0.3333255961335435, -0.4999998143325874,
        0.9999999992568023,
    ),
    # -log(erfc(a)) / a of 0 to 4
    "erf_part": (
        4.1004172059591293e-10, -1.2811166902292478e-08, 1.8003055300482052e-07, -1.4909247677963502e-06,
        7.925879264335316e-06, -2.6738276977972493e-05, 4.467989534449496e-05, 6.277332115147595e-05,
        -0.0006306503475312804, 0.0017247165325076192, -0.00022188218110528183, -0.019125100125835556,
        0.10277214483397616, 0.636619797033992, 1.1283791668760728,
    ),
    # (atan(q) / q - 1) / z of z = q * q, to 1: atan to 2**-34 of itself
    "atan_rest": (
        0.0005930437556338282, -0.004221657990914014, 0.014072923344657855, -0.029913111945460355,
        0.047294798621762196, -0.062463151941253015, 0.07586652833645502, -0.09073553118976117, 0.11109392308322179,
        -0.14285624891483523, 0.19999998154086215, -0.3333333332694414,
    ),
}  # fmt: skip
"""Coefficients by name, that of the highest power first: interpolated at Chebyshev's points."""


def log64(x):
    """The natural logarithm of a positive normal float64, to 2**-43 of itself."""
    # With this offset a number of sqrt(1/2) to sqrt(2) has the exponent 0.
    shifted = np.uint64(np.uint64(double_long(x)) + np.uint64(0x00095F6198000000))
    k = np.uint64(shifted >> np.uint64(52))
    rest = np.uint64(np.uint64(shifted & np.uint64(0x000FFFFFFFFFFFFF)) + np.uint64(0x3FE6A09E68000000))
    m = long_double(np.int64(rest))
    s = (m - 1.0) / (m + 1.0)
    w = s * s
    # 1.5 * 2**52 + k in its bits, and 1023 less.
    power = long_double(np.int64(k | np.uint64(0x4338000000000000))) - 6755399441056767.0
    return multiply_add64(power, 0.6931471805599453, multiply_add64(s * w, log_rest(w), s + s))


def log_of(x, unit):
    """The logarithm of a float32 times ``unit``."""
    out = np.float32(log64(np.float64(x)) * unit)
    out = out if x > np.float32(0.0) else np.float32(np.nan)
    out = np.float32(-np.inf) if x == np.float32(0.0) else out
    return x if x == np.float32(np.inf) else out


def log_32(x):
    """The natural logarithm of a float32."""
    return log_of(x, 1.0)


def log2_32(x):
    """The logarithm to base 2 of a float32."""
    return log_of(x, 1.4426950408889634)


def log10_32(x):
    """The logarithm to base 10 of a float32; a whole number of powers of ten."""
    return log_of(x, 0.4342944819032518)


def log1p_32(x):
    """log(1 + x) of a float32; what 1 + x has lost is added."""
    a = np.float64(x)
    u = 1.0 + a
    out = np.float32(log64(u) + (a - (u - 1.0)))
    out = out if x > np.float32(-1.0) else np.float32(np.nan)
    out = np.float32(-np.inf) if x == np.float32(-1.0) else out
    return x if x == np.float32(0.0) or x == np.float32(np.inf) else out


def exp2_32(x):
    """2 ** x of a float32, in float32."""
    y = np.float32(-151.0) if x < np.float32(-151.0) else x
    y = np.float32(129.0) if y > np.float32(129.0) else y
    t = y + np.float32(12582912.0)
    r = y - (t - np.float32(12582912.0))
    return scaled_exp(x, exp2_part(r), t)


def exp2_part(r):
    """2 ** r of a float32 of -1/2 to 1/2."""
    p = multiply_add(np.float32(0.0001545316314512069), r, np.float32(0.0013390863364671234))
    p = multiply_add(p, r, np.float32(0.009618082557277852))
    p = multiply_add(p, r, np.float32(0.05550357114219078))
    p = multiply_add(p, r, np.float32(0.24022650760568126))
    p = multiply_add(p, r, np.float32(0.6931471880262288))
    return multiply_add(p, r, np.float32(1.0))


def expm1_32(x):
    """e ** x - 1 of a float32."""
    a = np.float64(x)
    a = -40.0 if a < -40.0 else a  # where it rounds to -1
    a = 89.0 if a > 89.0 else a  # where it is infinite
    out = np.float32(expm1_64(a))
    return x if x == np.float32(0.0) or x != x else out


def power_32(x, y):
    """C's pow of float32."""
    a, b = np.float64(x), np.float64(y)
    size = abs(a)
    short = size if size > 1e-50 else 1e-50  # of 0 a number below all others
    t = log64(short) * b
    t = t if t > -110.0 else -110.0  # where it rounds to 0
    t = t if t < 90.0 else 90.0  # where it is infinite
    out = np.float32(exp_64(t))
    out = power_ends(np.float32(size), y, out)
    whole, half = np.floor(b), b * 0.5
    odd = whole == b and np.floor(half) != half
    negative = float_int(x) < np.int32(0)
    out = -out if negative and odd else out
    out = np.float32(np.nan) if x < np.float32(0.0) and size < np.inf and whole != b else out
    out = np.float32(np.nan) if x != x or y != y else out
    return np.float32(1.0) if y == np.float32(0.0) or x == np.float32(1.0) else out


def power_ends(size, y, out):
    """``out`` unless the number of that magnitude is 0, 1 or infinite, or ``y`` infinite."""
    infinite = np.float32(np.inf)
    grows = (size > np.float32(1.0)) == (y > np.float32(0.0))
    end = infinite if grows else np.float32(0.0)
    out = end if size == np.float32(0.0) or size == infinite or abs(y) == infinite else out
    return np.float32(1.0) if size == np.float32(1.0) else out


def quarter_turns(x):
    """The rest of a float32 angle after quarter turns, as a part of one, and their number plus 1.5 * 2**52.

    The number is rounded to 1/4 first, so that the rest is within 5/8.

    A number beyond 2**51 is a multiple of 2**28 quarters of the lowest bits that 2/pi gives it: the bits of 2/pi above
    them make whole turns and are left out. Three parts of 2/pi, of 29, 29 and 53 bits: the products of the first two
    with a float32 are exact, so that the rest is right to 2**-53 of itself after a cancellation, too.
    """
    a = np.float64(x)
    size = abs(a)
    most, more, least = 0.6366197727620602, -3.9447882200366324e-10, -3.260751408868143e-19
    most = -4.1197691230676625e-09 if size >= 2251799813685248.0 else most  # 2**51
    more = 2.27601007365953e-18 if size >= 2251799813685248.0 else more
    least = -5.811337864506167e-28 if size >= 2251799813685248.0 else least
    most = 7.166494903518363e-17 if size >= 1.5111572745182865e23 else most  # 2**77
    more = 7.696704866616005e-26 if size >= 1.5111572745182865e23 else more
    least = -2.57643177526412e-35 if size >= 1.5111572745182865e23 else least
    most = -5.434184101708317e-25 if size >= 1.0141204801825835e31 else most  # 2**103
    more = -6.035433011846991e-34 if size >= 1.0141204801825835e31 else more
    least = 1.1588713353428143e-43 if size >= 1.0141204801825835e31 else least
    first, second = a * most, a * more
    t = (first + second) + 6755399441055744.0
    rest = (first - (t - 6755399441055744.0)) + second
    return multiply_add64(a, least, rest), t


def sine_cosine(rest):
    """Sine and cosine of a part of a quarter turn, -0.64 to 0.64."""
    z = rest * rest
    return rest * sin_part(z), multiply_add64(z, cos_part(z), 1.0)


def sin_32(x):
    """The sine of a float32."""
    rest, t = quarter_turns(x)
    sine, cosine = sine_cosine(rest)
    bits = double_long(t)
    out = cosine if (bits & np.int64(1)) != 0 else sine
    out = -out if (bits & np.int64(2)) != 0 else out
    return x if x == np.float32(0.0) else np.float32(out)


def cos_32(x):
    """The cosine of a float32."""
    rest, t = quarter_turns(x)
    sine, cosine = sine_cosine(rest)
    bits = double_long(t)
    out = sine if (bits & np.int64(1)) != 0 else cosine
    return np.float32(-out if ((bits + np.int64(1)) & np.int64(2)) != 0 else out)


def tan_32(x):
    """The tangent of a float32."""
    rest, t = quarter_turns(x)
    sine, cosine = sine_cosine(rest)
    odd = (double_long(t) & np.int64(1)) != 0
    out = np.float32((-cosine if odd else sine) / (sine if odd else cosine))
    return x if x == np.float32(0.0) else out


def atan2_32(y, x):
    """The angle of the point (x, y) of float32."""
    a, b = abs(np.float64(y)), abs(np.float64(x))
    low, top = (a if a < b else b), (b if a < b else a)
    q = low / top
    q = 0.0 if top == 0.0 else q
    q = 1.0 if low == np.inf else q
    z = q * q
    r = multiply_add64(q * z, atan_rest(z), q)
    r = 1.5707963267948966 - r if a > b else r
    r = 3.141592653589793 - r if float_int(x) < np.int32(0) else r
    size = np.int32(float_int(np.float32(r)) & np.int32(0x7FFFFFFF))
    out = int_float(np.int32(size | np.int32(float_int(y) & np.int32(-2147483648))))
    return out if x == x and y == y else np.float32(np.nan)


def fmod_32(x, y):
    """The exact remainder of float32 with the sign of ``x``.

    Its quotient has up to 277 bits, of which each of six steps takes 51. What a step leaves is a float64 without
    rounding: the last bits of the product that is taken off are 2**-76 of what there was, and 2**-51 of it are left.
    """
    rest, b = abs(np.float64(x)), abs(np.float64(y))
    b = 1e60 if b > 1e60 else b  # what an infinite one leaves of x is x
    part = 1.0 / b
    rest = whole_less(whole_less(whole_less(rest, b, part), b, part), b, part)
    rest = whole_less(whole_less(whole_less(rest, b, part), b, part), b, part)
    rest = rest + b if rest < 0.0 else rest
    size = np.int32(float_int(np.float32(rest)) & np.int32(0x7FFFFFFF))
    out = int_float(np.int32(size | np.int32(float_int(x) & np.int32(-2147483648))))
    return out if y == y else y


def whole_less(rest, b, part):
    """``rest`` less a whole multiple of ``b``, the nearest but for rounding; ``part`` is the reciprocal of ``b``."""
    return fused64(-np.rint(rest * part), b, rest)


def remainder_32(x, y):
    """The exact remainder of float32 with the sign of ``y``."""
    rest = fmod_32(x, y)
    other = rest != np.float32(0.0) and (y < np.float32(0.0)) != (rest < np.float32(0.0))
    return np.float32(rest + y) if other else rest


def floor_divide_32(x, y):
    """floor of the exact quotient of float32."""
    rest = fmod_32(x, y)
    q = (x - rest) / y
    other = rest != np.float32(0.0) and (y < np.float32(0.0)) != (rest < np.float32(0.0))
    q = q - np.float32(1.0) if other else q
    below = np.floor(q)
    out = below + np.float32(1.0) if q - below > np.float32(0.5) else below
    out = x / y * np.float32(0.0) if q == np.float32(0.0) else out  # the zero with the quotient's sign
    return x / y if y == np.float32(0.0) else out


def sign_32(x):
    """-1, 0 or 1 of a float32; 0 of NaN."""
    below = np.float32(-1.0) if x < np.float32(0.0) else np.float32(0.0)
    return np.float32(1.0) if x > np.float32(0.0) else below


def one_plus_erf_32(x):
    """1 + erf(x) of a float32, which is erfc(-x): 2 ** (-a * erfc_part(a)) of a = abs(x), or that less than 2.

    In float32: of all of them above 0 within 1.13 units in the last place; of those of -6 to 0, where it is small,
    within 17.6 * (1 + x ** 2); below -6 it is less than 2**-55.
    """
    a = abs(x)
    s = np.float32(6.0) if a > np.float32(6.0) else a
    q = multiply_add(np.float32(6.311505984513133e-09), s, np.float32(-2.389190854046319e-07))
    q = multiply_add(q, s, np.float32(4.0138638723874465e-06))
    q = multiply_add(q, s, np.float32(-3.9352747990051284e-05))
    q = multiply_add(q, s, np.float32(0.0002475772926118225))
    q = multiply_add(q, s, np.float32(-0.0010148140136152506))
    q = multiply_add(q, s, np.float32(0.0024031519424170256))
    q = multiply_add(q, s, np.float32(-6.328573363134637e-05))
    q = multiply_add(q, s, np.float32(-0.02783365733921528))
    q = multiply_add(q, s, np.float32(0.1483796387910843))
    q = multiply_add(q, s, np.float32(0.9184249043464661))
    q = multiply_add(q, s, np.float32(0.0029087066650390625))
    y = -multiply_add(q, a, np.float32(1.625) * a)  # the larger part is exact but for its rounding
    y = np.float32(-127.0) if y < np.float32(-127.0) else y  # of which the power is 0
    t = y + np.float32(12582912.0)
    p = exp2_part(y - (t - np.float32(12582912.0)))
    e = p * int_float(np.int32(np.int32(float_int(t) << np.int32(23)) + np.int32(0x3F800000)))
    return e if x < np.float32(0.0) else np.float32(2.0) - e


def one_minus_erf_32(x):
    """1 - erf(x) of a float32."""
    return one_plus_erf_32(-x)


def log1p_exp_32(x):
    """log(1 + e ** x) of a float32: e ** -abs(x) times a polynomial of it, and x where that is positive."""
    a = -abs(np.float64(x))
    a = -104.0 if a < -104.0 else a  # where it rounds to 0
    e = exp_64(a)
    return np.float32(multiply_add64(e, log1p_part(e), np.float64(x) if x > np.float32(0.0) else 0.0))


HELPERS: Final = (exp2_part, log64, log_of, power_ends, quarter_turns, sine_cosine, whole_less)  # of one another
FORMS: Final = (
    log_32, log2_32, log10_32, log1p_32, exp2_32, expm1_32, power_32, sin_32, cos_32, tan_32, atan2_32, fmod_32,
    remainder_32, floor_divide_32, sign_32, one_plus_erf_32, one_minus_erf_32, log1p_exp_32,
)  # fmt: skip
