"""Predicates as conjuncts in the user's terms: which axis each bounds, at which end, and what made it necessary.

Conditions of an access: the bounds of its axes that neither ranges nor the other bounds prove.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from idgraph.arith import FALSE, TRUE, Expr, Proof, and_, drop_redundant, enumerate_points, simplify, strongest
from idgraph.arith.expr import at_most
from idgraph.display import Printed
from idgraph.graphs.coordinate_rules import is_product
from idgraph.graphs.coordinate_solver import Bound, Side
from idgraph.index.access_relation import AccessFunction
from idgraph.ir import DomainExpr, IterDomain, Merge, Resize, Roll, RowPartition, Split, Stride, Swizzle, tensor_of


@dataclass(frozen=True, slots=True)
class Conjunct:
    """One bound of a predicate: ``condition`` in loop variables, the ``axis`` it keeps in place, at which ``side``.

    ``cause`` says in words what makes it necessary, ``line`` where the user wrote that. ``dropped`` is empty for a
    conjunct that stands in the predicate, else the proof that it needs no test.
    """

    condition: Expr
    axis: IterDomain
    side: Side
    cause: str
    line: str
    dropped: str = ""

    @property
    def label(self) -> str:
        """The axis as the user counts it (``t3 axis 0``), or by name where it is not one of the shape."""
        t = tensor_of(self.axis)
        if t is not None and self.axis in t.axes:
            return f"{t.name} axis {t.axes.index(self.axis)}"
        return f"reduced axis {self.axis.label}" if self.axis.kind == "reduction" else self.axis.label

    def __str__(self) -> str:
        where = f" ({self.line})" if self.line else ""
        proof = f"; not tested: {self.dropped}" if self.dropped else ""
        return f"{self.condition}: {self.side} of {self.label}, {self.cause}{where}{proof}"


@dataclass(frozen=True, slots=True)
class Predicate(Printed):
    """The predicate of an access: the ``conjuncts`` that are tested, and those that are not, with the proof.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("a", shape=(100,)) + 1)
    >>> t = t.split(0, 32)
    >>> why = ig.IdModel(f).write(t.definition).explain_predicate()
    >>> [(str(c.condition), c.label, c.side, c.cause) for c in why.conjuncts]
    [('i0*32 + i1 < 100', 't1 axis 0', 'stop', 'split of 100 by 32')]
    >>> [(str(c.condition), c.dropped) for c in why.dropped]
    [('i0*32 + i1 >= 0', 'it holds for all loop values')]
    """

    what: str
    condition: Expr
    conjuncts: tuple[Conjunct, ...]
    dropped: tuple[Conjunct, ...]

    def __str__(self) -> str:
        when = "always" if self.condition == TRUE else f"when {self.condition}"
        match len(self.dropped):
            case 0:
                rest = ""
            case 1:
                rest = "; 1 more bound holds by proof"
            case n:
                rest = f"; {n} more bounds hold by proof"
        return "\n".join([f"{self.what} {when}{rest}", *(f"  {c}" for c in self.conjuncts)])


def explain_predicate(access: AccessFunction) -> Predicate:
    """See `Access.explain_predicate`."""
    kept: dict[Expr, Conjunct] = {}
    dropped: dict[tuple[Expr, IterDomain], Conjunct] = {}
    line = str(access.expr.source_line or "")
    never = access.conditions == (FALSE,)  # then each bound that is not always met is part of the reason
    for b in access.bounds:
        c = simplify(b.condition)
        cause, where = _cause(b, access), str((b.expr.line if b.expr is not None else None) or line)
        if c in access.conditions or (never and c != TRUE):
            kept.setdefault(c, Conjunct(c, b.axis, b.side, cause, where))
            continue
        if c == TRUE and b.expr is None:
            continue  # a loop stays in its own range
        shown, proof = (b.condition, "it holds for all loop values") if c == TRUE else (c, "the others imply it")
        dropped.setdefault((shown, b.axis), Conjunct(shown, b.axis, b.side, cause, where, proof))
    verb = "is written" if access.is_write else "is read"
    what = f"{access.tensor.name} {verb} by {access.expr.op}"
    conjuncts = tuple(kept.values()) if never else tuple(kept[c] for c in access.conditions if c in kept)
    return Predicate(what, access.predicate, conjuncts, tuple(dropped.values()))


def _cause(b: Bound, access: AccessFunction) -> str:
    x = b.expr
    match x:
        case None:
            return _loop_cause(b.axis, access)
        case Split():
            return f"split of {x.source.extent} by {x.factor}" + ("" if x.inner_split else " (outer)")
        case Merge():
            return f"merge of {x.outer.extent} and {x.inner.extent}"
        case Resize():
            return f"{_op(x, access)}resize of {x.source.extent} by ({x.left}, {x.right})"
        case Stride():
            return f"{_op(x, access)}every {x.step} of {x.source.extent} from {x.start}"
        case Roll():
            return f"{_op(x, access)}roll of {x.source.extent} by {x.shift}"
        case Swizzle():
            return f"{x.kind} swizzle of {x.y.extent} by {x.x.extent}"
        case RowPartition():
            return f"{access.expr.op}: row of {x.offsets.name}"
        case _:
            assert_never(x)


def _op(x: DomainExpr, access: AccessFunction) -> str:
    """The operation that an axis expression comes with; empty for one that the schedule made."""
    return f"{access.expr.op}: " if x in access.expr.output.domain.exprs else ""


def _loop_cause(axis: IterDomain, access: AccessFunction) -> str:
    for loop in access.loops:
        if axis.extent != loop.extent and axis in access.expr.output.loop:
            return f"loop {loop.name} has the extent {loop.extent} of {loop.domain.label}"
    return f"a loop of extent {axis.extent}"


_MANY = 16  # bounds of which those that others imply are left out before each is simplified
_FEW = 1 << 10  # points at which it is tried whether a conjunct is needed


def undischarged_bounds(bounds: Iterable[Bound], known: Sequence[Expr]) -> tuple[tuple[Expr, ...], tuple[Bound, ...]]:
    """Conjuncts that are not proved by ranges or by the others, and the bounds behind them; ``known`` come first.

    Each is in its smallest form where the others hold, and so are the bounds. Only FALSE where they exclude each
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
