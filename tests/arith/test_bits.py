"""Bits: what may be set, maps linear over bits, and expressions with xor against NumPy at every point."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.arith import parse
from idgraph.arith.known_bits import diagonals, from_diagonals, may_be_set
from tests.property.budget import examples
from tools.judges.expressions import Bounds, cost, divmods, evaluate, points

SIZES = (2, 4, 8, 12, 16, 32)


@st.composite
def layouts(draw: st.DrawFn) -> str:
    """Shifted digits, their multiples and sums, joined by xor: swizzles and linear layouts, and what is neither."""

    def digit() -> str:
        x = draw(st.sampled_from(("a", "b", "s", "a", "(a + b)", "(a ^ b)")))
        down, width = draw(st.sampled_from((1, 1, 2, 4, 8))), draw(st.sampled_from((0, 2, 4, 8)))
        x = x if down == 1 else f"({x}//{down})"
        x = f"({x}%{width})" if width else x
        return f"({x}*{draw(st.sampled_from((1, 1, 2, 3, 4, 8, 16)))})"

    def side() -> str:
        return " + ".join(digit() for _ in range(draw(st.integers(1, 2))))

    text = " ^ ".join(f"({side()})" for _ in range(draw(st.integers(2, 4))))
    end = draw(st.sampled_from(("", "", "%8", "//4", " + a//16*16", " ^ 5", " == 3")))
    return f"({text}){end}"


ranges = st.fixed_dictionaries({"a": st.sampled_from(SIZES), "b": st.sampled_from(SIZES)})


def box(sizes: dict[str, int]) -> dict[str, Bounds]:
    return {**{n: Bounds(0, k) for n, k in sizes.items()}, "s": Bounds(-5, 6)}


def values(text: str, sizes: dict[str, int]) -> np.ndarray:
    env = points(box(sizes))
    return np.broadcast_to(np.asarray(evaluate(text, env)), env["a"].shape)


def api(sizes: dict[str, int]) -> dict[str, int | tuple[int, int]]:
    return {**sizes, "s": (-5, 6)}


@settings(max_examples=examples(250))
@given(layouts(), ranges)
def test_layouts_keep_their_values(text: str, sizes: dict[str, int]) -> None:
    found = str(ig.simplify(text, api(sizes)))
    event("smaller" if cost(found) < cost(text) else "as it was")
    assert (values(text, sizes) == values(found, sizes)).all(), found
    assert cost(found) <= cost(text) and divmods(found) <= divmods(text)


@settings(max_examples=examples(250))
@given(layouts(), ranges)
def test_bits_left_out_are_never_set(text: str, sizes: dict[str, int]) -> None:
    e = parse(text, api(sizes))
    if not e.is_condition:
        bits = may_be_set(e)
        assert not (values(text, sizes) & np.int64(~bits)).any(), bin(bits)


@settings(max_examples=examples(250))
@given(layouts(), ranges)
def test_diagonals_are_the_expression(text: str, sizes: dict[str, int]) -> None:
    e = parse(text, api(sizes))
    found = None if e.is_condition else diagonals(e)
    made = None if found is None else from_diagonals(found)
    event("not linear" if made is None else "linear")
    if made is not None:
        assert (values(text, sizes) == values(str(made), sizes)).all(), made


@pytest.mark.parametrize(
    ("text", "sizes", "found"),
    [
        ("(x%2) ^ (x//2*2)", {}, "x"),
        ("(a*8) ^ b", {"b": 8}, "a*8 + b"),
        ("(x%8) ^ (x//8%8) ^ (x//8*8)", {}, "x ^ (x//8%8)"),  # CuTe's Swizzle<3, 0, 3>
        ("x//64*64 + ((x%8) ^ (x//8%8)) + x//8%8*8", {"x": 4096}, "x ^ (x//8%8)"),
        ("(x ^ (x//8%8)) ^ ((x ^ (x//8%8))//8%8)", {"x": 64}, "x"),  # applied twice: the identity
        ("(x%2) ^ (x//2%2*2) ^ (x//4%2*4) ^ (x//8%2*8)", {"x": 16}, "x"),
        ("(x%2) ^ (x//2%2*3) ^ (x//4%2*6) ^ (x//8%2*12)", {"x": 16}, "x ^ (x//2)"),  # a Gray code by its basis
        ("(x^y)%8 + (x^y)//8*8", {}, "x ^ y"),
        ("(x//4*4) ^ (y//4*4)", {}, "(x ^ y)//4*4"),
        ("x%4 ^ 12", {}, "x%4 + 12"),
        ("(x ^ 3) == 5", {}, "x == 6"),
        ("(x ^ y) == 0", {}, "x == y"),
    ],
)
def test_bits_are_gathered(text: str, sizes: dict[str, int], found: str) -> None:
    assert str(ig.simplify(text, sizes)) == found


def test_numbers_that_may_share_a_bit_are_not_added() -> None:
    assert str(ig.simplify("(a*8) ^ b", {"a": 8, "b": 9})) == "(a*8) ^ b"
    assert str(ig.simplify("(x%4) ^ (x//2*2)", {"x": 64})) != "x"
