"""Signs of sums whose symbols have symbolic bounds (``0 <= j < n``), by eliminating one atom at a time.

``nonneg`` proves ``sum >= 0``.  Each step replaces an atom, where it stands linearly, by the bound that makes the
sum smallest; products of parameters are decided after shifting each to start at zero (all coefficients non-negative).

``contradicts`` eliminates unknowns of several sums by Fourier and Motzkin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from math import gcd

from idgraph.arith.expr import Expr, as_expr, charge
from idgraph.arith.interval import interval
from idgraph.arith.linear import (
    Terms,
    add_to,
    combine,
    divide_base,
    factors,
    is_exact_quotient,
    minus,
    product_of,
    sum_interval,
    terms,
    times,
)

_FUEL = 40
_ENDS = 16  # choices of an end for each atom


_KEPT = 1 << 13

Sum = tuple[frozenset[tuple[Expr, int]], int]
_PROVED: dict[Sum, bool] = {}  # rules ask the same question of one sum again and again


@dataclass(slots=True)
class Search:
    """Steps left for one proof, and what was found for sums so far: another order of elimination leaves the same."""

    left: int = _FUEL
    found: dict[Sum, bool] = field(default_factory=dict[Sum, bool])


def nonneg(t: Terms, c: int) -> bool:
    """Whether the sum is proved to be >= 0 at every point of the ranges."""
    low, _ = sum_interval(t, c)
    if low is not None and low >= 0:
        return True
    if not t or not (any(_helpful(b) for b in t) or _correlated(t)):
        return False
    asked = frozenset(t.items()), c
    found = _PROVED.get(asked)
    if found is None:
        # the answer is that of the sum, not of its order
        found = _nonneg(dict(sorted(t.items(), key=lambda item: item[0].key)), c, Search())
        if len(_PROVED) >= _KEPT:
            _PROVED.clear()
        _PROVED[asked] = found
    return found


def _correlated(t: Terms) -> bool:
    """Whether a quotient by a constant stands beside symbols of its own numerator, as in ``n - n//2``."""
    return len(t) > 1 and any(
        b.op == "floordiv"
        and b.args[1].op == "const"
        and any(b.symbols & other.symbols for other in t if other is not b)
        for b in t
    )


def is_nonneg(e: Expr) -> bool:
    """Whether a normal expression is proved to be >= 0."""
    return nonneg(*terms(e))


def dividends(t: Terms, c: int, witnesses: frozenset[Expr] = frozenset()) -> tuple[Terms, int] | None:
    """For a sum ``y//d - x//d + c``, d > 0: ``y - x + c*d``. Where that is >= 0 the sum is. None for other sums."""
    if len(t) != 2 or sorted(t.values()) != [-1, 1] or not all(b.op == "floordiv" for b in t):
        return None
    (x, d), (y, e) = (b.args for b in sorted(t, key=t.__getitem__))
    return minus(y + d * c, x) if d == e and positive(d, witnesses) else None


def below(x: Expr, y: Expr) -> bool:
    """Whether ``x < y`` is proved."""
    t, c = minus(y, x)
    return nonneg(t, c - 1)


def positive(d: Expr, witnesses: frozenset[Expr] = frozenset()) -> bool:
    """Whether ``d >= 1`` wherever the ``witnesses`` (symbols in use) have a value at all: 0 <= j < n needs n >= 1."""
    t, c = terms(d)
    if nonneg(t, c - 1):
        return True
    for s in witnesses:
        lo, hi, _, _ = s.symbol_bounds
        if lo is None or hi is None or not (isinstance(lo, Expr) or isinstance(hi, Expr)):
            continue
        room, k = minus(as_expr(hi), as_expr(lo))  # hi - lo >= 0
        rest, rc = combine(((t, c - 1, 1), (room, k, -1)))
        if nonneg(rest, rc):
            return True
    return False


def _helpful(base: Expr) -> bool:
    return any(_has_bounds(a) for a in factors(base)) or base.op == "mul"


def _has_bounds(a: Expr) -> bool:
    match a.op:
        case "sym":
            return isinstance(a.symbol_bounds[0], Expr) or isinstance(a.symbol_bounds[1], Expr)
        case "min" | "max" | "where":
            return True
        case "mod" | "floordiv":
            return a.args[1].op != "const" or any(_has_bounds(s) for s in a.symbols)
        case _:
            return False


def _rank(a: Expr, depth: int = 0) -> int:
    """Atoms whose bounds mention others are eliminated first."""
    if a.op != "sym":
        return 100 - len(a.symbols)
    found = 0
    for b in a.symbol_bounds[:2]:
        if isinstance(b, Expr) and depth < 8:
            for s in b.symbols:
                found = max(found, 1 + _rank(s, depth + 1))
    return found


def _without_exact(t: Terms, c: int) -> tuple[Terms, int]:
    """A positive multiple of the sum in which no quotient is exact: y in place of ``k * (y//k)``."""
    while (q := next((f for b in t for f in factors(b) if is_exact_quotient(f)), None)) is not None:
        k, out, constant = q.args[1].value, Terms(), c * q.args[1].value
        for b, v in t.items():
            left = divide_base(b, (q,))
            part = ({b: k}, 0) if left is None else times(terms(q.args[0]), terms(left))
            if part is None:
                return t, c
            add_to(out, part[0], v)
            constant += v * part[1]
        t, c = out, constant
    return t, c


def _nonneg(t: Terms, c: int, search: Search) -> bool:
    t, c = _without_exact(t, c)
    state = frozenset(t.items()), c
    if state not in search.found:
        search.found[state] = False  # until it is shown
        search.left -= 1
        search.found[state] = search.left >= 0 and _eliminated(t, c, search)
    return search.found[state]


def _eliminated(t: Terms, c: int, search: Search) -> bool:
    low, _ = sum_interval(t, c)
    if low is not None and low >= 0:
        return True
    atoms = {a for b in t for a in factors(b)}
    chosen = sorted((a for a in atoms if _has_bounds(a)), key=lambda a: (-_rank(a), a.key))
    for a in chosen:
        found = _isolate(t, a)
        if found is None:
            continue
        coefficient, ck, rest = found
        if nonneg_fuelled(coefficient, ck, search):
            if _with_bound(a, coefficient, ck, rest, c, True, search):
                return True
        elif nonneg_fuelled({b: -v for b, v in coefficient.items()}, -ck, search) and _with_bound(
            a, coefficient, ck, rest, c, False, search
        ):
            return True
    return _without_quotient(t, c, search) or _without_factor(t, c, search) or _is_nonnegative(t, c)


def _without_factor(t: Terms, c: int, search: Search) -> bool:
    """``sum >= 0`` where all terms have a factor >= 0 in common, by the rest of them; that of quotients of one divisor,
    by their dividends."""
    parts = [factors(b) for b in t]
    common = [] if c or len(t) < 2 else [f for f in parts[0] if all(f in p for p in parts[1:])]
    f = next((f for f in common if nonneg_fuelled({f: 1}, 0, search)), None)
    if f is None:
        of_dividends = dividends(t, c)
        return of_dividends is not None and _nonneg(*of_dividends, search)
    rest: Terms = {}
    for p, v in zip(parts, t.values(), strict=True):
        left = _without(p, (f,))
        assert left is not None
        x, k = terms(product_of(left))
        add_to(rest, x, v)
        c += k * v
    return _nonneg(rest, c, search)


def _without(parts: Iterable[Expr], taken: Iterable[Expr]) -> list[Expr] | None:
    """The factors of a product beside those that are taken out of it; None where these are not all there."""
    left = list(parts)
    for f in taken:
        if f not in left:
            return None
        left.remove(f)
    return left


def _without_quotient(t: Terms, c: int, search: Search) -> bool:
    """``sum >= 0`` by ``x - d + 1 <= d*(x//d) <= x``, for one quotient by a d > 0 that is a constant, or stands beside
    it in a product with factors >= 0."""
    for base, v in t.items():
        for q in factors(base) if base.op == "mul" else ():
            left = _without(factors(base), (q, *factors(q.args[1]))) if q.op == "floordiv" else None
            if left is None or not positive(q.args[1]) or not all(nonneg_fuelled({f: 1}, 0, search) for f in left):
                continue
            x, d = q.args
            end = times(terms(x if v < 0 else x - d + 1), terms(product_of(left)))
            if end is not None:
                out = {b: w for b, w in t.items() if b is not base}
                add_to(out, end[0], v)
                if _nonneg(out, c + v * end[1], search):
                    return True
        if base.op != "floordiv" or base.args[1].op != "const" or base.args[1].value <= 0:
            continue
        d = base.args[1].value
        tx, cx = terms(base.args[0])
        out = {b: w * d for b, w in t.items() if b is not base}
        add_to(out, tx, v)
        if _nonneg(out, c * d + v * (cx if v < 0 else cx - d + 1), search):
            return True
    return False


def nonneg_fuelled(t: Terms, c: int, search: Search) -> bool:
    """As ``nonneg`` within a shared budget of steps."""
    if not t:
        return c >= 0
    low, _ = sum_interval(t, c)
    return (low is not None and low >= 0) or ((any(_helpful(b) for b in t) or _correlated(t)) and _nonneg(t, c, search))


def _isolate(t: Terms, a: Expr) -> tuple[Terms, int, Terms] | None:
    """``t = (coefficient + ck) * a + rest``, if ``a`` stands linearly."""
    coefficient: Terms = {}
    ck = 0
    rest: Terms = {}
    for base, v in t.items():
        parts = factors(base)
        count = parts.count(a)
        if count == 0:
            rest[base] = v
        elif count > 1:
            return None
        elif len(parts) == 1:
            ck += v
        else:
            coefficient[product_of(p for p in parts if p is not a and p != a)] = v
    return coefficient, ck, rest


def _with_bound(a: Expr, coefficient: Terms, ck: int, rest: Terms, c: int, lower: bool, search: Search) -> bool:
    """Whether ``coefficient*a + rest + c >= 0`` with ``a`` at its lower (upper) bound."""
    options, every = bound_options(a, lower)
    if not options:
        return False
    for b in options:
        scaled = times((coefficient, ck), terms(b))
        good = False
        if scaled is not None:
            out = dict(rest)
            add_to(out, scaled[0], 1)
            good = nonneg_fuelled(out, c + scaled[1], search)
        if good and not every:
            return True
        if every and not good:
            return False
    return every


def bound_options(a: Expr, lower: bool) -> tuple[list[Expr], bool]:
    """Expressions that bound ``a`` from below (above), and whether all of them have to be tried (or any will do)."""
    args = a.args
    match a.op:
        case "sym":
            b = a.symbol_bounds[0 if lower else 1]
            return ([] if b is None else [as_expr(b)], False)
        case "min":
            return (list(args), lower)
        case "max":
            return (list(args), not lower)
        case "where":
            return ([args[1], args[2]], True)
        case "mod":
            if positive(args[1]):
                return ([as_expr(0)] if lower else _mod_tops(args), False)
            return ([], False)
        case "floordiv":
            return (_quotient_bounds(args, lower), False)
        case _:
            return ([], False)


def _mod_tops(args: tuple[Expr, ...]) -> list[Expr]:
    x, d = args
    tops = [d - 1]
    if is_nonneg(x):
        tops.append(x)
    return tops


def _quotient_bounds(args: tuple[Expr, ...], lower: bool) -> list[Expr]:
    """For y//d with d > 0: ``y <= k*d + r, r < d`` gives y//d <= k; ``y >= k*d`` gives y//d >= k.

    Of ``y = k*d + r`` also y//d <= k + r where r >= -1, and y//d >= k + r where r <= 0."""
    y, d = args
    if not positive(d):
        return []
    out: list[Expr] = []
    if lower and is_nonneg(y):
        out.append(as_expr(0))
    td, cd = terms(d)
    if len(td) + (cd != 0) != 1:
        return out
    base, k = next(iter(td.items())) if td else (None, cd)
    ends = _end(y, lower)
    if ends is None:
        return out
    quotient: Terms = {}
    rest: Terms = {}
    te, ce = ends
    qc = 0
    for b, v in te.items():
        if base is None:
            q = v // k if v % k == 0 else None
            if q is not None:
                quotient[b] = q
                continue
        elif v % k == 0:
            left = _without(factors(b), factors(base))
            if left is not None:
                over = product_of(left)
                if over.op == "const":
                    qc += v // k
                else:
                    quotient[over] = quotient.get(over, 0) + v // k
                continue
        rest[b] = v
    # end = d*Q + rest + ce: lower needs rest+ce >= 0 for Q; upper needs rest + ce <= d - 1, or < 0 for Q - 1
    q_expr = _from_terms(quotient, qc)
    neg = {b: -v for b, v in rest.items()}
    if rest and nonneg(*((neg, -ce) if lower else (rest, ce + 1))):
        out.append(_from_terms(rest, ce) + q_expr)
    if lower:
        if nonneg(rest, ce):
            out.append(q_expr)
        return out
    if nonneg(neg, -ce - 1):
        out.append(q_expr - 1)
    else:
        room, rc = combine(((td, cd, 1), (rest, ce, -1)))
        if nonneg(room, rc - 1):
            out.append(q_expr)
    return out


def _from_terms(t: Terms, c: int) -> Expr:
    out = as_expr(c)
    for b, v in t.items():
        out = out + b * v
    return out


def _end(y: Expr, lower: bool) -> tuple[Terms, int] | None:
    """A symbolic lower (upper) bound of the sum ``y``: symbols with symbolic bounds replaced by them."""
    t, c = terms(y)
    for _ in range(4):
        atoms = sorted({a for b in t for a in factors(b) if _has_bounds(a) and a.op == "sym"}, key=lambda a: -_rank(a))
        if not atoms:
            break
        a = atoms[0]
        found = _isolate(t, a)
        if found is None:
            return None
        coefficient, ck, rest = found
        if nonneg(coefficient, ck):
            side = lower
        elif nonneg({b: -v for b, v in coefficient.items()}, -ck):
            side = not lower
        else:
            return None
        options, _ = bound_options(a, side)
        if not options:
            return None
        scaled = times((coefficient, ck), terms(options[0]))
        if scaled is None:
            return None
        t = dict(rest)
        add_to(t, scaled[0], 1)
        c += scaled[1]
    return t, c


def _is_nonnegative(t: Terms, c: int) -> bool:
    """Whether all coefficients are >= 0 with every atom written as its distance from an end of its range."""
    if not any(b.op == "mul" for b in t):
        return False
    atoms = sorted({a for b in t for a in factors(b)}, key=lambda a: a.key)
    ends = [[(e, way) for e, way in zip(interval(a), (1, -1), strict=True) if e is not None] for a in atoms]
    choices = islice(product(*ends), _ENDS)
    return max(len(factors(b)) for b in t) <= 4 and any(
        _from_chosen_ends(t, c, dict(zip(atoms, chosen, strict=True))) for chosen in choices
    )


def _from_chosen_ends(t: Terms, c: int, ends: dict[Expr, tuple[int, int]]) -> bool:
    """Whether all coefficients are >= 0 with each atom ``a`` as ``end + way * rest``, rest >= 0."""
    out: dict[tuple[Expr, ...], int] = {(): c}
    for base, v in t.items():
        poly: dict[tuple[Expr, ...], int] = {(): v}
        for p in factors(base):
            end, way = ends[p]
            grown: dict[tuple[Expr, ...], int] = {}
            for key, k in poly.items():
                grown[(*key, p)] = grown.get((*key, p), 0) + way * k
                grown[key] = grown.get(key, 0) + k * end
            poly = grown
        for key, k in poly.items():
            out[key] = out.get(key, 0) + k
    return all(v >= 0 for v in out.values())


# ---- sums that contradict each other -------------------------------------------------------------------------------
Monomial = tuple[int, ...]  # numbers of unknowns, sorted; () is 1
Row = dict[Monomial, int]  # of a sum
ELIMINATED = 240  # sums that an elimination may have at a time


def primitive(row: Row) -> tuple[frozenset[tuple[Monomial, int]], int]:
    """A sum that is 0 or more, without its constant, and that, divided by what the coefficients have in common."""
    found = {m: v for m, v in row.items() if m}
    g = gcd(*found.values()) or 1
    return frozenset((m, v // g) for m, v in found.items()), row.get((), 0) // g


def _elimination_cost(ups: Sequence[int], downs: Sequence[int]) -> tuple[bool, int]:
    """Of an elimination: whether integers between the bounds may get lost, and how many sums more there are then."""
    lossy = max(ups, default=1) > 1 and max(downs, default=1) > 1
    return lossy, len(ups) * len(downs) - len(ups) - len(downs)


def contradicts(rows: Iterable[Row], most: int = ELIMINATED) -> bool:
    """Whether sums that are 0 or more contradict each other, by eliminating one monomial after the other: over the
    rationals, each sum rounded to integers.

    >>> contradicts([{(0,): 2, (): -1}, {(0,): -2, (): 1}]), contradicts([{(0,): 2, (): -1}, {(0,): -2, (): 2}])
    (True, False)
    """
    held = dict[frozenset[tuple[Monomial, int]], int]()

    def add(row: Row) -> bool:
        key, c = primitive(row)
        held[key] = min(held.get(key, c), c)
        return not key and c < 0

    for row in rows:
        if add(row):
            return True
    held.pop(frozenset(), None)
    while held:
        ups, downs = dict[Monomial, list[int]](), dict[Monomial, list[int]]()
        for key in held:
            for m, v in key:
                (ups if v > 0 else downs).setdefault(m, []).append(abs(v))
        x = min(ups.keys() | downs.keys(), key=lambda m: (*_elimination_cost(ups.get(m, []), downs.get(m, [])), m))
        mine = [(dict(k), c) for k, c in held.items() if any(m == x for m, _ in k)]
        for row, _ in mine:
            del held[frozenset(row.items())]
        above = [(r, c) for r, c in mine if r[x] > 0]
        below = [(r, c) for r, c in mine if r[x] < 0]
        if len(held) + len(above) * len(below) > most:
            return False
        charge(len(above) * len(below))
        for (a, ca), (b, cb) in product(above, below):
            g = gcd(a[x], b[x])
            p, q = -b[x] // g, a[x] // g
            row = {m: v for m in a.keys() | b.keys() if (v := p * a.get(m, 0) + q * b.get(m, 0))}
            if add({**row, (): ca * p + cb * q}):
                return True
        held.pop(frozenset(), None)
    return False
