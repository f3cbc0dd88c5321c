"""Bits of integers: which may be set, and expressions as maps linear over bits (xor of shifted digits).

Integers are two's complement of unbounded width, so a set of bits is an integer too: a negative one has all high bits.
"""

from __future__ import annotations

from collections.abc import Iterator

from idgraph.arith.expr import Expr, const, floordiv, mod, mul, xor
from idgraph.arith.interval import congruence, interval
from idgraph.arith.linear import terms

_DEPTH = 8
_MAX_RUNS = 32
_MAX_BITS = 64  # of a number that is looked at bit by bit

Source = tuple[Expr, int]  # a number, and how far its bits are shifted up (negative: down)
Diagonals = dict[Source, int]  # for each source the bits of the number that take part


def power_of_two(v: int) -> bool:
    """Whether ``v`` is 1, 2, 4, ..."""
    return v > 0 and v & (v - 1) == 0


def may_be_set(e: Expr, depth: int = _DEPTH) -> int:
    """The bits that are 1 in some value of ``e``; sound, so a bit that is left out is 0 everywhere.

    >>> from idgraph.arith import parse
    >>> bin(may_be_set(parse("a*8 + b//2*2", {"a": 4, "b": 8})))
    '0b11110'
    """
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
    """``e`` as the xor of shifted bits of numbers; None for a negative constant.

    >>> from idgraph.arith import parse
    >>> {(str(x), k): bin(m) for (x, k), m in diagonals(parse("(i%4) ^ (i//4%4)", {"i": 16})).items()}
    {('i', 0): '0b11', ('i', -2): '0b1100'}
    """
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
