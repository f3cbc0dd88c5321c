"""cse: common subexpressions of straight-line code computed once, with copy propagation.

Statements keep their order and their meaning; `dead_code` then drops those that are never read. Lanes need it: a value
that two parts of one loop nest compute privately would be computed twice once both parts stand in one thread.

dead_code: straight-line code without values that are never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from idgraph.kernel.def_use import all_reads, all_sets, defs, in_lanes, map_statement, reads
from idgraph.kernel.ir import Accumulate, BoundsCheck, Comment, If, Kernel, Let, Loop, Stmt, bodies
from idgraph.kernel.value_numbering import ValueNumbering


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
    >>> print(eliminate_common_subexpressions(k))
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


def eliminate_dead_code(kernel: Kernel) -> Kernel:
    """dead_code: in lanes, values that are never read removed.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[64] input "x"
    ...   buffer y: float32[64] output "y"
    ...   for i < 64:
    ...     lanes:
    ...       t: float32 = x[i]
    ...       a: float32 = exp(t)
    ...       y[i] = t
    ... ''')
    >>> print(eliminate_dead_code(k))
    kernel k():
      buffer x: float32[64] input "x"
      buffer y: float32[64] output "y"
      for i < 64:
        lanes:
          t: float32 = x[i]
          y[i] = t
    """
    return replace(kernel, body=in_lanes(kernel.body, lambda body: without_dead(body, set())))


def without_dead(body: Sequence[Stmt], needed: set[str]) -> list[Stmt]:
    """``body`` without locals that nobody reads; ``needed``: names live after it, updated to those live before it.

    >>> from idgraph.kernel.ir import Compute, Local
    >>> x, y, z = (Local(n, "float32") for n in "xyz")
    >>> body = [Compute(y, "neg", (x,), "float32"), Compute(z, "exp", (x,), "float32")]
    >>> [s.op for s in without_dead(body, {"z"})]
    ['exp']
    """
    kept: list[Stmt] = []
    for s in reversed(body):
        if isinstance(s, (If, BoundsCheck)):
            before = set(needed)
            inner = without_dead(s.body, before)
            needed |= before
            if any(not isinstance(x, Comment) for x in inner) or isinstance(s, BoundsCheck):
                kept.append(replace(s, body=tuple(inner)))
            continue
        made = {x.name for x in defs(s)}
        if made and not isinstance(s, (Let, Accumulate)):
            if not needed.intersection(made):
                continue
            needed.difference_update(made)
        needed.update(all_reads((s,)) if bodies(s) else reads(s))
        kept.append(s)
    return kept[::-1]


def without_empty(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """``body`` without loops and tests inside of which nothing stands but notes.

    >>> from idgraph.arith import symbol
    >>> without_empty([If(symbol("i") < 4, (Comment("a"),)), Comment("b")])
    (Comment(text='b'),)
    """
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, Loop | If):
            inner = without_empty(s.body)
            if all(isinstance(x, Comment) for x in inner):
                continue
            s = s if inner == s.body else replace(s, body=inner)
        made.append(s)
    return tuple(made)
