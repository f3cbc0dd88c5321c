"""join_checks: the checks of several loaded indices of one lane together, so that what they address is loaded together.

A check ends in a branch that reports a fault, and no compiler moves a load across it: the rows of a second index would
be asked for when those of the first have come. The second check moves into the first one, and what computes its index
in front of both; the first index that is out of range is still the one that is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from idgraph.arith import Expr
from idgraph.kernel.defuse import Effects, in_lanes
from idgraph.kernel.ir import BoundsCheck, Comment, Compute, If, InitAccumulator, Kernel, Let, Load, Select, Stmt, walk

Body = tuple[Stmt, ...]
MOST = 8  # checks inside of each other


def merge_bounds_checks(kernel: Kernel) -> Kernel:
    """join_checks: the checks of several loaded indices together, with what they address.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   where a in _, _
    ...   where b in _, _
    ...   buffer i: int64[4] input "i"
    ...   buffer x: float32[7] input "x"
    ...   buffer y: float32[4] output "y"
    ...   for r < 4:
    ...     lanes:
    ...       t0: int64 = i[r]
    ...       let a = t0
    ...       check (a >= 0) & (a < 7), of a, site "x", axis 0, extent 7, index "i", in "y", at "f.py:1":
    ...         t1: float32 = x[a]
    ...       t2: float32 = neg(t1)
    ...       t3: int64 = add(t0, 1)
    ...       let b = t3
    ...       check (b >= 0) & (b < 7), of b, site "x", axis 0, extent 7, index "i", in "y", at "f.py:2":
    ...         t4: float32 = x[b]
    ...       t5: float32 = add(t2, t4)
    ...       y[r] = t5
    ... ''')
    >>> print(with_joined_checks(k))
    kernel k():
      where a in _, _
      where b in _, _
      buffer i: int64[4] input "i"
      buffer x: float32[7] input "x"
      buffer y: float32[4] output "y"
      for r < 4:
        lanes:
          t0: int64 = i[r]
          let a = t0
          t3: int64 = add(t0, 1)
          let b = t3
          check (a >= 0) & (a < 7), of a, site "x", axis 0, extent 7, index "i", in "y", at "f.py:1":
            check (b >= 0) & (b < 7), of b, site "x", axis 0, extent 7, index "i", in "y", at "f.py:2":
              t1: float32 = x[a]
              t2: float32 = neg(t1)
              t4: float32 = x[b]
          t5: float32 = add(t2, t4)
          y[r] = t5
    """
    if sum(isinstance(s, BoundsCheck) for s in walk(kernel.body)) < 2:
        return kernel
    return replace(kernel, body=in_lanes(kernel.body, _joined))


def _joined(body: Sequence[Stmt]) -> Body:
    """The statements with each check inside of the one before, where it may move there; so under tests."""
    return _level(tuple(replace(s, body=_joined(s.body)) if isinstance(s, If) else s for s in body))


def _level(body: Body) -> Body:
    """The same of one level."""
    at = [n for n, s in enumerate(body) if isinstance(s, BoundsCheck) and not s.always]
    for first, second in pairwise(at):
        made = _together(body, first, second)
        if made is not None:
            return _level(made)
    return body


def _together(body: Body, first: int, second: int) -> Body | None:
    """Two checks as one; None where what stands between them, or the second one, may not move."""
    outer = body[first]
    inner, between = body[second], body[first + 1 : second]
    if not isinstance(outer, BoundsCheck) or not isinstance(inner, BoundsCheck) or _depth(outer) + _depth(inner) > MOST:
        return None
    early: list[Stmt] = []
    late: list[Stmt] = []
    after = Effects.of((outer,))
    for s in between:
        if not isinstance(s, (Comment, Compute, Select, Load, Let, InitAccumulator)):
            return None
        effects = Effects.of((s,))
        if effects.waits_for(after):
            late.append(s)
            after |= effects
        else:
            early.append(s)
    if any(_is_read(x.condition, after) for x in walk((inner,)) if isinstance(x, BoundsCheck)):
        return None

    def body_of(own: Body) -> Body:
        return (_inside(inner, lambda more: (*own, *late, *more)),)

    return (*body[:first], *early, _inside(outer, body_of), *body[second + 1 :])


def _depth(s: BoundsCheck) -> int:
    return sum(isinstance(x, BoundsCheck) for x in walk((s,)))


def _is_read(e: Expr, after: Effects) -> bool:
    return bool(e.names & after.sets)


def _inside(s: BoundsCheck, made: Callable[[Body], Body]) -> BoundsCheck:
    """``s`` with other statements in the innermost of its checks, where these stand alone in each other."""
    if len(s.body) == 1 and isinstance(s.body[0], BoundsCheck) and not s.body[0].always:
        return replace(s, body=(_inside(s.body[0], made),))
    return replace(s, body=made(s.body))
