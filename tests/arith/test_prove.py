"""Proofs hold, counterexamples fail, and what is open says what was tried."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.arith import (
    CounterExample,
    Expr,
    Proof,
    Unknown,
    drop_redundant,
    is_true,
    parse,
    prove,
    prove_equal,
    simplify,
    symbol,
)
from tools.judges.random_expressions import Generator, points, values_of


def test_by_rules_on_boxes_too_large_to_enumerate() -> None:
    big = {"i": 1 << 40, "j": 1 << 20}
    found = prove_equal("i//1024*1024 + i%1024", "i", big)
    assert isinstance(found, Proof)
    assert found.method == "rules"
    found = prove("(i*1048576 + j)//1048576 == i", big)
    assert isinstance(found, Proof)
    assert found.method == "rules"
    assert found.rules


def test_symbolic_by_rules() -> None:
    ranges = {"n": (1, None), "m": (1, None), "p": "n", "q": "m"}
    assert prove("p*m + q < n*m", ranges)
    assert prove_equal("(p*m + q)//m", "p", ranges)
    assert prove("n//2 <= n", ranges)
    found = prove("p < n - 1", ranges)
    assert isinstance(found, CounterExample) and found.values["p"] == found.values["n"] - 1


def test_by_enumeration() -> None:
    found = prove_equal("i*i%2", "i%2", {"i": 50})
    assert isinstance(found, Proof)
    assert found.method == "exhaustive"
    assert found.points == 50


def test_counterexamples() -> None:
    found = prove_equal("(i + 32)%64", "(i + 31)%64", {"i": 64})
    assert isinstance(found, CounterExample)
    assert not found
    assert found.values == {"i": 0}
    assert (found.left, found.right) == (32, 31)
    found = prove("i*j < 12", {"i": 4, "j": (0, 5)})
    assert isinstance(found, CounterExample)
    assert found.values["i"] * found.values["j"] >= 12
    assert isinstance(prove("1 == 2"), CounterExample)


def test_open_claims_say_what_was_tried() -> None:
    found = prove("a*a >= a")
    assert not found
    assert isinstance(found, Unknown)
    assert "unbounded" in str(found)


def test_a_point_is_sampled_where_none_can_be_enumerated() -> None:
    found = prove_equal("a*b", "b*a + c*d*0 + e", {"a": 5})
    assert isinstance(found, CounterExample) and found.left != found.right
    assert isinstance(prove_equal("i", "i + 1"), CounterExample)
    found = prove_equal("a*a*b", "a*b*b", {"a": (1, None), "b": "a"})
    assert isinstance(found, CounterExample) and 0 <= found.values["b"] < found.values["a"]
    n = symbol("n", 8, None, 4)
    found = prove(n < 100)
    assert isinstance(found, CounterExample) and found.values["n"] % 4 == 0
    assert isinstance(prove(n < 100, facts=[n < 50]), Unknown | Proof)
    assert isinstance(prove("i // n * n <= i", {"i": (0, None), "n": (1, None)}), Unknown | Proof)


def test_facts() -> None:
    i, j, n = symbol("i", 0), symbol("j", 0), symbol("n", 1)
    assert is_true(i < n, facts=[i < j, j < n])
    assert is_true(i + j < n, facts=[i + j + 1 < n])
    assert not is_true(i < n, facts=[i <= n])
    assert is_true(i.eq(3), facts=[i >= 3, i <= 3])
    assert prove(i < 5, facts=[i < n, n.eq(4)])


def test_redundant_conjuncts() -> None:
    i, n = symbol("i"), symbol("n", 1)
    assert drop_redundant([i < 8, i < 16, i >= 0]) == (i < 8, i >= 0)
    assert drop_redundant([i < n, i < n + 1, i >= 0, i > -5]) == (i < n, i >= 0)
    assert drop_redundant([i < 8], facts=[i < 4]) == ()
    assert drop_redundant([]) == ()
    assert drop_redundant([i < 8, i < 8]) == (i < 8,)
    apart = tuple(symbol(name) < 8 for name in "ijkl")
    assert drop_redundant(apart) == apart


@given(st.integers(0, 2**40))
def test_verdicts_against_values(seed: int) -> None:
    pick = random.Random(seed)
    generator = Generator(seed)
    for _ in range(4):
        scope = generator.scope()
        claim, fact = generator.condition(2, scope), generator.condition(1, scope)
        for facts in ((), (fact,)):
            check(claim, facts, pick)


def check(claim: Expr, facts: tuple[Expr, ...], pick: random.Random) -> None:
    env = points((claim, *facts), pick)
    if env and not len(next(iter(env.values()))):
        return
    holds, defined = values_of(claim, env)
    for f in facts:
        values, also = values_of(f, env)
        defined = defined & also & (values != 0)
    verdict = prove(claim, facts=facts)
    if isinstance(verdict, Proof) or is_true(claim, facts):
        assert bool((holds[defined] != 0).all()), (claim, facts)
    elif isinstance(verdict, CounterExample):
        assert claim.evaluate(verdict.values) is False
        assert all(f.evaluate(verdict.values) for f in facts)


@given(st.integers(0, 2**40))
def test_dropping_conjuncts_keeps_the_conjunction(seed: int) -> None:
    pick = random.Random(seed)
    generator = Generator(seed)
    scope = generator.scope()
    conjuncts = [generator.condition(0, scope) for _ in range(4)]
    kept = drop_redundant(conjuncts)
    assert set(kept) <= set(conjuncts)
    env = points(tuple(conjuncts), pick)
    if env and not len(next(iter(env.values()))):
        return
    all_of = [values_of(c, env) for c in conjuncts]
    some_of = [values_of(c, env) for c in kept]
    for k in range(len(next(iter(env.values()))) if env else 1):
        if all(d[k] for _, d in all_of):
            assert all(v[k] for v, _ in all_of) == all(v[k] for v, _ in some_of)


def test_false_equalities_are_never_accepted() -> None:
    texts = ["i", "i%8", "i//8*8", "(i + 4)%64", "i//4*4 + i%4", "(i*8 + 3)//8", "i + i%2", "63 - i", "i ^ 1", "i//2*2"]
    values = {t: [parse(t).evaluate({"i": v}) for v in range(64)] for t in texts}
    for a, b in itertools.product(texts, texts):
        assert bool(prove_equal(a, b, {"i": 64})) == (values[a] == values[b])


A, B, C, D = (symbol(x) for x in "ABCD")
ORDER = [
    (A < 3, (A < B, B <= C, C <= 2), True),
    (A < 7, (A < B, B <= C, C < D, D <= 8), True),
    (A < 6, (A < B, B <= C, C < D, D <= 8), False),  # 6 < 7 <= 7 < 8: A may be 6
    (A + B < D, (A + B <= C, C < D), True),
    (A * B <= A, (A <= 0, B > 0), True),
    (A * B <= A, (A <= 1, B > 0), False),
    (A * B <= B, (A <= 1, B > 0), True),
    (A * B >= 0, (A <= 0, B <= 0), True),
    (A * B >= A + B - 1, (A >= 1, B >= 1), True),
    (A * B >= A + B, (A >= 1, B >= 1), False),
]


@pytest.mark.parametrize(("claim", "facts", "holds"), ORDER, ids=str)
def test_order_facts_follow_one_another(claim: Expr, facts: tuple[Expr, ...], holds: bool) -> None:
    """Proved where it holds; refuted by the points of a small box where it does not."""
    assert bool(prove(claim, facts=facts)) is holds
    names = sorted({n for c in (claim, *facts) for n in c.names})
    points = [dict(zip(names, p, strict=True)) for p in itertools.product(range(-4, 9), repeat=len(names))]
    assert all(claim.evaluate(p) for p in points if all(c.evaluate(p) for c in facts)) is holds


def test_random_chains_are_proved_only_where_they_hold() -> None:
    rng, names = random.Random(0), "ABCDE"
    proved = 0
    for _ in range(60):
        facts = [symbol(a) + rng.randrange(3) <= symbol(b) for a, b in itertools.pairwise(names[: rng.randrange(2, 6)])]
        used = sorted({n for c in facts for n in c.names})
        facts.append(symbol(used[-1]) <= 4)
        claim = symbol(used[0]) <= rng.randrange(-5, 7)
        verdict = bool(prove(claim, facts=tuple(facts)))
        span = range(-8, 8) if len(used) < 4 else range(-4, 5)
        points = (dict(zip(used, p, strict=True)) for p in itertools.product(span, repeat=len(used)))
        holds = all(claim.evaluate(p) for p in points if all(c.evaluate(p) for c in facts))
        assert holds or not verdict
        proved += verdict
    assert proved > 15


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("(i + n - 1)//n", "-(-i//n)"),
        ("(i + n - 1)//n", "(i - 1)//n + 1"),
        ("(i*n + j + n - 1)//n", "i - (-j//n)"),
        ("-(-(i + j)//n)", "(i + j + n - 1)//n"),
        ("(n - 1 - i)//n", "-(i//n)"),
    ],
)
def test_quotients_rounded_up(left: str, right: str) -> None:
    ranges = {"n": (1, None), "i": (None, None), "j": (None, None)}
    assert prove_equal(left, right, ranges)
    assert not prove_equal(left, f"{right} + 1", ranges)
    a, b = parse(left, ranges), parse(right, ranges)
    for i, j, n in itertools.product(range(-7, 8), range(-3, 4), range(1, 6)):
        assert a.evaluate({"i": i, "j": j, "n": n}) == b.evaluate({"i": i, "j": j, "n": n})


def test_conditions_on_numbers_known_modulo_m_keep_their_truth() -> None:
    """A bound moves to the nearest number of the sum's class, never past one."""
    rng = random.Random(2)
    moved = 0
    for _ in range(300):
        m, step = rng.randrange(2, 7), rng.randrange(1, 4)
        n, i = symbol("n", 0, 40, m, rng.randrange(m)), symbol("i", 0, 9)
        c = n + rng.randrange(-9, 10) >= i * (m * step)
        if rng.random() < 0.5:
            c = n <= i * (m * step) + rng.randrange(-9, 10)
        out = simplify(c)
        moved += out != c
        for a, b in itertools.product(range(n.symbol_bounds[3], 41, m), range(10)):
            assert c.evaluate({"n": a, "i": b}) == out.evaluate({"n": a, "i": b}), (str(c), str(out), a, b)
    assert moved > 100
