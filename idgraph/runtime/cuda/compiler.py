"""CUDA programs compiled: to PTX, which needs no device, and loaded on one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from idgraph.codegen.runtime_lib.numpy_ops import storage_dtype
from idgraph.errors import EmitError
from idgraph.ir import DType
from idgraph.ir.device import current_device
from idgraph.kernel.ir import Kernel, most_threads
from idgraph.runtime.compile_workers import POOL
from idgraph.runtime.cuda.driver import DeviceKernel
from idgraph.runtime.cuda.namespace import namespace
from idgraph.runtime.cuda.numba_cuda import load_cuda, need_device, simulated
from idgraph.runtime.executable import Executable, cache_of, kernel_key
from idgraph.runtime.interrupts import run_uninterruptible, signal_safe
from idgraph.runtime.source_function import function_of


def kernel_functions(program: Executable, checked: bool, cc: tuple[int, int]) -> dict[str, Any]:
    """The kernels of a CUDA program as Python functions, not yet compiled."""
    names = namespace(cc)
    return {
        k.name: function_of(program.kernel_source(k, checked), k.name, dict(names), "cuda")
        for k in program.plan.kernels
    }


def compile_ptx(program: Executable, *, checked: bool = False, cc: tuple[int, int] = (9, 0)) -> list[str]:
    """PTX of each kernel for compute capability ``cc``; needs the CUDA compiler libraries but no device.

    Raises `EmitError` for a program of another target, or inside the simulator.
    """
    if program.target != "cuda":
        raise EmitError(f"PTX is made of cuda programs, this one is for {program.target}")
    if simulated():
        raise EmitError("the simulator compiles no PTX", hint="unset NUMBA_ENABLE_CUDASIM")
    known = program.texts.get((checked, cc))
    if known is not None:
        return list(known)
    functions: dict[str, Any] = {}

    def make(kernel: Kernel) -> str:
        made = POOL.take(kernel_key(program, kernel, checked, cc))
        if made is not None:
            return bounded(made, kernel)
        if not functions:
            functions.update(kernel_functions(program, checked, cc))
        given = arguments_like([b.dtype for b in kernel.buffers], len(kernel.scalars), checked)
        return bounded(ptx_of(functions[kernel.name], given, cc), kernel)

    kept = cache_of(program)
    if kept is None:
        found = [make(k) for k in program.plan.kernels]
    else:
        found = [kept.text(kernel_key(program, k, checked, cc), partial(make, k)) for k in program.plan.kernels]
    program.texts[checked, cc] = tuple(found)
    return found


def submit(program: Executable, checked: bool, cc: tuple[int, int] | None = None) -> None:
    """Have other processes compile the kernels that nobody has compiled yet; for the current device where ``cc`` names
    none."""
    if simulated():
        return
    if cc is None:
        major, minor = (int(n) for n in need_device().get_current_device().compute_capability)
        cc = major, minor
    kept = cache_of(program)
    for k in program.plan.kernels if (checked, cc) not in program.texts else ():
        key = kernel_key(program, k, checked, cc)
        if kept is None or kept.find(key) is None:
            request = {
                "target": "cuda", "name": k.name, "source": program.kernel_source(k, checked), "checked": checked,
                "types": [b.dtype for b in k.buffers], "scalars": len(k.scalars), "cc": cc,
            }  # fmt: skip
            POOL.submit(key, request)


def arguments_like(types: Sequence[DType], scalars: int, checked: bool) -> list[npt.NDArray[Any] | int]:
    """Arguments of the types of a kernel's: its buffers, its integers, and the memory of failures."""
    flat = [np.empty(0, storage_dtype(t)) for t in types]
    return [*flat, *(0 for _ in range(scalars)), *([np.empty(0, np.int64)] if checked else [])]


def bounded(ptx: str, kernel: Kernel) -> str:
    """PTX that tells the assembler how many threads a block has, where it might give each more registers than a
    processor has for all of them: such a block cannot be launched. The product of the three numbers counts (PTX ISA,
    performance-tuning directives), as in what nvcc makes of ``__launch_bounds__``.

    >>> from idgraph.arith import as_expr
    >>> k = Kernel("k", (), (), (), {"threadIdx.x": (as_expr(1024),), "blockIdx.x": (as_expr(7),)})
    >>> print(bounded(".visible .entry k(.param .u64 a)\\n{ret;}", k))
    .visible .entry k(.param .u64 a)
    .maxntid 1024, 1, 1
    {ret;}
    """
    threads = most_threads(kernel.launch)
    gpu = current_device()
    if threads <= gpu.registers // (gpu.thread_registers + 1):  # enough, however many each takes
        return ptx
    head, body = ptx[: (at := ptx.index("{", ptx.index(".entry")))].rstrip(), ptx[at:]
    return f"{head}\n.maxntid {threads}, 1, 1\n{body}"


def ptx_of(function: Callable[..., Any], given: Sequence[npt.NDArray[Any] | int], cc: tuple[int, int]) -> str:
    """PTX of one kernel for arguments like ``given``: arrays whose last axis is contiguous, and 64-bit integers."""
    from_dtype: Any = import_module("numba.cuda.np.numpy_support").from_dtype
    int64: Any = import_module("numba.cuda.types").int64

    def array(a: npt.NDArray[Any]) -> Any:
        return from_dtype(a.dtype)[(*(slice(None) for _ in range(max(a.ndim, 1) - 1)), slice(None, None, 1))]

    types = tuple(int64 if isinstance(a, int) else array(a) for a in given)

    with signal_safe():
        return explicit_negations(run_uninterruptible(lambda: load_cuda().compile_ptx(function, types, cc=cc)[0]), cc)


_EXTREMUM = re.compile(r"\b(?:max|min)\.s(?:16|32)\b")
_NEGATION = re.compile(r"\bneg\.s(16|32)(\s+)(%\w+), (%\w+);")
_THREE_OPERANDS = (9, 0)
"""The first compute capability that has extrema of three operands."""


def explicit_negations(ptx: str, cc: tuple[int, int]) -> str:
    """PTX in which the assembler finds no negation to fold into an extremum: ``-x`` is ``~x + 1``.

    The assembler of CUDA 13.0 makes one instruction of ``max(max(a, -b), c)``, and forgets the sign of ``b``.

    >>> print(explicit_negations("neg.s32 %r3, %r2;\\nmax.s32 %r4, %r1, %r3;\\nmax.s32 %r6, %r4, %r5;", (9, 0)))
    not.b32 %r3, %r2;
    add.s32 %r3, %r3, 1;
    max.s32 %r4, %r1, %r3;
    max.s32 %r6, %r4, %r5;
    """
    if cc < _THREE_OPERANDS or _EXTREMUM.search(ptx) is None:
        return ptx
    return _NEGATION.sub(r"not.b\1\2\3, \4;\nadd.s\1\2\3, \3, 1;", ptx)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` as kernels call it; one that is not inlined would ask for a device, and PTX must not need one."""
    return function if simulated() else load_cuda().jit(device=True, inline="always")(function)


def compiled(program: Executable, checked: bool) -> dict[str, Any]:
    """The kernels: compiled to PTX (or found in the program's cache) and loaded; in the simulator, its own."""
    cuda = need_device()
    if simulated():
        return {name: cuda.jit(f) for name, f in kernel_functions(program, checked, (0, 0)).items()}
    major, minor = (int(n) for n in cuda.get_current_device().compute_capability)
    texts = compile_ptx(program, checked=checked, cc=(major, minor))
    return {k.name: DeviceKernel(ptx) for k, ptx in zip(program.plan.kernels, texts, strict=True)}
