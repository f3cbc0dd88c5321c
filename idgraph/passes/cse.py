"""cse: common subexpressions of straight-line code computed once, with copy propagation.

Statements keep their order and their meaning; `dead_code` then drops those that are never read. Lanes need it: a value
that two parts of one loop nest compute privately would be computed twice once both parts stand in one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from idgraph.kernel.defuse import all_sets, in_lanes, map_statement
from idgraph.kernel.ir import BoundsCheck, If, Kernel, Stmt
from idgraph.kernel.value_numbers import ValueNumbering


def eliminate_common_subexpressions(kernel: Kernel) -> Kernel:
    """cse: in lanes, equal values computed once.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[64] input "x"
    ...   buffer y: float32[64] output "y"
    ...   for i < 64:
    ...     lanes:
    ...       t: float32 = x[i]
    ...       a: float32 = exp(t)
    ...       b: float32 = exp(t)
    ...       c: float32 = mul(a, b)
    ...       y[i] = c
    ... ''')
    >>> print(with_values_once(k))
    kernel k():
      buffer x: float32[64] input "x"
      buffer y: float32[64] output "y"
      for i < 64:
        lanes:
          t: float32 = x[i]
          a: float32 = exp(t)
          b: float32 = exp(t)
          c: float32 = mul(a, a)
          y[i] = c
    """
    return replace(kernel, body=in_lanes(kernel.body, once_each))


def once_each(body: Sequence[Stmt]) -> list[Stmt]:
    """Straight-line code that reads each value from the first variable that holds it."""
    return _forward(body, ValueNumbering())


def _forward(body: Sequence[Stmt], values: ValueNumbering) -> list[Stmt]:
    out: list[Stmt] = []
    for s in body:
        s = map_statement(s, read=values.operand)
        if isinstance(s, (If, BoundsCheck)):
            out.append(replace(s, body=tuple(_forward(s.body, values.branch()))))
            values.forget(all_sets(s.body))
            continue
        values.define(s)
        out.append(s)
    return out
