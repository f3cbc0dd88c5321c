"""Intervals, congruences and sign proofs hold at every point."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.arith import Range, congruence, integer_type, interval, multiple_of, parse, simplify, symbol
from idgraph.arith.expr import postorder
from idgraph.arith.fourier_motzkin import nonneg, positive
from idgraph.arith.linear import terms
from idgraph.arith.rewriter import normal
from tools.judges.random_expressions import Generator, points, values_of


@given(st.integers(0, 2**40))
def test_interval_and_congruence_of_every_node(seed: int) -> None:
    pick = random.Random(seed)
    stream = Generator(seed).expressions()
    for _ in range(6):
        e = next(stream)
        env = points((e,), pick)
        if env and not len(next(iter(env.values()))):
            continue
        for node in postorder(e):
            if node.cond:
                continue
            values, defined = values_of(node, env)
            values = values[defined]
            lo, hi = interval(node)
            m, r = congruence(node)
            if len(values):
                assert lo is None or int(values.min()) >= lo, node
                assert hi is None or int(values.max()) <= hi, node
                assert np.all(values == r if m == 0 else values % m == r), (node, m, r)


@given(st.integers(0, 2**40))
def test_sign_proofs(seed: int) -> None:
    """Sums over symbols with symbolic bounds: those proved non-negative are."""
    pick = random.Random(seed)
    generator = Generator(seed)
    for _ in range(12):
        scope = generator.scope()
        e = normal(generator.integer(2, scope))
        t, c = terms(e)
        if not e.cond and nonneg(t, c):
            env = points((e,), pick)
            values, defined = values_of(e, env)
            if not env or len(next(iter(env.values()))):
                assert np.all(values[defined] >= 0), e


def test_symbolic_bounds() -> None:
    n, m = symbol("n", 1), symbol("m", 1)
    p, q = symbol("p", 0, n - 1), symbol("q", 0, m - 1)
    assert nonneg(*terms(normal(n * m - 1 - (p * m + q))))
    assert not nonneg(*terms(normal(n * m - 2 - (p * m + q))))
    assert nonneg(*terms(normal(n - n // 2)))
    free = symbol("k")
    j = symbol("j", 0, free - 1)
    assert not positive(free)
    assert positive(free, frozenset((j,)))  # 0 <= j < k has no point unless k >= 1


def test_empty_range_is_no_error() -> None:
    none = symbol("z", 0, -1)
    assert none.range == Range(0, -1)
    assert none.range.size == 0
    assert isinstance((none * 4 // 3 % 5).range, Range)


def test_multiple_of() -> None:
    n = symbol("n", 8, None, multiple_of=8)
    i = symbol("i")
    assert multiple_of(n * i + 16, 8)
    assert multiple_of(n // 2, 4)
    assert not multiple_of(n + 4, 8)
    assert multiple_of(symbol("a", 0, 9, multiple_of=3, remainder=1) * 2 + 1, 3)
    assert symbol("a", 0, 10, multiple_of=4, remainder=1).range == Range(1, 9)


def test_range_contains() -> None:
    assert 3 in Range(0, None)
    assert -1 not in Range(0, None)
    assert "x" not in Range(None, None)


def test_width_counts_partial_values() -> None:
    i = symbol("i", 0, 2**31 - 1)
    assert integer_type([i]) == "uint32"
    assert integer_type([i + 1]) == "uint32"
    assert integer_type([i - 1]) == "int32"
    assert integer_type([parse("i*4 - i*3").substitute({"i": i})]) == "uint32"
    assert integer_type([i * 4 % 7]) == "int64"
    assert integer_type([symbol("u")]) is None


def test_places_side_by_side_have_one_quotient() -> None:
    """A constant added to what is divided saves an addition here, and costs a division at the next place."""
    i, j = symbol("i", 0, 1000), symbol("j", 0, 127)
    at = i * 512 + j + 128
    places = [simplify(at // 1022 * 1024 + at % 1022 + apart) for apart in (0, 2, 1024, 2050)]
    assert len({e for p in places for e in postorder(p) if e.op == "floordiv"}) == 1, places


@pytest.mark.parametrize("blocks", [1000, 130_561])
def test_what_is_divided_does_not_outgrow_a_word(blocks: int) -> None:
    """Rows of 1022 of 1024 elements: one division less by a number of 35 bits is slower than two of 32."""
    i, j = symbol("i", 0, blocks - 1), symbol("j", 0, 127)
    found = simplify((i * 512 + j) // 1022 * 2 + i * 512)
    assert integer_type([found]) == "uint32", found
    for block in (0, 1, 999, blocks - 1):
        for thread in (0, 1, 127):
            wanted = (block * 512 + thread) // 1022 * 2 + block * 512
            assert int(found.substitute({"i": block, "j": thread})) == wanted
