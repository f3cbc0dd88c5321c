"""The ways in which a gather of a computed tensor gets its elements, the cost of each, and the one that is taken.

*recompute*: the producer's own inputs are read at the loaded coordinate (`idgraph.rewrite.rematerialize`).
*predicate*: the loops run over all of the producer's axis and the threads combine what the one of the named element
has. *one-hot*: the same as a sum of ``where(index == iota, x, 0)``, only where asked for: -0.0 comes out as 0.0.
*global*: the producer is stored, and a later launch reads it. A gather from an input, or from what is in memory
anyway, is *direct*. One of a view by an index that is a formula is a view too: always recomputed, without estimates.

The time of each way of a gather, estimated of the operations near it, as they are scheduled and emitted.

The operations are those at most a few reads away, the nearest first and at most `MOST`; what they read of others counts
as an input, what others read of them as an output. So the estimate sees the schedule and the parallel types that
`auto` gives the producer and what follows, and its time does not grow with the rest of the fusion. Equal parts, as of
the blocks of a model, are estimated once in a process.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, cast, get_args

from idgraph.arith import Expr, as_expr, simplify
from idgraph.errors import EmitError, OperationError, ScheduleError, arguments, one_of, user_line
from idgraph.ir import SCANS, SCATTERS, Fusion, LoadedCoordinate, Tensor, TensorExpr, check_fusion, parse_fusion
from idgraph.ir.clone import extract_subgraph, rewriting, whole_state
from idgraph.ir.device import Device, current_device, device_of
from idgraph.ir.hooks import Estimate, estimated
from idgraph.ir.op_table import GATHERS, VIEWS
from idgraph.ir.ops_ragged import ragged_dim
from idgraph.ir.reshape import product
from idgraph.ir.schedule_log import Decision, Option
from idgraph.ir.walks import reach
from idgraph.rewrite.canonicalize_views import materialize_shape
from idgraph.rewrite.constant_folding import has_formula_index
from idgraph.rewrite.gather_lowering import (
    GatherReplacement,
    Strategy,
    computed_gathers,
    recomputed,
    source_of,
    source_operand,
)
from idgraph.rewrite.rematerialize import CannotRematerialize, Rematerializer

MOST = 16  # operations near a gather that its estimate is of
DEEP = 2  # other gathers between the gather and the farthest of them: a chain of gathers costs each of them the same
CLOSE = 1.25  # times that an estimate cannot tell apart (`ig.cost` is held to 0.8 to 1.25): bytes and operations decide
PREFERRED: Sequence[Strategy] = ("recompute", "global", "predicate", "one-hot")
_SAMPLE = 1024  # the size that a symbol without a smaller maximum is taken for


def ways_of(
    e: TensorExpr, possible: Sequence[Strategy], ways: GatherReplacement, device: Device
) -> dict[Strategy, Estimate | str]:
    """The cost of the operations near a gather by each way of ``possible``, or why one cannot be scheduled or emitted.

    The gathers before it go their ``ways``. Of those after it, one from the same source goes the same way, since by
    itself none may save the store; the rest recomputes where it can, or is a gather still, whichever takes less with
    the first of the ways. "one-hot" does what "predicate" does and adds: it is reported with the estimate of that.
    """
    exprs = near(e)
    inside, source = set(exprs), source_of(e)

    def leaves(t: Tensor) -> bool:
        outside = [u for u in t.uses if u not in inside]
        if t is source:  # gathers from it that are too far away go the same way
            outside = [u for u in outside if not (u.op in GATHERS and source_of(u) is t)]
        return t.fusion.is_output(t) or not t.uses or bool(outside)

    made, of = extract_subgraph(exprs, [t for x in exprs for t in x.outputs if leaves(t)])
    before: dict[str, Strategy] = {}
    after: list[str] = []
    same: set[str] = set()
    for x in computed_gathers(exprs):
        name = of[x.output].name
        if x.output in ways.again or x.output in ways.kept:
            before[name] = "recompute" if x.output in ways.again else "global"
        elif x is not e and source_of(x).definition in inside:
            after.append(name)
            same |= {name} if source_of(x) is source else set()
    text, on = str(made), device.to_json()
    usual: tuple[Strategy, ...] = ("recompute", "global") if set(after) - same else ("recompute",)
    found: dict[Strategy, Estimate | str] = {}
    for way in possible:
        if way == "one-hot" and "predicate" in found:
            found[way] = found["predicate"]
            continue
        costs: dict[Strategy, Estimate | str] = {}
        for most in usual:
            others = before | {n: way if n in same else most for n in after}
            costs[most] = _estimate(text, of[e.output].name, way, tuple(others.items()), on)
        known: dict[Strategy, Estimate] = {most: c for most, c in costs.items() if isinstance(c, Estimate)}
        order: list[Strategy] = sorted(known, key=lambda most: known[most].time_us)
        found[way], usual = costs[order[0] if order else usual[0]], tuple(order[:1]) or usual
    return found


def near(e: TensorExpr) -> list[TensorExpr]:
    """The operations nearest to ``e``, by reads in either direction and behind few other gathers, in order; none on
    ragged rows."""
    found, ring = {e: 0}, [e]
    while ring and len(found) < MOST:
        after: list[TensorExpr] = []
        for x in ring:
            made = [t.definition for t in x.inputs]
            for y in (*made, *(u for t in x.outputs for u in t.uses[:MOST])):
                if y is None or y in found or len(found) >= MOST or _is_on_rows(y):
                    continue
                gathers = found[x] + (y.op in GATHERS and source_of(y).definition is not None)
                if gathers <= DEEP:
                    found[y] = gathers
                    after.append(y)
        ring = after
    return _in_order(found)


def _is_on_rows(e: TensorExpr) -> bool:
    """Whether a tensor of this operation has rows of loaded length, which no array of a part that is estimated has."""
    return any(ragged_dim(t) is not None for t in (*e.inputs, *e.outputs))


def _in_order(found: Collection[TensorExpr]) -> list[TensorExpr]:
    """Producers before readers, by what the operations read of each other: the order of no other part matters."""
    done: dict[TensorExpr, None] = {}
    for start in found:
        open_ = [(start, False)]
        while open_:
            x, ready = open_.pop()
            if x in done:
                continue
            if ready:
                done[x] = None
                continue
            open_.append((x, True))
            open_ += [(d, False) for t in reversed(x.inputs) if (d := t.definition) in found and d is not None]
    return list(done)


@lru_cache(maxsize=1024)
def _estimate(
    text: str, asked: str, way: Strategy, others: Sequence[tuple[str, Strategy]], device: str
) -> Estimate | str:
    """The estimate of a part with the gather that is ``asked`` about taken one way and ``others`` theirs.

    One of the others whose way is impossible then stays a gather."""
    fusion = parse_fusion(text)
    symbols = {name: sample_size(s) for name, s in fusion.symbols.items()}
    ways: dict[str, Strategy] = {**dict(others), asked: way}
    taken = GatherReplacement()
    failed: dict[str, str] = {}
    try:
        for e in computed_gathers(fusion.exprs):
            try:
                taken.take(e, ways.get(e.output.name, "global"))
            except CannotRematerialize as error:
                failed[e.output.name] = str(error)
        failed |= taken.finish()
        if asked in failed:
            return failed[asked]
        # What is left reads memory; gathers that scatters become there, too: no estimate asks for another.
        return estimated(fusion, "global", Device.from_json(device), symbols)
    except (ScheduleError, EmitError) as error:
        return "; ".join(map(str, error.because)) or error.what


def cheapest(found: Mapping[Strategy, Estimate]) -> Strategy | None:
    """The way of least time; of those that are close to it the one of fewest bytes, then of fewest operations."""
    if not found:
        return None
    least = CLOSE * min(c.time_us for c in found.values())
    close: list[Strategy] = [name for name in PREFERRED if name in found and found[name].time_us <= least]
    return min(close, key=lambda name: (found[name].bytes, found[name].operations))


def sample_size(extent: Expr) -> int:
    """An extent; a symbol counts as a size it may have."""
    values: dict[str, int] = {}
    for s in extent.symbols:
        low, high, step, _ = s.symbol_bounds
        size = min(_SAMPLE, high) if isinstance(high, int) else _SAMPLE
        size = max(size // step * step, low if isinstance(low, int) else step)
        values[s.name] = size
    return int(extent.evaluate(values))


def sample_points(extents: Sequence[Expr]) -> int:
    """Points of a box; a symbol counts as a size it may have."""
    return math.prod(sample_size(n) for n in extents)


Force: TypeAlias = "Strategy | Mapping[str, Strategy] | None"


@arguments(ScheduleError, first=True, keep=rewriting)
def gather_plan(fusion: Fusion, force: Force = None, device: Device | str | None = None) -> tuple[Decision, ...]:
    """For each gather the way `auto` takes it, with the reason and the ways it rejects; changes nothing.

    Each way that is possible is tried on a copy of the operations near the gather, as `auto` schedules and the target
    of ``device`` emits them, and the one of the least time that `ig.cost` estimates is taken (see
    `idgraph.rewrite.gather_strategy`). A gather of what another gather made is decided where that one goes its way
    already (see `idgraph.rewrite.gather_lowering`). ``force`` chooses instead, without an estimate: one way for all
    gathers of computed tensors, or a way by name of the gather's output. Raises `ScheduleError` where a forced way is
    impossible.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(64, 1000)), f.input("i", shape=(64, 1), dtype="int64")
    >>> t = f.output(ig.gather(ig.log_softmax(x, 1), 1, i))
    >>> [plan] = ig.schedule.gather_plan(f)
    >>> plan.chosen, [option.name for option in plan.rejected]
    ('recompute', ['predicate', 'one-hot', 'global'])
    """
    check_fusion(fusion, "gather_plan", ScheduleError)
    put_back = whole_state(fusion)
    try:
        return choose_gather_strategies(fusion, force, current_device() if device is None else device_of(device))
    finally:
        put_back()


def choose_gather_strategies(fusion: Fusion, force: Force, device: Device) -> tuple[Decision, ...]:
    """Decide about each gather as `gather_plan` says, those before it on their ways, then rewrite them."""
    wanted = _forced(fusion, force)
    made, ways = list[Decision](), GatherReplacement()
    for t in [e.output for e in fusion.exprs if e.op in GATHERS]:
        e = t.definition
        if e is None or source_of(e).definition is None:
            made += [] if e is None else [_direct(e)]
            continue
        forced, found = wanted.get(t.name), _possible(e, ways.kept)
        estimates: Mapping[Strategy, Estimate | str] = {}
        possible: list[Strategy] = [w.name for w in found if not w.impossible]
        view = forced is None and "recompute" in possible and is_view(e)
        if forced is None and not view and len(possible) > 1:
            ragged: Mapping[Strategy, str] = dict.fromkeys(possible, "no estimate is of ragged rows")
            estimates = ragged if _is_on_rows(e) else ways_of(e, possible, ways, device)
        decision = _view_decision(e) if view else _decide(e, forced, found, estimates, device)
        made.append(decision)
        ways.take(e, cast("Strategy", decision.chosen))
    ways.finish()
    return tuple(made)


@arguments(ScheduleError, first=True, keep=rewriting)
def apply_gather_plan(fusion: Fusion, plan: Sequence[Decision]) -> None:
    """Rewrite the gathers of ``plan`` as it says, in its order; tensors that are needed no more are removed.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> a, i = f.input("a", shape=(64, 1000)), f.input("i", shape=(64, 1), dtype="int64")
    >>> t = f.output(ig.gather(a * 2.0, 1, i))
    >>> ig.schedule.apply_gather_plan(f, ig.schedule.gather_plan(f))
    >>> [e.op for e in f.exprs]
    ['take_along_dim', 'mul']
    """
    named, ways = {e.output.name: e for e in fusion.exprs if e.op in GATHERS}, GatherReplacement()
    failed: dict[str, str] = {}
    for decision in plan:
        e = named.get(decision.tensor)
        if e is None or decision.chosen not in get_args(Strategy):
            continue
        try:
            ways.take(e, cast("Strategy", decision.chosen))
        except CannotRematerialize as error:
            failed[e.output.name] = str(error)
    failed |= ways.finish()
    for name, why in failed.items():
        chosen = next(d.chosen for d in plan if d.tensor == name)
        raise _impossible(named[name], chosen, why)


def is_view(e: TensorExpr) -> bool:
    """Whether a gather only names elements of what is in memory: its indices are formulas, and so are those of all that
    it reads through.
    """

    def through(t: Tensor) -> Sequence[Tensor]:
        made = t.definition
        if made is None or made.op not in GATHERS:
            return made.inputs if made is not None and made.op in VIEWS else ()
        loads = {r.operand for row in made.reads for r in row if isinstance(r, LoadedCoordinate)}
        return [x for k, x in enumerate(made.inputs) if k not in loads] if has_formula_index(made) else ()

    return has_formula_index(e) and all(
        t.definition is None or bool(through(t)) for t in reach([source_of(e)], through)
    )


def _forced(fusion: Fusion, force: Force) -> Mapping[str, Strategy]:
    names = {e.output.name for e in computed_gathers(fusion.exprs)}
    if isinstance(force, str) and force not in get_args(Strategy):
        raise ScheduleError(
            f"gathers: {force!r} cannot be chosen", where=user_line(), hint=one_of(force, get_args(Strategy))
        )
    given = dict.fromkeys(names, force) if isinstance(force, str) else dict(force or {})
    for name, way in given.items():
        if name not in names or way not in get_args(Strategy):
            raise ScheduleError(
                f"gather {name}: {way!r} cannot be chosen",
                where=user_line(),
                hint=f"gathers of computed tensors: {', '.join(sorted(names)) or '(none)'}; "
                f"ways: {', '.join(get_args(Strategy))}",
            )
    return cast("Mapping[str, Strategy]", given)


# choice ---------------------------------------------------------------------------------------------------------------


def _decide(
    e: TensorExpr,
    forced: Strategy | None,
    found: Sequence[_StrategyCandidate],
    estimates: Mapping[Strategy, Estimate | str],
    device: Device,
) -> Decision:
    """The decision of one gather among the ways ``found``."""
    x, line, entries = source_of(e), place_of(e), _entries(e)

    def decision(chosen: str, reason: str, rejected: Iterable[Option] = ()) -> Decision:
        name = e.output.name
        return Decision("gather", name, x.name, entries, line, chosen, reason, tuple(rejected), forced is not None)

    stuck = [Option(w.name, None, w.why) for w in found if w.impossible]
    why = {w.name: w.why for w in found if not w.impossible}
    if forced is not None:
        if forced not in why:
            told = next(w.why for w in found if w.name == forced)
            raise _impossible(e, forced, told)
        return decision(forced, why[forced], stuck)
    if not estimates:
        (only,) = why
        return decision(only, f"the one way that is possible; {why[only]}", stuck)
    best = cheapest({name: t for name, t in estimates.items() if isinstance(t, Estimate) and name != "one-hot"})
    if best is None:
        told = "; ".join(dict.fromkeys(map(str, estimates.values())))
        return decision("global", f"no way is estimated for {device.name} ({told}); {why['global']}", stuck)
    options = {name: _option(name, t, why[name], device) for name, t in estimates.items()}
    reason = f"{options[best].amount()}; {options[best].why}"
    return decision(best, reason, [*stuck, *(o for name, o in options.items() if name != best)])


def _direct(e: TensorExpr) -> Decision:
    x = source_of(e)
    reason = f"{x.name} is an input, in memory"
    return Decision("gather", e.output.name, x.name, _entries(e), place_of(e), "direct", reason)


def _view_decision(e: TensorExpr) -> Decision:
    x = source_of(e)
    reason = f"{x.name} is a view, and the index a formula: both are one read of what is in memory"
    return Decision("gather", e.output.name, x.name, _entries(e), place_of(e), "recompute", reason)


def _impossible(e: TensorExpr, way: str, why: str) -> ScheduleError:
    return ScheduleError(f"gather {e.output.name}: {way} is impossible", where=place_of(e), because=[why])


def _option(name: str, found: Estimate | str, why: str, device: Device) -> Option:
    if isinstance(found, str):
        return Option(name, None, found)
    more = "" if name != "one-hot" else "or more " if device.kind == "cuda" else "(as predicate) "
    return Option(name, round(found.time_us, 2), why, f"us {more}on {device.name}, {found.moved}")


@dataclass(frozen=True, slots=True)
class _StrategyCandidate:
    """A way, what it does, or why it is ``impossible``."""

    name: Strategy
    why: str
    impossible: bool = False


def _possible(e: TensorExpr, kept: Collection[Tensor]) -> list[_StrategyCandidate]:
    x, k = source_of(e), source_operand(e)
    loaded = [p for p, r in enumerate(e.reads[k]) if isinstance(r, LoadedCoordinate)]
    found = [_recomputable(e, kept)]
    for way in ("predicate", "one-hot"):
        if len(loaded) != 1:
            found.append(_StrategyCandidate(way, f"{len(loaded)} axes are indexed together", True))
            continue
        count = _thousands(x.axes[loaded[0]].extent)
        what = "the threads combine" if way == "predicate" else "and adds all but one as zeros"
        found.append(_StrategyCandidate(way, f"it looks at all {count} elements of the axis for each; {what}"))
    stored, size = _stored_anyway(x), _thousands(simplify(product([d.extent for d in x.axes])))
    told = f"{x.name} is in memory anyway: {stored}" if stored else f"it stores {x.name}, {size} elements"
    return [*found, _StrategyCandidate("global", told)]


def _recomputable(e: TensorExpr, kept: Collection[Tensor]) -> _StrategyCandidate:
    fusion, x = e.output.fusion, source_of(e)
    mark, made = fusion.mark, list[Rematerializer]()

    def build() -> Tensor:
        value, reader = recomputed(e, kept)
        made.append(reader)
        return materialize_shape(value, e.output)

    try:
        fusion.trying(build, e.source_line)
    except (CannotRematerialize, OperationError) as error:
        return _StrategyCandidate("recompute", str(error), True)
    finally:
        fusion.undo(mark)
    reads = ", ".join(dict.fromkeys(t.name for t in made[0].reads)) or "nothing"
    return _StrategyCandidate("recompute", f"it reads {reads} at the index; {x.name} is not stored")


def _thousands(n: Expr) -> str:
    return f"{int(n):,}" if n.is_const else str(n)


def place_of(e: TensorExpr) -> str:
    """``file:line`` of an operation."""
    return f"{e.source_line.file}:{e.source_line.line}" if e.source_line is not None else ""


def _entries(e: TensorExpr) -> str:
    """The number of indices in a row: "one" for the cheap case, an index of extent one along its axis."""
    if e.op in ("gather", "take_along_dim"):
        dim = e.attrs["dim"]
        extent = e.output.axes[dim % e.output.ndim].extent if isinstance(dim, int) else as_expr(0)
        return "one" if extent == as_expr(1) else str(extent)
    index = next(t for p, t in enumerate(e.inputs) if p != source_operand(e))
    one = sample_points([d.extent for d in index.axes]) == 1
    return "one" if one else " x ".join(str(d.extent) for d in index.axes) or "one"


def _stored_anyway(x: Tensor) -> str:
    made = x.definition
    if x.fusion.is_output(x):
        return "it is an output"
    if made is not None and made.is_reduction:
        return "it is a reduction's result"
    if made is not None and made.op in SCATTERS:
        return "it is a scatter's result"
    if made is not None and made.op in SCANS:
        return "it is a scan's result"
    return ""
