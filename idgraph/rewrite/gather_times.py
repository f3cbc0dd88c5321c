"""The time of each way of a gather, estimated of the operations near it, as they are scheduled and emitted.

The operations are those at most a few reads away, the nearest first and at most `MOST`; what they read of others counts
as an input, what others read of them as an output. So the estimate sees the schedule and the parallel types that
`auto` gives the producer and what follows, and its time does not grow with the rest of the fusion. Equal parts, as of
the blocks of a model, are estimated once in a process.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from idgraph.arith import Expr
from idgraph.errors import EmitError, ScheduleError
from idgraph.ir import Tensor, TensorExpr, parse_fusion
from idgraph.ir.changed_copy import extract_subgraph
from idgraph.ir.device import Device
from idgraph.ir.estimates import Estimate, estimated
from idgraph.rewrite.read_at import GATHERS, CannotRematerialize
from idgraph.rewrite.take_gather import GatherReplacement, Strategy, computed_gathers, source_of

MOST = 16  # operations near a gather that its estimate is of
DEEP = 2  # other gathers between the gather and the farthest of them: a chain of gathers costs each of them the same
CLOSE = 1.25  # times that an estimate cannot tell apart (`ig.cost` is held to 0.8 to 1.25): bytes and operations decide
PREFERRED: Sequence[Strategy] = ("recompute", "global", "predicate", "one-hot")
_SAMPLE = 1024  # the size that a symbol without a smaller maximum is taken for


def ways_of(
    e: TensorExpr, possible: Sequence[Strategy], ways: GatherReplacement, device: Device
) -> dict[Strategy, Estimate | str]:
    """The cost of the operations near a gather by each way of ``possible``, or why one cannot be scheduled or emitted.

    The gathers before it go their ``ways``. Of those after it, one from the same source goes the same way, since alone
    none may save the store; the rest recomputes where it can, or is a gather still, whichever takes less with the
    first of the ways. "one-hot" does what "predicate" does and adds: it is told with the estimate of that.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(64, 4096)), f.input("i", shape=(64, 1), dtype="int64")
    >>> t = f.output(ig.gather(ig.exp(x), 1, i))
    >>> found = ways_of(t.definition, ("recompute", "global"), Taken(), ig.cost.devices["H200"])
    >>> [(name, c.kernels, c.bytes) for name, c in found.items()]
    [('recompute', 1, 1024), ('global', 2, 2098176)]
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
    """The operations nearest to ``e``, by reads in either direction and behind few other gathers, in order."""
    found, ring = {e: 0}, [e]
    while ring and len(found) < MOST:
        after: list[TensorExpr] = []
        for x in ring:
            made = [t.definition for t in x.inputs]
            for y in (*made, *(u for t in x.outputs for u in t.uses[:MOST])):
                if y is None or y in found or len(found) >= MOST:
                    continue
                gathers = found[x] + (y.op in GATHERS and source_of(y).definition is not None)
                if gathers <= DEEP:
                    found[y] = gathers
                    after.append(y)
        ring = after
    return _in_order(found)


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
        left = {e.output.name: "global" for e in computed_gathers(fusion.exprs)}
        return estimated(fusion, left, Device.from_json(device), symbols)
    except (ScheduleError, EmitError) as error:
        return "; ".join(map(str, error.because)) or error.what


def cheapest(found: Mapping[Strategy, Estimate]) -> Strategy | None:
    """The way of least time; of those that are close to it the one of fewest bytes, then of fewest operations.

    >>> cheapest({"predicate": Estimate(1, 100, 9, 5.0), "global": Estimate(1, 100, 9, 5.01)})
    'global'
    >>> cheapest({"predicate": Estimate(1, 100, 9, 5.0), "global": Estimate(2, 100, 9, 7.5)})
    'predicate'
    """
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
