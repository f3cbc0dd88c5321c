"""Ranges of values: every number that NumPy computes at any point lies in them; checks that go are those that hold."""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.kernel.ir import BoundsCheck, Compute, If, Load, walk
from idgraph.passes.narrowing import narrow_int64
from idgraph.passes.value_range_analysis import Ranges, eliminate_bounds_checks

POINTS = 48
FLOATS = {"float32": np.float32, "float16": np.float16, "float64": np.float64}
INTS = {"int64": np.int64, "int32": np.int32, "uint8": np.uint8}
OF_TWO = ("add", "sub", "mul", "minimum", "maximum")


def _computed(op: str, a: Any, b: Any, dtype: Any, wide: bool) -> Any:
    """One operation; ``wide``: rounded as if it were contracted, once and not twice."""
    kind = np.float64 if wide and dtype is not np.float64 else dtype
    x, y = np.asarray(a).astype(kind), np.asarray(b).astype(kind)
    match op:
        case "add":
            return (x + y).astype(dtype)
        case "sub":
            return (x - y).astype(dtype)
        case "mul":
            return (x * y).astype(dtype)
        case "div":
            return (x / y).astype(dtype)
        case "minimum":
            return np.minimum(x, y).astype(dtype)
        case "maximum":
            return np.maximum(x, y).astype(dtype)
        case "floor":
            return np.floor(x).astype(dtype)
        case "round":
            return np.rint(x).astype(dtype)
        case "abs":
            return np.abs(x).astype(dtype)
        case "neg":
            return (-x).astype(dtype)
        case "remainder":
            return np.mod(x, y).astype(dtype)
        case "floor_divide":
            return np.floor_divide(x, y).astype(dtype)
        case _:
            raise AssertionError(op)


Drawn = tuple[str, str, int, int | float | None, int]


@st.composite
def _steps(draw: st.DrawFn) -> list[Drawn]:
    """(operation, type, first operand, number or None, second operand) of each step."""
    made: list[Drawn] = []
    for _ in range(draw(st.integers(4, 12))):
        dtype = draw(st.sampled_from([*sorted(FLOATS), "int64", "int64", "int32"]))
        of_floats = dtype in FLOATS
        ops = (*OF_TWO, "floor", "round", "abs", "neg", "div", "cast") if of_floats else (
            *OF_TWO, "remainder", "floor_divide", "neg", "cast")  # fmt: skip
        op = draw(st.sampled_from(ops))
        number = draw(
            st.sampled_from([0.5, 0.1, 3.0, -7.25, 1000.1, 1e-3])
            if of_floats
            else st.sampled_from([-9, 1, 2, 7, 300, 70000])
        )
        kept: int | float | None = draw(st.sampled_from([number, None, None]))
        if op in ("remainder", "floor_divide"):
            kept = abs(number)
        made.append((op, dtype, draw(st.integers(0, 30)), kept, draw(st.integers(0, 30))))
    return made


@settings(max_examples=400, deadline=None)
@given(_steps(), st.integers(0, 2**32 - 1), st.booleans())
def test_every_number_lies_in_its_range(drawn: list[Drawn], seed: int, wide: bool) -> None:
    rng = np.random.default_rng(seed)
    values: dict[str, Any] = {
        "i": np.arange(POINTS, dtype=np.int64),
        "u": rng.integers(0, 256, POINTS).astype(np.uint8),
        "w": np.where(rng.random(POINTS) < 0.2, np.nan, rng.normal(0, 100, POINTS)).astype(np.float32),
    }
    dtypes = {"i": "int64", "u": "uint8", "w": "float32"}
    lines = ["i: int64 = cast({p})", "u: uint8 = ub[p]", "w: float32 = wb[p]"]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for n, (op, dtype, a, number, b) in enumerate(drawn):
            names = list(values)
            first, second = names[a % len(names)], names[b % len(names)]
            kind = {**FLOATS, **INTS}[dtype]
            name = f"t{n}"
            if op == "cast":
                x = values[first]
                if dtypes[first] in FLOATS and dtype in INTS:
                    safe = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=-(2.0**62), posinf=0, neginf=0)
                    made = safe.astype(kind)
                else:
                    made = x.astype(kind)
                text = f"cast({first})"
            else:
                others = (
                    [first] if op in ("floor", "round", "abs", "neg") else [first, second if number is None else number]
                )
                used = [o for o in others if isinstance(o, str)]
                if dtype in INTS and any(dtypes[o] in FLOATS for o in used):
                    continue
                args = [values[o] if isinstance(o, str) else np.full(POINTS, o) for o in others]
                made = _computed(op, args[0], args[-1], kind, wide and dtype in FLOATS)
                text = f"{op}({', '.join(map(str, others))}) in {dtype}"
            values[name], dtypes[name] = made, dtype
            lines.append(f"{name}: {dtype} = {text}")
    body = "\n".join(f"    {x}" for x in lines)
    kernel = ig.kernel.parse(f"""
kernel k():
  buffer ub: uint8[{POINTS}] input "ub"
  buffer wb: float32[{POINTS}] input "wb"
  buffer y: float32[{POINTS}] output "y"
  for p < {POINTS}:
{body}
    y[p] = w
""")
    ranges = Ranges()
    for s in walk(kernel.body):
        if isinstance(s, Compute | Load):
            ranges.learn(s)
    for name, found in ranges.known.items():
        for x in values[name].tolist():
            if math.isnan(x):
                assert found.nan, (name, lines)
            else:
                assert found.lo <= x <= found.hi, (name, x, found, lines)


def _checks_left(lines: str, extent: int) -> int:
    body = "\n".join(f"    {x.strip()}" for x in lines.strip().splitlines())
    kernel = ig.kernel.parse(f"""
kernel k():
  where a in _, _
  buffer i: int64[200] input "i"
  buffer b: uint8[200] input "b"
  buffer w: float32[200] input "w"
  buffer x: float32[{extent}] input "x"
  buffer y: float32[200] output "y"
  for r < 200:
{body}
    let a = t
    check (a >= 0) & (a < {extent}), of a, site "x", axis 0, extent {extent}, index "i", in "y", at "f.py:1":
      v: float32 = x[a]
      y[r] = v
""")
    made = eliminate_bounds_checks(kernel)
    made.verify()
    return sum(isinstance(s, BoundsCheck) for s in walk(made.body))


@pytest.mark.parametrize(
    ("lines", "extent"),
    [
        ("c: int64 = i[r]\nd: int64 = maximum(c, 0)\nt: int64 = minimum(d, 6)", 7),
        ("t: uint8 = b[r]", 256),
        ("c: int64 = cast({r})\nd: int64 = floor_divide(c, 3)\nt: int64 = remainder(d, 50)", 50),
        ("c: int64 = i[r]\nt: int64 = remainder(c, 9)", 9),
        ("c: float32 = cast({r + 1})\nd: float32 = div(6.0, c)\nt: int64 = cast(d)", 7),
        # positions of a picture that becomes twice as large
        ("c: float32 = cast({r})\nd: float32 = add(c, 0.5)\ne: float32 = mul(d, 0.5)\ng: float32 = sub(e, 0.5)\n"
         "h: float32 = maximum(g, 0.0)\nt: int64 = cast(h)", 100),
        # a pixel where it is inside of the picture, else the first; a negative one counts from the end
        ("f: float32 = w[r]\np: bool = ge(f, 0.0) in float32\nq: bool = lt(f, 9.0) in float32\n"
         "m: bool = logical_and(p, q)\nc: int64 = cast(f)\nd: int64 = where(m, c, 0)\nn: bool = lt(d, 0) in int64\n"
         "e: int64 = add(d, 9)\nt: int64 = where(n, e, d)", 9),
        ("c: int64 = i[r]\np: bool = gt(c, -1) in int64\nq: bool = le(c, 6) in int64\nm: bool = logical_and(q, p)\n"
         "t: int64 = where(m, c, 3)", 7),
    ],
)  # fmt: skip
def test_a_check_goes_at_the_last_element_and_stays_before_it(lines: str, extent: int) -> None:
    assert _checks_left(lines, extent) == 0
    assert _checks_left(lines, extent - 1) == 1


@pytest.mark.parametrize(
    "lines",
    [
        "t: int64 = i[r]",
        "c: int64 = i[r]\nd: int64 = add(c, 1)\nt: int64 = minimum(d, 6)",  # below zero
        "c: int32 = cast({r*2147483647})\nt: int64 = cast(c)",  # wraps
        "c: int32 = cast({r})\nd: int32 = mul(c, 70000) in int32\ne: int32 = mul(d, 70000) in int32\n"
        "t: int32 = minimum(e, 6) in int32",  # wraps
        "c: float32 = w[r]\nd: float32 = maximum(c, 0.0)\ne: float32 = minimum(d, 6.0)\nt: int64 = cast(e)",  # NaN
        "c: float32 = cast({r})\nd: float32 = mul(c, 0.035)\nt: int64 = cast(d)",  # 6.965 and its roundings stay
        # the other one is chosen; one end is open
        "c: int64 = i[r]\np: bool = gt(c, -1) in int64\nq: bool = le(c, 6) in int64\nm: bool = logical_and(q, p)\n"
        "t: int64 = where(m, 3, c)",
        "c: int64 = i[r]\np: bool = le(c, 6) in int64\nt: int64 = where(p, c, 0)",
    ],
)
def test_what_may_leave_its_axis_is_checked(lines: str) -> None:
    assert _checks_left(lines, 7 if "0.035" not in lines else 6) == 1


@pytest.mark.parametrize("again", ["", "f: float32 = w[r]", "c: int64 = i[r]", "m: bool = lt(f, 99.0) in float32"])
def test_what_a_comparison_says_ends_where_one_of_them_is_set_again(again: str) -> None:
    lines = (
        "f: float32 = w[r]", "p: bool = ge(f, 0.0) in float32", "q: bool = lt(f, 9.0) in float32",
        "m: bool = logical_and(p, q)", "c: int64 = cast(f)", again, "t: int64 = where(m, c, 0)",
    )  # fmt: skip
    body = "\n".join(f"    {x}" for x in lines if x)
    kernel = ig.kernel.parse(f"""
kernel k():
  buffer i: int64[200] input "i"
  buffer w: float32[200] input "w"
  for r < 200:
{body}
""")
    ranges = Ranges()
    for s in walk(kernel.body):
        if isinstance(s, Compute | Load):
            ranges.learn(s)
    assert ranges.known["t"].within(0, 8) is not bool(again)


def test_nan_of_a_clamped_float_is_the_number_that_torch_has() -> None:
    text = """
kernel k():
  buffer w: float32[64] input "w"
  buffer y: OUT[64] output "y"
  for i < 64:
    a: float32 = w[i]
    b: float32 = maximum(a, -5.0)
    c: float32 = minimum(b, 5.0)
    t: OUT = cast(c)
    y[i] = t
"""
    assert "near_int" in str(narrow_int64(ig.kernel.parse(text.replace("OUT", "int8"))))
    assert "near_int" not in str(narrow_int64(ig.kernel.parse(text.replace("OUT", "int64"))))


UNDER_A_CONDITION = """
kernel k():
  where a in _, _
  buffer x: float32[7] input "x"
  buffer y: float32[10] output "y"
  for r < 12:
    if r < 10:
      u: int64 = cast({r + 7})
    if r < 3:
      t: int64 = cast({r})
      u: int64 = minimum(t, 6)
    if r < 10:
      let a = u
      check (a >= 0) & (a < 7), of a, site "x", axis 0, extent 7, index "i", in "y", at "f.py:1":
        v: float32 = x[a]
        y[r] = v
"""


def test_what_one_statement_sets_under_a_condition_has_its_range_behind_it() -> None:
    """A block that has fewer points than threads tests each of them, and an index is computed under the test."""
    assert "check" in str(eliminate_bounds_checks(ig.kernel.parse(UNDER_A_CONDITION)))
    once = UNDER_A_CONDITION.replace("    if r < 10:\n      u: int64 = cast({r + 7})\n", "").replace("r < 3", "r < 10")
    assert "check" not in str(eliminate_bounds_checks(ig.kernel.parse(once)))


@pytest.mark.parametrize("size", [(7, 9), (237, 31), (50, 13)])
def test_a_resize_to_any_size_tests_its_end_and_nothing_else(size: tuple[int, int]) -> None:
    """What all lanes compute stands behind one test of the end, not behind one for each tensor between."""
    torch = pytest.importorskip("torch")
    resize = partial(torch.nn.functional.interpolate, size=size, mode="bilinear", align_corners=True)
    (segment,) = ig.from_torch(resize, (torch.empty(2, 3, 10, 12),)).segments
    assert segment.fusion is not None
    ig.schedule.auto(segment.fusion)
    for kernel in ig.emit(segment.fusion, "cuda").kernels:
        assert not [s for s in walk(kernel.body) if isinstance(s, BoundsCheck)]
        tests = [s.condition for s in walk(kernel.body) if isinstance(s, If)]
        assert len(tests) == len(set(tests)), kernel
