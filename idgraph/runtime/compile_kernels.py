"""The kernels of a program as functions, for each target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from idgraph.codegen.printers.scalar import site_numbers
from idgraph.codegen.runtime_lib import numpy_ops as arrays
from idgraph.codegen.runtime_lib import numpy_ops as memory
from idgraph.codegen.runtime_lib import python_ops as scalars
from idgraph.codegen.runtime_lib.vector_ops import plain_pairs, plain_vectors
from idgraph.runtime.binding import out_of_range
from idgraph.runtime.cpu import compiler as cpu_entry
from idgraph.runtime.cpu import namespace as cpu
from idgraph.runtime.cuda.compiler import compiled as cuda_compiled
from idgraph.runtime.executable import Executable
from idgraph.runtime.source_function import function_of

Array = npt.NDArray[Any]
Functions = dict[str, Callable[..., Any]]


def compile_functions(program: Executable, checked: bool) -> Functions:
    """The kernels as functions: of buffers and integers; for the CPU and CUDA, what lays launches out."""
    match program.target:
        case "cuda":
            return cuda_compiled(program, checked)
        case "python":
            base: dict[str, Any] = {
                **vars(scalars),
                **plain_vectors(),
                **_python_pairs(),
                "private": memory.private,
                "out_of_range": None,
            }
        case "numpy":
            base = {**vars(arrays), "private": memory.private, "require": None}
        case _:
            base = cpu.namespace()
    made: dict[str, Any] = {}
    for kernel in program.plan.kernels:
        names = dict(base)
        sites = site_numbers(kernel)
        if program.target == "python":
            names["out_of_range"] = _python_fault(sites)
        if program.target == "numpy":
            names["require"] = _numpy_require(sites)
        function = function_of(program.kernel_source(kernel, checked), kernel.name, names, program.target)
        made[kernel.name] = (
            cpu_entry.LazyKernel(program, kernel, function, checked) if program.target == "cpu" else function
        )
    return made


def _python_pairs() -> dict[str, Any]:
    """Pairs of Python's floats: what a buffer gives is the value already."""
    return plain_pairs(
        {"bf16": float, "f16": float},
        {"bf16": lambda x: scalars.bf16(scalars.f32(x)), "f16": lambda x: scalars.f16(scalars.f32(x))},
    )


def _python_fault(sites: list[Any]) -> Callable[..., NoReturn]:
    def fail(number: int, value: int, *point: int) -> NoReturn:
        raise out_of_range(sites[number - 1].site, value, list(point), None)

    return fail


def _numpy_require(sites: list[Any]) -> Callable[..., None]:
    def require(holds: Any, mask: Any, number: int, value: Any, loops: tuple[Array, ...]) -> None:
        bad = ~np.asarray(holds) if mask is None else ~np.asarray(holds) & mask
        if not bad.any():
            return
        bad, value, *point = np.broadcast_arrays(bad, value, *loops)
        first = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise out_of_range(sites[number - 1].site, int(value[first]), [int(v[first]) for v in point], None)

    return require
