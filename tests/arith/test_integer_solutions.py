"""Conditions without a solution: never claimed where brute force finds one, and found where it does not."""

from __future__ import annotations

import itertools
import random

import pytest

from idgraph.arith import Expr, as_expr, maximum, minimum, not_, or_, symbol, where
from idgraph.arith.integer_solutions import follows, no_solution

SYMBOLS = {"n": symbol("n", 1, 6), **{x: symbol(x, 0, h) for x, h in (("a", 3), ("b", 4), ("c", 5))}}


def term(r: random.Random, depth: int = 0) -> Expr:
    """A sum, quotient, remainder, choice or product of symbols."""
    kind = r.random()
    if depth > 2 or kind < 0.35:
        return r.choice(list(SYMBOLS.values()))
    if kind < 0.5:
        return as_expr(r.randint(-3, 5))
    x, y = term(r, depth + 1), term(r, depth + 1)
    by = r.choice((as_expr(2), as_expr(3), SYMBOLS["n"]))
    made = (
        x + y * r.randint(-2, 3),
        x // by,
        x % by,
        minimum(x, y),
        maximum(x, y),
        where(x < y, x, y + 1),
        x * SYMBOLS["n"],
    )
    return r.choice(made)


def condition(r: random.Random) -> Expr:
    x, y = term(r), term(r)
    return r.choice((x < y, x <= y, x.eq(y), x.ne(y), or_(x < y, y.eq(2)), not_(or_(x < y, x.eq(y + 2)))))


@pytest.mark.parametrize("seed", range(6))
def test_no_solution_is_claimed_only_where_there_is_none(seed: int) -> None:
    r, missed, without = random.Random(seed), 0, 0
    spans = [range(s.symbol_bounds[0], s.symbol_bounds[1] + 1) for s in SYMBOLS.values()]  # type: ignore[operator,arg-type]
    for _ in range(60):
        found = [condition(r) for _ in range(r.randint(1, 4))]
        points = (dict(zip(SYMBOLS, p, strict=True)) for p in itertools.product(*spans))
        has = any(all(c.evaluate(p) for c in found) for p in points)
        claimed = no_solution(*found)
        assert not (claimed and has), [str(c) for c in found]
        without, missed = without + (not has), missed + (not has and not claimed)
    assert missed <= max(1, without // 6)


def test_sizes_are_symbols() -> None:
    n, m, t = symbol("n", 4), symbol("m", 1), symbol("t", 0)
    j, k = symbol("j", 0, m - 1), symbol("k", 0, m - 1)
    assert no_solution((t * m + j).eq(symbol("u", 0) * m + k), j.ne(k))  # rows of a symbolic length
    assert no_solution((t % 2 * m + j).eq((t + 1) % 2 * m + k))  # the halves of a double buffer
    assert not no_solution((t % 2 * m + j).eq((t + 2) % 2 * m + k))
    e = symbol("e", 0, n - 1)
    assert follows(minimum(e // 4 * 4, n - 4) + 3 < n) and not follows(minimum(e // 4 * 4, n - 3) + 3 < n)
    i, w = symbol("i", 3), symbol("w", 0)
    assert no_solution(w > i - 3, w <= i, ((w + 3) % 4).eq(i % 4))  # a ring of four holds three more
    assert not no_solution(w > i - 3, w <= i, ((w + 3) % 3).eq(i % 3))


def test_multiples_and_parity() -> None:
    n, q = symbol("n", 0, None, 4), symbol("q")
    assert (
        no_solution((n % 4).eq(2)) and no_solution((q * 6).eq(n + 3)) and no_solution((q * 2 + 1).eq(symbol("p") * 4))
    )
