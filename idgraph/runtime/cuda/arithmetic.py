"""One-instruction forms of what numba.cuda compiles to more: extrema in which NaN wins, rounding, exp, 1 / x, a ^ b."""

from __future__ import annotations

from importlib import import_module
from typing import Any

LOG2_E = 1.4426950408889634


def extreme(builder: Any, name: str, kind: Any, x: Any, y: Any, cc: tuple[int, int]) -> Any:
    """The larger ("max") or smaller ("min") of two values of one type, NaN if one is: one instruction for float32."""
    types: Any = import_module("numba.cuda.types")
    ir: Any = import_module("llvmlite.ir")
    if kind == types.float32 and cc >= (8, 0):
        made = ir.FunctionType(ir.FloatType(), [ir.FloatType(), ir.FloatType()])
        return builder.asm(made, f"{name}.NaN.f32 $0, $1, $2;", "=f,f,f", [x, y], False)
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
    intrinsic: Any = import_module("numba.cuda.extending").intrinsic

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


def short_inverse() -> dict[str, Any]:
    """``inverse``: 1 / x, in float32 off by one unit in the last place; a division takes ten times as long."""
    intrinsic: Any = import_module("numba.cuda.extending").intrinsic
    types: Any = import_module("numba.cuda.types")
    ir: Any = import_module("llvmlite.ir")

    def inverse(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if signature.args[0] != types.float32:
                return builder.fdiv(ir.Constant(args[0].type, 1.0), args[0])
            kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()])
            return builder.asm(kind, "rcp.approx.f32 $0, $1;", "=f,f", [args[0]], False)

        return x(x), codegen

    return {"inverse": intrinsic(inverse)}


def quotients() -> dict[str, Any]:
    """``div_by``: a / b of float32, rounded as a / b is, where the reciprocal of b is known already.

    The product with it is corrected twice by what is left over (Markstein, Computation of elementary functions on the
    IBM RISC System/6000, 1990). It is exact where nothing on the way leaves the normal numbers, and of zeros; the
    instruction for a / b, which takes a far longer way for zeros, is left for all else.
    """
    intrinsic: Any = import_module("numba.cuda.extending").intrinsic
    types: Any = import_module("numba.cuda.types")
    ir: Any = import_module("llvmlite.ir")
    word = ir.IntType(32)

    def number(bits: int) -> Any:
        return ir.Constant(word, bits)

    def within(builder: Any, magnitude: Any, exponent: int) -> Any:
        """2 ** -exponent <= magnitude < 2 ** exponent, by the bits of a float32."""
        least, end = (127 - exponent) << 23, (127 + exponent) << 23
        return builder.icmp_unsigned("<", builder.sub(magnitude, number(least)), number(end - least))

    def div_by(typingctx: Any, a: Any, b: Any, inverse: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, by, y = (context.cast(builder, v, t, types.float32) for v, t in zip(args, signature.args, strict=True))
            product = q = builder.fmul(x, y)
            for _ in range(2):
                q = builder.fma(builder.fma(builder.fsub(ir.Constant(ir.FloatType(), -0.0), q), by, x), y, q)
            size, by_size = (builder.and_(builder.bitcast(v, word), number(0x7FFFFFFF)) for v in (x, by))
            zero = builder.icmp_unsigned("==", size, number(0))
            usual = builder.and_(within(builder, by_size, 40), builder.or_(zero, within(builder, size, 60)))
            found = builder.alloca(ir.FloatType())
            builder.store(builder.select(zero, product, q), found)
            with builder.if_then(builder.not_(usual), likely=False):
                builder.store(builder.fdiv(x, by), found)
            return builder.load(found)

        return types.float32(a, b, inverse), codegen

    return {"div_by": intrinsic(div_by)}


def rounding() -> dict[str, Any]:
    """``rint``: the nearest integer as a float of the same type, halves to even; the sign of zero and NaN stay."""
    intrinsic: Any = import_module("numba.cuda.extending").intrinsic
    types: Any = import_module("numba.cuda.types")
    ir: Any = import_module("llvmlite.ir")

    def rint(typingctx: Any, x: Any) -> Any:
        size, letter, kind = (32, "f", ir.FloatType()) if x == types.float32 else (64, "d", ir.DoubleType())

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = context.cast(builder, args[0], signature.args[0], signature.return_type)
            text = f"cvt.rni.f{size}.f{size} $0, $1;"
            return builder.asm(ir.FunctionType(kind, [kind]), text, f"={letter},{letter}", [value], False)

        return (types.float32 if size == 32 else types.float64)(x), codegen

    return {"rint": intrinsic(rint)}


def short_exp() -> dict[str, Any]:
    """``fast_exp``: e ** x in float32 as 2 ** (x * log2(e)), off by 2**-22 and |x| units in the last place.

    ``short_exp``: the same with results below the normal numbers. ``fast_exp_sub``: e ** (a - b), the difference taken
    first: where a and b are large and near, it has no error.
    """
    intrinsic: Any = import_module("numba.cuda.extending").intrinsic
    types: Any = import_module("numba.cuda.types")
    ir: Any = import_module("llvmlite.ir")

    def of_one(instruction: str) -> Any:
        def power(typingctx: Any, x: Any) -> Any:
            def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                value = context.cast(builder, args[0], signature.args[0], types.float32)
                scaled = builder.fmul(value, ir.Constant(ir.FloatType(), LOG2_E))
                kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()])
                return builder.asm(kind, f"{instruction} $0, $1;", "=f,f", [scaled], False)

            return types.float32(x), codegen

        return intrinsic(power)

    def fast_exp_sub(typingctx: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, y = (context.cast(builder, v, t, types.float32) for v, t in zip(args, signature.args, strict=True))
            single = ir.FunctionType(ir.FloatType(), [ir.FloatType()])
            scaled = builder.fmul(builder.fsub(x, y), ir.Constant(ir.FloatType(), LOG2_E))
            return builder.asm(single, "ex2.approx.ftz.f32 $0, $1;", "=f,f", [scaled], False)

        return types.float32(a, b), codegen

    return {
        "fast_exp": of_one("ex2.approx.ftz.f32"),
        "short_exp": of_one("ex2.approx.f32"),
        "fast_exp_sub": intrinsic(fast_exp_sub),
    }


def exclusive() -> dict[str, Any]:
    """``bits_xor``: a ^ b of two uint32, or of two int64 where either is wider, by an instruction of its own.

    The compiler sees no exclusive or. libNVVM 13.0 made one with a multiple of the variable of a loop that it unrolled
    wrong: from the second round on it combined the factor with the result of the round before (seen in a kernel
    whose loop stands under a condition: one of four stores to shared memory went to another's place).
    """
    intrinsic: Any = import_module("numba.cuda.extending").intrinsic
    types: Any = import_module("numba.cuda.types")
    ir: Any = import_module("llvmlite.ir")

    def bits_xor(typingctx: Any, a: Any, b: Any) -> Any:
        both = types.uint32 if a == b == types.uint32 else types.int64
        size, letter = (32, "r") if both == types.uint32 else (64, "l")

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = ir.IntType(size)
            text, form = f"xor.b{size} $0, $1, $2;", f"={letter},{letter},{letter}"
            return builder.asm(ir.FunctionType(word, [word, word]), text, form, list(args), False)

        return both(both, both), codegen

    return {"bits_xor": intrinsic(bits_xor)}
