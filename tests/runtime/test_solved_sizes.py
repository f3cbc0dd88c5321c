"""Symbols that follow from sizes of arguments: solved where a size is affine in one, and by no other term."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.arith import Expr, maximum, symbol
from idgraph.runtime.shape_guards import GuardSpec, compile_symbol_guards
from tests.property.budget import examples

N, M, K = symbol("n", 1, 12), symbol("m", 1, 12), symbol("k", 0, 12)
BY_NAME = {"n": N, "m": M, "k": K}


def found(sizes: list[Expr], values: dict[str, int], of: tuple[Expr, ...]) -> dict[str, int] | None:
    """What a call with sizes at ``values`` is solved to; None where its guards refuse it, or there are none."""
    shape = tuple(int(e.evaluate(values)) for e in sizes)
    make = compile_symbol_guards(
        [("float32", shape, (1,) * len(shape))], GuardSpec([sizes], (), {s.name: s for s in of})
    )
    return None if make is None else make([("float32", shape, (1,) * len(shape))])


@pytest.mark.parametrize("size", [6 // N, 7 % N, 12 // (N * 2), N * N, N // 2, maximum(N, 3), (N + 1) * N])
def test_a_size_that_is_not_affine_gives_no_symbol(size: Expr) -> None:
    assert found([size], {"n": 3}, (N,)) is None  # not an error, and no value
    assert found([size, N * 2 + 1], {"n": 3}, (N,)) == {"n": 3}  # the next size gives it, and this one is compared


def test_a_factor_that_may_be_0_gives_no_symbol() -> None:
    for k in (0, 2):
        assert found([K, K * N], {"k": k, "n": 5}, (K, N)) is None
    assert found([M, M * N], {"m": 2, "n": 5}, (M, N)) == {"m": 2, "n": 5}


@st.composite
def sizes(draw: st.DrawFn) -> list[Expr]:
    """Terms of three symbols: sums, products, quotients, remainders."""

    def term() -> Expr:
        a, b, c = (draw(st.sampled_from((N, M, K))) for _ in range(3))
        by = draw(st.integers(1, 3))
        made: tuple[Any, ...] = (
            a,
            a * by,
            a * b,
            a * b + c,
            a + b,
            12 // maximum(a, 1),
            a // by,
            12 // N,
            a % M,
            a - b,
        )
        return made[draw(st.integers(0, len(made) - 1))] + draw(st.integers(-1, 2))

    return [term() for _ in range(draw(st.integers(1, 4)))]


@settings(max_examples=examples(200), deadline=None)
@given(sizes(), st.tuples(*[st.integers(1, 6)] * 3))
def test_sizes_give_the_values_that_they_came_from(extents: list[Expr], at: tuple[int, int, int]) -> None:
    values = dict(zip("nmk", at, strict=True))
    named = tuple(BY_NAME[name] for name in sorted({s.name for e in extents for s in e.symbols}))
    solved = found(extents, values, named)
    if solved is not None:
        assert all(e.evaluate(solved) == e.evaluate(values) for e in extents)
