"""prove_checks: checks of indices whose ranges are known are dropped.

An index that a program computes (positions scaled to a picture, numbers clamped to a table's length, bytes that address
256 rows) cannot leave its axis. Its variable gets the range; the check, its branch and its report go, and 32 bits hold
the address. The range follows from the arithmetic, wide enough for every rounding
(`idgraph.passes.value_range_analysis`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from idgraph.arith import TRUE, Expr, simplify, symbol
from idgraph.kernel.def_use import all_sets, map_statement, sets
from idgraph.kernel.ir import (
    BoundsCheck,
    CompoundStmt,
    If,
    Kernel,
    Let,
    Loop,
    SingleThread,
    Stmt,
    StraightLineBlock,
    walk,
)
from idgraph.passes.value_range_analysis import Ranges, ValueInterval

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
    times = Counter(name for s in walk(kernel.body) for name in sets(s))
    _collect(kernel.body, Ranges(), found, frozenset(n for n, count in times.items() if count == 1))
    known = {n: symbol(n, int(r.lo), int(r.hi)) for n, r in found.items() if r is not None}
    proved = {c for c in checks if c.names & known.keys() and simplify(_narrowed(c, known)) is TRUE}
    if not proved:
        return kernel
    used = {n: s for n, s in known.items() if any(n in c.names for c in proved)}
    return replace(kernel, body=_drop_proved_checks(kernel.body, proved, used))


def _collect(body: Sequence[Stmt], ranges: Ranges, found: Found, once: frozenset[str]) -> None:
    """Bring ``found``, the ranges of index variables, and ``ranges`` up to date behind the statements of ``body``.

    A variable of ``once``, which one statement sets, has the value of that statement wherever it has one: its range is
    also that of readers behind the condition under which it is set.
    """
    for s in body:
        match s:
            case Loop() if s.extent == 1:
                _collect(s.body, ranges, found, once)
            case Loop() | If() | SingleThread() | StraightLineBlock() | BoundsCheck():
                changed = all_sets((s,))
                for name in changed:
                    ranges.known.pop(name, None)
                inner = ranges.without(changed)
                _collect(s.body, inner, found, once)
                if isinstance(s, If | BoundsCheck):
                    ranges.known |= {n: r for n in changed & once if (r := inner.known.get(n)) is not None}
            case Let(name, value):
                r = ranges.of(value, "int64")
                r = r if r is not None and not r.nan and r.within(-LIMIT, LIMIT) else None
                before = found.get(name, r)
                found[name] = None if r is None or before is None else r.joined(before)
            case _:
                ranges.learn(s)


def _narrowed(e: Expr, known: dict[str, Expr]) -> Expr:
    changed = {s: known[s.name] for s in e.symbols if s.name in known}
    return e.substitute(changed) if changed else e


def _drop_proved_checks(body: Sequence[Stmt], proved: set[Expr], known: dict[str, Expr]) -> Body:
    def narrowed(e: Expr) -> Expr:
        return _narrowed(e, known)

    made: list[Stmt] = []
    for s in body:
        if isinstance(s, BoundsCheck) and s.condition in proved:
            made += _drop_proved_checks(s.body, proved, known)
            continue
        if isinstance(s, CompoundStmt):
            s = replace(s, body=_drop_proved_checks(s.body, proved, known))
        made.append(map_statement(s, index=narrowed))
    return tuple(made)
