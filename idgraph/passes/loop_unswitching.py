"""unswitch: a loop whose body tests the same condition at every step becomes one loop for each outcome.

LLVM does so for short bodies only, and vectorises no body that branches: the halves of a rotation are two loops.

keep_rolled: loops that reduce a row hide their number of steps from the compiler.

LLVM writes loops of few known steps out before it looks for vectors: a sum over 48 or 64 channels then becomes scalar
code, 5 to 10 times slower, and blocks of one row are read side by side, as 16 streams of memory instead of one. A loop
that is ``mark_nounroll`` runs like a serial one; its extent is known to every pass and to `verify`, and not to LLVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from idgraph.arith import Expr, not_, simplify
from idgraph.kernel.def_use import all_sets, map_body, read_only_buffers
from idgraph.kernel.ir import (
    Accumulate,
    BoundsCheck,
    If,
    Kernel,
    Loop,
    SingleThread,
    Stmt,
    StraightLineBlock,
    bodies,
    walk,
)
from idgraph.kernel.ssa import to_ssa
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.passes.cse_dce import without_dead, without_empty
from idgraph.passes.lane_unrolling import Lane, LaneExpansion, conditions_of

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
        kernel, body=to_ssa(without_empty(_unswitch_body(kernel.body, read_only_buffers(kernel.buffers, kernel.body))))
    )


def _unswitch_body(body: Sequence[Stmt], read_only: frozenset[str]) -> Body:
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, Loop) and _is_straight(s):
            made += _sides(s, read_only, ())
        elif isinstance(s, (Loop, If, SingleThread, StraightLineBlock, BoundsCheck)):
            made.append(replace(s, body=_unswitch_body(s.body, read_only)))
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


LEAST_ROLLED = 9  # steps; fewer are best written out


def mark_nounroll(kernel: Kernel) -> Kernel:
    """keep_rolled: reductions of known extent, not to be written out.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[192] input "x"
    ...   buffer y: float32[3] output "y"
    ...   for i < 3:
    ...     acc s: float32 = 0.0
    ...     for c < 64:
    ...       v: float32 = x[i*64 + c]
    ...       s <- sum v
    ...     y[i] = s
    ... ''')
    >>> print(mark_nounroll(k))
    kernel k():
      buffer x: float32[192] input "x"
      buffer y: float32[3] output "y"
      for i < 3:
        acc s: float32 = 0.0
        for c < 64, rolled, carries s:
          v: float32 = x[c + i*64]
          s <- sum v
        y[i] = s
    """
    return replace(kernel, body=map_body(kernel.body, _rolled))


def _rolled(s: Stmt) -> Stmt:
    if not (isinstance(s, Loop) and s.parallel == "serial" and s.extent.is_const and int(s.extent) >= LEAST_ROLLED):
        return s
    sums = any(isinstance(x, Accumulate) and x.buffer is None and x.running is None for x in walk(s.body))
    return replace(s, parallel="rolled") if sums else s
