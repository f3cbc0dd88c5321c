"""The functions that formulas name mean the same for scalars, arrays and numba."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from idgraph.codegen.runtime_lib import numpy_ops as arrays
from idgraph.codegen.runtime_lib import python_ops as scalars
from idgraph.codegen.runtime_lib.formulas import converted, literal
from idgraph.errors import EmitError
from idgraph.ir import DTYPES
from idgraph.runtime.cpu import namespace as cpu

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -1.5, 2.5, 1e-45, 6e-8, 2.98e-8, 6.1e-5, 65504.0, 65519.9, 65520.0, 3e38, -1e9,
  math.inf, -math.inf, math.nan, 1.00390625, 1.01171875, 2049.0, 2051.0]  # fmt: skip


def floats() -> np.ndarray[Any, Any]:
    bits = np.random.default_rng(0).integers(0, 2**32, 4000, dtype=np.uint32)
    near_halves = np.random.default_rng(1).integers(0x33000000, 0x47800000, 4000, dtype=np.uint32) & 0xFFFFF000
    with np.errstate(all="ignore"):
        return np.concatenate([bits.view(np.float32), near_halves.view(np.float32), np.array(SPECIAL, np.float32)])


def same(a: Any, b: Any) -> bool:
    with np.errstate(all="ignore"):  # signalling NaNs among the random bits
        return bool(np.array_equal(np.asarray(a, np.float64), np.asarray(b, np.float64), equal_nan=True))


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_rounding_of_half_types(name: str) -> None:
    x = floats()
    with np.errstate(all="ignore"):
        wanted = x.astype(np.float16 if name == "f16" else ml_dtypes.bfloat16).astype(np.float32)
        assert same(getattr(arrays, name)(x), wanted)
    assert same([getattr(scalars, name)(float(v)) for v in x], wanted)
    compiled = cpu.namespace()[name]
    assert same([compiled(v) for v in x], wanted)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_a_product_with_a_number_is_a_float32_first(name: str) -> None:
    """It has more bits than a float32: rounded at once, one product in forty is another."""
    words = np.arange(2**16, dtype=np.uint16)
    kind = np.float16 if name == "f16" else ml_dtypes.bfloat16
    with np.errstate(all="ignore"):
        x = words.view(kind).astype(np.float32)
        wanted = (x * np.float32(0.7)).astype(kind).astype(np.float32)
    number = scalars.f32(0.7)
    assert same([getattr(scalars, name)(float(v) * number) for v in x], wanted)


def test_every_half_loads() -> None:
    words = np.arange(2**16, dtype=np.uint16)
    names = cpu.namespace()
    assert same([names["f16_load"](w) for w in words], words.view(np.float16))
    with np.errstate(all="ignore"):
        assert same([names["bf16_load"](w) for w in words[::7]], words[::7].view(ml_dtypes.bfloat16).astype(np.float32))


BINARY = ["div", "maximum", "minimum", "fmod", "remainder", "floor_divide", "power", "atan2"]
UNARY = ["floor", "ceil", "trunc", "rint", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin",
         "cos", "tan", "tanh", "erf", "sign"]  # fmt: skip
POINTS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.75, -7.25, 1e300, 800.0, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions_agree(name: str) -> None:
    with np.errstate(all="ignore"):
        wanted = getattr(arrays, name)(np.array(POINTS))
    got = [getattr(scalars, name)(v) for v in POINTS]
    assert np.allclose(np.asarray(got, float), np.asarray(wanted, float), rtol=1e-14, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_agree(name: str) -> None:
    a, b = (np.array(v) for v in zip(*((x, y) for x in POINTS for y in POINTS), strict=True))
    with np.errstate(all="ignore"):
        wanted = getattr(arrays, name)(a, b)
    got = np.array([float(getattr(scalars, name)(float(x), float(y))) for x, y in zip(a, b, strict=True)])
    wrong = ~np.isclose(got, np.asarray(wanted, float), rtol=1e-14, atol=0, equal_nan=True)
    assert not [(x, y, g, w) for x, y, g, w in zip(a[wrong], b[wrong], got[wrong], wanted[wrong], strict=True)]


@pytest.mark.parametrize("name", ["int_floor_divide", "int_remainder", "int_fmod", "int_power"])
def test_integer_functions_agree(name: str) -> None:
    values = [0, 1, -1, 2, -3, 7, -8, 100]
    compiled = cpu.namespace()[name]
    for x in values:
        for y in values:
            with np.errstate(all="ignore"):
                wanted = int(np.asarray(getattr(arrays, name)(np.array(x), np.array(y))))
            assert scalars.i64(getattr(scalars, name)(x, y)) == wanted, (x, y)
            assert compiled(x, y) == wanted, (x, y)


def test_integers_wrap() -> None:
    for bits in (8, 16, 32, 64):
        wrap = getattr(scalars, f"i{bits}" if bits > 16 else f"int{bits}")
        assert [wrap(2 ** (bits - 1)), wrap(-(2 ** (bits - 1)) - 1), wrap(-1)] == [
            -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, -1,
        ]  # fmt: skip
    assert scalars.u8(-1) == 255
    assert scalars.toint(math.nan) == -(2**63) == scalars.toint(1e30)


def test_literals_are_values_of_their_type() -> None:
    names = vars(scalars)
    for dtype in DTYPES:
        for value in (0, 1, 2, -3, 300, 0.1, -(2**63)):
            got = eval(literal(value, dtype, exact=True), dict(names))  # noqa: S307  # our own literals
            with np.errstate(all="ignore"):
                wanted = np.array(value).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype, copy=False)
            if isinstance(value, int) and dtype not in ("bool", "float16", "bfloat16", "float32", "float64"):
                assert (got - value) % 2 ** (8 * wanted.itemsize) == 0
                assert np.iinfo(dtype).min <= got <= np.iinfo(dtype).max
            elif dtype != "uint8" and abs(value) < 1e5:
                assert got == wanted
    with pytest.raises(EmitError):
        literal(math.nan, "int32")


def test_every_conversion_has_a_text() -> None:
    for a in DTYPES:
        for b in DTYPES:
            assert "x" in converted("x", a, b)
