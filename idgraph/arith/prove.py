"""Proofs: by rules where ranges suffice, by enumeration of small boxes; else the answer is `Unknown`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from idgraph.arith.digit_solver import QuotientForms
from idgraph.arith.enumeration import first_failure, sampled_failure
from idgraph.arith.expr import TRUE, ArithError, ArithTypeError, Expr, as_expr, at_most, postorder
from idgraph.arith.facts import strongest
from idgraph.arith.simplify import Facts, read, read_facts, simplify, trace
from idgraph.display import Printed
from idgraph.errors import arguments

MAX_POINTS = 2_000_000
_CHUNK = 1 << 18
_FEW = 8  # conjuncts that are tried one by one against all others


@dataclass(frozen=True, slots=True)
class Proof(Printed):
    """The claim holds at every point; truthy.

    >>> import idgraph as ig
    >>> p = ig.prove_equal("(i*32 + j)//32", "i", {"i": 4, "j": 32})
    >>> bool(p), type(p).__name__
    (True, 'Proof')
    """

    claim: Expr
    method: Literal["rules", "exhaustive"]
    rules: tuple[str, ...] = ()
    points: int = 0

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        how = f"by {', '.join(self.rules) or 'ranges'}" if self.method == "rules" else f"at all {self.points} points"
        return f"proved {self.claim} {how}"


@dataclass(frozen=True, slots=True)
class CounterExample(Printed):
    """A point within the ranges at which the claim fails; falsy.

    >>> import idgraph as ig
    >>> wrong = ig.prove_equal("(i + 32)%64", "i", {"i": 64})
    >>> bool(wrong), wrong.values, wrong.left, wrong.right
    (False, {'i': 0}, 32, 0)
    """

    claim: Expr
    values: Mapping[str, int]
    left: int | bool | None = None
    right: int | bool | None = None

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        at = ", ".join(f"{k}={v}" for k, v in sorted(self.values.items()))
        sides = "" if self.left is None else f": {self.left} against {self.right}"
        return f"{self.claim} fails at {at or 'every point'}{sides}"


@dataclass(frozen=True, slots=True)
class Unknown(Printed):
    """Neither proved nor refuted; falsy.  ``tried`` says what was done.

    >>> import idgraph as ig
    >>> u = ig.prove("a*a >= a")
    >>> bool(u), type(u).__name__
    (False, 'Unknown')
    """

    claim: Expr
    tried: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self.claim} is open; tried {'; '.join(self.tried)}"


Verdict = Proof | CounterExample | Unknown


def is_true(cond: Expr, facts: Iterable[Expr] = ()) -> bool:
    """Whether rules suffice to show that ``cond`` holds at every point; cheap, no enumeration.

    >>> from idgraph.arith import symbol
    >>> i = symbol("i", 0, 7)
    >>> is_true(i < 8), is_true(i < 7)
    (True, False)
    """
    if not cond.cond:
        raise ArithTypeError(f"is_true takes a condition, got `{cond}`")
    return cond is TRUE or simplify(cond, facts=facts) is TRUE


@arguments(ArithError)
def prove(cond: Expr | str, ranges: Mapping[str, Any] | None = None, facts: Facts = ()) -> Verdict:
    """Decide ``cond`` under the symbols' ranges and ``facts``.

    >>> print(prove("i//4*4 + i%4 < 100", {"i": 100}))
    proved i//4*4 + i%4 < 100 by order-known
    """
    claim = read(cond, ranges)
    if not claim.cond:
        raise ArithTypeError(f"prove takes a condition, got `{claim}`")
    known = read_facts(facts, ranges, claim)
    if simplify(claim, facts=known) is TRUE or simplify(claim, facts=(*known, *_ranges_with_points(claim))) is TRUE:
        return Proof(claim, "rules", tuple(dict.fromkeys(step.rule for step in trace(claim))))
    if all(c is TRUE or (c.op == "eq" and equal_by_rules(c.args[0], c.args[1], known)) for c in claim.conjuncts):
        return Proof(claim, "rules")
    return _prove_by_enumeration(claim, known, None)


def _ranges_with_points(e: Expr) -> list[Expr]:
    """Conditions on symbols that bound others, wherever ``e`` has a value: 0 <= i < n says n >= 1."""
    ends = [s.symbol_bounds[:2] for s in sorted(e.symbols, key=lambda s: s.key)]
    return [
        as_expr(lo) <= as_expr(hi)
        for lo, hi in ends
        if lo is not None and hi is not None and (isinstance(lo, Expr) or isinstance(hi, Expr))
    ]


@arguments(ArithError)
def equal_by_rules(a: Expr, b: Expr, facts: Facts = ()) -> bool:
    """Whether rules prove two integers equal, at any size of their symbols; no point is tried.

    >>> from idgraph.arith import symbol
    >>> n = symbol("n", 1)
    >>> equal_by_rules((n + -n % 4) // 4, (n + 3) // 4), equal_by_rules(n // 4, (n + 3) // 4)
    (True, False)
    """
    if a == b or simplify(a - b, facts=facts) == 0:
        return True
    if not any(x.op in ("floordiv", "mod") for e in (a, b) for x in postorder(e)):
        return False
    return simplify(a.eq(b), facts=facts) is TRUE or QuotientForms().equal(a, b)


def prove_equal(
    x: Expr | int | str, y: Expr | int | str, ranges: Mapping[str, Any] | None = None, facts: Facts = ()
) -> Verdict:
    """Whether both expressions are equal at every point of the ranges.

    Decided by rules; else at every point of a box of at most 2 000 000 points. For larger boxes points are sampled for
    a `CounterExample`; the answer is `Unknown` where none is found.

    >>> print(prove_equal("(i + 32)%64", "(i + 31)%64", {"i": 64}))
    (i + 32)%64 == (i + 31)%64 fails at i=0: 32 against 31
    """
    a, b = read(x, ranges), read(y, ranges)
    known = read_facts(facts, ranges, a, b)
    if a.cond != b.cond:
        raise ArithTypeError("prove_equal compares two integers or two conditions")
    if a.cond:
        claim = (a & b) | (~a & ~b)
        same = simplify(a, facts=known) == simplify(b, facts=known)
    else:
        claim = a.eq(b)
        same = equal_by_rules(a, b, known)
    if same:
        return Proof(claim, "rules")
    return _prove_by_enumeration(claim, known, (a, b))


def _prove_by_enumeration(claim: Expr, facts: tuple[Expr, ...], sides: tuple[Expr, Expr] | None) -> Verdict:
    found = first_failure(claim, facts, MAX_POINTS, _CHUNK)
    if isinstance(found, int):
        return Proof(claim, "exhaustive", (), found)
    if isinstance(found, str):
        tried = sampled_failure(claim, facts)
        if tried is None:
            return Unknown(claim, ("rules", found, "no failure among sampled points"))
        found = tried
    if sides is None:
        return CounterExample(claim, found)
    return CounterExample(claim, found, sides[0].evaluate(found), sides[1].evaluate(found))


def enumerate_points(claim: Expr, max_points: int = MAX_POINTS, facts: Iterable[Expr] = ()) -> Verdict:
    """Decide ``claim`` by trying each point of its symbols' ranges; `Unknown` where these are more than ``max_points``.

    >>> from idgraph.arith import symbol
    >>> i = symbol("i", 0, 63)
    >>> print(enumerate_points((i ^ 5) < 64))
    proved (i ^ 5) < 64 at all 64 points
    """
    if not claim.cond:
        raise ArithTypeError(f"enumerate_points takes a condition, got `{claim}`")
    found = first_failure(claim, tuple(facts), max_points, _CHUNK)
    if isinstance(found, int):
        return Proof(claim, "exhaustive", (), found)
    if isinstance(found, str):
        return Unknown(claim, (found,))
    return CounterExample(claim, found)


def drop_redundant(conjuncts: Sequence[Expr], facts: Iterable[Expr] = ()) -> tuple[Expr, ...]:
    """The conjuncts that are not implied by the others and the facts, in their given order.

    >>> from idgraph.arith import symbol
    >>> i = symbol("i")
    >>> [str(c) for c in drop_redundant([i < 8, i < 16, i >= 0])]
    ['i < 8', 'i >= 0']
    """
    known = tuple(facts)
    kept = list(dict.fromkeys(conjuncts))
    if len(kept) > _FEW:
        kept = strongest(kept)
    with at_most():
        for c in sorted(kept, key=lambda c: -c.cost):
            others = [k for k in kept if k is not c]
            if is_true(c, (*known, *others)):
                kept = others
    return tuple(kept)


_MOST = 2**63  # no size is larger


@dataclass(frozen=True, slots=True)
class Root:
    """The values of a symbol at which an expression of it is ``wanted``: ``value`` is the only one, or None where there
    are several (``several``), none, or where the expression may rise and fall (``known`` False)."""

    value: int | None = None
    several: bool = False
    known: bool = True


def integer_root(e: Expr, s: Expr, wanted: int) -> Root:
    """Where ``e``, an expression in no symbol but ``s``, is ``wanted``; found by halving, where it provably never
    falls.

    >>> from idgraph.arith import symbol
    >>> n = symbol("n", 1)
    >>> [integer_root(e, n, 36).value for e in (n * 4, n * n, n + 1, n * 5)]
    [9, 6, 35, None]
    >>> integer_root(n // 4, n, 3)
    Root(value=None, several=True, known=True)
    >>> m = symbol("m", 1, None, 4)
    >>> integer_root(m // 4, m, 3).value
    12
    """
    low, high, step, rest = s.symbol_bounds
    if not isinstance(low, int) or isinstance(high, Expr) or not is_true(e.substitute({s: s + step}) - e >= 0):
        return Root(known=False)
    low += (rest - low) % step
    most = None if high is None else (high - low) // step

    def at(count: int) -> int:
        return int(e.evaluate({s.name: low + step * count}))

    last = 1
    while (most is None or last < most) and last < _MOST and at(last) < wanted:
        last *= 2
    first, last = 0, last if most is None else min(last, most)
    while first < last:  # the first value that reaches it
        middle = (first + last) // 2
        first, last = (middle + 1, last) if at(middle) < wanted else (first, middle)
    if (most is not None and most < 0) or at(first) != wanted:
        return Root()
    more = (most is None or first < most) and at(first + 1) == wanted
    return Root(several=True) if more else Root(low + step * first)
