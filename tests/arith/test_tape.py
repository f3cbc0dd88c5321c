"""Expressions as steps: the values that `evaluate` gives, one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.arith import (
    ArithError,
    ArithZeroDivisionError,
    CompiledExprs,
    Expr,
    maximum,
    minimum,
    not_,
    symbol,
    where,
    xor,
)

N, M = symbol("n"), symbol("m", 0)


def divided(a: Expr, b: Expr, mod: bool) -> Expr:
    if b == 0:  # refused where it is written
        return a
    return a % b if mod else a // b


def grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        pair.map(lambda p: p[0] + p[1]),
        pair.map(lambda p: p[0] * p[1]),
        pair.map(lambda p: divided(*p, False)),
        pair.map(lambda p: divided(*p, True)),
        pair.map(lambda p: minimum(p[0], p[1], M)),
        pair.map(lambda p: maximum(*p)),
        pair.map(lambda p: xor(*p)),
        pair.map(lambda p: where((p[0] < p[1]) & (p[0] != 3) | not_(p[1] <= 2), p[0], p[1] - 1)),
        pair.map(lambda p: where(p[0].eq(p[1]), p[0] * p[1] * N, divided(N * 0 + 5, p[0], False))),
    )


EXPRS = st.recursive(st.sampled_from([N, M, N - M, N * 0 + 2]), grown, max_leaves=12)


def alone(e: Expr, env: dict[str, int]) -> int | bool | None:
    try:
        return e.evaluate(env)
    except ArithZeroDivisionError:
        return None


@given(st.lists(EXPRS, max_size=5), st.integers(-4, 9), st.integers(0, 9))
def test_values_are_those_of_evaluate(exprs: list[Expr], n: int, m: int) -> None:
    env = {"n": n, "m": m}
    wanted = [alone(e, env) for e in exprs]
    tape = CompiledExprs(exprs)
    assert tape(env) == wanted
    try:
        found = tape.function()(*(env[s] for s in tape.names))
    except ZeroDivisionError:  # in a branch that is not taken, perhaps
        return
    assert list(found) == wanted and [type(v) for v in found] == [type(v) for v in wanted]


def test_a_symbol_without_a_value_is_named() -> None:
    with pytest.raises(ArithError, match="no value for symbol 'm'"):
        CompiledExprs((N, M))({"n": 1})
    assert CompiledExprs(())({}) == []


def test_depth_is_no_limit() -> None:
    e = N
    for _ in range(3000):
        e = (e // 2 + M) % 1000
    assert CompiledExprs((e,))({"n": 7, "m": 3}) == [e.evaluate({"n": 7, "m": 3})]
