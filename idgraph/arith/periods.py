"""Quotients and remainders whose numerator known facts keep within one period: ``x // d`` is a number, ``x % d`` a sum.

Symbols' own ranges are used by the rules of division; here a fact about a whole sum is (``2*i + j < 3``), which bounds
no symbol of it further.
"""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.arith.bounds import nonneg
from idgraph.arith.linear import Terms, combine, sum_interval, terms
from idgraph.arith.nodes import Expr, const, from_terms, postorder

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
