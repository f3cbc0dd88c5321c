"""The least and the greatest number that a variable may be: passes ask before they narrow it or drop a check.

Ends of floats are a little wider than the arithmetic makes them: each operation may round, products and sums may be
contracted to one rounding, and divisions may be products with a rounded reciprocal. ``nan`` says that it may be none.

prove_checks: an index that a program computes (positions scaled to a picture, numbers clamped to a table's length,
bytes that address 256 rows) cannot leave its axis. Its variable gets the range; the check, its branch and its report
go, and 32 bits hold the address.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from idgraph.arith import TRUE, Expr, simplify, symbol
from idgraph.arith.interval import interval
from idgraph.ir.dtypes import ELEMENT_TYPES, DType, int_limits, is_float, is_integer, is_short_float
from idgraph.kernel.def_use import all_sets, expand_body, map_body, map_statement, sets
from idgraph.kernel.ir import (
    BoundsCheck,
    Compute,
    Constant,
    If,
    Index,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    Operand,
    Select,
    SingleThread,
    Stmt,
    StraightLineBlock,
    walk,
)

_LEAST_NORMAL = 2.0**-14  # of float16; what is smaller may become zero in any type
_ROUNDING = frozenset({"add", "sub", "mul", "div"})


def _rounding_room(dtype: DType) -> float:
    """Of the largest number of an operation: eight units in the last place, more than roundings and contractions make;
    four of short floats, which are computed in a wider type and rounded once."""
    return 2.0 ** ((3 if is_short_float(dtype) else 4) - ELEMENT_TYPES[dtype].significand)


@dataclass(frozen=True, slots=True)
class ValueInterval:
    """``lo <= value <= hi``, ends included; ``nan``: or not a number."""

    lo: int | float
    hi: int | float
    nan: bool = False

    def within(self, lo: int, hi: int) -> bool:
        """Whether every number of it lies from ``lo`` to ``hi``; what is not a number is not asked about."""
        return lo <= self.lo and self.hi <= hi

    @property
    def empty(self) -> bool:
        """Whether no number lies between the ends."""
        return self.lo > self.hi

    def met(self, other: ValueInterval) -> ValueInterval:
        """The numbers that both ranges have."""
        return ValueInterval(max(self.lo, other.lo), min(self.hi, other.hi), self.nan and other.nan)

    def joined(self, other: ValueInterval) -> ValueInterval:
        """The least range that has both."""
        return ValueInterval(min(self.lo, other.lo), max(self.hi, other.hi), self.nan or other.nan)


@dataclass(slots=True)
class Ranges:
    """Ranges of the variables that are known where a walk through a kernel stands.

    >>> from idgraph.arith import symbol
    >>> found = Ranges()
    >>> found.learn(Compute(Local("a", "int64"), "cast", (Index(symbol("i", 0, 159)),), "int64"))
    >>> found.learn(Compute(Local("b", "int64"), "minimum", (Local("a", "int64"), Constant(79)), "int64"))
    >>> found.known["b"]
    ValueInterval(lo=0, hi=79, nan=False)
    """

    known: dict[str, ValueInterval] = field(default_factory=dict[str, ValueInterval])
    implied: dict[str, dict[str, ValueInterval]] = field(default_factory=dict[str, dict[str, ValueInterval]])
    """Truth value -> where it is true, ranges of what was compared for it."""
    casts: dict[str, Compute] = field(default_factory=dict[str, Compute])
    """Conversions, by what they set."""
    named: set[str] = field(default_factory=set[str])
    """Variables that something of these two is about."""

    def without(self, names: Iterable[str]) -> Ranges:
        """A copy that knows nothing of ``names``."""
        made = Ranges(dict(self.known), dict(self.implied), dict(self.casts), set(self.named))
        made.forget(frozenset(names))
        return made

    def forget(self, gone: Collection[str]) -> None:
        """Know nothing more of variables, nor of others by them."""
        for name in gone:
            self.known.pop(name, None)
        self.implied = {n: r for n, r in self.implied.items() if n not in gone and r.keys().isdisjoint(gone)}
        self.casts = {n: s for n, s in self.casts.items() if n not in gone and _cast_operand(s) not in gone}

    def learn(self, s: Stmt) -> None:
        """Know the value that a statement sets; an earlier one is gone."""
        match s:
            case Compute(Local(name, dtype, None)):
                found = self.of_compute(s)
            case Load(Local(name, dtype, None)):
                found = _of_type(dtype)
            case Select(Local(name, dtype, None), cases, default):
                found = self.union([*(o for _, o in cases), default], dtype)
            case _:
                return
        implied = self._implied(s) if isinstance(s, Compute) and dtype == "bool" else {}
        if name in self.known or name in self.named:
            self.forget((name,))
        if found is not None:
            self.known[name] = found
        if implied and name not in implied:
            self.implied[name] = implied
            self.named |= {name, *implied}
        if isinstance(s, Compute) and s.op == "cast" and _cast_operand(s) not in ("", name):
            self.casts[name] = s
            self.named |= {name, _cast_operand(s)}

    def _implied(self, s: Compute) -> dict[str, ValueInterval]:
        """Ranges of variables where a comparison, or all of several, is true: then none of them is nan."""
        match s.op, s.operands:
            case "logical_and" | "bitwise_and", [Local(a, "bool", None), Local(b, "bool", None)]:
                one, other = self.implied.get(a, {}), self.implied.get(b, {})
                return one | {n: r.met(one[n]) if n in one else r for n, r in other.items()}
            case "ge" | "gt" | "le" | "lt", [Local(name, dtype, None), Constant(c)] if dtype == s.compute and (
                _is_number_of(c, dtype) if is_float(dtype) else isinstance(c, int)
            ):
                least, below = (c, math.nextafter(c, -math.inf) if is_float(dtype) else c - 1)
                above = math.nextafter(c, math.inf) if is_float(dtype) else c + 1
                ends = {
                    "ge": (least, math.inf),
                    "gt": (above, math.inf),
                    "le": (-math.inf, c),
                    "lt": (-math.inf, below),
                }
                return {name: ValueInterval(*ends[s.op])}
            case _:
                return {}

    def chosen(self, s: Compute) -> list[ValueInterval | None]:
        """The ranges of what a ``where`` may choose: the first as the comparisons behind the condition leave it; it is
        left out where they leave nothing."""
        condition, first, second = s.operands
        implied = self.implied.get(condition.name, {}) if isinstance(condition, Local) else {}
        rest = [self.of(second, s.compute)]
        if any(self.known[n].met(r).empty for n, r in implied.items() if n in self.known):
            return rest
        inner = Ranges(
            {**self.known, **{n: self.known[n].met(r) if n in self.known else r for n, r in implied.items()}}
        )
        made = self.casts.get(first.name) if isinstance(first, Local) else None
        if made is not None and _cast_operand(made) in implied:
            return [inner.of_compute(made), *rest]
        return [inner.of(first, s.compute), *rest]

    def of(self, o: Operand, dtype: DType) -> ValueInterval | None:
        """The range of an operand that an operation in ``dtype`` reads; None where nothing is known of it."""
        match o:
            case Local(name, own, None):
                found = self.known.get(name) or _of_type(own)
            case Index(value):
                lo, hi = interval(value)
                found = None if lo is None or hi is None else ValueInterval(lo, hi)
            case Constant(value) if math.isfinite(value):
                found = ValueInterval(value, value)
            case _:
                found = None
        return found if found is None or not is_float(dtype) else _converted(found, dtype)

    def union(self, operands: Sequence[Operand], dtype: DType) -> ValueInterval | None:
        """All values of several operands."""
        return _hull([self.of(o, dtype) for o in operands])

    def of_compute(self, s: Compute) -> ValueInterval | None:
        """The range of what an operation makes; None where it is not known, or an integer may wrap.

        >>> clamped = Compute(Local("t", "float32"), "maximum", (Local("x", "float32"), Constant(0)), "float32")
        >>> Ranges().of_compute(clamped)
        ValueInterval(lo=0, hi=inf, nan=True)
        """
        dtype, compute = s.local.dtype, s.compute
        if is_float(dtype) and is_float(compute):
            return self._of_floats(s)
        if is_integer(dtype):
            operands = [o for o in s.operands if isinstance(o, Local)]
            if s.op == "near_int" or (s.op == "cast" and any(is_float(o.dtype) for o in operands)):
                return self._truncated(s)
            return self._of_integers(s) if is_integer(compute) else None
        return None

    def _truncated(self, s: Compute) -> ValueInterval | None:
        (x,) = s.operands
        found = self.of(x, "float64")
        if found is None or not (math.isfinite(found.lo) and math.isfinite(found.hi)):
            return None
        if found.nan and s.op != "near_int":
            return None
        zero = ValueInterval(0, 0)  # of what is not a number
        whole = ValueInterval(math.trunc(found.lo), math.trunc(found.hi))
        return _fitting(whole.joined(zero) if found.nan else whole, s.local.dtype)

    def _of_integers(self, s: Compute) -> ValueInterval | None:
        if s.op == "where":
            found = _hull(self.chosen(s))
        else:
            found = _of_integers(s.op, [self.of(o, s.compute) for o in s.operands])
        if found is None or found.nan or not (isinstance(found.lo, int) and isinstance(found.hi, int)):
            return _of_type(s.local.dtype)
        return _fitting(_fitting(found, s.compute), s.local.dtype) or _of_type(s.local.dtype)

    def _of_floats(self, s: Compute) -> ValueInterval | None:
        spans = self.chosen(s) if s.op == "where" else [self.of(o, s.compute) for o in s.operands]
        if s.op in ("maximum", "minimum"):
            spans = [r or ValueInterval(-math.inf, math.inf, nan=True) for r in spans]
        given = [r for r in spans if r is not None]
        if len(given) < len(spans) or not given:
            return None
        found = _hull(spans) if s.op == "where" else _of_floats(s.op, given)
        if found is None:
            return None
        largest = max(abs(end) for r in (*given, found) for end in (r.lo, r.hi))
        if s.op in _ROUNDING and largest > ELEMENT_TYPES[s.compute].largest:
            return None
        for dtype in dict.fromkeys((s.compute, s.local.dtype)):
            found = _rounded(found, largest, dtype) if s.op in _ROUNDING else _converted(found, dtype)
        return found


def _hull(found: Sequence[ValueInterval | None]) -> ValueInterval | None:
    known = [r for r in found if r is not None]
    return reduce(ValueInterval.joined, known) if known and len(known) == len(found) else None


def _cast_operand(s: Compute) -> str:
    """The variable that a conversion reads; none of a number."""
    (x,) = s.operands
    return x.name if isinstance(x, Local) and x.at is None else ""


def _of_type(dtype: DType) -> ValueInterval | None:
    return ValueInterval(*int_limits(dtype)) if dtype == "bool" or is_integer(dtype) else None


def _fitting(found: ValueInterval | None, dtype: DType) -> ValueInterval | None:
    """The range where the type holds all of it; None where a number may wrap."""
    return found if found is not None and found.within(*int_limits(dtype)) else None


def _rounded(found: ValueInterval, largest: int | float, dtype: DType) -> ValueInterval:
    """The range widened by the roundings of an operation among whose numbers ``largest`` is the largest."""
    room = _rounding_room(dtype) * (largest + _LEAST_NORMAL)
    return _clamp_to_dtype(ValueInterval(found.lo - room, found.hi + room, found.nan), dtype)


def _converted(found: ValueInterval, dtype: DType) -> ValueInterval:
    """The range in another type: rounding keeps the order, so an end that the type has stays the end."""
    if all(_is_number_of(end, dtype) for end in (found.lo, found.hi)):
        return found
    if not (math.isfinite(found.lo) and math.isfinite(found.hi)):
        lo = found.lo if _is_number_of(found.lo, dtype) else -math.inf
        return ValueInterval(lo, found.hi if _is_number_of(found.hi, dtype) else math.inf, found.nan)
    return _rounded(found, max(abs(found.lo), abs(found.hi)), dtype)


def _clamp_to_dtype(found: ValueInterval, dtype: DType) -> ValueInterval:
    """Numbers that the type may not have are infinite."""
    most = ELEMENT_TYPES[dtype].largest
    return ValueInterval(
        found.lo if found.lo >= -most else -math.inf, found.hi if found.hi <= most else math.inf, found.nan
    )


def _is_number_of(value: int | float, dtype: DType) -> bool:
    if value == 0 or math.isinf(value):
        return True
    if not _LEAST_NORMAL <= abs(value) <= ELEMENT_TYPES[dtype].largest:
        return False
    scaled = math.frexp(value)[0] * 2.0 ** ELEMENT_TYPES[dtype].significand
    return scaled.is_integer() and int(math.ldexp(*math.frexp(value))) == int(value)


def _corners(a: ValueInterval, b: ValueInterval) -> ValueInterval:
    ends = (a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi)
    return ValueInterval(min(ends), max(ends), a.nan or b.nan)


def _of_both(op: str, given: Sequence[ValueInterval]) -> ValueInterval | None:
    """Operations whose ends are made of ends, of integers and of floats alike."""
    nan = any(r.nan for r in given)
    match op, given:
        case "cast" | "copy", [r]:
            return r
        case "neg", [r]:
            return ValueInterval(-r.hi, -r.lo, nan)
        case "abs", [r]:
            most = max(-r.lo, r.hi)
            return ValueInterval(0 if r.lo <= 0 <= r.hi else min(abs(r.lo), abs(r.hi)), most, nan)
        case "minimum", [a, b]:
            return ValueInterval(min(a.lo, b.lo), min(a.hi, b.hi), nan)
        case "maximum", [a, b]:
            return ValueInterval(max(a.lo, b.lo), max(a.hi, b.hi), nan)
        case "add", [a, b]:
            return ValueInterval(a.lo + b.lo, a.hi + b.hi, nan)
        case "sub", [a, b]:
            return ValueInterval(a.lo - b.hi, a.hi - b.lo, nan)
        case "mul", [a, b]:
            return _corners(a, b)
        case _:
            return None


def _of_integers(op: str, spans: Sequence[ValueInterval | None]) -> ValueInterval | None:
    given = [r for r in spans if r is not None]
    match op, given:
        case "remainder", [*_, ValueInterval(lo, hi)] if lo == hi > 0 and spans[-1] is not None:
            return ValueInterval(0, hi - 1)
        case "floor_divide", [ValueInterval(lo, hi), ValueInterval(a, b)] if a == b > 0:
            return ValueInterval(lo // a, hi // a)
        case _:
            return _of_both(op, given) if len(given) == len(spans) else None


def _of_floats(op: str, given: Sequence[ValueInterval]) -> ValueInterval | None:
    nan = any(r.nan for r in given)
    match op, given:
        case "round" | "trunc" | "floor" | "ceil", [r] if math.isfinite(r.lo) and math.isfinite(r.hi):
            return ValueInterval(math.floor(r.lo), math.ceil(r.hi), nan)
        case "add" | "sub" | "mul", [a, b] if not all(map(math.isfinite, (a.lo, a.hi, b.lo, b.hi))):
            return None  # infinite minus infinite, and zero times infinite
        case "div", [a, ValueInterval(lo, hi) as b] if (
            all(map(math.isfinite, (a.lo, a.hi, lo, hi))) and lo * hi > 0 and min(abs(lo), abs(hi)) >= _LEAST_NORMAL
        ):
            return _corners(a, ValueInterval(1 / hi, 1 / lo, b.nan))
        case _:
            return _of_both(op, given)


LIMIT = 1 << 62  # of an index: sums of several stay numbers of 64 bits
Body = tuple[Stmt, ...]
Found = dict[str, ValueInterval | None]


def eliminate_bounds_checks(kernel: Kernel) -> Kernel:
    """prove_checks: checks of indices whose ranges are known are dropped.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   where a in _, _
    ...   buffer i: int64[4] input "i"
    ...   buffer x: float32[7] input "x"
    ...   buffer y: float32[4] output "y"
    ...   for r < 4:
    ...     t0: int64 = i[r]
    ...     t1: int64 = maximum(t0, 0)
    ...     t2: int64 = minimum(t1, 6)
    ...     let a = t2
    ...     check (a >= 0) & (a < 7), of a, site "x", axis 0, extent 7, index "i", in "y", at "f.py:1":
    ...       t3: float32 = x[a]
    ...       y[r] = t3
    ... ''')
    >>> print(eliminate_bounds_checks(k))
    kernel k():
      where a in 0, 6
      buffer i: int64[4] input "i"
      buffer x: float32[7] input "x"
      buffer y: float32[4] output "y"
      for r < 4:
        t0: int64 = i[r]
        t1: int64 = maximum(t0, 0)
        t2: int64 = minimum(t1, 6)
        let a = t2
        t3: float32 = x[a]
        y[r] = t3
    """
    checks = {s.condition for s in walk(kernel.body) if isinstance(s, BoundsCheck)}
    if not checks:
        return kernel
    found: Found = {}
    never: dict[int, bool] = {}
    times = Counter(name for s in walk(kernel.body) for name in sets(s))
    _collect(kernel.body, Ranges(), (found, never), frozenset(n for n, count in times.items() if count == 1))
    known = {n: symbol(n, int(r.lo), int(r.hi)) for n, r in found.items() if r is not None}
    proved = {c for c in checks if c.names & known.keys() and simplify(_narrowed(c, known)) is TRUE}
    if not proved:
        return kernel
    used = {n: s for n, s in known.items() if any(n in c.names for c in proved)}

    def without(s: Stmt) -> Body | None:
        return expand_body(s.body, without) if isinstance(s, BoundsCheck) and s.condition in proved else None

    def second(s: Stmt) -> Stmt:
        return replace(s, op="cast", operands=s.operands[2:]) if isinstance(s, Compute) and never.get(id(s)) else s

    body = expand_body(tuple(map_body(kernel.body, second)), without)
    body = map_body(body, lambda s: map_statement(s, index=lambda e: _narrowed(e, used)))
    return replace(kernel, body=body)


def _collect(body: Sequence[Stmt], ranges: Ranges, into: tuple[Found, dict[int, bool]], once: frozenset[str]) -> None:
    """Bring ``into``, the ranges of index variables and the choices that never take their first operand, and ``ranges``
    up to date behind the statements of ``body``.

    A variable of ``once``, which one statement sets, has the value of that statement wherever it has one: its range is
    also that of readers behind the condition under which it is set.
    """
    for s in body:
        match s:
            case Loop() if s.extent == 1:
                _collect(s.body, ranges, into, once)
            case Loop() | If() | SingleThread() | StraightLineBlock() | BoundsCheck():
                changed = all_sets((s,))
                ranges.forget(changed)
                inner = ranges.without(changed)
                _collect(s.body, inner, into, once)
                if isinstance(s, If | BoundsCheck):
                    ranges.known |= {n: r for n in changed & once if (r := inner.known.get(n)) is not None}
            case Let(name, value):
                r = ranges.of(value, "int64")
                r = r if r is not None and not r.nan and r.within(-LIMIT, LIMIT) else None
                found = into[0]
                before = found.get(name, r)
                found[name] = None if r is None or before is None else r.joined(before)
            case _:
                if isinstance(s, Compute) and s.op == "where":
                    into[1][id(s)] = into[1].get(id(s), True) and len(ranges.chosen(s)) == 1
                ranges.learn(s)


def _narrowed(e: Expr, known: dict[str, Expr]) -> Expr:
    changed = {s: known[s.name] for s in e.symbols if s.name in known}
    return e.substitute(changed) if changed else e
