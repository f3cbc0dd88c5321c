"""Conditions of an access: the bounds of its axes that neither ranges nor the other bounds prove."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from idgraph.arith import FALSE, TRUE, Expr, Proof, and_, drop_redundant, enumerate_points, simplify, strongest
from idgraph.arith.work import at_most
from idgraph.graphs.coordinates import is_product
from idgraph.graphs.own_axes import Bound, Side
from idgraph.ir import IterDomain, Split

_MANY = 16  # bounds of which those that others imply are left out before each is simplified
_FEW = 1 << 10  # points at which it is tried whether a conjunct is needed


def undischarged_bounds(bounds: Iterable[Bound], known: Sequence[Expr]) -> tuple[tuple[Expr, ...], tuple[Bound, ...]]:
    """Conjuncts that are not proved by ranges or by the others, and the bounds behind them; ``known`` come first.

    Each is in its smallest form where the others hold, and so are the bounds. FALSE alone where they exclude each
    other: these loops never touch the element.
    """
    found = tuple(bounds)
    made: list[Expr] = list(known)
    asked = dict.fromkeys(b.condition for b in (_asked(found) if len(found) > _MANY else found))
    for condition in strongest(asked) if len(asked) > _MANY else asked:
        c = simplify(condition)
        if c != TRUE and c not in made:
            made.append(c)
    if len(made) <= 1:
        return tuple(made), found
    kept = list(drop_redundant(made))
    if simplify(and_(*kept)) == FALSE:
        return (FALSE,), found
    smaller: dict[Expr, Expr] = {}
    with at_most():
        for n, c in enumerate(kept):
            if c not in known:
                new = simplify(c, facts=[k for k in kept if k is not c])
                # No further loop variable: a condition is tested as far out as its variables allow.
                if (new.cost, new.divmods) < (c.cost, c.divmods) and new.symbols <= c.symbols:
                    kept[n] = smaller[c] = new
    kept = _without_implied(drop_redundant(kept) if smaller else kept)
    if smaller:
        found = tuple(replace(b, condition=smaller.get(simplify(b.condition), b.condition)) for b in found)
    return tuple(kept), found


def _asked(bounds: Sequence[Bound]) -> list[Bound]:
    """The bounds but those that others imply by the split between them: of splits of splits one bound is left.

    Where an axis is ``outer * n + inner``, it is below its end only where ``outer`` is; for a divisible split also the
    other way round. It is not below 0 where neither of the two is. So each split drops one of two ends, in one
    direction: never in a ring.
    """
    sides = {(b.axis, b.side) for b in bounds}
    left: set[tuple[IterDomain, Side]] = set()
    for b in bounds:
        x = b.expr
        if not isinstance(x, Split) or b.axis is not x.source or any((d, "start") not in sides for d in x.outputs):
            continue
        left.add((b.axis, "start"))
        if b.side == "stop":
            even = (x.inner, "stop") in sides and is_product(x.outer.extent, x.inner.extent, x.source.extent)
            left.add((x.source if even else x.outer, "stop"))
    return [b for b in bounds if (b.axis, b.side) not in left]


def _without_implied(kept: Sequence[Expr]) -> Sequence[Expr]:
    """The conditions that the others do not imply at every point, where remainders are involved and points are few.

    ``i < 15`` beside ``i % 3 == 2`` for i below 16: no rule of sums says so.
    """
    for c in kept:
        others = [k for k in kept if k is not c and k.symbols & c.symbols]
        with_remainders = others and any(k.divmods for k in (c, *others))
        if with_remainders and isinstance(enumerate_points(c, _FEW, others), Proof):
            return _without_implied([k for k in kept if k is not c])
    return kept
