"""The parts of compilation that only numba on the CPU needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np

from idgraph.codegen.runtime_lib.numba_ops import rebound
from idgraph.errors import EmitError
from idgraph.loading import load
from idgraph.runtime.cpu.vector_abi import short_pipeline
from idgraph.runtime.cpu.vector_math import by_width, extremum, half_words, hidden, row_functions


def load_numba() -> Any:
    """numba, or a clear error."""
    try:
        return load("numba")
    except ImportError as error:
        raise EmitError("target cpu needs numba", because=[str(error)], hint="pip install numba") from None


@cache
def namespace() -> dict[str, Any]:
    """The names that kernels use, compiled for the CPU."""
    numba = load_numba()
    options = {  # no C code calls them
        "error_model": "numpy", "inline": "never", "no_cfunc_wrapper": True, "pipeline_class": short_pipeline(),
    }  # fmt: skip
    jit = numba.njit(**options)
    # Sums in any order, which kernels of rows have, are not for a function's own steps; loops with a call in them are
    # not made vectors.
    inlined = numba.njit(**options, fastmath=False, forceinline=True)
    short = row_functions(inlined)
    base: dict[str, Any] = {
        "f32": np.float32, "f64": np.float64, "i64": np.int64, "u64": np.uint64, "inf": math.inf, "nan": math.nan,
        "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "sqrt": math.sqrt,
        "fast_exp": math.exp, "short_exp": math.exp, "count": hidden(), "float_bits": jit(_float_bits),
        "bits_float": jit(_bits_float), "largest": extremum("llvm.maximum"), "least": extremum("llvm.minimum"),
        **half_words(inlined),
        **{name: by_width(short[form], short.get(wide, wide)) for name, (form, wide) in _FORMS.items()},
    }  # fmt: skip
    made = rebound(base, jit)
    for name in ("sign", "remainder", "floor_divide", "one_plus_erf", "one_minus_erf", "log1p_exp"):
        made[name] = by_width(short[f"{name}_32"], made[name])
    return {**made, **short}


_FORMS: Final[Mapping[str, tuple[str, Any]]] = {
    "exp": ("exp_near", "exp_double"), "exp_inside": ("exp_half", "exp_double"), "exp2": ("exp2_32", np.exp2),
    "expm1": ("expm1_32", "expm1_double"), "log": ("log_32", "log_double"), "log2": ("log2_32", math.log2),
    "log10": ("log10_32", math.log10), "log1p": ("log1p_32", "log1p_double"), "power": ("power_32", math.pow),
    "sin": ("sin_32", "sin_double"), "cos": ("cos_32", "cos_double"), "tan": ("tan_32", "tan_double"),
    "atan2": ("atan2_32", "atan2_double"), "fmod": ("fmod_32", np.fmod), "tanh": ("tanh32", "tanh_double"),
    "erf": ("erf32", "erf_double"),
}  # fmt: skip
"""Functions by the names of kernels: the form for float32, and the one for float64, or a library's function for it."""


def _float_bits(x: Any) -> Any:
    return np.float32(x).view(np.uint32)


def _bits_float(bits: Any) -> Any:
    return np.uint32(bits).view(np.float32)
