"""The cost of evaluating an expression as printed, counted as a tree.

One unit each for + - * // % min max where compare xor (and a leading minus); joining conditions is free.
"""

from __future__ import annotations

from idgraph.arith.nodes import VERBS, Expr


def cost(e: Expr) -> int:
    """The number of operations in the printed form of ``e``.

    >>> from idgraph.arith import parse
    >>> cost(parse("i*32 + j%8")), cost(parse("8 - i"))
    (3, 1)
    """
    found = e.cached_cost
    if found >= 0:
        return found
    work = [e]
    while work:
        node = work[-1]
        if node.cached_cost >= 0:
            work.pop()
            continue
        missing = [a for a in node.args if a.cached_cost < 0]
        if missing:
            work.extend(missing)
            continue
        node.cached_divmods = (node.op in ("floordiv", "mod")) + sum(a.cached_divmods for a in node.args)
        node.cached_cost = _own(node)
        work.pop()
    return e.cached_cost


def _own(node: Expr) -> int:
    args = node.args
    if node.op == "add":
        total = len(args) - 1
        positive = False
        for t in args:
            total += t.cached_cost
            if (t.value if t.op == "const" else t.coef) > 0:
                positive = True
            elif t.coef == -1:
                total -= 1  # `a - b`: the sign is the operator between the terms
        if not positive and all(t.coef == -1 for t in args if t.op != "const"):
            total += 1
        return total
    total = sum(a.cached_cost for a in args)
    match node.op:
        case "const" | "sym":
            return 0
        case "and" | "or" | "not":
            return total
        case "mul" | "min" | "max" | "xor":
            return total + len(args) - 1
        case _:
            return total + 1


def divmods(e: Expr) -> int:
    """Floor divisions and modulos in ``e``, counted as a tree."""
    cost(e)
    return e.cached_divmods


VERBS.cost = cost
VERBS.divmods = divmods
