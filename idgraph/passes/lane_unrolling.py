"""unroll: unrolled and vectorised loops as straight-line code, every statement once for each lane.

A loop of constant extent marked "unroll" or "vectorize" becomes lanes. A condition that a lane decides is decided here
(the halves of a rotation, in one thread, need no test), and neighbouring tests of one condition become one. A loaded
index is one variable for all lanes that load it from the same elements, so rows that it selects are read, or added to,
in vectors too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from idgraph.arith import FALSE, TRUE, Expr, as_expr, not_, postorder, simplify, symbol
from idgraph.kernel.def_use import (
    all_reads,
    all_sets,
    defs,
    in_lanes,
    index_exprs,
    map_statement,
    read_only_buffers,
    reads,
    unchanged,
)
from idgraph.kernel.ir import (
    Accumulate,
    Alloc,
    Barrier,
    BlockReduce,
    BoundsCheck,
    Comment,
    Constant,
    If,
    Index,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    Operand,
    Select,
    SingleThread,
    Stmt,
    Store,
    StraightLineBlock,
    walk,
)
from idgraph.kernel.ssa import to_ssa
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.lower.sync_insertion import joined_tests

MAX_LANES = 64
MAX_SIDES = 2  # nested conditions by which code is split
Body = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Lane:
    """One value of each unrolled loop variable; ``numbers`` tell lanes apart, by those values, outermost first.

    ``lets`` are the loaded indices of this lane: the variable that stands for each name. ``facts`` hold around it.
    """

    numbers: tuple[int, ...]
    values: Mapping[Expr, int | Expr]
    lets: dict[str, str] = field(default_factory=dict[str, str])
    facts: tuple[Expr, ...] = ()

    def decide(self, condition: Expr) -> Expr:
        """A condition in this lane, under the facts."""
        found = self.index(condition)
        return simplify(found, facts=self.facts) if self.facts else found

    def index(self, e: Expr) -> Expr:
        """An index expression in this lane; a choice within is made where the facts tell."""
        if not self.values:
            return e
        loaded = {s: symbol(self.lets[s.name], *s.symbol_bounds) for s in e.symbols if s.name in self.lets}
        found = simplify(e.substitute({**self.values, **loaded}))
        chooses = bool(self.facts) and any(x.op == "where" for x in postorder(found))
        return simplify(found, facts=self.facts) if chooses else found

    def served(self, e: Expr) -> Expr:
        """A coordinate that an access of this lane serves; it is not simplified, since no code computes it."""
        if not self.values:
            return e
        loaded = {s: symbol(self.lets[s.name], *s.symbol_bounds) for s in e.symbols if s.name in self.lets}
        return e.substitute({**self.values, **loaded})

    def point(self, s: BoundsCheck) -> tuple[Expr, ...]:
        """The values of the loops that a check names, in this lane."""
        numbers = {x.name: as_expr(n) for x, n in self.values.items()}
        known = s.point or tuple(symbol(v) for v in s.site.loops)
        return tuple(e.substitute({x: numbers[x.name] for x in e.symbols if x.name in numbers}) for e in known)

    def name(self, local: str, depth: int) -> str:
        """A local that was set inside ``depth`` of the unrolled loops."""
        return local + "".join(f"_{n}" for n in self.numbers[:depth])


def unroll_lanes(kernel: Kernel) -> Kernel:
    """unroll: unrolled and vectorised loops as straight-line code for their lanes.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[64] input "x"
    ...   buffer y: float32[64] output "y"
    ...   for i < 16:
    ...     for w < 4, vectorize:
    ...       t: float32 = x[i*4 + w]
    ...       y[i*4 + w] = t
    ... ''')
    >>> print(unroll_lanes(k))
    kernel k():
      buffer x: float32[64] input "x"
      buffer y: float32[64] output "y"
      for i < 16:
        lanes:
          t_0: float32 = x[i*4]
          t_1: float32 = x[i*4 + 1]
          t_2: float32 = x[i*4 + 2]
          t_3: float32 = x[i*4 + 3]
          y[i*4] = t_0
          y[i*4 + 1] = t_1
          y[i*4 + 2] = t_2
          y[i*4 + 3] = t_3
    """
    body = to_ssa(_unrolled(kernel.body, read_only_buffers(kernel.buffers, kernel.body)))
    return replace(kernel, body=in_lanes(body, joined_tests))


def _unrolled(body: Body, read_only: frozenset[str], after: frozenset[str] = frozenset()) -> Body:
    """``body`` with its lanes; ``after``: names that are read behind it. Variables that lanes set are private."""
    made: list[Sequence[Stmt]] = []
    for s in reversed(body):
        match s:
            case Loop() if can_unroll(s) and not (_is_single(s) and all_sets(s.body) & after):
                made.append(_sides(s, read_only | unchanged((s,)), ()))
            case Loop() | If() | SingleThread() | BoundsCheck():
                made.append((replace(s, body=_unrolled(s.body, read_only, after)),))
            case _:
                made.append((s,))
        after |= all_reads((s,))
    return tuple(s for some in reversed(made) for s in some)


def _sides(s: Loop, read_only: frozenset[str], facts: tuple[Expr, ...], lanes: Body | None = None) -> list[Stmt]:
    """The lanes of ``s``; where a test and its opposite (the halves of a rotation) remain, once for each outcome.

    Then each side is straight-line code. A warp-uniform test costs one jump. Tests of single lanes, of which one side
    leaves more than half, stay where they are: each split would double the code of all lanes to settle one.
    """
    lanes = _in_lanes(s, read_only, facts) if lanes is None else lanes
    found = _undecided(lanes)
    if not found:
        return [StraightLineBlock(lanes)]
    both = (found[0], simplify(not_(found[0])))
    sides = [(c, _in_lanes(s, read_only, (*facts, c))) for c in both]
    left = [len(_undecided(side)) for _, side in sides]
    # Tests that both sides need again double the code. Of the ends of pieces side by side each side has its own.
    if 2 * min(left) > len(found) or (len(facts) >= MAX_SIDES and sum(left) >= len(found)):
        return [StraightLineBlock(lanes)]
    return [If(c, tuple(_sides(s, read_only, (*facts, c), side))) for c, side in sides]


def _in_lanes(s: Loop, read_only: frozenset[str], facts: tuple[Expr, ...]) -> Body:
    return tuple(LaneExpansion(ValueNumbering(read_only)).expand((s,), [Lane((), {}, facts=facts)], {}))


def _undecided(body: Body) -> tuple[Expr, ...]:
    """The conditions whose opposite is tested as well, of what is known in front of ``body``."""
    here = all_sets(body)
    found = [c for c in conditions_of(body) if not c.names & here]
    return tuple(c for c in found if simplify(not_(c)) in found)


def conditions_of(body: Sequence[Stmt]) -> tuple[Expr, ...]:
    """The conditions tested in straight-line code, conjunct by conjunct."""
    found: list[Expr] = []
    for s in walk(tuple(body)):
        match s:
            case If(condition):
                found.append(condition)
            case Load(guard=guard):
                found.append(guard)
            case Select(cases=cases):
                found += [c for c, _ in cases]
            case _:
                pass
    return tuple(dict.fromkeys(x for c in found for x in c.conjuncts if not x.is_const))


def is_lanes(s: Stmt) -> bool:
    """True of an unrolled or vectorised loop of known extent."""
    return isinstance(s, Loop) and s.parallel in ("unroll", "vectorize") and s.extent.is_const


def _is_single(s: Loop) -> bool:
    """A loop of one step on no thread: what it sets is read after it as well."""
    return s.extent == 1 and s.parallel in ("serial", "unroll", "vectorize")


def can_unroll(s: Loop) -> bool:
    """A loop of lanes whose body holds only lanes and straight statements, of a size worth writing out."""
    if not is_lanes(s):
        return False
    lanes, varying = 1, set[str]()
    for inner in walk((s,)):
        if isinstance(inner, Loop):
            varying.add(inner.var)
        elif (reads(inner) | {n for e in index_exprs(inner) for n in e.names}) & varying:
            varying |= {x.name for x in defs(inner)} | ({inner.name} if isinstance(inner, Let) else set())
        if isinstance(inner, Loop):
            if not is_lanes(inner) and not _is_single(inner):
                return False
            lanes *= max(1, int(inner.extent))
        elif isinstance(inner, (SingleThread, StraightLineBlock, Alloc, Barrier, BlockReduce)):
            return False
        elif isinstance(inner, Accumulate):
            if not _is_unordered(inner):
                return False
        elif isinstance(inner, BoundsCheck) and inner.always and inner.condition.names & varying and _stores(inner):
            return False  # writes of lanes may name one element, and the last one wins
    return lanes <= MAX_LANES


def _stores(s: BoundsCheck) -> bool:
    return any(isinstance(x, Store) for x in walk(s.body))


def _is_unordered(s: Accumulate) -> bool:
    """An atomic addition to memory: those of several lanes may run in any order."""
    return s.shared and s.buffer is not None and s.buffer.place in ("output", "global") and s.running is None


@dataclass(slots=True)
class LaneExpansion:
    """Statements once for each lane. Lanes have variables of their own, so an equality in ``values`` holds wherever
    both variables are defined."""

    values: ValueNumbering
    absent: set[tuple[str, tuple[int, ...]]] = field(init=False, default_factory=set["tuple[str, tuple[int, ...]]"])
    """Variables that some lanes, by their numbers, do not set: they stand under a condition that never holds there."""

    def expand(self, body: Sequence[Stmt], lanes: Sequence[Lane], depths: dict[str, int]) -> list[Stmt]:
        """Each statement for all lanes before the next one; ``depths`` says how deep each local was set so far."""
        made: list[Stmt] = []
        flat, once = inline_unit_loops(body)
        if once:
            lanes = [Lane(lane.numbers, {**lane.values, **once}, lane.lets, lane.facts) for lane in lanes]
        for s in flat:
            match s:
                case Loop():
                    var = symbol(s.var, 0, s.extent - 1)
                    inner = [
                        Lane((*lane.numbers, n), {**lane.values, var: n}, dict(lane.lets), lane.facts)
                        for lane in lanes
                        for n in range(int(s.extent))
                    ]
                    made += self.expand(s.body, inner, dict(depths))
                case If(condition, inner_body):
                    made += self.conditional(condition, inner_body, lanes, depths)
                case BoundsCheck():
                    made += self.checked(s, lanes, depths)
                case Let():
                    made += self.let(s, lanes, depths)
                case Comment():
                    made.append(s)
                case Accumulate(buffer=None):
                    made += self.accumulate(s, lanes, depths)
                case _:
                    before = dict(depths)
                    if lanes:
                        depths.update((x.name, len(lanes[0].numbers)) for x in defs(s))
                    for lane in lanes:
                        made.append(_in_lane(self.reachable(s, lane) if isinstance(s, Select) else s, lane, before))
                        self.values.define(made[-1])
        return made

    def reachable(self, s: Select, lane: Lane) -> Select:
        """A choice without the operands that a lane does not set, which it never takes."""

        def is_absent(o: Operand) -> bool:
            numbers = [lane.numbers[:n] for n in range(len(lane.numbers) + 1)]
            return isinstance(o, Local) and any((o.name, n) in self.absent for n in numbers)

        cases = [(c, o) for c, o in s.cases if not is_absent(o)]
        if not is_absent(s.default):
            return replace(s, cases=tuple(cases))
        return replace(s, cases=tuple(cases[:-1]), default=cases[-1][1] if cases else Constant(0))

    def accumulate(self, s: Accumulate, lanes: Sequence[Lane], depths: Mapping[str, int]) -> list[Stmt]:
        """Each lane's value combined with the running value, in order."""
        made = [_in_lane(s, lane, depths) for lane in lanes]
        for x in made:
            self.values.define(x)
        return made

    def let(self, s: Let, lanes: Sequence[Lane], depths: Mapping[str, int]) -> list[Stmt]:
        """One variable for all lanes whose value is made of the same elements of inputs."""
        name, value, made = s.name, s.value, list[Stmt]()
        known: dict[int, str] = {}
        for lane in lanes:
            mine = _operand_in_lane(value, lane, depths)
            same = self.values.number(mine)
            if same not in known:
                known[same] = lane.name(name, len(lane.numbers))
                made.append(Let(known[same], mine, map_statement(s, point=lane.served).serves))
                self.values.define(made[-1])
            lane.lets[name] = known[same]
        return made

    def checked(self, s: BoundsCheck, lanes: Sequence[Lane], depths: dict[str, int]) -> list[Stmt]:
        """All lanes run where the loaded values of all are in range: a checked run stops at the first that is not.
        A write that is always tested runs in each lane whose own value is in range."""
        first: dict[tuple[Expr, str], Lane] = {}
        for lane in lanes:
            first.setdefault((lane.index(s.condition), lane.lets.get(s.value, s.value)), lane)
        if s.always:
            return self.tested(s, lanes, depths)
        made: list[Stmt] = self.expand(s.body, lanes, depths)
        for (condition, value), lane in reversed(first.items()):
            made = [BoundsCheck(condition, value, s.site, tuple(made), lane.point(s))]
        return made

    def tested(self, s: BoundsCheck, lanes: Sequence[Lane], depths: dict[str, int]) -> list[Stmt]:
        """Lanes with one loaded value share one test."""
        alike: dict[tuple[Expr, str], list[Lane]] = {}
        for lane in lanes:
            alike.setdefault((lane.index(s.condition), lane.lets.get(s.value, s.value)), []).append(lane)
        made: list[Stmt] = []
        for (condition, value), some in alike.items():
            body = self.expand(s.body, some, dict(depths))
            made.append(BoundsCheck(condition, value, s.site, tuple(body), some[0].point(s), always=True))
        return made

    def conditional(self, condition: Expr, body: Body, lanes: Sequence[Lane], depths: dict[str, int]) -> list[Stmt]:
        """Lanes for which the condition holds run the body; those with one undecided condition share one test."""
        by_condition: dict[Expr, list[Lane]] = {}
        for lane in lanes:
            by_condition.setdefault(lane.decide(condition), []).append(lane)
        made: list[Stmt] = []
        after = dict(depths)
        for decided, some in by_condition.items():
            if decided == FALSE:
                self.absent |= {(x.name, y.numbers) for s in walk(body) for x in defs(s) for y in some}
                continue
            now = dict(depths)
            inner = self.expand(body, some, now)
            after.update(now)
            made += inner if decided == TRUE else [If(decided, tuple(inner))]
        depths.update(after)
        return made


def inline_unit_loops(body: Sequence[Stmt]) -> tuple[list[Stmt], dict[Expr, int]]:
    """``body`` with the statements of loops of one step in the place of those loops, and the values of their variables;
    neighbouring tests of one condition are one then, so that code behind one of them knows what is computed in front.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer y: float32[64] output "y"
    ...   for i < 64:
    ...     if i < 20:
    ...       t: float32 = mul(2.0, 3.0)
    ...     for j < 1:
    ...       if i < 20:
    ...         y[i + j] = t
    ... ''')
    >>> flat, values = inline_unit_loops(k.body[0].body)
    >>> len(flat), len(flat[0].body), values
    (1, 2, {j: 0})
    """
    flat: list[Stmt] = []
    values: dict[Expr, int] = {}
    for s in body:
        if isinstance(s, Loop) and _is_single(s):
            inner, more = inline_unit_loops(s.body)
            flat += inner
            values |= {symbol(s.var, 0, 0): 0, **more}
        else:
            flat.append(s)
    return joined_tests(flat), values


def _operand_in_lane(o: Operand, lane: Lane, depths: Mapping[str, int]) -> Operand:
    if isinstance(o, Local):
        return Local(lane.name(o.name, depths.get(o.name, 0)), o.dtype)
    return Index(lane.index(o.value)) if isinstance(o, Index) else o


def _in_lane(s: Stmt, lane: Lane, depths: Mapping[str, int]) -> Stmt:
    """A straight statement in a lane, its conditions as the lane decides them."""
    found = map_statement(
        s,
        made=lambda x: Local(lane.name(x.name, len(lane.numbers)), x.dtype),
        updated=lambda x: Local(lane.name(x.name, depths.get(x.name, 0)), x.dtype),
        read=lambda o: Local(lane.name(o.name, depths.get(o.name, 0)), o.dtype) if isinstance(o, Local) else o,
        index=lambda e: lane.decide(e) if e.is_condition else lane.index(e),
        point=lane.served,
    )
    return _narrow_cases(found.local, found.cases, found.default) if isinstance(found, Select) else found


def _narrow_cases(to: Local, cases: Sequence[tuple[Expr, Operand]], default: Operand) -> Select:
    """A choice without the cases that this lane rules out."""
    kept: list[tuple[Expr, Operand]] = []
    for condition, value in cases:
        if condition == FALSE:
            continue
        if condition == TRUE:
            default = value
            break
        kept.append((condition, value))
    return Select(to, tuple(kept), default)
