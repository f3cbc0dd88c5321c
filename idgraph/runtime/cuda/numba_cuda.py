"""numba.cuda as numba-cuda makes it, with a device or its simulator."""

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
            "target cuda needs numba-cuda", because=[str(error)], hint="pip install idgraph[cuda]"
        ) from None
    if "numba_cuda" not in str(cuda.__file__):
        raise EmitError(
            "numba.cuda is the one that numba ships, which is deprecated and lacks what the kernels use",
            because=[f"it was loaded from {cuda.__file__}"],
            hint="pip install 'numba-cuda[cu13]'",
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
