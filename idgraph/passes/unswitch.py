"""unswitch: a loop whose body tests the same condition at every step becomes one loop for each outcome.

LLVM does so for short bodies only, and vectorises no body that branches: the halves of a rotation are two loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from idgraph.arith import Expr, not_, simplify
from idgraph.kernel.defuse import all_sets, read_only_buffers
from idgraph.kernel.ir import BoundsCheck, If, Kernel, Loop, SingleThread, Stmt, StraightLineBlock, bodies
from idgraph.kernel.ssa import to_ssa
from idgraph.kernel.value_numbers import ValueNumbering
from idgraph.passes.dead_code import without_dead, without_empty
from idgraph.passes.unroll import Lane, LaneExpansion, conditions_of

MAX_SIDES = 2  # nested conditions by which a loop is written again
LEAST_UNSWITCHED = 16  # steps that are worth a second loop
Body = tuple[Stmt, ...]


def unswitched(kernel: Kernel) -> Kernel:
    """unswitch: innermost loops without conditions that no step changes.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[256] input "x"
    ...   buffer y: float32[256] output "y"
    ...   for r < 4:
    ...     for c < 64:
    ...       if r < 2:
    ...         u: float32 = x[r*64 + c + 128]
    ...       v: float32 = choose(r < 2 ? u, 0.0)
    ...       y[r*64 + c] = v
    ... ''')
    >>> print(unswitched(k))
    kernel k():
      buffer x: float32[256] input "x"
      buffer y: float32[256] output "y"
      for r < 4:
        if r < 2:
          for c < 64:
            u: float32 = x[c + r*64 + 128]
            v: float32 = choose(u)
            y[c + r*64] = v
        if r >= 2:
          for c < 64:
            v_s2: float32 = choose(0.0)
            y[c + r*64] = v_s2
    """
    return replace(
        kernel, body=to_ssa(without_empty(_level(kernel.body, read_only_buffers(kernel.buffers, kernel.body))))
    )


def _level(body: Sequence[Stmt], read_only: frozenset[str]) -> Body:
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, Loop) and _is_straight(s):
            made += _sides(s, read_only, ())
        elif isinstance(s, (Loop, If, SingleThread, StraightLineBlock, BoundsCheck)):
            made.append(replace(s, body=_level(s.body, read_only)))
        else:
            made.append(s)
    return tuple(made)


def _is_straight(s: Loop) -> bool:
    """An innermost loop on one core, of more than a few steps."""
    stack, plain = list(s.body), s.parallel == "serial" and (not s.extent.is_const or int(s.extent) >= LEAST_UNSWITCHED)
    while stack and plain:
        x = stack.pop()
        plain = not isinstance(x, (Loop, SingleThread, StraightLineBlock))
        stack += bodies(x)
    return plain


def _sides(s: Loop, read_only: frozenset[str], facts: tuple[Expr, ...]) -> list[Stmt]:
    """``s`` where the facts hold: once for each outcome of a test that none of its steps changes."""
    moving = {s.var} | all_sets(s.body)
    fixed = [c for c in conditions_of(s.body) if not c.names & moving] if len(facts) < MAX_SIDES else []
    if not fixed:
        return [s]
    made: list[Stmt] = []
    for c in (fixed[0], simplify(not_(fixed[0]))):
        known = (*facts, c)
        body = without_dead(
            LaneExpansion(ValueNumbering(read_only)).expand(s.body, [Lane((), {}, facts=known)], {}), set()
        )
        made.append(If(c, tuple(_sides(replace(s, body=tuple(body)), read_only, known))))
    return made
