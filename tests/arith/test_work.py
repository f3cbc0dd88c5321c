"""A simplification has a budget: beyond it an expression stays as it is, equal, and says that it is not simplified."""

from __future__ import annotations

import sys
import threading
import time

import pytest

import idgraph as ig
from idgraph.arith import Expr, parse, strongest, symbol
from idgraph.arith import expr as meter
from idgraph.arith.expr import BUDGET, BudgetExceeded, budget, charge
from idgraph.arith.rewriter import normal


def nested(levels: int, name: str) -> Expr:
    """// and % of so many levels, each both of the level before: sums that grow with every level."""
    e = symbol(name, 0, 10**9)
    for n in range(levels):
        e = (e + n) // (n % 3 + 2) * 5 + e % (n % 5 + 3)
    return e


@pytest.mark.parametrize("levels", [28, 120])
def test_beyond_the_budget_it_stays_as_it_is(levels: int) -> None:
    e = nested(levels, f"over{levels}")
    started = time.process_time()
    found = ig.simplify(e)
    assert time.process_time() - started < 20  # about one, where nothing else runs
    assert found is e and not e.is_simplified
    assert ig.simplify(found) is found
    assert found.evaluate({f"over{levels}": 12345}) == e.evaluate({f"over{levels}": 12345})
    assert str(ig.simplify("(i*32 + j)//32", {"i": 4, "j": 32})) == "i", "the next call has a budget of its own"


def test_within_the_budget_it_is_simplified() -> None:
    e = nested(6, "within")
    found = ig.simplify(e)
    assert found.is_simplified
    for k in (*range(200), 10**9):
        assert found.evaluate({"within": k}) == e.evaluate({"within": k})


def test_proofs_and_facts_have_one_too() -> None:
    e = nested(40, "proved")
    assert normal(e) is e
    assert ig.simplify(e, facts=symbol("proved", 0, 10**9) < 100).evaluate({"proved": 99}) == e.evaluate({"proved": 99})


def test_a_call_inside_another_shares_its_budget() -> None:
    with budget() as outer:
        assert outer
        with budget() as inner:
            assert not inner
            charge(BUDGET)
        with pytest.raises(BudgetExceeded):
            charge(1)
    charge(10 * BUDGET)  # outside of any budget: nothing is counted


def test_each_thread_has_its_own() -> None:
    left: list[int | None] = []
    with budget():
        charge(BUDGET)
        other = threading.Thread(target=lambda: left.append(meter.meter.left))
        other.start()
        other.join()
    assert left == [None]
    assert "idgraph.arith.expr" in sys.modules


def test_choices_and_conditions_have_one_too() -> None:
    """What is assumed, and what facts imply, counts as well: thirty choices inside each other took ten seconds."""
    text = "i"
    for n in range(40):
        text = f"where(i < {n + 3}, {text} + {n}, j)"
    many = "(" + ") & (".join(f"i + a{n} < {n + 9}" for n in range(90)) + ")"
    for e, points in (
        (parse(text, {"i": 45, "j": 9}), [{"i": i, "j": 3} for i in range(45)]),
        (parse(many, {"i": 8}), [{"i": 7, **{f"a{n}": n + k for n in range(90)}} for k in (1, 2)]),
    ):
        started = time.process_time()
        found = ig.simplify(e)
        assert time.process_time() - started < 8  # about half a second, where nothing else runs
        assert [found.evaluate(p) for p in points] == [e.evaluate(p) for p in points]


def test_of_bounds_of_one_sum_the_narrowest_stays() -> None:
    i, j = symbol("i", 0, 999), symbol("j", 0, 999)
    bounds = [i + j < 900 - k for k in range(100)] + [i + j >= k for k in range(100)]
    assert [str(c) for c in strongest(bounds)] == ["i + j < 801", "i + j >= 99"]
