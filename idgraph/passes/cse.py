"""cse: straight code with equal values computed once, copies read through, and nothing left that nobody reads.

Statements keep their order and their meaning; only locals disappear. Lanes need it: a value that two parts of one loop
nest compute privately is one value once both parts stand in one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from idgraph.kernel.defuse import all_sets, rewritten
from idgraph.kernel.ir import Checked, If, Stmt
from idgraph.kernel.values import Values
from idgraph.passes.dead_code import without_dead


def once_each(body: Sequence[Stmt]) -> list[Stmt]:
    """``body``, in which every local that is set is also read inside it only, with equal values made once.

    >>> from idgraph.kernel.ir import Compute, Local
    >>> x, y, z, u = (Local(n, "float32") for n in "xyzu")
    >>> twice = [Compute(y, "exp", (x,), "float32"), Compute(z, "exp", (x,), "float32")]
    >>> [s.operands for s in _forward([*twice, Compute(u, "add", (y, z), "float32")], Values())][-1]
    (Local(name='y', dtype='float32', at=None), Local(name='y', dtype='float32', at=None))
    """
    return without_dead(_forward(body, Values()), set())


def _forward(body: Sequence[Stmt], values: Values) -> list[Stmt]:
    out: list[Stmt] = []
    for s in body:
        s = rewritten(s, read=values.operand)
        if isinstance(s, (If, Checked)):
            out.append(replace(s, body=tuple(_forward(s.body, values.branch()))))
            values.forget(all_sets(s.body))
            continue
        values.define(s)
        out.append(s)
    return out
