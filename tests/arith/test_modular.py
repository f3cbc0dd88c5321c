"""Divisibility through remainders, against the values at every point."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.arith import Expr, as_expr, divisible, simplify, symbol


@st.composite
def sums(draw: st.DrawFn) -> Expr:
    i, j = symbol("i", 0, 47), symbol("j", 0, 5)
    total = as_expr(draw(st.sampled_from((0, 4, 8, 3))))
    for _ in range(draw(st.integers(1, 4))):
        base = draw(st.sampled_from((i, j, i + j, 2 * i + 4, i % 12 + j)))
        c, m = draw(st.integers(-17, 33)), draw(st.sampled_from((2, 3, 4, 8, 12, 16)))
        total = total + c * draw(st.sampled_from((base, base % m, base // m, base // m * m)))
    return draw(st.sampled_from((total, simplify(total))))


@given(sums(), st.sampled_from((2, 3, 4, 8, 16)))
def test_what_is_proved_holds_everywhere(e: Expr, k: int) -> None:
    holds = all(int(e.evaluate({"i": i, "j": j})) % k == 0 for i in range(48) for j in range(6))
    assert holds or not divisible(e, k)


@pytest.mark.parametrize(("m", "wide"), [(32, 2048), (64, 131072), (256, 16384)])
def test_joined_digits(m: int, wide: int) -> None:
    """The address of a tile: the simplifier joins its digits, which hides what divides it."""
    i = symbol("i", 0, 1 << 20)
    e = simplify(i // m * m + i % m * wide)
    assert divisible(e, m)
    assert not divisible(e + 1, 2)
