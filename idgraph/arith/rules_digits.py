"""The rule of digits: an index split and merged again is one sum of quotients."""

from __future__ import annotations

from idgraph.arith.digits import as_digits, mixed_radix_form, shortest
from idgraph.arith.engine import rule
from idgraph.arith.expr_cost import cost
from idgraph.arith.linear import terms
from idgraph.arith.nodes import Expr, from_terms


@rule(
    "written",
    "digits-kept",
    "(a*(x//s) + y) // (a*d), (a*(x//s) + y) % (a*d)",
    "x//(s*d), a*(x//s % d) + y",
    "y is a sum of digits below a: it is cheaper",
)
def digits_kept(node: Expr) -> Expr | None:
    """Any number of cuts at once, tried before the operands are rewritten: that may hide that they are digits."""
    if not any(b.op in ("floordiv", "mod") and b.args[0].divmods for b in terms(node)[0]):
        return None
    found = mixed_radix_form(node)
    if found is None:
        return None
    for made in (as_digits, shortest):
        out = from_terms(*made(found))
        if cost(out) < cost(node):
            return out
    return None
