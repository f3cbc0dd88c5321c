"""Solving ``results = images`` for the symbols of an index map, digit by digit.

Nothing here is trusted: the caller proves both round trips before it uses a solution.
"""

from __future__ import annotations

from math import gcd

from idgraph.arith.linear import Terms, factors, terms
from idgraph.arith.nodes import Expr, add, as_expr, const, floordiv, from_terms, mod, mul, xor
from idgraph.arith.ranges import interval
from idgraph.arith.simplify import simplify

Piece = tuple[Expr, Expr, Expr]  # of a symbol: weight, extent, value:  value = symbol // weight % extent


class _Solver:
    """Equations still open, pieces of symbols already known, and symbols that are whole."""

    __slots__ = ("domain", "known", "open", "pieces")

    def __init__(self, domain: tuple[Expr, ...], equations: list[tuple[Expr, Expr]]) -> None:
        self.domain = domain
        self.open = equations
        self.pieces: dict[Expr, list[Piece]] = {s: [] for s in domain}
        self.known: dict[Expr, Expr] = {}

    def run(self) -> bool:
        progress = True
        while progress and self.open:
            progress = False
            waiting: list[tuple[Expr, Expr]] = []
            for left, value in self.open:
                if self.solve(left, value, waiting):
                    progress = True
            self.open = waiting
            for s in self.domain:
                if s not in self.known and self.assemble(s):
                    progress = True
        return all(not (s not in self.known and not self.assemble(s)) for s in self.domain)

    def value_of(self, e: Expr) -> Expr | None:
        """``e`` in terms of the images, if all its domain symbols are known."""
        mine = [s for s in e.symbols if s in self.pieces]
        return e.substitute(self.known) if all(s in self.known for s in mine) else None

    def solve(self, left: Expr, value: Expr, waiting: list[tuple[Expr, Expr]]) -> bool:
        """Use ``left = value``; what cannot be used yet is put into ``waiting``."""
        t, c = terms(left)
        unknown: Terms = {}
        for base, v in t.items():
            done = self.value_of(base)
            if done is None:
                unknown[base] = v
            else:
                value = value - done * v
        value = value - c
        if not unknown:
            return True
        flipped: dict[Expr, int] = {}  # -w*a is w*(top - a) - w*top for a digit 0 <= a <= top
        for base, v in unknown.items():
            lo, hi = interval(base)
            if v < 0 and lo == 0 and hi is not None:
                flipped[base] = hi
                value = value - v * hi
        digits = _digits({b: abs(v) if b in flipped else v for b, v in unknown.items()})
        if digits is None:
            waiting.append((from_terms(unknown, 0), value))
            return False
        useful = False
        for atom, weight, top in digits:
            part = value if weight == 1 else floordiv(value, weight)
            if top is not None:
                part = mod(part, top)
            if atom in flipped:
                part = flipped[atom] - part
            useful |= self.atom(atom, simplify(part), waiting)
        return useful

    def atom(self, atom: Expr, value: Expr, waiting: list[tuple[Expr, Expr]]) -> bool:
        args = atom.args
        if atom in self.pieces:
            self.known[atom] = value
            return True
        if atom.op == "xor":
            rest = [a for a in args if self.value_of(a) is None]
            if len(rest) == 1:
                turned = [self.value_of(a) for a in args if a is not rest[0]]
                return self.solve(rest[0], xor(value, *(x for x in turned if x is not None)), waiting)
        elif atom.op == "mod":
            if self.turned(args[0], args[1], value, waiting):
                return True
            if self.piece(args[0], args[1], value):
                return True
        elif atom.op == "floordiv" and self.piece(atom, None, value):
            return True
        waiting.append((atom, value))
        return False

    def turned(self, x: Expr, d: Expr, value: Expr, waiting: list[tuple[Expr, Expr]]) -> bool:
        """Use ``x % d = value`` where the unknown part of x runs through one period: a rotation."""
        t, c = terms(x)
        unknown: Terms = {}
        for base, v in t.items():
            done = self.value_of(base)
            if done is None:
                unknown[base] = v
            else:
                value = value - done * v
        value = value - c
        if len(unknown) == 1 and d.op == "const":
            base, v = next(iter(unknown.items()))
            if v != 1 and gcd(v, d.value) == 1:  # a multiplication that mod d has an inverse
                value, unknown = value * pow(v, -1, d.value), {base: 1}
        start = _full_period(from_terms(unknown, 0), d) if unknown else None
        if start is None:
            return False
        return self.solve(from_terms(unknown, 0), add((mod(value - start, d), start)), waiting)

    def piece(self, source: Expr, extent: Expr | None, value: Expr) -> bool:
        """Note ``value = s // weight % extent`` of a symbol s."""
        weight = const(1)
        if source.op == "floordiv":
            source, weight = source.args
        if source not in self.pieces:
            return False
        if extent is None:
            hi = source.symbol_bounds[1]
            if hi is None:
                return False
            extent = simplify(floordiv(as_expr(hi), weight) + 1)
        self.pieces[source].append((weight, extent, value))
        return True

    def assemble(self, s: Expr) -> bool:
        """A symbol from pieces that join without gap."""
        left = list(self.pieces[s])
        reached = const(1)
        out: list[Expr] = []
        while left:
            found = next((p for p in left if p[0] == reached), None)
            if found is None:
                break
            left.remove(found)
            out.append(mul((found[2], reached)))
            reached = simplify(mul((reached, found[1])))
        hi = s.symbol_bounds[1]
        if not out or hi is None or simplify(as_expr(hi) < reached).op != "const":
            return False
        self.known[s] = simplify(add(out))
        return True


def _full_period(x: Expr, d: Expr) -> Expr | None:
    """The start c if x runs through exactly [c, c + d), so that x is known from x % d."""
    t, c = terms(x)
    lo, hi = interval(from_terms(t, 0))
    if d.op == "const":
        return const(lo + c) if lo is not None and hi is not None and hi - lo + 1 <= d.value else None
    if len(t) == 1:  # one symbol 0 <= s < d, shifted
        base, v = next(iter(t.items()))
        if v == 1 and base.op == "sym" and base.symbol_bounds[0] == 0 and base.symbol_bounds[1] is not None:
            top = simplify(as_expr(base.symbol_bounds[1]) + 1 - d)
            return const(c) if top == 0 else None
    rest = [b for b in t if b.op == "sym" and simplify(b < d).op == "const"]
    if len(rest) == 1 and t[rest[0]] == 1:  # a symbol below d, shifted by others
        return from_terms({b: v for b, v in t.items() if b is not rest[0]}, c)
    return None


def _digits(t: Terms) -> list[tuple[Expr, Expr, Expr | None]] | None:
    """The atoms of a sum as (atom, weight, extent), if the sum is a mixed-radix number of them; highest extent None."""
    parts: list[tuple[Expr, Expr]] = []
    for base, v in t.items():
        if v < 0:
            if len(t) == 1:
                return [(base, const(v), None)]
            return None
        atoms = factors(base)
        digit = [a for a in atoms if a.op != "sym" or _is_variable(a)]
        if len(digit) != 1:
            return None
        weight = mul((const(v), *(a for a in atoms if a is not digit[0])))
        parts.append((digit[0], weight))
    ordered = _ordered(parts)
    if ordered is None:
        return None
    out: list[tuple[Expr, Expr, Expr | None]] = []
    for k, (atom, weight) in enumerate(ordered):
        top = None
        if k + 1 < len(ordered):
            ratio = simplify(floordiv(ordered[k + 1][1], weight))
            if simplify(mul((ratio, weight))) != simplify(ordered[k + 1][1]):
                return None
            top = ratio
        out.append((atom, weight, top))
    return out


def _is_variable(a: Expr) -> bool:
    """A loop variable (bounded from above), as against an extent that only scales."""
    return a.symbol_bounds[1] is not None


def _ordered(parts: list[tuple[Expr, Expr]]) -> list[tuple[Expr, Expr]] | None:
    """By weight, least first; weights must divide each other."""
    left = list(parts)
    out: list[tuple[Expr, Expr]] = []
    while left:
        for p in left:
            if all(q is p or _divides(p[1], q[1]) for q in left):
                out.append(p)
                left.remove(p)
                break
        else:
            return None
    return out


def _divides(a: Expr, b: Expr) -> bool:
    return simplify(mod(b, a)) == 0 if a.op == "const" else simplify(mul((floordiv(b, a), a))) == simplify(b)


def solve(domain: tuple[Expr, ...], results: list[Expr], images: tuple[Expr, ...]) -> list[Expr] | None:
    """The domain's symbols as expressions in ``images``, where ``results`` equal them; None if digits do not do it."""
    solver = _Solver(domain, list(zip(results, images, strict=True)))
    return [solver.known[s] for s in domain] if solver.run() else None
