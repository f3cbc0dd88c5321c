"""numba.cuda as numba-cuda makes it, with a device or its simulator.

Kernels of one stream that overlap at their ends: programmatic dependent launch (compute 9.0 up).

Between two kernels of a stream a device is idle for a microsecond or two: the second one's blocks are placed only when
the first one's writes can be seen. A kernel that begins with ``in_stream_order()`` waits for that by itself before it
touches memory, so its blocks may be placed while the last ones of the kernel before end. Results are the
same. The launch has to allow the overlap (`idgraph.runtime.cuda.driver`), else the instruction does nothing.

A kernel could also signal when the next one's blocks may be placed (griddepcontrol.launch_dependents). Measured on an
H200, that gains nothing over the end of its blocks, and cost one kernel 8 per cent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from idgraph.errors import EmitError


@cache
def load_cuda() -> Any:
    """numba.cuda as numba-cuda makes it, or a clear error."""
    if not hasattr(np, "row_stack"):
        # NumPy 2.5 dropped the name; numba 0.68 still asks for it when it is imported.
        np.row_stack = np.vstack  # pyright: ignore[reportAttributeAccessIssue]
    try:
        cuda: Any = import_module("numba.cuda")
    except ImportError as error:
        raise EmitError(
            "target cuda needs numba-cuda", because=[str(error)], hint='pip install ".[cuda]" in a checkout of idgraph'
        ) from None
    if "numba_cuda" not in str(cuda.__file__):
        raise EmitError(
            "numba.cuda is the one that numba ships, which is deprecated and lacks what the kernels use",
            because=[f"it was loaded from {cuda.__file__}"],
            hint='pip install ".[cuda]" in a checkout of idgraph',
        )
    return cuda


def simulated() -> bool:
    """True in numba's simulator, which is chosen by NUMBA_ENABLE_CUDASIM=1 when numba is imported."""
    load_cuda()
    return bool(import_module("numba.core.config").ENABLE_CUDASIM)


def need_device() -> Any:
    """numba.cuda with a device (or its simulator)."""
    cuda = load_cuda()
    if simulated() or cuda.is_available():
        return cuda
    raise EmitError(
        "there is no CUDA device to run on",
        hint="target 'cpu' runs here; NUMBA_ENABLE_CUDASIM=1 simulates a device; compile_ptx(program) needs none",
    )


@cache
def available() -> bool:
    """True when kernels can run here: a CUDA device, or numba's simulator."""
    try:
        need_device()
    except EmitError:
        return False
    return True


def microseconds(work: Callable[[], None], repeat: int) -> float:
    """Device time of one of ``repeat`` calls of ``work``, between two events."""
    device = need_device()
    begin, end = device.event(), device.event()
    begin.record()
    for _ in range(repeat):
        work()
    end.record()
    end.synchronize()
    return float(device.event_elapsed_time(begin, end)) * 1000 / repeat


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
