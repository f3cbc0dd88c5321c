"""Divisions by the reciprocal of their divisor, for a GPU: exact, with one test for all of a thread's.

A quotient by the reciprocal is that of the division for all usual numbers. A test of each quotient would be a branch
beside each, across which nothing is computed together. All divisions of neighbouring statements are tested at once:
where one was not usual, the statements run again, with the division itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from idgraph.codegen.ops.formulas import IndexText, inner_text
from idgraph.kernel.ir import Choose, Compute, Half, Load, Loop, Note, PairCompute, Stmt, walk

Body = Sequence[Stmt]


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
    at = 0
    while at < len(body):
        end = at
        while end < len(body) and _runs_again(body[end]):
            end += 1
        found = [n for n in range(at, end) if any(is_division(s) for s in walk((body[n],)))]
        if found:
            if found[0] > at:
                yield body[at : found[0]], False
            yield body[found[0] : found[-1] + 1], True
            at = found[-1] + 1
        else:
            end = max(end, at + 1)
            yield body[at:end], False
            at = end


def _runs_again(s: Stmt) -> bool:
    """Whether a statement may run twice: it computes values of a thread from others, and nothing more."""
    if isinstance(s, Loop):
        return s.parallel == "unroll" and all(map(_runs_again, s.body))
    if isinstance(s, Load):
        return s.buffer.place == "private"
    return isinstance(s, (Compute, Choose, Note, PairCompute, Half))


def divided_by(s: Compute) -> Compute:
    """The division itself."""
    return replace(s, op="div", operands=s.operands[:2])


def operands_of(s: Compute, index: IndexText) -> str:
    """What a division is called with: a, b and 1 / b."""
    return ", ".join(inner_text(o, "float32", index) for o in s.operands)
