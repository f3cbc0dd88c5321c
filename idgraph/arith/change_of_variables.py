"""An inverse through a change of variables: of a simpler map, between other coordinates or other symbols.

Each function of `CHANGES` gives the inverse of a map, or None where its change makes nothing simpler; ``again`` inverts
what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import prod

from idgraph.arith.expr import TRUE, Expr, and_, as_expr, postorder, symbol
from idgraph.arith.facts import replace
from idgraph.arith.fourier_motzkin import is_nonneg
from idgraph.arith.interval import interval
from idgraph.arith.linear import terms
from idgraph.arith.map_properties import Collision, MapProof
from idgraph.arith.mixed_radix import cost
from idgraph.arith.rewriter import normal
from idgraph.arith.simplify import simplify

_MAX_DIGITS = 4


@dataclass(frozen=True, slots=True)
class InverseCandidate:
    """An inverse: expressions in the images, valid where ``condition`` holds, which is the image."""

    results: tuple[Expr, ...]
    condition: Expr
    proof: MapProof


Again = Callable[[Sequence[Expr], Sequence[Expr], Expr, Sequence[Expr]], InverseCandidate | Collision | None]
"""The inverse of a map of symbols, results, a condition and images."""


def _through_rotation(
    symbols: Sequence[Expr], results: Sequence[Expr], condition: Expr, images: Sequence[Expr], again: Again
) -> InverseCandidate | None:
    """The inverse of a map with coordinates ``(x + c) % n``, where x itself is below n: turned back first."""
    plain, given, below = list(results), dict[str, Expr](), list[Expr]()
    for k, (r, y) in enumerate(zip(results, images, strict=True)):
        by = _least_of_sum(r.args[0], frozenset(symbols)) if r.op == "mod" else None
        if by is None:
            continue
        moved = simplify(r.args[0] - by)
        least = _least_of_sum(normal(r.args[1] - 1 - moved), frozenset(symbols))
        if least is not None and is_nonneg(normal(least)):
            plain[k], given[y.name] = moved, (y - by) % r.args[1]
            below.append(y < r.args[1])
    back = again(symbols, plain, condition, images) if given else None
    if not isinstance(back, InverseCandidate):
        return None
    return _composed(back.results, given, simplify(and_(*below, back.condition.substitute(given))), back.proof)


def _least_of_sum(e: Expr, own: frozenset[Expr]) -> Expr | None:
    """The least value of a sum over the ranges of ``own``: each, or a remainder of them, is at one of its ends."""
    parts, rest = terms(normal(e))
    out, slopes = as_expr(rest), dict[Expr, Expr]()
    for a, c in parts.items():
        factors = a.args if a.op == "mul" else (a,)
        mine = [f for f in factors if f.symbols & own]
        if len(mine) > 1 or (mine and mine[0] not in own and mine[0].op != "mod"):
            return None
        if not mine:
            out = out + a * c
            continue
        others = list(factors)
        others.remove(mine[0])
        slopes[mine[0]] = slopes.get(mine[0], as_expr(0)) + prod(others, start=as_expr(c))
    for f, slope in slopes.items():
        low, high = f.symbol_bounds[:2] if f in own else (0, f.args[1] - 1)
        rises = is_nonneg(normal(slope))
        end = low if rises else high
        if end is None or not (rises or is_nonneg(normal(-slope))):
            return None
        out = out + slope * end
    return simplify(out)


def _through_remainder(
    symbols: Sequence[Expr], results: Sequence[Expr], condition: Expr, images: Sequence[Expr], again: Again
) -> InverseCandidate | None:
    """The inverse of a map with coordinates that are made of one remainder: of the remainder first."""
    own = frozenset(symbols)
    for k, (r, y) in enumerate(zip(results, images, strict=True)):
        for node in sorted({n for n in postorder(r) if n.op == "mod" and n is not r and n.symbols & own}, key=str):
            number = symbol(f"{y.name}.rest", 0, node.args[1] - 1)
            plain = simplify(replace(r, {node: number}))
            if plain.symbols & own or number not in plain.symbols:
                continue
            digit = again((number,), (plain,), TRUE, (y,))
            back = None
            if isinstance(digit, InverseCandidate):
                inner = [node if m == k else x for m, x in enumerate(results)]
                ends = [number if m == k else x for m, x in enumerate(images)]
                back = again(symbols, inner, condition, ends)
            if isinstance(digit, InverseCandidate) and isinstance(back, InverseCandidate):
                given = {number.name: digit.results[0]}
                held = simplify(and_(digit.condition, back.condition.substitute(given)))
                return _composed(back.results, given, held, back.proof)
    return None


def _through_turned_symbol(
    symbols: Sequence[Expr], results: Sequence[Expr], condition: Expr, images: Sequence[Expr], again: Again
) -> InverseCandidate | None:
    """The inverse of a map that reads a symbol of n values as ``(s + c) % n`` or ``(c - s) % n``: of that first."""
    for node in sorted({n for r in results for n in postorder(r) if n.op == "mod"}, key=str):
        own = [s for s in symbols if s in node.args[0].symbols]
        if len(own) != 1 or _extent(own[0]) != node.args[1] or node in results:
            continue
        (s,) = own
        every = ((k, simplify(node.args[0] - s * k)) for k in (1, -1))
        sign, by = next(((k, x) for k, x in every if not x.symbols & frozenset(symbols)), (0, s))
        if not sign:
            continue
        turned = symbol(f"{s.name}.turned", 0, s.symbol_bounds[1])
        table = {s.name: ((turned - by) * sign) % node.args[1]}
        forms = {node: turned} | {x: turned // k for x, k in _quotients_of(node, results)}
        plain = [simplify(replace(r, forms).substitute(table)) for r in results]
        back = None
        if sum(map(cost, plain)) < sum(map(cost, results)):
            mine = [turned if x is s else x for x in symbols]
            back = again(mine, plain, simplify(condition.substitute(table)), images)
        if isinstance(back, InverseCandidate):
            found = dict(zip(symbols, back.results, strict=True))
            given = {turned.name: found[s]}
            return _composed(
                [table[s.name] if x is s else found[x] for x in symbols], given, back.condition, back.proof
            )
    return None


def _quotients_of(node: Expr, results: Sequence[Expr]) -> list[tuple[Expr, Expr]]:
    """``x//k % m`` beside ``x % (k*m)``, which it is a quotient of, and k."""
    found = [n for r in results for n in postorder(r) if n.op == "mod" and n.args[0].op == "floordiv"]
    parts = [(n, *n.args[0].args) for n in found if n.args[0].args[0] == node.args[0]]
    return [(n, k) for n, _, k in parts if simplify(k * n.args[1]) == node.args[1]]


def _through_digits(
    symbols: Sequence[Expr], results: Sequence[Expr], condition: Expr, images: Sequence[Expr], again: Again
) -> InverseCandidate | None:
    """The inverse of a map that reads a symbol through its quotient and remainder by one number: both on their own."""
    for node in sorted({n for r in results for n in postorder(r) if n.op in ("mod", "floordiv")}, key=str):
        s, n = node.args
        count = _extent(s) if s in symbols and n.is_const and int(n) > 1 else None
        if count is None or count == n or simplify(count % n) != as_expr(0):
            continue
        upper = symbol(f"{s.name}.upper", 0, simplify(count // n - 1))
        lower = symbol(f"{s.name}.lower", 0, int(n) - 1)
        apart = {s.name: upper * n + lower}
        others = [x for x in symbols if x is not s]
        plain = [simplify(x.substitute(apart)) for x in results]
        back = again((*others, upper, lower), plain, simplify(condition.substitute(apart)), images)
        if isinstance(back, InverseCandidate):
            found = dict(zip((*others, upper, lower), back.results, strict=True))
            found[s] = found[upper] * n + found[lower]
            return _composed([found[x] for x in symbols], {}, back.condition, back.proof)
    return None


def _through_number(
    symbols: Sequence[Expr], results: Sequence[Expr], condition: Expr, images: Sequence[Expr], again: Again
) -> InverseCandidate | None:
    """The inverse of a map that is simpler of the number whose digits the symbols are: of that number first."""
    extents = [_extent(s) for s in symbols]
    counts = [n for n in extents if n is not None]
    if condition is not TRUE or len(counts) != len(symbols) or not 1 < len(symbols) <= _MAX_DIGITS:
        return None
    number = symbol(f"{symbols[0].name}.number", 0, simplify(prod(counts, start=as_expr(1)) - 1))
    best: tuple[list[Expr], dict[str, Expr]] | None = None
    least = sum(map(cost, results))
    for order in permutations(range(len(symbols))):
        rest, digits = number, dict[str, Expr]()
        for k in order[:0:-1]:
            digits[symbols[k].name], rest = rest % counts[k], rest // counts[k]
        digits[symbols[order[0]].name] = rest
        plain = [simplify(r.substitute(digits)) for r in results]
        if sum(map(cost, plain)) < least:
            best, least = (plain, digits), sum(map(cost, plain))
    back = again((number,), best[0], TRUE, images) if best is not None else None
    if best is None or not isinstance(back, InverseCandidate):
        return None
    given = {number.name: back.results[0]}
    return _composed([best[1][s.name] for s in symbols], given, back.condition, back.proof)


def _extent(s: Expr) -> Expr | None:
    """How many values a symbol has, all from 0 on; None for other ranges, and for other expressions."""
    low, high, step, _ = s.symbol_bounds if s.op == "sym" else (None, None, 1, 0)
    return simplify(as_expr(high) + 1) if low == 0 and step == 1 and high is not None else None


def _through_flat(
    symbols: Sequence[Expr], results: Sequence[Expr], condition: Expr, images: Sequence[Expr], again: Again
) -> InverseCandidate | None:
    """The inverse of a map whose coordinates are the digits of one shorter number: of the number, put together."""
    spans = [interval(r) for r in results]
    if not 1 < len(results) <= _MAX_DIGITS:
        return None
    known = [high is not None and low is not None and low >= 0 for low, high in spans]
    ends = [high if ok else y.symbol_bounds[1] for (_, high), ok, y in zip(spans, known, images, strict=True)]
    extents = [as_expr(0 if high is None else high) + 1 for high in ends]
    best: tuple[Expr, Expr] | None = None
    for order in permutations(range(len(results))):
        if not all(known[k] for k in order[1:]):  # the number is in its range where the first digit is
            continue
        flat = image = as_expr(0)
        for k in order:
            flat, image = flat * extents[k] + results[k], image * extents[k] + images[k]
        flat = simplify(flat)
        if best is None or cost(flat) < cost(best[0]):
            best = flat, image
    if best is None or 2 * cost(best[0]) > sum(map(cost, results)):
        return None
    number = symbol(f"{images[0].name}.flat", 0, simplify(prod(extents, start=as_expr(1)) - 1))
    back = again(symbols, best[:1], condition, (number,))
    if not isinstance(back, InverseCandidate):
        return None
    given = {number.name: best[1]}
    inside = and_(*(y < n for y, n in zip(images, extents, strict=True)))
    return _composed(back.results, given, simplify(and_(inside, back.condition.substitute(given))), back.proof)


CHANGES = (
    _through_flat,
    _through_rotation,
    _through_remainder,
    _through_turned_symbol,
    _through_digits,
    _through_number,
)


def _composed(results: Sequence[Expr], given: dict[str, Expr], held: Expr, proof: MapProof) -> InverseCandidate:
    return InverseCandidate(tuple(simplify(x.substitute(given), facts=(held,)) for x in results), held, proof)
