"""jam: lanes around a loop over columns run inside of it (unroll and jam).

A thread that reduces several neighbouring rows visits each column once and takes all its rows there: their elements lie
side by side, so one access moves them (Callahan, Cocke and Kennedy, Estimating interlock and improving balance for
pipelined architectures, 1988).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from idgraph.arith import as_expr, symbol
from idgraph.kernel.def_use import all_reads, all_sets, expand_body, read_before_set, read_only_buffers, reads, sets
from idgraph.kernel.ir import (
    Accumulate,
    Alloc,
    Barrier,
    BlockReduce,
    BoundsCheck,
    Comment,
    CompoundStmt,
    Compute,
    If,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    Select,
    SingleThread,
    Stmt,
    Store,
    StraightLineBlock,
    walk,
)
from idgraph.kernel.ssa import to_ssa
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.passes.lane_unrolling import MAX_LANES, Body, Lane, LaneExpansion, can_unroll, is_lanes
from idgraph.passes.rows.reduction_loop import Plain
from idgraph.passes.rows.summation import widened
from idgraph.passes.rows.vector_chunks import gathered
from idgraph.schedule.reduction_persistence import IN_FLIGHT

COLUMNS = 8  # whose loaded indices a thread has in flight
_STRAIGHT = (Comment, Let, Load, Compute, Select, Accumulate, Store, If, BoundsCheck)


def unroll_and_jam(kernel: Kernel) -> Kernel:
    """jam: lanes around loops over columns, inside of them.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[64] input "x"
    ...   buffer y: float32[8] output "y"
    ...   for i < 4:
    ...     for w < 2, vectorize:
    ...       acc s: float64 = 0.0
    ...       for c < 8:
    ...         t: float32 = x[c*8 + i*2 + w]
    ...         s <- sum t, to float32
    ...       r: float32 = cast(s)
    ...       y[i*2 + w] = r
    ... ''')
    >>> print(unroll_and_jam(k))
    kernel k():
      buffer x: float32[64] input "x"
      buffer y: float32[8] output "y"
      for i < 4:
        acc s_0: float64 = 0.0
        acc s_1: float64 = 0.0
        for c < 8, carries s_0, carries s_1:
          lanes:
            t_0: float32 = x[c*8 + i*2]
            t_1: float32 = x[c*8 + i*2 + 1]
            s_0 <- sum t_0, to float32
            s_1 <- sum t_1, to float32
        lanes:
          r_0: float32 = cast(s_0)
          r_1: float32 = cast(s_1)
          y[i*2] = r_0
          y[i*2 + 1] = r_1
    """
    read_only = read_only_buffers(kernel.buffers, kernel.body)

    def jammed(s: Stmt) -> list[Stmt] | None:
        if not isinstance(s, Loop) or not (_can_jam(s) or _gathers(s)):
            return None
        var = symbol(s.var, 0, s.extent - 1)
        lanes, body, once = [Lane((), {})], (s,), ()
        if _can_jam(s):
            lanes = [Lane((n,), {var: n}) for n in range(int(s.extent))]
            once, body = _lane_invariants(s, read_only)
        return [*once, *_Jam(lanes, read_only).level(body, ValueNumbering(read_only), {}, frozenset())]

    body = to_ssa(expand_body(kernel.body, jammed))
    return replace(kernel, body=body) if body != kernel.body else kernel


def _lane_invariants(s: Loop, read_only: frozenset[str]) -> tuple[Body, Body]:
    """(what is the same in every lane, the body without it): numbers of the columns, for all rows of a thread."""
    moving = {s.var, *all_sets(s.body)}
    once: list[Stmt] = []
    for x in s.body:
        if _is_pure(x, read_only) and len(sets(x)) == 1 and not reads(x) & moving:
            once.append(x)
            moving -= set(sets(x))
    return tuple(once), tuple(x for x in s.body if x not in once)


def _is_pure(s: Stmt, read_only: frozenset[str]) -> bool:
    return isinstance(s, (Compute, Select)) or (isinstance(s, Load) and s.buffer.name in read_only)


def _can_jam(s: Loop) -> bool:
    """Lanes around loops whose extent is the same in each, or around what is lanes already: no scan, no memory of one
    lane, no test that is always made."""
    if not is_lanes(s) or not 2 <= int(s.extent) <= MAX_LANES or can_unroll(s):
        return False
    inner = tuple(walk(s.body))
    loops = [x for x in inner if isinstance(x, Loop)]
    own = frozenset((s.var, *(x.name for x in inner if isinstance(x, Let))))  # another value in each lane
    if not any(isinstance(x, (Loop, StraightLineBlock)) for x in inner) or any(
        is_lanes(x) or own & (x.extent.names | x.first.names) for x in loops
    ):
        return False
    return all(_is_distinct(x, s.var, own) for x in inner)


def _is_distinct(s: Stmt, lane: str, own: frozenset[str]) -> bool:
    match s:
        case Alloc() | Barrier():
            return False
        case Accumulate(buffer=buffer, running=running):
            return buffer is None and running is None
        case BlockReduce(before=before):
            return before is None
        case If(condition):
            return not (own & condition.names and _is_nested(s))
        case BoundsCheck(condition, always=always):
            return not always and not (_is_nested(s) and lane in condition.names)
        case _:
            return True


def _gathers(s: Loop) -> bool:
    """True of a loop in order, of known extent, that adds up what loaded indices select."""
    inner = tuple(walk(s.body))
    sums = [x for x in inner if isinstance(x, Accumulate)]
    apart = bool(sums) and all(x.buffer is None and x.running is None for x in sums)
    straight = all(isinstance(x, _STRAIGHT) for x in inner)
    loads = any(isinstance(x, Let) and isinstance(x.value, Local) for x in inner)
    if not (s.parallel == "serial" and s.extent.is_const and apart and straight and loads):
        return False
    # One step goes on from the one before by its sums alone, and reads them nowhere else.
    carried = frozenset(read_before_set(s.body, reads, scoped=False)) & all_sets(s.body)
    others = frozenset(n for x in inner if not isinstance(x, Accumulate) for n in reads(x))
    return carried == frozenset(x.acc.name for x in sums) and not carried & others


def _is_nested(s: Stmt) -> bool:
    """True of a statement that holds more than straight code."""
    return any(not isinstance(x, _STRAIGHT) for x in walk((s,)))


class _Jam:
    """Statements of one loop over lanes, each for all lanes before the next one, loops entered once."""

    def __init__(self, lanes: Sequence[Lane], read_only: frozenset[str]) -> None:
        self.lanes = lanes
        self.read_only = read_only

    def level(self, body: Body, values: ValueNumbering, depths: dict[str, int], after: frozenset[str]) -> list[Stmt]:
        """The statements of one level; ``after``: variables that are read behind it."""
        body = sink_behind_columns(sink_into_loop(body, self.read_only, after), self.read_only)
        made: list[Stmt] = []
        straight: list[Stmt] = []
        for n, s in enumerate(body):
            if isinstance(s, _STRAIGHT) and not _is_nested(s):
                straight.append(s)
                continue
            made += self.straight(straight, values, depths, _needed(body[n:], after))
            straight = []
            if isinstance(s, Loop) and (steps := self.steps(s)) > 1:
                made += self.columns(s, steps, values, depths)
                values.forget(all_sets((s,)))
            elif isinstance(s, CompoundStmt):
                behind = _needed(body[n + 1 :], after)
                if isinstance(s, Loop):  # what its next step reads
                    behind |= _needed(s.body, frozenset())
                made.append(self.entered(s, self.level(s.body, values.branch(), depths, behind)))
                values.forget(all_sets((made[-1],)))
            else:
                made += LaneExpansion(values).expand((s,), self.lanes, depths)
        return [*made, *self.straight(straight, values, depths, after)]

    def steps(self, s: Loop) -> int:
        """Columns that one step takes, so that their loads are in flight together; 1 where that is not worth it."""
        if not _gathers(s):
            return 1
        most = min(COLUMNS, int(s.extent), max(1, IN_FLIGHT // len(self.lanes)))
        best = max(n for n in range(1, most + 1) if int(s.extent) % n == 0)
        return best if best * 2 > most else most

    def columns(self, s: Loop, steps: int, values: ValueNumbering, depths: dict[str, int]) -> list[Stmt]:
        """A loop whose steps take ``steps`` columns, and what is left of them."""
        var, count = symbol(s.var, 0, s.extent - 1), int(s.extent) // steps
        step = symbol(s.var, 0, count - 1) if count > 1 else as_expr(0)
        made: list[Stmt] = []
        for first, many in ((step * steps, steps), (as_expr(count * steps), int(s.extent) % steps)):
            lanes = [
                Lane((*x.numbers, n), {**x.values, var: first + n}, dict(x.lets), x.facts)
                for x in self.lanes
                for n in range(many)
            ]
            body = _Columns(values.branch(), many).expand(s.body, lanes, dict(depths)) if many else []
            if body and first.is_const:
                made.append(StraightLineBlock(tuple(body)))
            elif body:
                made.append(replace(s, extent=as_expr(count), body=(StraightLineBlock(tuple(body)),)))
        return made

    def entered(self, s: CompoundStmt, body: Sequence[Stmt]) -> Stmt:
        """A statement around others, with conditions and extents that are the same in every lane; checks once for each
        loaded value."""
        if isinstance(s, StraightLineBlock):
            body = [y for x in body for y in (x.body if isinstance(x, StraightLineBlock) else (x,))]
        if not isinstance(s, BoundsCheck):
            return replace(s, body=tuple(body))
        tests = {(lane.index(s.condition), lane.lets.get(s.value, s.value)): lane for lane in reversed(self.lanes)}
        for (condition, value), lane in tests.items():  # a checked run stops at the first that is out of range
            body = [replace(s, condition=condition, value=value, point=lane.point(s), body=tuple(body))]
        return body[0]

    def straight(
        self, body: Sequence[Stmt], values: ValueNumbering, depths: dict[str, int], after: frozenset[str]
    ) -> list[Stmt]:
        """Straight code of all lanes; as lanes, which passes join, where nothing behind it reads its variables."""
        made = LaneExpansion(values).expand(body, self.lanes, depths)
        private = frozenset(n for x in walk(tuple(body)) if not isinstance(x, Accumulate) for n in sets(x))
        return (
            [StraightLineBlock(tuple(made))]
            if any(not isinstance(x, Comment) for x in made) and not private & after
            else made
        )


@dataclass(slots=True)
class _Columns(LaneExpansion):
    """Lanes of ``many`` columns of each row: what they add to one sum is combined first, as in the chunks of a row."""

    many: int = 1
    wide: dict[str, Local] = field(default_factory=dict[str, Local])

    def expand(self, body: Sequence[Stmt], lanes: Sequence[Lane], depths: dict[str, int]) -> list[Stmt]:
        self.wide = {**self.wide, **widened([x for x in body if isinstance(x, Plain)])}
        return LaneExpansion.expand(self, body, lanes, depths)

    def accumulate(self, s: Accumulate, lanes: Sequence[Lane], depths: Mapping[str, int]) -> list[Stmt]:
        made: list[Stmt] = []
        for n in range(0, len(lanes), self.many):
            some = lanes[n : n + self.many]
            acc = Local(some[0].name(s.acc.name, depths.get(s.acc.name, 0)), s.acc.dtype)
            made += gathered(replace(s, acc=acc), self.wide, {}, some, dict(depths))
        for x in made:
            self.values.define(x)
        return made


def _needed(body: Body, after: frozenset[str]) -> frozenset[str]:
    """Variables whose present value is read in ``body`` or, unless it sets them, behind it."""
    return frozenset(read_before_set(body, reads, scoped=False)) | (after - all_sets(body))


def sink_into_loop(body: Body, read_only: frozenset[str], after: frozenset[str]) -> Body:
    """Computations that nothing but a statement of one thread reads, moved into it; ``after``: read behind ``body``."""
    made = list(body)
    at = len(made)
    while at > 0:
        at -= 1
        single = made[at]
        if not isinstance(single, SingleThread):
            continue
        taken: list[Stmt] = []
        changed = all_sets((single,))
        for n in range(at - 1, -1, -1):
            s = made[n]
            others = (*made[n + 1 : at], *made[at + 1 :])
            mine, needs = all_sets((s,)), all_reads((s,))
            pure = _is_pure(s, read_only)
            wanted = mine & (all_reads(single.body) | all_reads(tuple(taken)))
            if pure and wanted and not mine & (all_reads(others) | changed | after) and not needs & changed:
                taken.insert(0, s)
                del made[n]
                at -= 1
            else:
                changed |= mine
        made[at] = replace(single, body=(*taken, *single.body))
    return tuple(made)


def sink_behind_columns(body: Body, read_only: frozenset[str]) -> Body:
    """Computations that only statements behind the columns read, moved there: their loads are vectors of all lanes,
    and no register holds them in the loop.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[8] input "x"
    ...   buffer y: float32[1] output "y"
    ...   a: float32 = x[0]
    ...   acc s: float32 = 0.0
    ...   for c < 8:
    ...     t: float32 = x[c]
    ...     s <- sum t
    ...   b: float32 = add(s, a)
    ...   y[0] = b
    ... ''')
    >>> [type(s).__name__ for s in sink_behind_columns(k.body, frozenset({"x"}))]
    ['InitAccumulator', 'Loop', 'Load', 'Compute', 'Store']
    """
    made = list(body)
    for at in range(len(made)):
        if not isinstance(made[at], (Loop, StraightLineBlock)):
            continue
        needed, changed, taken = all_reads(made[at : at + 1]), all_sets(made[at : at + 1]), list[Stmt]()
        for n in range(at - 1, -1, -1):
            s = made[n]
            mine, needs = all_sets((s,)), all_reads((s,))
            if _is_pure(s, read_only) and not mine & (needed | changed) and not needs & changed:
                taken.insert(0, made.pop(n))
            else:
                needed, changed = needed | needs, changed | mine
        made[at - len(taken) + 1 : at - len(taken) + 1] = taken
    return tuple(made)
