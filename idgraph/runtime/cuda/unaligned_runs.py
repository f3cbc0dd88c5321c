"""Neighbouring elements that begin at any alignment, out of the aligned vectors that hold them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from idgraph.codegen.ops.plain import REALIGNED, REALIGNED_WORDS
from idgraph.runtime.cuda.vector_access import bits_of, decoded, register

Funnel = Callable[[Any, Any, Any, Any], Any]
WORD = 4  # bytes


def realigned() -> dict[str, Any]:
    """``rloadN(registers, first, array, at, last)`` reads N elements from ``at`` on, which need not be aligned, into
    neighbouring registers; ``rwloadN`` reads N words of two. Behind ``last`` a whole vector would leave the array.
    """
    return {f"rload{w}": _elements(w) for w in REALIGNED} | {f"rwload{w}": _load_words(w) for w in REALIGNED_WORDS}


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
    ir: Any = import_module("llvmlite.ir")
    word = ir.IntType(32)
    kind = ir.FunctionType(word, [word] * 3)
    return builder.asm(kind, "shf.r.wrap.b32 $0, $1, $2, $3;", "=r,r,r,r", [low, high, bits], False)


def _found(context: Any, builder: Any, signature: Any, args: Any, width: int) -> list[Any]:
    kind = signature.args[2]
    data = context.make_array(kind)(context, builder, args[2]).data
    return covering(builder, data, args[3], width, bits_of(kind.dtype) // 8, args[4], _funnel)


def _number(at: Any, last: Any) -> Any:
    """The type that two numbers of elements are compared in."""
    types: Any = import_module("numba.cuda.types")
    return types.uint32 if at == last == types.uint32 else types.uint64


def _elements(width: int) -> Any:
    intrinsic: Any = import_module("numba.cuda.extending").intrinsic
    types: Any = import_module("numba.cuda.types")
    ir: Any = import_module("llvmlite.ir")

    def rload(typingctx: Any, registers: Any, first: Any, array: Any, at: Any, last: Any) -> Any:
        element, held = array.dtype, registers.dtype
        bits = bits_of(element)
        each = 8 * WORD // bits

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            words = _found(context, builder, signature, args, width)
            for n in range(width):
                part = words[n // each]
                if each > 1:
                    part = builder.lshr(part, ir.Constant(part.type, n % each * bits))
                    part = builder.trunc(part, ir.IntType(bits))
                to = register(context, builder, signature.args[0], args[0], args[1], n)
                builder.store(decoded(context, builder, part, element, held), to)
            return context.get_dummy_value()

        number = _number(at, last)
        return types.void(registers, types.int64, array, number, number), codegen

    return intrinsic(rload)


def _load_words(count: int) -> Any:
    intrinsic: Any = import_module("numba.cuda.extending").intrinsic
    types: Any = import_module("numba.cuda.types")

    def rwload(typingctx: Any, registers: Any, first: Any, array: Any, at: Any, last: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            for n, word in enumerate(_found(context, builder, signature, args, 2 * count)):
                builder.store(word, register(context, builder, signature.args[0], args[0], args[1], n))
            return context.get_dummy_value()

        number = _number(at, last)
        return types.void(registers, types.int64, array, number, number), codegen

    return intrinsic(rwload)
