"""exp and sigmoid rounded to 16 bits: errors of the short forms in units in the last place, PTX, a device's values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import idgraph as ig
from idgraph.ir import DType
from idgraph.kernel.ir import Compute, walk
from idgraph.runtime import Program, compile_ptx

Array = npt.NDArray[Any]
KINDS: dict[DType, tuple[Any, int, int]] = {  # type, bits of the fraction, exponent of the least normal number
    "float16": (np.float16, 10, -14),
    "bfloat16": (ml_dtypes.bfloat16, 7, -126),
}
LOG2_E = np.float32(1.4426950408889634)


def every(dtype: DType) -> Array:
    """All numbers of a type, as float32."""
    return np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(KINDS[dtype][0]).astype(np.float32)


def exact(name: str, x: Array) -> Array:
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        match name:
            case "exp":
                return np.exp(wide)
            case "expm1":
                return np.expm1(wide)
            case "tanh":
                return np.tanh(wide)
            case _:
                return 1.0 / (1.0 + np.exp(-wide))


def ulps(found: Array, wanted: Array, dtype: DType) -> Array:
    """The distance from the exact results in units in the last place; infinity where only one of two is finite."""
    kind, bits, least = KINDS[dtype]
    with np.errstate(all="ignore"):
        rounded = wanted.astype(np.float32).astype(kind).astype(np.float64)
        step = 2.0 ** (np.maximum(np.floor(np.log2(np.abs(wanted))), least) - bits)
        away = np.abs(found.astype(np.float64) - wanted) / np.where(wanted == 0, 2.0 ** (least - bits), step)
    same = (found.astype(np.float64) == rounded) | (np.isnan(rounded) & np.isnan(found.astype(np.float64)))
    finite = np.isfinite(rounded) & np.isfinite(found.astype(np.float64))
    return np.where(same & ~finite, 0.0, np.where(finite, away, np.inf))


def largest(name: str, found: Array, x: Array, dtype: DType) -> float:
    """The largest error. 1 / (1 + exp(-x)) in float32, as torch has it, is 0 where the result is not normal."""
    wanted = exact(name, x)
    away = ulps(found, wanted, dtype)
    lost = (np.abs(wanted) < 2.0**-126) & (np.abs(found.astype(np.float64)) < 2.0**-126)
    return float(away[~lost].max() if name == "sigmoid" else away.max())


def program(name: str, size: int, source: DType, to: DType) -> Program:
    """One function of an array, rounded to 16 bits."""
    f = ig.Fusion(name)
    x = f.input("x", (size,), source)
    f.output(getattr(ig, name)(x if source == to else x.to(to)))
    ig.schedule.auto(f)
    return ig.emit(f, "cuda")


@pytest.mark.parametrize("away", [-1, 1])
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("name", ["exp", "sigmoid"])
def test_the_error_that_the_instruction_may_have(name: str, dtype: DType, away: int) -> None:
    """2 ** (x * log2(e)), the product rounded and the power off by 2**-22, of every number of the type."""
    x = every(dtype)
    with np.errstate(all="ignore"):
        scaled = ((x if name == "exp" else -x) * LOG2_E).astype(np.float32)
        power = (np.exp2(scaled.astype(np.float64)) * (1 + away * 2.0**-22)).astype(np.float32)
        made = power if name == "exp" else (np.float32(1) / (np.float32(1) + power)).astype(np.float32)
        found = made.astype(KINDS[dtype][0])
    assert largest(name, found, x, dtype) <= 0.51


@pytest.mark.parametrize("dtype", KINDS)
def test_kernels_take_the_short_forms(dtype: DType) -> None:
    for name in ("exp", "sigmoid", "expm1", "tanh"):
        p = program(name, 4096, dtype, dtype)
        assert {s.op for k in p.kernels for s in walk(k.body) if isinstance(s, Compute)} >= {f"short_{name}"}
        text = "".join(str(x) for x in compile_ptx(p))
        assert "ex2.approx" in text and "fma.rm" not in text


def test_results_of_32_bits_keep_the_long_form() -> None:
    p = program("sigmoid", 4096, "float32", "float32")
    assert not any(isinstance(s, Compute) and s.op.startswith("short_") for k in p.kernels for s in walk(k.body))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("name", ["exp", "sigmoid", "expm1", "tanh"])
def test_errors_on_the_device(name: str, dtype: DType) -> None:
    x = every(dtype)
    with np.errstate(all="ignore"):
        given = x.astype(KINDS[dtype][0])
    found = program(name, x.size, dtype, dtype).run({"x": given})
    (made,) = found.values()
    assert largest(name, np.asarray(made).astype(np.float32), x, dtype) <= 0.51
