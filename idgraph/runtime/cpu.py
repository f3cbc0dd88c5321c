"""The parts of compilation that only numba on the CPU needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import numpy as np

from idgraph.codegen.ops.compiled import rebound
from idgraph.codegen.printers.scalar import runs_parallel
from idgraph.errors import EmitError
from idgraph.kernel.ir import Kernel, Loop, walk
from idgraph.loading import load
from idgraph.passes.rows.sweep import COLUMN
from idgraph.runtime.cpu_math import row_functions


def load_numba() -> Any:
    """numba, or a clear error."""
    try:
        return load("numba")
    except ImportError as error:
        raise EmitError("target cpu needs numba", because=[str(error)], hint="pip install idgraph[cpu]") from None


@cache
def namespace() -> dict[str, Any]:
    """The names that kernels use, compiled for the CPU."""
    numba = load_numba()
    jit = numba.njit(error_model="numpy", inline="never")
    base: dict[str, Any] = {
        "f32": np.float32, "f64": np.float64, "i64": np.int64, "u64": np.uint64, "inf": math.inf, "nan": math.nan,
        "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "fmod": np.fmod, "power": math.pow,
        "atan2": math.atan2, "exp": math.exp, "fast_exp": math.exp, "exp2": np.exp2, "expm1": math.expm1,
        "log": math.log,
        "log2": math.log2, "log1p": math.log1p, "sqrt": math.sqrt, "sin": math.sin, "cos": math.cos, "tan": math.tan,
        "tanh": math.tanh, "erf": math.erf, "prange": numba.prange,
        "float_bits": jit(_float_bits), "bits_float": jit(_bits_float),
    }  # fmt: skip
    return {**rebound(base, jit), **row_functions(jit)}


def _float_bits(x: Any) -> Any:
    return np.float32(x).view(np.uint32)


def _bits_float(bits: Any) -> Any:
    return np.uint32(bits).view(np.float32)


def compiled(function: Callable[..., Any], kernel: Kernel) -> Callable[..., Any]:
    """``function`` compiled at its first call; the outermost loop over blocks runs on all cores.

    Kernels that differ in the names of their variables only, as those of the layers of a model do, are compiled once.
    """
    code = function.__code__
    constants = tuple((type(c).__name__, repr(c)) for c in code.co_consts)
    body = _Body((code.co_code, constants, code.co_names, code.co_argcount), function)
    rows = any(isinstance(s, Loop) and s.var.split("_")[0] == COLUMN for s in walk(kernel.body))
    return _shared(body, runs_parallel(kernel), rows)


@dataclass(frozen=True, slots=True)
class _Body:
    """A kernel's code without the names of its variables, which bytecode numbers."""

    code: tuple[object, ...]
    function: Callable[..., Any] = field(compare=False)


@lru_cache(maxsize=1024)
def _shared(body: _Body, parallel: bool, rows: bool) -> Callable[..., Any]:
    # Sums over a row may be taken in any order, so that they run as vectors; nothing else is allowed to change.
    order = {"reassoc"} if rows else False
    return load_numba().njit(body.function, error_model="numpy", parallel=parallel, fastmath=order)
