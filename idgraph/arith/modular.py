"""Divisibility of sums with remainders in them: modulo k, where k divides c*m, c*(x % m) is c*x.

`i + 131071*(i % 64)`, which is `i//64*64 + i%64*131072` in its shorter form, is a multiple of 64 by that.
"""

from __future__ import annotations

from idgraph.arith.linear import Terms, add_to, terms
from idgraph.arith.nodes import Expr, from_terms
from idgraph.arith.ranges import multiple_of

_ROUNDS = 4  # remainders inside remainders


def divisible(e: Expr, k: int) -> bool:
    """Whether every value of ``e`` is proved to be a multiple of ``k``, also through remainders.

    >>> from idgraph.arith import parse, multiple_of
    >>> e = parse("i + 131071*(i % 64)", {"i": 4096})
    >>> multiple_of(e, 4), divisible(e, 4), divisible(e, 64), divisible(e, 128)
    (False, True, True, False)
    """
    for _ in range(_ROUNDS):
        if multiple_of(e, k):
            return True
        if k == 0:
            return False
        known, constant = terms(e)
        reduced: Terms = {}
        for base, c in known.items():
            if base.op == "mod" and base.args[1].op == "const" and c * base.args[1].value % k == 0:
                inside, more = terms(base.args[0])
                add_to(reduced, inside, c)
                constant += more * c
            else:
                add_to(reduced, {base: c}, 1)
        made = from_terms({base: c % k for base, c in reduced.items() if c % k}, constant % k)
        if made == e:
            return False
        e = made
    return multiple_of(e, k)
