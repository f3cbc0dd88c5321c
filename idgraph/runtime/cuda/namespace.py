"""The names that kernels use, as device functions inlined into them, or as the simulator takes them."""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from idgraph.codegen.runtime_lib import python_ops as scalars
from idgraph.codegen.runtime_lib.numba_ops import rebound
from idgraph.codegen.runtime_lib.vector_ops import plain_pairs, plain_vectors
from idgraph.runtime.cuda.intrinsics_math import (
    exclusive,
    extrema,
    pair_functions,
    quotients,
    rounding,
    short_exp,
    short_forms,
    short_inverse,
    single_calls,
    software_bf16,
)
from idgraph.runtime.cuda.intrinsics_memory import additions, native_bf16, realigned, vectors
from idgraph.runtime.cuda.intrinsics_shuffle import exchanges, shuffles
from idgraph.runtime.cuda.numba_cuda import load_cuda, simulated, stream_order


def _word_value(word: Any) -> float:
    """The simulator's arrays give NumPy scalars, which overflow where Python's integers do not."""
    return scalars.bf16_load(int(word))


def _value_word(value: float) -> int:
    return scalars.bf16_word(scalars.f32(value))


def simulated_value(array: Any, element: Any) -> Any:
    """The value of an element as the simulator's array holds it: 16-bit words are bfloat16."""
    return _word_value(element) if array.dtype == np.uint16 else element


def simulated_element(array: Any, value: Any) -> Any:
    """A value as the simulator's array holds it."""
    return _value_word(value) if array.dtype == np.uint16 else value


def _nothing() -> None:
    """The simulator runs one kernel after the other."""


def _plus(a: Any, b: Any) -> Any:
    return a + b


def _times(a: Any, b: Any) -> Any:
    return a * b


_PAIRS: dict[str, Any] = {
    "sum": _plus, "prod": _times, "amax": scalars.maximum, "amin": scalars.minimum, "logsum": scalars.logaddexp,
    "near_logsum": scalars.logaddexp,
}  # fmt: skip


def dynamic_types(scalar: bool) -> dict[str, Any]:
    """Element types of arrays in dynamic shared memory, by name: what numba compiles, or what the simulator takes."""
    kinds = ("bool_", *(f"float{n}" for n in (16, 32, 64)), *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)))
    return {f"dynamic_{k}": getattr(np, k) if scalar else np.dtype(k) for k in kinds}


def namespace(cc: tuple[int, int]) -> dict[str, Any]:
    """The names that kernels use, as device functions inlined into them."""
    return _namespace(cc, simulated())


@cache
def _namespace(cc: tuple[int, int], plainly: bool) -> dict[str, Any]:
    cuda = load_cuda()
    if plainly:
        plain: dict[str, Any] = {k: v for k, v in vars(scalars).items() if not k.startswith("__")}
        return {
            **plain, "cuda": cuda, "np": np, "f16_load": float, "f16_word": np.float16,
            "bf16_load": _word_value, "shared_alignment": None, "in_stream_order": _nothing, "word": object,
            **plain_vectors(simulated_value, simulated_element),
            **plain_pairs({"bf16": _word_value, "f16": float}, {"bf16": _value_word, "f16": np.float16}),
            **exchanges(cuda, cuda.jit(device=True), _PAIRS, shuffles=False), **dynamic_types(scalar=False),
        }  # fmt: skip
    libdevice: Any = import_module("numba.cuda.libdevice")

    base: dict[str, Any] = {
        "cuda": cuda, "f32": np.float32, "f64": np.float64, "i64": np.int64, "u32": np.uint32, "u64": np.uint64,
        "inf": math.inf, "nan": math.nan, "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc,
        "fmod": math.fmod, "power": math.pow, "atan2": math.atan2, "exp": math.exp, "exp2": math.exp2,
        "expm1": math.expm1, "log": math.log, "log2": math.log2, "log10": math.log10, "log1p": math.log1p,
        "sqrt": math.sqrt, "sin": math.sin, "cos": math.cos, "tan": math.tan, "tanh": math.tanh, "erf": math.erf,
        "f16_load": np.float32, "f16_word": np.float16, "shared_alignment": 16, "word": np.uint32,
        "no_pair": np.uint32(0),
    }  # fmt: skip
    bits = {"libdevice": libdevice, "np": np}
    # Inlined where they are used: a device function would ask for a device, and PTX must not need one.
    jit = cuda.jit(device=True, inline="always")

    def float_bits(x: Any) -> Any:
        return np.uint32(libdevice.float_as_int(np.float32(x)))

    def bits_float(word: Any) -> Any:
        return libdevice.int_as_float(np.int32(word))

    base.update(
        float_bits=jit(float_bits),
        bits_float=jit(bits_float),
        **bits,
        **vectors(cc),
        **realigned(),
        **additions(cc, cuda, jit),
        **pair_functions(cc),
        **rounding(),
        **quotients(),
        **short_exp(),
        **short_inverse(),
        **single_calls(),
        **short_forms(cc),
        **exclusive(),
        **stream_order(cc),
    )
    if cc >= (8, 0):
        base.update(native_bf16())
    names = rebound({**base, **extrema(cc)}, jit)
    if cc < (8, 0):
        names.update(software_bf16(names, jit))
    pairs = {**{k: jit(f) for k, f in _PAIRS.items()}, "amax": names["maximum"], "amin": names["minimum"]}
    pairs |= {"logsum": names["logaddexp"], "near_logsum": names["near_logaddexp"]}
    return {**names, **exchanges(cuda, jit, pairs, shuffles=True), **shuffles(cc), **dynamic_types(scalar=True)}
