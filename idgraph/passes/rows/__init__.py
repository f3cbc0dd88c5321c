"""Rows: loops over the columns of one row as one sweep, sweeps joined so that a row is read once, cut into chunks.

Stages: `sweep` (the body of a loop over columns, at one column), `join` (neighbouring sweeps become one; sums that
depend on a maximum are rescaled as it grows), `chunks` (each thread takes aligned pieces of 16 bytes).

User symbols with the name of a variable that passes make, under another name inside the kernels.
"""

from __future__ import annotations

import re
from dataclasses import replace

from idgraph.kernel.def_use import map_body, map_statement, renamed_symbols
from idgraph.kernel.ir import PRIME, KernelModule, Stmt
from idgraph.passes.rows.reduction_codegen import with_rows
from idgraph.passes.rows.reduction_loop import COLUMN
from idgraph.passes.slp_rerolling import LANE

__all__ = ["with_rows"]

_VARIABLE = re.compile(rf"({COLUMN}|{'|'.join(LANE)}|carry|peel|interchange)(_.*)?")  # names that passes give


def rename_conflicting_symbols(plan: KernelModule) -> KernelModule:
    """rename_columns: user symbols renamed that have the name of a variable of columns, lanes or digits.

    Such a symbol gets a prime, which no user symbol has; kernels take the same numbers as before.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k(c):
    ...   where c in 1, _
    ...   buffer x: float32[c] input "x"
    ...   buffer y: float32[c] output "y"
    ...   for i < c:
    ...     v: float32 = x[i]
    ...     y[i] = v
    ... ''')
    >>> print(rename_conflicting_symbols(KernelModule((k,), (), {"c": "n0"}, {})).kernels[0])
    kernel k(c'):
      where c in 1, _
      where `c'` in 1, _
      buffer x: float32[c] input "x"
      buffer y: float32[c] output "y"
      for i < `c'`:
        v: float32 = x[i]
        y[i] = v
    """
    other = {s: f"{s}{PRIME}" for s in plan.names if _VARIABLE.fullmatch(s)}
    if not other:
        return plan

    def statement(s: Stmt) -> Stmt:
        return map_statement(s, index=lambda e: renamed_symbols(e, other))

    kernels = tuple(
        replace(k, scalars=tuple(other.get(s, s) for s in k.scalars), body=map_body(k.body, statement))
        for k in plan.kernels
    )
    return replace(plan, kernels=kernels, names={other.get(s, s): name for s, name in plan.names.items()})
