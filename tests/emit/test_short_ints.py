"""Conversions through 32 bits: only where every value fits, at the ends of what fits."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.kernel.ir import Compute, Local, walk
from idgraph.passes.narrowing import narrow_int64


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
