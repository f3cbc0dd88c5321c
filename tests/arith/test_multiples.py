"""Symbols that are multiples of a number: quotients of them that leave nothing, in divisors, sums and comparisons, and
inverses of maps over them. The truth is that of Python's integers at all points of small sizes.
"""

from __future__ import annotations

import itertools

import pytest

from idgraph.arith import Expr, IndexMap, as_expr, maximum, prove, simplify, symbol
from idgraph.arith.prove import Proof

S, N = symbol("s", 4, multiple_of=4), symbol("n", 1)
K, J = symbol("k", 0, S // 2 - 1), symbol("j", 0, S - 1)
FORMS: list[tuple[Expr, str]] = [
    (S // (S // 4), "4"), (S // (S // 4 * 2), "2"), (S % (S // 4 * 2), "0"), (maximum(S // (S // 2) * N, 1), "n*2"),
    (J // 2 % (S // 2), "j//2"), ((N * S + J) % (S // 2 * 2), "j"), ((J * S * N) % (N * 2), "0"),
    ((J * S * N) // (N * 2), "s//2*j"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "text"), FORMS)
def test_exact_quotients_are_scaled_away(written: Expr, text: str) -> None:
    found = simplify(written)
    assert str(found) == text
    for s, n in itertools.product((4, 8, 12), (1, 2, 3)):
        for j in range(s):
            env = {"s": s, "n": n, "j": j, "k": 0}
            assert found.evaluate(env) == written.evaluate(env), env


def test_sums_of_exact_quotients_are_decided() -> None:
    assert isinstance(prove(J // 2 < S // 2), Proof)
    assert isinstance(prove(K * (S // 2) + K < S * S // 4 * N), Proof)
    assert not isinstance(prove(J // 2 < S // 2 - 1), Proof)
    odd = symbol("t", 2)  # a multiple of nothing: its half may leave 1
    assert not isinstance(prove(odd // 2 * 2 >= odd), Proof) and str(simplify(odd // (odd // 2))) != "2"


def test_inverses_of_flips_that_were_taken_apart() -> None:
    n = symbol("n", 1)
    a, b, c = symbol("a", 0, 5), symbol("b", 0, 2 * n - 1), symbol("c", 0, n * 4 - 1)
    maps = [
        IndexMap((b,), (b + n * 2 - b // 2 * 4 - 2,), (n * 2,)),
        IndexMap((a, b), (n * 3 - (a * n * 2 + b) // 4 - 1, (a * n * 2 + 3 - b) % 4), (n * 3, as_expr(4))),
        IndexMap((a, c), (a * (n * 4 + 5) + (1 - c) % (n * 4) + n * 12 + 15,), (n * 60 + 75,)),
        IndexMap((c,), (((c + 3) % (n * 4) + (c + 3) // 2 % (n * 2) * 2 + 3) % (n * 8),), (n * 8,)),
    ]
    for m in maps:
        back = m.inverse()
        assert sum(r.cost for r in back.results) < 3 * sum(r.cost for r in m.results)
        for size in (1, 2, 3):
            ranges = [range(int(as_expr(s.symbol_bounds[1]).evaluate({"n": size})) + 1) for s in m.symbols]  # type: ignore[arg-type]
            for p in itertools.product(*ranges):
                env = {"n": size, **dict(zip((s.name for s in m.symbols), p, strict=True))}
                image = [int(r.evaluate(env)) for r in m.results]
                there = {"n": size, **dict(zip((y.name for y in back.symbols), image, strict=True))}
                assert back.condition.evaluate(there) and tuple(r.evaluate(there) for r in back.results) == p
        assert m.is_injective
