"""Divisions by the reciprocal of their divisor, for a GPU: exact, with one test for all of a thread's.

A quotient by the reciprocal is that of the division for all usual numbers. A test of each quotient would be a branch
beside each, across which nothing is computed together. All divisions of neighbouring statements are tested at once:
where one was not usual, the statements run again, with the division itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from idgraph.codegen.ops.formulas import IndexText, inner_text
from idgraph.ir.optable import OPERATIONS
from idgraph.kernel.ir import Comment, Compute, ExtractHalf, Half2Op, Load, Loop, Select, Stmt

Body = Sequence[Stmt]
MOST = 8  # divisions that are tested at once: what they need stays in registers until then


def is_division(s: Stmt) -> bool:
    """A division by a number whose reciprocal is known."""
    return isinstance(s, Compute) and s.op == "div_by"


def divided(body: Body) -> Iterator[tuple[Body, bool]]:
    """``body`` in parts; True beside those with divisions that are tested at once, and may run again.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[4] input "x"
    ...   buffer y: float32[4] output "y"
    ...   for i < 2:
    ...     a: float32 = x[i]
    ...     c: float32 = reciprocal(a)
    ...     d: float32 = div_by(2, a, c)
    ...     e: float32 = add(d, 1)
    ...     f: float32 = div_by(e, a, c)
    ...     y[i] = f
    ... ''')
    >>> [(len(part), again) for part, again in divided(k.body[0].body)]
    [(2, False), (3, True), (1, False)]
    """
    plain, part, last, many = 0, 0, 0, 0  # what begins at ``plain`` has no divisions; those of ``part`` end at ``last``
    for n, s in enumerate((*body, Comment(""))):
        more = divisions(s) if _runs_again(s) and n < len(body) else 0
        if many and (not _runs_again(s) or n == len(body) or (more and many + more > MOST)):
            if part > plain:
                yield body[plain:part], False
            yield body[part : last + 1], True
            plain, many = last + 1, 0
        if more:
            part, last, many = n if not many else part, n, many + more
    if plain < len(body):
        yield body[plain:], False


def divisions(s: Stmt) -> int:
    """How many divisions by reciprocals a statement has, in all steps of its loops."""
    if isinstance(s, Loop):
        return sum(map(divisions, s.body)) * (int(s.extent) if s.extent.is_const else MOST)
    return int(is_division(s))


def steps_together(body: Body) -> int | None:
    """The steps whose divisions are tested at once, of a loop that alone has more than ``MOST``; None of all others."""
    if len(body) != 1 or not isinstance(body[0], Loop) or divisions(body[0]) <= MOST:
        return None
    each = divisions(body[0]) // int(body[0].extent)
    return next((n for n in range(MOST // each, 0, -1) if int(body[0].extent) % n == 0), 1) if each <= MOST else 1


def _runs_again(s: Stmt) -> bool:
    """Whether a statement may run twice: it computes values of a thread from others, at little cost, and no more."""
    if isinstance(s, Loop):
        return s.parallel == "unroll" and s.extent.is_const and all(map(_runs_again, s.body))
    if isinstance(s, Load):
        return s.buffer.place == "private"
    if isinstance(s, Compute):
        return s.op not in OPERATIONS or OPERATIONS[s.op].cycles != "library"
    return isinstance(s, (Select, Comment, Half2Op, ExtractHalf))


def divided_by(s: Compute) -> Compute:
    """The division itself."""
    return replace(s, op="div", operands=s.operands[:2])


def operands_of(s: Compute, index: IndexText) -> str:
    """The arguments of a division: a, b and 1 / b."""
    return ", ".join(inner_text(o, "float32", index) for o in s.operands)
