"""Solving ``results = images`` for the symbols of an index map, over one piece of its domain.

There is one kind of equation: a sum of atoms is equal to a value, exactly or modulo m. A sum whose low part is smaller
than the step of its high part falls apart into both (digits of a mixed radix, flipped and padded ones too); a sum that
runs through no more than one period of its modulus is exact (rotations); congruences of one sum are joined (the Chinese
remainder theorem), and so is a quotient with the remainder below it, whatever the sum is shifted by (windows).
Equations that are linear over bits are eliminated as such (`gf2`).

Nothing here is trusted: the caller proves round trips before it uses a solution.

Equations that are linear over bits (GF(2)): swizzles, and layouts given by the images of powers of two.

Each side is a matrix over GF(2), given by its diagonals (`bits.diagonals`), from the bits of the symbols to those of
the value. Elimination inverts all equations together. (Triton's linear layouts are such maps: Zhou et al., *Linear
Layouts*, 2025.)

Long: one solver for each kind of equation, tried in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd, lcm

from idgraph.arith.expr import Expr, as_expr, const, floordiv, from_terms, mod, mul, xor
from idgraph.arith.facts import replace
from idgraph.arith.interval import interval
from idgraph.arith.known_bits import Diagonals, Fact, between, diagonals, from_diagonals
from idgraph.arith.linear import Terms, combine, factors, terms
from idgraph.arith.mixed_radix import cost
from idgraph.arith.prove import is_true
from idgraph.arith.simplify import simplify
from idgraph.arith.source import is_power_of_two

_MAX_BITS = 256
Row = tuple[int, int]  # the bits of which a bit is the xor, and the constant that flips it


class _BitLinearizer:
    """Bits of expressions as sums of unknown bits: those of symbols, and of atoms that are not linear."""

    def __init__(self, domain: frozenset[Expr]) -> None:
        self.domain = domain
        self.first: dict[Expr, tuple[int, int]] = {}  # atom -> number of its lowest bit, and of bits
        self.count = 0

    def bits(self, e: Expr) -> list[Row] | None:
        """The lowest bit first, all higher ones are 0; None where it is not linear."""
        flipped = _flipped(e)
        found = diagonals(e if flipped is None else flipped[0])
        if found is None or any(mask < 0 for mask in found.values()):
            return None
        out: list[Row] = [(0, (0 if flipped is None else flipped[1]) >> k & 1) for k in range(_width(found, flipped))]
        for (x, up), mask in found.items():
            at = None if x.op == "const" else self.atom(x)
            if at is None and x.op != "const":
                return None
            for k in range(mask.bit_length()):
                if mask >> k & 1:
                    row, turned = out[k + up]
                    out[k + up] = (row, turned ^ 1) if at is None else (row ^ 1 << (at + k), turned)
        return out

    def atom(self, x: Expr) -> int | None:
        """The number of the lowest bit of an atom; None for one that is not a part of the domain or is unbounded."""
        if x not in self.first:
            lo, hi = interval(x)
            if lo is None or hi is None or lo < 0 or not x.symbols & self.domain:
                return None
            if self.count + hi.bit_length() > _MAX_BITS:
                return None
            self.first[x] = (self.count, hi.bit_length())
            self.count += hi.bit_length()
        return self.first[x][0]


def _width(found: Diagonals, flipped: tuple[Expr, int] | None) -> int:
    tops = [mask.bit_length() + up for (_, up), mask in found.items()]
    return max([*tops, 0 if flipped is None else flipped[1].bit_length()], default=0)


def _flipped(e: Expr) -> tuple[Expr, int] | None:
    """``(x, ones)`` of ``ones - x``, whose bits are those of x flipped."""
    t, c = terms(e)
    if len(t) != 1:
        return None
    x, k = next(iter(t.items()))
    lo, hi = interval(x)
    if k != -1 or c & (c + 1) or lo is None or lo < 0 or hi is None or hi > c:
        return None
    return x, c


def solve_bits(equations: Sequence[tuple[Expr, Expr]], domain: frozenset[Expr]) -> dict[Expr, Expr]:
    """Atoms all of whose bits the equations ``left = value`` determine, as expressions in the values."""
    reader = _BitLinearizer(domain)
    sources: list[tuple[Expr, int]] = []  # of each row: the value, and which bit of it
    rows: list[list[int]] = []  # unknown bits, bits of the values, constant
    for left, value in equations:
        bits = reader.bits(left)
        for k, (row, turned) in enumerate(bits or ()):
            rows.append([row, 1 << len(sources), turned])
            sources.append((value, k))
    told = _eliminated(rows, reader.count)
    out: dict[Expr, Expr] = {}
    for atom, (first, width) in reader.first.items():
        mine = [told[first + k] for k in range(width) if first + k in told]
        made = _number_of_bits(mine, sources) if len(mine) == width else None
        if made is not None:
            out[atom] = made
    return out


def _eliminated(rows: list[list[int]], count: int) -> dict[int, Row]:
    """Gauss and Jordan: for each unknown bit that is determined, the bits of values it is made of, and the constant."""
    left = [list(r) for r in rows]
    pivots: list[tuple[int, list[int]]] = []
    for bit in range(count):
        at = next((n for n, r in enumerate(left) if r[0] >> bit & 1), None)
        if at is None:
            continue
        found = left.pop(at)
        for r in (*left, *(p for _, p in pivots)):
            if r[0] >> bit & 1:
                r[0], r[1], r[2] = r[0] ^ found[0], r[1] ^ found[1], r[2] ^ found[2]
        pivots.append((bit, found))
    return {bit: (r[1], r[2]) for bit, r in pivots if r[0] == 1 << bit}


def _number_of_bits(bits: Sequence[Row], sources: Sequence[tuple[Expr, int]]) -> Expr | None:
    """The number with these bits, by the diagonals of its matrix; None for too many."""
    found: Diagonals = {}
    for k, (row, _) in enumerate(bits):
        for n, (value, bit) in enumerate(sources):
            if row >> n & 1:
                found[value, k - bit] = found.get((value, k - bit), 0) | 1 << bit
    made = from_diagonals(found)
    turned = sum(c << k for k, (_, c) in enumerate(bits))
    return None if made is None else simplify(xor(made, const(turned)))


_ROUNDS = 64


@dataclass(frozen=True, slots=True)
class Equation:
    """``sum(unknown) = value``, modulo ``modulus`` where there is one."""

    unknown: Expr
    value: Expr
    modulus: Expr | None = None


@dataclass(frozen=True, slots=True)
class _Residue:
    """A sum is ``value`` modulo ``modulus``; None where it is exact."""

    modulus: Expr | None
    value: Expr


class _Solver:
    """Equations still open, remainders of sums, and symbols that are known."""

    __slots__ = ("domain", "facts", "known", "moved", "open", "residues")

    def __init__(self, domain: Sequence[Expr], equations: Iterable[Equation], facts: Sequence[Fact]) -> None:
        self.domain = frozenset(domain)
        self.facts = facts
        self.known: dict[Expr, Expr] = {}
        self.residues: dict[Expr, _Residue] = {}
        self.open: list[Equation] = list(equations)
        self.moved = False
        for s in domain:
            lo, hi = s.symbol_bounds[:2]
            if lo is not None and hi is not None and simplify(as_expr(hi) - lo) == 0:
                self.known[s] = as_expr(lo)  # an axis of one element, a broadcast

    def run(self) -> bool:
        """Whether every symbol is known in the end."""
        given = list(self.open)
        for _ in range(_ROUNDS):
            self.moved = False
            waiting, self.open = self.open, []
            for e in waiting:
                self.step(e)
            if self.domain <= self.known.keys():
                return True
            if not self.moved and not self.by_bits(given):
                return False
        return False

    def by_bits(self, given: Sequence[Equation]) -> bool:
        """Equations over bits, looked at together; whether that gave something new."""
        exact = [(e.unknown, e.value) for e in given if e.modulus is None]
        found = False
        for atom, value in solve_bits(exact, self.domain).items():
            if atom.op == "sym" and atom not in self.known:
                self.known[atom] = value
                found = True
            elif atom.op != "sym" and atom not in self.known:
                self.known[atom] = value
                self.open.append(Equation(atom, value))
                found = True
        return found

    # one equation -----------------------------------------------------------------------------------------------------

    def is_open(self, e: Expr) -> bool:
        return any(s in self.domain and s not in self.known for s in self.substitute_known(e).symbols)

    def substitute_known(self, e: Expr) -> Expr:
        """``e`` with what is known of it in the images."""
        return replace(e, self.known) if e.symbols & self.domain else e

    def parted(self, x: Expr) -> tuple[Terms, Expr]:
        """The open terms of a sum, and the value of its rest; a single atom is open as long as its symbols are."""
        t, c = terms(x)
        unknown: Terms = {}
        rest: Expr = as_expr(c)
        for base, v in t.items():
            if base is x and base.op != "sym" and any(s in self.domain and s not in self.known for s in x.symbols):
                unknown[base] = v
                continue
            if not self.is_open(base):
                rest = rest + self.substitute_known(base) * v
                continue
            found = self.remainder_of({base: 1}) if base.op == "mod" else None
            if found is not None and found.modulus == base.args[1]:
                rest = rest + mod(found.value, base.args[1]) * v
            else:
                unknown[base] = v
        return unknown, rest

    def step(self, e: Equation) -> None:
        """Use an equation; it is put back unless all that it says is known now."""
        unknown, rest = self.parted(e.unknown)
        if not unknown:
            return
        value = simplify(e.value - rest)
        numbers = all(b.op != "mul" for b in unknown)
        if e.modulus is not None and e.modulus.op != "const":
            numbers = False
        if numbers:
            modulus = None if e.modulus is None else e.modulus.value
            self.numbers(unknown, modulus, value)
        else:
            self.symbolic(unknown, e.modulus, value)

    def numbers(self, t: Terms, m: int | None, value: Expr, *, derived: bool = False) -> None:
        """An equation whose weights and modulus are numbers; one that is ``derived`` counts only if it is new."""
        if m is not None:
            t = {b: v for b, v in t.items() if v % m}
        if not t:
            return
        g = gcd(*t.values())
        g = -g if _falls(t) else g
        if m is None:
            t, value = {b: v // g for b, v in t.items()}, _exact_quotient(value, g)
        else:
            common = gcd(g, m)
            t, value, m, g = {b: v // g for b, v in t.items()}, _exact_quotient(value, common), m // common, g // common
            if m == 1:
                return
            if g % m != 1:
                value = simplify(mod(value * pow(g, -1, m), const(m)))
            lo, hi = between(t, 0, self.facts)
            if lo is not None and hi is not None and hi - lo < m:
                value, m = simplify(mod(value - lo, const(m)) + lo), None
        if not self.learn(t, None if m is None else const(m), value) and derived:
            return
        if len(t) == 1:
            self.atom(next(iter(t)), None if m is None else const(m), value)
            return
        if not self.split(t, m, value):
            self.shares(t, m, value)
            self.open.append(Equation(from_terms(t, 0), value, None if m is None else const(m)))

    def split(self, t: Terms, m: int | None, value: Expr) -> bool:
        """Digits: the low part of the sum stays below the step of the high part."""
        ordered = sorted(t.items(), key=lambda i: (-abs(i[1]), i[0].key))
        step = m or 0
        for n, (_, v) in enumerate(ordered[:-1]):
            step = gcd(step, v)
            low = dict(ordered[n + 1 :])
            lo, hi = between(low, 0, self.facts)
            if lo is None or hi is None or hi - lo >= step:
                continue
            high = from_terms({b: v // step for b, v in ordered[: n + 1]}, 0)
            self.open.append(Equation(from_terms(low, 0), simplify(mod(value - lo, const(step)) + lo)))
            self.open.append(
                Equation(high, simplify(floordiv(value - lo, const(step))), None if m is None else const(m // step))
            )
            self.moved = True
            return True
        return False

    def shares(self, t: Terms, m: int | None, value: Expr) -> None:
        """The remainder of each atom by the common divisor of all others."""
        for base, v in t.items():
            g = gcd(m or 0, *(k for b, k in t.items() if b is not base))
            if g // gcd(v, g) > 1:
                self.numbers({base: v}, g, value, derived=True)

    def learn(self, t: Terms, m: Expr | None, value: Expr) -> bool:
        """Keep a remainder of a sum, joined with what is known of it; whether it is new."""
        key = from_terms(t, 0)
        old = self.residues.get(key)
        new = _Residue(m, value)
        if old is not None:
            if old.modulus is None:
                return False
            joined = new if m is None else _join_congruences(old, m, value)
            if joined is None:
                return False
            if joined is not new:
                self.open.append(Equation(key, joined.value, joined.modulus))
            new = joined
        self.residues[key] = new
        self.moved = True
        return True

    # one atom ---------------------------------------------------------------------------------------------------------

    def atom(self, atom: Expr, m: Expr | None, value: Expr) -> None:
        """Use ``atom = value`` (mod m)."""
        if m is None and atom not in self.known:
            self.known[atom] = value
            self.moved = True
        if atom.op == "sym":
            return
        if atom.op == "mod":
            self.remainder(atom, m, value)
        elif atom.op == "floordiv":
            self.quotient(atom, m, value)
        elif atom.op == "xor" and (m is None or is_power_of_two(m)):
            rest = [a for a in atom.args if self.is_open(a)]
            if len(rest) == 1:
                turned = [self.substitute_known(a) for a in atom.args if a is not rest[0]]
                self.open.append(Equation(rest[0], simplify(xor(value, *turned)), m))
                self.moved = True
            else:
                self.open.append(Equation(atom, value, m))

    def remainder(self, atom: Expr, m: Expr | None, value: Expr) -> None:
        x, d = atom.args
        if self.is_open(d):
            return
        if m is not None:
            if m.op != "const" or d.op != "const":
                return
            d = const(gcd(m.value, d.value))
        if x.op == "floordiv" and not self.is_open(x.args[1]):
            self.quotient(x, d, value)
        else:
            self.moved = True
            self.open.append(Equation(x, value, d))

    def quotient(self, atom: Expr, e: Expr | None, value: Expr) -> None:
        """Use ``x // w = value`` (mod e): with the remainder of x by w, that is x itself (mod w*e)."""
        x, w = atom.args
        if self.is_open(w):
            return
        unknown, rest = self.parted(x)
        if not unknown:
            return
        found = self.remainder_of(unknown)
        if found is None and w.op == "const" and all(v % w.value == 0 for v in unknown.values()):
            found = _Residue(w, as_expr(0))
        if found is None or (found.modulus is not None and not _divides(w, found.modulus)):
            self.open.append(Equation(atom, value, e))
            return
        if found.modulus is None:
            return
        whole = simplify(w * value + mod(found.value + rest, w) - rest)
        self.moved = True
        self.open.append(Equation(from_terms(unknown, 0), whole, None if e is None else simplify(w * e)))

    def remainder_of(self, t: Terms) -> _Residue | None:
        """The facts about a sum, from those about it without its common factor."""
        g = gcd(*t.values()) * (-1 if _falls(t) else 1)
        found = self.residues.get(from_terms({b: v // g for b, v in t.items()}, 0))
        if found is None:
            return self.by_parts(t)
        return _Residue(None if found.modulus is None else simplify(found.modulus * abs(g)), found.value * g)

    def by_parts(self, t: Terms) -> _Residue | None:
        """The facts about ``k*(x % d)``, from those about x."""
        atom, k = next(iter(t.items()))
        if len(t) > 1 or atom.op != "mod" or atom.args[1].op != "const":
            return None
        unknown, rest = self.parted(atom.args[0])
        found = self.remainder_of(unknown) if unknown else None
        if found is None or found.modulus is None or found.modulus.op != "const":
            return None
        g = gcd(found.modulus.value, atom.args[1].value)
        return _Residue(const(g * abs(k)), (found.value + rest) * k) if g > 1 else None

    # weights and moduli that are not numbers -------------------------------------------------------------------------

    def symbolic(self, t: Terms, m: Expr | None, value: Expr) -> None:
        weighted = [(b, *_weight(b, v, self)) for b, v in t.items()]
        if any(a is None for _, a, _ in weighted):
            self.open.append(Equation(from_terms(t, 0), value, m))
            return
        parts = [(a, w) for _, a, w in weighted if a is not None]
        if m is None and all(is_true(w < 0) for _, w in parts):
            parts, value = [(a, simplify(-w)) for a, w in parts], simplify(-value)
        if m is not None:
            parts = [(a, w) for a, w in parts if not _divides(m, w)]
            start = self.start(parts)
            whole = _total(parts)
            if parts and start is not None and is_true(whole - start >= 0) and is_true(whole - start < m):
                value, m = simplify(mod(value - start, m) + start), None
        if not parts:
            return
        self.learn(terms(_total(parts))[0], m, value)
        if len(parts) == 1:
            atom, w = parts[0]
            if m is None:
                self.atom(atom, None, value if w == 1 else simplify(floordiv(value, w)))
            elif w == 1:
                self.atom(atom, m, value)
            return
        if not self.split_symbolic(parts, m, value):
            self.open.append(Equation(_total(parts), value, m))

    def split_symbolic(self, parts: list[tuple[Expr, Expr]], m: Expr | None, value: Expr) -> bool:
        for _, step in parts:
            high = [(a, w) for a, w in parts if _divides(step, w)]
            low = [p for p in parts if p not in high]
            start = self.start(low)
            if not low or start is None or (m is not None and not _divides(step, m)):
                continue
            rest = _total(low) - start
            if not (is_true(step > 0) and is_true(rest >= 0) and is_true(rest < step)):
                continue
            over = [(a, _quotient(w, step)) for a, w in high]
            self.open.append(Equation(_total(low), simplify(mod(value - start, step) + start)))
            above = None if m is None else _quotient(m, step)
            self.open.append(Equation(_total(over), simplify(floordiv(value - start, step)), above))
            self.moved = True
            return True
        return False

    def start(self, parts: Sequence[tuple[Expr, Expr]]) -> Expr | None:
        """A lower bound of a weighted sum that its ranges name."""
        found: Expr = as_expr(0)
        for a, w in parts:
            falls = is_true(w < 0)
            if not falls and not is_true(w >= 0):
                return None
            bounds = a.symbol_bounds if a.op == "sym" else interval(a)
            end = bounds[1] if falls else bounds[0]
            if end is None:
                return None
            found = found + w * end
        return simplify(found)


def _falls(t: Terms) -> bool:
    """Whether the first weight of a sum is below 0."""
    return t[min(t, key=lambda b: b.key)] < 0


def _exact_quotient(value: Expr, g: int) -> Expr:
    """``value / g`` where that is exact."""
    if g < 0:
        value, g = -value, -g
    return simplify(value if g == 1 else floordiv(value, const(g)))


def _join_congruences(old: _Residue, m: Expr, value: Expr) -> _Residue | None:
    """Both congruences in one; None where the new one says nothing new."""
    if old.modulus is None or _divides(m, old.modulus):
        return None
    if m.op != "const" or old.modulus.op != "const":
        return _Residue(m, value) if _divides(old.modulus, m) else None
    a, b = old.modulus.value, m.value
    g = gcd(a, b)
    steps = mod(floordiv(value - old.value, const(g)) * pow(a // g, -1, b // g), const(b // g))
    ways = [simplify(old.value + steps * a)]
    if g == 1:  # Garner's step by step, or all residues in one sum
        ways.append(simplify(mod(old.value * (b * pow(b, -1, a)) + value * (a * pow(a, -1, b)), const(a * b))))
    return _Residue(const(lcm(a, b)), min(ways, key=cost))


def _weight(base: Expr, v: int, solver: _Solver) -> tuple[Expr | None, Expr]:
    """The open atom of a product and what it is multiplied with; None where two are multiplied."""
    atoms = factors(base)
    mine = [a for a in atoms if solver.is_open(a)]
    if len(mine) != 1:
        return None, base
    return mine[0], simplify(mul((const(v), *(solver.substitute_known(a) for a in atoms if a is not mine[0]))))


def _total(parts: Iterable[tuple[Expr, Expr]]) -> Expr:
    return from_terms(*combine([(*terms(mul((a, w))), 1) for a, w in parts]))


def _divides(a: Expr, b: Expr) -> bool:
    if a == b:
        return True
    if a.op == "const" and b.op == "const":
        return a.value != 0 and b.value % a.value == 0
    return simplify(mod(b, a)) == 0 or (a.op != "const" and simplify(mul((floordiv(b, a), a))) == simplify(b))


def _quotient(a: Expr, b: Expr) -> Expr:
    return simplify(floordiv(a, b))


def solve(
    domain: Sequence[Expr], equations: Sequence[tuple[Expr, Expr]], facts: Sequence[Fact] = ()
) -> list[Expr] | None:
    """The domain's symbols as expressions in the values of the equations ``left = value``; None where none is found.

    ``facts`` are sums known to be >= 0 in the domain.
    """
    solver = _Solver(domain, [Equation(left, value) for left, value in equations], facts)
    return [simplify(solver.known[s]) for s in domain] if solver.run() else None


_MOST = 2**63  # no size is larger


@dataclass(frozen=True, slots=True)
class Root:
    """The values of a symbol at which an expression of it is ``wanted``: ``value`` is the only one, or None where there
    are several (``several``), none, or where the expression may rise and fall (``known`` False)."""

    value: int | None = None
    several: bool = False
    known: bool = True


def coefficients(e: Expr, variables: Sequence[Expr]) -> tuple[Expr, ...] | None:
    """The coefficient of each variable, then the rest, where ``e`` is provably the sum of all; None where it is not.

    No variable is in any of them.

    >>> from idgraph.arith import symbol
    >>> i, j, n = symbol("i", 0, 7), symbol("j", 0, 7), symbol("n", 1)
    >>> [str(part) for part in coefficients(i * n * 2 + j + n + 3, (i, j))], coefficients(i // 2, (i,))
    (['n*2', '1', 'n + 3'], None)
    """
    zero = {v: as_expr(0) for v in variables}
    rest = simplify(e.substitute(zero))
    each = [simplify(e.substitute({**zero, v: as_expr(1)}) - rest) for v in variables]
    left = e - rest
    for v, factor in zip(variables, each, strict=True):
        left = left - factor * v
    free = not any(v in x.symbols for x in (*each, rest) for v in variables)
    return (*each, rest) if free and simplify(left) == 0 else None


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
