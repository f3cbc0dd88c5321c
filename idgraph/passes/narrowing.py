"""short_ints: small 64-bit integers in 32 bits, where they become floats or are compared.

PyTorch counts positions in int64, and a GPU converts between 64-bit integers and floats at a fraction of the rate of 32
bits. Where the range of an integer is known (sums, differences and products of loop variables and numbers), it is
computed in 32 bits beside, for conversions and comparisons; where that of a float is (it was clamped), it becomes an
integer of 32 bits first. NaN becomes 0 either way. Integers of 64 bits that nobody reads then are dead code.

round_once: a value that is only written to 16-bit floats is rounded by the writes, not before them as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from idgraph.ir.dtypes import is_float, is_integer, is_short_float
from idgraph.kernel.def_use import all_sets, defs, locals_read, map_body, map_statement, sets, updates
from idgraph.kernel.ir import (
    BoundsCheck,
    Compute,
    If,
    Kernel,
    Let,
    Local,
    Loop,
    Operand,
    SingleThread,
    Stmt,
    Store,
    StraightLineBlock,
    walk,
)
from idgraph.passes.value_range_analysis import Ranges, ValueInterval

LIMIT = 1 << 31
COMPARED = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def narrow_int64(kernel: Kernel) -> Kernel:
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
    >>> print(narrow_int64(k))
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
    >>> print(narrow_int64(k))
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
    return replace(kernel, body=tuple(_narrow_body(kernel.body, Ranges(), {})))


def _narrow_body(body: Sequence[Stmt], ranges: Ranges, short: dict[str, Local]) -> list[Stmt]:
    """``short``: the variable of 32 bits that has the value of one of 64."""
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, (Loop, If, SingleThread, StraightLineBlock, BoundsCheck)):
            inside = all_sets((s,))
            ranges = ranges.without(inside)
            short = {n: x for n, x in short.items() if n not in inside}
            made.append(replace(s, body=tuple(_narrow_body(s.body, ranges.without(()), dict(short)))))
            continue
        beside: Local | None = None
        if isinstance(s, Let) and isinstance(s.value, Local) and s.value.name in short:
            s = replace(s, value=short[s.value.name])
        elif isinstance(s, Compute):
            s, before = _in_short(s, ranges, short)
            made += before
            for b in before:
                ranges.learn(b)
            near = before[0].local if before and s.local.dtype == "int64" else None
            more = None if near is not None else _narrow_compute(s, ranges.of_compute(s), short)
            beside = more.local if more is not None else near
            made += [s] if more is None else [s, more]
        if not isinstance(s, Compute):
            made.append(s)
        for name in sets(s):
            short.pop(name, None)
        ranges.learn(s)
        if isinstance(s, Compute) and beside is not None:
            short[s.local.name] = beside
    return made


def _in_short(s: Compute, ranges: Ranges, short: Mapping[str, Local]) -> tuple[Compute, list[Compute]]:
    """A conversion or a comparison in 32 bits where it may be, and what it needs in front."""
    if s.op in COMPARED and s.compute == "int64":
        operands = _in_32(s, short)
        return (s, []) if operands is None else (replace(s, operands=operands, compute="int32"), [])
    if is_float(s.compute) and is_float(s.local.dtype):  # integers among the operands become floats
        operands = tuple(short.get(o.name, o) if isinstance(o, Local) and o.at is None else o for o in s.operands)
        return (replace(s, operands=operands) if operands != s.operands else s), []
    if s.op != "cast" or not is_integer(s.local.dtype):
        return s, []
    (x,) = s.operands
    if not isinstance(x, Local) or x.at is not None or not is_float(x.dtype):
        return s, []
    known = ranges.known.get(x.name)
    if known is None or not _fits_int32(known) or (known.nan and s.local.dtype == "int64"):
        return s, []
    near = Compute(Local(f"{s.local.name}_int", "int32"), "near_int", (x,), x.dtype)
    return replace(s, operands=(near.local,)), [near]


def _narrow_compute(s: Compute, known: ValueInterval | None, short: Mapping[str, Local]) -> Compute | None:
    """The same value in 32 bits, of operands that have as many."""
    if not s.local.dtype == s.compute == "int64" or s.local.at is not None or known is None or not _fits_int32(known):
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
        elif (known := Ranges().of(o, "int64")) is not None and _fits_int32(known):
            found.append(o)
        else:
            return None
    return tuple(found)


def _fits_int32(known: ValueInterval) -> bool:
    return known.lo >= -LIMIT and known.hi < LIMIT


def elide_double_rounding(kernel: Kernel) -> Kernel:
    """round_once: one rounding of each value that is only stored.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: bfloat16[64] input "x"
    ...   buffer y: bfloat16[64] output "y"
    ...   for i < 64:
    ...     u: bfloat16 = x[i]
    ...     v: bfloat16 = mul(u, 2)
    ...     y[i] = v
    ... ''')
    >>> print(elide_double_rounding(k))
    kernel k():
      buffer x: bfloat16[64] input "x"
      buffer y: bfloat16[64] output "y"
      for i < 64:
        u: bfloat16 = x[i]
        v: float32 = mul(u, 2) in bfloat16
        y[i] = v
    """
    stored: set[str] = set()
    others: set[str] = set()
    for s in walk(kernel.body):
        if (
            isinstance(s, Store)
            and isinstance(s.value, Local)
            and s.value.dtype == s.buffer.dtype
            and is_short_float(s.value.dtype)
        ):
            stored.add(s.value.name)
        else:
            others |= locals_read(s) | {x.name for x in updates(s)}
        if not _is_rounding(s):
            others |= {x.name for x in defs(s)}
    once = stored - others
    if not once:
        return kernel

    def wide(x: Local) -> Local:
        return replace(x, dtype="float32") if x.name in once else x

    def read(o: Operand) -> Operand:
        return wide(o) if isinstance(o, Local) else o

    def changed(s: Stmt) -> Stmt:
        return map_statement(s, made=wide, read=read)

    return replace(kernel, body=map_body(kernel.body, changed))


def _is_rounding(s: Stmt) -> bool:
    """Floating point arithmetic whose result is rounded to 16 bits."""
    match s:
        case Compute(Local(dtype=dtype, at=None), op, operands, compute):
            floats = all(isinstance(o, Local) and is_float(o.dtype) and o.dtype != "float64" for o in operands)
            return is_short_float(dtype) and op != "where" and is_float(compute) and (op != "cast" or floats)
        case _:
            return False
