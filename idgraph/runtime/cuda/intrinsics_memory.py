"""Intrinsics that numba.cuda lacks: accesses of 8 or 16 bytes, and the one-instruction rounding to bfloat16.

Neighbouring elements that begin at any alignment, out of the aligned vectors that hold them.

Additions to neighbouring elements of memory in one instruction, atomic for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from idgraph.codegen.runtime_lib.vector_ops import ADDS, REALIGNED, REALIGNED_WORDS, WIDTHS, WORDS


def vectors(cc: tuple[int, int]) -> dict[str, Any]:
    """``vloadN(registers, first, array, at)`` reads N elements in one access, from ``at`` on, into neighbouring
    registers; ``vstoreN(array, at, registers, first)`` writes them. ``at`` is proved aligned. 16-bit words beside
    float32 registers are bfloat16, rounded to the nearest; other types are converted as numba does.
    ``vloadN_where(registers, first, array, at, wanted)`` gives zeros, and touches no memory, where not ``wanted``.
    ``wloadN``, ``wloadN_where`` and ``wstoreN`` are the same of N words of two elements, from and to words.
    """
    made: dict[str, Any] = {}
    for letter, widths in (("v", WIDTHS), ("w", WORDS)):
        words = letter == "w"
        made |= {f"{letter}load{n}": _vector_load(n, words) for n in widths}
        made |= {f"{letter}load{n}_where": _vector_load(n, words, where=True) for n in widths}
        made |= {f"{letter}store{n}": _store(n, words, cc) for n in widths}
    return made


def numba_modules() -> tuple[Any, Any, Any]:
    """``intrinsic``, the types of numba.cuda, and LLVM's builder."""
    extending: Any = import_module("numba.cuda.extending")
    return extending.intrinsic, import_module("numba.cuda.types"), import_module("llvmlite.ir")


def of_numbers(result: Any, build: Callable[..., Any], *types: Any) -> Any:
    """An intrinsic that gives ``result`` from one to three numbers, which ``build(builder, ...)`` gets in ``types``."""
    intrinsic, _, _ = numba_modules()

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given = zip(args, signature.args, types, strict=True)
        return build(builder, *(context.cast(builder, x, of, to) for x, of, to in given))

    def one(typingctx: Any, a: Any) -> Any:
        return result(a), codegen

    def two(typingctx: Any, a: Any, b: Any) -> Any:
        return result(a, b), codegen

    def three(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
        return result(a, b, c), codegen

    return intrinsic((one, two, three)[len(types) - 1])


def assembled(builder: Any, text: str, result: Any, *operands: Any) -> Any:
    """The value of an instruction without other effects."""
    ir: Any = import_module("llvmlite.ir")
    letters = {"float": "f", "double": "d", "i1": "b", "i16": "h", "i32": "r", "i64": "l"}
    kinds = [x.type for x in operands]
    form = ",".join(f"{'=' * (n == 0)}{letters[str(k)]}" for n, k in enumerate((result, *kinds)))
    return builder.asm(ir.FunctionType(result, kinds), text, form, list(operands), False)


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
    if _is_bool(element):
        return part
    if _is_bf16(element, held):
        return widened(builder, part)
    return context.cast(builder, builder.bitcast(part, context.get_value_type(element)), element, held)


def widened(builder: Any, word: Any) -> Any:
    """The float32 whose upper 16 bits these are."""
    ir: Any = import_module("llvmlite.ir")
    wide = builder.zext(word, ir.IntType(32))
    return builder.bitcast(builder.shl(wide, ir.Constant(wide.type, 16)), ir.FloatType())


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


def _element(array: Any, words: bool) -> Any:
    """The type of what is moved: the array's elements, or words of two."""
    types: Any = import_module("numba.cuda.types")
    return types.uint32 if words else array.dtype


def _vector_load(width: int, words: bool, where: bool = False) -> Any:
    intrinsic, types, _ = numba_modules()

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        element = _element(signature.args[2], words)
        vector, _, packed = _word_layout(element, width)
        at = pointer(context, builder, signature.args[2], args[2], args[3], vector)
        if where:
            wanted = context.cast(builder, args[4], signature.args[4], types.boolean)
            found = loaded_where(builder, at, wanted)
        else:
            found = builder.load(at)
            found.align = bits_of(element) * width // 8
        count = width // packed
        unpacked(
            context, builder, signature, args, [_word(builder, found, n, count) for n in range(count)], width, words
        )
        return context.get_dummy_value()

    def load(typingctx: Any, registers: Any, first: Any, array: Any, at: Any) -> Any:
        return types.void(registers, types.int64, array, types.uint64), codegen

    def load_where(typingctx: Any, registers: Any, first: Any, array: Any, at: Any, wanted: Any) -> Any:
        return types.void(registers, types.int64, array, types.uint64, types.boolean), codegen

    return intrinsic(load_where if where else load)


def unpacked(
    context: Any, builder: Any, signature: Any, args: Any, parts: Sequence[Any], width: int, words: bool
) -> None:
    """Set the registers of a load from words that hold its elements, one behind the other."""
    ir: Any = import_module("llvmlite.ir")
    element = _element(signature.args[2], words)
    bits, each = bits_of(element), width // len(parts)
    for n in range(width):
        part = parts[n // each]
        if each > 1:
            part = builder.trunc(builder.lshr(part, ir.Constant(part.type, n % each * bits)), ir.IntType(bits))
        to = register(context, builder, signature.args[0], args[0], args[1], n)
        builder.store(decoded(context, builder, part, element, signature.args[0].dtype), to)


def _store(width: int, words: bool, cc: tuple[int, int]) -> Any:
    intrinsic, types, ir = numba_modules()

    def vstore(typingctx: Any, array: Any, at: Any, registers: Any, first: Any) -> Any:
        element, held = _element(array, words), registers.dtype
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
        return assembled(builder, "cvt.rn.bf16.f32 $0, $1;", ir.IntType(16), x)
    word = ir.IntType(32)
    bits = builder.bitcast(x, word)
    odd = builder.and_(builder.lshr(bits, ir.Constant(word, 16)), ir.Constant(word, 1))
    near = builder.lshr(builder.add(builder.add(bits, ir.Constant(word, 0x7FFF)), odd), ir.Constant(word, 16))
    found = builder.select(builder.fcmp_unordered("uno", x, x), ir.Constant(word, 0x7FC0), near)
    return builder.trunc(found, ir.IntType(16))


def native_bf16() -> dict[str, Any]:
    """``bf16_word(x)``: float32 to the nearest bfloat16, halves to even, in one instruction (compute 8.0 up); and
    ``bf16(x)``, its value."""
    _, types, _ = numba_modules()

    def nearest(builder: Any, x: Any) -> Any:
        return widened(builder, _bf16(builder, x, (8, 0)))

    word = of_numbers(types.uint16, partial(_bf16, cc=(8, 0)), types.float32)
    return {"bf16_word": word, "bf16": of_numbers(types.float32, nearest, types.float32)}


Funnel = Callable[[Any, Any, Any, Any], Any]
WORD = 4  # bytes


def realigned() -> dict[str, Any]:
    """``rloadN(registers, first, array, at, last)`` reads N elements from ``at`` on, which need not be aligned, into
    neighbouring registers; ``rwloadN`` reads N words of two. Behind ``last`` a whole vector would leave the array.
    """
    whole = {f"rload{n}": _realigned_load(n, words=False) for n in REALIGNED}
    return whole | {f"rwload{n}": _realigned_load(n, words=True) for n in REALIGNED_WORDS}


def covering(builder: Any, data: Any, at: Any, width: int, size: int, last: Any, funnel: Funnel) -> list[Any]:
    """The 32-bit words of ``width`` elements of ``size`` bytes from element ``at`` on: two aligned vectors, shifted.

    ``data`` points to the first element; ``at`` and ``last`` are unsigned, of 32 bits where no element of the array has
    a larger number. ``funnel(builder, low, high, bits)`` shifts two words right, into one. Both
    vectors hold an element that is wanted. The second one, where it begins behind ``last``, is read element by element,
    the last element of the array in the place of those outside.
    """
    ir: Any = import_module("llvmlite.ir")
    number, word = at.type, ir.IntType(32)
    count = width * size // WORD
    vector = ir.VectorType(word, count) if count > 1 else word
    cell = ir.IntType(8 * size)
    cells = builder.bitcast(data, cell.as_pointer())

    def offset_of(n: Any) -> Any:
        return n if number.width == 64 else builder.zext(n, ir.IntType(64))

    def vector_at(first: Any) -> Any:
        # Whole vectors apart, so that the address is one multiplication and addition.
        whole = builder.lshr(first, ir.Constant(number, width.bit_length() - 1))
        vectors = builder.bitcast(cells, vector.as_pointer())
        found = builder.load(builder.gep(vectors, [offset_of(whole)]))
        found.align = width * size
        return found

    down = ir.Constant(number, -width)
    end = builder.add(at, ir.Constant(number, width - 1))
    high = builder.and_(end, down)
    first = vector_at(builder.and_(at, down))
    with builder.if_else(builder.icmp_unsigned("<=", high, last), likely=True) as (inside, across):
        with inside:
            whole, from_whole = vector_at(high), builder.block
        with across:
            most = builder.add(last, ir.Constant(number, width - 1))
            parts: list[Any] = []
            for n in range(width):
                place = builder.add(high, ir.Constant(number, n))
                behind = builder.icmp_unsigned(">", place, most)
                one = builder.load(builder.gep(cells, [offset_of(builder.select(behind, most, place))]))
                one.align = size
                parts.append(one)
            single, from_single = _packed(builder, parts, vector, size), builder.block
    second = builder.phi(vector)
    second.add_incoming(whole, from_whole)
    second.add_incoming(single, from_single)
    words = [_word(builder, v, n, count) for v in (first, second) for n in range(count)]
    offset = builder.and_(at, ir.Constant(number, width - 1))
    offset = offset if number == word else builder.trunc(offset, word)
    return shifted(builder, words, builder.mul(offset, ir.Constant(word, size)), size, funnel)


def shifted(builder: Any, words: Sequence[Any], by: Any, size: int, funnel: Funnel) -> list[Any]:
    """The first half as many words after a shift of all by ``by`` bytes, a multiple of ``size``: a selection for each
    power of two of words, then a shift inside of words."""
    ir: Any = import_module("llvmlite.ir")
    word, wanted, found = ir.IntType(32), len(words) // 2, list(words)
    step = wanted // 2
    while step:
        bit = builder.and_(by, ir.Constant(word, step * WORD))
        moved = builder.icmp_unsigned("!=", bit, ir.Constant(word, 0))
        found = [builder.select(moved, b, a) for a, b in zip(found, found[step:], strict=False)]
        step //= 2
    if size == WORD:
        return found[:wanted]
    bits = builder.shl(builder.and_(by, ir.Constant(word, WORD - 1)), ir.Constant(word, 3))
    return [funnel(builder, found[n], found[n + 1], bits) for n in range(wanted)]


def _packed(builder: Any, parts: Sequence[Any], vector: Any, size: int) -> Any:
    """Elements as one vector of words."""
    ir: Any = import_module("llvmlite.ir")
    word, each = ir.IntType(32), WORD // size
    made = ir.Constant(vector, ir.Undefined)
    for k in range(len(parts) // each):
        one = ir.Constant(word, 0)
        for n, part in enumerate(parts[k * each : (k + 1) * each]):
            wide = part if size == WORD else builder.zext(part, word)
            one = builder.or_(one, builder.shl(wide, ir.Constant(word, 8 * size * n)))
        made = builder.insert_element(made, one, ir.Constant(word, k)) if len(parts) > each else one
    return made


def _word(builder: Any, vector: Any, n: int, count: int) -> Any:
    ir: Any = import_module("llvmlite.ir")
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), n)) if count > 1 else vector


def _funnel(builder: Any, low: Any, high: Any, bits: Any) -> Any:
    """One instruction."""
    return assembled(builder, "shf.r.wrap.b32 $0, $1, $2, $3;", bits.type, low, high, bits)


def _comparison_type(at: Any, last: Any) -> Any:
    """The type that two numbers of elements are compared in."""
    types: Any = import_module("numba.cuda.types")
    return types.uint32 if at == last == types.uint32 else types.uint64


def _realigned_load(width: int, words: bool) -> Any:
    intrinsic, types, _ = numba_modules()

    def rload(typingctx: Any, registers: Any, first: Any, array: Any, at: Any, last: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(array)(context, builder, args[2]).data
            several = 2 * width if words else width
            parts = covering(builder, data, args[3], several, bits_of(array.dtype) // 8, args[4], _funnel)
            unpacked(context, builder, signature, args, parts, width, words)
            return context.get_dummy_value()

        number = _comparison_type(at, last)
        return types.void(registers, types.int64, array, number, number), codegen

    return intrinsic(rload)


VECTORS = (9, 0)
"""The compute capability from which on one instruction adds 8 or 16 bytes (PTX ISA 8.1, ``red``, ``.vec_32_bit``)."""


def additions(cc: tuple[int, int], cuda: Any, jit: Callable[[Any], Any]) -> dict[str, Any]:
    """``vaddN(array, at, values)`` adds N float32 to the elements from ``at`` on; ``at`` is proved aligned.

    The elements are global memory. Devices before compute capability 9.0 add them one by one.
    """
    return {f"vadd{n}": _vector(n) for n in ADDS} if cc >= VECTORS else _single(cuda, jit)


def _vector(width: int) -> Any:
    intrinsic, types, ir = numba_modules()
    operands = ", ".join(f"${n + 1}" for n in range(width))
    text = f"red.relaxed.gpu.global.add.v{width}.f32 [$0], {{{operands}}};"

    def vadd(typingctx: Any, array: Any, at: Any, values: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            place = builder.addrspacecast(builder.gep(data, [args[1]]), ir.FloatType().as_pointer(1))
            given = [
                context.cast(builder, builder.extract_value(args[2], n), signature.args[2][n], types.float32)
                for n in range(width)
            ]
            kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64), *[ir.FloatType()] * width])
            inputs = ",".join(["l", *["f"] * width, "~{memory}"])
            builder.asm(kind, text, inputs, [builder.ptrtoint(place, ir.IntType(64)), *given], True)
            return context.get_dummy_value()

        return types.void(array, types.uint64, values), codegen

    return intrinsic(vadd)


def _single(cuda: Any, jit: Callable[[Any], Any]) -> dict[str, Any]:
    def vadd2(array: Any, at: Any, values: Any) -> None:
        cuda.atomic.add(array, at, np.float32(values[0]))
        cuda.atomic.add(array, at + np.uint64(1), np.float32(values[1]))

    two = jit(vadd2)

    def vadd4(array: Any, at: Any, values: Any) -> None:
        two(array, at, (values[0], values[1]))
        two(array, at + np.uint64(2), (values[2], values[3]))

    return {"vadd2": two, "vadd4": jit(vadd4)}
