"""Additions to neighbouring elements of memory in one instruction, atomic for each element."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from idgraph.codegen.ops.plain import ADDS

VECTORS = (9, 0)
"""The compute capability from which on one instruction adds 8 or 16 bytes (PTX ISA 8.1, ``red``, ``.vec_32_bit``)."""


def additions(cc: tuple[int, int], cuda: Any, jit: Callable[[Any], Any]) -> dict[str, Any]:
    """``vaddN(array, at, values)`` adds N float32 to the elements from ``at`` on; ``at`` is proved aligned.

    The elements are global memory. Devices before compute capability 9.0 add them one by one.
    """
    return {f"vadd{n}": _vector(n) for n in ADDS} if cc >= VECTORS else _single(cuda, jit)


def _vector(width: int) -> Any:
    intrinsic: Any = import_module("numba.cuda.extending").intrinsic
    types: Any = import_module("numba.cuda.types")
    ir: Any = import_module("llvmlite.ir")
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

    def vadd4(array: Any, at: Any, values: Any) -> None:
        cuda.atomic.add(array, at, np.float32(values[0]))
        cuda.atomic.add(array, at + np.uint64(1), np.float32(values[1]))
        cuda.atomic.add(array, at + np.uint64(2), np.float32(values[2]))
        cuda.atomic.add(array, at + np.uint64(3), np.float32(values[3]))

    return {"vadd2": jit(vadd2), "vadd4": jit(vadd4)}
