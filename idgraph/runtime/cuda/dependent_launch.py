"""Kernels of one stream that overlap at their ends: programmatic dependent launch (compute 9.0 up).

Between two kernels of a stream a device is idle for a microsecond or two: the second one's blocks are placed only when
the first one's writes can be seen. A kernel that begins with ``in_stream_order()`` waits for that by itself before it
touches memory, so its blocks may be placed while the last ones of the kernel before end. Results are the
same. The launch has to allow the overlap (`idgraph.runtime.cuda.driver`), else the instruction does nothing.

A kernel could also signal when the next one's blocks may be placed (griddepcontrol.launch_dependents). Measured on an
H200, that gains nothing over the end of its blocks, and cost one kernel 8 per cent.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

FIRST_CC = (9, 0)
WAIT = "griddepcontrol.wait"


def stream_order(cc: tuple[int, int]) -> dict[str, Any]:
    """``in_stream_order()``, the first statement of each kernel; nothing on devices that have no such launch."""
    intrinsic: Any = import_module("numba.cuda.extending").intrinsic
    types: Any = import_module("numba.cuda.types")
    ir: Any = import_module("llvmlite.ir")

    def in_stream_order(typingctx: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if cc >= FIRST_CC:
                kind = ir.FunctionType(ir.VoidType(), [])
                builder.asm(kind, f"{WAIT};", "~{memory}", [], True)
            return context.get_dummy_value()

        return types.void(), codegen

    return {"in_stream_order": intrinsic(in_stream_order)}


def waits(ptx: str) -> bool:
    """True for a kernel that waits by itself for those before it.

    >>> waits("griddepcontrol.wait;"), waits("ret;")
    (True, False)
    """
    return WAIT in ptx
