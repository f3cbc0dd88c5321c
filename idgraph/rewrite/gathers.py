"""The ways in which a gather of a computed tensor gets its elements, the cost of each, and the one that is taken.

*recompute*: the producer's own inputs are read at the loaded coordinate (`idgraph.rewrite.read_at`). *predicate*: the
loops run over all of the producer's axis and the owner of the named element keeps it. *one-hot*: the same as a sum of
``where(index == iota, x, 0)``, which is taken only where it is asked for: -0.0 comes out as 0.0. *global*: the producer
is stored, and a later launch reads it. A gather from an input, or from what is in memory anyway, is *direct*.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast, get_args

from idgraph.arith import Expr, as_expr, simplify
from idgraph.errors import OperationError, ScheduleError, arguments, user_line
from idgraph.ir import (
    SCANS,
    SCATTERS,
    Fusion,
    LoadedCoordinate,
    Tensor,
    TensorExpr,
    check_fusion,
)
from idgraph.ir.decisions import Decision, Option
from idgraph.ir.device import Device, device_of
from idgraph.ir.estimates import Estimate
from idgraph.ir.reshape import product
from idgraph.ir.state import rewriting, whole_state
from idgraph.rewrite.gather_times import cheapest, sample_points, ways_of
from idgraph.rewrite.read_at import GATHERS, CannotRematerialize, Rematerializer
from idgraph.rewrite.replacing import materialize_shape
from idgraph.rewrite.take_gather import (
    GatherReplacement,
    Strategy,
    computed_gathers,
    recomputed,
    source_of,
    source_operand,
)

Force: TypeAlias = "Strategy | Mapping[str, Strategy] | None"


@arguments(ScheduleError, first=True, keep=rewriting)
def gather_plan(fusion: Fusion, force: Force = None, device: Device | str = "H200") -> tuple[Decision, ...]:
    """For each gather the way `auto` takes it, with the reason and the ways it rejects; changes nothing.

    Each way that is possible is tried on a copy of the operations near the gather, as `auto` schedules and the target
    of ``device`` emits them, and the one of the least time that `ig.cost` estimates is taken (see
    `idgraph.rewrite.gather_times`). A gather of what another gather made is decided where that one goes its way already
    (see `idgraph.rewrite.take_gather`). ``force`` chooses instead, without an estimate: one way for all gathers of
    computed tensors, or a way by name of the gather's output. Raises `ScheduleError` where a forced way is impossible.

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
        return choose_gather_strategies(fusion, force, device_of(device))
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
        estimates = dict[Strategy, Estimate | str]()
        possible: list[Strategy] = [w.name for w in found if not w.impossible]
        if forced is None and len(possible) > 1:
            estimates = ways_of(e, possible, ways, device)
        decision = _decide(e, forced, found, estimates, device)
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


def _forced(fusion: Fusion, force: Force) -> Mapping[str, Strategy]:
    names = {e.output.name for e in computed_gathers(fusion.exprs)}
    if isinstance(force, str) and force not in get_args(Strategy):
        raise ScheduleError(
            f"gathers: {force!r} cannot be chosen",
            where=user_line(),
            hint=f"one of {', '.join(get_args(Strategy))}",
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

    def made(chosen: str, reason: str, rejected: Iterable[Option] = ()) -> Decision:
        name = e.output.name
        return Decision("gather", name, x.name, entries, line, chosen, reason, tuple(rejected), forced is not None)

    stuck = [Option(w.name, None, w.why) for w in found if w.impossible]
    why = {w.name: w.why for w in found if not w.impossible}
    if forced is not None:
        if forced not in why:
            told = next(w.why for w in found if w.name == forced)
            raise _impossible(e, forced, told)
        return made(forced, why[forced], stuck)
    if not estimates:
        (only,) = why
        return made(only, f"the one way that is possible; {why[only]}", stuck)
    best = cheapest({name: t for name, t in estimates.items() if isinstance(t, Estimate) and name != "one-hot"})
    if best is None:
        told = "; ".join(dict.fromkeys(map(str, estimates.values())))
        return made("global", f"no way is emitted for {device.name} ({told}); {why['global']}", stuck)
    options = {name: _option(name, t, why[name], device) for name, t in estimates.items()}
    reason = f"{options[best].amount()}; {options[best].why}"
    return made(best, reason, [*stuck, *(o for name, o in options.items() if name != best)])


def _direct(e: TensorExpr) -> Decision:
    x = source_of(e)
    reason = f"{x.name} is an input, in memory"
    return Decision("gather", e.output.name, x.name, _entries(e), place_of(e), "direct", reason)


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
        count = _number(x.axes[loaded[0]].extent)
        what = "the owner keeps its element" if way == "predicate" else "and adds all but one as zeros"
        found.append(_StrategyCandidate(way, f"it looks at all {count} elements of the axis for each; {what}"))
    stored, size = _stored_anyway(x), _number(simplify(product([d.extent for d in x.axes])))
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


def _number(n: Expr) -> str:
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
