"""Kernels of one stream that overlap at their ends: programmatic dependent launch (compute 9.0 up).

Between two kernels of a stream a device is idle for about a microsecond, since no block of the second is placed before
the last one of the first has ended. A kernel that begins with ``in_stream_order()`` lets the next one's blocks be placed
as soon as all its own are, and waits, before it touches memory, for all kernels before it to end and their writes to
be seen. So what is computed is as without; the launch has to allow it (`idgraph.emit.cuda.driver`), else the two
instructions do nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

FIRST_CC = (9, 0)
PLACE_NEXT, WAIT = "griddepcontrol.launch_dependents", "griddepcontrol.wait"


def stream_order(cc: tuple[int, int]) -> dict[str, Any]:
    """``in_stream_order()``, the first statement of each kernel; nothing on devices that have no such launch."""
    intrinsic: Any = import_module("numba.cuda.extending").intrinsic
    types: Any = import_module("numba.cuda.types")
    ir: Any = import_module("llvmlite.ir")

    def in_stream_order(typingctx: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if cc >= FIRST_CC:
                kind = ir.FunctionType(ir.VoidType(), [])
                builder.asm(kind, f"{PLACE_NEXT}; {WAIT};", "~{memory}", [], True)
            return context.get_dummy_value()

        return types.void(), codegen

    return {"in_stream_order": intrinsic(in_stream_order)}


def waits(ptx: str) -> bool:
    """True for a kernel that waits by itself for those before it.

    >>> waits("griddepcontrol.wait;"), waits("ret;")
    (True, False)
    """
    return WAIT in ptx
