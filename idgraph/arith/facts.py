"""An expression under a condition: symbols with narrower ranges, and conditions that the condition decides.

A fact ``sum >= 0`` bounds each of its symbols and atoms; the expression is rewritten over symbols with those bounds,
simplified, and written back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd

from idgraph.arith.expr import FALSE, TRUE, Expr, charge, from_terms, maximum, minimum, postorder, rebuild, symbol
from idgraph.arith.fourier_motzkin import contradicts, dividends, nonneg
from idgraph.arith.interval import Interval, congruence, interval
from idgraph.arith.known_bits import by_residues, of_symbols, residues_of, within_periods
from idgraph.arith.linear import Terms, combine, factors, minus, sum_interval, terms, times
from idgraph.arith.rewriter import normal

Fact = tuple[Terms, int]  # the sum is >= 0
_ATOMS = ("mod", "floordiv", "min", "max", "xor", "where")
_MAX_FACTS = 24
_ELIMINATED = 64  # sums that an elimination may have at a time
_ASKED = 64  # conditions that are asked what they imply


def facts_of(cond: Expr) -> list[Fact]:
    """The sums that a (normal) condition says are >= 0."""
    out: list[Fact] = []
    apart: list[Fact] = []
    for c in cond.conjuncts:
        match c.op:
            case "lt" | "le":
                t, k = minus(c.args[1], c.args[0])
                out.append((t, k - (c.op == "lt")))
            case "eq":
                out.append(minus(c.args[0], c.args[1]))
                out.append(minus(c.args[1], c.args[0]))
            case "ne":
                apart.append(minus(c.args[0], c.args[1]))
            case _:
                pass
    while (new := next(((n, f) for n, sum_ in enumerate(apart) if (f := _off_the_end(sum_, out))), None)) is not None:
        del apart[new[0]]
        out.append(new[1])
    return out[:_MAX_FACTS]


def _off_the_end(unequal: Fact, known: list[Fact]) -> Fact | None:
    """``sum != 0`` as ``sum >= 1`` or ``sum <= -1``, where 0 is an end of the range that the sum has by itself, or by
    a bound that is ``known`` of its terms: x < 4 and x != 3 say x < 3, and with x != 2 also x < 2."""
    t, k = unequal
    back = {b: -v for b, v in t.items()}
    lo, hi = sum_interval(t, k)
    lows = [k - c for f, c in known if f == t] + ([] if lo is None else [lo])
    highs = [k + c for f, c in known if f == back] + ([] if hi is None else [hi])
    if lows and max(lows) == 0:
        return t, k - 1
    return (back, -k - 1) if highs and min(highs) == 0 else None


def replace(e: Expr, table: dict[Expr, Expr]) -> Expr:
    """``e`` with whole nodes replaced."""
    out: dict[Expr, Expr] = {}
    nodes = postorder(e)
    charge(len(nodes))
    for node in nodes:
        new = table.get(node)
        if new is None:
            new = node
            if node.args:
                args = tuple(out[a] for a in node.args)
                if any(a is not b for a, b in zip(args, node.args, strict=True)):
                    new = rebuild(node, args)
        out[node] = new
    return out[e]


def assume(e: Expr, cond: Expr) -> Expr:
    """A form of the normal ``e`` that is equal wherever ``cond`` holds; ``e`` itself if that says nothing."""
    if not e.symbols & cond.symbols and not _bounded_by(e, cond.symbols):
        return e
    known = facts_of(cond)
    modulo = residues_of(cond)
    decided = _decided(e, cond, known) | within_periods(e, known)
    if modulo:
        decided |= by_residues(e, modulo)
    out = replace(e, decided) if decided else e
    narrow = narrowed(out, known, of_symbols(modulo))
    narrow |= _rebound(_bounded_by(out, frozenset(narrow)), narrow)
    back = {new: old for old, new in narrow.items()}
    refined = replace(out, narrow) if narrow else out
    related = symbol_bounds([_fact_replaced(f, narrow) for f in known])
    if related:
        refined = replace(refined, related)
        back.update({new: back.get(old, old) for old, new in related.items()})
    if refined is not out or decided:
        out = replace(normal(refined), back)
    return e if out == e else out


def _bounded_by(e: Expr, given: frozenset[Expr]) -> list[Expr]:
    """The symbols of ``e`` whose bounds speak of one of the given."""
    return [
        s
        for s in e.symbols
        if any(isinstance(b, Expr) and b.symbols & given for b in s.symbol_bounds[:2]) and s not in given
    ]


def _rebound(symbols: list[Expr], narrow: dict[Expr, Expr]) -> dict[Expr, Expr]:
    """Symbols whose bounds speak of symbols that are narrower now."""
    out: dict[Expr, Expr] = {}
    for s in symbols:
        lo, hi, m, r = s.symbol_bounds
        low = replace(lo, narrow) if isinstance(lo, Expr) else lo
        out[s] = symbol(s.name, low, replace(hi, narrow) if isinstance(hi, Expr) else hi, m, r)
    return out


def _fact_replaced(fact: Fact, table: dict[Expr, Expr]) -> Fact:
    if not table:
        return fact
    t, c = fact
    found, k = terms(replace(from_terms(t, 0), table))
    return found, c + k


def _decided(e: Expr, cond: Expr, known: list[Fact]) -> dict[Expr, Expr]:
    out: dict[Expr, Expr] = {}
    for node in postorder(e):
        if node.cond and node.op in ("lt", "le", "eq", "ne"):
            truth = decide(node, known)
            if truth is not None:
                out[node] = TRUE if truth else FALSE
    given = cond.conjuncts
    for c in given:
        out[c] = TRUE
    return out


def decide(c: Expr, known: Iterable[Fact]) -> bool | None:
    """The verdict of the facts on a comparison."""
    t, k = minus(c.args[1], c.args[0])
    back = ({b: -v for b, v in t.items()}, -k)
    known = list(known)
    match c.op:
        case "lt" | "le":
            k -= c.op == "lt"
            if implied((t, k), known):
                return True
            return False if implied((back[0], -k - 1), known) else None
        case "eq" | "ne":
            if implied((t, k - 1), known) or implied((back[0], back[1] - 1), known):
                return c.op == "ne"
            if implied((t, k), known) and implied(back, known):
                return c.op == "eq"
            return None
        case _:
            return None


def implied(claim: Fact, known: list[Fact]) -> bool:
    """Whether ``claim >= 0`` follows from one fact, from the sum of two, from the product of two, or from any number
    of facts by elimination.
    """
    t, c = claim
    for n, (ft, fc) in enumerate(known):
        if not (t.keys() & ft.keys()):
            continue
        charge(1)
        rest, rc = combine(((t, c, 1), (ft, fc, -1)))
        if nonneg(rest, rc) or _implied_scaled(claim, (ft, fc)):
            return True
        for gt, gc in known[n + 1 :]:
            if gt.keys() & rest.keys():
                charge(1)
                rest2, rc2 = combine(((rest, rc, 1), (gt, gc, -1)))
                if nonneg(rest2, rc2):
                    return True
    return _by_product(claim, known) or _by_elimination(claim, known) or _by_parts(claim, known)


def _by_parts(claim: Fact, known: list[Fact]) -> bool:
    """Whether ``claim >= 0`` follows for the operands of an extremum in it, or for the dividends of two quotients."""
    t, c = claim
    for base, v in t.items():
        if base.op in ("min", "max"):
            rest = {b: k for b, k in t.items() if b is not base}
            parts = [combine(((rest, c, 1), (*terms(a), v))) for a in base.args]
            enough = all if (base.op == "min") == (v > 0) else any
            return enough(nonneg(*p) or implied(p, known) for p in parts)
    of_dividends = dividends(t, c)
    return of_dividends is not None and implied(of_dividends, known)


def _by_elimination(claim: Fact, known: Sequence[Fact]) -> bool:
    """Whether facts and the ranges of their terms contradict ``claim <= -1``.

    ``a < b``, ``b <= c``, ``c < d`` and ``d <= 8`` show ``a < 7``; a fact may serve several times, or by a half.
    """
    t, c = claim
    sums = _connected(({b: -v for b, v in t.items()}, -c - 1), known)
    terms_ = sorted({b for s, _ in sums for b in s}, key=lambda b: b.key)
    number = {b: (n,) for n, b in enumerate(terms_)}
    sums += [e for b in terms_ for e in _bound_facts(b) if e[0].keys() <= number.keys()]
    return contradicts([{**{number[b]: v for b, v in s.items()}, (): k} for s, k in sums], _ELIMINATED)


def _connected(first: Fact, known: Sequence[Fact]) -> list[Fact]:
    """The sum and the facts that share a term with it, or with one that does."""
    reached, rest, found = set(first[0]), list(known), [first]
    while near := [f for f in rest if f[0].keys() & reached]:
        rest = [f for f in rest if not f[0].keys() & reached]
        reached.update(*(f[0] for f in near))
        found += near
    return found


def _by_product(claim: Fact, known: Sequence[Fact]) -> bool:
    """Whether ``claim`` is >= 0 by the product of two sums that are: facts, or distances from the ends of ranges."""
    t, c = claim
    products = [b for b in t if b.op == "mul"]
    if not products:
        return False
    atoms = {f for b in products for f in factors(b)}
    ends = [f for a in sorted(atoms, key=lambda a: a.key) for f in _from_ends(a)]
    facts = [*ends, *(f for f in known if f[0].keys() & atoms)]
    for n, f in enumerate(facts):
        for g in facts[n:]:
            charge(1)
            made = times(f, g)
            if made is None or not any(made[0].get(b, 0) * t[b] > 0 for b in products):
                continue
            rest = combine(((t, c, 1), (*made, -1)))
            if nonneg(*rest) or any(nonneg(*combine(((*rest, 1), (*h, -1)))) for h in facts):
                return True
    return False


def _from_ends(a: Expr) -> list[Fact]:
    """How far an atom is from each end of its range."""
    lo, hi = interval(a)
    return ([] if lo is None else [({a: 1}, -lo)]) + ([] if hi is None else [({a: -1}, hi)])


def _bound_facts(a: Expr) -> list[Fact]:
    """The same, and how far a symbol is from bounds that are expressions."""
    found = _from_ends(a)
    if a.op == "sym":
        lo, hi = a.symbol_bounds[:2]
        found += [minus(a, lo)] if isinstance(lo, Expr) else []
        found += [minus(hi, a)] if isinstance(hi, Expr) else []
    return found


def strongest(conjuncts: Iterable[Expr]) -> list[Expr]:
    """The conditions but those that hold by ranges, or that one other implies by ranges, in their given order.

    The longest conditions come first: the innermost of nested splits implies the bounds of all the others, and is asked
    once.

    >>> from idgraph.arith import parse
    >>> [str(c) for c in strongest(parse(t, {"i": 4, "j": 3}) for t in ("i*3 < 10", "i*3 + j < 10", "j < 3"))]
    ['i*3 + j < 10']
    """
    kept = dict.fromkeys(conjuncts)
    sums = {c: facts_of(c)[0] for c in kept if c.op in ("lt", "le")}
    for c, (t, k) in list(sums.items()):
        low, _ = sum_interval(t, k)
        if low is not None and low >= 0:
            del sums[c], kept[c]
        elif not t:
            del sums[c]
    least: dict[frozenset[tuple[Expr, int]], Expr] = {}  # of the same sum only the narrowest bound is asked
    for c, (t, k) in list(sums.items()):
        best = least.setdefault(frozenset(t.items()), c)
        if best is not c:
            loose = c if sums[best][1] <= k else best
            least[frozenset(t.items())] = best if loose is c else c
            del sums[loose], kept[loose]
    for n, fact in enumerate(sorted(sums, key=lambda c: -len(sums[c][0]))):
        if n >= _ASKED:
            break
        if fact in kept:
            for claim in [c for c in kept if c in sums and c is not fact]:
                if _weaker(sums[claim], sums[fact]):
                    del kept[claim]
    return list(kept)


def _weaker(claim: Fact, fact: Fact) -> bool:
    """Whether ``claim >= 0`` follows from ``fact >= 0`` by ranges, both scaled so that a first term cancels."""
    (t, c), (ft, fc) = claim, fact
    base = next(iter(t))
    v, w = t[base], ft.get(base, 0)
    if v * w <= 0:
        return False
    g = gcd(v, w)
    a, b = abs(w) // g, abs(v) // g
    rest, k = combine(((t, c, a), ({}, 1, a - 1), (ft, fc, -b)))
    low, _ = sum_interval(rest, k)
    return low is not None and low >= 0


def _implied_scaled(claim: Fact, fact: Fact) -> bool:
    """Over the integers ``claim >= 0`` where ``a*claim + a - 1 >= b*fact``; a and b make some term cancel."""
    (t, c), (ft, fc) = claim, fact
    tried = {(1, 1)}
    for base, v in t.items():
        w = ft.get(base, 0)
        g = gcd(v, w)
        scales = (abs(w) // g, abs(v) // g)
        if v * w > 0 and scales not in tried:
            tried.add(scales)
            a, b = scales
            if nonneg(*combine(((t, c, a), ({}, 1, a - 1), (ft, fc, -b)))):
                return True
    return False


def narrowed(e: Expr, known: list[Fact], modulo: dict[Expr, tuple[int, int]]) -> dict[Expr, Expr]:
    """Symbols (and atoms) of ``e`` with the narrower integer bounds and the congruences that the facts give them."""
    found = _bounds_of(_told_of(e, known), known)
    out: dict[Expr, Expr] = {}
    for base in {**found, **modulo}:
        low, high = interval(base)
        new_low, new_high = found.get(base, (low, high))
        better_low = new_low is not None and (low is None or new_low > low)
        better_high = new_high is not None and (high is None or new_high < high)
        if better_low or better_high or base in modulo:
            bounds = new_low if better_low else None, new_high if better_high else None
            out[base] = _bounded(base, *bounds, modulo.get(base))
    return out


def _told_of(e: Expr, known: list[Fact]) -> set[Expr]:
    """The symbols of ``e`` and of the facts, and the atoms of ``e`` if facts speak of atoms."""
    inside = {s for t, _ in known for b in t for s in b.symbols} | set(e.symbols)
    if any(b.op in _ATOMS for t, _ in known for b in t):
        inside.update(n for n in postorder(e) if n.op in _ATOMS)
    return inside


def _bounds_of(inside: set[Expr], known: list[Fact]) -> dict[Expr, Interval]:
    """The bounds that facts give to their terms, by what is known of the others: what one gives serves the next, as
    often as there are facts."""
    found: dict[Expr, Interval] = {}
    for _ in known:
        before = dict(found)
        for t, c in known:
            for base in inside.intersection(t):
                v, high = t[base], _top({b: k for b, k in t.items() if b is not base}, c, found)
                if high is None:
                    continue
                low, up = found.get(base, interval(base))  # v*base >= -high
                if v > 0:
                    low = -(high // v) if low is None else max(low, -(high // v))
                else:
                    up = high // -v if up is None else min(up, high // -v)
                found[base] = low, up
        if found == before:
            break
    return found


def _top(t: Terms, c: int, found: Mapping[Expr, Interval]) -> int | None:
    """The largest value of a sum, whose terms may have bounds that were ``found``."""
    for base, v in t.items():
        end = found.get(base, interval(base))[v > 0]
        if end is None:
            return None
        c += v * end
    return c


def symbol_bounds(known: list[Fact]) -> dict[Expr, Expr]:
    """Symbols with bounds in terms of other symbols; no bound mentions a symbol that is itself given one here."""
    out: dict[Expr, Expr] = {}
    fixed: set[Expr] = set()
    for t, c in known:
        if len(t) < 2:
            continue
        for base in sorted(t, key=lambda b: b.key):
            v = t[base]
            rest = {b: k for b, k in t.items() if b is not base}
            others = {s for b in rest for s in b.symbols}
            if abs(v) != 1 or base.op != "sym" or base in fixed or base in others or others & out.keys():
                continue
            bound = from_terms(rest, c) if v < 0 else from_terms({b: -k for b, k in rest.items()}, -c)
            new = out.get(base, base)
            out[base] = _bounded(new, bound if v > 0 else None, bound if v < 0 else None)
            fixed |= others
            break
    return out


def _bounded(
    base: Expr, low: Expr | int | None, high: Expr | int | None, modulo: tuple[int, int] | None = None
) -> Expr:
    """A symbol for ``base`` with further bounds, and with what is known of it modulo a number."""
    if base.op == "sym":
        lo, hi, m, r = base.symbol_bounds
        name = base.name
    else:
        lo, hi = interval(base)
        m, r = congruence(base)
        name = f"\0{base.op}{base.key[3]}"
    if modulo is not None:
        m, r = modulo
    if low is not None:
        lo = low if lo is None else maximum(low, lo)
    if high is not None:
        hi = high if hi is None else minimum(high, hi)
    return symbol(name, lo, hi, m or 1, r)
