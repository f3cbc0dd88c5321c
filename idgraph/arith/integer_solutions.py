"""Conditions on integers that no integers satisfy, of sizes that are symbols too.

A conjunction is split into the cases of ``or``, ``!=``, ``min``, ``max`` and ``where``. In each case quotients and
remainders become unknowns of their own, equations are solved for one unknown after the other (modulo their smallest
coefficient, where none is 1), and what is left is eliminated by Fourier and Motzkin with bounds rounded to integers. A
product with a factor f >= 1, ``f*a``, is an unknown for which ``a = 0``, ``f*a >= f`` or ``f*a <= -f`` holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import gcd

from idgraph.arith.expr import FALSE, TRUE, ArithError, Expr, as_expr, not_
from idgraph.arith.facts import replace
from idgraph.arith.fourier_motzkin import ELIMINATED, Monomial, Row, contradicts, primitive
from idgraph.arith.linear import factors, terms

_CASES = 400  # cases of one question
_SPLITS = 3  # products that are split by sign, one inside of the other
_KEPT = 1 << 13
_CHOICES = ("min", "max", "where")
_ASKED: dict[frozenset[Expr], bool] = {}


class _TooMany(Exception):
    """More cases than one question may have."""


def no_solution(*conditions: Expr) -> bool:
    """Whether it is proved that no integers in the ranges of the symbols satisfy all ``conditions``.

    >>> from idgraph.arith import symbol
    >>> n, t = symbol("n", 1), symbol("t", 0, 9)
    >>> i, j = symbol("i", 0, n - 1), symbol("j", 0, n - 1)
    >>> no_solution((t * n + i).eq(2 * n + j), t.ne(2)), no_solution((t * 4 + i).eq(8 + j), t.ne(2))
    (True, False)
    """
    asked = frozenset(conditions)
    found = _ASKED.get(asked)
    if found is None:
        try:
            found = _Question(_CASES).closed([*_ranges(asked), *conditions])
        except (_TooMany, RecursionError, ArithError):
            found = False
        if len(_ASKED) >= _KEPT:
            _ASKED.clear()
        _ASKED[asked] = found
    return found


def follows(claim: Expr, *conditions: Expr) -> bool:
    """Whether it is proved that ``claim`` holds wherever all ``conditions`` do.

    >>> from idgraph.arith import maximum, minimum, symbol
    >>> n, i = symbol("n", 4), symbol("i", 0)
    >>> follows(minimum(i, n - 4) + 3 < n), follows(maximum(i, n - 4) + 3 < n)
    (True, False)
    """
    return claim is TRUE or no_solution(*conditions, not_(claim))


def _ranges(conditions: Iterable[Expr]) -> Iterator[Expr]:
    """Conditions that the ranges of the symbols say, and of the symbols in these."""
    left = [s for c in conditions for s in c.symbols]
    seen: set[Expr] = set()
    while left:
        s = left.pop()
        if s in seen:
            continue
        seen.add(s)
        low, high, step, rest = s.symbol_bounds
        for bound, least in ((low, True), (high, False)):
            if bound is not None:
                end = as_expr(bound)
                left += end.symbols
                yield end <= s if least else s <= end
        if step > 1:
            yield (s % step).eq(rest)


@dataclass(slots=True)
class _Question:
    left: int

    def closed(self, conditions: Sequence[Expr]) -> bool:
        """Whether no case has a solution."""
        plain: list[Expr] = []
        open_: list[Expr] = []
        for c in (x for y in conditions for x in y.conjuncts):
            if c is FALSE:
                return True
            if c is not TRUE:
                (open_ if c.op in ("or", "ne", "not") or _choice(c) is not None else plain).append(c)
        self.left -= 1
        if self.left < 0:
            raise _TooMany
        if _System.of(plain).empty():
            return True
        if not open_:
            return False
        chosen = min(open_, key=lambda c: (len(c.args) if c.op == "or" else 2, c.key))
        node = _choice(chosen)
        if node is not None:
            every = [*plain, *open_]
            return all(self.closed([*held, *(replace(c, {node: x}) for c in every)]) for x, held in _branches(node))
        rest = [*plain, *(c for c in open_ if c is not chosen)]
        return all(self.closed([*rest, c]) for c in _cases(chosen))


def _cases(c: Expr) -> tuple[Expr, ...]:
    """Conditions one of which holds where ``c`` does."""
    if c.op == "or":
        return c.args
    if c.op == "ne" and not c.args[0].cond:
        return c.args[0] < c.args[1], c.args[1] < c.args[0]
    turned = not_(c.args[0]) if c.op == "not" else TRUE
    return (TRUE if turned.op == "not" else turned,)


def _branches(node: Expr) -> list[tuple[Expr, list[Expr]]]:
    """Values of a choice, each with the condition on which it is chosen."""
    if node.op == "where":
        c, a, b = node.args
        return [(a, [c]), (b, [not_(c)])]
    return [(x, [x <= y if node.op == "min" else x >= y for y in node.args if y is not x]) for x in node.args]


def _choice(e: Expr) -> Expr | None:
    """An innermost choice between numbers in an expression."""
    for a in e.args:
        found = _choice(a)
        if found is not None:
            return found
    return e if e.op in _CHOICES and not e.cond else None


@dataclass(slots=True)
class _System:
    """Sums that are 0, and sums that are 0 or more, of monomials of unknowns."""

    zero: list[Row] = field(default_factory=list[Row])
    least: list[Row] = field(default_factory=list[Row])
    unknowns: dict[object, int] = field(default_factory=dict[object, int])
    quotients: dict[tuple[Expr, Expr], tuple[Row, Row]] = field(
        default_factory=dict[tuple[Expr, Expr], tuple[Row, Row]]
    )
    names: count[int] = field(default_factory=count)

    @staticmethod
    def of(conditions: Iterable[Expr]) -> _System:
        out = _System()
        for c in conditions:
            if c.op in ("lt", "le"):
                out.least.append(
                    _row_sum(_row_sum(out.sum(c.args[1]), out.sum(c.args[0]), -1), {(): -1} if c.op == "lt" else {})
                )
            elif c.op == "eq" and not c.args[0].cond:
                out.zero.append(_row_sum(out.sum(c.args[0]), out.sum(c.args[1]), -1))
        return out

    def numbered(self, other: _System) -> _System:
        """The same, of the unknowns of another."""
        self.unknowns, self.names = other.unknowns, other.names
        return self

    def unknown(self, key: object) -> Row:
        if key not in self.unknowns:
            self.unknowns[key] = next(self.names)
        return {(self.unknowns[key],): 1}

    def sum(self, e: Expr) -> Row:
        found, k = terms(e)
        out: Row = {(): k} if k else {}
        for base, v in found.items():
            part: Row = {(): 1}
            for f in factors(base):
                part = _row_product(part, self.atom(f))
            out = _row_sum(out, part, v)
        return out

    def atom(self, a: Expr) -> Row:
        match a.op:
            case "sym":
                return self.unknown(a.name)
            case "add" | "mul" | "const":
                return self.sum(a)
            case "floordiv" | "mod":
                x, d = a.args
                if (x, d) not in self.quotients:
                    self.quotients[x, d] = self.divided(x, d)
                return self.quotients[x, d][a.op == "mod"]
            case _:
                return self.unknown(a)

    def divided(self, x: Expr, d: Expr) -> tuple[Row, Row]:
        """Quotient and remainder; of a divisor that may be 0 or less they may be anything."""
        q = self.unknown(("quotient", x, d))
        by = self.sum(d)
        low = d.range.lo
        if low is None or low < 1:
            return q, self.unknown(("remainder", x, d))
        r = _row_sum(self.sum(x), _row_product(by, q), -1)
        if len(by) > 1 or () not in by:  # the remainder is an unknown: it stands in no product
            rest = self.unknown(("remainder", x, d))
            self.zero.append(_row_sum(r, rest, -1))
            r = rest
        self.least += [r, _row_sum(_row_sum(by, r, -1), {(): -1})]
        return q, r

    def empty(self, splits: int = _SPLITS) -> bool:
        """Whether it is shown that there is no solution."""
        while not self.solved():
            self.tighten()
            if not self.zero:
                break
        else:
            return True
        if contradicts(self.least):
            return True
        if splits == 0:
            return False
        for f, a in self.products():
            fa = _row_product({(f,): 1}, a)
            below, above = _row_multiple(a, -1), _row_multiple(fa, -1)
            cases = (
                _System([*self.zero, a], list(self.least)),
                _System(list(self.zero), [*self.least, _row_sum(a, {(): -1}), _row_sum(fa, {(f,): -1})]),
                _System(list(self.zero), [*self.least, _row_sum(below, {(): -1}), _row_sum(above, {(f,): -1})]),
            )
            return all(x.numbered(self).empty(splits - 1) for x in cases)
        return False

    def solved(self) -> bool:
        """Solves the equations, which leaves sums that are 0 or more only; whether one has no solution."""
        kept: list[Row] = []
        while self.zero:
            row = self.zero.pop()
            spans = [abs(v) for m, v in row.items() if m]
            g = gcd(*spans) if spans else 0
            if not g:
                if row.get((), 0):
                    return True
                continue
            if row.get((), 0) % g:
                return True
            row = {m: v // g for m, v in row.items()}
            alone = _alone(row)
            one = next((m for m in alone if abs(row[m]) == 1), None)
            if one is None and alone and all(len(m) <= 1 for m in row):
                one = min((abs(row[m]), m) for m in alone)[1]
                size = abs(row[one]) + 1
                fresh = self.unknown(("multiple", next(self.names)))
                hat = {m: (v + size // 2) % size - size // 2 for m, v in row.items()}
                self.zero.append(row)
                row = _row_sum({m: v for m, v in hat.items() if v}, fresh, -size)
            if one is None or abs(row[one]) != 1:
                kept.append(row)
                continue
            value = _row_multiple({m: v for m, v in row.items() if m != one}, -row[one])
            self.zero, self.least, kept = (
                [_row_with(x, one[0], value) for x in s] for s in (self.zero, self.least, kept)
            )
            if any(len(x) > ELIMINATED for x in (*self.zero, *self.least)):
                return False
        self.least += [r for row in kept for r in (row, _row_multiple(row, -1))]
        return False

    def tighten(self) -> None:
        """Sums divided by what their coefficients have in common; two that say that a sum is 0 are an equation."""
        held = dict[frozenset[tuple[Monomial, int]], int]()
        for row in self.least:
            key, c = primitive(row)
            held[key] = min(held.get(key, c), c)
        self.least = []
        for key, c in held.items():
            other = held.get(frozenset((m, -v) for m, v in key))
            row = {**dict(key), **({(): c} if c else {})}
            if other != -c or not _solvable(row):
                self.least.append(row)
            elif c > 0 or (c == 0 and min(key)[1] > 0):
                self.zero.append(row)

    def products(self) -> Iterator[tuple[int, Row]]:
        """A factor that is 1 or more, and a sum that stands in a product with it."""
        positive = {m[0] for row in self.least for m in row
                    if len(m) == 1 and row.keys() <= {m, ()} and row[m] > 0 and -row.get((), 0) >= row[m]}  # fmt: skip
        for row in sorted(self.least, key=len):
            wide = [m for m in row if len(m) > 1]
            for f in sorted(positive):
                if wide and all(f in m for m in wide):
                    yield f, {_other_factors(m, f): v for m, v in row.items() if f in m}


def _other_factors(m: Monomial, f: int) -> Monomial:
    k = m.index(f)
    return m[:k] + m[k + 1 :]


def _row_sum(a: Row, b: Row, k: int = 1) -> Row:
    out = dict(a)
    for m, v in b.items():
        out[m] = out.get(m, 0) + k * v
        if not out[m]:
            del out[m]
    return out


def _row_multiple(a: Row, k: int) -> Row:
    return {m: v * k for m, v in a.items()}


def _row_product(a: Row, b: Row) -> Row:
    out: Row = {}
    for m, v in a.items():
        for n, w in b.items():
            both = tuple(sorted((*m, *n)))
            out[both] = out.get(both, 0) + v * w
    return {m: v for m, v in out.items() if v}


def _row_with(row: Row, x: int, value: Row) -> Row:
    """A sum in which a value stands for an unknown."""
    out: Row = {}
    for m, v in row.items():
        part: Row = {tuple(y for y in m if y != x): v}
        for _ in range(m.count(x)):
            part = _row_product(part, value)
        out = _row_sum(out, part)
    return out


def _alone(row: Row) -> list[Monomial]:
    """The unknowns of a sum that stand in none of its products."""
    return [m for m in row if len(m) == 1 and not any(m[0] in k for k in row if len(k) > 1)]


def _solvable(row: Row) -> bool:
    """Whether an equation can be solved for one of its unknowns."""
    alone = _alone(row)
    return any(abs(row[m]) == 1 for m in alone) or (bool(alone) and all(len(m) <= 1 for m in row))
