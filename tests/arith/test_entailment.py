"""Claims that follow from facts or ranges by sums, products and rounding: proved exactly where they follow."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.arith import is_true, symbol
from tests.property.budget import examples

ANY: dict[str, tuple[None, None]] = dict.fromkeys(("i1", "i2", "i3", "i4", "i5"), (None, None))


@pytest.mark.parametrize(
    ("claim", "facts"),
    [
        ("i1 < 3", "(i1 < i2) & (i2 <= i3) & (i3 <= 2)"),
        ("i1 < i5", "(i1 < i2) & (i2 <= i3) & (i3 <= i4) & (i4 <= i5)"),
        ("2*i1 < 3", "(2*i1 <= i2) & (i2 < i3) & (i3 <= i4) & (i4 <= 3)"),
        ("i1 - i2 < 5", "(i1 - i3 < 2) & (i3 - i4 <= 1) & (i4 - i2 <= 2)"),
        ("i1 + i2 <= 6", "(i1 <= i3) & (i3 <= i4) & (i4 <= 3) & (i2 <= i4)"),  # i4 <= 3 serves twice
        ("i1 == i4", "(i1 <= i2) & (i2 <= i3) & (i3 <= i4) & (i4 <= i1)"),
        ("i1 <= 1", "(3*i1 <= i2 + i3) & (i2 <= 2) & (i3 <= 3)"),  # 5 // 3
        ("i1//4 <= i4//4", "(i1 <= i2) & (i2 <= i3) & (i3 <= i4)"),
        ("i1//4 < i4//4 + 1", "(i1 <= i2) & (i2 <= i3) & (i3 <= i4)"),
        ("i1//4 < i4//4", "(i1 <= i2) & (i2 <= i3) & (i3 <= i4 - 4)"),
        ("i1 < min(i4, i5)", "(i1 < i2) & (i2 <= i3) & (i3 <= i5) & (i3 <= i4)"),
        ("max(i1, i2) < i4", "(i1 < i3) & (i2 < i3) & (i3 <= i4)"),
        ("min(i1, i5) < i4", "(i1 < i2) & (i2 <= i3) & (i3 <= i4)"),
        ("i1 <= max(i4, i5)", "(i1 <= i2) & (i2 <= i3) & (i3 <= i4)"),
    ],
)
def test_chains_of_facts(claim: str, facts: str) -> None:
    assert type(ig.prove(claim, ANY, facts)).__name__ == "Proof"
    assert not ig.prove(claim, ANY, facts.rsplit(" & ", 1)[0])


def test_a_chain_ends_in_a_range() -> None:
    facts = "(i1 < i3) & (i3 <= i4) & (i4 <= 4) & (i2 < 4)"
    assert ig.prove("i1*4 + i2 < 16", {"i1": (0, None), "i2": (0, None)}, facts)
    assert not ig.prove("i1*4 + i2 < 15", {"i1": (0, None), "i2": (0, None)}, facts)


def distances(edges: list[tuple[int, int, int]], count: int) -> list[list[float]]:
    """The least k for which ``x[a] - x[b] <= k`` follows, by shortest paths."""
    best = [[0.0 if a == b else float("inf") for b in range(count)] for a in range(count)]
    for a, b, k in edges:
        best[a][b] = min(best[a][b], k)
    for m, a, b in product(range(count), repeat=3):
        best[a][b] = min(best[a][b], best[a][m] + best[m][b])
    return best


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(-2, 4)), min_size=2, max_size=9),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_differences_are_bounded_as_their_shortest_paths_are(edges: list[tuple[int, int, int]], a: int, b: int) -> None:
    edges = [e for e in edges if e[0] != e[1]]
    best = distances(edges, 5)
    if a == b or not edges or any(best[n][n] < 0 for n in range(5)):
        return
    x = [symbol(f"x{n}") for n in range(5)]
    facts = [x[p] - x[q] <= k for p, q, k in edges]
    least = best[a][b]
    event(f"follows: {least < float('inf')}")
    if least < float("inf"):
        assert is_true(x[a] - x[b] <= int(least), facts)
    assert not is_true(x[a] - x[b] <= int(min(least, 40)) - 1, facts)


@pytest.mark.parametrize(
    ("claim", "ranges"),
    [
        ("x*y <= x", {"x": (None, 1), "y": (1, None)}),
        ("x*y <= 0", {"x": (None, 1), "y": (0, None)}),
        ("x*y >= 0", {"x": (None, 1), "y": (None, -3)}),
        ("x*y <= 2*x", {"x": (None, 0), "y": (2, None)}),
        ("x*y <= 5*y", {"x": (None, 6), "y": (0, None)}),
        ("x*y <= 5*y", {"x": (0, 6), "y": (0, None)}),
        ("x*y + 12 >= 4*x + 3*y", {"x": (None, 4), "y": (None, 5)}),
        ("x*y*z <= 0", {"x": (None, 1), "y": (1, None), "z": (2, None)}),
    ],
)
def test_products_by_an_end_of_each_range(claim: str, ranges: dict[str, tuple[int | None, int | None]]) -> None:
    assert ig.prove(claim, ranges)
    less = claim.replace("<=", "<").replace(">=", ">")
    assert not ig.prove(less, ranges)


@pytest.mark.parametrize(
    "claim",
    [
        "(i + n - 1)//n == -(-i//n)",
        "(i - 1)//n + 1 == -(-i//n)",
        "(i + 2*n - 1)//(2*n) == -(-i//(2*n))",
        "(n - 1 - i)//n == -(i//n)",
        "(i*m + n - 1)//n == -(-(i*m)//n)",
        "(i + n - 1)//n*n - i == -i % n",
        "(i + n - 1)//n == -(-i//n) and i - n*(i//n) == i % n",
    ],
)
def test_rounding_up_by_a_symbol(claim: str) -> None:
    ranges = {"i": (None, None), "n": (1, None), "m": (1, None)}
    assert type(ig.prove(claim, ranges)).__name__ == "Proof"
    assert not ig.prove(claim.replace("n - 1", "n - 2").replace("i - 1", "i - 2"), ranges)


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("(12*a - 18)//30", "(a*2 - 3)//5"),
        ("(6*a + 9)//15", "(a*2 + 3)//5"),
        ("(18 - 12*a)//30", "(3 - a*2)//5"),
        ("(12*a + 18*b - 6)//24", "(a*2 + b*3 - 1)//4"),
        ("(12*a - 17)//30", "(a*2 - 3)//5"),  # 17/6 rounded
        ("(12*a - 18)//30 % 4", "(a*2 - 3)//5%4"),
    ],
)
@pytest.mark.parametrize("low", [None, 0, -7])
def test_dividend_and_divisor_have_no_common_factor(text: str, least: str, low: int | None) -> None:
    found = ig.simplify(text, {"a": (low, None), "b": (low, None)})
    assert str(found) == least
    given = ig.simplify(text)
    for a, b in product(range(-7 if low is None else low, 20), (0, 1, 5)):
        values = {k: v for k, v in (("a", a), ("b", b)) if k in found.names}
        assert found.evaluate(values) == given.evaluate(values)
