"""Jumps into machine code from one block of words, on one core or on all of them.

Blocks of a kernel are independent, so each core takes its share of them: numba's threads run the kernel from a first
block up to a last one. numba's own parallel loops take four times as long to compile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from itertools import count
from typing import Any

Entry = Callable[[Any], int]
_NUMBERS = count()


def make_trampoline(address: int, signature: Sequence[Any], library: Any, last: int | None = None) -> Entry:
    """A function of one pointer that calls the kernel at ``address`` with the arguments in the words.

    ``last`` is the place among the words of the block behind the last one, the word before it is the first block: then
    each thread of numba runs its part of them.
    """
    if last is not None:
        import_module("numba").get_num_threads()  # starts them, where nobody has
    found = partial(_jump(tuple(signature), last), address)
    found.library = library  # type: ignore[attr-defined]
    return found


@lru_cache(maxsize=1024)
def _jump(signature: tuple[Any, ...], last: int | None) -> Callable[[int, Any], int]:
    """A function of an address and the words, one for all kernels of a signature."""
    registry, ir = import_module("numba.core.registry"), import_module("llvmlite.ir")
    codegen: Any = registry.cpu_target.target_context.codegen()
    title = f"{next(_NUMBERS)}"  # numba finds functions of a process by name
    made: Any = codegen.create_library(f"idgraph_jump_{title}")
    module: Any = made.create_ir_module("jump")
    writer = TrampolineBuilder(title, signature, module, ir)
    start = writer.alone() if last is None else writer.spread(last)
    made.add_ir_module(module)
    made.finalize()
    # The interpreter's lock is held: numba's threads take one parallel kernel at a time.
    pointer = ctypes.c_void_p
    found = ctypes.PYFUNCTYPE(ctypes.c_int32, pointer, pointer)(made.get_pointer_to_function(start.name))
    found.library = made  # type: ignore[attr-defined]
    return found


@dataclass(frozen=True, slots=True)
class TrampolineBuilder:
    """Writes functions around the kernels of a signature into ``module``."""

    title: str
    signature: Sequence[Any]
    module: Any
    ir: Any

    def alone(self) -> Any:
        """A function that calls the kernel at an address with the arguments in the words."""
        ir = self.ir
        function, builder = self.function("alone", ir.IntType(32), [ir.IntType(64), ir.IntType(64).as_pointer()])
        address, words = function.args
        builder.ret(self.call(builder, address, words, {}))
        return function

    def spread(self, last: int) -> Any:
        """Each thread with its part of the blocks; the result is not 0 where one of theirs is not."""
        ir = self.ir
        word, byte, status = ir.IntType(64), ir.IntType(8), ir.IntType(32)
        part = self.part(last)
        function, builder = self.function("spread", status, [word, word.as_pointer()])
        count_type = ir.FunctionType(word, [])
        run_type = ir.FunctionType(ir.VoidType(), [byte.as_pointer()] * 5 + [word] * 3)
        threads = builder.call(ir.Function(self.module, count_type, "get_num_threads"), [])
        address, words = function.args
        with builder.if_then(builder.icmp_unsigned("==", threads, word(1))):  # another thread costs more than a jump
            builder.ret(self.call(builder, address, words, {}))
        first, behind = self.word(builder, words, last - 1), self.word(builder, words, last)
        parts = builder.alloca(word, builder.mul(threads, word(2)))
        result, sizes, kernel = builder.alloca(status), builder.alloca(word), builder.alloca(word)
        builder.store(status(0), result)
        builder.store(threads, sizes)
        builder.store(address, kernel)
        arrays = ((parts, 16), (words, 0), (result, 0), (kernel, 0))
        given, steps = (builder.alloca(kind, word(len(arrays))) for kind in (byte.as_pointer(), word))
        for n, (pointer, step) in enumerate(arrays):
            builder.store(builder.bitcast(pointer, byte.as_pointer()), builder.gep(given, [word(n)]))
            builder.store(word(step), builder.gep(steps, [word(n)]))

        def share(thread: Any) -> Any:
            """The block that this thread begins with."""
            of = builder.udiv(builder.mul(builder.sub(behind, first), thread), threads)
            return builder.add(first, of)

        with self.counted(builder, threads) as loop:
            thread = loop.index
            at = builder.mul(thread, word(2))
            builder.store(share(thread), builder.gep(parts, [at]))
            builder.store(share(builder.add(thread, word(1))), builder.gep(parts, [builder.add(at, word(1))]))
        run = ir.Function(self.module, run_type, "numba_parallel_for")
        pointers = [builder.bitcast(p, byte.as_pointer()) for p in (part, given, sizes, steps)]
        builder.call(run, [*pointers, ir.Constant(byte.as_pointer(), None), word(0), word(len(arrays)), threads])
        builder.ret(builder.load(result))
        return function

    def part(self, last: int) -> Any:
        """The function that a thread runs: of arrays (its blocks, the words, the result, the kernel's address), of
        their number, and of their steps.
        """
        ir = self.ir
        word, byte, status = ir.IntType(64), ir.IntType(8), ir.IntType(32)
        takes = [byte.as_pointer().as_pointer(), word.as_pointer(), word.as_pointer(), byte.as_pointer()]
        function, builder = self.function("part", ir.VoidType(), takes)
        arrays, sizes = function.args[:2]
        parts, words, result, kernel = (
            builder.bitcast(builder.load(builder.gep(arrays, [word(n)])), kind.as_pointer())
            for n, kind in enumerate((word, word, status, word))
        )
        address = builder.load(kernel)
        with self.counted(builder, builder.load(sizes)) as loop:
            at = builder.mul(loop.index, word(2))
            first = builder.load(builder.gep(parts, [at]))
            behind = builder.load(builder.gep(parts, [builder.add(at, word(1))]))
            found = self.call(builder, address, words, {last - 1: first, last: behind})
            with builder.if_then(builder.icmp_signed("!=", found, status(0))):
                builder.store_atomic(found, result, "monotonic", 4)
        builder.ret_void()
        return function

    def function(self, name: str, result: Any, takes: Sequence[Any]) -> tuple[Any, Any]:
        """A new function of the module, and the builder of its body."""
        ir = self.ir
        function: Any = ir.Function(self.module, ir.FunctionType(result, takes), f"idgraph_{name}_{self.title}")
        return function, ir.IRBuilder(function.append_basic_block())

    def counted(self, builder: Any, count: Any) -> Any:
        """A loop: the code written within runs for each index below ``count``."""
        return import_module("numba.core.cgutils").for_range(builder, count)

    def word(self, builder: Any, words: Any, at: int) -> Any:
        return builder.load(builder.gep(words, [self.ir.Constant(self.ir.IntType(64), at)]))

    def call(self, builder: Any, address: Any, words: Any, instead: dict[int, Any]) -> Any:
        """The result of the kernel at ``address``; some words are given ``instead``."""
        registry, types = import_module("numba.core.registry"), import_module("numba.core.types")
        ir, context = self.ir, registry.cpu_target.target_context
        kind: Any = context.call_conv.get_function_type(types.none, tuple(self.signature))
        word, byte = ir.IntType(64), ir.IntType(8)
        with builder.goto_entry_block():
            values: list[Any] = [builder.alloca(t.pointee) for t in kind.args[:2]]
        at = 0
        for t in self.signature:
            taken = [instead[n] if n in instead else self.word(builder, words, n) for n in (at, at + 1)[: _words(t)]]
            at += len(taken)
            if len(taken) == 1:
                values += taken
                continue
            data, size = taken
            null, item = ir.Constant(byte.as_pointer(), None), ir.Constant(word, _item_size(t))
            pointer = builder.inttoptr(data, kind.args[len(values) + 4])
            values += [null, null, size, item, pointer, size, item]
        return builder.call(builder.inttoptr(address, kind.as_pointer()), values)


def _words(t: Any) -> int:
    """Words of one argument: an array's address and elements, or an integer."""
    return 2 if hasattr(t, "dtype") else 1


def _item_size(t: Any) -> int:
    return t.dtype.bitwidth // 8 if hasattr(t.dtype, "bitwidth") else 1
