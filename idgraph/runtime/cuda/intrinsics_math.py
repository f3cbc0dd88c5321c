"""One-instruction forms of what numba.cuda compiles to more: extrema in which NaN wins, rounding, exp, 1 / x, a ^ b.

Functions of values that are rounded to 16 bits, in few instructions; see `idgraph.passes.narrowing`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np

from idgraph.runtime.cuda.intrinsics_memory import assembled, numba_modules, of_numbers, widened

LOG2_E = 1.4426950408889634


def extreme(builder: Any, name: str, kind: Any, x: Any, y: Any, cc: tuple[int, int]) -> Any:
    """The larger ("max") or smaller ("min") of two values of one type, NaN if one is: one instruction for float32."""
    _, types, _ = numba_modules()
    if kind == types.float32 and cc >= (8, 0):
        return assembled(builder, f"{name}.NaN.f32 $0, $1, $2;", x.type, x, y)
    sign = {"max": ">=", "min": "<="}[name]
    if isinstance(kind, types.Float):
        # Ordered comparison fails for NaN in b, unordered inequality holds for NaN in a.
        keep = builder.or_(builder.fcmp_unordered("!=", x, x), builder.fcmp_ordered(sign, x, y))
        return builder.select(keep, x, y)
    if kind == types.boolean:
        return builder.or_(x, y) if name == "max" else builder.and_(x, y)
    compare = builder.icmp_signed if kind.signed else builder.icmp_unsigned
    return builder.select(compare(sign, x, y), x, y)


def extrema(cc: tuple[int, int]) -> dict[str, Any]:
    """``maximum`` and ``minimum`` of two values of any one type."""
    intrinsic, _, _ = numba_modules()

    def one(name: str) -> Any:
        def extremum(typingctx: Any, a: Any, b: Any) -> Any:
            both = typingctx.unify_types(a, b)

            def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                x, y = (
                    context.cast(builder, v, t, signature.return_type)
                    for v, t in zip(args, signature.args, strict=True)
                )
                return extreme(builder, name, signature.return_type, x, y, cc)

            return both(a, b), codegen

        return intrinsic(extremum)

    return {"maximum": one("max"), "minimum": one("min")}


def single_calls() -> dict[str, Any]:
    """Functions that kernels call often. numba.cuda inlines compiled ones by copying and analysing the kernel once more
    for each call: of a kernel of 540 lines that was a third of the seconds that it takes.

    ``select(c, a, b)``: a where c, else b, both of which are computed; ``div``: of floats; ``wrapped(a, n)``: a modulo
    n of uint32 where a is less than twice n; ``bf16_load``; integers of few bits as int64.
    """
    intrinsic, types, _ = numba_modules()

    def select(typingctx: Any, wanted: Any, a: Any, b: Any) -> Any:
        both = typingctx.unify_types(a, b)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            test, x, y = (
                context.cast(builder, v, of, to)
                for v, of, to in zip(args, signature.args, (types.boolean, both, both), strict=True)
            )
            return builder.select(test, x, y)

        return both(wanted, a, b), codegen

    def div(typingctx: Any, a: Any, b: Any) -> Any:
        both = typingctx.unify_types(a, b)
        kind = both if isinstance(both, types.Float) else types.float64

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            given = zip(args, signature.args, strict=True)
            return builder.fdiv(*(context.cast(builder, v, of, kind) for v, of in given))

        return kind(a, b), codegen

    def converted(kind: Any) -> Any:
        def convert(typingctx: Any, x: Any) -> Any:
            def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return context.cast(builder, context.cast(builder, args[0], x, kind), kind, types.int64)

            return types.int64(x), codegen

        return intrinsic(convert)

    def modulo(builder: Any, a: Any, n: Any) -> Any:
        rest = builder.sub(a, n)  # huge where a < n
        return builder.select(builder.icmp_unsigned("<", a, rest), a, rest)

    kinds = {"u8": types.uint8, "int8": types.int8, "int16": types.int16, "i32": types.int32, "near_int": types.int32}
    return {
        "select": intrinsic(select), "div": intrinsic(div),
        "wrapped": of_numbers(types.uint32, modulo, types.uint32, types.uint32),
        "bf16_load": of_numbers(types.float32, widened, types.uint16),
        **{name: converted(kind) for name, kind in kinds.items()},
    }  # fmt: skip


def short_inverse() -> dict[str, Any]:
    """``inverse``: 1 / x, in float32 off by one unit in the last place; a division takes ten times as long."""
    intrinsic, types, ir = numba_modules()

    def inverse(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if signature.args[0] != types.float32:
                return builder.fdiv(ir.Constant(args[0].type, 1.0), args[0])
            return _of_one(builder, "rcp.approx.f32", args[0])

        return x(x), codegen

    return {"inverse": intrinsic(inverse)}


SCALE = 0x5F800000  # the bits of 2 ** 64


def scaled_quotient(builder: Any, x: Any, by: Any, inverse: Any) -> Any:
    """2 ** 64 * (x / by) of float32, rounded, from the reciprocal of ``by``, with the quotient's sign.

    The product with the reciprocal is corrected twice by what is left over (Markstein, Computation of elementary
    functions on the IBM RISC System/6000, 1990). The scale keeps what is left over exact for the smallest numbers; the
    divisor's sign goes to the numerator, so that a zero keeps its own.
    """
    ir: Any = import_module("llvmlite.ir")
    word, single = ir.IntType(32), ir.FloatType()

    def number(bits: int) -> Any:
        return ir.Constant(word, bits)

    sign = builder.and_(builder.bitcast(by, word), number(0x80000000))
    top = builder.fmul(x, builder.bitcast(builder.or_(sign, number(SCALE)), single))
    size, step = _positive(builder, by), _positive(builder, inverse)
    q = builder.fmul(top, step)
    for _ in range(2):
        rest = builder.fma(q, size, _negative(builder, top))
        q = builder.fma(_negative(builder, rest), step, q)
    return q


def near_quotient(builder: Any, x: Any, by: Any, inverse: Any) -> Any:
    """x / by of float32 from the reciprocal of ``by``: rounded as a division where `is_quotient` says so."""
    ir: Any = import_module("llvmlite.ir")
    return builder.fmul(scaled_quotient(builder, x, by, inverse), ir.Constant(ir.FloatType(), 2.0**-64))


def is_quotient(builder: Any, x: Any, by: Any, inverse: Any, magnitude: Any = None) -> Any:
    """Whether `near_quotient` is the rounded quotient; ``magnitude`` builds an absolute value, on a GPU for free.

    Nothing on the way may leave the normal numbers: numerators below 2 ** 20, divisors between 2 ** -40 and 2 ** 40.
    Quotients below the normal numbers are rounded a second time, which is wrong only where the first left a half.
    """
    ir: Any = import_module("llvmlite.ir")
    single, size = ir.FloatType(), partial(magnitude or _positive, builder)
    q = scaled_quotient(builder, x, by, inverse)
    found = builder.fmul(q, ir.Constant(single, 2.0**-64))
    lost = builder.fma(_negative(builder, found), ir.Constant(single, 2.0**64), q)

    whole = builder.fcmp_ordered("!=", size(lost), ir.Constant(single, 2.0**-86))
    small = builder.fcmp_ordered("<", size(x), ir.Constant(single, 2.0**20))
    usual = builder.and_(
        builder.fcmp_ordered(">=", size(by), ir.Constant(single, 2.0**-40)),
        builder.fcmp_ordered("<", size(by), ir.Constant(single, 2.0**40)),
    )
    return builder.and_(usual, builder.and_(small, whole))


def _positive(builder: Any, x: Any) -> Any:
    ir: Any = import_module("llvmlite.ir")
    word = ir.IntType(32)
    return builder.bitcast(builder.and_(builder.bitcast(x, word), ir.Constant(word, 0x7FFFFFFF)), ir.FloatType())


def magnitude(builder: Any, x: Any) -> Any:
    """The instruction that the assembler makes part of its reader; it leaves the bits' mask as one of its own."""
    return _of_one(builder, "abs.f32", x)


def _negative(builder: Any, x: Any) -> Any:
    ir: Any = import_module("llvmlite.ir")
    return builder.fsub(ir.Constant(ir.FloatType(), -0.0), x)


def quotients() -> dict[str, Any]:
    """``near_quotient`` and ``is_quotient`` of float32 numbers a, b and 1 / b."""
    _, types, _ = numba_modules()
    told = partial(is_quotient, magnitude=magnitude)
    return {
        "near_quotient": of_numbers(types.float32, near_quotient, *[types.float32] * 3),
        "is_quotient": of_numbers(types.boolean, told, *[types.float32] * 3),
    }


def rounding() -> dict[str, Any]:
    """``rint``: the nearest integer as a float of the same type, halves to even; the sign of zero and NaN stay."""
    intrinsic, types, ir = numba_modules()

    def rint(typingctx: Any, x: Any) -> Any:
        size, kind = (32, ir.FloatType()) if x == types.float32 else (64, ir.DoubleType())

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = context.cast(builder, args[0], signature.args[0], signature.return_type)
            return assembled(builder, f"cvt.rni.f{size}.f{size} $0, $1;", kind, value)

        return (types.float32 if size == 32 else types.float64)(x), codegen

    return {"rint": intrinsic(rint)}


def short_exp() -> dict[str, Any]:
    """``fast_exp``: e ** x in float32 as 2 ** (x * log2(e)), off by 2**-22 and |x| units in the last place.

    ``short_exp``: the same with results below the normal numbers. ``fast_exp_sub``: e ** (a - b), the difference taken
    first: where a and b are large and near, it has no error.
    """
    _, types, ir = numba_modules()

    def power(builder: Any, x: Any, instruction: str = "ex2.approx.ftz.f32") -> Any:
        return _of_one(builder, instruction, builder.fmul(x, ir.Constant(x.type, LOG2_E)))

    def power_sub(builder: Any, a: Any, b: Any) -> Any:
        return power(builder, builder.fsub(a, b))

    single = types.float32
    return {
        "fast_exp": of_numbers(single, power, single),
        "short_exp": of_numbers(single, partial(power, instruction="ex2.approx.f32"), single),
        "fast_exp_sub": of_numbers(single, power_sub, single, single),
    }


def exclusive() -> dict[str, Any]:
    """``bits_xor``: a ^ b of two uint32, or of two int64 where either is wider, by an instruction of its own.

    The compiler sees no exclusive or. libNVVM 13.0 made one with a multiple of the variable of a loop that it unrolled
    wrong: from the second round on it combined the factor with the result of the round before (seen in a kernel
    whose loop stands under a condition: one of four stores to shared memory went to another's place).
    """
    intrinsic, types, ir = numba_modules()

    def bits_xor(typingctx: Any, a: Any, b: Any) -> Any:
        both = types.uint32 if a == b == types.uint32 else types.int64
        size = 32 if both == types.uint32 else 64

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return assembled(builder, f"xor.b{size} $0, $1, $2;", ir.IntType(size), *args)

        return both(both, both), codegen

    return {"bits_xor": intrinsic(bits_xor)}


APART = 2.0**-32  # brings all of 1 + e ** x, which is at least 1, among numbers whose reciprocals are normal


def short_forms(cc: tuple[int, int]) -> dict[str, Any]:
    """``logistic_of(e)``: 1 / (1 + e) of e at least 0, in float32 off by two units in the last place.

    The reciprocal of a number above 2 ** 126 is subnormal, and the instruction that gives those is six. Of the scaled
    sum it is one, and the product with the scale rounds to subnormal numbers.

    ``short_div(a, b)``, ``short_sqrt(a)`` and ``short_rsqrt(a)``: of float32, off by two units in the last place.
    ``one_plus_erf``, ``tanh_log1p``, ``near_expm1`` and ``near_tanh`` see below.
    """
    intrinsic, types, ir = numba_modules()

    def logistic_of(typingctx: Any, e: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            (x,) = args
            if signature.args[0] != types.float32:
                one = ir.Constant(x.type, 1.0)
                return builder.fdiv(one, builder.fadd(one, x))
            scale = ir.Constant(x.type, APART)
            return builder.fmul(_of_one(builder, "rcp.approx.ftz.f32", builder.fma(x, scale, scale)), scale)

        return e(e), codegen

    def instruction(text: str, count: int) -> Any:
        def build(builder: Any, *values: Any) -> Any:
            return assembled(builder, text, ir.FloatType(), *values)

        return of_numbers(types.float32, build, *[types.float32] * count)

    series = {"one_plus_erf": one_plus_erf, "tanh_log1p": partial(tanh_log1p, cc=cc), "near_expm1": near_expm1,
              "near_tanh": near_tanh}  # fmt: skip
    return {
        "logistic_of": intrinsic(logistic_of),
        "short_div": instruction("div.full.f32 $0, $1, $2;", 2),
        "short_sqrt": instruction("sqrt.approx.f32 $0, $1;", 1),
        "short_rsqrt": instruction("rsqrt.approx.f32 $0, $1;", 1),
        **{name: of_numbers(types.float32, build, types.float32) for name, build in series.items()},
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
    signed = assembled(builder, "copysign.f32 $0, $1, $2;", x.type, x, whole)
    return builder.select(_is_near(builder, a), builder.fma(p, x, x), signed)


def _is_near(builder: Any, a: Any) -> Any:
    return builder.fcmp_ordered("<", a, import_module("llvmlite.ir").Constant(a.type, NEAR))


def _of_one(builder: Any, instruction: str, x: Any) -> Any:
    """An instruction of one float32."""
    return assembled(builder, f"{instruction} $0, $1;", x.type, x)


# Instructions of compute capability 9.0 up (float16: 5.3 up); ".rn" also forbids fusing a product with a sum.
_MACHINE = {
    "add": "add.rn.{0}x2 $0, $1, $2;", "sub": "sub.rn.{0}x2 $0, $1, $2;", "mul": "mul.rn.{0}x2 $0, $1, $2;",
    "neg": "xor.b32 $0, $1, 0x80008000;", "abs": "and.b32 $0, $1, 0x7fff7fff;",
}  # fmt: skip
# bfloat16 of compute capability 8.x has only the fused form: a * b + -0, a * 1 + b and b * -1 + a round once, as these.
_FUSED = {
    "add": "{{.reg .b32 c; mov.b32 c, 0x3f803f80; fma.rn.bf16x2 $0, $1, c, $2;}}",
    "sub": "{{.reg .b32 c; mov.b32 c, 0xbf80bf80; fma.rn.bf16x2 $0, $2, c, $1;}}",
    "mul": "{{.reg .b32 c; mov.b32 c, 0x80008000; fma.rn.bf16x2 $0, $1, $2, c;}}",
}


def pair_functions(cc: tuple[int, int]) -> dict[str, Any]:
    """The functions that the printer names, as intrinsics; a word is a uint32."""
    _, types, _ = numba_modules()
    word, single = types.uint32, types.float32
    made: dict[str, Any] = {"pair_where": of_numbers(word, _where, types.boolean, word, word)}
    for i, k in product((0, 1), repeat=2):  # half of one word beside half of another: one byte permutation
        order = (0x32 if i else 0x10) | (0x7600 if k else 0x5400)
        made[f"pair_pick_{'lh'[i]}{'lh'[k]}"] = _machine(f"prmt.b32 $0, $1, $2, 0x{order:x};", 2)
    for kind in ("bf16", "f16"):
        texts = {**_MACHINE, **(_FUSED if kind == "bf16" and cc < (9, 0) else {})}
        for op, text in texts.items():
            made[f"pair_{op}_{kind}"] = _machine(text.format(kind), 1 if op in ("neg", "abs") else 2)
        one = f"{{.reg .b16 l, h; cvt.rn.{kind}.f32 l, $1; cvt.rn.{kind}.f32 h, $2; mov.b32 $0, {{l, h}};}}"
        pack = partial(_pack, text=f"cvt.rn.{kind}x2.f32 $0, $2, $1;" if cc >= (8, 0) else one)
        made[f"pair_pack_{kind}"] = of_numbers(word, pack, single, single)
        for name, high in (("low", False), ("high", True)):
            made[f"{name}_{kind}"] = of_numbers(single, partial(_half, kind=kind, high=high), word)
    return made


def software_bf16(names: dict[str, Any], jit: Callable[[Any], Any]) -> dict[str, Any]:
    """bfloat16 pairs for devices that know no bfloat16 (before compute capability 8.0), of single elements."""
    word, low, high = names["bf16_word"], names["low_bf16"], names["high_bf16"]

    def pack(a: Any, b: Any) -> Any:
        return np.uint32(np.uint32(word(a)) | np.uint32(np.uint32(word(b)) << 16))

    pack = jit(pack)

    def add(a: Any, b: Any) -> Any:
        return pack(low(a) + low(b), high(a) + high(b))

    def sub(a: Any, b: Any) -> Any:
        return pack(low(a) - low(b), high(a) - high(b))

    def mul(a: Any, b: Any) -> Any:
        return pack(low(a) * low(b), high(a) * high(b))

    return {
        "pair_pack_bf16": pack, "pair_add_bf16": jit(add), "pair_sub_bf16": jit(sub), "pair_mul_bf16": jit(mul),
    }  # fmt: skip


def _machine(text: str, operands: int) -> Any:
    """An instruction from words to a word."""
    _, types, ir = numba_modules()

    def build(builder: Any, *words: Any) -> Any:
        return assembled(builder, text, ir.IntType(32), *words)

    return of_numbers(types.uint32, build, *[types.uint32] * operands)


def _pack(builder: Any, low: Any, high: Any, text: str) -> Any:
    """Two float32 rounded into one word."""
    return assembled(builder, text, import_module("llvmlite.ir").IntType(32), low, high)


def _where(builder: Any, condition: Any, a: Any, b: Any) -> Any:
    """One of two words, as an instruction: compilers make branches of choices, whose loads wait for the condition."""
    text = "{.reg .pred p; setp.ne.u32 p, $1, 0; selp.b32 $0, $2, $3, p;}"
    return assembled(builder, text, a.type, builder.zext(condition, a.type), a, b)


def _half(builder: Any, word: Any, kind: str, high: bool) -> Any:
    """One element of a word as float32."""
    ir: Any = import_module("llvmlite.ir")
    sixteen = ir.Constant(word.type, 16)
    if kind == "bf16":
        bits = builder.and_(word, ir.Constant(word.type, 0xFFFF0000)) if high else builder.shl(word, sixteen)
        return builder.bitcast(bits, ir.FloatType())
    small = builder.trunc(builder.lshr(word, sixteen) if high else word, ir.IntType(16))
    return assembled(builder, "cvt.f32.f16 $0, $1;", ir.FloatType(), small)
