"""cse: common subexpressions of straight-line code computed once, with copy propagation.

Statements keep their order and their meaning; `dead_code` then drops those that are never read. Lanes need it: a value
that two parts of one loop nest compute privately would be computed twice once both parts stand in one thread. Quotients
by one number have its reciprocal in common.

dead_code: straight-line code without values that are never read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from idgraph.kernel.def_use import all_reads, all_sets, defs, in_lanes, map_statement, reads
from idgraph.kernel.ir import (
    Accumulate,
    BoundsCheck,
    Comment,
    Compute,
    Constant,
    If,
    Kernel,
    Let,
    Local,
    Loop,
    Operand,
    Stmt,
    bodies,
)
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.passes.narrowing import inverse_of


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
    return replace(kernel, body=in_lanes(kernel.body, lambda body: by_one_reciprocal(once_each(body))))


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


def by_one_reciprocal(body: Sequence[Stmt]) -> list[Stmt]:
    """Several divisions by one number, as those of all lanes, by its reciprocal, which they have in common; rounded as
    divisions.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[2] input "x"
    ...   buffer y: float32[2] output "y"
    ...   a: float32 = x[0]
    ...   b: float32 = x[1]
    ...   c: float32 = div(a, 3.0)
    ...   d: float32 = div(b, 3.0)
    ...   y[0] = c
    ...   y[1] = d
    ... ''')
    >>> [(s.op, s.operands[2].value) for s in by_one_reciprocal(k.body) if isinstance(s, Compute)]
    [('div_by', 0.3333333432674408), ('div_by', 0.3333333432674408)]
    """
    count = Counter(by for s in body if (by := _divided_by(s)) is not None)
    times = Counter(x.name for s in body for x in defs(s))
    made: list[Stmt] = []
    inverses: dict[Constant | Local, Operand] = {}
    for s in body:
        by = _divided_by(s)
        if not isinstance(s, Compute) or by is None or count[by] < 2 or (isinstance(by, Local) and times[by.name] > 1):
            inner = tuple(by_one_reciprocal(bodies(s)))
            made.append(replace(s, body=inner) if inner != bodies(s) else s)  # pyright: ignore[reportCallIssue]  # loops
            continue
        if by not in inverses and isinstance(by, Local):
            inverse = Local(f"{s.local.name}_inverse", "float32")
            made.append(Compute(inverse, "reciprocal", (by,), "float32"))
            inverses[by] = inverse
        elif isinstance(by, Constant):
            inverses[by] = inverse_of(by) or by  # `_divided_by` has seen that there is one
        made.append(replace(s, op="div_by", operands=(s.operands[0], by, inverses[by])))
    return made


def _divided_by(s: Stmt) -> Constant | Local | None:
    """The number, or the variable, by which a statement divides in float32."""
    match s:
        case Compute(Local(dtype="float32"), "div", (_, Constant() as by), "float32"):
            return by if inverse_of(by) is not None else None
        case Compute(Local(dtype="float32"), "div", (_, Local(dtype="float32", at=None) as by), "float32"):
            return by
        case _:
            return None


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
