"""From the normal form (sums multiplied out) to the form with the fewest operations."""

from __future__ import annotations

from collections.abc import Iterable

from idgraph.arith.expr import Expr, add, const, from_terms, mod, mul, rebuild
from idgraph.arith.linear import Terms, combine, divide_base, factors, sum_interval, terms
from idgraph.arith.mixed_radix import cost, mixed_radix_form, shortest

_MOST_SUMS = 500


def cheapest(e: Expr) -> Expr:
    """The normal expression ``e`` with common factors taken out and constants moved where they cost least."""
    work = [e]
    while work:
        node = work[-1]
        if node.least is not None:
            work.pop()
            continue
        missing = [a for a in _factorable_operands(node) if a.least is None]
        if missing:
            work.extend(missing)
            continue
        node.least = (
            node if not node.args else _factor_sum(node) if node.op in ("add", "mul") else _cheapest_operands(node)
        )
        work.pop()
    return e if e.least is None else e.least


def _factorable_operands(node: Expr) -> Iterable[Expr]:
    """The parts that must be in cheapest form first: the atoms of a sum or product, else the operands."""
    if node.op in ("add", "mul"):
        return [f for b in terms(node)[0] for f in factors(b) if f is not node]
    return node.args


def _cheapest_operands(node: Expr) -> Expr:
    args = tuple(_cheapest_form(a) for a in node.args)
    return node if all(a is b for a, b in zip(args, node.args, strict=True)) else rebuild(node, args)


def _cheapest_form(a: Expr) -> Expr:
    return a if a.least is None else a.least


def _factor_sum(node: Expr) -> Expr:
    t, c = terms(node)
    if any(b.op in ("floordiv", "mod") for b in t):
        t, c, digits = _fewest_digits(node, t, c)
        t, c, more = _modulo_absorbed(t, c)
        for b in (*digits, *more):
            cheapest(b)
    return _Factoring().least(t, c)


def _fewest_digits(node: Expr, t: Terms, c: int) -> tuple[Terms, int, list[Expr]]:
    """Quotients and digits of one value as the fewest with the same sum, where that saves an operation."""
    if sum(b.op in ("floordiv", "mod") for b in t) < 2 or (found := mixed_radix_form(node)) is None:
        return t, c, []
    new, k = shortest(found)
    if cost(from_terms(new, k)) >= cost(from_terms(t, c)):
        return t, c, []
    return new, k, [b for b in new if b not in t]


def _modulo_absorbed(t: Terms, c: int) -> tuple[Terms, int, list[Expr]]:
    """``v*(x % d) + S -> (v*x + S) % (v*d)`` for 0 <= S < v, where that saves an operation."""
    best = cost(from_terms(t, c))
    for base, v in t.items():
        if base.op != "mod" or v < 2 or base.args[1].op != "const":
            continue
        period = v * base.args[1].value
        tx, cx = terms(base.args[0])
        rest = {b: w for b, w in t.items() if b is not base}
        for small in ({}, rest) if rest else ({},):
            lo, hi = sum_interval(small, c)
            if lo is None or hi is None or lo < 0 or hi >= v:
                continue
            inner, k = combine(((tx, cx, v), (small, c, 1)))
            new = mod(from_terms({b: _nearest_residue(w, period) for b, w in inner.items()}, k % period), const(period))
            left = {b: w for b, w in rest.items() if b not in small}
            if new.op == "mod" and new not in left and cost(from_terms({**left, new: 1}, 0)) < best:
                return {**left, new: 1}, 0, [new]
    return t, c, []


def _nearest_residue(v: int, period: int) -> int:
    """The residue of ``v`` that a sum writes with fewest signs: 0 <= r, but -1 for period - 1."""
    r = v % period
    return -1 if r == period - 1 else r


class _Factoring:
    """Sums with common factors taken out, greedily, while that saves multiplications; each sum is looked at once.

    A sum stays as it is where more than `_MOST_SUMS` sums have been looked at for it.
    """

    __slots__ = ("divided", "found", "terms")

    def __init__(self) -> None:
        self.found: dict[tuple[frozenset[tuple[Expr, int]], int], Expr] = {}
        self.terms: dict[tuple[Expr, int], Expr] = {}
        self.divided: dict[tuple[Expr, Expr], Expr | None] = {}

    def least(self, t: Terms, c: int) -> Expr:
        """The sum in the cheapest form that is found."""
        if len(t) < 2:
            return self.plain(t, c)
        asked = frozenset(t.items()), c
        if asked not in self.found:
            self.found[asked] = plain = self.plain(t, c)
            if len(self.found) <= _MOST_SUMS:
                self.found[asked] = self.best(t, c, plain)
        return self.found[asked]

    def plain(self, t: Terms, c: int) -> Expr:
        """The sum of the terms as they are."""
        return add((*(self.term(b, v) for b, v in t.items()), const(c)))

    def term(self, base: Expr, v: int) -> Expr:
        """One term, made once for all sums that have it."""
        found = self.terms.get((base, v))
        if found is None:
            found = self.terms[base, v] = mul((const(v), *(_cheapest_form(f) for f in factors(base))))
        return found

    def divide(self, base: Expr, candidate: Expr) -> Expr | None:
        """``base`` without a factor, found once for all sums that have the two; None where it has no such factor."""
        asked = base, candidate
        if asked not in self.divided:
            self.divided[asked] = divide_base(base, (candidate,))
        return self.divided[asked]

    def best(self, t: Terms, c: int, plain: Expr) -> Expr:
        """The cheapest of the sum as it is and with any one factor taken out."""
        candidates: dict[Expr | int, int] = {}
        for base, v in t.items():
            if abs(v) > 1:
                candidates[abs(v)] = candidates.get(abs(v), 0) + 1
            for f in dict.fromkeys(factors(base)):
                candidates[f] = candidates.get(f, 0) + 1
        best = plain
        for candidate in sorted((x for x, n in candidates.items() if n > 1), key=lambda x: -candidates[x]):
            found = self.without(t, c, candidate)
            if cost(found) < cost(best) or (cost(found) == cost(best) and best is not plain and found.key < best.key):
                best = found
        return best

    def without(self, t: Terms, c: int, candidate: Expr | int) -> Expr:
        """The sum with one factor taken out of the terms that have it."""
        inner: Terms = {}
        outer: Terms = {}
        inner_c = 0
        for base, v in t.items():
            if isinstance(candidate, int):
                if abs(v) == candidate:
                    inner[base] = v // candidate
                else:
                    outer[base] = v
                continue
            left = self.divide(base, candidate)
            if left is None:
                outer[base] = v
            elif left.op == "const":
                inner_c += v
            else:
                inner[left] = inner.get(left, 0) + v
        factor = const(candidate) if isinstance(candidate, int) else _cheapest_form(candidate)
        return add((mul((factor, self.least(inner, inner_c))), self.least(outer, c)))
