"""Interval and congruence of every node, under the ranges its symbols carry.

``interval`` gives inclusive integer bounds (``None`` = unbounded), ``congruence`` a pair ``(m, r)`` with
value = r mod m (m = 0: the value is r).  Both are sound at every point of the symbols' ranges where the expression
is defined; an empty range makes every claim vacuously true, so nothing here may fail on one.
"""

from __future__ import annotations

from math import gcd

from idgraph.arith.expr import VERBS, Expr, Range

Interval = tuple[int | None, int | None]
_ANY: Interval = (None, None)


def interval(e: Expr) -> Interval:
    """Inclusive bounds of an integer expression; a condition has bounds 0..1."""
    found = e.iv
    if found is not None:
        return found
    _fill(e)
    return e.iv if e.iv is not None else _ANY


def range_of(e: Expr) -> Range:
    """Inclusive bounds as a :class:`Range`."""
    return Range(*interval(e))


def congruence(e: Expr) -> tuple[int, int]:
    """``(m, r)`` with value = r mod m; ``(0, r)`` for a known constant, ``(1, 0)`` if nothing is known."""
    found = e.cong
    if found is not None:
        return found
    _fill(e)
    return e.cong if e.cong is not None else (1, 0)


def multiple_of(e: Expr, k: int) -> bool:
    """Whether every value of ``e`` is proved to be a multiple of ``k``.

    >>> from idgraph.arith import symbol
    >>> multiple_of(symbol("n", 1, multiple_of=8) * 3 + 16, 8)
    True
    """
    if k == 0:
        return e.op == "const" and e.value == 0
    m, r = congruence(e)
    return m % k == 0 and r % k == 0


def _fill(root: Expr) -> None:
    work = [root]
    while work:
        node = work[-1]
        if node.iv is not None and node.cong is not None:
            work.pop()
            continue
        missing = [a for a in _interval_operands(node) if a.iv is None or a.cong is None]
        if missing:
            work.extend(missing)
            continue
        cong = _congruence(node)
        lo, hi = _interval(node)
        if node.op not in ("const", "sym") and not node.cond and cong[0] > 1:
            m, r = cong
            lo = None if lo is None else lo + (r - lo) % m
            hi = None if hi is None else hi - (hi - r) % m
        if lo is not None and lo == hi:
            cong = (0, lo)
        node.cong = cong
        node.iv = (lo, hi)
        work.pop()


def _interval_operands(node: Expr) -> tuple[Expr, ...]:
    if node.op == "sym":
        return tuple(b for b in node.symbol_bounds[:2] if isinstance(b, Expr))
    return node.args


def _iv(e: Expr) -> Interval:
    return e.iv if e.iv is not None else _ANY


def _interval(node: Expr) -> Interval:  # one line per operation
    args = node.args
    match node.op:
        case "const":
            return (node.value, node.value)
        case "sym":
            return _symbol_interval(node)
        case "add":
            found = _sum_interval(args)
            return _intersect(found, VERBS.digit_bounds(node)) if _telescoped(args) else found
        case "mul":
            out = _iv(args[0])
            for i, a in enumerate(args[1:], 1):
                square = a is args[i - 1]
                out = product(out, _iv(a))
                if square and i == 1:
                    out = (max(out[0], 0) if out[0] is not None else 0, out[1])
            return out
        case "floordiv":
            return quotient(_iv(args[0]), _iv(args[1]))
        case "mod":
            return remainder(_iv(args[0]), _iv(args[1]))
        case "min" | "max":
            return _extremum_interval(node.op, [_iv(a) for a in args])
        case "where":
            return union(_iv(args[1]), _iv(args[2]))
        case "xor":
            return _xor_interval([_iv(a) for a in args])
        case _:
            return (0, 1)


def _symbol_interval(node: Expr) -> Interval:
    lo, hi, m, r = node.symbol_bounds
    low = _iv(lo)[0] if isinstance(lo, Expr) else lo
    high = _iv(hi)[1] if isinstance(hi, Expr) else hi
    if m > 1:
        low = None if low is None else low + (r - low) % m
        high = None if high is None else high - (high - r) % m
    return (low, high)


def _sum_interval(args: tuple[Expr, ...]) -> Interval:
    low: int | None = 0
    high: int | None = 0
    for a in args:
        x, y = _iv(a)
        low = None if low is None or x is None else low + x
        high = None if high is None or y is None else high + y
    return (low, high)


def _telescoped(args: tuple[Expr, ...]) -> bool:
    """True of sums that may be digits written as differences of quotients: ``x//2 - x//8*4``."""
    quotients = [a for a in args if (a if a.base is None else a.base).op == "floordiv"]
    return bool(quotients) and len(args) > 1 and any(a.coef < 0 for a in quotients)


def _intersect(a: Interval, b: Interval) -> Interval:
    """The bounds of two intervals that hold both."""
    low = a[0] if b[0] is None else b[0] if a[0] is None else max(a[0], b[0])
    high = a[1] if b[1] is None else b[1] if a[1] is None else min(a[1], b[1])
    return (low, high)


def union(a: Interval, b: Interval) -> Interval:
    """The smallest interval that holds both."""
    return (
        None if a[0] is None or b[0] is None else min(a[0], b[0]),
        None if a[1] is None or b[1] is None else max(a[1], b[1]),
    )


def product(a: Interval, b: Interval) -> Interval:
    """Bounds of x*y."""
    if a == (0, 0) or b == (0, 0):
        return (0, 0)
    (p, q), (r, s) = a, b
    if p is not None and q is not None and r is not None and s is not None:
        ends = (p * r, p * s, q * r, q * s)
        return (min(ends), max(ends))
    low_known = high_known = True
    corners: list[int] = []
    for x, x_sign in ((p, -1), (q, 1)):
        for y, y_sign in ((r, -1), (s, 1)):
            if x is not None and y is not None:
                corners.append(x * y)
                continue
            sign_x = x_sign if x is None else (x > 0) - (x < 0)
            sign_y = y_sign if y is None else (y > 0) - (y < 0)
            sign = sign_x * sign_y
            if sign == 0:
                corners.append(0)
            elif sign > 0:
                high_known = False
            else:
                low_known = False
    low = min(corners) if low_known and corners else None
    high = max(corners) if high_known and corners else None
    return (low, high)


def quotient(a: Interval, b: Interval) -> Interval:
    """Bounds of x//y, over the y that are not zero."""
    (p, q), (r, s) = a, b
    if r is None or s is None or r <= 0 <= s:
        if r is not None and r >= 0:
            r = max(r, 1)
        elif s is not None and s <= 0:
            s = min(s, -1)
        else:  # either sign: |x//y| <= max|x| (floor of -1/2 is -1)
            if p is None or q is None:
                return _ANY
            big = max(abs(p), abs(q))
            return (-big, big)
    if r is not None and r > 0:
        return (_quotient_low(p, r, s), _quotient_high(q, r, s))
    if s is not None and s < 0:
        flipped = (None if q is None else -q, None if p is None else -p)
        return quotient(flipped, (-s, None if r is None else -r))
    return _ANY


def _quotient_low(p: int | None, r: int, s: int | None) -> int | None:
    if p is None:
        return None
    if p < 0:
        return p // r
    return 0 if s is None else p // s


def _quotient_high(q: int | None, r: int, s: int | None) -> int | None:
    if q is None:
        return None
    if q >= 0:
        return q // r
    return -1 if s is None else q // s


def remainder(a: Interval, b: Interval) -> Interval:
    """Bounds of x%y, over the y that are not zero."""
    (p, q), (r, s) = a, b
    low: int | None = 0 if r is not None and r >= 0 else None if r is None else min(0, r + 1)
    high: int | None = 0 if s is not None and s <= 0 else None if s is None else max(0, s - 1)
    if p is not None and p >= 0 and r is not None and r >= 0:
        if q is not None:
            high = q if high is None else min(q, high)
            if r > 0 and q < r:
                return (p, q)
        if r > 0 and r == s and q is not None and p // r == q // r:
            return (p % r, q % r)
    elif r is not None and r == s and r != 0 and p is not None and q is not None and p // r == q // r:
        ends = (p % r, q % r)
        return (min(ends), max(ends))
    return (low, high)


def _extremum_interval(op: str, parts: list[Interval]) -> Interval:
    lows = [p[0] for p in parts]
    highs = [p[1] for p in parts]
    known_low = [x for x in lows if x is not None]
    known_high = [x for x in highs if x is not None]
    if op == "min":
        return (min(known_low) if len(known_low) == len(lows) else None, min(known_high) if known_high else None)
    return (max(known_low) if known_low else None, max(known_high) if len(known_high) == len(highs) else None)


def _xor_interval(parts: list[Interval]) -> Interval:
    low_bits = 0
    negative = False
    positive = True
    for lo, hi in parts:
        if lo is None or hi is None:
            return (0, None) if all(p[0] is not None and p[0] >= 0 for p in parts) else _ANY
        low_bits = max(low_bits, abs(lo).bit_length(), abs(hi).bit_length())
        negative = negative or lo < 0
        positive = positive and lo >= 0
    top = (1 << low_bits) - 1
    return (0 if not negative else -top - 1, top)


def _congruence(node: Expr) -> tuple[int, int]:
    args = node.args
    match node.op:
        case "const":
            return (0, node.value)
        case "sym":
            return (node.symbol_bounds[2], node.symbol_bounds[3])
        case "add":
            m, r = 0, 0
            for a in args:
                am, ar = a.cong or (1, 0)
                m, r = gcd(m, am), r + ar
            return (m, r % m if m else r)
        case "mul":
            m, r = 0, 1
            for a in args:
                am, ar = a.cong or (1, 0)
                m, r = gcd(m * am, m * ar, am * r), r * ar
            return (m, r % m if m else r)
        case "floordiv":
            return _quotient_congruence(args[0].cong or (1, 0), args[1].cong or (1, 0))
        case "mod":
            return _remainder_congruence(args[0].cong or (1, 0), args[1].cong or (1, 0))
        case "min" | "max" | "where":
            values = args[1:] if node.op == "where" else args
            m, r = values[0].cong or (1, 0)
            for a in values[1:]:
                am, ar = a.cong or (1, 0)
                m = gcd(m, am, r - ar)
            return (m, r % m if m else r)
        case "xor":
            return _xor_congruence(args)
        case _:
            return (1, 0)


def _quotient_congruence(a: tuple[int, int], d: tuple[int, int]) -> tuple[int, int]:
    (m, r), (dm, c) = a, d
    if dm != 0 or c == 0:
        return (1, 0)
    if m == 0:
        return (0, r // c)
    if m % c == 0:  # x = m*t + r, so x//c = (m//c)*t + r//c
        k = abs(m // c)
        return (k, (r // c) % k)
    return (1, 0)


def _remainder_congruence(a: tuple[int, int], d: tuple[int, int]) -> tuple[int, int]:
    (m, r), (dm, c) = a, d
    if dm == 0 and c != 0 and m % c == 0:
        return (0, r % c)
    k = gcd(m, dm, c)  # x - y*q with y = 0 mod gcd(dm, c)
    return (k, r % k) if k else (1, 0)


def _xor_congruence(args: tuple[Expr, ...]) -> tuple[int, int]:
    power, value = 0, 0
    for a in args:
        m, r = a.cong or (1, 0)
        low = m & -m  # the low bits below the greatest power of two in m are known
        power = low if power == 0 else power if low == 0 else min(power, low)
        value ^= r
    return (power, value % power) if power else (0, value)


VERBS.interval = range_of
