"""Rules of min, max and where."""

from __future__ import annotations

from math import gcd

from idgraph.arith.expr import (
    Expr,
    add,
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
from idgraph.arith.facts import assume
from idgraph.arith.fourier_motzkin import nonneg
from idgraph.arith.linear import content, minus, terms
from idgraph.arith.mixed_radix import cost
from idgraph.arith.rewriter import normal, rule


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


@rule("min max", "extremum-common", "min(g*x + z, g*y + z)", "g*min(x, y) + z", "it is cheaper; g > 0")
def extremum_common(node: Expr) -> Expr | None:
    found = _taken_out(node.args)
    if found is None:
        return None
    shared, g, inner = found
    out = add((mul((const(g), minimum(*inner) if node.op == "min" else maximum(*inner))), shared))
    return out if cost(out) < cost(node) else None


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


@rule("where", "select-common", "where(p, g*x + z, g*y + z)", "g*where(p, x, y) + z", "it is cheaper")
def select_common(node: Expr) -> Expr | None:
    c, a, b = node.args
    found = _taken_out((a, b))
    if found is None:
        return None
    shared, g, inner = found
    out = add((mul((const(g), where(c, inner[0], inner[1]))), shared))
    return out if cost(out) < cost(node) else None
