"""unswitch: a loop whose body tests the same condition at every step becomes one loop for each outcome.

LLVM does so for short bodies only, and vectorises no body that branches: the halves of a rotation are two loops.

keep_rolled: loops that reduce a row hide their number of steps from the compiler.

LLVM writes loops of few known steps out before it looks for vectors: a sum over 48 or 64 channels then becomes scalar
code, 5 to 10 times slower, and blocks of one row are read side by side, as 16 streams of memory instead of one. A loop
that is ``mark_nounroll`` runs like a serial one; its extent is known to every pass and to `verify`, and not to LLVM.

A serial loop ends before the steps that do nothing: those at which all that it writes is excluded, and what it adds
to its running values is what changes none.

A row of loaded length stands in a loop over as many elements as there are, behind a condition ``i < length``: the loop
then runs to the length. The condition stays where it is; the end is known only to the printed loop (`Loop.stop`), so
that every question about the loop speaks of all of its steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from idgraph.arith import FALSE, Expr, as_expr, ceildiv, not_, simplify, symbol
from idgraph.arith.solve import coefficients
from idgraph.kernel.def_use import Body, all_sets, expand_body, index_exprs, map_body, read_only_buffers
from idgraph.kernel.ir import (
    Accumulate,
    Comment,
    Compute,
    Constant,
    If,
    InitAccumulator,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    Operand,
    Select,
    SingleThread,
    Stmt,
    StraightLineBlock,
    bodies,
    walk,
)
from idgraph.kernel.ssa import to_ssa
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.lower.statements import Accumulator, identity
from idgraph.passes.cse_dce import without_dead, without_empty
from idgraph.passes.lane_unrolling import Lane, LaneExpansion, conditions_of

MAX_SIDES = 2  # nested conditions by which a loop is written again
LEAST_UNSWITCHED = 16  # steps that are worth a second loop


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
    read_only = read_only_buffers(kernel.buffers, kernel.body)

    def sides(s: Stmt) -> list[Stmt] | None:
        return _sides(s, read_only, ()) if isinstance(s, Loop) and _is_straight(s) else None

    return replace(kernel, body=to_ssa(without_empty(expand_body(kernel.body, sides))))


def _is_straight(s: Loop) -> bool:
    """An innermost loop on one core, of more than a few steps."""
    many = s.parallel == "serial" and (not s.extent.is_const or int(s.extent) >= LEAST_UNSWITCHED)
    return many and not any(isinstance(x, (Loop, SingleThread, StraightLineBlock)) for x in walk(s.body))


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


def end_before_idle_steps(kernel: Kernel) -> Kernel:
    """end_rows: loops that run to the end of a row.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer n: int64[4] input "n"
    ...   buffer x: float32[36] input "x"
    ...   buffer y: float32[36] output "y"
    ...   for r < 4:
    ...     v: int64 = n[r]
    ...     for c < 9:
    ...       let ld1 = v
    ...       if c < ld1:
    ...         u: float32 = x[r*9 + c]
    ...         y[r*9 + c] = u
    ... ''')
    >>> print(end_before_idle_steps(k))
    kernel k():
      where ld1_end in _, _
      where ld1 in _, _
      buffer n: int64[4] input "n"
      buffer x: float32[36] input "x"
      buffer y: float32[36] output "y"
      for r < 4:
        v: int64 = n[r]
        let ld1_end = v
        for c < 9, stop ld1_end:
          let ld1 = v
          if c < ld1:
            u: float32 = x[c + r*9]
            y[c + r*9] = u
    """
    taken = {*all_sets(kernel.body), *kernel.scalars}
    return replace(kernel, body=_with_row_ends(kernel.body, taken))


def _with_row_ends(body: Sequence[Stmt], taken: set[str]) -> Body:
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, Loop):
            found = _end_of(s) if s.parallel in ("serial", "rolled") and s.stop is None else None
            s = replace(s, body=_with_row_ends(s.body, taken))
            if found is not None:
                value, step = found
                name = next(n for k in range(len(taken) + 1) if (n := f"ld1_end{k or ''}") not in taken)
                taken.add(name)
                made.append(Let(name, value))
                s = replace(s, stop=simplify(ceildiv(symbol(name), step)))
        elif bodies(s):
            s = replace(s, body=_with_row_ends(s.body, taken))  # type: ignore[call-arg]
        made.append(s)
    return tuple(made)


def _end_of(loop: Loop) -> tuple[Local, int] | None:
    """(value, step): no step ``i`` of the loop with ``i * step`` not below the value does anything; None: not known."""
    inside = all_sets(loop.body)
    lets = {s.name: s.value for s in walk(loop.body) if isinstance(s, Let)}
    ends = {n: v for n, v in lets.items() if isinstance(v, Local) and v.at is None and v.name not in inside}
    for condition in (c for s in walk(loop.body) for c in (*index_exprs(s), *_cases(s)) if c.is_condition):
        for name in sorted(condition.names & ends.keys()):
            step = _step_of(condition, loop.var)
            end = ends[name]
            if step is None:
                continue
            own = symbol(f"{end.name} end")
            same = {n: own for n, v in ends.items() if v == end}
            idle = _Idle(same, as_expr(step) * _variable(condition, loop.var) >= own)
            if idle.body(loop.body):
                return end, step
    return None


def _cases(s: Stmt) -> Iterator[Expr]:
    if isinstance(s, Select):
        yield from (c for c, _ in s.cases)


def _variable(condition: Expr, name: str) -> Expr:
    return next(s for s in condition.symbols if s.name == name)


def _step_of(condition: Expr, name: str) -> int | None:
    """By how much ``name`` moves the left side of ``left < right``, where that is a positive number."""
    if condition.op != "lt" or name not in condition.args[0].names or name in condition.args[1].names:
        return None
    found = coefficients(condition.args[0], (_variable(condition, name),))
    return int(found[0]) if found is not None and found[0].is_const and int(found[0]) > 0 else None


@dataclass(slots=True)
class _Idle:
    """Whether statements do nothing where ``beyond`` holds; ``same`` are names of the loaded end."""

    same: Mapping[str, Expr]
    beyond: Expr

    def never(self, condition: Expr) -> bool:
        return simplify(condition.substitute(self.same), facts=[self.beyond]) == FALSE

    def body(self, body: Sequence[Stmt], known: dict[str, Constant] | None = None) -> bool:
        """The same of a body; ``known`` are the variables that hold one number there."""
        known = {} if known is None else known
        return all(self.statement(s, known) for s in body)

    def statement(self, s: Stmt, known: dict[str, Constant]) -> bool:
        match s:
            case Comment() | Let() | Load() | InitAccumulator():
                return True
            case Compute(local, op, operands):
                if op == "cast" and len(operands) == 1 and (value := self.value(operands[0], known)) is not None:
                    known[local.name] = value
                return True
            case Select(local, cases, default):
                rest = [v for c, v in cases if not self.never(c)]
                value = self.value(default, known)
                if not rest and value is not None:
                    known[local.name] = value
                return True
            case Accumulate(acc, op, value, running=None):
                added = self.value(value, known)
                return added is not None and _is_neutral(added, identity(Accumulator(op, acc.dtype)))
            case If(condition, inside):
                return self.never(condition) or self.body(inside, known)
            case SingleThread(body=inside):
                return self.body(inside, known)
            case Loop(parallel=way, body=inside):
                return "blockIdx" not in way and self.body(inside, known)
            case _:  # a store, a check that would report, an exchange that all threads must reach
                return False

    def value(self, x: Operand, known: Mapping[str, Constant]) -> Constant | None:
        return x if isinstance(x, Constant) else known.get(x.name) if isinstance(x, Local) else None


def _is_neutral(a: Constant, b: bool | float) -> bool:
    """Equal as numbers: 0 and 0.0, but no zero of another sign and no NaN."""
    return float(a.value) == float(b) and str(float(a.value)) == str(float(b))
