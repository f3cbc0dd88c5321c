"""L7: simplification keeps every value, never adds cost or divisions, is idempotent and independent of term order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.arith import Expr, parse, simplify, symbol
from tools.judges.expressions import Case, cost, differs, divmods, load, read_ranges
from tools.judges.inductor_expressions import FILE as INDUCTOR
from tools.judges.random_expressions import Generator, run

CASES = load()


@pytest.mark.parametrize("case", CASES, ids=[f"{c.kind}: {c.text}" for c in CASES])
def test_known_expressions(case: Case) -> None:
    assert differs(case, case.minimal) is None  # the hand-made form is right
    found = str(simplify(case.text, case.api_ranges))
    assert found == case.minimal or differs(case, found) is None
    assert cost(found) <= cost(case.minimal)
    assert divmods(found) <= divmods(case.text)


@given(st.integers(0, 2**40))
def test_random_expressions(seed: int) -> None:
    assert run(8, seed).faults == []


@given(st.integers(0, 2**40))
def test_each_step_of_a_derivation(seed: int) -> None:
    assert run(2, seed, steps=True).faults == []


@pytest.mark.slow
def test_many_random_expressions() -> None:
    assert run(1000, 20261120).faults == []


@pytest.mark.nightly
def test_a_hundred_thousand_random_expressions() -> None:
    assert run(100_000, 1).faults == []


def shuffled(e: Expr, pick: random.Random) -> Expr:
    """The same expression written with its sums, products and conjunctions in another order."""
    args = [shuffled(a, pick) for a in e.args]
    if e.op in ("add", "mul", "min", "max", "xor", "and", "or"):
        pick.shuffle(args)
        out = args[0]
        for a in args[1:]:
            match e.op:
                case "add":
                    out = a + out
                case "mul":
                    out = a * out
                case "min" | "max" | "xor":
                    text = {"a": out, "b": a}
                    out = parse(f"{e.op}(a, b)").substitute(text)
                case "and":
                    out = a & out
                case _:
                    out = a | out
        return out
    if not args:
        return e
    return parse_like(e, args)


def parse_like(e: Expr, args: list[Expr]) -> Expr:
    """The operation of ``e`` on other operands, through the public operators."""
    a, b = args[0], args[-1]
    match e.op:
        case "floordiv":
            return a // b
        case "mod":
            return a % b
        case "lt":
            return a < b
        case "le":
            return a <= b
        case "eq":
            return a.eq(b)
        case "ne":
            return a.ne(b)
        case _:
            return e


@given(st.integers(0, 2**40))
def test_order_of_terms_does_not_matter(seed: int) -> None:
    pick = random.Random(seed)
    stream = Generator(seed).expressions()
    for _ in range(5):
        e = next(stream)
        other = shuffled(e, pick)
        assert other == e
        assert simplify(other) == simplify(e)


def test_order_in_text_does_not_matter() -> None:
    ranges = {"i": 64, "j": 8}
    assert simplify("j%4 + i//4*4 + i%4 + j//4*4", ranges) == simplify("4*(i//4) + 4*(j//4) + i%4 + j%4", ranges)


@given(st.integers(0, 2**40))
def test_the_printed_form_reads_back(seed: int) -> None:
    e = next(Generator(seed).expressions())
    scope = {s.name: s for s in e.symbols}
    assert parse(str(e)).substitute(scope) == e


def test_facts_only_help() -> None:
    i, n = symbol("i", 0), symbol("n", 1)
    assert simplify(i % n, facts=[i < n]) == i
    assert simplify(i // n, facts=[i < n]) == 0
    assert simplify(i % 8, facts=[i < 4]) == i
    assert simplify(i % 8, facts=[i < 9]) == i % 8


def inductor_lines() -> list[str]:
    return [x for x in INDUCTOR.read_text(encoding="utf-8").splitlines() if x and not x.startswith("#")]


@pytest.mark.parametrize("line", inductor_lines())
def test_never_worse_than_inductor(line: str) -> None:
    """On index expressions that PyTorch Inductor itself simplified."""
    text, ranges, theirs = (part.strip() for part in line.split(" | "))
    case = Case("inductor", text, read_ranges(ranges), theirs)
    ours = str(simplify(text, case.api_ranges))
    assert differs(case, ours) is None
    assert cost(ours) <= cost(theirs)
