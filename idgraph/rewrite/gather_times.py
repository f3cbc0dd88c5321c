"""The time of each way of a gather, estimated of the operations near it, as they are scheduled and emitted.

The operations are those at most a few reads away, the nearest first and at most `MOST`; what they read of others counts
as an input, what others read of them as an output. So the estimate sees the schedule and the parallel types that
`auto` gives the producer and what follows, and its time does not grow with the rest of the fusion. Equal parts, as of
the blocks of a model, are estimated once in a process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

from idgraph.arith import Expr
from idgraph.errors import EmitError, ScheduleError
from idgraph.ir import Loaded, Tensor, TensorExpr, parse_fusion
from idgraph.ir.device import Device
from idgraph.ir.estimates import Estimate, estimated
from idgraph.ir.rebuild import part
from idgraph.rewrite.read_at import GATHERS

Strategy = Literal["recompute", "predicate", "one-hot", "global"]
MOST = 16  # operations near a gather that its estimate is of
CLOSE = 1.25  # times that an estimate cannot tell apart (`ig.cost` is held to 0.8 to 1.25): bytes and operations decide
PREFERRED: Sequence[Strategy] = ("recompute", "global", "predicate", "one-hot")
_SAMPLE = 1024  # the size that a symbol without a smaller maximum is taken for


def source_of(e: TensorExpr) -> Tensor:
    """The tensor from which a gather reads."""
    return e.inputs[source_operand(e)]


def source_operand(e: TensorExpr) -> int:
    """The operand that is read at loaded coordinates."""
    return next(k for k, row in enumerate(e.reads) if any(isinstance(r, Loaded) for r in row))


def ways_of(
    e: TensorExpr,
    possible: Mapping[Tensor, Sequence[Strategy]],
    taken: Mapping[Tensor, Strategy],
    device: Device,
) -> dict[Strategy, Estimate | str]:
    """The cost of the operations near a gather by each way, or why a way cannot be scheduled or emitted there.

    ``possible`` are the ways of every gather, by its output, ``taken`` those of the gathers that are decided. Others
    from the same source go the same way as this one, since alone none may save the store; the rest recomputes where it
    can. "one-hot" does what "predicate" does and adds: it is told with the estimate of that.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(64, 4096)), f.input("i", shape=(64, 1), dtype="int64")
    >>> t = f.output(ig.gather(ig.exp(x), 1, i))
    >>> found = ways_of(t.definition, {t: ("recompute", "global")}, {}, ig.cost.devices["H200"])
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

    made, of = part(exprs, [t for x in exprs for t in x.outputs if leaves(t)])
    beside = [x for x in exprs if x is not e and x.op in GATHERS and source_of(x).definition in inside]

    def other(x: TensorExpr, way: Strategy) -> Strategy:
        if x.output in taken:
            return taken[x.output]
        ways = possible.get(x.output, ())
        same = source_of(x) is source and way in ways
        return way if same else "recompute" if "recompute" in ways else "global"

    text, on, named = str(made), device.to_json(), of[e.output].name
    found: dict[Strategy, Estimate | str] = {}
    for way in possible[e.output]:
        if way == "one-hot" and "predicate" in found:
            found[way] = found["predicate"]
            continue
        found[way] = _estimate(text, (*((of[x.output].name, other(x, way)) for x in beside), (named, way)), on)
        if isinstance(found[way], str) and beside:  # it may be another's way that is impossible here
            plain = ((of[x.output].name, taken.get(x.output, "global")) for x in beside)
            found[way] = _estimate(text, (*plain, (named, way)), on)
    return found


def near(e: TensorExpr) -> list[TensorExpr]:
    """The operations nearest to ``e``, by reads in either direction, in order."""
    found, ring = {e: None}, [e]
    while ring and len(found) < MOST:
        after: list[TensorExpr] = []
        for x in ring:
            made = [t.definition for t in x.inputs]
            for y in (*made, *(u for t in x.outputs for u in t.uses[:MOST])):
                if y is not None and y not in found and len(found) < MOST:
                    found[y] = None
                    after.append(y)
        ring = after
    return _in_order(found)


def _in_order(found: Mapping[TensorExpr, None]) -> list[TensorExpr]:
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
def _estimate(text: str, ways: tuple[tuple[str, Strategy], ...], device: str) -> Estimate | str:
    fusion = parse_fusion(text)
    symbols = {name: sample_size(s) for name, s in fusion.symbols.items()}
    try:
        return estimated(fusion, dict(ways), Device.from_json(device), symbols)
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
