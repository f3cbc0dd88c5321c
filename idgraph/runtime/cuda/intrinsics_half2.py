"""Pairs of 16-bit floats in one 32-bit word: arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from idgraph.runtime.cuda.intrinsics_memory import numba_modules

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
    made: dict[str, Any] = {"pair_where": _where()}
    for i, k in product((0, 1), repeat=2):  # half of one word beside half of another: one byte permutation
        order = (0x32 if i else 0x10) | (0x7600 if k else 0x5400)
        made[f"pair_pick_{'lh'[i]}{'lh'[k]}"] = _machine(f"prmt.b32 $0, $1, $2, 0x{order:x};", 2)
    for kind, name in (("bf16", "bf16"), ("f16", "f16")):
        texts = {**_MACHINE, **(_FUSED if kind == "bf16" and cc < (9, 0) else {})}
        for op, text in texts.items():
            made[f"pair_{op}_{kind}"] = _machine(text.format(name), 1 if op in ("neg", "abs") else 2)
        one = f"{{.reg .b16 l, h; cvt.rn.{name}.f32 l, $1; cvt.rn.{name}.f32 h, $2; mov.b32 $0, {{l, h}};}}"
        made[f"pair_pack_{kind}"] = _pack(f"cvt.rn.{name}x2.f32 $0, $2, $1;" if cc >= (8, 0) else one)
        made[f"low_{kind}"], made[f"high_{kind}"] = _half(kind, high=False), _half(kind, high=True)
    return made


def _where() -> Any:
    """One of two words, as an instruction: compilers make branches of choices, whose loads wait for the condition."""
    intrinsic, types, ir = numba_modules()
    word = ir.IntType(32)
    text = "{.reg .pred p; setp.ne.u32 p, $1, 0; selp.b32 $0, $2, $3, p;}"

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        condition, a, b = args
        return builder.asm(
            ir.FunctionType(word, [word] * 3), text, "=r,r,r,r", [builder.zext(condition, word), a, b], False
        )

    def where(typingctx: Any, c: Any, a: Any, b: Any) -> Any:
        return types.uint32(types.boolean, types.uint32, types.uint32), codegen

    return intrinsic(where)


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
    intrinsic, types, ir = numba_modules()
    word = ir.IntType(32)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(word, [word] * operands)
        return builder.asm(kind, text, ",".join(["=r", *["r"] * operands]), list(args), False)

    def one(typingctx: Any, a: Any) -> Any:
        return types.uint32(types.uint32), codegen

    def two(typingctx: Any, a: Any, b: Any) -> Any:
        return types.uint32(types.uint32, types.uint32), codegen

    return intrinsic(one if operands == 1 else two)


def _pack(text: str) -> Any:
    """Two float32 rounded into one word."""
    intrinsic, types, ir = numba_modules()

    def pack(typingctx: Any, low: Any, high: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.FunctionType(ir.IntType(32), [ir.FloatType(), ir.FloatType()])
            return builder.asm(kind, text, "=r,f,f", list(args), False)

        return types.uint32(types.float32, types.float32), codegen

    return intrinsic(pack)


def _half(kind: str, high: bool) -> Any:
    """One element of a word as float32."""
    intrinsic, types, ir = numba_modules()
    word = ir.IntType(32)

    def half(typingctx: Any, pair: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if kind == "bf16":
                mask = ir.Constant(word, 0xFFFF0000)
                bits = builder.and_(args[0], mask) if high else builder.shl(args[0], ir.Constant(word, 16))
                return builder.bitcast(bits, ir.FloatType())
            bits = builder.lshr(args[0], ir.Constant(word, 16)) if high else args[0]
            small = builder.trunc(bits, ir.IntType(16))
            kinds = ir.FunctionType(ir.FloatType(), [ir.IntType(16)])
            return builder.asm(kinds, "cvt.f32.f16 $0, $1;", "=f,h", [small], False)

        return types.float32(types.uint32), codegen

    return intrinsic(half)
