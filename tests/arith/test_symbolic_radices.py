"""Digits of symbolic radices: what holds of ``i*m + j`` for 0 <= i < n, 0 <= j < m is proved, however it is bounded.

The truth is that of Python's integers at all points of small sizes.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.arith import Proof, prove
from tests.property.budget import examples

RADIX = {"i": "n", "i2": "n", "i3": "n", "j": "m", "k": "p"}
SIZES = {
    "n": range(1, 5),
    "m": range(1, 5),
    "p": range(1, 4),
    "t": range(1, 4),
    "q": range(4),
    "a": range(9),
    "s": range(-2, 3),
}
LAWS = (
    "i*n + i2 < n*n", "i*m + j < n*m", "i*m + j <= n*m - 1", "i*m + j >= 0", "n*m - i*m - j > 0",
    "(i*m + j)*p + k < n*m*p", "i*m*p + j*p + k < n*m*p", "i*n*n + i2*n + i3 < n*n*n", "i*n*m + i2*m + j < n*n*m",
    "((i*m + j)*p + k)*t + a%t < n*m*p*t", "i*n + i2 != n*n",
    "(n - 1 - i)*m + (m - 1 - j) < n*m", "(n - 1 - i)*n + (n - 1 - i2) >= 0",
    "i*m + min(j + q, m - 1) < n*m", "min(i + q, n - 1)*m + j < n*m", "max(i - q, 0)*m + j < n*m",
    "min(max(i - q, 0), n - 1)*n + i2 < n*n", "i*m + a%m < n*m", "a%n*n + q%n < n*n", "a%(n*m)//m*m + a%m < n*m",
    "(i*m + j)//m == i", "(i*m + j)%m == j", "((i*m + j)*p + k)//p%m == j", "(i*n*n + i2*n + i3)//(n*n) == i",
    "(i*m + j)%(n*m) == i*m + j", "i*(m + q) + j < n*(m + q)", "(2*i + 1)*n + i2 < 2*n*n", "i*m*4 + j*4 + 3 < 4*n*m",
    "(i*m + j)//t < (n*m + t - 1)//t", "((n*m + t - 1)//t - 1)*t < n*m", "i//t*m + j < (n + t - 1)//t*m",
    "i//t*t + t - 1 < (n + t - 1)//t*t", "(i//t*t + t - 1)*n + i2 < (n + t - 1)//t*t*n",
    "i*((m + t - 1)//t*t) + j < n*((m + t - 1)//t*t)", "(i + j)*p + k < (n + m - 1)*p",
)  # fmt: skip


OPEN = (
    "i*n + i2 < n*n - 1", "i*m + j < n*m - 1", "i*n + j < n*n", "i*m + i2 < n*m", "i*(n + q) + i2 < n*n",
    "i*m + min(j + q, m) < n*m", "i*(n + 1) < n*n - 1", "i*m + j > 0", "(n - i)*m + j < n*m",
    "s*i <= s*n", "s*(i//t) <= s*((n + t - 1)//t)", "s*i + s*j <= s*n + s*m", "s*(i*m + j) < s*n*m + 1",
    "(m + t - 1)//t*t >= m + 1", "i*((m + t - 1)//t*t) + j < n*((m + t - 1)//t*t) - 1", "n//t*t >= n - t + 2",
    "i//t*m + j < n//t*m", "(i//t*t + t - 1)*n + i2 < n*n",
)  # fmt: skip


def named(claim: str) -> list[str]:
    """The symbols of a claim, radices first."""
    found = {*re.findall(r"[a-z]\d?\b", re.sub(r"min|max", "", claim))}
    found |= {RADIX[s] for s in found & RADIX.keys()}
    return sorted(found, key=lambda s: (s in RADIX, s))


def points(claim: str) -> Iterator[bool]:
    """The claim at all points, read by Python."""
    names = named(claim)

    def from_here(at: Mapping[str, int], rest: list[str]) -> Iterator[bool]:
        if not rest:
            yield bool(eval(claim, {"min": min, "max": max}, dict(at)))  # noqa: S307 - of this file's texts
            return
        s, *more = rest
        for v in SIZES[s] if s in SIZES else range(at[RADIX[s]]):
            yield from from_here({**at, s: v}, more)

    return from_here({}, names)


def ways(claim: str) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Ranges and facts that say the same of the digits of a claim: (ranges, facts)."""
    names = named(claim)
    digits = [s for s in names if s in RADIX]
    least: dict[str, Any] = {s: (SIZES[s][0], None) for s in names if s in "qat"}
    least |= {s: (1, None) for s in names if s in "nmp" and s not in {RADIX[d] for d in digits}}
    radices: dict[str, Any] = {RADIX[d]: (1, None) for d in digits}
    below = [f"{d} < {RADIX[d]}" for d in digits]
    yield {**least, **radices, **{d: RADIX[d] for d in digits}}, []
    yield {**least, **{d: RADIX[d] for d in digits}}, []
    yield least, [*below, *(f"{d} >= 0" for d in digits)]
    yield {**least, **dict.fromkeys(digits, (0, None))}, below
    yield {**least, **radices}, [f"0 <= {d}" for d in digits] + [f"{d} <= {RADIX[d]} - 1" for d in digits]


@pytest.mark.parametrize("claim", LAWS)
def test_a_law_is_proved_however_digits_are_bounded(claim: str) -> None:
    assert all(points(claim))
    for ranges, facts in ways(claim):
        found = prove(claim, ranges, facts)
        assert isinstance(found, Proof) and found.method == "rules", (ranges, facts)


@pytest.mark.parametrize(("x", "y", "z"), list(itertools.permutations("xyz")))
def test_bounds_follow_from_facts_in_any_order(x: str, y: str, z: str) -> None:
    facts = [f"{x} >= {y} + 1", f"{y} >= {z} + 1", f"{z} >= 1"]
    assert prove(f"{x}*{y}*{z} >= 6", {}, facts) and not prove(f"{x}*{y}*{z} >= 7", {}, facts)


@pytest.mark.parametrize("claim", OPEN)
def test_what_fails_at_some_point_is_not_proved(claim: str) -> None:
    assert not all(points(claim))
    assert not any(prove(claim, ranges, facts) for ranges, facts in ways(claim))


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 1 << 30))
def test_what_is_proved_of_changed_laws_holds(seed: int) -> None:
    """One token of a law becomes another: a proof that is wrong at some point is unsound."""
    r = random.Random(seed)
    tokens = re.findall(r"[a-z]+\d?|\d+|//|[<>=!]=|.", r.choice(LAWS))
    for _ in range(r.choice((1, 1, 2))):
        places = [n for n, x in enumerate(tokens) if re.match(r"[a-z]\d?$|\d|[<>+-]", x)]
        at = r.choice(places)
        like = next(x for x in (r"[a-z]\d?$", r"\d", r"[<>]", r"[+-]") if re.match(x, tokens[at]))
        same = {r"\d": ("0", "1", "2"), r"[<>]": ("<", "<=", ">="), r"[+-]": ("+", "-")}
        tokens[at] = r.choice(same.get(like, ("n", "m", "p", "t", "q", "a", *RADIX)))
    claim = "".join(tokens)
    try:
        holds = all(points(claim))
    except ZeroDivisionError:
        return
    for ranges, facts in itertools.islice(ways(claim), r.randrange(5), None):
        found = prove(claim, ranges, facts)
        assert holds or not isinstance(found, Proof), (claim, ranges, facts)
