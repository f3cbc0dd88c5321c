"""Inverses of mixed-radix maps: reshapes, permutations, flips, paddings, slices and rolls, one after the other.

``x % d`` is ``x - d*(x//d)``, so each result of such a map is a sum of its symbols and of quotients. One quotient
stands in several results: integer row operations on the equations ``result = image`` remove it from all but one, and
what is left is the linear number that the results are digits of. That number is cut into digits (remainders ``x - d*q``
with ``0 <= r < d`` among them) wherever those below a step add up to less than the step. Each digit is an equation
again, until every symbol is one.

A quotient is written one way however the expression was simplified: multiples of the divisor leave it, and digits below
a common step of the others are divided by that step first. So equal numbers are equal sums, and a round trip is proved
by comparing sums. Extents may be symbols.

Long: sums of quotients as digits, and equations of them solved: one algorithm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import gcd, lcm

from idgraph.arith.expr import Expr, as_expr, const, floordiv, from_terms, mod, postorder, symbol, xor
from idgraph.arith.fourier_motzkin import nonneg, positive
from idgraph.arith.interval import interval
from idgraph.arith.linear import Poly, Terms, combine, content, factors, product_of, terms, times
from idgraph.arith.mixed_radix import cost, digit_bounds
from idgraph.arith.simplify import simplify
from idgraph.arith.solve import solve_bits

_ROUNDS = 12
_MOST_ROWS = 40
_MOST_SHIFTS = 4
_STEPS = 20_000
_BASES = 48  # ways to write one sum in digits that are tried
_MOST_NODES = 2000


def _neg(p: Poly) -> Poly:
    return {b: -v for b, v in p[0].items()}, -p[1]


def _plus(a: Poly, b: Poly, k: int = 1) -> Poly:
    return combine(((*a, 1), (*b, k)))


def _expr(p: Poly) -> Expr:
    return from_terms(*p)


def _at_least(p: Poly, low: int = 0) -> bool:
    return nonneg(p[0], p[1] - low)


def _divide(p: Poly, d: Poly) -> Poly | None:
    """``p / d`` where that is a sum again: ``d`` a number or one product, or ``p`` a multiple of it by a number."""
    whole, rest = _multiple_and_rest(p, d)
    return None if rest[0] or rest[1] else whole


def _multiple_and_rest(p: Poly, d: Poly) -> tuple[Poly, Poly]:
    """``p`` as a multiple of ``d`` and a rest: term by term for a number or one product, by its first term else."""
    if not d[0]:
        n = d[1]
        over = {b: -((n // 2 - v) // n) if v > 0 else (v + n // 2) // n for b, v in p[0].items()}  # nearest to v/n
        rest = {b: v - over[b] * n for b, v in p[0].items()}
        return ({b: v for b, v in over.items() if v}, p[1] // n), ({b: v for b, v in rest.items() if v}, p[1] % n)
    lead, by = min(d[0].items(), key=lambda item: (-len(factors(item[0])), item[0].key))
    found: Terms = {}
    number = 0
    for base, v in p[0].items():
        left, times_ = list(factors(base)), v // by
        if v % by or any(left.count(f) < factors(lead).count(f) for f in factors(lead)):
            continue
        for f in factors(lead):
            left.remove(f)
        if left:
            key = product_of(left)
            found[key] = found.get(key, 0) + times_
        else:
            number += times_
    quotient = (found, number)
    taken = times(quotient, d)
    if taken is None:
        return ({}, 0), p
    rest = _plus(p, taken, -1)
    fewer = len(rest[0]) + (rest[1] != 0) < len(p[0]) + (p[1] != 0)
    return (quotient, rest) if len(d[0]) + (d[1] != 0) == 1 or fewer else (({}, 0), p)


@dataclass(frozen=True, slots=True)
class Remainder:
    """A sum that lies in 0 <= sum < d: ``x - d*(x//d)``."""

    form: Poly
    d: Poly


class QuotientForms:
    """Expressions as sums of symbols and quotients, each quotient in one form; and the remainders met on the way."""

    __slots__ = ("_found", "_quotients", "divisions", "left", "remainders")

    def __init__(self) -> None:
        self._found: dict[Expr, Poly] = {}
        self._quotients: dict[tuple[frozenset[tuple[Expr, int]], int, Expr], Poly] = {}
        self.left = _STEPS  # steps of searches for digits
        self.divisions: dict[Expr, tuple[Poly, Poly]] = {}  # quotient atom -> (dividend, divisor)
        self.remainders: dict[tuple[frozenset[tuple[Expr, int]], int], Remainder] = {}

    def of(self, e: Expr) -> Poly:
        """``e`` as such a sum."""
        for node in postorder(e):
            if node not in self._found:
                self._found[node] = self._read(node)
        return self._found[e]

    def equal(self, a: Expr, b: Expr) -> bool:
        """Whether two expressions are one sum, hence equal everywhere."""
        if len(postorder(a)) + len(postorder(b)) > _MOST_NODES:
            return False
        difference = _plus(self.of(a), self.of(b), -1)
        return not difference[0] and difference[1] == 0

    def _read(self, node: Expr) -> Poly:
        parts = [self._found[a] for a in node.args]
        match node.op:
            case "add":
                return combine([(*p, 1) for p in parts])
            case "mul":
                found: Poly | None = ({}, 1)
                for p in parts:
                    found = None if found is None else times(found, p)
                return ({node: 1}, 0) if found is None else found
            case "floordiv" | "mod" if self._positive(node, parts[1]):
                quotient = self.quotient(parts[0], parts[1])
                if node.op == "floordiv":
                    low, high = interval(node)
                    if low is not None and high is not None and low >= 0 and len(quotient[0]) > 1:
                        self.keep(quotient, ({}, high + 1))
                    return quotient
                taken = times(quotient, parts[1])
                if taken is None:
                    return {node: 1}, 0
                form = _plus(parts[0], taken, -1)
                self.keep(form, parts[1])
                return form
            case _:
                return terms(node)

    @staticmethod
    def _positive(node: Expr, d: Poly) -> bool:
        return d[1] > 0 if not d[0] else positive(_expr(d), node.symbols)

    def quotient(self, x: Poly, d: Poly) -> Poly:
        """``x // d``, for ``d > 0``."""
        key = frozenset(x[0].items()), x[1], _expr(d)
        found = self._quotients.get(key)
        if found is None:
            found = self._quotients[key] = self._quotient(x, d)
        return found

    def _quotient(self, x: Poly, d: Poly) -> Poly:
        whole, rest = _multiple_and_rest(x, d)
        if not d[0]:
            inner = self._by_number(rest, d[1])
        else:
            nothing: Poly = ({}, 0)
            inner = nothing if self._within(rest, d) else self._by_digits(rest, d) or self._signed(rest, d)
        if inner[0]:
            taken = times(inner, d)
            if taken is not None:
                self.keep(_plus(rest, taken, -1), d)
        return _plus(whole, inner)

    def _signed(self, x: Poly, d: Poly) -> Poly:
        """``x // d`` as an atom, or minus that of ``d - 1 - x``: of both that which rises with its first term."""
        if x[0] and x[0][min(x[0], key=lambda b: b.key)] < 0:
            whole, rest = _multiple_and_rest(_plus(_plus(d, ({}, 1), -1), x, -1), d)
            return _neg(_plus(whole, self._atom(rest, d)))
        return self._atom(x, d)

    def _by_number(self, x: Poly, n: int) -> Poly:
        """``x // n``, where weights are in -n/2 ... n/2 and the constant in 0 ... n - 1."""
        t, c = x
        if n == 1:
            return x
        if self._within(x, ({}, n)):
            return {}, 0
        if any(2 * abs(v) != n for v in t.values()) and (half := {b: v for b, v in t.items() if 2 * v == -n}):
            up = {b: -v if b in half else v for b, v in t.items()}
            return _plus(self.quotient((up, c), ({}, n)), (dict.fromkeys(half, 1), 0), -1)
        common = gcd(n, *t.values())
        if common > 1:
            return self.quotient(({b: v // common for b, v in t.items()}, c // common), ({}, n // common))
        for base, v in sorted(
            t.items(), key=lambda i: _inner_first(i[0]), reverse=True
        ):  # (x + y//m) // n is (x*m + y) // (n*m)
            if abs(v) == 1 and base in self.divisions and not self.divisions[base][1][0]:
                (inner, k), m = self.divisions[base]
                rest = {b: w * m[1] for b, w in t.items() if b is not base}
                own = (inner, k, 1) if v == 1 else (inner, k + 1 - m[1], -1)  # -(y//m) is (m - 1 - y) // m
                return self.quotient(combine(((rest, c * m[1], 1), own)), ({}, n * m[1]))
        for step in sorted({gcd(n, v) for v in t.values()} - {1}, reverse=True):
            low = self.quotient(({b: v for b, v in t.items() if v % step}, c), ({}, step))
            if not low[0]:  # the digits below the step never carry
                return self.quotient(({b: v // step for b, v in t.items() if v % step == 0}, low[1]), ({}, n // step))
        found = self._by_digits(x, ({}, n))
        if found is not None:
            return found
        first = min(t, key=lambda b: (2 * abs(t[b]) == n, b.key))
        if t[first] < 0:  # of x and -x that which rises with its first term
            return _neg(self.quotient(({b: -v for b, v in t.items()}, n - 1 - c), ({}, n)))
        return self._atom(x, ({}, n))

    def _atom(self, x: Poly, d: Poly) -> Poly:
        node = floordiv(_expr(x), _expr(d))
        if node.op != "floordiv":
            return terms(node)
        self.divisions[node] = (x, d)
        return {node: 1}, 0

    def _within(self, x: Poly, d: Poly) -> bool:
        """Whether 0 <= x < d is proved."""
        known = self.remainders.get((frozenset(x[0].items()), x[1]))
        if known is not None and _at_least(_plus(d, known.d, -1)):
            return True
        room = _plus(d, x, -1)
        if _at_least(x) and _at_least(room, 1):
            return True
        if not d[0]:
            low, high = digit_bounds(_expr(x))
            if low is not None and high is not None and low >= 0 and high < d[1]:
                return True
        return False

    def _by_digits(self, x: Poly, d: Poly) -> Poly | None:
        """``x // d`` where the digits of x are multiples of d, but some that add up to less."""
        for parts, c in islice(self.bases(x), 8):
            over = [(_divide(p.weight, d), p) for p in parts]
            if _small([p for w, p in over if w is None], c, d):
                return _sum_of_parts([WeightedForm(w, p.form, p.low, p.high) for w, p in over if w is not None])
        return None

    # digits -----------------------------------------------------------------------------------------------------------

    def bases(self, x: Poly) -> Iterator[tuple[list[WeightedForm], int]]:
        """``x`` as weighted digits and a constant, in several ways: remainders take the place of what they divide."""
        atoms = sorted((b for b in _atoms(x) if b in self.divisions), key=_inner_first)
        self.left -= len(self.remainders)
        if not atoms or self.left < 0:
            parts = _parts(x)
            return iter(() if parts is None else ((parts, x[1]),))
        self._chains(atoms)
        here = set(atoms)
        mine = [r for r in self.remainders.values() if here.issuperset(_atoms(r.form) & self.divisions.keys())]
        return self._bases(x, sorted(mine, key=lambda r: (len(r.form[0]), len(r.d[0]), r.d[1])), [], frozenset())

    def _chains(self, atoms: Sequence[Expr]) -> None:
        """Remainders of quotients of one number by each other: ``x//d1 - (d2//d1)*(x//d2)`` where d1 divides d2."""
        numbers = [(a, *self.divisions[a]) for a in atoms if not self.divisions[a][1][0]]
        for a, y, n in numbers:
            for b, _, d in numbers:
                if a is not b and n[1] % d[1] == 0 and n[1] > d[1]:
                    finer = self.quotient(y, d)
                    if b in finer[0]:
                        times_ = n[1] // d[1]
                        self.keep(_plus(finer, ({a: 1}, 0), -times_), ({}, times_))

    def keep(self, form: Poly, d: Poly) -> None:
        """Note that 0 <= form < d."""
        self.remainders.setdefault((frozenset(form[0].items()), form[1]), Remainder(form, d))

    def _bases(
        self, x: Poly, remainders: Sequence[Remainder], parts: list[WeightedForm], used: frozenset[Expr]
    ) -> Iterator[tuple[list[WeightedForm], int]]:
        """The innermost atom goes into a remainder that holds it, or stays."""
        pending = sorted((b for b in _atoms(x) if b not in used), key=_inner_first)
        for b in pending:
            for r in remainders:
                self.left -= 1
                if self.left < 0:
                    return
                w = None if used & _atoms(r.form) else _weight(x, r.form, b)
                taken = None if w is None else times(w, r.form)
                if w is not None and taken is not None:
                    part = WeightedForm(w, r.form, ({}, 0), _plus(r.d, ({}, 1), -1))
                    yield from self._bases(_plus(x, taken, -1), remainders, [*parts, part], used | {b})
        rest = _parts(x)
        if rest is not None:
            yield [*parts, *rest], x[1]


@dataclass(frozen=True, slots=True)
class WeightedForm:
    """``weight * form``, where ``low <= form <= high``; None for no bound."""

    weight: Poly
    form: Poly
    low: Poly | None
    high: Poly | None

    def flipped(self) -> WeightedForm:
        return WeightedForm(
            _neg(self.weight),
            _neg(self.form),
            None if self.high is None else _neg(self.high),
            None if self.low is None else _neg(self.low),
        )


def _inner_first(a: Expr) -> tuple[int, int, object]:
    divisor = a.args[1].value if a.op == "floordiv" and a.args[1].op == "const" else 0
    return len(postorder(a)), divisor, a.key


def _atoms(x: Poly) -> set[Expr]:
    return {f for b in x[0] for f in factors(b)}


def _isolated(x: Poly, a: Expr) -> Poly | None:
    """The factor of ``a`` in a sum; None where it stands squared."""
    found: Terms = {}
    number = 0
    for base, v in x[0].items():
        parts = list(factors(base))
        if a not in parts:
            continue
        parts.remove(a)
        if a in parts:
            return None
        if parts:
            key = product_of(parts)
            found[key] = found.get(key, 0) + v
        else:
            number += v
    return found, number


def _weight(x: Poly, form: Poly, b: Expr) -> Poly | None:
    """The weight with which a remainder takes an atom out of a sum."""
    have, inside = _isolated(x, b), _isolated(form, b)
    if have is None or inside is None or inside[0] or not inside[1] or not (have[0] or have[1]):
        return None
    v = inside[1]
    return _divide(have, ({}, v)) if v > 0 else _divide(_neg(have), ({}, -v))


def _parts(x: Poly) -> list[WeightedForm] | None:
    """A sum as weighted atoms; None where two that vary are multiplied."""
    weights: dict[Expr, Poly] = {}
    for base, v in x[0].items():
        atoms = factors(base)
        mine = [a for a in atoms if a.op != "sym" or not _is_parameter(a)] or [atoms[-1]]
        if len(mine) != 1:
            return None
        rest = product_of([a for a in atoms if a is not mine[0]])
        weight: Poly = ({}, v) if rest == 1 else ({rest: v}, 0)
        weights[mine[0]] = _plus(weights.get(mine[0], ({}, 0)), weight)
    return [WeightedForm(w, ({a: 1}, 0), *_ends(a)) for a, w in weights.items()]


def _is_parameter(a: Expr) -> bool:
    """Whether a symbol has no upper bound: an extent, not an index."""
    return a.symbol_bounds[1] is None


def _ends(a: Expr) -> tuple[Poly | None, Poly | None]:
    lo, hi = a.symbol_bounds[:2] if a.op == "sym" else interval(a)
    if hi is None and a.op == "floordiv" and a.args[0].op == "sym" and positive(a.args[1], a.symbols):
        lo, hi = (None if x is None else simplify(floordiv(as_expr(x), a.args[1])) for x in a.args[0].symbol_bounds[:2])
    return (None if lo is None else terms(as_expr(lo)), None if hi is None else terms(as_expr(hi)))


def _upward(parts: Sequence[WeightedForm]) -> list[WeightedForm] | None:
    """The parts with weights > 0; None where the sign of one is not known."""
    out: list[WeightedForm] = []
    for p in parts:
        if _at_least(p.weight, 1):
            out.append(p)
        elif _at_least(_neg(p.weight), 1):
            out.append(p.flipped())
        else:
            return None
    return out


def _value_range(parts: Sequence[WeightedForm]) -> tuple[Poly, Poly] | None:
    """The least and the greatest value of a sum of parts with weights > 0."""
    low: Poly = ({}, 0)
    high: Poly = ({}, 0)
    for p in parts:
        if p.low is None or p.high is None:
            return None
        a, b = times(p.weight, p.low), times(p.weight, p.high)
        if a is None or b is None:
            return None
        low, high = _plus(low, a), _plus(high, b)
    return low, high


def _small(parts: Sequence[WeightedForm], c: int, d: Poly) -> bool:
    """Whether 0 <= sum < d is proved of the digits of a sum."""
    up = _upward(parts)
    span = None if up is None else _value_range(up)
    if span is None:
        return False
    low, high = _plus(span[0], ({}, c)), _plus(span[1], ({}, c))
    return _at_least(low) and _at_least(_plus(d, high, -1), 1)


def _steps(parts: Sequence[WeightedForm]) -> list[Poly]:
    """Steps between digits that are looked at: the weights, and common divisors of numbers among them, largest
    first."""
    numbers = sorted((p.weight[1] for p in parts if not p.weight[0]), reverse=True)
    common: set[int] = set(numbers)
    step = 0
    for n in numbers:
        step = gcd(step, n)
        common.add(step)
    symbolic = [p.weight for p in parts if p.weight[0]]
    symbolic += [({}, g) for w in symbolic if (g := content(*w)) > 1]
    return [*symbolic, *(({}, n) for n in sorted(common, reverse=True) if n > 0)]


def _equations_by_digit(parts: Sequence[WeightedForm], value: Expr) -> list[tuple[Poly, Expr]] | None:
    """``sum(parts) = value`` as one equation a digit; None where the digits reach into each other."""
    if len(parts) == 1:
        (p,) = parts
        return [(p.form, value if p.weight == ({}, 1) else floordiv(value, _expr(p.weight)))]
    for step in _steps(parts):
        over = [(_divide(p.weight, step), p) for p in parts]
        low = [p for w, p in over if w is None]
        high = [WeightedForm(w, p.form, p.low, p.high) for w, p in over if w is not None]
        span = _value_range(low)
        if not low:
            if step == ({}, 1):
                continue
            return _equations_by_digit(high, floordiv(value, _expr(step)))
        if not high or span is None or not _at_least(_plus(step, _plus(span[1], span[0], -1), -1), 1):
            continue
        start = _expr(span[0])
        below, above = mod(value - start, _expr(step)) + start, floordiv(value - start, _expr(step))
        return [
            *(_equations_by_digit(low, below) or [(_sum_of_parts(low), below)]),
            *(_equations_by_digit(high, above) or [(_sum_of_parts(high), above)]),
        ]
    return None


def _sum_of_parts(parts: Sequence[WeightedForm]) -> Poly:
    found: Poly = ({}, 0)
    for p in parts:
        found = _plus(found, times(p.weight, p.form) or ({}, 0))
    return found


# solving --------------------------------------------------------------------------------------------------------------

Row = tuple[Poly, Expr]  # sum == value


def _eliminate_quotients(rows: list[Row], forms: QuotientForms) -> list[Row]:
    """The equations after row operations that leave each quotient in one of them, as far as weights allow."""
    free, done = list(rows), list[Row]()
    atoms = sorted({a for f, _ in rows for a in _atoms(f) if a in forms.divisions}, key=_inner_first, reverse=True)
    for a in atoms:
        mine = [(r, w) for r in free if (w := _isolated(r[0], a)) is not None and (w[0] or w[1])]
        if len(mine) < 2:
            continue
        others = [r for r in free if all(r is not m for m, _ in mine)]
        reduced = _euclid_reduction(mine, a)
        if reduced is not None:
            pivot, rest = reduced
            free = [*others, *rest]
            done.append(pivot)
    return [*free, *done]


def _euclid_reduction(mine: list[tuple[Row, Poly]], a: Expr) -> tuple[Row, list[Row]] | None:
    """Euclid's steps between equations until only one holds the atom ``a``."""
    rest: list[Row] = []
    work = list(mine)
    while len(work) > 1:
        work.sort(key=lambda m: (bool(m[1][0]), abs(m[1][1]), len(m[0][0][0])))
        (pivot, p), *others = work
        if p[0]:
            return None
        work = [(pivot, p)]
        for (form, value), w in others:
            k = _multiple_and_rest(w, ({}, abs(p[1])))[0]
            k = _neg(k) if p[1] < 0 else k
            taken = times(k, pivot[0])
            if taken is None or (w[0] and abs(p[1]) != 1):
                return None
            row = _plus(form, taken, -1), value - _expr(k) * pivot[1]
            left = _isolated(row[0], a)
            if left is not None and (left[0] or left[1]):
                work.append((row, left))
            else:
                rest.append(row)
    return work[0][0], rest


def _without_constant(form: Poly) -> frozenset[tuple[Expr, int]]:
    """A sum without its constant."""
    return frozenset(form[0].items())


class _DigitEquations:
    """Equations over sums of quotients, and the symbols that are known."""

    def __init__(self, domain: Sequence[Expr], equations: Sequence[tuple[Expr, Expr]]) -> None:
        self.domain = frozenset(domain)
        self.forms = QuotientForms()
        self.known: dict[Expr, Expr] = {}
        for s in domain:
            lo, hi = s.symbol_bounds[:2]
            if lo is not None and hi is not None and simplify(as_expr(hi) - lo) == 0:
                self.known[s] = as_expr(lo)
        self.equations = equations
        self.rows: list[Row] = [(self.forms.of(left), value) for left, value in equations]
        self.met: set[frozenset[tuple[Expr, int]]] = set()

    def run(self) -> bool:
        """Whether every symbol is known in the end."""
        for _ in range(_ROUNDS):
            own = [self.substitute_known(r) for r in self.rows]
            rows = {
                _without_constant(r[0]): r
                for r in (*own, *(self.substitute_known(r) for r in _eliminate_quotients(own, self.forms)))
            }
            moved = False
            out: dict[frozenset[tuple[Expr, int]], Row] = {}
            for row in rows.values():
                found = self.digits(row)
                moved |= self.keep(found)
                out |= {_without_constant(f): (f, v) for f, v in (*found, row) if f[0]}
            if self.domain <= self.known.keys():
                return True
            if not moved:
                further = {_without_constant(r[0]): r for r in (*self.joined(out.values()), *self.by_bits())}
                moved = not further.keys() <= self.met
                out |= {k: r for k, r in further.items() if k not in self.met}
                self.met |= further.keys()
            if not moved or len(out) > _MOST_ROWS or self.forms.left < 0:
                return False
            self.rows = list(out.values())
        return False

    def by_bits(self) -> Iterator[Row]:
        """Single bits by all equations together; and of an xor with one unknown operand."""
        for atom, value in solve_bits(self.equations, self.domain).items():
            yield self.forms.of(atom), value
        for (t, _), value in self.rows:
            for base, v in t.items() if len(t) == 1 else ():
                unknown = [a for a in base.args if a.symbols & self.domain - self.known.keys()]
                if base.op == "xor" and v == 1 and len(unknown) == 1:
                    rest = [a.substitute(self.known) for a in base.args if a is not unknown[0]]
                    yield self.forms.of(unknown[0]), simplify(xor(value, *rest))

    def joined(self, rows: Iterable[Row]) -> Iterator[Row]:
        """A sum whose remainders by two numbers are known has one by their multiple (the Chinese remainder theorem)."""
        residues: dict[frozenset[tuple[Expr, int]], tuple[int, Expr]] = {}
        for (t, _), value in rows:
            quotients = [b for b in t if b in self.forms.divisions]
            rest = {b: v for b, v in t.items() if b not in quotients}
            if len(quotients) != 1 or not rest:
                continue
            key, new = frozenset(rest.items()), (abs(t[quotients[0]]), value)
            old = residues.setdefault(key, new)
            if new[0] % old[0] == 0 or old[0] % new[0] == 0:
                residues[key] = max(old, new, key=lambda x: x[0])
                continue
            m, whole = residues[key] = _join_congruences(*old, *new)
            span = None if (up := _upward(_parts((rest, 0)) or ())) is None else _value_range(up)
            if span is not None and not span[0][0] and not span[1][0] and span[1][1] - span[0][1] < m:
                yield (rest, 0), simplify(mod(whole - span[0][1], const(m)) + span[0][1])

    def keep(self, rows: Sequence[Row]) -> bool:
        """Take up symbols that are known now, whether something is new."""
        new = False
        for form, value in rows:
            key = _without_constant(form)
            if len(form[0]) == 1 and form[1] == 0:
                base, v = next(iter(form[0].items()))
                if base in self.domain and abs(v) == 1 and base not in self.known:
                    self.known[base] = simplify(value if v == 1 else -value)
                    new = True
            if form[0] and key not in self.met:
                self.met.add(key)
                new = True
        return new

    def substitute_known(self, row: Row) -> Row:
        """The equation with what is known moved to its value."""
        form, value = row
        mine = {b: v for b, v in form[0].items() if b.symbols & self.domain - self.known.keys()}
        rest = {b: v for b, v in form[0].items() if b not in mine}
        if not rest and not form[1]:
            return row
        return (mine, 0), simplify(value - from_terms(rest, form[1]).substitute(self.known))

    def digits(self, row: Row) -> list[Row]:
        """The equation as one for each of its digits, or groups of digits; itself where that says nothing new."""
        form, value = row
        if not form[0]:
            return []
        best: list[Row] = []
        for parts, c in islice(self.forms.bases(form), _BASES):
            up = _upward(parts)
            found = (None if up is None else _equations_by_digit(up, value - c)) or []
            new = [f for f, _ in found if f != form and _without_constant(f) not in self.met]
            if new and (not best or len(found) > len(best)):
                best = found
        return [(f, simplify(v)) for f, v in best] if best else [row, *self.congruences(row)]

    def congruences(self, row: Row) -> list[Row]:
        """The rest of an equation modulo the weight of a quotient: ``x + g*(...) = value`` tells x % g."""
        (t, c), value = row
        if any(f in self.forms.divisions for b in t if b.op == "mul" for f in factors(b)):
            return []
        out: list[Row] = []
        for g in sorted({abs(v) for b, v in t.items() if b in self.forms.divisions and abs(v) > 1}):
            rest = {b: v for b, v in t.items() if v % g}
            if not rest:
                continue
            left = value - c
            if len(rest) == 1 and gcd(v := next(iter(rest.values())), g) == 1:
                rest, left = dict.fromkeys(rest, 1), left * pow(v, -1, g)
            out += [r for s in self.shifts(rest, g) if (r := self.residue((rest, s), left + s, g)) is not None]
        return out

    def residue(self, x: Poly, value: Expr, g: int) -> Row | None:
        """``x % g == value % g`` as an equation of quotients; None where it is not new."""
        form = _plus(x, times(self.forms.quotient(x, ({}, g)), ({}, g)) or ({}, 0), -1)
        self.forms.keep(form, ({}, g))
        return None if _without_constant(form) in self.met else (form, simplify(mod(value, const(g))))

    def shifts(self, t: Terms, g: int) -> list[int]:
        """Constants beside a sum with which its quotient by ``g`` is one that other equations have: digits rolled."""
        out = [0]
        for atom in self.forms.quotient((t, 0), ({}, g))[0]:
            if atom not in self.forms.divisions:
                continue
            (own, k), (_, d) = self.forms.divisions[atom]
            for b in {x for f, _ in self.rows for x in _atoms(f)} & self.forms.divisions.keys():
                (other, m), (_, e) = self.forms.divisions[b]
                if b is not atom and other == own and d == e and d % g == 0 and (m - k) % (d // g) == 0:
                    out.append((m - k) // (d // g))
        return sorted(set(out))[:_MOST_SHIFTS]


def _join_congruences(a: int, first: Expr, b: int, second: Expr) -> tuple[int, Expr]:
    """One congruence of two, modulo ``a`` and modulo ``b``."""
    g = gcd(a, b)
    steps = mod(floordiv(second - first, const(g)) * pow(a // g, -1, b // g), const(b // g))
    ways = [simplify(first + steps * a)]
    if g == 1:  # Garner's step by step, or all residues in one sum
        ways.append(simplify(mod(first * (b * pow(b, -1, a)) + second * (a * pow(a, -1, b)), const(a * b))))
    return lcm(a, b), min(ways, key=cost)


def solve_digits(domain: Sequence[Expr], equations: Sequence[tuple[Expr, Expr]]) -> list[Expr] | None:
    """The domain's symbols in the values of ``left = value``; None where these are not digits of one another.

    The caller proves the round trip before it uses a solution.

    >>> from idgraph.arith import parse, symbol
    >>> i, y = symbol("i", 0, 99), symbol("y", 0, 118)
    >>> print(solve_digits([i], [(i + i // 5, y)])[0])
    y - y//6
    """
    if any(len(postorder(left)) > _MOST_NODES for left, _ in equations):
        return None
    solver = _DigitEquations(domain, equations)
    return [solver.known[s] for s in domain] if solver.run() else None


def one_to_one(domain: Sequence[Expr], results: Sequence[Expr]) -> bool:
    """Whether no two points of a box have the same results: proved by a way back, without looking at points."""
    images = [symbol(f"\0y{k}", interval(r)[0]) for k, r in enumerate(results)]
    back = solve_digits(domain, list(zip(results, images, strict=True)))
    if back is None:
        return False
    forms, there = QuotientForms(), dict(zip(images, results, strict=True))
    return all(forms.equal(g.substitute(there), s) for s, g in zip(domain, back, strict=True))
