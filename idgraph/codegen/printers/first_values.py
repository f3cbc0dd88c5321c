"""First values for variables that are set under a condition, or in an inner loop, and read under another.

The conditions agree, so no such value is ever used. But numba's parallel loops take a variable that some path leaves
without a value to be the same in every iteration.
"""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.kernel.defuse import defs
from idgraph.kernel.ir import Compute, Load, Local, Select, Stmt, walk
from idgraph.kernel.ssa import live_out


def without_value(s: Stmt, after: Sequence[Stmt]) -> list[Local]:
    """The variables that some path through ``s`` leaves without a value, and statements ``after`` it read.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[8] input "x"
    ...   buffer y: float32[8] output "y"
    ...   for i < 8:
    ...     if i < 4:
    ...       t: float32 = x[i]
    ...     if i < 4:
    ...       y[i] = t
    ... ''')
    >>> first, *rest = k.body[0].body
    >>> [str(x) for x in without_value(first, rest)]
    ['t']
    """
    names = live_out(s, after)
    made = [x for y in walk((s,)) if isinstance(y, (Load, Compute, Select)) for x in defs(y)] if names else []
    return [x for x in made if x.name in names]
