"""Bits of integers: which may be set, and expressions as maps linear over bits (xor of shifted digits).

Integers are two's complement of unbounded width, so a set of bits is an integer too: a negative one has all high bits.

Quotients and remainders whose numerator known facts keep within one period: ``x // d`` is a number, ``x % d`` a sum.

Symbols' own ranges are used by the rules of division; here a fact about a whole sum is (``2*i + j < 3``), which bounds
no symbol of it further.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd
from typing import NamedTuple

from idgraph.arith.expr import Expr, const, floordiv, from_terms, mod, mul, postorder, xor
from idgraph.arith.fourier_motzkin import nonneg
from idgraph.arith.interval import congruence, interval
from idgraph.arith.linear import Terms, add_to, combine, sum_interval, terms

_DEPTH = 8
_MAX_RUNS = 32
_MAX_BITS = 64  # of a number that is looked at bit by bit

Source = tuple[Expr, int]  # a number, and how far its bits are shifted up (negative: down)
Diagonals = dict[Source, int]  # for each source the bits of the number that take part


def power_of_two(v: int) -> bool:
    """Whether ``v`` is 1, 2, 4, ..."""
    return v > 0 and v & (v - 1) == 0


def may_be_set(e: Expr, depth: int = _DEPTH) -> int:
    """The bits that are 1 in some value of ``e``; sound, so a bit that is left out is 0 everywhere."""
    known = e.set_bits
    if known is None:
        known = e.set_bits = {}
    found = known.get(depth)
    if found is None:  # by depth, so that no answer depends on what was asked before
        found = known[depth] = _may_be_set(e, depth)
    return found


def _may_be_set(e: Expr, depth: int) -> int:
    lo, hi = interval(e)
    top = -1 if lo is None or lo < 0 or hi is None else (1 << hi.bit_length()) - 1
    m, r = congruence(e)
    if m == 0:
        return r
    low = m & -m
    top &= -low | (r % low)
    return top & _by_operation(e, depth) if depth and e.args else top


def _by_operation(e: Expr, depth: int) -> int:
    match e.op:
        case "mod" if e.args[1].op == "const" and power_of_two(e.args[1].value):
            return may_be_set(e.args[0], depth - 1) & (e.args[1].value - 1)
        case "floordiv" if e.args[1].op == "const" and power_of_two(e.args[1].value):
            return may_be_set(e.args[0], depth - 1) >> (e.args[1].value.bit_length() - 1)
        case "xor":
            return _union(e.args, depth)
        case "where":
            return _union(e.args[1:], depth)
        case "min" | "max":
            return _union(e.args, depth)
        case "mul" if e.base is not None and e.coef > 0:
            shift = (e.coef & -e.coef).bit_length() - 1
            rest = e.coef >> shift
            return may_be_set(e.base, depth - 1) << shift if rest == 1 else -1 << shift
        case "add":
            return _of_sum(e, depth)
        case _:
            return -1


def _union(parts: tuple[Expr, ...], depth: int) -> int:
    out = 0
    for a in parts:
        out |= may_be_set(a, depth - 1)
    return out


def _of_sum(e: Expr, depth: int) -> int:
    """Terms that share no bit keep their bits; ``x - x % 2**k`` has none of the low ones."""
    out = 0
    for a in e.args:
        bits = may_be_set(a, depth - 1)
        if bits & out:
            digits = _of_digits(e, 0, depth)
            return _cleared(e) if digits is None else _all_of(digits)
        out |= bits
    return out


def _all_of(found: Diagonals) -> int:
    out = 0
    for (_, s), bits in found.items():
        out |= bits << s if s >= 0 else bits >> -s
    return out


def _cleared(e: Expr) -> int:
    t, c = terms(e)
    for base, v in t.items():
        if base.op == "mod" and base.args[1].op == "const" and power_of_two(base.args[1].value):
            n = base.args[1].value
            tx, cx = terms(base.args[0])
            rest = {b: w for b, w in t.items() if b is not base}
            if (c + v * cx) % n == 0 and all((rest.get(b, 0) + v * tx.get(b, 0)) % n == 0 for b in {*rest, *tx}):
                return -n
    return -1


def disjoint(parts: tuple[Expr, ...], depth: int = _DEPTH) -> bool:
    """Whether no two of the numbers ever have a 1 at the same bit, so that their sum is their xor."""
    taken = 0
    for a in parts:
        bits = may_be_set(a, depth)
        if bits & taken:
            return False
        taken |= bits
    return True


# ---- maps linear over bits -------------------------------------------------------------------------------------
def diagonals(e: Expr, depth: int = _DEPTH) -> Diagonals | None:
    """``e`` as the xor of shifted bits of numbers; None for a negative constant."""
    found: Diagonals | None = None
    match e.op:
        case "const":
            return {(const(1), k): 1 for k in _set_bits(e.value)} if e.value >= 0 else None
        case "xor" if depth:
            return _union_of_diagonals([diagonals(a, depth - 1) for a in e.args])
        case "add" if depth and disjoint(e.args, depth):
            return _union_of_diagonals([diagonals(a, depth - 1) for a in e.args])
        case "add" if depth:
            found = _of_digits(e, 0, depth)
        case "mul" if depth and e.base is not None and e.coef > 0:
            found = _scaled(diagonals(e.base, depth - 1), e.coef, may_be_set(e.base))
        case "mod" | "floordiv" if depth and e.args[1].op == "const" and power_of_two(e.args[1].value):
            found = _of_digits(e.args[0], e.args[1].value, depth) if e.op == "mod" else None
            found = diagonals(e.args[0], depth - 1) if found is None else found
            if found is not None:
                found = _select_bits(found, e.op == "mod", e.args[1].value.bit_length() - 1)
        case _:
            pass
    if found is not None:
        return found
    bits = may_be_set(e)
    return {(e, 0): bits} if bits else {}


def _of_digits(e: Expr, period: int, depth: int) -> Diagonals | None:
    """A sum of quotients and remainders of numbers by powers of two, modulo ``period`` unless that is 0.

    Each bit of such a number has a weight in the sum; where no two weights share a bit, the sum is their xor:
    ``x + 2*(x//2) - 6*(x//8)`` has the weights 1, 4, 8, 2 of the four bits of x.
    """
    if e.op != "add":
        return None
    t, c = terms(e)
    weights: dict[tuple[Expr, int], int] = {(const(1), 0): c}
    for base, v in t.items():
        x, first, stop = _digit(base)
        possible = may_be_set(x, depth - 1)
        if possible < 0 or possible.bit_length() > _MAX_BITS:
            return None
        for k in range(first, possible.bit_length() if stop is None else min(stop, possible.bit_length())):
            if possible >> k & 1:
                weights[(x, k)] = weights.get((x, k), 0) + (v << (k - first))
    out: Diagonals = {}
    taken = 0
    for (x, k), w in weights.items():
        weight = w % period if period else w
        if weight < 0 or weight & taken:
            return None
        taken |= weight
        for place in _set_bits(weight):
            out[(x, place - k)] = out.get((x, place - k), 0) | 1 << k
    return out


def _digit(base: Expr) -> tuple[Expr, int, int | None]:
    """``x//2**a % 2**b`` as (x, a, a + b); None for no upper end."""
    x, first, stop = base, 0, None
    if x.op == "mod" and x.args[1].op == "const" and power_of_two(x.args[1].value):
        stop = x.args[1].value.bit_length() - 1
        x = x.args[0]
    if x.op == "floordiv" and x.args[1].op == "const" and power_of_two(x.args[1].value):
        first = x.args[1].value.bit_length() - 1
        stop = None if stop is None else stop + first
        x = x.args[0]
    return x, first, stop


def _set_bits(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _union_of_diagonals(parts: list[Diagonals | None]) -> Diagonals | None:
    out: Diagonals = {}
    for p in parts:
        if p is None:
            return None
        for source, bits in p.items():
            left = out.pop(source, 0) ^ bits
            if left:
                out[source] = left
    return out


def _scaled(found: Diagonals | None, k: int, bits: int) -> Diagonals | None:
    """The map times a power of two, or times any number where it has only one bit."""
    if found is None or not (power_of_two(k) or power_of_two(bits)):
        return None
    return _union_of_diagonals([{(x, s + up): b for (x, s), b in found.items()} for up in _set_bits(k)])


def _select_bits(found: Diagonals, low: bool, places: int) -> Diagonals:
    """The map cut to its low places, or to all others."""
    out: Diagonals = {}
    for (x, s), bits in found.items():
        at = places - s  # the place in the source that comes to stand at `places`
        below = (1 << at) - 1 if at > 0 else 0
        left = bits & below if low else bits & ~below
        if left:
            out[(x, s if low else s - places)] = left
    return out


def from_diagonals(found: Diagonals) -> Expr | None:
    """The xor of the digits that the diagonals have: one digit for each run of neighbouring bits; None for too many."""
    out: list[Expr] = []
    for (x, s), bits in found.items():
        if x.op == "const":
            out.append(const(1 << s))
            continue
        runs = list(_bit_runs(bits, may_be_set(x)))
        if len(out) + len(runs) > _MAX_RUNS:
            return None
        for first, stop in runs:
            digit = x if first == 0 else floordiv(x, const(1 << first))
            if stop is not None:
                digit = mod(digit, const(1 << (stop - first)))
            up = first + s
            out.append(mul((const(1 << up), digit)) if up >= 0 else floordiv(digit, const(1 << -up)))
    return xor(*out) if out else const(0)


def _bit_runs(bits: int, possible: int) -> Iterator[tuple[int, int | None]]:
    """First place and the place behind the last of each run (None: up to the top); a bit that is always 0 joins."""
    at = 0
    while bits >> at:
        at += ((bits >> at) & -(bits >> at)).bit_length() - 1
        first = at if possible & ((1 << at) - 1) else 0
        free = (bits | ~possible) >> at
        if ~free == 0:
            yield first, None
            return
        at += (~free & -~free).bit_length() - 1
        yield first, at


_MAX_RESIDUES = 12


class Residue(NamedTuple):
    """The terms ``sum`` add up to ``r`` modulo ``m``."""

    sum: Terms
    m: int
    r: int


def residues_of(cond: Expr) -> list[Residue]:
    """The congruences that a (normal) condition states."""
    out: list[Residue] = []
    for c in cond.conjuncts:
        if c.op in ("eq", "ne"):
            found = _residue(c)
            if found is not None:
                out.append(found)
    return out[:_MAX_RESIDUES]


def _residue(c: Expr) -> Residue | None:
    """``x % m == r``, ``x % 2 != r``, ``x == m*y + r``."""
    t, k = combine(((*terms(c.args[0]), 1), (*terms(c.args[1]), -1)))
    mods = [b for b in t if b.op == "mod" and b.args[1].op == "const" and b.args[1].value > 1]
    if len(t) == 1 and len(mods) == 1 and abs(t[mods[0]]) == 1:
        m = mods[0].args[1].value
        if c.op == "ne" and m != 2:
            return None
        tx, cx = terms(mods[0].args[0])
        if not tx or cx:  # a normal condition has its constants on the other side
            return None
        value = -k * t[mods[0]] + (c.op == "ne")
        return Residue(tx, m, value % m)
    if c.op == "ne" or len(t) < 2:
        return None
    for base, v in t.items():  # base == the rest, which is all of one residue
        rest = {b: w for b, w in t.items() if b is not base}
        m = 0
        r = k
        for b, w in rest.items():
            bm, br = congruence(b)
            m, r = gcd(m, w * bm), r + w * br
        if abs(v) == 1 and base.op == "sym" and m > 1:
            return Residue({base: 1}, m, -r * v % m)
    return None


def merged(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int] | None:
    """``(m, r)`` of both congruences together, None where no number has both (Chinese remainders)."""
    (m, r), (n, s) = a, b
    g = gcd(m, n)
    if (s - r) % g:
        return None
    step = n // g
    return m * step, (r + m * ((s - r) // g * pow(m // g, -1, step) % step)) % (m * step)


def of_symbols(known: list[Residue]) -> dict[Expr, tuple[int, int]]:
    """The residues of each single symbol (or atom) modulo a number, its own range included."""
    out: dict[Expr, tuple[int, int]] = {}
    for t, m, r in known:
        if len(t) != 1:
            continue
        base, v = next(iter(t.items()))
        g = gcd(v, m)
        if r % g or base.op == "mul":
            continue  # no number at all: another rule sees that
        n = m // g
        own = out.get(base, congruence(base))
        if n == 1 or own[0] == 0:
            continue
        both = merged(own, (n, r // g * pow(v // g, -1, n) % n))
        if both is not None and both != own:
            out[base] = both
    return out


def by_residues(e: Expr, known: list[Residue]) -> dict[Expr, Expr]:
    """Remainders of ``e`` that are numbers, and sums with whole quotients, where the residues of sums hold."""
    sums = [f for f in known if len(f.sum) > 1 or next(iter(f.sum)).op == "mul"]
    if not sums:
        return {}
    out: dict[Expr, Expr] = {}
    for node in postorder(e):
        if node.op == "mod" and node.args[1].op == "const":
            r = _remainder(node, sums)
            if r is not None:
                out[node] = from_terms({}, r)
        elif node.op in ("add", "mul"):
            whole = _multiple_of_quotient(node, sums)
            if whole is not None:
                out[node] = whole
    return out


def _remainder(node: Expr, known: list[Residue]) -> int | None:
    """The remainder of ``node``'s numerator by its divisor, where a residue tells it."""
    d = node.args[1].value
    t, c = terms(node.args[0])
    for f in known:
        if d > 0 and f.m % d == 0:
            base, v = next(iter(f.sum.items()))
            for k in {t.get(base, 0) // v, 1, -1}:
                if all((t.get(b, 0) - k * f.sum.get(b, 0)) % d == 0 for b in {*t, *f.sum}):
                    return (c + k * f.r) % d
    return None


def _multiple_of_quotient(node: Expr, known: list[Residue]) -> Expr | None:
    """``k*d*(x//d)`` written ``k*(x - r)``, r being the remainder of ``x`` by d."""
    t, c = terms(node)
    for base, v in t.items():
        if base.op != "floordiv" or base.args[1].op != "const" or v % base.args[1].value:
            continue
        r = _remainder(base, known)
        if r is not None:
            k = v // base.args[1].value
            tx, cx = terms(base.args[0])
            out = {b: w for b, w in t.items() if b is not base}
            add_to(out, tx, k)
            return from_terms(out, c + k * (cx - r))
    return None


Fact = tuple[Terms, int]  # the sum is >= 0


def within_periods(e: Expr, known: Sequence[Fact]) -> dict[Expr, Expr]:
    """Divisions and modulos of ``e`` with what they are where the facts hold."""
    sums = [f for f in known if len(f[0]) > 1]
    if not sums:
        return {}
    out: dict[Expr, Expr] = {}
    for node in postorder(e):
        if node.op in ("floordiv", "mod"):
            found = _settled(node, sums)
            if found is not None:
                out[node] = found
    return out


def _settled(node: Expr, known: Sequence[Fact]) -> Expr | None:
    d = node.args[1]
    if d.op != "const":
        return _below_divisor(node, known)
    n = d.value
    if n <= 0:
        return None
    for t, c in _readings(node, n, known):
        lo, hi = between(t, c, known)
        if lo is not None and hi is not None and lo // n == hi // n:
            k = lo // n
            return const(k) if node.op == "floordiv" else from_terms(t, c - k * n)
    return None


def _readings(node: Expr, n: int, known: Sequence[Fact]) -> list[Fact]:
    """The numerator, for a modulo also the sums of facts that are congruent to it."""
    t, c = terms(node.args[0])
    out = [(t, c)]
    if node.op == "mod":
        for ft, _ in known:
            for sign in (1, -1):
                other = {b: v * sign for b, v in ft.items()}
                if other != t and all((other.get(b, 0) - t.get(b, 0)) % n == 0 for b in {*other, *t}):
                    out.append((other, c))
    return out


def between(t: Terms, c: int, known: Sequence[Fact]) -> tuple[int | None, int | None]:
    """Bounds of a sum by ranges and by each fact: ``x <= x + k*fact`` and ``x >= x - k*fact``."""
    lo, hi = sum_interval(t, c)
    for ft, fc in known:
        base = next((b for b in ft if b in t), None)
        if base is None or t[base] % ft[base]:
            continue
        k = t[base] // ft[base]
        rest, rc = combine(((t, c, 1), (ft, fc, -k)))
        low, high = sum_interval(rest, rc)
        if k > 0:  # x = rest + k*fact >= rest
            lo = low if lo is None else lo if low is None else max(lo, low)
        else:
            hi = high if hi is None else hi if high is None else min(hi, high)
    return lo, hi


def _below_divisor(node: Expr, known: Sequence[Fact]) -> Expr | None:
    """``0 <= x < d`` for a divisor that is not a number."""
    x, d = node.args
    t, c = terms(x)
    if not any(_leaves(t, c, f) for f in known) and not nonneg(t, c):
        return None
    room, rc = combine(((*terms(d), 1), (t, c, -1)))
    if not any(_leaves(room, rc - 1, f) for f in known):
        return None
    return const(0) if node.op == "floordiv" else x


def _leaves(t: Terms, c: int, fact: Fact) -> bool:
    """Whether ``t + c >= 0`` follows from the fact."""
    rest, rc = combine(((t, c, 1), (*fact, -1)))
    return nonneg(rest, rc)
