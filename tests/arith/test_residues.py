"""Congruences as facts: right wherever they hold, point by point, and the forms they give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.arith import CounterExample, Proof, parse, symbol
from tests.property.budget import examples
from tools.judges.expressions import Bounds, cost, evaluate, points

NAMES = ("a", "b", "k")
SIZES = (5, 12, 24, 30)


@st.composite
def residues(draw: st.DrawFn) -> str:
    """``x % m == r`` for a sum x, its negation, or a symbol that is a multiple of another and a rest."""
    x = draw(st.sampled_from(("a", "b", "a*3", "(a + b)", "(a - b)", "(2*a + b + 1)", "a*b")))
    m, r = draw(st.sampled_from((2, 3, 4, 6))), draw(st.integers(0, 5))
    return draw(st.sampled_from((f"{x}%{m} == {r}", f"{x}%{m} == {r % m}", f"{x}%2 != {r % 2}", f"a == k*{m} + {r}")))


@st.composite
def indices(draw: st.DrawFn) -> str:
    x = draw(st.sampled_from(("a", "b", "(a + b)", "(a - b)", "(a*3 + 1)", "(a + b + 2)", "(a*b)")))
    m = draw(st.sampled_from((2, 3, 4, 6, 12)))
    form = draw(st.sampled_from(("{x}//{m}*{m}", "{x}%{m}", "{x}//{m}*{m} + b", "({x} + k)%{m}", "{x}//{m}*{n} - a")))
    return form.format(x=x, m=m, n=2 * m)


ranges = st.fixed_dictionaries({n: st.sampled_from(SIZES) for n in NAMES})


def at_all_points(text: str, sizes: dict[str, int]) -> Any:
    env = points({n: Bounds(0, k) for n, k in sizes.items()})
    return np.broadcast_to(np.asarray(evaluate(text, env)), next(iter(env.values())).shape)


@settings(max_examples=examples(250))
@given(indices(), st.lists(residues(), min_size=1, max_size=3), ranges)
def test_forms_are_equal_where_the_residues_hold(text: str, facts: list[str], sizes: dict[str, int]) -> None:
    found = str(ig.simplify(text, sizes, facts=facts))
    hold = np.logical_and.reduce([at_all_points(f, sizes) for f in facts])
    event("used" if found != str(ig.simplify(text, sizes)) else "not used")
    assert not (at_all_points(text, sizes) != at_all_points(found, sizes))[hold].any(), found
    assert cost(found) <= cost(text)


@settings(max_examples=examples(150))
@given(st.lists(residues(), min_size=2, max_size=4), ranges)
def test_conjunctions_of_residues_keep_their_truth(texts: list[str], sizes: dict[str, int]) -> None:
    text = " & ".join(f"({t})" for t in texts)
    found = str(ig.simplify(text, sizes))
    assert (at_all_points(text, sizes) == at_all_points(found, sizes)).all(), found


@pytest.mark.parametrize(
    ("text", "facts", "found"),
    [
        ("s//6*6", "s % 6 == 0", "s"),
        ("s%6", ("s%2 == 1", "s%3 == 2"), "5"),  # coprime moduli
        ("s%12", ("s%4 == 1", "s%6 == 3"), "9"),  # moduli with a common factor
        ("s%4", ("s%4 == 1", "s%6 == 2"), "s%4"),  # no number satisfies both
        ("(a + b)//4*4", "(a + b)%4 == 0", "a + b"),
        ("(a + b + 1)//4*4", "(a + b)%4 == 3", "a + b + 1"),
        ("(s + 1)//2*2", "s%2 != 0", "s + 1"),
        ("s//8*8", "s == k*8 + 4", "s - 4"),
        ("n*m//8*8", "n*m%8 == 0", "m*n"),
        ("(3*s)//6*6", "3*s%6 == 0", "s*3"),
        ("where(s%6 == 0, s//6*6, 0)", (), "where(s%6 == 0, s, 0)"),
        ("(s%2 == 0) & (s%3 == 0)", (), "s%6 == 0"),
        ("(s%4 == 1) & (s%6 == 2)", (), "False"),
        ("s//6*6 == s", (), "s%6 == 0"),
        ("x + 3 - (x + 3)//8*8", "x >= 0 & x < 6", "(x + 3)%8"),
    ],
)
def test_residues_are_used(text: str, facts: Any, found: str) -> None:
    assert str(ig.simplify(text, facts=facts)) == found


# ---- names that only the facts mention -------------------------------------------------------------------------
TILES = "d0*6 + s0*3 + s1 >= 0 & d0*6 + s0*3 + s1 <= 599"


def test_facts_as_text_keep_the_ranges_of_their_names() -> None:
    """A range of a name that only the facts have is used by proofs, equalities and forms, as text and as nodes."""
    sizes = {"d0": 2000, "s0": 2, "s1": 3}
    assert isinstance(ig.prove("d0 <= 99", sizes, TILES), Proof)
    assert isinstance(ig.prove("d0 <= 98", sizes, TILES), CounterExample)
    assert isinstance(ig.prove_equal("d0 % 100", "d0", sizes, TILES), Proof)
    assert str(ig.simplify("d0 % 100", sizes, TILES)) == "d0"
    assert str(ig.simplify("d0 // 100", sizes, [TILES, "s1 > 0"])) == "0"
    assert str(ig.simplify("d0 % 100", sizes, [parse(TILES)])) == "d0"


def test_a_counterexample_lies_within_the_ranges_of_the_facts() -> None:
    found = ig.prove("d0 <= 98", {"d0": 2000, "s0": 2, "s1": 3}, TILES)
    assert isinstance(found, CounterExample)
    assert 0 <= found.values["s0"] < 2 and 0 <= found.values["s1"] < 3


def test_a_name_of_a_bound_is_that_symbol() -> None:
    n = symbol("n", 1, 8)
    p = symbol("p", 0, n - 1)
    assert ig.simplify(p // 4, facts="n <= 4") == 0
    assert ig.simplify("p//4", {"p": "n", "n": (1, 9)}, "n <= 4") == 0


def test_names_without_ranges_are_any_integer() -> None:
    assert str(ig.simplify("d0 % 100", {"d0": 2000}, TILES)) == "d0%100"
