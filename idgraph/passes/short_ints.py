"""short_ints: small 64-bit integers in 32 bits, where they become floats or are compared.

PyTorch counts positions in int64, and a GPU converts between 64-bit integers and floats at a fraction of the rate of 32
bits. Where the range of an integer is known (sums, differences and products of loop variables and numbers), it is
computed in 32 bits beside, for conversions and comparisons; where that of a float is (it was clamped), it becomes an
integer of 32 bits first. NaN becomes 0 either way. Integers of 64 bits that nobody reads then are dead code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from idgraph.arith.ranges import interval
from idgraph.ir.dtypes import is_float, is_integer
from idgraph.kernel.defuse import all_sets, sets
from idgraph.kernel.ir import Checked, Compute, If, Index, Kernel, Lanes, Local, Loop, Number, Operand, Single, Stmt

LIMIT = 1 << 31
EXACT = 256  # every integer up to this one is a number of every float type
FLOAT16_MAX = 65504  # what is larger becomes infinite
COMPARED = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
WIDE = (-math.inf, math.inf)
ROUNDED = 0.01  # of a value: more than any rounding
Span = tuple[int | float, int | float]


def with_short_ints(kernel: Kernel) -> Kernel:
    """short_ints: small 64-bit integers in 32 bits, where they become floats or are compared.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer y: float32[64] output "y"
    ...   for i < 64:
    ...     a: int64 = cast({i})
    ...     b: int64 = sub(a, 5)
    ...     t: float32 = cast(b)
    ...     y[i] = t
    ... ''')
    >>> print(with_short_ints(k))
    kernel k():
      buffer y: float32[64] output "y"
      for i < 64:
        a: int64 = cast({i})
        a_int: int32 = cast({i})
        b: int64 = sub(a, 5)
        b_int: int32 = sub(a_int, 5)
        t: float32 = cast(b_int)
        y[i] = t
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[64] input "x"
    ...   buffer y: int8[64] output "y"
    ...   for i < 64:
    ...     a: float32 = x[i]
    ...     b: float32 = maximum(a, -127)
    ...     c: float32 = minimum(b, 127)
    ...     t: int8 = cast(c)
    ...     y[i] = t
    ... ''')
    >>> print(with_short_ints(k))
    kernel k():
      buffer x: float32[64] input "x"
      buffer y: int8[64] output "y"
      for i < 64:
        a: float32 = x[i]
        b: float32 = maximum(a, -127)
        c: float32 = minimum(b, 127)
        t_int: int32 = near_int(c) in float32
        t: int8 = cast(t_int)
        y[i] = t
    """
    return replace(kernel, body=tuple(_level(kernel.body, {}, {})))


def _level(body: Sequence[Stmt], known: dict[str, Span], short: dict[str, Local]) -> list[Stmt]:
    """``known``: the range of a variable; ``short``: the variable of 32 bits that has the value of one of 64."""
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, (Loop, If, Single, Lanes, Checked)):
            inside = all_sets((s,))
            known = {n: span for n, span in known.items() if n not in inside}
            short = {n: x for n, x in short.items() if n not in inside}
            made.append(replace(s, body=tuple(_level(s.body, dict(known), dict(short)))))
            continue
        span = _span(s, known) if isinstance(s, Compute) else None
        beside: Compute | None = None
        if isinstance(s, Compute):
            s, before = _in_short(s, known, short)
            made += before
            beside = _beside(s, span, short)
        made.append(s)
        for name in sets(s):
            known.pop(name, None)
            short.pop(name, None)
        if isinstance(s, Compute) and span is not None and s.local.at is None:
            known[s.local.name] = span
        if isinstance(s, Compute) and beside is not None:
            made.append(beside)
            short[s.local.name] = beside.local
    return made


def _in_short(s: Compute, known: Mapping[str, Span], short: Mapping[str, Local]) -> tuple[Compute, list[Stmt]]:
    """A conversion or a comparison in 32 bits where it may be, and what it needs in front."""
    if s.op in COMPARED and s.compute == "int64":
        operands = _in_32(s, short)
        return (s, []) if operands is None else (replace(s, operands=operands, compute="int32"), [])
    if s.op != "cast" or s.local.dtype == "bool":
        return s, []
    (x,) = s.operands
    if not isinstance(x, Local) or x.at is not None or x.name not in known:
        return s, []
    if x.dtype == "int64" and is_float(s.local.dtype):
        return (replace(s, operands=(short[x.name],)) if x.name in short else s), []
    if _fits(known[x.name]) and is_float(x.dtype) and is_integer(s.local.dtype):
        near = Compute(Local(f"{s.local.name}_int", "int32"), "near_int", (x,), x.dtype)
        return replace(s, operands=(near.local,)), [near]
    return s, []


def _beside(s: Compute, span: Span | None, short: Mapping[str, Local]) -> Compute | None:
    """The same value in 32 bits, of operands that have as many."""
    if not s.local.dtype == s.compute == "int64" or s.local.at is not None or span is None or not _fits(span):
        return None
    operands = _in_32(s, short)
    return None if operands is None else Compute(Local(f"{s.local.name}_int", "int32"), s.op, operands, "int32")


def _in_32(s: Compute, short: Mapping[str, Local]) -> tuple[Operand, ...] | None:
    """The operands in 32 bits; None where one may need more."""
    found: list[Operand] = []
    for o in s.operands:
        if isinstance(o, Local):
            if o.at is not None or o.name not in short:
                return None
            found.append(short[o.name])
        elif _fits(_of(o, {}, floats=False) or WIDE):
            found.append(o)
        else:
            return None
    return tuple(found)


def _fits(span: Span) -> bool:
    return span[0] >= -LIMIT and span[1] < LIMIT


def _span(s: Compute, known: Mapping[str, Span]) -> Span | None:
    """The least and the greatest value of ``s``, as `_reached` has it; what a float16 cannot hold is infinite."""
    found = _reached(s, known)
    if found is None or s.local.dtype != "float16":
        return found
    lo, hi = found
    return lo if lo >= -FLOAT16_MAX else -math.inf, hi if hi <= FLOAT16_MAX else math.inf


def _reached(s: Compute, known: Mapping[str, Span]) -> Span | None:
    """The least and the greatest value; None where they are not known, or an int64 may wrap.

    A float may be NaN beside; it is rounded, so the ends of what is computed from others are a little wider.
    """
    floats = is_float(s.local.dtype) and is_float(s.compute)
    if not floats and not s.local.dtype == s.compute == "int64":
        return None
    spans = [_of(o, known, floats) for o in s.operands]
    if floats and s.op in ("maximum", "minimum"):
        spans = [x or (-math.inf, math.inf) for x in spans]
    given = [x for x in spans if x is not None]
    if len(given) < len(spans):
        return None
    match s.op, given:
        case "cast" | "copy", [found]:
            pass
        case "round" | "trunc" | "floor" | "ceil", [(lo, hi)] if floats and math.isfinite(lo) and math.isfinite(hi):
            return math.floor(lo), math.ceil(hi)
        case "neg", [(lo, hi)]:
            found = (-hi, -lo)
        case "minimum", [(a, b), (c, d)]:
            return min(a, c), min(b, d)
        case "maximum", [(a, b), (c, d)]:
            return max(a, c), max(b, d)
        case "add", [(a, b), (c, d)]:
            found = (a + c, b + d)
        case "sub", [(a, b), (c, d)]:
            found = (a - d, b - c)
        case "mul", [(a, b), (c, d)] if not floats:
            ends = (a * c, a * d, b * c, b * d)
            found = (min(ends), max(ends))
        case _:
            return None
    if floats:
        room = ROUNDED * (1 + max(map(abs, found)))
        return found[0] - room, found[1] + room
    return found if found[0] >= -(1 << 63) and found[1] < 1 << 63 else None


def _of(o: Operand, known: Mapping[str, Span], floats: bool) -> Span | None:
    match o:
        case Number(value) if floats and math.isfinite(value) and abs(value) > EXACT:  # it is rounded first
            return value - ROUNDED * abs(value), value + ROUNDED * abs(value)
        case Index(value):
            lo, hi = interval(value)
            return None if lo is None or hi is None else (lo, hi)
        case Number(value) if math.isfinite(value):
            return value, value
        case Local(name, _, None):
            return known.get(name)
        case _:
            return None
