"""Conditions for axis expressions to have elements, and whether a condition can be met."""

from __future__ import annotations

from idgraph.arith import FALSE, TRUE, Expr, is_true, not_, prove, simplify
from idgraph.arith.proofs import Proof
from idgraph.ir import DomainExpr, Resize, Stride

_POINTS = 1 << 16  # points looked at to see whether a condition holds anywhere


def bounds(e: DomainExpr, ins: tuple[Expr, ...], outs: tuple[Expr, ...]) -> list[Expr]:
    """The condition that axes of an expression have elements at these coordinates, as far as it decides that."""
    if not isinstance(e, (Resize, Stride)):
        return []
    found = [ins[0] >= 0, ins[0] < e.source.extent, outs[0] >= 0, outs[0] < e.out.extent]
    if isinstance(e, Stride) and e.step not in (1, -1):
        found.append(((ins[0] - e.start) % e.step).eq(0))  # between the steps there is no element
    return found


def possible(condition: Expr) -> Expr:
    """The condition simplified; FALSE where it is known to hold nowhere."""
    found = simplify(condition)
    if found is TRUE or found is FALSE:
        return found
    size = 1
    for s in found.symbols:
        count = s.range.size
        size = 0 if count is None else size * count
    if 0 < size <= _POINTS:
        return FALSE if isinstance(prove(not_(found)), Proof) else found
    return FALSE if is_true(not_(found)) else found
