"""Sums of quotients: one form for every expression made of an index by splits and merges.

``x % m`` is ``x - m*(x//m)`` and ``x//a % m`` is ``x//a - m*(x//(a*m))``, so a sum of digits of ``x`` is a sum of its
quotients ``x//s``, whose coefficients do not depend on how the digits were written. Where each ``s`` divides the next
one it is also a number in mixed radix: its quotient and remainder by ``d`` cut it in two if the digits below ``d`` add
up to less than ``d`` and those above are multiples of ``d``. Reshapes and permutes one after the other, and CuTe's
compositions of layouts, are such cuts, however deep they are nested.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from idgraph.arith.expr import VERBS, Expr, const, floordiv, from_terms, mod
from idgraph.arith.interval import Interval, interval
from idgraph.arith.linear import Terms, add_to, terms
from idgraph.arith.rewriter import rule

MOST_QUOTIENTS: Final = 64  # of a sum
_MOST_TRIED: Final = 200  # beginnings of sums that are looked at

Weights = dict[tuple[Expr, int], int]  # (x, s) -> coefficient of x//s
Quotients = tuple[Weights, int]  # the sum of coefficients times x//s, and a constant


class _Digit(NamedTuple):
    """``v * (x//s % n)``, where the digit lies between ``low`` and ``high``; ``n`` is 0 for all of ``x//s``."""

    x: Expr
    s: int
    n: int
    v: int
    low: int | None
    high: int | None


def mixed_radix_form(e: Expr) -> Quotients | None:
    """``e`` as a sum of quotients of atoms (neither sums nor quotients); None where that has too many terms."""
    work = [e]
    while work:
        node = work[-1]
        if node.quotients is not None:
            work.pop()
            continue
        missing = [a for a in _subsums(node) if a.quotients is None]
        if missing:
            work.extend(missing)
            continue
        node.quotients = _quotients_of(node)
        work.pop()
    return e.quotients or None


def _subsums(node: Expr) -> tuple[Expr, ...]:
    """The parts whose own sums are needed first."""
    if node.op in ("add", "mul"):
        return tuple(b for b in terms(node)[0] if b is not node)
    return node.args[:1] if _is_division_by_constant(node) else ()


def _is_division_by_constant(node: Expr) -> bool:
    return node.op in ("floordiv", "mod") and node.args[1].op == "const" and node.args[1].value > 0


def _quotients_of(node: Expr) -> Quotients | Literal[False]:
    """The sum of a node whose parts have theirs; False for too many terms."""
    if _is_division_by_constant(node):
        inner = node.args[0].quotients
        return _split_digits(node, inner, node.args[1].value) if inner else False
    if node.op != "add" and node.op != "mul" and node.op != "const":
        return {(node, 1): 1}, 0
    found: Weights = {}
    t, k = terms(node)
    for base, v in t.items():
        own = ({(node, 1): 1}, 0) if base is node else base.quotients
        if not own:
            return False
        for key, w in own[0].items():
            found[key] = found.get(key, 0) + v * w
        k += v * own[1]
    return _within((found, k))


def _within(sum_: Quotients) -> Quotients | Literal[False]:
    of = {key: v for key, v in sum_[0].items() if v}
    return (of, sum_[1]) if len(of) <= MOST_QUOTIENTS else False


def _split_digits(node: Expr, value: Quotients, d: int) -> Quotients | Literal[False]:
    """The quotient or remainder by ``d``: the sum left of, or right of, a cut between digits."""
    above: Weights = {}
    below: Weights = {}
    whole, rest = divmod(value[1], d)
    low: int | None = rest
    high: int | None = rest
    digits = _digits(value[0])
    for part in (p for g in digits or () for p in _divided(g, d)):
        times, v = divmod(part.v, d)
        _enter(above, part, times)
        _enter(below, part, v)
        if v:
            low = None if low is None or part.low is None else low + v * part.low
            high = None if high is None or part.high is None else high + v * part.high
    if digits is None or low is None or high is None or low < 0 or high >= d:
        x = node.args[0]
        return ({(x, d): 1}, 0) if node.op == "floordiv" else ({(x, 1): 1, (x, d): -d}, 0)
    return _within((above, whole) if node.op == "floordiv" else (below, rest))


def _digits(of: Weights) -> list[_Digit] | None:
    """A sum of quotients as digits; None where the divisors of one value do not divide each other."""
    by_value: dict[Expr, dict[int, int]] = {}
    for (x, s), v in of.items():
        by_value.setdefault(x, {})[s] = v
    found: list[_Digit] = []
    for x, q in by_value.items():
        lo, hi = interval(x)
        points = sorted(s for s in q if hi is None or s <= hi or lo is None or lo < 0)
        carried = 0
        for k, s in enumerate(points):
            above = points[k + 1] if k + 1 < len(points) else 0
            if above % s:
                return None
            v = carried + q[s]
            if above:
                found.append(_Digit(x, s, above // s, v, 0, above // s - 1))
            else:
                found.append(_Digit(x, s, 0, v, None if lo is None else lo // s, None if hi is None else hi // s))
            carried = v * (above // s)
    return [g for g in found if g.v]


def _divided(g: _Digit, d: int) -> tuple[_Digit, ...]:
    """A digit as two, where its multiples reach ``d`` between them."""
    v = g.v % d
    if not v or d % v:
        return (g,)
    n = d // v
    if (g.n and (g.n % n or g.n == n)) or (g.low is not None and g.low >= 0 and g.high is not None and g.high < n):
        return (g,)
    low, high = (None if b is None else b // n for b in (g.low, g.high))
    return _Digit(g.x, g.s, n, g.v, 0, n - 1), _Digit(g.x, g.s * n, g.n // n, g.v * n, low, high)


def _enter(out: Weights, g: _Digit, v: int) -> None:
    if v:
        out[g.x, g.s] = out.get((g.x, g.s), 0) + v
        if g.n:
            out[g.x, g.s * g.n] = out.get((g.x, g.s * g.n), 0) - v * g.n


def digit_bounds(e: Expr) -> Interval:
    """Bounds of a sum by those of its digits.

    >>> from idgraph.arith import parse
    >>> digit_bounds(parse("x//2 - x//8*4", {"x": 64}))
    (0, 3)
    """
    found = mixed_radix_form(e)
    digits = None if found is None else _digits(found[0])
    if found is None or digits is None:
        return None, None
    low: int | None = found[1]
    high: int | None = found[1]
    for g in digits:
        a, b = (g.low, g.high) if g.v > 0 else (g.high, g.low)
        low = None if low is None or a is None else low + g.v * a
        high = None if high is None or b is None else high + g.v * b
    return low, high


VERBS.digit_bounds = digit_bounds


# ---- back to expressions -------------------------------------------------------------------------------------------
Part = tuple[int, int, int]  # (v, s, m): v * (x//s % m), or v * (x//s) where m is 0


def shortest(sum_: Quotients) -> tuple[Terms, int]:
    """The sum as quotients and digits, as few operations as are found."""
    return _digits_as_terms(sum_, _fewest_parts)


def as_digits(sum_: Quotients) -> tuple[Terms, int]:
    """The sum as digits, whose ranges tell more than those of quotients; as quotients where it has no digits."""
    return _digits_as_terms(sum_, _all_digits)


def _digits_as_terms(sum_: Quotients, parts: Callable[[dict[int, int]], list[Part]]) -> tuple[Terms, int]:
    by_value: dict[Expr, dict[int, int]] = {}
    for (x, s), v in sum_[0].items():
        lo, hi = interval(x)
        if lo is None or lo < 0 or hi is None or s <= hi:
            by_value.setdefault(x, {})[s] = v
    out: Terms = {}
    k = sum_[1]
    for x, q in by_value.items():
        for v, s, m in parts(q):
            t, c = terms(x if s == 1 and m == 0 else _digit(x, s, m))
            add_to(out, t, v)
            k += v * c
    return out, k


def _all_digits(q: dict[int, int]) -> list[Part]:
    points = sorted(q)
    if any(b % a for a, b in pairwise(points)):
        return [(v, s, 0) for s, v in q.items()]
    found: list[Part] = []
    carried = 0
    for s, above in pairwise([*points, 0]):
        v = carried + q[s]
        carried = v * (above // s)
        if v:
            found.append((v, s, above // s))
    return found


def _digit(x: Expr, s: int, m: int) -> Expr:
    quotient = x if s == 1 else floordiv(x, const(s))
    return mod(quotient, const(m)) if m else quotient


def _fewest_parts(q: dict[int, int]) -> list[Part]:
    """Parts ``(v, s, m)``, meaning ``v * (x//s % m)``, that add up to ``q``: fewest operations, then divisions."""
    points = sorted(q)
    best: tuple[int, int, list[Part]] | None = None
    pending: list[tuple[int, int, int, dict[int, int], list[Part]]] = [(0, 0, 0, q, [])]
    for _ in range(max(_MOST_TRIED, 2 * len(points))):
        if not pending:
            break
        n, ops, divs, left, parts = pending.pop()
        while n < len(points) and not left[points[n]]:
            n += 1
        if best is not None and (ops, divs) >= best[:2]:
            continue
        if n == len(points):
            best = ops, divs, parts
            continue
        s = points[n]
        v = left[s]
        own = 1 + (s > 1) + (abs(v) != 1)
        for to in points[n + 1 :]:
            if to % s == 0 and abs(rest := left[to] + v * (to // s)) <= 1:
                digit = (v, s, to // s)
                pending.append((n + 1, ops + own + 1, divs + (s > 1) + 1, {**left, to: rest}, [*parts, digit]))
        pending.append((n + 1, ops + own, divs + (s > 1), left, [*parts, (v, s, 0)]))
    return [(v, s, 0) for s, v in q.items()] if best is None else best[2]


def cost(e: Expr) -> int:
    """The number of operations in the printed form of ``e``.

    >>> from idgraph.arith import parse
    >>> cost(parse("i*32 + j%8")), cost(parse("8 - i"))
    (3, 1)
    """
    found = e.cached_cost
    if found >= 0:
        return found
    work = [e]
    while work:
        node = work[-1]
        if node.cached_cost >= 0:
            work.pop()
            continue
        missing = [a for a in node.args if a.cached_cost < 0]
        if missing:
            work.extend(missing)
            continue
        node.cached_divmods = (node.op in ("floordiv", "mod")) + sum(a.cached_divmods for a in node.args)
        node.cached_cost = _own(node)
        work.pop()
    return e.cached_cost


def _own(node: Expr) -> int:
    args = node.args
    if node.op == "add":
        total = len(args) - 1
        positive = False
        for t in args:
            total += t.cached_cost
            if (t.value if t.op == "const" else t.coef) > 0:
                positive = True
            elif t.coef == -1:
                total -= 1  # `a - b`: the sign is the operator between the terms
        if not positive and all(t.coef == -1 for t in args if t.op != "const"):
            total += 1
        return total
    total = sum(a.cached_cost for a in args)
    match node.op:
        case "const" | "sym":
            return 0
        case "and" | "or" | "not":
            return total
        case "mul" | "min" | "max" | "xor":
            return total + len(args) - 1
        case _:
            return total + 1


def divmods(e: Expr) -> int:
    """Floor divisions and modulos in ``e``, counted as a tree."""
    cost(e)
    return e.cached_divmods


VERBS.cost = cost
VERBS.divmods = divmods


@rule(
    "written",
    "digits-kept",
    "(a*(x//s) + y) // (a*d), (a*(x//s) + y) % (a*d)",
    "x//(s*d), a*(x//s % d) + y",
    "y is a sum of digits below a: it is cheaper",
)
def preserve_digits(node: Expr) -> Expr | None:
    """Any number of cuts at once, tried before the operands are rewritten: that may hide that they are digits."""
    if not any(b.op in ("floordiv", "mod") and b.args[0].divmods for b in terms(node)[0]):
        return None
    found = mixed_radix_form(node)
    if found is None:
        return None
    for made in (as_digits, shortest):
        out = from_terms(*made(found))
        if cost(out) < cost(node):
            return out
    return None
