"""join_checks: the checks of several loaded indices of one lane together, so that what they address is loaded together.

A check ends in a branch that reports a fault, and no compiler moves a load across it: the rows of a second index would
be asked for when those of the first have come. The second check moves into the first one, and what computes its index
in front of both; the first index that is out of range is still the one that is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise

from idgraph.arith import Expr, symbol
from idgraph.kernel.defuse import Effects, all_reads, all_sets, everywhere, in_lanes, rewritten
from idgraph.kernel.ir import Checked, Choose, Compute, Declare, If, Kernel, Let, Load, Local, Note, Operand, Stmt, walk

Body = tuple[Stmt, ...]
MOST = 8  # checks inside of each other


def with_joined_checks(kernel: Kernel) -> Kernel:
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
    if sum(isinstance(s, Checked) for s in walk(kernel.body)) < 2:
        return kernel
    taken = set(all_sets(kernel.body) | all_reads(kernel.body))
    return replace(kernel, body=in_lanes(kernel.body, lambda body: _Checks(taken).joined(tuple(body))))


@dataclass(slots=True)
class _Checks:
    """The checks of one lane; ``taken`` are names in use."""

    taken: set[str]
    numbers: count[int] = field(default_factory=lambda: count(2))

    def joined(self, body: Body) -> Body:
        """The statements with each check inside of the one before, where it may move there; so under tests."""
        body = tuple(replace(s, body=self.joined(s.body)) if isinstance(s, If) else s for s in body)
        return self.level(body)

    def level(self, body: Body) -> Body:
        """The same of one level."""
        at = [n for n, s in enumerate(body) if isinstance(s, Checked) and not s.always]
        for first, second in pairwise(at):
            made = self.together(body, first, second)
            if made is not None:
                return self.level(made)
        return body

    def together(self, body: Body, first: int, second: int) -> Body | None:
        """Two checks as one; None where what stands between them, or the second one, may not move."""
        outer = body[first]
        rest = self.apart(outer, body[first + 1 :])
        inner, between = rest[second - first - 1], rest[: second - first - 1]
        if not isinstance(outer, Checked) or not isinstance(inner, Checked) or _depth(outer) + _depth(inner) > MOST:
            return None
        early: list[Stmt] = []
        late: list[Stmt] = []
        after = Effects.of((outer,))
        for s in between:
            if not isinstance(s, (Note, Compute, Choose, Load, Let, Declare)):
                return None
            effects = Effects.of((s,))
            if effects.waits_for(after):
                late.append(s)
                after |= effects
            else:
                early.append(s)
        if any(_is_read(x.condition, after) for x in walk((inner,)) if isinstance(x, Checked)):
            return None

        def body_of(own: Body) -> Body:
            return (_inside(inner, lambda more: (*own, *late, *more)),)

        return (*body[:first], *early, _inside(outer, body_of), *rest[second - first :])

    def apart(self, outer: Stmt, rest: Sequence[Stmt]) -> Body:
        """``rest`` with other names for the indices whose names stand for those of ``outer`` too."""
        used = all_reads((outer,)) | all_sets((outer,))
        made: list[Stmt] = []
        names: dict[str, str] = {}

        def index(e: Expr) -> Expr:
            found = {s: symbol(names[s.name], *s.symbol_bounds) for s in e.symbols if s.name in names}
            return e.substitute(found) if found else e

        def read(o: Operand) -> Operand:
            return Local(names[o.name], o.dtype) if isinstance(o, Local) and o.name in names else o

        def renamed(s: Stmt) -> Stmt:
            s = rewritten(s, read=read, index=index)
            return replace(s, value=names[s.value]) if isinstance(s, Checked) and s.value in names else s

        for s in rest:
            s = everywhere((s,), renamed)[0] if names else s
            if isinstance(s, Let) and s.name in used:
                fresh = next(x for n in self.numbers if (x := f"{s.name}_j{n}") not in self.taken)
                self.taken.add(fresh)
                names[s.name] = fresh
                s = replace(s, name=fresh)
            made.append(s)
        return tuple(made)


def _depth(s: Checked) -> int:
    return sum(isinstance(x, Checked) for x in walk((s,)))


def _is_read(e: Expr, after: Effects) -> bool:
    return bool(e.names & after.sets)


def _inside(s: Checked, made: Callable[[Body], Body]) -> Checked:
    """``s`` with other statements in the innermost of its checks, where these stand alone in each other."""
    if len(s.body) == 1 and isinstance(s.body[0], Checked) and not s.body[0].always:
        return replace(s, body=(_inside(s.body[0], made),))
    return replace(s, body=made(s.body))
