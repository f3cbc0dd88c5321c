"""Functions of float64 for loops on the CPU, without a branch: exp, expm1, log, log1p, sin, cos, tan, tanh, erf, atan2.

A library's function is a call for each element; LLVM makes vectors of loops over these. Errors in units in the last
place, against 80-bit floats at 4 million places: exp 0.65 (subnormal results 0.76), expm1 1.28, log 0.79, log1p 0.81;
torch's are 0.53, 1.00, 0.75 and 1.00. At 1.3 million places: sin and cos 0.54, tan 0.54, tanh 0.56, atan2 0.74 (atan
0.56), and at 35 000, against mpmath, erf 0.68; torch's are 0.51, 0.51, 0.51, 0.75, 0.91 (0.67) and 0.72. The logarithm
is that of fdlibm (Sun Microsystems, 1993, e_log.c), with the same constants.

Angles from `FAR` on go to C's functions, without a branch in the loop (`idgraph.runtime.cpu.vector_abi`).

The names that these functions have in common with `idgraph.runtime.cpu.vector_math` are globals that `row_functions`
gives them.
"""

# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUndefinedVariable=false
# ruff: noqa: F821

from __future__ import annotations

from typing import Final

import numpy as np

EXP_LAST: Final = (
    2.09227177333647e-09, 2.5106079483102325e-08, 2.7557249166988094e-07, 2.75572542548696e-06, 2.480158735168147e-05,
    0.00019841269873922644, 0.0013888888888872425, 0.008333333333327825, 0.041666666666666685,
)  # fmt: skip
"""(e ** r - 1 - r - r ** 2 / 2 - r ** 3 / 6) / r ** 4."""
POLYNOMIALS: Final[dict[str, tuple[float, ...]]] = {
    # (e ** r - 1 - r) / r ** 2, and that less 1/2 over r, of -ln 2 / 2 to ln 2 / 2: e ** r to 2**-63
    "exp_rest": (*EXP_LAST, 0.16666666666666666, 0.5),
    "exp_more": (*EXP_LAST, 0.16666666666666666),
    # (sin(r) / r - 1 + z / 6) / z ** 2 and (cos(r) - 1 + z / 2) / z ** 2 of z = r * r, to pi / 4: to 2**-63 of both
    "sin_more": (
        -7.386213162749051e-13, 1.6054256748647656e-10, -2.5052070593041205e-08, 2.7557319073165624e-06,
        -0.00019841269840961838, 0.008333333333333042,
    ),
    "cos_more": (
        -1.13680287454735e-11, 2.0875898546003767e-09, -2.755731576268994e-07, 2.4801587294890273e-05,
        -0.0013888888888883876, 0.041666666666666664,
    ),
    # (log((1 + s) / (1 - s)) / s - 2) / w of w = s * s
    "log_more": (
        1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
        2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01,
    ),
    # (erf(a) / a - 2 / sqrt(pi)) / z + 3 / 8 of z = a * a, to 0.7: erf(a) to 2**-57 of itself
    "erf_near": (
        1.1851022781197143e-08, -1.6034834130295766e-07, 1.6440756472530622e-06, -1.4924788156493115e-05,
        0.0001205531054717674, -0.0008548326648062005, 0.0052239776215268225, -0.02686617064489345,
        0.11283791670954389, -0.001126389031837437,
    ),
    # (-log(erfc(a)) / a + log(erfc(1))) / s of s = a - 1, of a of 0.65 to 6: erf(a) to 2**-56 of itself
    "erf_far": (
        1.1293194151094389e-13, -2.4566992195219816e-12, 2.170209718606988e-11, -8.155053720415029e-11,
        -1.4364726104669027e-10, 3.5355264935384656e-09, -2.247949551500537e-08, 8.754973154679376e-08,
        -2.1202709883809348e-07, 1.0818486504283591e-07, 1.9105287033124093e-06, -1.1487689918354373e-05,
        3.862875610442728e-05, -6.489914790626595e-05, -0.00017242555337862033, 0.0021503285757487195,
        -0.012184154010466292, 0.05374525205695013, 0.7893620043015435,
    ),
    # (atan(t) / t - 1) / z of z = t * t, to 1/4: atan(t) to 2**-63 of itself
    "atan_more": (
        -0.039995912607382444, 0.05724741578535275, -0.0665550446707804, 0.07691826130846714, -0.09090896221825197,
        0.11111110902736532, -0.1428571428380152, 0.1999999999999138, -0.3333333333333332,
    ),
}  # fmt: skip
"""Coefficients by name, that of the highest power first: interpolated at Chebyshev's points, but for fdlibm's."""
FAR: Final = 2.0**43  # angles from which on C's functions are called


def reduce_ln2(x):
    """(r, lost, k) of a float64: r + lost is x less k * ln 2."""
    t = multiply_add64(x, 1.4426950408889634, 6755399441055744.0)
    n = t - 6755399441055744.0
    # The first part of ln 2 ends in zeros, so that its product is exact.
    most = multiply_add64(n, -6.93147180369123816490e-01, x)
    r = multiply_add64(n, -1.90821492927058770002e-10, most)
    lost = multiply_add64(n, -1.90821492927058770002e-10, most - r)
    return r, lost, np.int64(double_long(t) - np.int64(0x4338000000000000))


def reduced(x):
    """(r, q, k) of a float64: r is x less k * ln 2, and q is e ** r - 1 - r, with what r has lost."""
    r, lost, k = reduce_ln2(x)
    return r, multiply_add64(r * r, exp_rest(r), lost), k


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


def quarter_double(x):
    """(r, lost, t) of a float64: x less n quarter turns is r + lost, n the last bits of t.

    pi / 2 has 159 bits in three parts. The first product is exact where it is taken off, the second keeps what it has
    lost: below 2**43 the sum is right to 2**-60 of itself, of the numbers nearest to quarter turns too.
    """
    t = multiply_add64(x, 0.6366197723675814, 6755399441055744.0)
    n = t - 6755399441055744.0
    most = fused64(n, -1.5707963267948966, x)
    part = n * 6.123233995736766e-17
    r = most - part
    back = most - r
    lost = (most - (r + back)) + (back - part)
    return r, fused64(n, 1.4973849048591833e-33, lost - fused64(n, 6.123233995736766e-17, -part)), t


def sine_parts(r, lost):
    """The sine of r + lost, -0.79 to 0.79, as a number and what it lacks: r + r * z * P, both products with what they
    lose."""
    z = r * r
    more = multiply_add64(r + r, lost, fused64(r, r, -z))
    q = sin_more(z)
    p = multiply_add64(z, q, -0.16666666666666666)
    less = multiply_add64(z, q, -0.16666666666666666 - p)
    t = z * p
    less = multiply_add64(more, p, multiply_add64(z, less, fused64(z, p, -t)))
    w = t * r
    less = multiply_add64(less, r, multiply_add64(t, lost, fused64(t, r, -w)))
    sine = r + w
    less = ((r - sine) + w) + (lost + less)
    out = sine + less
    return out, (sine - out) + less


def cosine_parts(r, lost):
    """The cosine of r + lost, -0.79 to 0.79, as a number and what it lacks: 1 + z * P."""
    z = r * r
    more = multiply_add64(r + r, lost, fused64(r, r, -z))
    q = cos_more(z)
    p = multiply_add64(z, q, -0.5)
    less = multiply_add64(z, q, -0.5 - p)
    t = z * p
    less = multiply_add64(more, p, multiply_add64(z, less, fused64(z, p, -t)))
    cosine = 1.0 + t
    less = ((1.0 - cosine) + t) + less
    out = cosine + less
    return out, (cosine - out) + less


def sin_double(x):
    """The sine."""
    r, lost, t = quarter_double(x)
    bits = double_long(t)
    sine, _ = sine_parts(r, lost)
    cosine, _ = cosine_parts(r, lost)
    out = cosine if (bits & np.int64(1)) != 0 else sine
    out = -out if (bits & np.int64(2)) != 0 else out
    return far_sin(x, x if x == 0.0 else out)


def cos_double(x):
    """The cosine."""
    r, lost, t = quarter_double(x)
    bits = double_long(t)
    sine, _ = sine_parts(r, lost)
    cosine, _ = cosine_parts(r, lost)
    out = sine if (bits & np.int64(1)) != 0 else cosine
    return far_cos(x, -out if (np.int64(bits + np.int64(1)) & np.int64(2)) != 0 else out)


def tan_double(x):
    """The tangent."""
    r, lost, t = quarter_double(x)
    sine, less = sine_parts(r, lost)
    cosine, rest = cosine_parts(r, lost)
    odd = (double_long(t) & np.int64(1)) != 0
    top, above = (-cosine if odd else sine), (-rest if odd else less)
    low, below = (sine if odd else cosine), (less if odd else rest)
    return far_tan(x, x if x == 0.0 else parted(top, above, low, below))


def parted(top, above, low, below):
    """(top + above) / (low + below), the second parts less than a last place of the first."""
    inverse = 1.0 / low
    q = top * inverse
    return multiply_add64(fused64(-q, low, top) + multiply_add64(-q, below, above), inverse, q)


def signed(size, x):
    """A number with the sign of ``x``, and NaN where that is."""
    bits = np.int64(double_long(size) & np.int64(0x7FFFFFFFFFFFFFFF))
    out = long_double(np.int64(bits | np.int64(double_long(x) & np.int64(-0x8000000000000000))))
    return out if x == x else x


def expm1_parts(x):
    """e ** x - 1 of 0 to 44 as a number and what it lacks: 2 ** k - 1, then what e ** r - 1 has times 2 ** k."""
    r, lost, k = reduce_ln2(x)
    power = power_of_two(k)
    square = r * r
    rest = 0.5 * fused64(r, r, -square) + multiply_add64(r, lost, lost)
    rest = multiply_add64(square * r, exp_more(r), rest)
    base, part, half = power - 1.0, power * r, power * (0.5 * square)
    first = base + part
    second = first + half
    rest = multiply_add64(power, rest, ((base - first) + part) + ((first - second) + half))
    out = second + rest
    return out, (second - out) + rest


def tanh_double(x):
    """The hyperbolic tangent: m / (m + 2) of m = e ** 2x - 1."""
    a = abs(x)
    a = 22.0 if a > 22.0 else a  # where it rounds to 1
    m, less = expm1_parts(a + a)
    d = m + 2.0
    back = d - m
    return signed(parted(m, less, d, ((m - (d - back)) + (2.0 - back)) + less), x)


def erf_double(x):
    """The error function: a polynomial below 0.7, 1 - e ** -y above, where y is a * (Q(1) + s Q1(s)), s = a - 1."""
    a = abs(x)
    z = a * a
    near = multiply_add64(z, erf_near(z), 0.0033791670955125737)
    near = multiply_add64(z, -0.375, multiply_add64(fused64(a, a, -z), -0.28, near))
    part = 1.125 * a
    near = part + multiply_add64(a, near, fused64(1.125, a, -part))
    far = 6.0 if a > 6.0 else a  # where it rounds to 1
    s = far - 1.0
    most = far * 1.8496055099332482
    rest = multiply_add64(far, s * erf_far(s), fused64(far, 1.8496055099332482, -most))
    t = multiply_add64(most + rest, -1.4426950408889634, 6755399441055744.0)
    t = 6755399441055691.0 if t < 6755399441055691.0 else t  # 2**-53: what is smaller is 1 less it, too
    n = t - 6755399441055744.0
    r = multiply_add64(n, -6.93147180369123816490e-01, -most) - multiply_add64(n, 1.90821492927058770002e-10, rest)
    power = power_of_two(np.int64(double_long(t) - np.int64(0x4338000000000000)))
    out = multiply_add64(-power, multiply_add64(r * r, exp_rest(r), r), 1.0 - power)
    return signed(near if a < 0.7 else out, x)


def atan2_double(y, x):
    """The angle of the point (x, y): atan(c) + atan((q - c) / (1 + c q)) of a quotient q to 1, c of 0, 1/2 and 1."""
    a, b = abs(y), abs(x)
    low, top = (a if a < b else b), (b if a < b else a)
    endless = top == np.inf
    low = (1.0 if low == np.inf else 0.0) if endless else low
    top = 1.0 if endless or top == 0.0 else top
    scale = 7.888609052210118e-31 if top > 1e300 else 1.0  # 2**-100
    scale = 3.273390607896142e150 if top < 1e-150 else scale  # 2**500
    low, top = low * scale, top * scale
    some, all_ = low > 0.25 * top, low > 0.75 * top
    c = 1.0 if all_ else (0.5 if some else 0.0)
    high = 0.7853981633974483 if all_ else (0.4636476090008061 if some else 0.0)
    less = 3.061616997868383e-17 if all_ else (2.2698777452961687e-17 if some else 0.0)
    above, below = fused64(-c, top, low), fused64(c, low, top)
    lost = multiply_add64(c, low, top - below)
    q = above / below
    rest = multiply_add64(-q, lost, fused64(-q, below, above)) / below
    z = q * q
    rest = multiply_add64(q * z, atan_more(z), rest + less)
    # high + q + rest, and quarter turns less it.
    more = -1.0 if a > b else 1.0
    quarter = 1.5707963267948966 if a > b else 0.0
    least = 6.123233995736766e-17 if a > b else 0.0
    turned = double_long(x) < np.int64(0)
    more = -more if turned else more
    quarter = (1.5707963267948966 if a > b else 3.141592653589793) if turned else quarter
    least = (6.123233995736766e-17 if a > b else 1.2246467991473532e-16) if turned else least
    first = multiply_add64(more, high, quarter)
    gone = (quarter - first) + more * high
    second = first + more * q
    gone = gone + ((first - second) + more * q)
    out = second + (gone + multiply_add64(more, rest, least))
    out = signed(out, y)
    return out if x == x else x


HELPERS: Final = (
    reduce_ln2, reduced, power_of_two, log_parts, quarter_double, sine_parts, cosine_parts, parted, signed, expm1_parts,
)  # of one another  # fmt: skip
FORMS: Final = (
    exp_double, expm1_double, log_double, log1p_double, sin_double, cos_double, tan_double, tanh_double, erf_double,
    atan2_double,
)  # fmt: skip
