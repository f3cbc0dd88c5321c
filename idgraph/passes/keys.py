"""keys: an extremum of floats, over the steps of a loop, as the largest of integers in the same order.

The steps of a maximum of floats cannot be taken in another order (NaN is above all, and -0.0 beside 0.0), those of
integers can, so that they run as vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from idgraph.arith import is_true
from idgraph.ir import is_float, item_size
from idgraph.kernel.defuse import reads, sets
from idgraph.kernel.ir import (
    Accumulate,
    AccumulateOp,
    Checked,
    Compute,
    Declare,
    If,
    Kernel,
    Lanes,
    Local,
    Loop,
    Single,
    Stmt,
    walk,
)
from idgraph.kernel.ssa import single

LOWEST = -(2**31)  # below the key of every float32
_EXTREMA = ("amax", "amin")
Body = tuple[Stmt, ...]


def keyed(kernel: Kernel) -> Kernel:
    """keys: extrema of rows among 32-bit integers.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[64] input "x"
    ...   buffer y: float32[1] output "y"
    ...   acc m: float32 = -inf
    ...   for i < 64:
    ...     u: float32 = x[i]
    ...     m <- amax u
    ...   y[0] = m
    ... ''')
    >>> print(keyed(k))
    kernel k():
      buffer x: float32[64] input "x"
      buffer y: float32[1] output "y"
      acc m: float32 = -inf
      acc m_key: int32 = -2147483648
      for i < 64:
        u: float32 = x[i]
        m_number: int32 = order_key(u) in float32
        m_key <- amax m_number
      m_top: float32 = order_value(m_key) in int32
      m <- amax m_top
      y[0] = m
    """
    return replace(kernel, body=single(_level(kernel.body)))


def _level(body: Sequence[Stmt]) -> Body:
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, Loop) and _is_innermost(s) and is_true(s.extent >= 1):
            made += _by_keys(s)
        elif isinstance(s, (Loop, If, Single, Lanes, Checked)):
            made.append(replace(s, body=_level(s.body)))
        else:
            made.append(s)
    return tuple(made)


def _is_innermost(s: Loop) -> bool:
    """A loop on one core without loops inside: the outer ones take its results one by one."""
    return s.parallel == "serial" and not any(isinstance(x, Loop) for x in walk(s.body))


def _by_keys(s: Loop) -> list[Stmt]:
    before: list[Stmt] = []
    after: list[Stmt] = []
    body: list[Stmt] = []
    alone = _only_extrema(s)
    for x in s.body:
        match x:
            case Accumulate(acc, op, Local() as value, None, running=None) if acc.name in alone:
                first, each, last = _by_key(acc, op, value)
                before += first
                body += each
                after += last
            case _:
                body.append(x)
    return [*before, replace(s, body=tuple(body)), *after]


def _only_extrema(s: Loop) -> frozenset[str]:
    """Variables that all steps together only raise, or only lower: nothing else in the loop reads or sets them."""
    ops: dict[str, set[str]] = {}
    others: set[str] = set()
    for x in walk(s.body):
        if isinstance(x, Accumulate) and x.buffer is None and x.running is None and _is_keyed(x):
            ops.setdefault(x.acc.name, set()).add(x.op)
            others |= {x.value.name} if isinstance(x.value, Local) else reads(x) - {x.acc.name}
        else:
            others |= reads(x) | sets(x)
    return frozenset(name for name, found in ops.items() if len(found) == 1) - others


def _is_keyed(x: Accumulate) -> bool:
    return x.op in _EXTREMA and is_float(x.acc.dtype) and item_size(x.acc.dtype) <= 4


def _by_key(acc: Local, op: AccumulateOp, value: Local) -> tuple[list[Stmt], list[Stmt], list[Stmt]]:
    """(before, for each column, after) of an extremum of float32 values by integers in the same order."""
    key, top = Local(f"{acc.name}_key", "int32"), Local(f"{acc.name}_top", "float32")
    found = value if op == "amax" else Local(f"{acc.name}_neg", "float32")
    turned: list[Stmt] = [] if op == "amax" else [Compute(found, "neg", (value,), "float32")]
    last = top if op == "amax" else Local(f"{acc.name}_end", "float32")
    back: list[Stmt] = [] if op == "amax" else [Compute(last, "neg", (top,), "float32")]
    number = Local(f"{acc.name}_number", "int32")
    return (
        [Declare(key.name, key.dtype, LOWEST)],
        [*turned, Compute(number, "order_key", (found,), "float32"), Accumulate(key, "amax", number)],
        [Compute(top, "order_value", (key,), "int32"), *back, Accumulate(acc, op, last)],
    )
