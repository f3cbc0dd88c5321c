"""Forms that LLVM vectorises, for loops on the CPU.

``exp32`` has no branch and no table (Cephes' polynomial on [-ln 2 / 2, ln 2 / 2], scaled in two steps so that the
smallest results are rounded once); within 1 unit in the last place of float32. None of its steps changes its meaning
where LLVM may take sums and products in another order, as in kernels of rows. ``order_key`` maps float32 to integers
in the order in which `maximum` has them, NaN above all: a maximum of integers may be reduced in any order, the
`maximum` of floats may not. ``exp_near`` (``exp`` in all other loops), ``tanh32`` and ``erf32`` have no branch either
and are computed in float64, so that little but the last rounding is left of their errors: within 0.51 units in the
last place. ``exp_half``, half of that work, is within 0.69 units: for formulas whose own roundings are larger.
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
multiply_add64: Any = None
long_double: Any = None
double_long: Any = None


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
    return scaled_exp(x, p, t)


def exp_half(x):
    """e ** x of a float32 as a part of a formula: in float32, the sum's last bits carried along."""
    y = np.float32(-104.0) if x < np.float32(-104.0) else x
    y = np.float32(89.0) if y > np.float32(89.0) else y
    t = multiply_add(y, np.float32(1.44269504), np.float32(12582912.0))
    n = t - np.float32(12582912.0)
    most = multiply_add(n, np.float32(-0.693359375), y)
    r = multiply_add(n, np.float32(2.12194440e-4), most)
    lost = multiply_add(n, np.float32(2.12194440e-4), most - r)
    p = multiply_add(np.float32(1.9875691500e-4), r, np.float32(1.3981999507e-3))
    p = multiply_add(p, r, np.float32(8.3334519073e-3))
    p = multiply_add(p, r, np.float32(4.1665795894e-2))
    p = multiply_add(p, r, np.float32(1.6666665459e-1))
    p = multiply_add(p, r, np.float32(5.0000001201e-1))
    whole = np.float32(1.0) + r
    lost = lost + (r - (whole - np.float32(1.0)))
    return scaled_exp(x, whole + multiply_add(p, r * r, lost), t)


def scaled_exp(x, p, t):
    """p * 2 ** k, where the last bits of ``t`` are k; ``x`` where it is NaN."""
    k = np.int32(float_int(t) - np.int32(0x4B400000))
    # In two steps, the first one in the exponent's bits: neither overflows where the result does not.
    half = np.int32(k >> np.int32(1))
    scaled = int_float(np.int32(float_int(p) + np.int32(half << np.int32(23))))
    out = scaled * int_float(np.int32(np.int32(np.int32(k - half) + np.int32(127)) << np.int32(23)))
    return out if x == x else x


def little_expm1(r):
    """e ** r - 1 of a float64 in [-ln 2 / 2, ln 2 / 2], to 2**-31 of itself: a polynomial."""
    p = multiply_add64(0.0001989927395864936, r, 0.0013941108433972674)
    p = multiply_add64(p, r, 0.008333298483754886)
    p = multiply_add64(p, r, 0.04166635289677516)
    p = multiply_add64(p, r, 0.16666666718997508)
    p = multiply_add64(p, r, 0.5000000047117757)
    return multiply_add64(p, r, 1.0) * r


def expm1_64(x):
    """e ** x - 1 of a float64 of -700 to 700, to 2**-31 of itself: that of a small number, scaled."""
    # Adding 1.5 * 2**52 rounds to an integer, which then stands in the last bits.
    t = multiply_add64(x, 1.4426950408889634, 6755399441055744.0)
    p = little_expm1(multiply_add64(t - 6755399441055744.0, -0.6931471805599453, x))
    scale = long_double(np.int64(np.int64(double_long(t) + np.int64(1023)) << np.int64(52)))
    return multiply_add64(scale, p, scale - 1.0)


def exp_near(x):
    """e ** x of a float32, computed in float64: rounded once, in loops of any kind."""
    a = np.float64(x)
    a = -104.0 if a < -104.0 else a  # where it rounds to 0
    a = 89.0 if a > 89.0 else a  # where it is infinite
    t = multiply_add64(a, 1.4426950408889634, 6755399441055744.0)
    r = multiply_add64(t - 6755399441055744.0, -0.6931471805599453, a)
    scale = long_double(np.int64(np.int64(double_long(t) + np.int64(1023)) << np.int64(52)))
    out = np.float32(multiply_add64(scale, little_expm1(r), scale))
    return out if x == x else x


def tanh32(x):
    """The hyperbolic tangent of a float32: m / (m + 2) with m = e ** 2x - 1."""
    a = np.float64(x)
    a = -a if a < 0.0 else a
    a = 20.0 if a > 20.0 else a
    m = expm1_64(2.0 * a)
    size = np.int32(float_int(np.float32(m / (m + 2.0))) & np.int32(0x7FFFFFFF))
    out = int_float(np.int32(size | np.int32(float_int(x) & np.int32(-2147483648))))
    return out if x == x else x


def erf32(x):
    """The error function of a float32: 1 - e ** (-a Q(a)), Q fitted to -log(erfc(a)) / a on [0, 4]."""
    a = np.float64(x)
    a = -a if a < 0.0 else a
    a = 4.0 if a > 4.0 else a  # where it rounds to 1
    q = multiply_add64(4.1004172059591293e-10, a, -1.2811166902292478e-08)
    q = multiply_add64(q, a, 1.8003055300482052e-07)
    q = multiply_add64(q, a, -1.4909247677963502e-06)
    q = multiply_add64(q, a, 7.925879264335316e-06)
    q = multiply_add64(q, a, -2.6738276977972493e-05)
    q = multiply_add64(q, a, 4.467989534449496e-05)
    q = multiply_add64(q, a, 6.277332115147595e-05)
    q = multiply_add64(q, a, -0.0006306503475312804)
    q = multiply_add64(q, a, 0.0017247165325076192)
    q = multiply_add64(q, a, -0.00022188218110528183)
    q = multiply_add64(q, a, -0.019125100125835556)
    q = multiply_add64(q, a, 0.10277214483397616)
    q = multiply_add64(q, a, 0.636619797033992)
    q = multiply_add64(q, a, 1.1283791668760728)
    size = np.int32(float_int(np.float32(-expm1_64(-a * q))) & np.int32(0x7FFFFFFF))
    out = int_float(np.int32(size | np.int32(float_int(x) & np.int32(-2147483648))))
    return out if x == x else x


def order_key(x):
    """An integer for a float32, larger for what `maximum` prefers."""
    bits = float_int(x)
    size = np.int32(bits & np.int32(0x7FFFFFFF))
    key = np.int32(bits ^ np.int32((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))
    return key if size <= np.int32(0x7F800000) else np.int32(0x7FFFFFFF)


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


def _long_double(bits):
    return np.int64(bits).view(np.float64)


def _double_long(x):
    return np.float64(x).view(np.int64)


def _multiply_add(bits: int) -> Any:
    """a * b + c of float32 or float64, rounded once where the machine has an instruction for it."""
    intrinsic: Any = import_module("numba.extending").intrinsic
    types: Any = import_module("numba.types")
    ir: Any = import_module("llvmlite.ir")

    def multiply_add(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            number = ir.FloatType() if bits == 32 else ir.DoubleType()
            kind = ir.FunctionType(number, [number] * 3)
            return builder.call(builder.module.declare_intrinsic("llvm.fmuladd", [number], kind), args)

        number = types.float32 if bits == 32 else types.float64
        return number(number, number, number), codegen

    return intrinsic(multiply_add)


def hidden() -> Any:
    """The same int64, of which LLVM knows only that it is not larger (an empty instruction makes it)."""
    intrinsic: Any = import_module("numba.extending").intrinsic
    types: Any = import_module("numba.types")
    ir: Any = import_module("llvmlite.ir")

    def count(typingctx: Any, n: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            number = ir.IntType(64)
            made = builder.call(ir.InlineAsm(ir.FunctionType(number, [number]), "", "=r,0"), args)
            return builder.select(builder.icmp_signed("<", made, args[0]), made, args[0])

        return types.int64(types.int64), codegen

    return intrinsic(count)


def row_functions(jit: Callable[[Any], Any]) -> dict[str, Any]:
    """The functions by name, compiled by ``jit``."""
    names: dict[str, Any] = {
        "np": np, "int_float": jit(_int_float), "float_int": jit(_float_int), "multiply_add": _multiply_add(32),
        "long_double": jit(_long_double), "double_long": jit(_double_long), "multiply_add64": _multiply_add(64),
    }  # fmt: skip
    names["scaled_exp"] = jit(FunctionType(scaled_exp.__code__, names, "scaled_exp"))
    names["little_expm1"] = jit(FunctionType(little_expm1.__code__, names, "little_expm1"))
    names["expm1_64"] = jit(FunctionType(expm1_64.__code__, names, "expm1_64"))
    forms = (
        exp32,
        exp_near,
        exp_half,
        tanh32,
        erf32,
        order_key,
        order_value,
        bf16_word,
        bf16,
    )
    return {f.__name__: jit(FunctionType(f.__code__, names, f.__name__)) for f in forms}


def by_width(narrow: Any, wide: Any) -> Any:
    """A function for kernels: ``narrow`` of a float32, ``wide`` of any other number."""
    overload: Any = import_module("numba.extending").overload
    single: Any = import_module("numba.types").float32

    def chosen(x: Any) -> Any:
        raise NotImplementedError  # compiled kernels have one of the two in its place

    def of_single(x: Any) -> Any:
        return narrow(x)

    def of_others(x: Any) -> Any:
        return wide(x)

    def by_type(x: Any) -> Any:
        return of_single if x == single else of_others

    overload(chosen)(by_type)
    return chosen
