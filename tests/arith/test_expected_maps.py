"""Index maps, layouts and layouts linear over bits of other compilers: right at every point, and as small.

Rows are written anew from what those systems state: XLA's indexing maps (a domain, constraints and a result), CuTe's
layout algebra (composition, complement, logical divide and product, coalescing) and Triton's linear layouts (a basis
vector for each bit of the input). Layouts are evaluated here from their definitions, texts by Python's own parser with
NumPy: the library gives nothing but the texts that it printed.

Long: tables of cases, each a line.
"""

from __future__ import annotations

import random
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.arith import CounterExample, Proof
from tools.judges.expressions import Bounds, cost, evaluate, points

# ---- XLA: `ranges (inclusive) | result | facts | a form that is as small as one expects` -----------------------------
XLA = """
d0:53..71 | d0%42 | | d0 - 42
d0:-5..-1 | d0%5 | | d0 + 5
d0:-4..0 | d0%5 | | d0%5
d0:-6..-1 | d0%5 | | d0%5
d0:0..1 s0:0..3 | d0 - s0//3*3 + s0 | | s0%3 + d0
d0:0..1 s0:0..3 | d0 - s0//3*12 + s0*7 | | s0%3*4 + s0*3 + d0
d0:0..1 s0:0..3 | 1 + d0 - (s0 + 1)//3*3 + s0 | | (s0 + 1)%3 + d0
d0:0..1 s0:0..5 | 2 + d0 - (s0 + 2)//4*4 + s0 | | (s0 + 2)%4 + d0
s0:0..3 | 5 + s0 - (s0 + 5)//7*7 | | (s0 + 5)%7
d0:0..7 d1:0..15 | d0 + d1//16 | | d0
d0:0..7 d1:0..15 | d1%16 | | d1
d0:0..8 d1:0..8 d2:0..8 | (d0*100 + d1*10 + d2)//100 | | d0
d0:0..8 d1:0..8 d2:0..8 | (d0*100 + d1*10 + d2)%100//10 | | d1
d0:0..8 d1:0..8 d2:0..8 | d2%10 | | d2
d0:0..9 d1:0..9 d2:0..9 | (d0*16 + d1*4 + d2)//8 | | d0*2 + (d1*4 + d2)//8
d0:0..9 d1:0..9 d2:0..9 | (d0*16 + d1*4 + d2)%8 | | (d1*4 + d2)%8
d0:0..7 d1:0..8 | -((d0*-11 - d1 + 109)//11) + 9 | | d0
d0:0..7 d1:0..8 | d0*11 + d1 + (d0*-11 - d1 + 109)//11*11 - 99 | | d1
s0:0..127 | (s0*128)%715 + (s0*128)//715*715 | | s0*128
s0:0..127 | (s0*128)%715 + (s0*64)//715*715 | | (s0*64)//715*715 + (s0*128)%715
d0:0..1023 d1:0..127 | d0%8*128 + d1 + d0//8*1024 | | d0*128 + d1
d0:0..127 d1:0..3071 | (d1*2 + d0//64)%3*256 + d0%64*4 + (d1*128 + d0)//192*768 | | d0*4 + d1*512
d0:0..3071 d1:0..127 | d0//1536*786432 + (d0*2 + d1//64)//3%1024*768 + (d0*2 + d1//64)%3*256 + d1%64*4 | | d0*512 + d1*4
s0:0..10000 | -(s0//144) + (s0*32 + 4639)//4608 | | 1
s0:0..10000 | -(s0//315) + (s0*2 - 40319)//630 + 65 | | 1
s0:0..1233 | s0 - s0//2//7*14 + s0//14*14 | | s0
d0:0..99 d1:0..99 | (d0*2 + d1)%2 | | d1%2
d0:0..99 | d0//16*16 + d0%16 | | d0
s0:0..1233 s1:0..127 | (s0*2 + s1//64)//3 | | (s0*128 + s1)//192
s0:0..1233 | (s0*6 + 9)//18 | | (s0*2 + 3)//6
s0:0..1233 s1:0..127 | (s0//3 + s1//3)//6 | | (s0//3 + s1//3)//6
s0:0..4 | (s0*16 - 497)//512 | | -1
s0:0..1233 | s0//2//-7 | | s0//2//-7
s0:0..40 s1:0..3 s2:0..12 s3:0..30 | (s0*458752 + s1 + s2*4 + s3*512)%20000 | | (s0*114688 + s3*128 + s2)%5000*4 + s1
s0:0..1 s1:0..127 | (s0*16 - s1//4//2 + s1//8*2)//4 | | s0*4 + s1//32
d0:0..11 d1:0..5 | (d0//3*3 + d1//2)//6 | | d0//6
d0:0..9 s0:0..19 | (s0 + d0 + d0)//2 | | d0 + s0//2
d0:0..127 | -d0%2 | | d0%2
d0:0..31 | d0%16 | d0 <= 7 | d0
d0:0..99 | d0//8 | d0//8 >= 5 & d0//8 <= 5 | 5
d0:0..99 | d0//40 | d0*8 >= 14 & d0*8 <= 33 | 0
d0:0..1999 s0:0..1 s1:0..2 | d0//100 | d0*6 + s0*3 + s1 >= 0 & d0*6 + s0*3 + s1 <= 599 | 0
d0:0..1999 s0:0..1 s1:0..2 | (d0*6 + s0*3 + s1)//600 | d0*6 + s0*3 + s1 <= 599 | 0
s0:0..6 | s0//6*6 | s0%6 == 0 | s0
s0:0..41 | (s0 - 3)//6*6 | s0%6 == 3 | s0 - 3
s0:0..41 | (s0 + 3)%6 | s0%6 == 3 | 0
s0:0..7 | s0//6*6 | s0%2 == 0 & s0%3 == 0 | s0
s0:-21..-2 | s0//6*6 | s0%2 == 0 & s0%3 == 0 | s0
s1:0..10 | s1//5*5 | s1%5 == 1 | s1 - 1
s0:0..99 | s0%42 | s0%6 == 3 & s0%7 == 5 | 33
s0:0..99 | s0//42*42 | s0%6 == 3 & s0%7 == 5 | s0 - 33
d0:0..9 s2:0..7 | s2//4*4 + d0%8 | d0%8 == 0 & s2%4 == 0 | s2
d0:0..4 | (d0 + 3)//2*2 | (d0 + 3)%2 == 0 | d0 + 3
d0:0..2 d1:0..4 | d0//2*2 + d1//2*2 | d0%2 == 0 & d1%2 == 0 | d0 + d1
d0:0..6 s0:0..2 | (d0*2 + s0 - 1)//14 | d0*2 + s0 >= 1 & d0*2 + s0 <= 13 | 0
d0:0..6 s0:0..2 | (d0*2 + s0 - 1)%14 | d0*2 + s0 >= 1 & d0*2 + s0 <= 13 | d0*2 + s0 - 1
d0:0..49 d1:0..59 | (d0*60 + d1)//60 | | d0
d0:0..49 d1:0..59 | (d0*60 + d1)%60 | | d1
d0:0..3 d1:0..7 d2:0..31 | (d0*256 + d1*32 + d2)//32%8 | | d1
d0:0..1 d1:0..2 d2:0..4 | ((d0*3 + d1)*5 + d2)//15 | | d0
d0:0..1 d1:0..2 d2:0..4 | ((d0*3 + d1)*5 + d2)//5%3 | | d1
d0:0..63 | d0//8*8 + (d0%8//2*2 + d0%2) | | d0
d0:0..511 | (d0//64*8 + d0//8%8)*8 + d0%8 | | d0
d0:0..511 | (d0//64 + d0%64//8*8)%8 | | d0//64
d0:0..31 d1:0..3 | (d0*4 + d1)//8*8 + (d0*4 + d1)%8 | | d0*4 + d1
d0:0..31 d1:0..3 | (d0*4 + d1)//8*2 + d0%2 | | d0
d0:0..31 | (31 - d0)//8 | | 3 - d0//8
d0:0..31 | (31 - d0)%8 | | 7 - d0%8
d0:0..11 | (d0 + 12)%12 | | d0
d0:0..11 | (d0 + 5 + 7)%12 | | d0
d0:0..11 | ((d0 + 5)%12 + 7)%12 | | d0
d0:0..11 s0:0..2 | (d0*3 + s0 + 36)//36 | | 1
s0:0..7 s1:0..7 | (s0*8 + s1)//64 | | 0
s0:0..7 s1:0..7 | (s0*9 + s1)//9 | | s0
s0:0..99 | (s0//4 + 1)*4 - s0//4*4 | | 4
s0:0..99 | (s0 + 4)//4 - s0//4 | | 1
s0:0..99 | (s0*3)//6 | | s0//2
s0:0..99 | (s0*3)%6 | | s0%2*3
s0:0..99 | (s0*3 + 2)//6 | | s0//2
s0:0..99 | (s0*3 + 2)%6 | | s0%2*3 + 2
"""


def rows(table: str) -> list[tuple[str, str, str, str]]:
    parts = [[p.strip() for p in line.split(" | ")] for line in table.replace("| |", "|  |").strip().splitlines()]
    return [(p[0], p[1], p[2] if len(p) > 3 else "", p[-1]) for p in parts]


def python(conditions: str) -> str:
    """In Python `&` binds more strongly than a comparison."""
    return " & ".join(f"({c})" for c in conditions.split(" & "))


def bounds(text: str) -> dict[str, Bounds]:
    found: dict[str, Bounds] = {}
    for part in text.split():
        name, _, ends = part.partition(":")
        lo, _, hi = ends.partition("..")
        found[name] = Bounds(int(lo), int(hi) + 1)
    return found


@pytest.mark.parametrize(("ranges", "text", "facts", "small"), rows(XLA), ids=[r[1] + " " + r[2] for r in rows(XLA)])
def test_indexing_maps(ranges: str, text: str, facts: str, small: str) -> None:
    box = bounds(ranges)
    api: dict[str, Any] = {n: (b.lo, b.hi) for n, b in box.items()}
    found = str(ig.simplify(text, api, [facts] if facts else ()))
    env = points(box)
    shape = next(iter(env.values())).shape
    hold = np.broadcast_to(np.asarray(evaluate(python(facts), env) if facts else True), shape)
    assert hold.any()
    for form in (found, small):
        same = np.broadcast_to(evaluate(text, env), shape) == np.broadcast_to(evaluate(form, env), shape)
        assert same[hold].all(), form
    assert cost(found) <= cost(small), found
    assert ig.prove_equal(text, small, api, [facts] if facts else ())


CLAIMS = """
d0:0..1999 s0:0..1 s1:0..2 | d0 <= 99 | d0*6 + s0*3 + s1 >= 0 & d0*6 + s0*3 + s1 <= 599
d0:0..99 | d0 >= 40 & d0 <= 95 | d0//8 >= 5 & d0//8 <= 11
s0:-99..99 | s0 >= -33 & s0 <= -13 | s0//3 >= -11 & s0//3 <= -5
s0:-99..99 | s0 >= 13 & s0 <= 33 | s0//-3 >= -11 & s0//-3 <= -5
d0:0..99 | d0 >= 2 & d0 <= 4 | d0*8 >= 14 & d0*8 <= 33
s0:-99..99 | s0 >= -3 & s0 <= -2 | s0*3 >= -11 & s0*3 <= -5
s0:-99..99 | s0 >= 2 & s0 <= 3 | s0*-3 >= -11 & s0*-3 <= -5
s0:-21..-2 | s0 >= -18 & s0 <= -6 | s0%2 == 0 & s0%3 == 0
s0:-21..-2 | s0%6 == 0 | s0%2 == 0 & s0%3 == 0
s1:0..10 | s1 >= 1 & s1 <= 6 | s1%5 == 1
d0:0..99 | d0%8 >= 1 & d0%8 <= 5 | d0%8 + 5 >= 6 & d0%8 + 5 <= 10
d0:0..9 s2:0..7 | d0 <= 8 & s2 <= 4 | d0%8 == 0 & s2%4 == 0
d0:0..8 s2:0..4 | d0 + s2 <= 20 | d0%8 == 0 & s2%4 == 0
s0:0..99 | s0 <= 75 | s0%6 == 3 & s0%7 == 5
"""


ABOUT = [[part.strip() for part in line.split(" | ")] for line in CLAIMS.strip().splitlines()]


@pytest.mark.parametrize(("ranges", "claim", "facts"), ABOUT)
def test_constraints_narrow_their_variables(ranges: str, claim: str, facts: str) -> None:
    """Also that the claim does not hold without the facts, with a point within the ranges."""
    api: dict[str, Any] = {n: (b.lo, b.hi) for n, b in bounds(ranges).items()}
    assert isinstance(ig.prove(claim, api, facts), Proof)
    alone = ig.prove(claim, api)
    if isinstance(alone, CounterExample):
        values = {n: np.asarray([v]) for n, v in alone.values.items()}
        assert not np.all(evaluate(python(claim), values)) and all(
            api[n][0] <= v[0] < api[n][1] for n, v in values.items()
        )


# ---- CuTe: shapes and strides, the first mode the fastest ------------------------------------------------------------
Layout = tuple[tuple[int, ...], tuple[int, ...]]


def offset(layout: Layout, x: int) -> int:
    total = 0
    for n, d in zip(*layout, strict=True):
        total += x % n * d
        x //= n
    return total


def text_of(layout: Layout, x: str = "x") -> str:
    """The layout's function of one index, as it is defined."""
    parts: list[str] = []
    weight = 1
    for k, (n, d) in enumerate(zip(*layout, strict=True)):
        digit = x if weight == 1 else f"({x})//{weight}"
        last = k == len(layout[0]) - 1
        parts.append(f"({digit})*{d}" if last else f"({digit})%{n}*{d}")
        weight *= n
    return " + ".join(parts)


def least(layout: Layout) -> int:
    """Operations of the layout's function with modes of one run joined: a sum of digits, each times its stride."""
    modes = [(n, d) for n, d in zip(*layout, strict=True) if n > 1]
    joined: list[tuple[int, int]] = []
    for n, d in modes:
        if joined and joined[-1][0] * joined[-1][1] == d:
            joined[-1] = (joined[-1][0] * n, joined[-1][1])
        else:
            joined.append((n, d))
    total, first = 0, True
    for k, (_, d) in enumerate(joined):
        if d:
            total += (k > 0) + (k < len(joined) - 1) + (d != 1) + (not first)
            first = False
    return total


def judged(text: str, size: int, values: list[int], most: int) -> None:
    found = str(ig.simplify(text, {"x": size}))
    env = {"x": np.arange(size)}
    assert np.broadcast_to(evaluate(found, env), (size,)).tolist() == values, found
    assert cost(found) <= most, f"{found}: {cost(found)} operations, {most} do"


COMPOSITIONS: list[tuple[Layout, Layout, Layout]] = [  # outer, inner, what CuTe says they come to
    (((6, 2), (8, 2)), ((4, 3), (3, 1)), ((2, 2, 3), (24, 2, 8))),
    (((20,), (2,)), ((5, 4), (4, 1)), ((5, 4), (8, 2))),
    (((10, 2), (16, 4)), ((5, 4), (1, 5)), ((5, 2, 2), (16, 80, 4))),
    (((4, 8), (8, 1)), ((32,), (1,)), ((4, 8), (8, 1))),
    (((8, 8), (8, 1)), ((8, 8), (8, 1)), ((64,), (1,))),
    (((8, 4), (1, 16)), ((4, 8), (1, 4)), ((8, 4), (1, 16))),
    (((16,), (3,)), ((4, 4), (4, 1)), ((4, 4), (12, 3))),
    (((4, 4), (4, 1)), ((2, 8), (8, 1)), ((2, 4, 2), (2, 4, 1))),
    (((2, 2, 2), (1, 8, 4)), ((8,), (1,)), ((2, 2, 2), (1, 8, 4))),
    (((3, 8), (59, 13)), ((3, 2), (1, 3)), ((3, 2), (59, 13))),
    (((8, 2), (2, 1)), ((4, 2), (2, 1)), ((4, 2), (4, 2))),
    (((12,), (1,)), ((3, 4), (4, 1)), ((3, 4), (4, 1))),
    (((6, 6), (1, 6)), ((6, 6), (6, 1)), ((6, 6), (6, 1))),
    (((24,), (5,)), ((2, 3, 4), (12, 4, 1)), ((2, 3, 4), (60, 20, 5))),
]


@pytest.mark.parametrize(("outer", "inner", "result"), COMPOSITIONS)
def test_composed_layouts(outer: Layout, inner: Layout, result: Layout) -> None:
    size = prod(inner[0])
    values = [offset(outer, offset(inner, x)) for x in range(size)]
    assert values == [offset(result, x) for x in range(size)]
    judged(text_of(outer, text_of(inner)), size, values, least(result))


COALESCED: list[tuple[Layout, Layout]] = [
    (((2, 1, 6), (1, 6, 2)), ((12,), (1,))),
    (((4, 2, 3), (2, 8, 16)), ((24,), (2,))),
    (((2, 2, 3), (1, 2, 8)), ((4, 3), (1, 8))),
    (((3, 5, 2), (10, 2, 1)), ((3, 5, 2), (10, 2, 1))),
    (((8, 8, 8), (1, 64, 512)), ((8, 64), (1, 64))),
    (((2,) * 8, (128, 64, 32, 16, 8, 4, 2, 1)), ((2,) * 8, (128, 64, 32, 16, 8, 4, 2, 1))),
    (((3,) * 8, (2187, 729, 243, 81, 27, 9, 3, 1)), ((3,) * 8, (2187, 729, 243, 81, 27, 9, 3, 1))),
    (((4, 3, 2, 5), (30, 2, 1, 6)), ((4, 3, 2, 5), (30, 2, 1, 6))),
    (((2, 2, 2, 2), (8, 1, 2, 4)), ((2, 8), (8, 1))),
    (((5, 2, 7), (1, 5, 20)), ((10, 7), (1, 20))),
]


@pytest.mark.parametrize(("layout", "result"), COALESCED)
def test_coalesced_layouts(layout: Layout, result: Layout) -> None:
    size = prod(layout[0])
    values = [offset(layout, x) for x in range(size)]
    assert values == [offset(result, x) for x in range(size)]
    judged(text_of(layout), size, values, least(result))


def complement(layout: Layout, size: int) -> Layout:
    """The layout of the offsets that others of ``size`` need beside those of ``layout``, by its definition."""
    shape: list[int] = []
    stride: list[int] = []
    reached = 1
    for d, n in sorted((d, n) for n, d in zip(*layout, strict=True) if n > 1):
        if d > reached:
            shape.append(d // reached)
            stride.append(reached)
        reached = d * n
    shape.append(-(-size // reached))
    stride.append(reached)
    return tuple(shape), tuple(stride)


COMPLEMENTS: list[tuple[Layout, int, Layout]] = [
    (((4,), (1,)), 24, ((6,), (4,))),
    (((6,), (4,)), 24, ((4,), (1,))),
    (((4,), (2,)), 24, ((2, 3), (1, 8))),
    (((2, 4), (1, 6)), 24, ((3,), (2,))),
    (((2, 2), (1, 6)), 24, ((3, 2), (2, 12))),
    (((4, 8), (1, 16)), 512, ((4, 4), (4, 128))),
]


@pytest.mark.parametrize(("layout", "size", "result"), COMPLEMENTS)
def test_a_layout_and_its_complement_are_all_offsets(layout: Layout, size: int, result: Layout) -> None:
    other = complement(layout, size)
    assert [offset(other, x) for x in range(prod(other[0]))] == [offset(result, x) for x in range(prod(result[0]))]
    both: Layout = (layout[0] + other[0], layout[1] + other[1])
    values = [offset(both, x) for x in range(size)]
    assert sorted(values) == list(range(size))
    judged(text_of(both), size, values, least(both))


DIVIDED: list[tuple[Layout, Layout, Layout]] = [  # layout, tile, the logical divide: tile modes, then the rest
    (((4, 2, 3), (2, 1, 8)), ((4,), (2,)), ((2, 2, 2, 3), (4, 1, 2, 8))),
    (((32,), (1,)), ((4,), (8,)), ((4, 8), (8, 1))),
    (((16,), (3,)), ((4,), (1,)), ((4, 4), (3, 12))),
    (((24,), (1,)), ((4,), (2,)), ((4, 2, 3), (2, 1, 8))),
    (((8, 4), (4, 1)), ((8,), (1,)), ((8, 4), (4, 1))),
    (((64,), (1,)), ((2, 4), (1, 8)), ((2, 4, 4, 2), (1, 8, 2, 32))),
]


@pytest.mark.parametrize(("layout", "tile", "result"), DIVIDED)
def test_divided_layouts(layout: Layout, tile: Layout, result: Layout) -> None:
    size = prod(layout[0])
    rest = complement(tile, size)
    inner: Layout = (tile[0] + rest[0], tile[1] + rest[1])
    values = [offset(layout, offset(inner, x)) for x in range(size)]
    assert values == [offset(result, x) for x in range(size)]
    judged(text_of(layout, text_of(inner)), size, values, least(result))


PRODUCTS: list[tuple[Layout, Layout, Layout]] = [  # layout, how it is repeated, the logical product
    (((2, 2), (4, 1)), ((6,), (1,)), ((2, 2, 2, 3), (4, 1, 2, 8))),
    (((2, 2), (4, 1)), ((4, 2), (2, 1)), ((2, 2, 4, 2), (4, 1, 8, 2))),
    (((4,), (1,)), ((3,), (1,)), ((4, 3), (1, 4))),
    (((8,), (1,)), ((2, 3), (3, 1)), ((8, 2, 3), (1, 24, 8))),
]


@pytest.mark.parametrize(("layout", "times", "result"), PRODUCTS)
def test_products_of_layouts(layout: Layout, times: Layout, result: Layout) -> None:
    highest = max(offset(times, x) for x in range(prod(times[0]))) + 1
    n = prod(layout[0])
    rest = complement(layout, n * highest)
    values = [offset(layout, x % n) + offset(rest, offset(times, x // n)) for x in range(n * prod(times[0]))]
    assert values == [offset(result, x) for x in range(len(values))]
    text = f"{text_of(layout, f'x%{n}')} + {text_of(rest, text_of(times, f'x//{n}'))}"
    judged(text, len(values), values, least(result))


@pytest.mark.parametrize("seed", range(24))
def test_transposed_digits(seed: int) -> None:
    """Up to eight groups of one index in another order, taken apart and put together in two steps."""
    pick = random.Random(seed)
    shape = tuple(pick.choice((2, 2, 3, 4, 5)) for _ in range(pick.randint(4, 8)))
    order = list(range(len(shape)))
    pick.shuffle(order)
    stride = [0] * len(shape)
    weight = 1
    for k in order:
        stride[k] = weight
        weight *= shape[k]
    layout: Layout = (shape, tuple(stride))
    size = prod(shape)
    half = prod(shape[: len(shape) // 2])
    split = f"(x//{half}*{half} + x%{half})"
    judged(text_of(layout, split), size, [offset(layout, x) for x in range(size)], least(layout))


# ---- Triton: layouts linear over bits --------------------------------------------------------------------------------
Bases = tuple[int, ...]


def applied(bases: Bases, x: int) -> int:
    out = 0
    for k, b in enumerate(bases):
        if x >> k & 1:
            out ^= b
    return out


def bits_text(bases: Bases, x: str = "x") -> str:
    """One term for each bit of the input, joined by xor."""
    return " ^ ".join(f"({x}//{1 << k}%2*{b})" for k, b in enumerate(bases) if b) or "0"


LINEAR: list[tuple[Bases, str]] = [
    ((1, 2, 4, 8, 16), "x"),
    ((0, 0, 0, 0, 0), "0"),
    ((1, 2, 4, 8, 16, 32, 64, 128, 256), "x"),
    ((1, 2, 4, 0, 0, 0, 0), "x%8"),
    ((0, 0, 1, 2), "x//4"),
    ((1, 4, 8, 2), "x%2 + x//2%4*4 + x//8*2"),
    ((4, 1, 2), "x%2*4 + x//2"),
    ((2, 4, 8, 16), "x*2"),
    ((1, 3, 6, 12), "x ^ (x//2)"),
    ((1, 2, 4, 9, 18, 36), "x ^ (x//8)"),
    ((1, 2, 4, 8 ^ 1, 16 ^ 2, 32 ^ 4, 64, 128), "x ^ (x//8%8)"),
    ((1, 2, 4, 8, 16 ^ 1, 32 ^ 2), "x ^ (x//16)"),
    ((1, 2, 4 ^ 1, 8 ^ 2), "x ^ (x//4)"),
    ((3, 6, 12, 24), "x ^ (x*2)"),
    ((8, 16, 1, 2), "x%4*8 + x//4"),
    ((1, 16, 2, 32), "x%2 + x//2%2*16 + x//4%2*2 + x//8*32"),
    ((16, 32, 64), "x*16"),
    ((0, 1, 0, 2), "x//2%2 + x//8*2"),
    ((1, 1 << 12, 2, 1 << 13, 4, 1 << 14), "x%2 + x//2%2*4096 + x//4%2*2 + x//8%2*8192 + x//16%2*4 + x//32*16384"),
    ((1, 2, 5, 10), "x ^ (x//4)"),
    ((1, 3), "x ^ (x//2)"),
    ((3, 1), "x*3%4 + 0*x"),
]


@pytest.mark.parametrize(("bases", "small"), LINEAR)
def test_linear_layouts(bases: Bases, small: str) -> None:
    size = 1 << len(bases)
    values = [applied(bases, x) for x in range(size)]
    judged(bits_text(bases), size, values, max(cost(small), 0))


@pytest.mark.parametrize(("first", "second"), list(product([b for b, _ in LINEAR if len(b) == 4][:5], repeat=2)))
def test_composed_linear_layouts(first: Bases, second: Bases) -> None:
    """The composition has the second layout's images of the first one's vectors as its basis."""
    wide = second + (0,) * 8
    both = tuple(applied(wide, b) for b in first)
    values = [applied(wide, applied(first, x)) for x in range(16)]
    assert values == [applied(both, x) for x in range(16)]
    inner = bits_text(first)
    text = bits_text(second, f"({inner})")
    most = cost(str(ig.simplify(bits_text(both), {"x": 16})))
    judged(text, 16, values, most)


TWO: list[tuple[Bases, Bases, str]] = [  # of a register and of a lane: bases of each, joined
    ((1, 2), (4, 8, 16), "x + y*4"),
    ((16, 32), (1, 2, 4), "x*16 + y"),
    ((1, 2, 4), (1, 2, 4), "x ^ y"),
    ((1, 2, 4, 8), (3, 6), "x ^ y ^ (y*2)"),
    ((1, 2), (4 ^ 1, 8 ^ 2), "(x + y*4) ^ y"),
    ((2, 4), (1, 8), "x*2 + y%2 + y//2*8"),
    ((8, 16, 32), (8 ^ 1, 16 ^ 2, 32 ^ 4), "(x ^ y)*8 + y"),
]


@pytest.mark.parametrize(("first", "second", "small"), TWO)
def test_layouts_of_two_inputs(first: Bases, second: Bases, small: str) -> None:
    sizes = {"x": 1 << len(first), "y": 1 << len(second)}
    found = str(ig.simplify(f"{bits_text(first)} ^ {bits_text(second, 'y')}", sizes))
    env = points({n: Bounds(0, k) for n, k in sizes.items()})
    values = [applied(first, int(x)) ^ applied(second, int(y)) for x, y in zip(env["x"], env["y"], strict=True)]
    assert np.broadcast_to(evaluate(found, env), env["x"].shape).tolist() == values, found
    assert cost(found) <= cost(small), found


@pytest.mark.parametrize(
    ("bits", "base", "shift"), [(3, 0, 3), (2, 0, 3), (3, 3, 3), (2, 4, 3), (1, 0, 1), (3, 4, 3), (2, 3, 4)]
)
def test_swizzles(bits: int, base: int, shift: int) -> None:
    """CuTe's Swizzle<bits, base, shift>, written by its digits; applied twice it is the identity."""
    low, high, width = 1 << base, 1 << (base + shift), 1 << bits
    size = high * width * 2
    values = [x ^ ((x // high % width) * low) for x in range(size)]
    above = f"x//{low * width}*{low * width}"
    text = f"{above} + ((x//{low}%{width}) ^ (x//{high}%{width}))*{low}" + (f" + x%{low}" if base else "")
    judged(text, size, values, 3 + (2 if base else 0))
    once = f"(x ^ (x//{high}%{width}*{low}))"
    judged(f"{once} ^ ({once}//{high}%{width}*{low})", size, list(range(size)), 0)
