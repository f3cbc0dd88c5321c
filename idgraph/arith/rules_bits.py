"""Sums, quotients and remainders that are linear over the bits of numbers; tried before the rules of division."""

from __future__ import annotations

from idgraph.arith.bits import diagonals, from_diagonals, power_of_two
from idgraph.arith.engine import normal, rule
from idgraph.arith.expr_cost import cost
from idgraph.arith.linear import terms
from idgraph.arith.nodes import Expr


def less(a: Expr, b: Expr) -> bool:
    """Whether ``a`` is cheaper, with no more quotients and remainders."""
    return cost(a) < cost(b) and a.divmods <= b.divmods


@rule(
    "floordiv mod add", "bit-digits", "(x - 2*(x//4)) // 2 % 2", "x // 2 % 2", "a sum of weighted bits; it is cheaper"
)
def bit_digits(node: Expr) -> Expr | None:
    """Bits of one number stay its digits, wherever a sum puts them."""
    if node.op == "add":
        t, _ = terms(node)
    elif node.args[0].op == "add" and power_of_two(node.args[1].value):
        t, _ = terms(node.args[0])
    else:
        return None
    if sum(b.op in ("floordiv", "mod") and b.args[1].op == "const" and power_of_two(b.args[1].value) for b in t) < 2:
        return None
    found = diagonals(node)
    made = None if found is None else from_diagonals(found)
    if made is None or made == node or cost(made) > cost(node) + 2:
        return None
    made = normal(made)
    return made if less(made, node) else None
