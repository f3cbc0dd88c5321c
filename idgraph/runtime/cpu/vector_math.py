"""Forms that LLVM vectorises, for loops on the CPU.

``exp32`` has no branch and no table (Cephes' polynomial on [-ln 2 / 2, ln 2 / 2], scaled in two steps so that the
smallest results are rounded once); within 1 unit in the last place of float32. None of its steps changes its meaning
where LLVM may take sums and products in another order, as in kernels of rows. ``exp_near`` (``exp`` in all other
loops), ``tanh32`` and ``erf32`` have no branch either and are computed in float64, so that little but the last rounding
is left of their errors: within 0.51 units in the last place. ``exp_half``, half of that work, is within 0.69 units: for
formulas whose own roundings are larger. `extremum` is for reductions, which may be taken in any order.
"""

# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import FunctionType
from typing import Any

import numpy as np

from idgraph.runtime.cpu import vector_math_f64 as cpu_doubles
from idgraph.runtime.cpu.vector_abi import range_guarded_call, short_pipeline
from idgraph.runtime.cpu.vector_math_f32 import FORMS, HELPERS, POLYNOMIALS

LAST = 2  # steps of a polynomial that are taken one by one

# Globals that `row_functions` gives its copies of the functions below.
int_float: Any = None
float_int: Any = None
multiply_add: Any = None
multiply_add64: Any = None
long_double: Any = None
expm1_part: Any = None
erf_part: Any = None
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
    """e ** x of a float32 as a part of a formula: in float32, the sum's last bits carried along.

    Below -86.9, where a number beside it hides it, it may be any number of 0 to 2**-125.
    """
    y = np.float32(-87.0) if x < np.float32(-87.0) else x
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
    p = whole + multiply_add(p, r * r, lost)
    # Half the power of two, whose exponent the last bits of t are: it is finite where the result is.
    half = int_float(np.int32(np.int32(float_int(t) << np.int32(23)) + np.int32(0x3F000000)))
    return (p + p) * half


def scaled_exp(x, p, t):
    """p * 2 ** k, where the last bits of ``t`` are k; ``x`` where it is NaN."""
    k = np.int32(float_int(t) - np.int32(0x4B400000))
    # In two steps, the first one in the exponent's bits: neither overflows where the result does not.
    half = np.int32(k >> np.int32(1))
    scaled = int_float(np.int32(float_int(p) + np.int32(half << np.int32(23))))
    out = scaled * int_float(np.int32(np.int32(np.int32(k - half) + np.int32(127)) << np.int32(23)))
    return out if x == x else x


def little_expm1(r):
    """e ** r - 1 of a float64 in [-ln 2 / 2, ln 2 / 2], to 2**-31 of itself."""
    return expm1_part(r) * r


def expm1_64(x):
    """e ** x - 1 of a float64 of -700 to 700, to 2**-31 of itself: that of a small number, scaled."""
    # Adding 1.5 * 2**52 rounds to an integer, which then stands in the last bits.
    t = multiply_add64(x, 1.4426950408889634, 6755399441055744.0)
    p = little_expm1(multiply_add64(t - 6755399441055744.0, -0.6931471805599453, x))
    scale = long_double(np.int64(np.int64(double_long(t) + np.int64(1023)) << np.int64(52)))
    return multiply_add64(scale, p, scale - 1.0)


def exp_64(x):
    """e ** x of a float64 of -700 to 700, to 2**-31 of itself."""
    t = multiply_add64(x, 1.4426950408889634, 6755399441055744.0)
    r = multiply_add64(t - 6755399441055744.0, -0.6931471805599453, x)
    scale = long_double(np.int64(np.int64(double_long(t) + np.int64(1023)) << np.int64(52)))
    return multiply_add64(scale, little_expm1(r), scale)


def exp_near(x):
    """e ** x of a float32, computed in float64: rounded once, in loops of any kind."""
    a = np.float64(x)
    a = -104.0 if a < -104.0 else a  # where it rounds to 0
    a = 89.0 if a > 89.0 else a  # where it is infinite
    out = np.float32(exp_64(a))
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
    size = np.int32(float_int(np.float32(-expm1_64(-a * erf_part(a)))) & np.int32(0x7FFFFFFF))
    out = int_float(np.int32(size | np.int32(float_int(x) & np.int32(-2147483648))))
    return out if x == x else x


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


def _multiply_add(bits: int, name: str = "llvm.fmuladd") -> Any:
    """a * b + c of float32 or float64, rounded once where the machine has an instruction for it (fma: everywhere)."""
    intrinsic: Any = import_module("numba.extending").intrinsic
    types: Any = import_module("numba.types")
    ir: Any = import_module("llvmlite.ir")

    def multiply_add(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            number = ir.FloatType() if bits == 32 else ir.DoubleType()
            kind = ir.FunctionType(number, [number] * 3)
            return builder.call(builder.module.declare_intrinsic(name, [number], kind), args)

        number = types.float32 if bits == 32 else types.float64
        return number(number, number, number), codegen

    return intrinsic(multiply_add)


def _polynomial(coefficients: Sequence[float]) -> Any:
    """The polynomial of a float64 with these coefficients, that of the highest power first.

    But for the last steps, whose roundings are seen, it is the sum of two of the square: half as many steps wait for
    one another.
    """
    intrinsic: Any = import_module("numba.extending").intrinsic
    types: Any = import_module("numba.types")
    ir: Any = import_module("llvmlite.ir")

    def polynomial(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            number = ir.DoubleType()
            add = builder.module.declare_intrinsic("llvm.fmuladd", [number], ir.FunctionType(number, [number] * 3))

            def horner(some: Sequence[Any], at: Any) -> Any:
                found, *rest = some
                for c in rest:
                    found = builder.call(add, (found, at, c))
                return found

            every = [ir.Constant(number, c) for c in coefficients]
            most, last = every[:-LAST], every[-LAST:]
            if len(most) < 2 * LAST:
                return horner(every, args[0])
            square = builder.fmul(args[0], args[0])
            even, odd = horner(most[(len(most) + 1) % 2 :: 2], square), horner(most[len(most) % 2 :: 2], square)
            return horner([builder.call(add, (odd, args[0], even)), *last], args[0])

        return types.float64(types.float64), codegen

    return intrinsic(polynomial)


def extremum(name: str) -> Any:
    """``llvm.maximum`` or ``llvm.minimum`` of two floats: NaN where one is; of two zeros either, whatever their signs.

    LLVM makes vectors of a loop over them, several running values side by side. ``freeze`` before the second keeps
    LLVM from a running value behind a condition, of which it makes no vectors: ``maximum(top, x if hit else -inf)``
    would become ``maximum(top, x) if hit else top``.
    """
    intrinsic: Any = import_module("numba.extending").intrinsic
    types: Any = import_module("numba.types")
    ir: Any = import_module("llvmlite.ir")

    def of_two(typingctx: Any, a: Any, b: Any) -> Any:
        wide = types.float32 if a == b == types.float32 else types.float64

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            both = [context.cast(builder, x, t, wide) for x, t in zip(args, signature.args, strict=True)]
            frozen = ir.instructions.Instruction(builder.block, both[1].type, "freeze", both[1:])
            builder._insert(frozen)
            kind = ir.FunctionType(both[0].type, [both[0].type] * 2)
            found = builder.module.declare_intrinsic(name, [both[0].type], kind)
            return builder.call(found, (both[0], frozen), fastmath=("nsz",))

        return wide(a, b), codegen

    return intrinsic(of_two)


def half_words(jit: Callable[[Any], Any]) -> dict[str, Any]:
    """float32 to the 16 bits of the nearest float16 and back, by the processor's instructions where it has them."""
    features = import_module("llvmlite.binding").get_host_cpu_features()
    if not features.get("f16c", False):
        return {}
    intrinsic: Any = import_module("numba.extending").intrinsic
    types: Any = import_module("numba.types")
    ir: Any = import_module("llvmlite.ir")

    def word_of(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

        return types.uint16(types.float32), codegen

    def value_of(typingctx: Any, word: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

        return types.float32(types.uint16), codegen

    encode, decode = intrinsic(word_of), intrinsic(value_of)

    def f16_word(x: Any) -> Any:
        return encode(x)

    def f16_load(word: Any) -> Any:
        return decode(word)

    return {"f16_word": jit(f16_word), "f16_load": jit(f16_load)}


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
        "fused64": _multiply_add(64, "llvm.fma"), **{n: _polynomial(c) for n, c in POLYNOMIALS.items()},
        **{n: _polynomial(c) for n, c in cpu_doubles.POLYNOMIALS.items()},
        **{f"far_{n}": range_guarded_call(n, cpu_doubles.FAR) for n in ("sin", "cos", "tan")},
    }  # fmt: skip
    for f in (scaled_exp, little_expm1, expm1_64, exp_64, *HELPERS, *cpu_doubles.HELPERS):
        names[f.__name__] = jit(FunctionType(f.__code__, names, f.__name__))
    forms = (exp32, exp_near, exp_half, tanh32, erf32, bf16_word, bf16, *FORMS, *cpu_doubles.FORMS)
    made = {f.__name__: jit(FunctionType(f.__code__, names, f.__name__)) for f in forms}
    names.update(made)
    return made


def by_width(narrow: Any, wide: Any) -> Any:
    """A function for kernels: ``narrow`` of a float32 or two, ``wide`` of any other numbers."""
    overload: Any = import_module("numba.extending").overload
    single: Any = import_module("numba.types").float32

    def chosen(*numbers: Any) -> Any:
        raise NotImplementedError  # compiled kernels have one of the two in its place

    def of_one(x: Any) -> Any:
        return narrow(x)

    def of_two(x: Any, y: Any) -> Any:
        return narrow(x, y)

    def one_of_others(x: Any) -> Any:
        return wide(x)

    def two_of_others(x: Any, y: Any) -> Any:
        return wide(x, y)

    def by_type(x: Any, y: Any = None) -> Any:
        if y is None:
            return of_one if x == single else one_of_others
        return of_two if x == single and y == single else two_of_others

    options = {"forceinline": True, "no_cfunc_wrapper": True, "pipeline_class": short_pipeline()}
    overload(chosen, strict=False, jit_options=options)(by_type)
    return chosen
