"""Rules of comparisons and their conjunctions.

An order comparison is read as ``sum >= 0`` over the integers; it is decided by ranges, divided by common factors and
written back in the form with fewest operations.

Rules of min, max and where.

Long: rules of one family, tried in the order of the table.
"""

from __future__ import annotations

from math import gcd

from idgraph.arith.expr import (
    FALSE,
    TRUE,
    ZERO,
    Expr,
    add,
    and_,
    compare,
    const,
    from_terms,
    maximum,
    minimum,
    mod,
    mul,
    not_,
    or_,
    rebuild,
    where,
)
from idgraph.arith.facts import Fact, assume, decide, facts_of
from idgraph.arith.fourier_motzkin import dividends, nonneg, positive
from idgraph.arith.interval import congruence, interval
from idgraph.arith.known_bits import merged, residues_of
from idgraph.arith.linear import Terms, combine, content, factors, minus, sum_interval, terms
from idgraph.arith.mixed_radix import cost
from idgraph.arith.rewriter import normal, rule
from idgraph.arith.rules_divmod import splits

_MOST_DIVISORS = 8  # coefficients, largest first, by which a sum is divided on trial


def at_least_zero(t: Terms, c: int) -> Expr:
    """The condition ``sum >= 0`` in its shortest form: negative terms on one side, positive terms on the other."""
    up = {b: v for b, v in t.items() if v > 0}
    down = {b: -v for b, v in t.items() if v < 0}
    if not down:
        return compare("le", const(-c), from_terms(up, 0))
    if not up:
        return compare("lt", from_terms(down, 0), const(c + 1))
    if c == 0:
        return compare("le", from_terms(down, 0), from_terms(up, 0))
    if c == -1:
        return compare("lt", from_terms(down, 0), from_terms(up, 0))
    if c > 0:
        return compare("lt", from_terms(down, 0), from_terms(up, c + 1))
    return compare("le", from_terms(down, -c), from_terms(up, 0))


def _negated(t: Terms) -> Terms:
    return {b: -v for b, v in t.items()}


@rule("lt le", "order-known", "x < y", "True or False", "decided by range, symbolic bounds included")
def order_known(node: Expr) -> Expr | None:
    t, c = minus(node.args[1], node.args[0])
    c -= node.op == "lt"
    if nonneg(t, c):
        return TRUE
    if nonneg(_negated(t), -c - 1):
        return FALSE
    if sum(b.op in ("floordiv", "mod") for b in t) < 2:
        return None
    lo, hi = interval(from_terms(t, c))  # of digits together
    return TRUE if lo is not None and lo >= 0 else FALSE if hi is not None and hi < 0 else None


@rule("lt le", "order-sum", "x < y", "y - x > 0", "the difference simplifies")
def order_sum(node: Expr) -> Expr | None:
    t, c = minus(node.args[1], node.args[0])
    if len(t) < 2 or all(f.op == "sym" for b in t for f in factors(b)):
        return None
    raw = from_terms(t, 0)
    out = normal(raw)
    if out == raw or cost(out) >= cost(raw):
        return None
    t, k = terms(out)
    return at_least_zero(t, c + k - (node.op == "lt"))


@rule("lt le", "order-quotients", "x//d <= y//d + k", "True or False", "x <= y + k*d, d > 0; or the opposite")
def order_quotients(node: Expr) -> Expr | None:
    t, c = minus(node.args[1], node.args[0])
    c -= node.op == "lt"
    over, under = dividends(t, c, node.symbols), dividends(_negated(t), -c - 1, node.symbols)
    if over is None or under is None:
        return None
    return TRUE if nonneg(*over) else FALSE if nonneg(*under) else None


@rule("lt le", "order-quotient", "x//d < k", "x < k*d", "d > 0")
def order_quotient(node: Expr) -> Expr | None:
    t, c = minus(node.args[1], node.args[0])
    c -= node.op == "lt"
    quotients = [(b, v) for b, v in t.items() if b.op == "floordiv" and abs(v) == 1]
    for base, v in quotients:
        x, d = base.args
        if not positive(d, node.symbols):
            continue
        rest = from_terms({b: k for b, k in t.items() if b is not base}, c)
        if v > 0:  # x//d >= -rest  <=>  x >= -rest*d
            out = compare("le", mul((const(-1), rest, d)), x)
        else:  # x//d <= rest  <=>  x < (rest + 1)*d
            out = compare("lt", x, mul((rest + 1, d)))
        if len(quotients) == 1 or order_known(out) is not None:
            out = normal(out)
            if (cost(out), out.divmods) < (cost(node), node.divmods):  # a product is cheaper than a quotient
                return out
    return None


@rule("lt le", "order-wrap", "x % d < c", "x >= k*d", "x runs over k*d once, at least c before it, below c after")
def order_wrap(node: Expr) -> Expr | None:
    t, c = minus(node.args[1], node.args[0])
    c -= node.op == "lt"
    if len(t) != 1:
        return None
    base, v = next(iter(t.items()))
    if abs(v) != 1 or base.op != "mod" or base.args[1].op != "const" or base.args[1].value <= 0:
        return None
    x, d = base.args[0], base.args[1].value
    lo, hi = interval(x)
    if lo is None or hi is None or hi // d != lo // d + 1:
        return None
    edge = hi // d * d
    bound = c + 1 if v < 0 else -c  # the condition is x%d < bound, or (v > 0) its negation
    if lo % d < bound or hi - edge >= bound:
        return None
    out = normal(compare("le", const(edge), x) if v < 0 else compare("lt", x, const(edge)))
    return out if cost(out) < cost(node) else None


@rule("lt le", "order-turn", "(x + c) % d < 1", "x % d == -c % d", "one remainder is distinguished from all others")
def order_turn(node: Expr) -> Expr | None:
    t, k = minus(node.args[1], node.args[0])
    k -= node.op == "lt"
    if len(t) != 1:
        return None
    base, v = next(iter(t.items()))
    if base.op != "mod" or abs(v) != 1 or base.args[1].op != "const":
        return None
    d = base.args[1].value
    tx, c = terms(base.args[0])
    below = k + 1 if v < 0 else -k  # the condition is x%d < below, or (v > 0) its negation
    if c == 0 or below not in (1, d - 1) or d < 2:
        return None
    first = below == 1
    op = "eq" if first == (v < 0) else "ne"
    out = compare(op, mod(from_terms(tx, 0), const(d)), const(((0 if first else d - 1) - c) % d))
    return out if cost(out) < cost(node) else None


@rule("lt le", "order-normal", "g*x + S < y", "x < y'", "common factors divided out, a part S of known range dropped")
def order_normal(node: Expr) -> Expr | None:
    t, c = minus(node.args[1], node.args[0])
    c -= node.op == "lt"
    g = content(t)
    if g > 1:
        t, c = {b: v // g for b, v in t.items()}, c // g
    else:
        steps = {abs(v) * max(congruence(b)[0], 1) for b, v in t.items()} | {abs(v) for v in t.values()}
        for v in sorted(steps - {1}, reverse=True)[:_MOST_DIVISORS]:
            for _, big, low, _ in splits(t, c, v):  # sum >= 0  <=>  sum//v >= 0
                if not low:
                    continue
                tb, cb = terms(big)
                k = content(tb, v)
                return at_least_zero({b: x // k for b, x in tb.items()}, cb // k)
        c = _loosest(t, c)
    out = at_least_zero(t, c)
    return out if out != node else None


def _loosest(t: Terms, c: int) -> int:
    """The constant of ``sum + c >= 0`` that says the same of a sum known modulo m: -1 or 0 if it may be, as ``x <
    y``."""
    m, r = congruence(from_terms(t, 0))
    if m <= 1:
        return c
    least = c - (r + c) % m
    return next((k for k in (-1, 0) if least <= k < least + m), least)


@rule("lt le", "order-extremum", "min(x, y) >= z", "x >= z & y >= z", "one of them is decided, also max and or")
def order_extremum(node: Expr) -> Expr | None:
    t, c = minus(node.args[1], node.args[0])
    c -= node.op == "lt"
    for base, v in t.items():
        if base.op in ("min", "max"):
            rest = from_terms({x: k for x, k in t.items() if x is not base}, c)
            parts = [normal(compare("le", const(0), rest + a * v)) for a in base.args]
            if any(p.op == "const" for p in parts):
                every = (base.op == "min") == (v > 0)
                return and_(*parts) if every else or_(*parts)
    return None


@rule("eq ne", "equal-known", "x == y", "True or False", "decided by range or congruence")
def equal_known(node: Expr) -> Expr | None:
    t, c = minus(node.args[0], node.args[1])
    same, other = (TRUE, FALSE) if node.op == "eq" else (FALSE, TRUE)
    if not t:
        return same if c == 0 else other
    g = 0
    residue = c
    for base, v in t.items():
        m, r = congruence(base)
        g = content({base: v * m}, g)
        residue += v * r
    if (g and residue % g) or (not g and residue):
        return other
    if nonneg(t, c - 1) or nonneg(_negated(t), -c - 1):
        return other
    lo, hi = sum_interval(t, c)
    return same if lo == 0 and hi == 0 else None


@rule("eq ne", "equal-sum", "x == y", "x - y == 0", "the difference simplifies: it is cheaper")
def equal_sum(node: Expr) -> Expr | None:
    t, c = minus(node.args[0], node.args[1])
    if len(t) < 2 or all(f.op == "sym" for b in t for f in factors(b)):
        return None
    raw = from_terms(t, 0)
    out = normal(raw)
    if out == raw or cost(out) >= cost(raw):
        return None
    out = normal(compare("eq" if node.op == "eq" else "ne", out, const(-c)))
    return out if cost(out) < cost(node) else None


@rule("lt le eq ne", "compare-choice", "where(p, x, y) < z", "p, not p, ...", "a branch is decided; also == and !=")
def compare_choice(node: Expr) -> Expr | None:
    t, c = minus(node.args[1], node.args[0])
    for base, v in t.items():
        if base.op == "where":
            rest = from_terms({x: k for x, k in t.items() if x is not base}, c)
            yes, no = (normal(rebuild(node, (ZERO, rest + a * v))) for a in base.args[1:])
            if yes.op == "const" or no.op == "const":
                return or_(and_(base.args[0], yes), and_(not_(base.args[0]), no))
    return None


@rule("eq ne", "equal-remainder", "(x + c) % d == k", "x % d == (k - c) % d", "0 <= k < d")
def equal_remainder(node: Expr) -> Expr | None:
    t, c = minus(node.args[0], node.args[1])
    if len(t) != 1:
        return None
    base, v = next(iter(t.items()))
    if base.op != "mod" or abs(v) != 1 or base.args[1].op != "const":
        return None
    d, k = base.args[1].value, -c * v
    tx, cx = terms(base.args[0])
    if cx == 0 or not 0 <= k < d:
        return None
    out = compare("eq" if node.op == "eq" else "ne", mod(from_terms(tx, 0), const(d)), const((k - cx) % d))
    return out if cost(out) < cost(node) else None


@rule("eq ne", "equal-normal", "g*x + g*y == c", "x + y == c//g", "g divides both sides")
def equal_normal(node: Expr) -> Expr | None:
    t, c = minus(node.args[0], node.args[1])
    g = content(t)
    if c % g == 0 and g > 1:
        t, c = {b: v // g for b, v in t.items()}, c // g
    first = min(t, key=lambda b: b.key)
    if t[first] < 0:
        t, c = _negated(t), -c
    op = "eq" if node.op == "eq" else "ne"
    up = {b: v for b, v in t.items() if v > 0}
    down = {b: -v for b, v in t.items() if v < 0}
    if down:
        out = compare(op, from_terms(up, max(c, 0)), from_terms(down, max(-c, 0)))
    else:
        out = compare(op, from_terms(up, 0), const(-c))
    return out if out != node else None


@rule("and or", "junction-known", "p & q", "p", "p implies q; likewise or, and contradictions")
def junction_known(node: Expr) -> Expr | None:
    parts = list(node.args)
    conjunction = node.op == "and"
    for q in sorted(parts, key=lambda p: (-p.cost, p.key)):
        others = [p for p in parts if p is not q]
        if not others or not any(q.symbols & p.symbols for p in others):
            continue
        new = assume_all(q, others if conjunction else [normal(not_(p)) for p in others])
        if new != q and (new.op == "const" or cost(new) < cost(q)):
            return and_(*others, new) if conjunction else or_(*others, new)
    return None


def assume_all(c: Expr, given: list[Expr]) -> Expr:
    """The condition ``c`` where all the ``given`` conditions hold."""
    known: list[Fact] = [f for p in given for f in facts_of(p)]
    if c.op in ("lt", "le", "eq", "ne"):
        truth = decide(c, known)
        if truth is not None:
            return TRUE if truth else FALSE
    if c in given:
        return TRUE
    if normal(not_(c)) in given:
        return FALSE
    return assume(c, and_(*given))


@rule("and", "pinned", "x <= c & x >= c", "x == c")
def pinned(node: Expr) -> Expr | None:
    known = [(p, *minus(p.args[1], p.args[0])) for p in node.args if p.op in ("lt", "le")]
    for n, (p, t, c) in enumerate(known):
        c -= p.op == "lt"
        for q, u, d in known[n + 1 :]:
            d -= q.op == "lt"
            rest, total = combine(((t, c, 1), (u, d, 1)))
            if not rest and total == 0:
                both = compare("eq", from_terms(t, c), const(0))
                return and_(both, *(x for x in node.args if x is not p and x is not q))
    return None


@rule("and", "residues-merge", "x % c == k & x % d == e", "x % lcm(c, d) == r", "r is the number that leaves k and e")
def residues_merge(node: Expr) -> Expr | None:
    """The Chinese remainder theorem; FALSE where no number has both remainders."""
    known = [(p, f) for p in node.args if p.op == "eq" for f in residues_of(p)]
    for n, (p, f) in enumerate(known):
        for q, g in known[n + 1 :]:
            if p is q or f.sum != g.sum or p.args[0].op != "mod" or q.args[0].op != "mod":
                continue
            both = merged((f.m, f.r), (g.m, g.r))
            if both is None:
                return FALSE
            told = compare("eq", mod(from_terms(f.sum, 0), const(both[0])), const(both[1]))
            return and_(told, *(x for x in node.args if x is not p and x is not q))
    return None


# ---- min and max ---------------------------------------------------------------------------------------------
@rule("min max", "dominated", "min(x, y)", "x", "x <= y; max: x >= y")
def dominated(node: Expr) -> Expr | None:
    args = node.args
    for a in args:
        for b in args:
            if a is not b:
                t, c = minus(b, a) if node.op == "min" else minus(a, b)
                if nonneg(t, c):
                    return rebuild(node, tuple(x for x in args if x is not b))
    return None


def _taken_out(options: tuple[Expr, ...]) -> tuple[Expr, int, list[Expr]] | None:
    """The terms that all options share, the common factor of the rest, and the remainder of each option."""
    parts = [terms(a) for a in options]
    first, k = parts[0]
    shared = {b: v for b, v in first.items() if all(t.get(b) == v for t, _ in parts[1:])}
    if any(c != k for _, c in parts):
        k = 0
    left = [({b: v for b, v in t.items() if b not in shared}, c - k) for t, c in parts]
    g = 0
    for t, c in left:
        g = gcd(content(t, g), c)
    if not shared and not k and g <= 1:
        return None
    g = g or 1
    return from_terms(shared, k), g, [from_terms({b: v // g for b, v in t.items()}, c // g) for t, c in left]


# ---- where ---------------------------------------------------------------------------------------------------
@rule("where", "select-known", "where(p, x, y)", "where(p, x', y')", "x' = x under p, y' = y under not p")
def select_known(node: Expr) -> Expr | None:
    c, a, b = node.args
    x = assume(a, c)
    y = assume(b, not_(c))
    return where(c, x, y) if x is not a or y is not b else None


@rule("where", "select-turn", "where(not p, x, y)", "where(p, y, x)", "p is the simpler way to say it")
def select_turn(node: Expr) -> Expr | None:
    c, a, b = node.args
    if c.op == "ne" or c.op == "not":
        return where(not_(c), b, a)
    if c.op in ("lt", "le"):
        t, _ = minus(c.args[1], c.args[0])  # the condition bounds its first symbol from above
        first = min(t, key=lambda x: x.key)
        if t[first] > 0:
            return where(normal(not_(c)), b, a)
    return None


@rule("where", "select-extremum", "where(x < y, x, y)", "min(x, y)", "also <=, and max")
def select_extremum(node: Expr) -> Expr | None:
    c, a, b = node.args
    if c.op not in ("lt", "le"):
        return None
    t, k = minus(c.args[1], c.args[0])
    k -= c.op == "lt"  # the condition says t + k >= 0
    d, m = minus(b, a)
    g, h = content(t), content(d)
    if not g or not h:
        return None
    ratio = {x: v // h for x, v in d.items()}
    if {x: v // g for x, v in t.items()} == ratio:
        sign = 1
    elif {x: -v // g for x, v in t.items()} == ratio:
        sign = -1
    else:
        return None
    # p: g*u + k >= 0 with u = sum of ratio (times sign); b - a = h*u*sign + m.  Both must change sign together:
    # where p holds u >= ceil(-k/g), else u <= ceil(-k/g) - 1.
    edge = -(k // g)
    at, before = h * sign * edge + m, h * sign * (edge - 1) + m
    if sign > 0 and at >= 0 and before <= 0:
        out = minimum(a, b)
    elif sign < 0 and at <= 0 and before >= 0:
        out = maximum(a, b)
    else:
        return None
    return out if cost(out) < cost(node) else None


@rule("where", "select-join", "where(p, x, where(q, x, y))", "where(p | q, x, y)", "also where(p, where(q, x, y), y)")
def select_join(node: Expr) -> Expr | None:
    c, a, b = node.args
    if b.op == "where":
        q, x, y = b.args
        if x == a:
            return where(or_(c, q), a, y)
        if y == a:
            return where(or_(c, not_(q)), a, x)
    if a.op == "where":
        q, x, y = a.args
        if y == b:
            return where(c & q, x, b)
        if x == b:
            return where(c & not_(q), y, b)
    return None


@rule("where", "select-wrap", "where(x < m, x, x - m)", "x % m", "0 <= x < 2*m; it is cheaper")
def select_wrap(node: Expr) -> Expr | None:
    c, a, b = node.args
    t, m = minus(a, b)
    if t or not m:
        return None
    inside, x = (c, a) if m > 0 else (not_(c), b)
    m = abs(m)
    known, k = terms(x)
    if not nonneg(known, k) or not nonneg({base: -v for base, v in known.items()}, 2 * m - 1 - k):
        return None
    if normal(compare("lt", x, const(m))) != normal(inside):
        return None
    out = mod(x, const(m))
    return out if cost(out) < cost(node) else None


@rule("min max where", "choice-common", "min(g*x + z, g*y + z)", "g*min(x, y) + z", "it is cheaper; g > 0; also where")
def choice_common(node: Expr) -> Expr | None:
    conditions = 1 if node.op == "where" else 0
    found = _taken_out(node.args[conditions:])
    if found is None:
        return None
    shared, g, inner = found
    out = add((mul((const(g), rebuild(node, (*node.args[:conditions], *inner)))), shared))
    return out if cost(out) < cost(node) else None
