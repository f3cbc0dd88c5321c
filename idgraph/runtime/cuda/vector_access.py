"""Intrinsics that numba.cuda lacks: accesses of 8 or 16 bytes, and the one-instruction rounding to bfloat16."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from idgraph.codegen.ops.plain import WIDTHS


def vectors(cc: tuple[int, int]) -> dict[str, Any]:
    """``vloadN(registers, first, array, at)`` reads N elements in one access, from ``at`` on, into neighbouring
    registers; ``vstoreN(array, at, registers, first)`` writes them. ``at`` is proved aligned. 16-bit words beside
    float32 registers are bfloat16, rounded to the nearest; other types are converted as numba does.
    ``vloadN_where(registers, first, array, at, wanted)`` gives zeros, and touches no memory, where not ``wanted``.
    """
    loads = {f"vload{w}": _load(w) for w in WIDTHS} | {f"vload{w}_where": _load(w, where=True) for w in WIDTHS}
    return loads | {f"vstore{w}": _store(w, cc) for w in WIDTHS}


def _modules() -> tuple[Any, Any, Any]:
    extending: Any = import_module("numba.cuda.extending")
    return extending.intrinsic, import_module("numba.cuda.types"), import_module("llvmlite.ir")


def _word_layout(element: Any, width: int) -> tuple[Any, int, int]:
    """(vector type, bits of a word, elements of a word): 32-bit words, 64-bit ones for 64-bit elements, 16-bit ones for
    two bytes."""
    ir: Any = import_module("llvmlite.ir")
    size = bits_of(element)
    bits = min(max(32, size), size * width)
    count = size * width // bits
    word = ir.IntType(bits)
    return (ir.VectorType(word, count) if count > 1 else word), bits, bits // size


def bits_of(element: Any) -> int:
    """Bits of an element in memory: a truth value has a byte, in registers' arrays as well."""
    return 8 if _is_bool(element) else int(element.bitwidth)


def _is_bool(element: Any) -> bool:
    types: Any = import_module("numba.cuda.types")
    return bool(element == types.boolean)


def pointer(context: Any, builder: Any, array_type: Any, array: Any, at: Any, vector: Any) -> Any:
    """The address of an element of an array, as that of a vector."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), vector.as_pointer())


def register(context: Any, builder: Any, array_type: Any, array: Any, first: Any, n: int) -> Any:
    """The address of register ``first + n``."""
    ir: Any = import_module("llvmlite.ir")
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [builder.add(first, ir.Constant(first.type, n))])


def _is_bf16(element: Any, held: Any) -> bool:
    types: Any = import_module("numba.cuda.types")
    return bool(element == types.uint16 and held == types.float32)


def decoded(context: Any, builder: Any, part: Any, element: Any, held: Any) -> Any:
    """The value, as a register of type ``held`` has it, of the bits of an element."""
    ir: Any = import_module("llvmlite.ir")
    if _is_bool(element):
        return part
    if _is_bf16(element, held):
        wide = builder.zext(part, ir.IntType(32))
        return builder.bitcast(builder.shl(wide, ir.Constant(wide.type, 16)), ir.FloatType())
    return context.cast(builder, builder.bitcast(part, context.get_value_type(element)), element, held)


def loaded_where(builder: Any, at: Any, wanted: Any) -> Any:
    """The vector (or the word) at an address where ``wanted``, else zeros, by one instruction that may be left out.

    A branch would end what the compiler orders: the loads of several rows would wait for each other.
    """
    ir: Any = import_module("llvmlite.ir")
    vector = at.type.pointee
    word, count = (vector.element, vector.count) if isinstance(vector, ir.VectorType) else (vector, 1)
    names = [f"${n}" for n in range(count)]
    one, to = f"b{word.width}", f"{{{', '.join(names)}}}" if count > 1 else names[0]
    zeros = " ".join(f"mov.{one} {n}, 0;" for n in names)
    many = f".v{count}" if count > 1 else ""
    text = (
        f"{{.reg .pred p; .reg .b64 a; setp.ne.b32 p, ${count + 1}, 0; cvta.to.global.u64 a, ${count}; {zeros} "
        f"@p ld.global{many}.{one} {to}, [a];}}"
    )
    letter = {16: "h", 32: "r", 64: "l"}[word.width]
    made = ir.LiteralStructType([word] * count) if count > 1 else word
    flag, long = ir.IntType(32), ir.IntType(64)
    kind = ir.FunctionType(made, [long, flag])
    given = [builder.ptrtoint(at, long), builder.zext(wanted, flag)]
    parts = builder.asm(kind, text, ",".join([f"={letter}"] * count + ["l", "r", "~{memory}"]), given, True)
    if count == 1:
        return parts
    found = ir.Constant(vector, ir.Undefined)
    for n in range(count):
        found = builder.insert_element(found, builder.extract_value(parts, n), ir.Constant(flag, n))
    return found


def loader(where: bool, build: Any, kinds: Any) -> Any:
    """An intrinsic that loads: ``build(context, builder, signature, args, found)`` takes what is in memory, of the type
    that ``kinds(registers, array)`` says first, with its alignment in bytes."""
    intrinsic, types, _ = _modules()

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector, align = kinds(signature.args[0], signature.args[2])
        at = pointer(context, builder, signature.args[2], args[2], args[3], vector)
        if where:
            wanted = context.cast(builder, args[4], signature.args[4], types.boolean)
            found = loaded_where(builder, at, wanted)
        else:
            found = builder.load(at)
            found.align = align
        build(context, builder, signature, args, found)
        return context.get_dummy_value()

    def load(typingctx: Any, registers: Any, first: Any, array: Any, at: Any) -> Any:
        return types.void(registers, types.int64, array, types.uint64), codegen

    def load_where(typingctx: Any, registers: Any, first: Any, array: Any, at: Any, wanted: Any) -> Any:
        return types.void(registers, types.int64, array, types.uint64, types.boolean), codegen

    return intrinsic(load_where if where else load)


def _load(width: int, where: bool = False) -> Any:
    ir: Any = import_module("llvmlite.ir")

    def kinds(registers: Any, array: Any) -> Any:
        return _word_layout(array.dtype, width)[0], bits_of(array.dtype) * width // 8

    def build(context: Any, builder: Any, signature: Any, args: Any, found: Any) -> None:
        element, held = signature.args[2].dtype, signature.args[0].dtype
        _, _, packed = _word_layout(element, width)
        bits = bits_of(element)
        for n in range(width):
            word = found
            if width > packed:
                word = builder.extract_element(found, ir.Constant(ir.IntType(32), n // packed))
            if packed > 1:
                shifted = builder.lshr(word, ir.Constant(word.type, n % packed * bits))
                word = builder.trunc(shifted, ir.IntType(bits))
            to = register(context, builder, signature.args[0], args[0], args[1], n)
            builder.store(decoded(context, builder, word, element, held), to)

    return loader(where, build, kinds)


def _store(width: int, cc: tuple[int, int]) -> Any:
    intrinsic, types, ir = _modules()

    def vstore(typingctx: Any, array: Any, at: Any, registers: Any, first: Any) -> Any:
        element, held = array.dtype, registers.dtype
        vector, bits, packed = _word_layout(element, width)
        size = bits_of(element)

        def part(context: Any, builder: Any, value: Any) -> Any:
            if _is_bool(element):
                return value
            if _is_bf16(element, held):
                return _bf16(builder, value, cc)
            return builder.bitcast(context.cast(builder, value, held, element), ir.IntType(size))

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word_type = ir.IntType(bits)
            found = ir.Constant(vector, ir.Undefined)
            word = ir.Constant(word_type, 0)
            for n in range(width):
                value = builder.load(register(context, builder, signature.args[2], args[2], args[3], n))
                one = part(context, builder, value)
                if packed > 1:
                    shifted = builder.shl(builder.zext(one, word_type), ir.Constant(word_type, n % packed * size))
                    word = builder.or_(word, shifted) if n % packed else shifted
                else:
                    word = one
                if width > packed and n % packed == packed - 1:
                    found = builder.insert_element(found, word, ir.Constant(ir.IntType(32), n // packed))
            to = pointer(context, builder, signature.args[0], args[0], args[1], vector)
            builder.store(found if width > packed else word, to, align=size * width // 8)
            return context.get_dummy_value()

        return types.void(array, types.uint64, registers, types.int64), codegen

    return intrinsic(vstore)


def _bf16(builder: Any, x: Any, cc: tuple[int, int]) -> Any:
    """The 16 bits of the nearest bfloat16, halves to even: one instruction from compute 8.0 up."""
    ir: Any = import_module("llvmlite.ir")
    if cc >= (8, 0):
        kind = ir.FunctionType(ir.IntType(16), [ir.FloatType()])
        return builder.asm(kind, "cvt.rn.bf16.f32 $0, $1;", "=h,f", [x], False)
    word = ir.IntType(32)
    bits = builder.bitcast(x, word)
    odd = builder.and_(builder.lshr(bits, ir.Constant(word, 16)), ir.Constant(word, 1))
    near = builder.lshr(builder.add(builder.add(bits, ir.Constant(word, 0x7FFF)), odd), ir.Constant(word, 16))
    found = builder.select(builder.fcmp_unordered("uno", x, x), ir.Constant(word, 0x7FC0), near)
    return builder.trunc(found, ir.IntType(16))


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
