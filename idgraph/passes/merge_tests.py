"""merge_tests: neighbouring tests of one condition as one, so that code behind the first knows what it computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from idgraph.kernel.defuse import in_lanes, names
from idgraph.kernel.ir import BoundsCheck, Comment, If, InitAccumulator, Kernel, Stmt, walk


def merge_adjacent_branches(kernel: Kernel) -> Kernel:
    """merge_tests: neighbouring tests of one condition in lanes as one.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer y: float32[64] output "y"
    ...   for i < 32:
    ...     lanes:
    ...       if i < 20:
    ...         y[i*2] = 1.0
    ...       if i < 20:
    ...         y[i*2 + 1] = 2.0
    ... ''')
    >>> print(with_joined_tests(k))
    kernel k():
      buffer y: float32[64] output "y"
      for i < 32:
        lanes:
          if i < 20:
            y[i*2] = 1.0
            y[i*2 + 1] = 2.0
    """
    return replace(kernel, body=in_lanes(kernel.body, joined_tests))


def joined_tests(body: Sequence[Stmt]) -> list[Stmt]:
    """Neighbouring tests of one condition as one; comments and first values that stand between them move in front."""
    made: list[Stmt] = []
    for s in body:
        at = next((n for n in range(len(made) - 1, -1, -1) if not isinstance(made[n], (Comment, InitAccumulator))), -1)
        last = made[at] if at >= 0 else None
        if isinstance(s, If) and isinstance(last, If) and last.condition == s.condition:
            first_values = [d for d in made[at + 1 :] if isinstance(d, InitAccumulator)]
            if not any(d.name in names(x) for d in first_values for x in walk(last.body)):
                notes = [n for n in made[at + 1 :] if isinstance(n, Comment)]
                made[at:] = [*first_values, replace(s, body=(*last.body, *notes, *s.body))]
                continue
        made.append(s)
    return [replace(s, body=tuple(joined_tests(s.body))) if isinstance(s, If | BoundsCheck) else s for s in made]
