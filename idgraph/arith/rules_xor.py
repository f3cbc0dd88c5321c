"""Rules of exclusive or: numbers that share no bit are added, digits are gathered, layouts linear over bits join.

Sums, quotients and remainders that are linear over the bits of numbers; tried before the rules of division.
"""

from __future__ import annotations

from idgraph.arith.expr import ZERO, Expr, add, compare, const, floordiv, from_terms, mod, mul, xor
from idgraph.arith.interval import interval
from idgraph.arith.known_bits import diagonals, disjoint, from_diagonals, may_be_set, power_of_two
from idgraph.arith.linear import minus, terms
from idgraph.arith.mixed_radix import cost
from idgraph.arith.rewriter import normal, rule


def less(a: Expr, b: Expr) -> bool:
    """Whether ``a`` is cheaper, with no more quotients and remainders."""
    return cost(a) < cost(b) and a.divmods <= b.divmods


@rule(
    "floordiv mod add", "bit-digits", "(x - 2*(x//4)) // 2 % 2", "x // 2 % 2", "a sum of weighted bits; it is cheaper"
)
def bit_digits(node: Expr) -> Expr | None:
    """Bits of one number stay its digits, wherever a sum puts them."""
    if node.op == "add":
        t, _ = terms(node)
    elif node.args[0].op == "add" and power_of_two(node.args[1].value):
        t, _ = terms(node.args[0])
    else:
        return None
    if sum(b.op in ("floordiv", "mod") and b.args[1].op == "const" and power_of_two(b.args[1].value) for b in t) < 2:
        return None
    found = diagonals(node)
    made = None if found is None else from_diagonals(found)
    if made is None or made == node or cost(made) > cost(node) + 2:
        return None
    made = normal(made)
    return made if less(made, node) else None


_MAX_OPERANDS = 24


@rule("xor", "xor-not", "x ^ -1", "-x - 1")
def xor_not(node: Expr) -> Expr | None:
    last = node.args[-1]
    if last.op == "const" and last.value < 0:
        rest = xor(*node.args[:-1], -1 - last.value)
        return add((mul((const(-1), rest)), const(-1)))
    return None


@rule("xor", "xor-split", "(2**k*x + y) ^ (2**k*z + w)", "2**k*(x ^ z) + (y ^ w)", "0 <= y, w < 2**k; it is cheaper")
def xor_split(node: Expr) -> Expr | None:
    for g in sorted(_powers(node.args)):
        high: list[Expr] = []
        low: list[Expr] = []
        for a in node.args:
            found = _bits(a, g)
            if found is None:
                break
            high.append(found[0])
            low.append(found[1])
        else:
            if all(h is ZERO for h in high):
                continue
            out = add((mul((const(g), normal(xor(*high)))), normal(xor(*low))))
            if cost(out) < cost(node):
                return out
    return None


def _powers(args: tuple[Expr, ...]) -> set[int]:
    out: set[int] = set()
    for a in args:
        t, c = terms(a)
        values = [*t.values(), *([c] if c else [])]
        out.update(p for v in values if (p := v & -v) > 1)
        _, hi = interval(a)
        if hi is not None and hi > 0:
            out.add(1 << hi.bit_length())
    return out


def _bits(a: Expr, g: int) -> tuple[Expr, Expr] | None:
    """``a = g*high + low`` with 0 <= low < g, from its terms."""
    t, c = terms(a)
    high = {b: v // g for b, v in t.items() if v % g == 0}
    small = {b: v for b, v in t.items() if v % g}
    k = c // g * g
    low = from_terms(small, c - k)
    lo, hi = interval(low)
    if lo is None or hi is None or lo // g != hi // g:
        return None
    shift = lo // g
    return from_terms(high, k // g + shift), add((low, const(-shift * g)))


@rule("xor", "xor-mask", "x ^ (2**k - 1)", "2**k - 1 - x", "0 <= x < 2**k")
def xor_mask(node: Expr) -> Expr | None:
    last = node.args[-1]
    if len(node.args) != 2 or last.op != "const" or last.value & (last.value + 1):
        return None
    lo, hi = interval(node.args[0])
    if lo is None or hi is None or lo < 0 or hi > last.value:
        return None
    return add((last, mul((const(-1), node.args[0]))))


@rule("xor", "xor-add", "x ^ y", "x + y", "x and y never have a 1 at the same bit")
def xor_add(node: Expr) -> Expr | None:
    return add(node.args) if disjoint(node.args) else None


def _mixed(joined: Expr) -> bool:
    """Whether a sum of shifted numbers became a multiple that hides whose bits are where, as 8*x + x is 9*x."""
    return any(not power_of_two(v) for v in terms(joined)[0].values())


@rule("xor", "xor-gather", "(x % 2**k) ^ (y % 2**k)", "(x ^ y) % 2**k", "also //; it is cheaper")
def xor_gather(node: Expr) -> Expr | None:
    groups: dict[tuple[str, int], list[Expr]] = {}
    for a in node.args:
        if a.op in ("mod", "floordiv") and a.args[1].op == "const" and power_of_two(a.args[1].value):
            groups.setdefault((a.op, a.args[1].value), []).append(a)
    for (op, d), same in groups.items():
        if len(same) > 1:
            inner = normal(xor(*(a.args[0] for a in same)))
            whole = mod(inner, const(d)) if op == "mod" else floordiv(inner, const(d))
            out = xor(whole, *(a for a in node.args if a not in same))
            if less(out, node):
                return out
    return None


@rule(
    "xor",
    "xor-linear",
    "(x % 2) ^ (x % 4 // 2 * 3)",
    "(x % 4) ^ (x // 2 % 2)",
    "bits taken together by how far they move; it is cheaper",
)
def xor_linear(node: Expr) -> Expr | None:
    if len(node.args) > _MAX_OPERANDS:
        return None
    found = diagonals(node)
    made = None if found is None else from_diagonals(found)
    if made is None or made == node:
        return None
    made = normal(made)
    return made if less(made, node) else None


@rule("add", "xor-carry", "x + (y ^ z)", "(x + y) ^ z", "x has no 1 where y or z may have one; it is cheaper")
def xor_carry(node: Expr) -> Expr | None:
    """Applies to ``2**j * (y ^ z)`` and ``(y ^ z) % 2**k`` too: a swizzle of low bits beside its high ones."""
    t, c = terms(node)
    for base, v in t.items():
        parts = _xored(base)
        if not parts or not power_of_two(v):
            continue
        rest = from_terms({b: w for b, w in t.items() if b is not base}, c)
        taken = may_be_set(rest)
        parts = [mul((const(v), p)) for p in parts]
        if any(taken & may_be_set(p) for p in parts):
            continue
        for p in parts:
            joined = normal(add((rest, p)))
            if cost(joined) > cost(node) or _mixed(joined):
                continue
            out = normal(xor(joined, *(q for q in parts if q is not p)))
            if less(out, node):
                return out
    return None


def _xored(base: Expr) -> list[Expr]:
    """The operands of an xor, or of the low bits of one."""
    if base.op == "xor":
        return list(base.args)
    if (
        base.op == "mod"
        and base.args[0].op == "xor"
        and base.args[1].op == "const"
        and power_of_two(base.args[1].value)
    ):
        return [normal(mod(a, base.args[1])) for a in base.args[0].args]
    return []


@rule("eq ne", "equal-xor", "x ^ y == z", "x == y ^ z", "one side is an xor, it is cheaper")
def equal_xor(node: Expr) -> Expr | None:
    t, c = minus(node.args[0], node.args[1])
    for base, v in t.items():
        if base.op != "xor" or abs(v) != 1:
            continue
        other = from_terms({b: -w * v for b, w in t.items() if b is not base}, -c * v)
        for a in base.args:
            moved = normal(xor(other, *(b for b in base.args if b is not a)))
            out = normal(compare("eq" if node.op == "eq" else "ne", a, moved))
            if less(out, node):
                return out
    return None
