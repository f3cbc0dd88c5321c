"""Unrolled and vectorised loops as straight code: every statement once for each lane, then loads and stores joined.

A loop of constant extent marked "unroll" or "vectorize" becomes lanes. A condition that a lane decides is decided here
(the halves of a rotation, in one thread, need no test); equal loads of an input are made once; loads and stores of
neighbouring elements become one vector access where the address of the first is proved aligned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from idgraph.arith import FALSE, TRUE, Expr, simplify, symbol
from idgraph.emit.plan import (
    Accumulate,
    Alloc,
    Checked,
    Choose,
    Combine,
    Compute,
    Declare,
    If,
    Index,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    Note,
    Number,
    Operand,
    Plan,
    Single,
    Stmt,
    Store,
    VectorLoad,
    VectorStore,
    walk,
)
from idgraph.emit.vectors import join_accesses

MAX_LANES = 64
Body = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Lane:
    """One value of each unrolled loop variable; ``numbers`` are those values, outermost first."""

    numbers: tuple[int, ...]
    values: Mapping[Expr, int]

    def index(self, e: Expr) -> Expr:
        """An index expression in this lane."""
        return simplify(e.substitute(self.values)) if self.values else e

    def name(self, local: str, depth: int) -> str:
        """A local that was set inside ``depth`` of the unrolled loops."""
        return local + "".join(f"_{n}" for n in self.numbers[:depth])


def with_lanes(plan: Plan) -> Plan:
    """The plan with its unrolled and vectorised loops as lanes, accesses joined."""
    return replace(plan, kernels=tuple(_kernel(k) for k in plan.kernels))


def _kernel(kernel: Kernel) -> Kernel:
    written = {s.buffer.name for s in walk(kernel.body) if isinstance(s, (Store, Accumulate)) and s.buffer is not None}
    read_only = frozenset(b.name for b in kernel.buffers if b.name not in written)
    return replace(kernel, body=_unrolled(kernel.body, read_only))


def _unrolled(body: Body, read_only: frozenset[str]) -> Body:
    made: list[Stmt] = []
    for s in body:
        match s:
            case Loop() if _can_unroll(s):
                made += join_accesses(_expand((s,), [Lane((), {})], {}), read_only)
            case Loop() | If() | Single() | Checked():
                made.append(replace(s, body=_unrolled(s.body, read_only)))
            case _:
                made.append(s)
    return tuple(made)


def _is_lanes(s: Stmt) -> bool:
    return isinstance(s, Loop) and s.parallel in ("unroll", "vectorize") and s.extent.is_const


def _can_unroll(s: Loop) -> bool:
    """A loop of lanes whose body holds only lanes and straight statements, of a size worth writing out."""
    if not _is_lanes(s):
        return False
    lanes = 1
    for inner in walk((s,)):
        if isinstance(inner, Loop):
            if not _is_lanes(inner):
                return False
            lanes *= max(1, int(inner.extent))
        elif isinstance(inner, (Single, Checked, Alloc, Let, Accumulate, Combine)):
            return False
    return lanes <= MAX_LANES


def _expand(body: Sequence[Stmt], lanes: Sequence[Lane], depths: dict[str, int]) -> list[Stmt]:
    """Each statement for all lanes before the next one; ``depths`` says how deep each local was set so far."""
    made: list[Stmt] = []
    for s in body:
        match s:
            case Loop():
                var = symbol(s.var, 0, s.extent - 1)
                inner = [
                    Lane((*lane.numbers, n), {**lane.values, var: n}) for lane in lanes for n in range(int(s.extent))
                ]
                made += _expand(s.body, inner, dict(depths))
            case If(condition, inner_body):
                made += _conditional(condition, inner_body, lanes, depths)
            case Note():
                made.append(s)
            case _:
                before = dict(depths)
                name = _sets(s)
                if name is not None and lanes:
                    depths[name] = len(lanes[0].numbers)
                made += [_in_lane(s, lane, before) for lane in lanes]
    return made


def _conditional(condition: Expr, body: Body, lanes: Sequence[Lane], depths: dict[str, int]) -> list[Stmt]:
    """Lanes for which the condition holds run the body; those with one undecided condition share one test."""
    by_condition: dict[Expr, list[Lane]] = {}
    for lane in lanes:
        by_condition.setdefault(lane.index(condition), []).append(lane)
    made: list[Stmt] = []
    after = dict(depths)
    for decided, some in by_condition.items():
        if decided == FALSE:
            continue
        now = dict(depths)
        inner = _expand(body, some, now)
        after.update(now)
        made += inner if decided == TRUE else [If(decided, tuple(inner))]
    depths.update(after)
    return made


def _sets(s: Stmt) -> str | None:
    """The local that a straight statement sets."""
    match s:
        case Load(local) | Compute(local) | Choose(local):
            return local.name
        case Declare(name):
            return name
        case _:
            return None


def _in_lane(s: Stmt, lane: Lane, depths: Mapping[str, int]) -> Stmt:
    def made(x: Local) -> Local:
        return Local(lane.name(x.name, len(lane.numbers)), x.dtype)

    def operand(o: Operand) -> Operand:
        match o:
            case Local():
                return Local(lane.name(o.name, depths.get(o.name, 0)), o.dtype)
            case Index(value):
                return Index(lane.index(value))
            case Number():
                return o
            case _:
                assert_never(o)

    match s:
        case Declare(name, dtype, value):
            return Declare(lane.name(name, len(lane.numbers)), dtype, value)
        case Load(to, buffer, address, guard):
            return Load(made(to), buffer, lane.index(address), lane.index(guard))
        case Compute(to, op, operands, compute):
            return Compute(made(to), op, tuple(map(operand, operands)), compute)
        case Choose(to, cases, default):
            return _chosen(made(to), [(lane.index(c), operand(o)) for c, o in cases], operand(default))
        case Store(buffer, address, value):
            return Store(buffer, lane.index(address), operand(value))
        case (
            Loop()
            | If()
            | Single()
            | Checked()
            | Note()
            | Alloc()
            | Let()
            | Accumulate()
            | Combine()
            | VectorLoad()
            | VectorStore()
        ):
            raise AssertionError(f"{type(s).__name__} is expanded elsewhere")
        case _:
            assert_never(s)


def _chosen(to: Local, cases: list[tuple[Expr, Operand]], default: Operand) -> Choose:
    """A choice without the cases that this lane rules out."""
    kept: list[tuple[Expr, Operand]] = []
    for condition, value in cases:
        if condition == FALSE:
            continue
        if condition == TRUE:
            default = value
            break
        kept.append((condition, value))
    return Choose(to, tuple(kept), default)
