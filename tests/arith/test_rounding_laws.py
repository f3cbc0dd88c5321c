"""Rounding up and down to multiples of a symbol: the laws are proved, and what is decided is right at all points."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.arith import FALSE, TRUE, Expr, maximum, prove, simplify, symbol
from idgraph.arith.prove import Proof
from tests.property.budget import examples

X, N, M, J = symbol("i", 0, None), symbol("n", 1, None), symbol("m", 1, None), symbol("j", None, None)
BOX = {X: range(9), N: range(1, 6), M: range(1, 4), J: range(-7, 8)}
UP = (X + N - 1) // N * N
LAWS: dict[str, Expr] = {
    "rounded up, no smaller": UP >= X,
    "rounded up, by less than n": UP < X + N,
    "the last element of the last tile": UP <= X + N - 1,
    "rounded down, no larger": X // N * N <= X,
    "rounded down, by less than n": X // N * N > X - N,
    "the tile after it begins later": X // N * N + N >= X + 1,
    "the last element of its tile": X <= X // N * N + N - 1,
    "of any sign, down": J // N * N <= J,
    "of any sign, up": (J + N - 1) // N * N >= J,
    "of any sign, up by less than n": (J + N - 1) // N * N < J + N,
    "up no less than down": (X + N - 1) // N >= X // N,
    "up one more than down at most": (X + N - 1) // N <= X // N + 1,
    "tiles of more elements are more": (X + M + N - 1) // N >= (X + N - 1) // N,
    "quotients of more are more": X // N <= (X + M) // N,
    "no quotient of more is less": ~((X + M) // N < X // N),
    "a multiple of two symbols": (X + N * M - 1) // (N * M) * N * M >= X,
    "the last tile begins no later": ((X + N - 1) // N - 1) * N <= X,
    "up by the negative": ((X + N - 1) // N).eq(-(-X // N)),
    "the padding": UP - X >= 0,
    "rounded up twice": ((UP + N - 1) // N * N).eq(UP),
    "a tile at least": maximum(X, N) // N >= 1,
}


def points(e: Expr, of: Expr | None = None) -> list[bool]:
    """The condition at all points of the box of its symbols, or of those of another condition."""
    names = sorted((e if of is None else of).symbols, key=str)
    places = itertools.product(*(BOX[s] for s in names))
    return [bool(e.evaluate({s.name: v for s, v in zip(names, at, strict=True)})) for at in places]


@pytest.mark.parametrize("name", LAWS)
def test_a_law_is_proved(name: str) -> None:
    found = prove(LAWS[name])
    assert isinstance(found, Proof) and found.method == "rules"
    assert all(points(LAWS[name]))


BOUNDS: dict[str, tuple[Expr, Expr]] = {  # the first is no more than the second
    "a quotient": (X // N, X),
    "rounded up": ((X + N - 1) // N, X),
    "of a multiple, up": ((X * M + N - 1) // N, X * M),
    "of two symbols": ((X + N * M - 1) // (N * M), X),
    "with more on the other side": ((X + N - 1) // N, X + M),
    "twice": (((X + N - 1) // N + M - 1) // M, X),
    "one tile more": (X // N + 1, X + 1),
    "of what is negative": (-X, -X // N),
    "of what is negative, up": (-X, (N - 1 - X) // N),
}


@pytest.mark.parametrize("of", BOUNDS)
@pytest.mark.parametrize("by", [N, M, N + 1, N * M, M + N], ids=lambda e: str(e).replace(" ", ""))
def test_bounds_of_quotients_hold_under_products(of: str, by: Expr) -> None:
    low, high = BOUNDS[of]
    for claim in (low * by <= high * by, high * by >= low * by, low * by - high * by <= 0, low * by < high * by + M):
        found = prove(claim)
        assert isinstance(found, Proof) and found.method == "rules", claim
        assert all(points(claim)), claim
    assert not prove(high * by <= low * by)


OPEN = (
    (X - 2) // N * N <= (X - 2) * N,
    (X + N - 2) // N <= X - 1,
    (1 - X) * N <= (1 - X) // N * N,
    (X + N) // N * N <= X * N,
    (X + M) // N * M <= X * M,
    (J + N - 1) // N * N <= J * N,
    (X + N - 1) // N * M <= (X - 1) * M + 1,
    (X + 1) // N <= X // N,
    (X + 2) // N < (X + 1) // N + 1,
    J // N <= (J - 1) // N,
    (X + M) // N <= X // N,
    (X + N + 1) // N <= X // N + 1,
)


@pytest.mark.parametrize("e", OPEN, ids=lambda e: str(e).replace(" ", ""))
def test_what_holds_at_some_points_is_not_decided(e: Expr) -> None:
    assert any(points(e)) and not all(points(e))
    made = simplify(e)
    assert made not in (TRUE, FALSE) and points(made, e) == points(e)


@st.composite
def conditions(draw: st.DrawFn) -> Expr:
    """Two sums of symbols, numbers, quotients and their multiples, compared."""

    def side() -> Expr:
        x = draw(st.sampled_from((X, J, X + N, X + M))) + draw(st.integers(-2, 2))
        match draw(st.integers(0, 6)):
            case 0:
                return x
            case 5:
                return x * draw(st.sampled_from((N, M)))
            case 6:
                return (x + draw(st.sampled_from((0, N - 1, M)))) // N * draw(st.sampled_from((N, M, N * M)))
            case 1:
                return x // N + draw(st.integers(-2, 2))
            case 2:
                return x // N * N
            case 3:
                return (x + N - 1) // N * N - draw(st.sampled_from((X, N, M)))
            case _:
                return -x // N + x % N

    a, b = side(), side()
    return draw(st.sampled_from((a <= b, a < b, a.eq(b))))


@settings(max_examples=examples(150), deadline=None)
@given(conditions())
def test_what_is_decided_is_right(e: Expr) -> None:
    made, truth = simplify(e), points(e)
    assert made is not TRUE or all(truth), e
    assert made is not FALSE or not any(truth), e
    assert points(made, e) == truth, f"{e} became {made}"
