"""One-instruction forms of what numba.cuda compiles to several: extrema in which NaN wins, a short exp, 1 / x."""

from __future__ import annotations

from importlib import import_module
from typing import Any

LOG2_E = 1.4426950408889634


def extrema() -> dict[str, Any]:
    """``maximum`` and ``minimum`` of two float32 in one instruction (compute 8.0 up), of other types by comparing."""
    intrinsic: Any = import_module("numba.cuda.extending").intrinsic
    types: Any = import_module("numba.cuda.types")
    ir: Any = import_module("llvmlite.ir")

    def one(name: str, sign: str) -> Any:
        def extremum(typingctx: Any, a: Any, b: Any) -> Any:
            both = typingctx.unify_types(a, b)

            def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                x, y = (
                    context.cast(builder, v, t, signature.return_type)
                    for v, t in zip(args, signature.args, strict=True)
                )
                if signature.return_type == types.float32:
                    kind = ir.FunctionType(ir.FloatType(), [ir.FloatType(), ir.FloatType()])
                    return builder.asm(kind, f"{name}.NaN.f32 $0, $1, $2;", "=f,f,f", [x, y], False)
                if isinstance(signature.return_type, types.Float):
                    # Ordered comparison fails for NaN in b, unordered inequality holds for NaN in a.
                    keep = builder.or_(builder.fcmp_unordered("!=", x, x), builder.fcmp_ordered(sign, x, y))
                    return builder.select(keep, x, y)
                if signature.return_type == types.boolean:
                    return builder.or_(x, y) if name == "max" else builder.and_(x, y)
                compare = builder.icmp_signed if signature.return_type.signed else builder.icmp_unsigned
                return builder.select(compare(sign, x, y), x, y)

            return both(a, b), codegen

        return intrinsic(extremum)

    return {"maximum": one("max", ">="), "minimum": one("min", "<=")}


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


def short_exp() -> dict[str, Any]:
    """``fast_exp``: e ** x in float32 as 2 ** (x * log2(e)), off by 2**-22 and |x| units in the last place.

    ``fast_exp_sub``: e ** (a - b), the difference taken first: where a and b are large and near, it has no error.
    """
    intrinsic: Any = import_module("numba.cuda.extending").intrinsic
    types: Any = import_module("numba.cuda.types")
    ir: Any = import_module("llvmlite.ir")

    def fast_exp(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = context.cast(builder, args[0], signature.args[0], types.float32)
            scaled = builder.fmul(value, ir.Constant(ir.FloatType(), LOG2_E))
            kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()])
            return builder.asm(kind, "ex2.approx.ftz.f32 $0, $1;", "=f,f", [scaled], False)

        return types.float32(x), codegen

    def fast_exp_sub(typingctx: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, y = (context.cast(builder, v, t, types.float32) for v, t in zip(args, signature.args, strict=True))
            single = ir.FunctionType(ir.FloatType(), [ir.FloatType()])
            scaled = builder.fmul(builder.fsub(x, y), ir.Constant(ir.FloatType(), LOG2_E))
            return builder.asm(single, "ex2.approx.ftz.f32 $0, $1;", "=f,f", [scaled], False)

        return types.float32(a, b), codegen

    return {"fast_exp": intrinsic(fast_exp), "fast_exp_sub": intrinsic(fast_exp_sub)}
