"""Runs of lanes along one loop: what an access does at neighbouring steps, decided by rules or at every point.

A run of ``width`` steps starts at a multiple of ``width``. What is asked of it holds wherever the access happens: the
predicate agrees on all lanes, and where it is true the addresses count up by one from an aligned first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from idgraph.arith import (
    TRUE,
    CounterExample,
    Expr,
    Proof,
    and_,
    as_expr,
    enumerate_points,
    is_true,
    multiple_of,
    simplify,
    symbol,
)  # fmt: skip
from idgraph.errors import IndexingError, user_line
from idgraph.index.access_relation import AccessFunction, LoopVariable
from idgraph.index.allocation import COUNTED
from idgraph.ir import IterDomain
from idgraph.ir.argument_resolution import is_int

# Points at which a claim that no rule decides is tried, one by one.
MAX_POINTS = 1 << 17

Asked = Literal["predicate", "step", "start"]
"""The conditions on a run of lanes: agree on the predicate, step by one element, start at a multiple of the width."""


def find_loop(access: AccessFunction, loop: str | int | LoopVariable | IterDomain) -> LoopVariable:
    """The loop meant: itself, its name, its position (negative: from the innermost), or a loop axis of the output."""
    loops, own = access.loops, access.expr.output.loop
    at = own.index(loop) if isinstance(loop, IterDomain) and loop in own else loop
    if is_int(at) and -len(loops) <= at < len(loops):
        return loops[at]
    found = next((x for x in loops if loop is x or loop == x or (isinstance(loop, str) and loop == x.name)), None)
    if found is None:
        names = ", ".join(f"{x.name}" for x in loops)
        hint = f"its loops are {names}" if names else "it has no loop"
        raise IndexingError(f"{access.expr!r} has no loop {loop!r}", where=user_line(), hint=hint)
    return found


def bounded_loads(access: AccessFunction) -> dict[Expr, Expr]:
    """Loaded values as symbols with the bounds that ``load_bounds`` ask of them."""
    found: dict[Expr, Expr] = {}
    for condition in access.load_bounds:
        for s in condition.symbols:
            if s.name in access.loads and condition.op == "lt" and condition.args[0] == s:
                found[s] = symbol(s.name, 0, simplify(condition.args[1] - 1))
    return found


def address_along(access: AccessFunction, at: LoopVariable) -> Expr:
    """The address; of a register the number that it has along the loop: each step of a loop in which the value is made
    anew has a register of its own."""
    if access.buffer.place != "register":
        return access.address
    t = access.tensor
    made_here = t.definition is not None and t.definition.op in COUNTED
    return at.symbol if made_here or access.loops.index(at) < t.inline_position else as_expr(0)


@dataclass(frozen=True, slots=True)
class LaneAccess:
    """An access over runs of ``width`` steps of ``loop``: address and conditions in ``block`` and ``lane``."""

    access: AccessFunction
    loop: LoopVariable
    width: int
    block: Expr
    lane: Expr
    address: Expr
    conditions: tuple[Expr, ...]

    def at(self, e: Expr, lane: int) -> Expr:
        """``e`` at one lane."""
        return simplify(e.substitute({self.lane: as_expr(lane)}))

    @property
    def first(self) -> Expr:
        """Address of lane 0."""
        return self.at(self.address, 0)

    @property
    def predicate(self) -> Expr:
        """The whole predicate, in block and lane."""
        return and_(*self.conditions) if self.conditions else TRUE


def _block_and_lane(access: AccessFunction, at: LoopVariable, width: int) -> tuple[Expr, Expr]:
    """Block and lane of a loop; their names are those of loops that the operation does not have, so they are unique."""
    count = len(access.loops)
    return symbol(f"i{count}", 0, simplify(at.extent // width - 1)), symbol(f"i{count + 1}", 0, width - 1)


def lanes(access: AccessFunction, at: LoopVariable, width: int) -> LaneAccess:
    """``access`` with its loop variable written as block * width + lane."""
    block, lane = _block_and_lane(access, at, width)
    moved = {**bounded_loads(access), at.symbol: block * width + lane}
    address = simplify(address_along(access, at).substitute(moved))
    return LaneAccess(access, at, width, block, lane, address, tuple(c.substitute(moved) for c in access.conditions))


def loaded_anew(access: AccessFunction, at: LoopVariable, width: int) -> str:
    """The load symbol in the address whose value changes from lane to lane; empty when there is none."""
    block, lane = _block_and_lane(access, at, width)
    for name, (_, where) in access.loads.items():
        if name not in access.address.names:
            continue
        for x in where:
            if at.symbol in x.symbols and lane in simplify(x.substitute({at.symbol: block * width + lane})).symbols:
                return name
    return ""


@dataclass(frozen=True, slots=True)
class LaneMismatch:
    """A condition that a run of lanes breaks, or is not proved to keep.

    ``point`` is a loop point (of lane 0) that shows it, None where no proof was found either way; ``condition`` the
    conjunct that lanes disagree on.
    """

    asked: Asked
    point: Mapping[str, int] | None = None
    condition: Expr | None = None


def fault(run: LaneAccess, aligned: bool = True) -> LaneMismatch | None:
    """None when the run is legal at every point of the access, else what is wrong. ``aligned``: ask for the start."""
    guess = _by_rules(run, aligned)
    if guess is None:
        return None
    verdict = enumerate_points(_claim(run, aligned), MAX_POINTS)
    match verdict:
        case Proof():
            return None
        case CounterExample():
            return _seen(run, verdict.values, guess)
        case _:
            return guess


def _by_rules(run: LaneAccess, aligned: bool) -> LaneMismatch | None:
    for condition in run.conditions:
        if run.lane not in condition.symbols:
            continue
        whole = run.at(condition, 0)
        if any(run.at(condition, n) != whole for n in range(1, run.width)):
            return LaneMismatch("predicate", condition=condition)
    facts = tuple(run.at(c, 0) for c in run.conditions)
    if not _equal(run.address, run.first + run.lane, facts):
        return LaneMismatch("step")
    if aligned and not (multiple_of(run.first, run.width) or multiple_of(simplify(run.first, facts=facts), run.width)):
        return LaneMismatch("start")
    return None


def _equal(a: Expr, b: Expr, facts: tuple[Expr, ...]) -> bool:
    return simplify(a - b) == 0 or (bool(facts) and (simplify(a - b, facts=facts) == 0 or is_true(a.eq(b), facts)))


def _claim(run: LaneAccess, aligned: bool) -> Expr:
    """The whole claim over blocks, as one condition to be tried at each point."""
    asked: list[Expr] = []
    held = run.at(run.predicate, 0)
    for n in range(1, run.width):
        other = run.at(run.predicate, n)
        if other != held:
            asked.append((held & other) | (~held & ~other))
        asked.append(~held | run.at(run.address, n).eq(run.first + n))
    if aligned:
        asked.append(~held | (run.first % run.width).eq(0))
    return and_(*asked)


def _seen(run: LaneAccess, values: Mapping[str, int], guess: LaneMismatch) -> LaneMismatch:
    """The fault at a point that was found."""
    loops = {x.name: values.get(x.name, 0) for x in run.access.loops}
    point = {**loops, run.loop.name: values.get(run.block.name, 0) * run.width}
    env = {s.name: 0 for s in (*run.address.symbols, *run.predicate.symbols)} | dict(values)
    at = [{**env, run.lane.name: n} for n in range(run.width)]
    if len({bool(run.predicate.evaluate(p)) for p in at}) > 1:
        parted = [c for c in run.conditions if len({bool(c.evaluate(p)) for p in at}) > 1]
        return LaneMismatch("predicate", point, guess.condition if guess.condition in parted else parted[0])
    places = [int(run.address.evaluate(p)) for p in at]
    return LaneMismatch("step" if places != list(range(places[0], places[0] + run.width)) else "start", point)
