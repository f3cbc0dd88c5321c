"""Rules of sums and products: multiplying out, and putting quotients and remainders back together."""

from __future__ import annotations

from idgraph.arith.expr import Expr, add, const, floordiv, from_terms, maximum, minimum, mod, mul, where
from idgraph.arith.linear import Poly, Terms, add_to, combine, divide_base, factors, product_of, terms, times
from idgraph.arith.mixed_radix import cost
from idgraph.arith.rewriter import normal, rule


@rule("written", "remainder-seen", "x - d*(x//d), d*(x//d) + x%d", "x % d, x", "d is not 0")
def remainder_seen(node: Expr) -> Expr | None:
    """Tried before the quotient is rewritten by the range of ``x``: that may hide that it is one of ``x``."""
    t, c = terms(node)
    for base, v in t.items():
        if base.op != "floordiv" or base.args[1].op != "const" or v % base.args[1].value:
            continue
        x, d = base.args
        k = v // d.value
        rest = mod(x, d)
        if rest.op == "mod" and t.get(rest) == k:
            return add((from_terms({b: w for b, w in t.items() if b != base and b != rest}, c), mul((const(k), x))))
        tx, cx = terms(x)
        if tx and all(t.get(b, 0) == -k * w for b, w in tx.items()):
            left = {b: w for b, w in t.items() if b != base and b not in tx}
            return add((from_terms(left, c + k * cx), mul((const(-k), rest))))
    return None


@rule("mul", "distribute", "x * (y + z)", "x*y + x*z")
def distribute(node: Expr) -> Expr | None:
    if not any(a.op == "add" for a in node.args):
        return None
    return from_terms(*terms(node))


def _scaled(poly: Poly, rest: Expr, k: int) -> Poly | None:
    """``k * rest * poly`` for a base ``rest`` (or the constant 1)."""
    return times(poly, ({}, k) if rest.op == "const" else ({rest: k}, 0))


def _cheaper(node: Expr, t: Terms, c: int) -> Expr | None:
    out = from_terms(t, c)
    return out if cost(out) < cost(node) else None


def _atoms(t: Terms, op: str) -> list[tuple[Expr, int, Expr, Expr]]:
    """(base, coefficient, atom, rest of the product) for each occurrence of an ``op`` atom."""
    out: list[tuple[Expr, int, Expr, Expr]] = []
    for base, v in t.items():
        if base.op == op:
            out.append((base, v, base, const(1)))
        elif base.op == "mul":
            for f in base.args:
                if f.op == op:
                    rest = divide_base(base, (f,))
                    out.append((base, v, f, const(1) if rest is None else rest))
    return out


@rule("add", "recombine", "d*(x//d) + x%d", "x")
def recombine(node: Expr) -> Expr | None:
    """Applies with a common factor too, and where the quotient has been simplified to something else."""
    t, c = terms(node)
    for base, v, atom, rest in _atoms(t, "mod"):
        x, d = atom.args
        quotient = terms(normal(floordiv(x, d)))
        back = times(terms(d), quotient)
        scaled = None if back is None else _scaled(back, rest, v)
        if scaled is None or not any(b in t for b in scaled[0]):
            continue
        whole = _scaled(terms(x), rest, v)
        if whole is None:
            continue
        out = dict(t)
        add_to(out, {base: v}, -1)
        add_to(out, scaled[0], -1)
        add_to(out, whole[0], 1)
        found = _cheaper(node, out, c - scaled[1] + whole[1])
        if found is not None:
            return found
    return None


@rule("add", "recombine-congruent", "d*(y//d) + x%d", "y", "x = y mod d")
def recombine_congruent(node: Expr) -> Expr | None:
    t, c = terms(node)
    mods = _atoms(t, "mod")
    if not mods:
        return None
    quotients = _atoms(t, "floordiv")
    for base, v, atom, rest in mods:
        x, d = atom.args
        if d.op != "const":
            continue
        for qbase, w, q, qrest in quotients:
            if q.args[1] is not d or w != v * d.value or qrest != rest:
                continue
            (tx, cx), (ty, cy) = terms(x), terms(q.args[0])
            if (cx - cy) % d.value or any((tx.get(b, 0) - ty.get(b, 0)) % d.value for b in {**tx, **ty}):
                continue
            whole = _scaled((ty, cy), rest, v)
            if whole is None:
                continue
            out = dict(t)
            add_to(out, {base: v, qbase: w}, -1)
            add_to(out, whole[0], 1)
            found = _cheaper(node, out, c + whole[1])
            if found is not None:
                return found
    return None


@rule("add", "digits", "d*((x//d + y) % e) + x%d", "(x + d*y) % (d*e)", "d, e > 0")
def digits(node: Expr) -> Expr | None:
    t, c = terms(node)
    mods = _atoms(t, "mod")
    if len(mods) < 2:
        return None
    for low_base, v, low, rest in mods:
        d = low.args[1]
        td, cd = terms(d)
        if len(td) + (cd != 0) != 1:
            continue
        d_base, d_coef = next(iter(td.items())) if td else (const(1), cd)
        for high_base, w, high, high_rest in mods:
            if high is low or w != v * d_coef or not _is_product(high_rest, rest, d_base):
                continue
            z, e = high.args
            if not (_known_positive(d) and _known_positive(e)):
                continue
            inner = _lower_digit(d, z, e, low)
            if inner is None:
                continue
            merged = normal(mod(inner, mul((d, e))))
            scaled = _scaled(terms(merged), rest, v)
            if scaled is None:
                continue
            out = dict(t)
            add_to(out, {low_base: v, high_base: w}, -1)
            add_to(out, scaled[0], 1)
            found = _cheaper(node, out, c + scaled[1])
            if found is not None:
                return found
    return None


def _lower_digit(d: Expr, z: Expr, e: Expr, low: Expr) -> Expr | None:
    """``d*z + low`` if ``z`` absorbs ``low``; ``z`` counts modulo ``e``, so a quotient's sign may be flipped."""
    inner = normal(add((mul((d, z)), low)))
    if low not in terms(inner)[0]:
        return inner
    if e.op != "const":
        return None
    t, c = terms(z)
    turned = {b: v - e.value if b.op == "floordiv" and v > 0 else v for b, v in t.items()}
    if turned == t:
        return None
    inner = normal(add((mul((d, from_terms(turned, c))), low)))
    return None if low in terms(inner)[0] else inner


def _known_positive(d: Expr) -> bool:
    lo = d.value if d.op == "const" else d.range.lo
    return lo is not None and lo > 0


def _is_product(whole: Expr, a: Expr, b: Expr) -> bool:
    parts = [f for x in (a, b) if x.op != "const" for f in factors(x)]
    return product_of(parts) == whole


@rule("add mul", "quotient-out", "d*(x//d)", "x - x%d", "it is cheaper")
def quotient_out(node: Expr) -> Expr | None:
    """Exact quotients, and ``x - d*(x//d) -> x % d``."""
    t, c = terms(node)
    for base, v, atom, rest in _atoms(t, "floordiv") if node.op == "add" or len(t) == 1 else ():
        found = _quotient_out(t, c, base, v, atom, rest, cost(node))
        if found is not None:
            return found
    return None


def _quotient_out(t: Terms, c: int, base: Expr, v: int, atom: Expr, rest: Expr, bound: int) -> Expr | None:
    x, d = atom.args
    if d.op == "const":
        if v % d.value:
            return None
        k, outer = v // d.value, rest
    else:
        td, cd = terms(d)
        if cd or len(td) != 1 or rest.op == "const":
            return None
        d_base, d_coef = next(iter(td.items()))
        left = divide_base(rest, factors(d_base))
        if left is None or v % d_coef:
            return None
        k, outer = v // d_coef, left
    remainder = normal(mod(x, d))
    exact = _scaled(combine(((*terms(x), 1), (*terms(remainder), -1))), outer, k)
    if exact is None:
        return None
    out = dict(t)
    add_to(out, {base: v}, -1)
    add_to(out, exact[0], 1)
    found = from_terms(out, c + exact[1])
    return found if cost(found) < bound else None


@rule("add", "halves", "x//2 + (x + 1)//2", "x")
def halves(node: Expr) -> Expr | None:
    t, c = terms(node)
    for base, v in t.items():
        if base.op != "floordiv" or base.args[1].op != "const" or base.args[1].value != 2:
            continue
        upper = normal(floordiv(base.args[0] + 1, base.args[1]))
        if upper != base and t.get(upper) == v:
            rest = {b: k for b, k in t.items() if b is not base and b != upper}
            return add((from_terms(rest, c), mul((const(v), base.args[0]))))
    return None


@rule("add", "select-merge", "where(p, x, y) + where(p, z, w)", "where(p, x + z, y + w)", "it is cheaper")
def select_merge(node: Expr) -> Expr | None:
    t, c = terms(node)
    picks = [b for b in t if b.op == "where"]
    for n, a in enumerate(picks):
        for b in picks[n + 1 :]:
            if a.args[0] == b.args[0]:
                k, m = const(t[a]), const(t[b])
                merged = where(
                    a.args[0],
                    add((mul((k, a.args[1])), mul((m, b.args[1])))),
                    add((mul((k, a.args[2])), mul((m, b.args[2])))),
                )
                rest = from_terms({x: v for x, v in t.items() if x is not a and x is not b}, c)
                out = add((normal(merged), rest))
                if cost(out) < cost(node):
                    return out
    return None


@rule("add", "operand-in", "where(p, x, y) + z, min(x, y) + z", "where(p, x + z, y + z), ...", "it is cheaper")
def operand_in(node: Expr) -> Expr | None:
    t, c = terms(node)
    for base, v in t.items():
        if base.op not in ("where", "min", "max"):
            continue
        rest = from_terms({x: k for x, k in t.items() if x is not base}, c)
        options = base.args[1:] if base.op == "where" else base.args
        inner = [add((mul((const(v), a)), rest)) for a in options]
        if base.op == "where":
            out = where(base.args[0], inner[0], inner[1])
        else:
            out = minimum(*inner) if (base.op == "min") == (v > 0) else maximum(*inner)
        if cost(out) <= cost(node) + 1:  # the new operands may still cancel
            out = normal(out)
        if cost(out) < cost(node):
            return out
    return None


@rule("add", "min-plus-max", "min(x, y) + max(x, y)", "x + y")
def min_plus_max(node: Expr) -> Expr | None:
    t, c = terms(node)
    for base, v in t.items():
        if base.op == "min" and len(base.args) == 2:
            other = maximum(*base.args)
            if t.get(other) == v:
                out = {x: k for x, k in t.items() if x is not base and x != other}
                return add((from_terms(out, c), *(mul((const(v), a)) for a in base.args)))
    return None


@rule("add", "complement", "(x + 1) % 2", "1 - x % 2", "it is cheaper with the other terms")
def complement(node: Expr) -> Expr | None:
    t, c = terms(node)
    for base, v in t.items():
        if base.op != "mod" or base.args[1].op != "const" or base.args[1].value != 2:
            continue
        tx, cx = terms(base.args[0])
        flipped = terms(normal(mod(from_terms(tx, cx + 1), base.args[1])))
        out = dict(t)
        add_to(out, {base: v}, -1)
        add_to(out, flipped[0], -v)
        turned = from_terms(out, c + v - v * flipped[1])
        options = [turned, *(attempt(turned) for attempt in (recombine, recombine_congruent, digits, quotient_out))]
        for found in options:
            if found is not None and cost(found) < cost(node):
                return found
    return None
