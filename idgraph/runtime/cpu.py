"""The parts of compilation that only numba on the CPU needs."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from idgraph.codegen.ops.compiled import rebound
from idgraph.errors import EmitError
from idgraph.loading import load
from idgraph.runtime.cpu_math import by_width, hidden, row_functions


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
    short = row_functions(jit)
    base: dict[str, Any] = {
        "f32": np.float32, "f64": np.float64, "i64": np.int64, "u64": np.uint64, "inf": math.inf, "nan": math.nan,
        "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "fmod": np.fmod, "power": math.pow,
        "atan2": math.atan2, "exp": by_width(short["exp_near"], math.exp), "fast_exp": math.exp, "short_exp": math.exp,
        "exp_inside": by_width(short["exp_half"], math.exp), "exp2": np.exp2, "expm1": math.expm1, "log": math.log,
        "log2": math.log2, "log1p": math.log1p, "sqrt": math.sqrt, "sin": math.sin, "cos": math.cos, "tan": math.tan,
        "tanh": by_width(short["tanh32"], math.tanh), "erf": by_width(short["erf32"], math.erf),
        "count": hidden(), "float_bits": jit(_float_bits), "bits_float": jit(_bits_float),
    }  # fmt: skip
    return {**rebound(base, jit), **short}


def _float_bits(x: Any) -> Any:
    return np.float32(x).view(np.uint32)


def _bits_float(bits: Any) -> Any:
    return np.uint32(bits).view(np.float32)
