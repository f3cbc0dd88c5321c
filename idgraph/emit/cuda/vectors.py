"""What numba.cuda does not make by itself: accesses of 8 or 16 bytes, and the one-instruction rounding to bfloat16."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from idgraph.emit.ops.plain import WIDTHS


def vectors() -> dict[str, Any]:
    """``vloadN(array, at)`` gives N elements, ``vstoreN(array, at, values)`` writes them; ``at`` is proved aligned.

    Long: load and store share the layout of words, and numba wants each intrinsic as one function with its codegen.
    """
    intrinsic: Any = import_module("numba.cuda.extending").intrinsic
    types: Any = import_module("numba.cuda.types")
    ir: Any = import_module("llvmlite.ir")

    def words(element: Any, width: int) -> tuple[Any, int, int]:
        """(vector type, bits of a word, elements of a word): 32-bit words, 64-bit ones for 64-bit elements, 16-bit ones
        for two bytes."""
        bits = min(max(32, int(element.bitwidth)), int(element.bitwidth) * width)
        count = int(element.bitwidth) * width // bits
        word = ir.IntType(bits)
        return (ir.VectorType(word, count) if count > 1 else word), bits, bits // int(element.bitwidth)

    def pointer(context: Any, builder: Any, array_type: Any, array: Any, at: Any, vector: Any) -> Any:
        data = context.make_array(array_type)(context, builder, array).data
        return builder.bitcast(builder.gep(data, [at]), vector.as_pointer())

    def make_load(width: int) -> Any:
        def vload(typingctx: Any, array: Any, at: Any) -> Any:
            element = array.dtype
            vector, _, packed = words(element, width)

            def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                found = builder.load(pointer(context, builder, signature.args[0], args[0], args[1], vector))
                found.align = int(element.bitwidth) * width // 8
                made: list[Any] = []
                for n in range(width // packed):
                    word = builder.extract_element(found, ir.Constant(ir.IntType(32), n)) if width > packed else found
                    for p in range(packed):
                        part = word
                        if packed > 1:
                            shifted = builder.lshr(word, ir.Constant(word.type, p * int(element.bitwidth)))
                            part = builder.trunc(shifted, ir.IntType(int(element.bitwidth)))
                        made.append(builder.bitcast(part, context.get_value_type(element)))
                return context.make_tuple(builder, signature.return_type, made)

            return types.UniTuple(element, width)(array, types.uint64), codegen

        return intrinsic(vload)

    def make_store(width: int) -> Any:
        def vstore(typingctx: Any, array: Any, at: Any, values: Any) -> Any:
            element = array.dtype
            vector, bits, packed = words(element, width)

            def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                word_type = ir.IntType(bits)
                found = ir.Constant(vector, ir.Undefined)
                for n in range(width // packed):
                    word = ir.Constant(word_type, 0)
                    for p in range(packed):
                        k = n * packed + p
                        value = builder.extract_value(args[2], k)
                        value = context.cast(builder, value, signature.args[2][k], element)
                        part = builder.bitcast(value, ir.IntType(int(element.bitwidth)))
                        if packed > 1:
                            wide = builder.zext(part, word_type)
                            part = builder.shl(wide, ir.Constant(word_type, p * int(element.bitwidth)))
                            word = builder.or_(word, part)
                        else:
                            word = part
                    found = (
                        builder.insert_element(found, word, ir.Constant(ir.IntType(32), n)) if width > packed else word
                    )
                to = pointer(context, builder, signature.args[0], args[0], args[1], vector)
                builder.store(found, to, align=int(element.bitwidth) * width // 8)
                return context.get_dummy_value()

            return types.void(array, types.uint64, values), codegen

        return intrinsic(vstore)

    return {f"vload{w}": make_load(w) for w in WIDTHS} | {f"vstore{w}": make_store(w) for w in WIDTHS}


def native_bf16() -> dict[str, Any]:
    """``bf16_word(x)``: float32 to the nearest bfloat16, halves to even, in one instruction (compute 8.0 up)."""
    intrinsic: Any = import_module("numba.cuda.extending").intrinsic
    types: Any = import_module("numba.cuda.types")
    ir: Any = import_module("llvmlite.ir")

    def bf16_word(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = context.cast(builder, args[0], signature.args[0], types.float32)
            kind = ir.FunctionType(ir.IntType(16), [ir.FloatType()])
            return builder.asm(kind, "cvt.rn.bf16.f32 $0, $1;", "=h,f", [value], False)

        return types.uint16(x), codegen

    return {"bf16_word": intrinsic(bf16_word)}
