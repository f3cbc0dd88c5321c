"""The ways in which a gather of a computed tensor gets its elements, the cost of each, and the one that is taken.

*recompute*: the producer's own inputs are read at the loaded coordinate (`idgraph.rewrite.read_at`). *predicate*: the
loops run over all of the producer's axis and the owner of the named element keeps it. *one-hot*: the same as a sum of
``where(index == iota, x, 0)``, which never costs least, and of which -0.0 comes out as 0.0. *global*: the producer is
stored, and a later launch reads it. A gather from an input, or from what is in memory anyway, is *direct*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast, get_args

from idgraph.arith import Expr, as_expr, simplify
from idgraph.errors import OperationError, ScheduleError, arguments, user_line
from idgraph.ir import (
    SCANS,
    SCATTERS,
    Fusion,
    Loaded,
    Mapped,
    Tensor,
    TensorExpr,
    check_fusion,
    movement,
    ops,
)
from idgraph.ir import composite as rows
from idgraph.ir.decisions import Decision, Option
from idgraph.ir.device import Device, device_of
from idgraph.ir.dtypes import is_float
from idgraph.ir.estimates import Estimate
from idgraph.ir.indexing import attr
from idgraph.ir.pointwise import same_extent
from idgraph.ir.registry import apply
from idgraph.ir.reshape import product
from idgraph.ir.state import rewriting
from idgraph.rewrite.gather_times import Strategy, cheapest, sample_points, source_of, source_operand, ways_of
from idgraph.rewrite.read_at import GATHERS, Along, Coordinate, Reader, Stuck

AGAIN = 16  # reads of one element after which computing it again is code without end: gathers of gathers double it
Force: TypeAlias = "Strategy | Mapping[str, Strategy] | None"
_LOWEST: Mapping[str, int] = {
    "uint8": 0, "int8": -(2**7), "int16": -(2**15), "int32": -(2**31), "int64": -(2**63),
}  # fmt: skip


@arguments(ScheduleError, first=True, keep=rewriting)
def gather_plan(fusion: Fusion, force: Force = None, device: Device | str = "H200") -> tuple[Decision, ...]:
    """For each gather the way `auto` takes it, with the reason and the ways it rejects; changes nothing.

    Each way that is possible is tried on a copy of the operations near the gather, as `auto` schedules and the target
    of ``device`` emits them, and the one of the least time that `ig.cost` estimates is taken (see
    `idgraph.rewrite.gather_times`). ``force`` chooses instead, without an estimate: one way for all gathers of computed
    tensors, or a way by name of the gather's output. Raises `ScheduleError` where a forced way is impossible.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(64, 1000)), f.input("i", shape=(64, 1), dtype="int64")
    >>> t = f.output(ig.gather(ig.log_softmax(x, 1), 1, i))
    >>> [plan] = ig.schedule.gather_plan(f)
    >>> plan.chosen, [option.name for option in plan.rejected]
    ('recompute', ['predicate', 'one-hot', 'global'])
    """
    check_fusion(fusion, "gather_plan", ScheduleError)
    wanted = _forced(fusion, force)
    on, taken = device_of(device), dict[Tensor, Strategy]()
    every = [e for e in fusion.exprs if e.op in GATHERS]
    ways = {e.output: _possible(e) for e in every if source_of(e).definition is not None}
    open_: dict[Tensor, Sequence[Strategy]] = {
        t: [w.name for w in found if not w.impossible] for t, found in ways.items()
    }
    made: list[Decision] = []
    for e in every:
        t, estimates = e.output, dict[Strategy, Estimate | str]()
        forced = wanted.get(t.name)
        if t in ways and forced is None and len(open_[t]) > 1:
            estimates = ways_of(e, open_, taken, on)
        decision = _decide(e, forced, ways.get(t, ()), estimates, on.name)
        made.append(decision)
        if t in ways:
            taken[t] = cast("Strategy", decision.chosen)
    return tuple(made)


@arguments(ScheduleError, first=True, keep=rewriting)
def apply_gather_plan(fusion: Fusion, plan: Sequence[Decision]) -> None:
    """Rewrite the gathers of ``plan`` as it says; tensors that are needed no more are removed.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> a, i = f.input("a", shape=(64, 1000)), f.input("i", shape=(64, 1), dtype="int64")
    >>> t = f.output(ig.gather(a * 2.0, 1, i))
    >>> ig.schedule.apply_gather_plan(f, ig.schedule.gather_plan(f))
    >>> [e.op for e in f.exprs]
    ['take_along_dim', 'mul']
    """
    for decision in reversed(plan):
        # A gather of a gather: the outer one may have taken the inner one away.
        e = next((x for x in fusion.exprs if x.output.name == decision.tensor), None)
        build = _ways(e).get(decision.chosen) if e is not None and e.op in GATHERS else None
        if build is None or e is None:
            continue
        rewrite(e, build)


def rewrite(e: TensorExpr, build: Callable[[], Tensor]) -> None:
    """Let the output of ``e`` be computed as ``build`` says; operations that served ``e`` alone are removed."""
    fusion, t = e.output.fusion, e.output

    def whole() -> Tensor:
        return _whole(build(), t)

    before = _ancestors([e])
    made, exprs = fusion.trying(whole, e.source_line)
    kept = _needed(made, exprs)
    fusion.remove([x for x in reversed(exprs) if x not in kept])
    fusion.adopt(t, made, [x for x in exprs if x in kept])
    for x in reversed([x for x in fusion.exprs if x in before]):
        if not x.output.uses and not fusion.is_output(x.output):
            fusion.remove([x])


def _needed(made: Tensor, exprs: Sequence[TensorExpr]) -> set[TensorExpr]:
    wanted = {made}
    kept: set[TensorExpr] = set()
    for x in reversed(exprs):
        if x.output in wanted:
            kept.add(x)
            wanted.update(x.inputs)
    return kept


def _whole(made: Tensor, t: Tensor) -> Tensor:
    """``made`` in the shape and type of ``t``, as a tensor that nobody reads yet."""
    if made.dtype != t.dtype:
        made = ops.cast(made, t.dtype)
    if not all(same_extent(a.extent, b.extent) for a, b in zip(made.axes, t.axes, strict=True)):
        made = movement.expand(made, list(t.shape))
    return ops.copy(made) if made.uses or made.definition is None else made


def _ancestors(exprs: Iterable[TensorExpr]) -> set[TensorExpr]:
    """The operations that any of ``exprs`` follows from, each walked once."""
    found: set[TensorExpr] = set()
    open_ = [t.definition for e in exprs for t in e.inputs]
    while open_:
        x = open_.pop()
        if x is not None and x not in found:
            found.add(x)
            open_ += [t.definition for t in x.inputs]
    return found


def _forced(fusion: Fusion, force: Force) -> Mapping[str, Strategy]:
    names = {e.output.name for e in fusion.exprs if e.op in GATHERS and source_of(e).definition is not None}
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


# ways -----------------------------------------------------------------------------------------------------------------


def _ways(e: TensorExpr) -> dict[str, Callable[[], Tensor]]:
    return {
        "recompute": lambda: _recomputed(e)[0],
        "predicate": lambda: _selected(e, "predicate"),
        "one-hot": lambda: _selected(e, "one-hot"),
    }


def _recomputed(e: TensorExpr) -> tuple[Tensor, Reader]:
    reader, x = Reader(e.output.fusion, tuple(d.extent for d in e.output.axes)), source_of(e)
    made = reader.gather(e, tuple(Along(p) for p in range(e.output.ndim)))
    if x in reader.reads:
        raise Stuck(f"{x.name} has fewer elements than are gathered: each is reduced once, and read where it lies")
    return made, reader


def _selected(e: TensorExpr, way: str) -> Tensor:
    """The element that the index names among all of the axis, by one reduction."""
    t, x, k = e.output, source_of(e), source_operand(e)
    loaded = [p for p, r in enumerate(e.reads[k]) if isinstance(r, Loaded)]
    if len(loaded) != 1:
        raise Stuck(f"{len(loaded)} axes are indexed together")
    n = x.axes[loaded[0]].extent
    # One index a row: the axis itself is reduced; else an axis of its own, behind the others.
    alone = e.op in ("gather", "take_along_dim") and t.axes[loaded[0]].extent == as_expr(1)
    last = loaded[0] if alone else t.ndim
    extents = [d.extent for d in t.axes]
    reader = Reader(t.fusion, (*extents[:last], n, *extents[last + 1 :]))
    own: dict[object, Coordinate] = {d: Along(p) for p, d in enumerate(t.axes)}
    for expr in t.domain.exprs:
        own |= dict.fromkeys(expr.inputs, own[expr.outputs[0]])
    number = Along(last)
    at = [
        number if isinstance(r, Loaded) else own[r.domain] if isinstance(r, Mapped) else as_expr(0) for r in e.reads[k]
    ]
    value = reader.read(x, at)
    (other,) = (j for j in range(len(e.inputs)) if j != k)
    index = reader.read(
        e.inputs[other], [own[r.domain] if isinstance(r, Mapped) else as_expr(0) for r in e.reads[other]]
    )
    hit = named(index, reader.count(last), n)
    if x.dtype == "bool":
        return rows.any(ops.logical_and(hit, value), last, alone)
    if way == "one-hot":
        zero = 0.0 if is_float(x.dtype) else 0
        return rows.sum(_as(ops.where(hit, value, zero), x), last, alone, dtype=x.dtype)
    lowest = -math.inf if is_float(x.dtype) else _LOWEST[x.dtype]
    return rows.amax(_as(ops.where(hit, value, lowest), x), last, alone)


def _as(made: Tensor, x: Tensor) -> Tensor:
    return made if made.dtype == x.dtype else ops.cast(made, x.dtype)


def named(index: Tensor, numbers: Tensor, extent: Expr) -> Tensor:
    """``index == numbers``; a checked run refuses an index outside 0 .. extent - 1."""
    return apply(index.fusion, "eq", (index, numbers), {"within": attr(extent)})


# choice ---------------------------------------------------------------------------------------------------------------


def _decide(
    e: TensorExpr,
    forced: Strategy | None,
    found: Sequence[_Way],
    estimates: Mapping[Strategy, Estimate | str],
    device: str,
) -> Decision:
    """The decision of one gather among the ways ``found``."""
    x, line, entries = source_of(e), place_of(e), _entries(e)

    def made(chosen: str, reason: str, rejected: Iterable[Option] = ()) -> Decision:
        name = e.output.name
        return Decision("gather", name, x.name, entries, line, chosen, reason, tuple(rejected), forced is not None)

    if x.definition is None:
        return made("direct", f"{x.name} is an input, in memory")
    stuck = [Option(w.name, None, w.why) for w in found if w.impossible]
    why = {w.name: w.why for w in found if not w.impossible}
    if forced is not None:
        if forced not in why:
            told = next(w.why for w in found if w.name == forced)
            raise ScheduleError(f"gather {e.output.name}: {forced} is impossible", where=line, because=[told])
        return made(forced, why[forced], stuck)
    if not estimates:
        (only,) = why
        return made(only, f"the one way that is possible; {why[only]}", stuck)
    best = cheapest({name: t for name, t in estimates.items() if isinstance(t, Estimate)})
    if best is None:
        told = "; ".join(dict.fromkeys(map(str, estimates.values())))
        return made("global", f"no way is emitted for {device} ({told}); {why['global']}", stuck)
    options = {name: _option(name, t, why[name], device) for name, t in estimates.items()}
    reason = f"{options[best].amount()}; {options[best].why}"
    return made(best, reason, [*stuck, *(o for name, o in options.items() if name != best)])


def _option(name: str, found: Estimate | str, why: str, device: str) -> Option:
    if isinstance(found, str):
        return Option(name, None, found)
    more = "or more " if name == "one-hot" else ""
    return Option(name, round(found.time_us, 2), why, f"us {more}on {device}, {found.moved}")


@dataclass(frozen=True, slots=True)
class _Way:
    """A way, what it does, or why it is ``impossible``."""

    name: Strategy
    why: str
    impossible: bool = False


def _possible(e: TensorExpr) -> list[_Way]:
    x, k = source_of(e), source_operand(e)
    loaded = [p for p, r in enumerate(e.reads[k]) if isinstance(r, Loaded)]
    found = [_recomputable(e)]
    for way in ("predicate", "one-hot"):
        if len(loaded) != 1:
            found.append(_Way(way, f"{len(loaded)} axes are indexed together", True))
            continue
        count = _number(x.axes[loaded[0]].extent)
        what = "the owner keeps its element" if way == "predicate" else "and adds all but one as zeros"
        found.append(_Way(way, f"it looks at all {count} elements of the axis for each; {what}"))
    stored, size = _stored_anyway(x), _number(simplify(product([d.extent for d in x.axes])))
    told = f"{x.name} is in memory anyway: {stored}" if stored else f"it stores {x.name}, {size} elements"
    return [*found, _Way("global", told)]


def _recomputable(e: TensorExpr) -> _Way:
    fusion, x = e.output.fusion, source_of(e)
    mark, made = fusion.mark, list[Reader]()

    def build() -> Tensor:
        value, reader = _recomputed(e)
        made.append(reader)
        return _whole(value, e.output)

    try:
        _, exprs = fusion.trying(build, e.source_line)
    except (Stuck, OperationError) as error:
        return _Way("recompute", str(error), True)
    finally:
        fusion.undo(mark)
    if not made[0].tests_index:
        return _Way("recompute", f"{x.name} does not depend on the index, which nothing would test then", True)
    places = sum(x.op in GATHERS for x in exprs)
    if places > AGAIN:
        return _Way("recompute", f"it reads {places} places for each element, more than {AGAIN}", True)
    reads = ", ".join(dict.fromkeys(t.name for t in made[0].reads)) or "nothing"
    return _Way("recompute", f"it reads {reads} at the index; {x.name} is not stored")


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
