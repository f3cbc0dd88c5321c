"""Rules of floor division and modulo by a positive constant.

Notation: x, y, z are sums, c, d, e, g constants, S a part of a sum with a known range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import gcd

from idgraph.arith.expr import Expr, add, const, floordiv, from_terms, maximum, minimum, mod, mul, where, xor
from idgraph.arith.fourier_motzkin import positive
from idgraph.arith.interval import congruence, interval
from idgraph.arith.linear import Terms, add_to, content, sum_interval, terms
from idgraph.arith.mixed_radix import cost
from idgraph.arith.rewriter import normal, rule

MAX_VALUES = 16


def _truncate(v: int, d: int) -> tuple[int, int]:
    """Quotient towards zero and remainder with the sign of ``v``: the coefficients that keep ranges tight."""
    return (v // d, v % d) if v >= 0 else (-(-v // d), -(-v % d))


@rule("negative", "negative-divisor", "x // -d, x % -d", "-x // d, -(-x % d)")
def negative_divisor(node: Expr) -> Expr | None:
    x, d = node.args
    minus_x = mul((const(-1), x))
    if node.op == "floordiv":
        return floordiv(minus_x, const(-d.value))
    return mul((const(-1), mod(minus_x, const(-d.value))))


# ---- floor division ------------------------------------------------------------------------------------------
@rule("floordiv", "div-whole", "(d*x + y) // d", "x + y // d")
def div_exact(node: Expr) -> Expr | None:
    d = node.args[1].value
    t, c = terms(node.args[0])
    out: Terms = {}
    rest: Terms = {}
    for base, v in t.items():
        if -d < v < d:
            rest[base] = v
            continue
        q, r = _truncate(v, d)
        out[base] = q
        if r:
            rest[base] = r
    q = c // d
    if not out and not q:
        return None
    return add((from_terms(out, q), floordiv(from_terms(rest, c - q * d), node.args[1])))


@rule("floordiv", "div-common", "(g*x + c) // (g*d)", "(x + c//g) // d")
def div_common(node: Expr) -> Expr | None:
    d = node.args[1].value
    t, c = terms(node.args[0])
    g = content(t, d)
    if g == 1:
        return None
    return floordiv(from_terms({b: v // g for b, v in t.items()}, c // g), const(d // g))


def splits(t: Terms, c: int, d: int) -> Iterator[tuple[int, Expr, Terms, int]]:
    """Ways to see the sum as A + S with A = 0 mod g, g | d, and S (constant included) within one period of g.

    Yields (g, A + k*g as an expression, terms of S, constant of S less k*g), S then lying in [0, g).
    """
    info: list[tuple[int, Expr, int, int, int | None, int | None]] = []
    for base, v in t.items():
        m, r = congruence(base)
        lo, hi = interval(base)
        if v < 0:
            lo, hi = hi, lo
        low, high = None if lo is None else v * lo, None if hi is None else v * hi
        info.append((gcd(v * m, d), base, v, v * r, low, high))
    for g, fixed, lo, hi in _periods(info, c):
        if lo is None or hi is None or lo // g != hi // g:
            continue
        k = lo // g
        small = {base: v for step, base, v, _, _, _ in info if step % g}
        if small or c + fixed != k * g:
            big = {base: v for step, base, v, _, _, _ in info if step % g == 0}
            yield g, from_terms(big, k * g - fixed), small, c + fixed - k * g


def _periods(
    info: list[tuple[int, Expr, int, int, int | None, int | None]], c: int
) -> Iterator[tuple[int, int, int | None, int | None]]:
    """For each step g: what the terms with steps of g leave, and bounds of the others with the constant and that.

    Bounds are summed up from the smallest step on, once for all steps that the larger ones are multiples of.
    """
    rest: list[tuple[int | None, int | None]] = [(c, c)]  # of the n terms with the least steps
    by_step = sorted(info, key=lambda row: row[0])
    for _, _, _, _, low, high in by_step:
        lo, hi = rest[-1]
        rest.append(
            (None if lo is None or low is None else lo + low, None if hi is None or high is None else hi + high)
        )
    common = fixed = 0
    for n in range(len(by_step) - 1, -1, -1):
        g = by_step[n][0]
        common, fixed = gcd(common, g), fixed + by_step[n][3]
        if g == 1:
            return
        if n and by_step[n - 1][0] == g:
            continue
        if common == g:
            lo, hi = rest[n]
            yield g, fixed, None if lo is None else lo + fixed, None if hi is None else hi + fixed
            continue
        lone = sum(row[3] for row in info if row[0] % g == 0)
        lo, hi = sum_interval({row[1]: row[2] for row in info if row[0] % g}, c + lone)
        yield g, lone, lo, hi


@rule("floordiv", "div-drop", "(x + S) // d", "x // d", "x = 0 mod g, g | d, 0 <= S < g")
def div_drop(node: Expr) -> Expr | None:
    t, c = terms(node.args[0])
    for _, big, _, _ in splits(t, c, node.args[1].value):
        return floordiv(big, node.args[1])
    return None


@rule("floordiv", "div-div", "(x//e + c) // d", "(x + c*e) // (e*d)", "e a constant, or c = 0 and e > 0")
def div_div(node: Expr) -> Expr | None:
    t, c = terms(node.args[0])
    if len(t) != 1:
        return None
    base, v = next(iter(t.items()))
    if v != 1 or base.op != "floordiv":
        return None
    x, e = base.args
    if e.op == "const":
        return floordiv(add((x, const(c * e.value))), const(e.value * node.args[1].value))
    if c == 0 and (interval(e)[0] or 0) > 0:
        return floordiv(x, mul((e, node.args[1])))
    return None


@rule("floordiv", "div-merge", "(x//e + y) // d", "(x + e*y) // (e*d)", "it is cheaper")
def div_merge(node: Expr) -> Expr | None:
    found = _lifted(node)
    if found is None:
        return None
    x, e = found
    out = normal(floordiv(x, const(e * node.args[1].value)))
    return out if cost(out) < cost(node) else None


@rule("mod", "mod-lift", "(x//e + y) % d", "((x + e*y) % (e*d)) // e", "the inner modulo simplifies: it is cheaper")
def mod_lift(node: Expr) -> Expr | None:
    found = _lifted(node)
    if found is None:
        return None
    x, e = found
    inner = normal(mod(x, const(e * node.args[1].value)))
    if inner.op == "mod":
        return None
    out = normal(floordiv(inner, const(e)))
    return out if cost(out) < cost(node) else None


def _lifted(node: Expr) -> tuple[Expr, int] | None:
    """``x//e + y`` as (x + e*y, e), for its only quotient."""
    t, c = terms(node.args[0])
    if len(t) < 2:
        return None
    quotients = [b for b, v in t.items() if v == 1 and b.op == "floordiv" and b.args[1].op == "const"]
    if len(quotients) != 1:
        return None
    q = quotients[0]
    e = q.args[1].value
    if e < 0:
        return None
    rest = from_terms({b: v * e for b, v in t.items() if b is not q}, c * e)
    return add((q.args[0], rest)), e


@rule("floordiv", "div-mod", "(x % (d*e)) // d", "(x//d) % e", "e > 0")
def div_mod(node: Expr) -> Expr | None:
    x, d = node.args
    if x.op != "mod":
        return None
    t, c = terms(x.args[1])
    if c % d.value or content(t, d.value) != d.value or not positive(x.args[1], node.symbols):
        return None
    return mod(floordiv(x.args[0], d), from_terms({b: v // d.value for b, v in t.items()}, c // d.value))


@rule("floordiv", "div-inner", "(g*x + y) // (g*d)", "(x + y//g) // d", "y // g is simple: it is cheaper")
def div_inner(node: Expr) -> Expr | None:
    d = node.args[1].value
    t, c = terms(node.args[0])
    if c == 0 and len(t) == 1:
        return None
    for g in sorted({gcd(v, d) for v in (*t.values(), c)} - {1, d, 0}, reverse=True):
        small = {b: v for b, v in t.items() if v % g}
        if not small or (len(small) == len(t) and c % g):
            continue
        inner = normal(floordiv(from_terms(small, c % g), const(g)))
        if cost(inner) > cost(from_terms(small, c % g)):
            continue
        rest = from_terms({b: v // g for b, v in t.items() if v % g == 0}, c // g)
        out = normal(floordiv(add((rest, inner)), const(d // g)))
        if cost(out) < cost(node):
            return out
    return None


@rule("floordiv", "div-threshold", "(x + c) // d", "x//e + q", "two values, q and q + 1 from x = e on; 0 <= x < 2*e")
def div_threshold(node: Expr) -> Expr | None:
    d = node.args[1].value
    t, c = terms(node.args[0])
    if c == 0:
        return None
    lo, hi = sum_interval(t, 0)
    if lo is None or hi is None or lo < 0 or (hi + c) // d != (lo + c) // d + 1:
        return None
    q = (lo + c) // d
    e = d * (q + 1) - c
    if e <= 0 or hi >= 2 * e:
        return None
    out = add((floordiv(from_terms(t, 0), const(e)), const(q)))
    return out if cost(out) < cost(node) else None


@rule("floordiv", "div-negate", "-x // d", "-((x + d - 1) // d)", "most terms of x are subtracted")
def div_negate(node: Expr) -> Expr | None:
    t, c = terms(node.args[0])
    down = sum(v < 0 for v in t.values())
    if 2 * down <= len(t):
        return None
    d = node.args[1].value
    return mul((const(-1), floordiv(from_terms({b: -v for b, v in t.items()}, d - 1 - c), node.args[1])))


# ---- modulo --------------------------------------------------------------------------------------------------
@rule("mod", "mod-window", "x % d", "x - q*d", "q*d <= x < q*d + d by range")
def mod_window(node: Expr) -> Expr | None:
    d = node.args[1].value
    x = node.args[0]
    lo, hi = interval(x)
    if lo is not None and hi is not None and lo // d == hi // d:
        return add((x, const(-(lo // d) * d)))
    return None


@rule("mod", "mod-reduce", "(d*x + y) % d, (v*(x % e) + y) % d", "y % d, (v*x + y) % d", "d | v*e; values known mod d")
def mod_reduce(node: Expr) -> Expr | None:
    d = node.args[1].value
    t, c = terms(node.args[0])
    rest: Terms = {}
    constant = c
    for base, v in t.items():
        m, r = congruence(base)
        if v * m % d == 0:
            constant += v * r
            continue
        if base.op == "mod" and base.args[1].op == "const" and v * base.args[1].value % d == 0:
            more, k = terms(base.args[0])
            add_to(rest, more, v)
            constant += v * k
            continue
        add_to(rest, {base: v}, 1)
    out = from_terms({b: r for b, v in rest.items() if (r := _truncate(v, d)[1])}, constant % d)
    return mod(out, node.args[1]) if out != node.args[0] else None


@rule("mod", "mod-common", "(g*x + c) % (g*d)", "g*((x + c//g) % d) + c%g")
def mod_common(node: Expr) -> Expr | None:
    d = node.args[1].value
    t, c = terms(node.args[0])
    g = content(t, d)
    if g == 1:
        return None
    inner = mod(from_terms({b: v // g for b, v in t.items()}, c // g), const(d // g))
    return add((mul((const(g), inner)), const(c % g)))


@rule("mod", "mod-split", "(x + S) % d", "x % d + S", "x = 0 mod g, g | d, 0 <= S < g")
def mod_split(node: Expr) -> Expr | None:
    t, c = terms(node.args[0])
    for _, big, small, k in splits(t, c, node.args[1].value):
        return add((mod(big, node.args[1]), from_terms(small, k)))
    return None


@rule("mod", "mod-residue", "(v*x + y) % d", "(r*x + y) % d", "r = v mod d; -1 for d - 1, else 0 <= r")
def mod_residue(node: Expr) -> Expr | None:
    d = node.args[1].value
    t, c = terms(node.args[0])
    out: Terms = {}
    for base, v in t.items():
        r = v % d
        out[base] = -1 if r == d - 1 and d > 2 else r
    return mod(from_terms(out, c), node.args[1]) if out != t else None


# ---- both ----------------------------------------------------------------------------------------------------
@rule("floordiv mod", "few-values", "f(x)", "a*x + b", "x takes few values and f is affine on them")
def few_values(node: Expr) -> Expr | None:
    t, c = terms(node.args[0])
    if len(t) != 1:
        return None
    base, v = next(iter(t.items()))
    lo, hi = interval(base)
    if lo is None or hi is None:
        return None
    m = congruence(base)[0] or 1
    count = (hi - lo) // m + 1
    if not 2 <= count <= MAX_VALUES:
        return None
    d = node.args[1].value
    values = [(v * x + c) // d if node.op == "floordiv" else (v * x + c) % d for x in range(lo, hi + 1, m)]
    step = values[1] - values[0]
    if step % m or any(b - a != step for a, b in pairwise(values)):
        return None
    if node.op == "mod" and abs(step) > abs(v) * m:  # b % 16 -> -15*b would hide a digit
        return None
    out = from_terms({base: step // m}, values[0] - step // m * lo)
    return out if cost(out) <= cost(node) else None


@rule(
    "floordiv mod",
    "digit-out",
    "(a*x + b*(x//e) + y) // d",
    "x//e*((a*e + b)//d) + (a*(x%e) + y) // d",
    "d | a*e + b: it is cheaper",
)
def digit_out(node: Expr) -> Expr | None:
    d = node.args[1].value
    t, c = terms(node.args[0])
    for q, b in t.items():
        if q.op != "floordiv" or q.args[1].op != "const" or (e := q.args[1].value) <= 0:
            continue
        tx, cx = terms(q.args[0])
        first = next(iter(tx))
        a, uneven = divmod(t.get(first, 0), tx[first])
        if not a or uneven or (a * e + b) % d or any(t.get(y, 0) != a * v for y, v in tx.items()):
            continue
        rest = {y: v for y, v in t.items() if y is not q and y not in tx}
        inside = add((from_terms(rest, c - a * cx), mul((const(a), mod(*q.args)))))
        out = mod(inside, node.args[1])
        if node.op == "floordiv":
            out = add((mul((const((a * e + b) // d), q)), floordiv(inside, node.args[1])))
        out = normal(out)
        if cost(out) < cost(node):
            return out
    return None


def _select_operand(node: Expr) -> tuple[Expr, Expr, Callable[[Expr], Expr]] | None:
    """The selected operand of a sum with one ``where``/``min``/``max`` of coefficient 1, and the context around it."""
    t, c = terms(node.args[0])
    for base, v in t.items():
        if base.op in ("where", "min", "max"):
            rest = from_terms({b: k for b, k in t.items() if b is not base}, c)

            def around(x: Expr, v: int = v, rest: Expr = rest) -> Expr:
                x = add((mul((const(v), x)), rest))
                return normal(floordiv(x, node.args[1]) if node.op == "floordiv" else mod(x, node.args[1]))

            return base, const(v), around
    return None


@rule("floordiv mod", "select-out", "f(where(p, x, y))", "where(p, f(x), f(y))", "it is cheaper")
def select_out(node: Expr) -> Expr | None:
    found = _select_operand(node)
    if found is None or found[0].op != "where":
        return None
    base, _, around = found
    c, a, b = base.args
    out = where(c, around(a), around(b))
    return out if cost(out) < cost(node) else None


@rule("floordiv", "extremum-out", "min(x, y) // d", "min(x//d, y//d)", "it is cheaper; max for a negative coefficient")
def extremum_out(node: Expr) -> Expr | None:
    found = _select_operand(node)
    if found is None or found[0].op == "where":
        return None
    base, v, around = found
    op = base.op if v.value > 0 else ("max" if base.op == "min" else "min")
    parts = [around(a) for a in base.args]
    out = parts[0]
    for p in parts[1:]:
        out = minimum(out, p) if op == "min" else maximum(out, p)
    out = normal(out)
    return out if cost(out) < cost(node) else None


@rule("floordiv mod", "xor-bits", "(x ^ y) // 2**k, (x ^ y) % 2**k", "x//2**k ^ y//2**k, ...", "it is cheaper")
def xor_bits(node: Expr) -> Expr | None:
    x, d = node.args
    if x.op != "xor" or d.value & (d.value - 1):
        return None
    divide = floordiv if node.op == "floordiv" else mod
    out = normal(xor(*(divide(a, d) for a in x.args)))
    return out if (cost(out), out.divmods) <= (cost(node), node.divmods) else None
