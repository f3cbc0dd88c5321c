"""Expressions as sums: integer coefficients over products of atoms, plus a constant.

The normal form of the simplifier multiplies sums out, so a normal expression *is* such a sum and reading it as
one costs nothing.

Divisibility of sums with remainders in them: modulo k, where k divides c*m, c*(x % m) is c*x.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from idgraph.arith.expr import Expr, const, from_terms, make, sort_key
from idgraph.arith.interval import Interval, interval, multiple_of

Terms = dict[Expr, int]
Poly = tuple[Terms, int]  # the terms and the constant
MAX_TERMS = 64


def terms(x: Expr) -> tuple[Terms, int]:
    """``x`` as (base -> coefficient, constant).  The dictionary is shared: do not change it."""
    found = x.lin
    if found is not None:
        return found
    if x.op == "add" or x.op == "mul":
        work = [x]  # sums under products under sums: innermost first, so that depth costs no recursion
        while work:
            missing = [a for a in work[-1].args if a.lin is None and _has_sum(a)]
            if missing:
                work.extend(missing)
            else:
                last = work.pop()
                last.lin = _read_terms(last)
        return x.lin if x.lin is not None else _read_terms(x)
    found = x.lin = _read_terms(x)
    return found


def _has_sum(a: Expr) -> bool:
    """Whether ``a`` is a sum, or a product with a sum as a factor."""
    return a.op == "add" or (a.op == "mul" and any(f.op == "add" for f in a.args))


def _read_terms(x: Expr) -> tuple[Terms, int]:
    match x.op:
        case "add":
            out: Terms = {}
            constant = 0
            for t in x.args:
                if t.op == "const":
                    constant += t.value
                elif t.op == "mul" and _has_sum(t):
                    more, k = terms(t)
                    constant += k
                    add_to(out, more, 1)
                else:
                    add_to(out, {t if t.base is None else t.base: t.coef}, 1)
            return (out, constant)
        case "mul" if _has_sum(x):
            return _multiplied(x)
        case "const":
            return ({}, x.value)
        case _:
            return ({x if x.base is None else x.base: x.coef}, 0)


def _multiplied(x: Expr) -> tuple[Terms, int]:
    """A product with sums as factors, multiplied out unless that has too many terms."""
    found: tuple[Terms, int] | None = ({}, 1)
    for f in x.args:
        found = times(found, terms(f))
        if found is None:
            return ({x if x.base is None else x.base: x.coef}, 0)
    return found


def combine(parts: Iterable[tuple[Terms, int, int]]) -> tuple[Terms, int]:
    """The sum of ``k * (terms + constant)`` over ``(terms, constant, k)``."""
    out: Terms = {}
    total = 0
    for t, c, k in parts:
        total += c * k
        for base, v in t.items():
            out[base] = out.get(base, 0) + v * k
    return {b: v for b, v in out.items() if v}, total


def minus(a: Expr, b: Expr) -> tuple[Terms, int]:
    """``a - b`` as a sum."""
    ta, ca = terms(a)
    tb, cb = terms(b)
    if not tb:
        return ta, ca - cb
    return combine(((ta, ca, 1), (tb, cb, -1)))


def difference(a: Expr, b: Expr) -> Expr:
    """``a - b`` with like terms cancelled."""
    return from_terms(*minus(a, b))


def factors(base: Expr) -> tuple[Expr, ...]:
    """The atoms of a product (a base, so without constant factor)."""
    return base.args if base.op == "mul" else (base,)


def is_exact_quotient(a: Expr) -> bool:
    """Whether an atom is ``y//k`` of a y that is a multiple of k, a positive constant: k times it is y."""
    return (
        a.op == "floordiv"
        and a.args[1].op == "const"
        and a.args[1].value > 0
        and multiple_of(a.args[0], a.args[1].value)
    )


def product_of(atoms: Iterable[Expr]) -> Expr:
    """The product of atoms as a base; the empty product is 1."""
    found = sorted(atoms, key=sort_key)
    if not found:
        return const(1)
    return found[0] if len(found) == 1 else make("mul", tuple(found))


def times(a: tuple[Terms, int], b: tuple[Terms, int]) -> tuple[Terms, int] | None:
    """The product of two sums multiplied out, or None if it has too many terms."""
    (ta, ca), (tb, cb) = a, b
    if len(ta) * len(tb) > MAX_TERMS:
        return None
    if not tb:
        return {x: v * cb for x, v in ta.items() if cb}, ca * cb
    if not ta:
        return {x: v * ca for x, v in tb.items() if ca}, ca * cb
    out: Terms = {}
    for x, v in ta.items():
        if cb:
            out[x] = out.get(x, 0) + v * cb
        for y, w in tb.items():
            base = product_of((*factors(x), *factors(y)))
            out[base] = out.get(base, 0) + v * w
    if ca:
        for y, w in tb.items():
            out[y] = out.get(y, 0) + ca * w
    return {x: v for x, v in out.items() if v}, ca * cb


def divide_base(base: Expr, by: tuple[Expr, ...]) -> Expr | None:
    """The base without the atoms ``by``, or None if one of them is not a factor."""
    left = list(factors(base))
    for atom in by:
        if atom not in left:
            return None
        left.remove(atom)
    return product_of(left)


def add_to(out: Terms, extra: Terms, k: int) -> None:
    """``out += k * extra`` in place; zero coefficients are removed."""
    for base, v in extra.items():
        new = out.get(base, 0) + v * k
        if new:
            out[base] = new
        else:
            out.pop(base, None)


def sum_interval(t: Terms, c: int) -> Interval:
    """Bounds of a sum without building it."""
    low: int | None = c
    high: int | None = c
    for base, v in t.items():
        found = base.iv
        x, y = found if found is not None else interval(base)
        if v < 0:
            x, y = y, x
        low = None if low is None or x is None else low + v * x
        high = None if high is None or y is None else high + v * y
    return (low, high)


def content(t: Terms, start: int = 0) -> int:
    """The greatest common divisor of the coefficients and ``start``."""
    g = start
    for v in t.values():
        g = gcd(g, v)
        if g == 1:
            break
    return g


_ROUNDS = 4  # remainders inside remainders


def divisible(e: Expr, k: int) -> bool:
    """Whether every value of ``e`` is proved to be a multiple of ``k``, also through remainders.

    >>> from idgraph.arith import parse, multiple_of
    >>> e = parse("i + 131071*(i % 64)", {"i": 4096})
    >>> multiple_of(e, 4), divisible(e, 4), divisible(e, 64), divisible(e, 128)
    (False, True, True, False)
    """
    for _ in range(_ROUNDS):
        if multiple_of(e, k):
            return True
        if k == 0:
            return False
        known, constant = terms(e)
        reduced: Terms = {}
        for base, c in known.items():
            if base.op == "mod" and base.args[1].op == "const" and c * base.args[1].value % k == 0:
                inside, more = terms(base.args[0])
                add_to(reduced, inside, c)
                constant += more * c
            else:
                add_to(reduced, {base: c}, 1)
        made = from_terms({base: c % k for base, c in reduced.items() if c % k}, constant % k)
        if made == e:
            return False
        e = made
    return multiple_of(e, k)
