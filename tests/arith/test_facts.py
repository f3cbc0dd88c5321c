"""Facts besides ranges: forms and conjunctions that are right where the facts hold, compared point by point."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.arith import drop_redundant, is_true, parse, strongest, symbol
from tests.property.budget import examples
from tools.judges.expressions import Bounds, cost, evaluate, points

NAMES = ("a", "b", "c")
SIZES = (1, 2, 3, 4, 5, 8, 12)


@st.composite
def sums(draw: st.DrawFn) -> str:
    """A sum of one to three variables with small coefficients."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    return " + ".join(f"{n}*{draw(st.sampled_from((1, 1, 2, 3, 4, 8, -1, -3)))}" for n in names)


@st.composite
def conditions(draw: st.DrawFn) -> str:
    """A sum, quotient or remainder compared with a number."""
    part = draw(st.sampled_from(("({})", "({})", "({})", "({})//3", "({})%5"))).format(draw(sums()))
    return f"{part} {draw(st.sampled_from(('<', '<=', '>=', '>', '==', '!=')))} {draw(st.integers(-3, 30))}"


@st.composite
def divided(draw: st.DrawFn) -> str:
    """Quotients and remainders of sums, as indices have them."""
    op = draw(st.sampled_from(("//", "%")))
    return (
        f"({draw(sums())} + {draw(st.integers(0, 9))}){op}{draw(st.integers(2, 12))} + {draw(st.sampled_from(NAMES))}"
    )


ranges = st.fixed_dictionaries({n: st.sampled_from(SIZES) for n in NAMES})


def at_all_points(text: str, sizes: dict[str, int]) -> Any:
    env = points({n: Bounds(0, k) for n, k in sizes.items()})
    return np.broadcast_to(np.asarray(evaluate(text, env)), next(iter(env.values())).shape)


@settings(max_examples=examples(150))
@given(st.one_of(divided(), conditions()), st.lists(conditions(), min_size=1, max_size=3), ranges)
def test_forms_are_equal_where_the_facts_hold(text: str, facts: list[str], sizes: dict[str, int]) -> None:
    found = str(ig.simplify(text, sizes, facts=facts))
    hold = np.logical_and.reduce([at_all_points(f, sizes) for f in facts])
    event("the facts say something" if found != str(ig.simplify(text, sizes)) else "no use of the facts")
    assert not (at_all_points(text, sizes) != at_all_points(found, sizes))[hold].any(), found
    assert cost(found) <= cost(text)


@settings(max_examples=examples(150))
@given(st.lists(conditions(), min_size=2, max_size=4), ranges)
def test_what_is_left_of_a_conjunction_says_the_same(texts: list[str], sizes: dict[str, int]) -> None:
    kept = drop_redundant([parse(t, sizes) for t in texts])
    event(f"{len(texts) - len(kept)} dropped")
    whole = np.logical_and.reduce([at_all_points(t, sizes) for t in texts])
    left = np.logical_and.reduce([at_all_points(str(c), sizes) for c in kept])
    assert (whole == left).all(), kept


@pytest.mark.parametrize(
    ("text", "facts", "found"),
    [
        ("(2*i + j)//3", "2*i + j < 3", "0"),
        ("(2*i + j)%3", "2*i + j < 3", "i*2 + j"),
        ("(j - i)%3 + 5*i", "2*i + j < 3", "i*7 + j"),  # congruent to what the fact bounds
        ("(4*i + j)//5", ("4*i + j >= 5", "4*i + j < 10"), "1"),
        ("(8*i + 2*j)//34", "4*i + j < 17", "0"),
        ("(4*i + j)//n", "4*i + j < n", "0"),
        ("(4*i + j)%n", "4*i + j < n", "i*4 + j"),
        ("(4*i + j)//7", "4*i + j < 9", "(i*4 + j)//7"),  # two periods
    ],
)
def test_sums_within_one_period(text: str, facts: str | tuple[str, ...], found: str) -> None:
    assert str(ig.simplify(text, {"i": 8, "j": 4, "n": (1, None)}, facts=facts)) == found


def test_a_bound_implied_by_a_multiple_of_itself() -> None:
    """``7*y + z < 98`` leaves y at most 13, ``< 99`` leaves it at most 14."""
    y, z = symbol("y", 0), symbol("z", 0, 6)
    assert is_true(y < 14, [y * 7 + z < 98])
    assert is_true(y < 15, [y * 7 + z < 99]) and not is_true(y < 14, [y * 7 + z < 99])


def test_quotients_and_products_of_symbols_bound_alike() -> None:
    x, n, m = symbol("x", 0), symbol("n", 1), symbol("m", 1)
    assert ig.simplify(x // m < n) == ig.simplify(x < m * n)
    assert is_true(x < m * n, [x // m < n]) and is_true(x // m < n, [x < m * n])


def test_facts_of_other_types() -> None:
    i = symbol("i", 0, 7)
    assert (
        ig.simplify(i // 4, facts=i < 4)
        == 0
        == ig.simplify(i // 4, facts="i < 4")
        == ig.simplify(i // 4, facts=[i < 4])
    )
    assert ig.prove("i//4 < 1", {"i": 8}, facts="i < 4") and ig.prove_equal("i//4", "0", {"i": 8}, facts=["i < 4"])
    wrong: list[Any] = ["i + 1", i, [i + 1], [True], ["i < 4", 3]]
    for facts in wrong:
        with pytest.raises(ig.IdGraphError, match="a fact must be a condition"):
            ig.simplify(i // 4, facts=facts)


def test_ranges_may_be_numpys_integers() -> None:
    size: Any = np.int64(4)
    assert ig.simplify("i//4", {"i": size}) == 0


@settings(max_examples=examples(100))
@given(st.lists(conditions(), min_size=2, max_size=6), ranges)
def test_the_strongest_conditions_say_what_all_say(texts: list[str], sizes: dict[str, int]) -> None:
    kept = strongest([parse(t, sizes) for t in texts])
    whole = np.logical_and.reduce([at_all_points(t, sizes) for t in texts])
    left = np.logical_and.reduce([np.ones_like(whole), *(at_all_points(str(c), sizes) for c in kept)])
    assert (whole == left).all(), kept


def test_a_choice_that_is_a_remainder() -> None:
    ranges = {"i": 64}
    for text in ("where(i < 24, (i + 40) % 64, i - 24)", "where(i >= 24, i - 24, (i + 40) % 64)"):
        found = ig.simplify(text, ranges)
        assert str(found) == "(i + 40)%64"
    for text in ("where(i < 23, (i + 40) % 64, i - 24)", "where(i < 24, (i + 41) % 65, i - 24)"):
        found, wanted = ig.simplify(text, ranges), ig.simplify(text)
        assert all(found.evaluate({"i": n}) == wanted.evaluate({"i": n}) for n in range(64))


REST = "where(y < 15, y - 3, y - 15)"


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("where(y < 8, y + 12, where((y >= 8) & (y < 15), y - 3, y - 15))", f"where(y < 8, y + 12, {REST})"),
        ("where(y < 8, 1, where((y >= 8) & (y < 15), y - 3, y - 15))", f"where(y < 8, 1, {REST})"),
        ("where(y < 8, where(y < 9, y + 12, 3), where(y < 15, y - 3, y - 15))", f"where(y < 8, y + 12, {REST})"),
    ],
)
def test_a_choice_inside_a_choice_asks_no_more_than_is_open(text: str, least: str) -> None:
    """Also where a branch would be shorter with a modulus that the whole does not have."""
    made = ig.simplify(text, {"y": 20})
    assert str(made) == least and ig.simplify(made) is made
    given = parse(text, {"y": 20})
    assert all(made.evaluate({"y": y}) == given.evaluate({"y": y}) for y in range(20))


def test_numbers_that_differ_cut_the_ends_of_a_range() -> None:
    def holds(claim: str, facts: str) -> bool:
        return is_true(parse(claim, {"x": 8}), (parse(facts, {"x": 8}),))

    assert holds("x < 6", "(x != 7) & (x != 6)")
    assert holds("x == 5", "(x > 4) & (x != 7) & (x != 6)")
    assert holds("x > 3", "(x >= 2) & (x != 2) & (x != 3)")
    assert not holds("x < 6", "x != 6")
    assert not holds("x > 3", "(x >= 2) & (x != 3)")
    assert not holds("x != 5", "(x != 7) & (x != 6)")
