"""Functions of values that are rounded to 16 bits, in few instructions; see `idgraph.passes.short_functions`."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from idgraph.runtime.cuda.arithmetic import LOG2_E, extreme, magnitude

APART = 2.0**-32  # brings all of 1 + e ** x, which is at least 1, among numbers whose reciprocals are normal


def short_forms(cc: tuple[int, int]) -> dict[str, Any]:
    """``logistic_of(e)``: 1 / (1 + e) of e at least 0, in float32 off by two units in the last place.

    The reciprocal of a number above 2 ** 126 is subnormal, and the instruction that gives those is six. Of the scaled
    sum it is one, and the product with the scale rounds to subnormal numbers.

    ``short_div(a, b)``, ``short_sqrt(a)`` and ``short_rsqrt(a)``: of float32, off by two units in the last place.
    ``one_plus_erf``, ``tanh_log1p``, ``near_expm1`` and ``near_tanh`` see below.
    """
    intrinsic: Any = import_module("numba.cuda.extending").intrinsic
    types: Any = import_module("numba.cuda.types")
    ir: Any = import_module("llvmlite.ir")

    def logistic_of(typingctx: Any, e: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            (x,) = args
            if signature.args[0] != types.float32:
                one = ir.Constant(x.type, 1.0)
                return builder.fdiv(one, builder.fadd(one, x))
            scale = ir.Constant(x.type, APART)
            return builder.fmul(_of_one(builder, "rcp.approx.ftz.f32", builder.fma(x, scale, scale)), scale)

        return e(e), codegen

    def of_single(build: Any) -> Any:
        def function(typingctx: Any, x: Any) -> Any:
            def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return build(builder, context.cast(builder, args[0], signature.args[0], types.float32))

            return types.float32(x), codegen

        return intrinsic(function)

    def instruction(text: str, count: int) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            given = [context.cast(builder, v, t, types.float32) for v, t in zip(args, signature.args, strict=True)]
            kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()] * count)
            return builder.asm(kind, text, ",".join(["=f", *["f"] * count]), given, False)

        def of_one(typingctx: Any, a: Any) -> Any:
            return types.float32(a), codegen

        def of_two(typingctx: Any, a: Any, b: Any) -> Any:
            return types.float32(a, b), codegen

        return intrinsic(of_one if count == 1 else of_two)

    return {
        "logistic_of": intrinsic(logistic_of),
        "short_div": instruction("div.full.f32 $0, $1, $2;", 2),
        "short_sqrt": instruction("sqrt.approx.f32 $0, $1;", 1),
        "short_rsqrt": instruction("rsqrt.approx.f32 $0, $1;", 1),
        "one_plus_erf": of_single(one_plus_erf),
        "tanh_log1p": of_single(partial(tanh_log1p, cc=cc)),
        "near_expm1": of_single(near_expm1),
        "near_tanh": of_single(near_tanh),
    }


ERFC = (
    -1.6280442476272583, -0.9172074794769287, -0.1521623581647873, 0.03365660086274147, -0.005104739684611559,
    0.00045918853720650077, -1.797334880393464e-05,
)  # fmt: skip
"""The polynomial Q of erfc(a) = 2 ** (a Q(a)), a at least 0, fitted by Lawson's iterations to log2(erfc(a)) / a.

In float32 off by 5.1e-6 of the value where that is above 2 ** -21, by 2 ** -38 below, where the sum 1 + erf(x) has less
than four bits, and by 0.04 of the value up to a = 7.5; behind that it falls, and is zero of infinity.
"""


def one_plus_erf(builder: Any, x: Any) -> Any:
    """1 + erf(x), which is erfc(-x): that of the magnitude, or 2 less it."""
    ir: Any = import_module("llvmlite.ir")
    single = ir.FloatType()
    a, q = magnitude(builder, x), ir.Constant(single, ERFC[-1])
    for c in ERFC[-2::-1]:
        q = builder.fma(q, a, ir.Constant(single, c))
    tail = _of_one(builder, "ex2.approx.ftz.f32", builder.fmul(q, a))
    above = builder.fcmp_ordered(">=", x, ir.Constant(single, 0.0))
    return builder.select(above, builder.fsub(ir.Constant(single, 2.0), tail), tail)


LARGE = 2.0**60  # tanh(log(1 + x)) is 1 from 2 ** 13 on; squares of larger numbers would overflow


def tanh_log1p(builder: Any, x: Any, cc: tuple[int, int]) -> Any:
    """tanh(log(1 + x)) of x at least 0: x (x + 2) / (x (x + 2) + 2), in which nothing cancels."""
    ir: Any = import_module("llvmlite.ir")
    types: Any = import_module("numba.cuda.types")
    two = ir.Constant(ir.FloatType(), 2.0)
    small = extreme(builder, "min", types.float32, x, ir.Constant(ir.FloatType(), LARGE), cc)
    top = builder.fmul(small, builder.fadd(small, two))
    return builder.fmul(top, _of_one(builder, "rcp.approx.ftz.f32", builder.fadd(top, two)))


NEAR = 2.0**-4  # magnitudes below which the series take over: 4 bits of a power of e less 1 cancel at most
EXPM1 = (1.0, 1 / 2, 1 / 6, 1 / 24)  # of x, its square, ...; the next term is 2 ** -22 of the value at 1/16
TANH = (-1 / 3, 2 / 15)  # of x ** 3 and x ** 5; the next term is 2 ** -28 of the value


def near_expm1(builder: Any, x: Any) -> Any:
    """e ** x - 1, off by 2 ** -18 of the value near 1/16 and by less elsewhere: the power less 1, or the series."""
    ir: Any = import_module("llvmlite.ir")
    one = ir.Constant(x.type, 1.0)
    power = _of_one(builder, "ex2.approx.ftz.f32", builder.fmul(x, ir.Constant(x.type, LOG2_E)))
    p = ir.Constant(x.type, EXPM1[-1])
    for c in EXPM1[-2::-1]:
        p = builder.fma(p, x, ir.Constant(x.type, c))
    return builder.select(_is_near(builder, magnitude(builder, x)), builder.fmul(p, x), builder.fsub(power, one))


def near_tanh(builder: Any, x: Any) -> Any:
    """tanh(x) off by 2 ** -18 of the value near 1/16 and by less elsewhere: (1 - e ** -2a) / (1 + e ** -2a) of the
    magnitude a with the sign of x, or the series."""
    ir: Any = import_module("llvmlite.ir")
    one, a = ir.Constant(x.type, 1.0), magnitude(builder, x)
    power = _of_one(builder, "ex2.approx.ftz.f32", builder.fmul(a, ir.Constant(x.type, -2 * LOG2_E)))
    inverse = _of_one(builder, "rcp.approx.ftz.f32", builder.fadd(one, power))
    whole = builder.fmul(builder.fsub(one, power), inverse)
    square = builder.fmul(x, x)
    p = builder.fmul(builder.fma(square, ir.Constant(x.type, TANH[1]), ir.Constant(x.type, TANH[0])), square)
    signed = builder.asm(
        ir.FunctionType(x.type, [x.type, x.type]), "copysign.f32 $0, $1, $2;", "=f,f,f", [x, whole], False
    )
    return builder.select(_is_near(builder, a), builder.fma(p, x, x), signed)


def _is_near(builder: Any, a: Any) -> Any:
    return builder.fcmp_ordered("<", a, import_module("llvmlite.ir").Constant(a.type, NEAR))


def _of_one(builder: Any, instruction: str, x: Any) -> Any:
    """An instruction of one float32."""
    kind = import_module("llvmlite.ir").FunctionType(x.type, [x.type])
    return builder.asm(kind, f"{instruction} $0, $1;", "=f,f", [x], False)
