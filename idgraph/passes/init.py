"""First values for locals that are set under one condition, or in one inner loop, and read under another.

The conditions agree, so no such value is ever used. But numba's parallel loops take a variable that some path leaves
without a value to be the same in every iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from idgraph.ir import DType
from idgraph.kernel.defuse import locals_read, made_by, read_before_set
from idgraph.kernel.ir import Choose, Compute, Declare, Kernel, Load, Loop, Stmt, walk


def with_first_values(kernel: Kernel) -> Kernel:
    """init: every variable of an outermost loop set before any path reads it.

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
    >>> print(with_first_values(k))
    kernel k():
      buffer x: float32[8] input "x"
      buffer y: float32[8] output "y"
      for i < 8:
        t: float32 = 0
        if i < 4:
          t: float32 = x[i]
        if i < 4:
          y[i] = t
    """
    return replace(kernel, body=tuple(_level(kernel.body)))


def _level(body: Sequence[Stmt]) -> list[Stmt]:
    made: list[Stmt] = []
    known: set[str] = set()  # a loop that goes on from a value has it from here, in every iteration
    for s in body:
        made.append(_loop(s, known) if isinstance(s, Loop) else s)
        known.update(x.name for x in made_by(s))
    return made


def _loop(s: Loop, known: set[str]) -> Loop:
    types: dict[str, DType] = {}
    for x in walk(s.body):
        match x:
            case Load(local) | Compute(local) | Choose(local):
                types[local.name] = local.dtype
            case _:
                pass
    missing = read_before_set(s.body, locals_read, known, scoped=True)
    first = [Declare(name, types[name], 0) for name in missing if name in types]
    return replace(s, body=(*first, *s.body)) if first else s
