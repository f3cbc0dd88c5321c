"""Rules of floor division and modulo by an expression, such as a symbolic extent.

A divisor must be proved positive by its range or by the symbols in use (``0 <= j < n`` cannot hold unless n >= 1).
"""

from __future__ import annotations

from math import gcd

from idgraph.arith.expr import Expr, add, const, floordiv, from_terms, mod, mul
from idgraph.arith.fourier_motzkin import nonneg, positive
from idgraph.arith.interval import interval, multiple_of
from idgraph.arith.linear import (
    Poly,
    Terms,
    add_to,
    combine,
    content,
    divide_base,
    factors,
    is_exact_quotient,
    product_of,
    terms,
    times,
)
from idgraph.arith.rewriter import normal, rule


def _holds(node: Expr, d: Expr) -> bool:
    return positive(d, node.symbols)


def _nonzero(node: Expr, d: Expr) -> bool:
    lo, hi = interval(d)
    return (lo is not None and lo > 0) or (hi is not None and hi < 0) or _holds(node, d)


def _divide_by_terms(x: Expr, d: Expr) -> tuple[Terms, int, Terms, int] | None:
    """``x = d*Q + R`` by dividing terms: (Q, its constant, R, its constant), or None if Q is zero."""
    t, c = terms(x)
    td, cd = terms(d)
    if not td:
        return None
    lead = max(td, key=lambda b: (len(factors(b)), b.key))
    quotient: Terms = {}
    qc = 0
    rest, rc = dict(t), c
    for base in list(t):
        v = rest.get(base, 0)
        over = divide_base(base, factors(lead)) if v else None
        if over is None:
            continue
        if v % td[lead]:
            whole = _over_multiple(over, v, td[lead]) if len(td) == 1 and not cd else None
            if whole is not None:
                add_to(quotient, whole[0], 1)
                qc += whole[1]
                del rest[base]
            continue
        k = v // td[lead]
        part = times((td, cd), ({}, k) if over.op == "const" else ({over: k}, 0))
        if part is None:
            continue
        new = dict(rest)
        add_to(new, part[0], -1)
        if len(new) + (rc != part[1]) >= len(rest) + (rc != 0) and len(td) + (cd != 0) > 1:
            continue
        rest, rc = new, rc - part[1]
        if over.op == "const":
            qc += k
        else:
            add_to(quotient, {over: k}, 1)
    return (quotient, qc, rest, rc) if quotient or qc else None


def _over_multiple(base: Expr, v: int, d: int) -> Poly | None:
    """``v*base // d`` where a factor of the base is a multiple of what d has more than v."""
    k = abs(d) // gcd(v, d)
    f = next((f for f in factors(base) if multiple_of(f, k)), None)
    left = None if f is None else divide_base(base, (f,))
    return None if f is None or left is None else combine(((*terms(normal(floordiv(f, const(k)) * left)), v * k // d),))


@rule("floordiv-sym", "sym-div-period", "x // d", "k", "k*d <= x < (k+1)*d for k in -1, 0, 1")
def sym_div_period(node: Expr) -> Expr | None:
    k = _period(node)
    return None if k is None else const(k)


@rule("mod-sym", "sym-mod-period", "x % d", "x - k*d", "k*d <= x < (k+1)*d for k in -1, 0, 1")
def sym_mod_period(node: Expr) -> Expr | None:
    k = _period(node)
    return None if k is None else add((node.args[0], mul((const(-k), node.args[1]))))


def _period(node: Expr) -> int | None:
    x, d = node.args
    t, c = terms(x)
    td, cd = terms(d)
    for k in (0, 1, -1):
        low, lc = combine(((t, c, 1), (td, cd, -k)))
        if not nonneg(low, lc):
            continue
        high, hc = combine(((td, cd, k + 1), (t, c, -1)))
        if nonneg(high, hc - 1):
            return k
    return None


@rule("floordiv-sym", "sym-div-whole", "(d*x + y) // d", "x + y // d", "d is not 0")
def sym_div_exact(node: Expr) -> Expr | None:
    x, d = node.args
    found = _divide_by_terms(x, d)
    if found is None or not _nonzero(node, d):
        return None
    quotient, qc, rest, rc = found
    return add((from_terms(quotient, qc), floordiv(from_terms(rest, rc), d)))


@rule("mod-sym", "sym-mod-whole", "(d*x + y) % d, (v*(x % d) + y) % d", "y % d, (v*x + y) % d", "d is not 0")
def sym_mod_exact(node: Expr) -> Expr | None:
    x, d = node.args
    if not _nonzero(node, d):
        return None
    found = _divide_by_terms(x, d)
    if found is not None:
        return mod(from_terms(found[2], found[3]), d)
    t, c = terms(x)
    td, cd = terms(d)
    rest: Terms = {}
    for base, v in t.items():
        inner = next((f for f in factors(base) if f.op == "mod"), None)
        if inner is not None:
            left = divide_base(base, (inner,))
            over = const(1) if left is None else left
            period = times(terms(inner.args[1]), ({}, v) if over.op == "const" else ({over: v}, 0))
            if period is not None and _divides((td, cd), period):
                more = times(terms(inner.args[0]), ({}, v) if over.op == "const" else ({over: v}, 0))
                if more is not None:
                    add_to(rest, more[0], 1)
                    c += more[1]
                    continue
        add_to(rest, {base: v}, 1)
    out = from_terms(rest, c)
    return mod(out, d) if out != x else None


def _scaled_by_exact(node: Expr) -> tuple[int, Expr, Expr] | None:
    """``(k, k*x, k*d)`` where the divisor is a product with ``y//k`` in it, y a multiple of k, which d then holds."""
    x, d = node.args
    t, c = terms(d)
    if c or len(t) != 1:
        return None
    (base, v), parts = next(iter(t.items())), factors(next(iter(t)))
    q = next((f for f in parts if is_exact_quotient(f)), None)
    if q is None:
        return None
    left = divide_base(base, (q,))
    assert left is not None
    return q.args[1].value, mul((q.args[1], x)), mul((const(v), left, q.args[0]))


@rule("floordiv-sym", "sym-div-scale", "x // (d*(y//k))", "k*x // (d*y)", "y is a multiple of k")
def sym_div_scale(node: Expr) -> Expr | None:
    found = _scaled_by_exact(node)
    return None if found is None else floordiv(found[1], found[2])


@rule("mod-sym", "sym-mod-scale", "x % (d*(y//k))", "k*x % (d*y) // k", "y is a multiple of k")
def sym_mod_scale(node: Expr) -> Expr | None:
    found = _scaled_by_exact(node)
    return None if found is None else floordiv(mod(found[1], found[2]), const(found[0]))


def _divides(d: Poly, x: Poly) -> bool:
    """Whether the sum ``x`` is a product of ``d`` and one other term."""
    (td, cd), (tx, cx) = d, x
    if not td or len(td) != len(tx) or (cd == 0) != (cx == 0):
        return False
    if d == x:
        return True
    lead = max(td, key=lambda b: (len(factors(b)), b.key))
    for base, v in tx.items():
        over = divide_base(base, factors(lead))
        if over is not None and v % td[lead] == 0:
            k = v // td[lead]
            if times(d, ({}, k) if over.op == "const" else ({over: k}, 0)) == x:
                return True
    return False


def _proper_divisors(node: Expr) -> list[tuple[tuple[Expr, ...], int]]:
    """Proper divisors (atoms, coefficient) of a one-term divisor that some term of the numerator has as a factor."""
    x, d = node.args
    t, _ = terms(x)
    td, cd = terms(d)
    if cd or len(td) != 1:
        return []
    d_base, d_coef = next(iter(td.items()))
    pool = factors(d_base)
    out: dict[tuple[tuple[Expr, ...], int], None] = {}
    for base, v in t.items():
        left = list(factors(base))
        atoms: list[Expr] = []
        for f in pool:
            if f in left:
                left.remove(f)
                atoms.append(f)
        k = content({base: v}, d_coef)
        for chosen in (tuple(atoms), ()):
            if chosen or k > 1:
                out[(chosen, k)] = None
    return sorted(out, key=lambda p: (-len(p[0]), -p[1]))


def _split_by_gcd(node: Expr) -> tuple[Expr, Terms, Terms, int, Expr] | None:
    """``x = g*Y + S``, ``d = g*d'`` with 0 <= S < g, g > 0: (g, Y's terms, S, its constant, d')."""
    x, d = node.args
    t, c = terms(x)
    (d_base, d_coef) = next(iter(terms(d)[0].items())) if terms(d)[0] else (const(1), 1)
    for atoms, k in _proper_divisors(node):
        over = divide_base(d_base, atoms)
        if over is None:
            continue
        g = mul((const(k), product_of(atoms)))
        d_rest = mul((const(d_coef // k), over))
        big: Terms = {}
        small: Terms = {}
        for base, v in t.items():
            left = divide_base(base, atoms) if v % k == 0 else None
            if left is None:
                small[base] = v
            else:
                big[left] = big.get(left, 0) + v // k
        small_c = c
        if not atoms:
            big_c, small_c = divmod(c, k)
            if big_c:
                big[const(1)] = big.get(const(1), 0) + big_c
        if not big or not _holds(node, g) or not _holds(node, d_rest):
            continue
        if nonneg(small, small_c):
            room, rc = combine(((*terms(g), 1), (small, small_c, -1)))
            if nonneg(room, rc - 1):
                return g, big, small, small_c, d_rest
    return None


def _total(t: Terms) -> Expr:
    one = const(1)
    return from_terms({b: v for b, v in t.items() if b != one}, t.get(one, 0))


@rule("floordiv-sym", "sym-div-drop", "(g*x + S) // (g*d)", "x // d", "0 <= S < g, d > 0")
def sym_div_drop(node: Expr) -> Expr | None:
    found = _split_by_gcd(node)
    return None if found is None else floordiv(_total(found[1]), found[4])


@rule("mod-sym", "sym-mod-split", "(g*x + S) % (g*d)", "g*(x % d) + S", "0 <= S < g, d > 0")
def sym_mod_split(node: Expr) -> Expr | None:
    found = _split_by_gcd(node)
    if found is None:
        return None
    g, big, small, c, d_rest = found
    return add((mul((g, mod(_total(big), d_rest))), from_terms(small, c)))


@rule("floordiv-sym", "sym-div-div", "(x // e) // d", "x // (e*d)", "d > 0")
def sym_div_div(node: Expr) -> Expr | None:
    x, d = node.args
    if x.op == "floordiv" and _holds(node, d) and _nonzero(node, x.args[1]):
        return floordiv(x.args[0], mul((x.args[1], d)))
    return None


@rule("floordiv-sym", "sym-div-mod", "(x % (d*e)) // d", "(x // d) % e", "d, e > 0")
def sym_div_mod(node: Expr) -> Expr | None:
    x, d = node.args
    if x.op != "mod":
        return None
    td, cd = terms(d)
    te, ce = terms(x.args[1])
    if cd or ce or len(td) != 1 or len(te) != 1:
        return None
    (base, k), (whole, m) = next(iter(td.items())), next(iter(te.items()))
    over = divide_base(whole, factors(base))
    if over is None or m % k or not _holds(node, d):
        return None
    e = mul((const(m // k), over))
    return mod(floordiv(x.args[0], d), e) if _holds(node, e) else None


@rule("mod-sym", "sym-mod-zero", "0 % d", "0", "d is not 0")
def sym_mod_zero(node: Expr) -> Expr | None:
    x, d = node.args
    return x if x.op == "const" and x.value == 0 and _nonzero(node, d) else None
