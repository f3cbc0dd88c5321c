"""Conversions through 32 bits, only where every value fits, at the ends of what fits; types beside deep loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.errors import EmitError
from idgraph.ir.device import TargetName
from idgraph.ir.dtypes import DType
from idgraph.kernel.ir import Compute, Local, walk
from idgraph.passes.narrowing import narrow_int64
from tests.emit.cuda_interpreter import interpret


def _is_short(lines: str, out: str) -> bool:
    text = f"""
kernel k():
  buffer x: float16[64] input "x"
  buffer w: float32[64] input "w"
  buffer y: {out}[64] output "y"
  for i < 64:
    {lines}
    y[i] = t
"""
    made = narrow_int64(ig.kernel.parse(text))
    made.verify()
    (cast,) = [s for s in walk(made.body) if isinstance(s, Compute) and s.local.name == "t"]
    (x,) = cast.operands
    assert isinstance(x, Local)
    return x.dtype == "int32" and x.name.endswith("_int")


@pytest.mark.parametrize(
    ("least", "most", "short"), [(0, 2**31 - 1, True), (0, 2**31, False), (-(2**31), 0, True), (-(2**31) - 1, 0, False)]
)
def test_an_integer_is_short_up_to_its_last_value(least: int, most: int, short: bool) -> None:
    lines = f"""a: int64 = cast({{i}})
    b: int64 = maximum(a, {most})
    c: int64 = minimum(b, {most})
    d: int64 = minimum(a, {least})
    e: int64 = add(c, d)
    t: float32 = cast(e)"""
    # e lies in [most + least, most + min(63, least)]: one of the two is 0, the other counts.
    assert _is_short(lines, "float32") == (short and most + least >= -(2**31))


@pytest.mark.parametrize(("extent", "short"), [(2**31, True), (2**31 + 1, False)])
def test_a_comparison_is_short_where_both_sides_are(extent: int, short: bool) -> None:
    text = f"""
kernel k():
  buffer y: bool[{extent}] output "y"
  for i < {extent}:
    a: int64 = cast({{i}})
    b: int64 = sub(a, 7)
    t: bool = gt(b, a) in int64
    y[i] = t
"""
    made = str(narrow_int64(ig.kernel.parse(text)))
    assert ("t: bool = gt(b_int, a_int) in int32" in made) == short


@pytest.mark.parametrize(
    ("source", "bound", "short"),
    [("x", 127, True), ("x", 64000, True), ("x", 65520, False), ("x", 100000, False), ("w", 100000, True)],
)
def test_what_a_float16_cannot_hold_is_infinite(source: str, bound: int, short: bool) -> None:
    dtype = "float16" if source == "x" else "float32"
    lines = f"""a: {dtype} = {source}[i]
    b: {dtype} = maximum(a, -{bound})
    c: {dtype} = minimum(b, {bound})
    t: int32 = cast(c)"""
    assert _is_short(lines, "int32") == short


def test_a_float_clamped_to_32_bits_leaves_no_room_for_rounding() -> None:
    lines = f"""a: float32 = w[i]
    b: float32 = maximum(a, 0)
    c: float32 = minimum(b, {2**31 - 1})
    t: int64 = cast(c)"""
    assert not _is_short(lines, "int64")  # 2^31 - 1 is 2^31 in float32


@pytest.mark.parametrize("target", ["python", "numpy", "cpu", "cuda"])
@pytest.mark.parametrize(
    ("dtype", "rank"), [("int8", 9), ("int16", 17), ("uint8", 9), ("int32", 33), ("int32", 66), ("int64", 66)]
)
def test_a_loop_is_not_called_as_a_type(target: TargetName, dtype: DType, rank: int) -> None:
    """The ninth loop is i8, and the 33rd i32: sources name the functions that wrap numbers, or the loops, otherwise."""
    shape = (2, *(1 for _ in range(min(rank, 20) - 2)), 3)
    f = ig.Fusion("deep")
    t = f.output(f.input("x", shape, dtype) + 1)
    while len(t.loop) < rank:
        t.split(1, 1)
    if target == "numpy" and rank > 32:
        with pytest.raises(EmitError, match="loops lie within each other"):
            ig.emit(f, target=target).run({"x": np.zeros(shape, dtype)})
        return
    inputs: dict[str, Any] = {"x": np.arange(6).reshape(shape).astype(dtype)}
    program = ig.emit(f, target=target)
    got = interpret(program, inputs) if target == "cuda" else program.run(inputs)
    np.testing.assert_array_equal(got[t.name], inputs["x"] + 1)
