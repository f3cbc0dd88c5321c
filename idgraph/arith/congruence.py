"""Congruences that a condition states (``s % 6 == 0``), and the quotients and remainders that follow.

Quotients and remainders whose numerator known facts keep within one period: ``x // d`` is a number, ``x % d`` a sum.

Symbols' own ranges are used by the rules of division; here a fact about a whole sum is (``2*i + j < 3``), which bounds
no symbol of it further.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

from idgraph.arith.expr import Expr, const, from_terms, postorder
from idgraph.arith.fourier_motzkin import nonneg
from idgraph.arith.interval import congruence
from idgraph.arith.linear import Terms, add_to, combine, sum_interval, terms

_MAX_RESIDUES = 12


class Residue(NamedTuple):
    """The terms ``sum`` add up to ``r`` modulo ``m``."""

    sum: Terms
    m: int
    r: int


def residues_of(cond: Expr) -> list[Residue]:
    """The congruences that a (normal) condition states."""
    out: list[Residue] = []
    for c in cond.conjuncts:
        if c.op in ("eq", "ne"):
            found = _residue(c)
            if found is not None:
                out.append(found)
    return out[:_MAX_RESIDUES]


def _residue(c: Expr) -> Residue | None:
    """``x % m == r``, ``x % 2 != r``, ``x == m*y + r``."""
    t, k = combine(((*terms(c.args[0]), 1), (*terms(c.args[1]), -1)))
    mods = [b for b in t if b.op == "mod" and b.args[1].op == "const" and b.args[1].value > 1]
    if len(t) == 1 and len(mods) == 1 and abs(t[mods[0]]) == 1:
        m = mods[0].args[1].value
        if c.op == "ne" and m != 2:
            return None
        tx, cx = terms(mods[0].args[0])
        if not tx or cx:  # a normal condition has its constants on the other side
            return None
        value = -k * t[mods[0]] + (c.op == "ne")
        return Residue(tx, m, value % m)
    if c.op == "ne" or len(t) < 2:
        return None
    for base, v in t.items():  # base == the rest, which is all of one residue
        rest = {b: w for b, w in t.items() if b is not base}
        m = 0
        r = k
        for b, w in rest.items():
            bm, br = congruence(b)
            m, r = gcd(m, w * bm), r + w * br
        if abs(v) == 1 and base.op == "sym" and m > 1:
            return Residue({base: 1}, m, -r * v % m)
    return None


def merged(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int] | None:
    """``(m, r)`` of both congruences together, None where no number has both (Chinese remainders)."""
    (m, r), (n, s) = a, b
    g = gcd(m, n)
    if (s - r) % g:
        return None
    step = n // g
    return m * step, (r + m * ((s - r) // g * pow(m // g, -1, step) % step)) % (m * step)


def of_symbols(known: list[Residue]) -> dict[Expr, tuple[int, int]]:
    """The residues of each single symbol (or atom) modulo a number, its own range included."""
    out: dict[Expr, tuple[int, int]] = {}
    for t, m, r in known:
        if len(t) != 1:
            continue
        base, v = next(iter(t.items()))
        g = gcd(v, m)
        if r % g or base.op == "mul":
            continue  # no number at all: another rule sees that
        n = m // g
        own = out.get(base, congruence(base))
        if n == 1 or own[0] == 0:
            continue
        both = merged(own, (n, r // g * pow(v // g, -1, n) % n))
        if both is not None and both != own:
            out[base] = both
    return out


def by_residues(e: Expr, known: list[Residue]) -> dict[Expr, Expr]:
    """Remainders of ``e`` that are numbers, and sums with whole quotients, where the residues of sums hold."""
    sums = [f for f in known if len(f.sum) > 1 or next(iter(f.sum)).op == "mul"]
    if not sums:
        return {}
    out: dict[Expr, Expr] = {}
    for node in postorder(e):
        if node.op == "mod" and node.args[1].op == "const":
            r = _remainder(node, sums)
            if r is not None:
                out[node] = from_terms({}, r)
        elif node.op in ("add", "mul"):
            whole = _multiple_of_quotient(node, sums)
            if whole is not None:
                out[node] = whole
    return out


def _remainder(node: Expr, known: list[Residue]) -> int | None:
    """The remainder of ``node``'s numerator by its divisor, where a residue tells it."""
    d = node.args[1].value
    t, c = terms(node.args[0])
    for f in known:
        if d > 0 and f.m % d == 0:
            base, v = next(iter(f.sum.items()))
            for k in {t.get(base, 0) // v, 1, -1}:
                if all((t.get(b, 0) - k * f.sum.get(b, 0)) % d == 0 for b in {*t, *f.sum}):
                    return (c + k * f.r) % d
    return None


def _multiple_of_quotient(node: Expr, known: list[Residue]) -> Expr | None:
    """``k*d*(x//d)`` written ``k*(x - r)``, r being the remainder of ``x`` by d."""
    t, c = terms(node)
    for base, v in t.items():
        if base.op != "floordiv" or base.args[1].op != "const" or v % base.args[1].value:
            continue
        r = _remainder(base, known)
        if r is not None:
            k = v // base.args[1].value
            tx, cx = terms(base.args[0])
            out = {b: w for b, w in t.items() if b is not base}
            add_to(out, tx, k)
            return from_terms(out, c + k * (cx - r))
    return None


Fact = tuple[Terms, int]  # the sum is >= 0


def within_periods(e: Expr, known: Sequence[Fact]) -> dict[Expr, Expr]:
    """Divisions and modulos of ``e`` with what they are where the facts hold."""
    sums = [f for f in known if len(f[0]) > 1]
    if not sums:
        return {}
    out: dict[Expr, Expr] = {}
    for node in postorder(e):
        if node.op in ("floordiv", "mod"):
            found = _settled(node, sums)
            if found is not None:
                out[node] = found
    return out


def _settled(node: Expr, known: Sequence[Fact]) -> Expr | None:
    d = node.args[1]
    if d.op != "const":
        return _below_divisor(node, known)
    n = d.value
    if n <= 0:
        return None
    for t, c in _readings(node, n, known):
        lo, hi = between(t, c, known)
        if lo is not None and hi is not None and lo // n == hi // n:
            k = lo // n
            return const(k) if node.op == "floordiv" else from_terms(t, c - k * n)
    return None


def _readings(node: Expr, n: int, known: Sequence[Fact]) -> list[Fact]:
    """The numerator, for a modulo also the sums of facts that are congruent to it."""
    t, c = terms(node.args[0])
    out = [(t, c)]
    if node.op == "mod":
        for ft, _ in known:
            for sign in (1, -1):
                other = {b: v * sign for b, v in ft.items()}
                if other != t and all((other.get(b, 0) - t.get(b, 0)) % n == 0 for b in {*other, *t}):
                    out.append((other, c))
    return out


def between(t: Terms, c: int, known: Sequence[Fact]) -> tuple[int | None, int | None]:
    """Bounds of a sum by ranges and by each fact: ``x <= x + k*fact`` and ``x >= x - k*fact``."""
    lo, hi = sum_interval(t, c)
    for ft, fc in known:
        base = next((b for b in ft if b in t), None)
        if base is None or t[base] % ft[base]:
            continue
        k = t[base] // ft[base]
        rest, rc = combine(((t, c, 1), (ft, fc, -k)))
        low, high = sum_interval(rest, rc)
        if k > 0:  # x = rest + k*fact >= rest
            lo = low if lo is None else lo if low is None else max(lo, low)
        else:
            hi = high if hi is None else hi if high is None else min(hi, high)
    return lo, hi


def _below_divisor(node: Expr, known: Sequence[Fact]) -> Expr | None:
    """``0 <= x < d`` for a divisor that is not a number."""
    x, d = node.args
    t, c = terms(x)
    if not any(_leaves(t, c, f) for f in known) and not nonneg(t, c):
        return None
    room, rc = combine(((*terms(d), 1), (t, c, -1)))
    if not any(_leaves(room, rc - 1, f) for f in known):
        return None
    return const(0) if node.op == "floordiv" else x


def _leaves(t: Terms, c: int, fact: Fact) -> bool:
    """Whether ``t + c >= 0`` follows from the fact."""
    rest, rc = combine(((t, c, 1), (*fact, -1)))
    return nonneg(rest, rc)
