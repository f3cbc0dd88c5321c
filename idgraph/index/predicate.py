"""Predicates as conjuncts in the user's terms: which axis each bounds, at which end, and what made it necessary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from idgraph.arith import (
    FALSE,
    TRUE,
    Expr,
    Proof,
    and_,
    as_expr,
    drop_redundant,
    enumerate_points,
    is_true,
    simplify,
    strongest,
)
from idgraph.arith.expr import at_most
from idgraph.display import Printed
from idgraph.errors import ScheduleError
from idgraph.graphs import key_of
from idgraph.graphs.coordinate_rules import Bound, Side, is_product
from idgraph.index.access_relation import AccessFunction, LoopVariable
from idgraph.index.index_solver import IndexSolver
from idgraph.ir import (
    SCATTERS,
    DomainExpr,
    Fusion,
    IterDomain,
    Merge,
    Resize,
    Roll,
    RowPartition,
    Split,
    Stride,
    Swizzle,
    Tensor,
    TensorExpr,
    tensor_of,
)


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

    __repr__ = __str__


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

    __repr__ = __str__


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


POINTS = 1 << 20  # of the loops that are looked at where no rule proves that a reader stays inside


class CoverageMaps(Protocol):
    """The part of an index model that the check asks."""

    fusion: Fusion

    def loops(self, e: TensorExpr, /) -> tuple[LoopVariable, ...]: ...
    def lengths(self, t: Tensor, /) -> Mapping[int, Resize]: ...
    def read(self, e: TensorExpr, operand: int, /) -> AccessFunction: ...
    def solver(self, e: TensorExpr, /) -> IndexSolver: ...


# The cutting expressions, and the axes that a reader must stay inside of.
Cut = tuple[DomainExpr, tuple[IterDomain, ...]]


def is_partial(x: DomainExpr) -> bool:
    """True of an expression through which loops do not reach every element: a negative resize, a stride that skips."""
    match x:
        case Resize():
            return not (is_true(x.left >= 0) and is_true(x.right >= 0))
        case Stride():
            return not is_true(x.out.extent.eq(x.source.extent))
        case _:
            return False


def cuts(model: CoverageMaps, t: Tensor) -> tuple[Cut, ...]:
    """Expressions through which t's loops do not reach every element, with the axes a reader must stay inside of.

    A cut or stride that the schedule made, or the end of a shared loop that its readers run shorter; for loops upstream
    of the logical axes, a resize that grows.
    """
    found: list[Cut] = []
    made = {d: x for x in t.domain.loop_exprs for d in x.outputs}
    ends = (*t.domain.loop_exprs, *model.lengths(t).values())
    found += [(x, x.outputs) for x in ends if is_partial(x) and not _takes_back(x, made)]
    if t.definition is not None and t.definition.op in SCATTERS:
        return tuple(found)  # its loops are upstream by nature, and write a part of what operand 0 holds whole
    if t.definition is not None and t.loop != t.logical and t.domain.exprs:
        steps = model.solver(t.definition).own.step
        for d in t.logical:
            step = steps.get(d)
            while step is not None and step.is_forward:
                x = step.expr
                if isinstance(x, Resize) and not (is_true(x.left <= 0) and is_true(x.right <= 0)):
                    found.append((x, x.inputs))
                step = steps.get(x.inputs[0])
    return tuple(found)


def _takes_back(x: DomainExpr | None, made: Mapping[IterDomain, DomainExpr]) -> bool:
    """True of a cut of no more than resizes before it added: every element of the axis they began with is left."""
    left, right = as_expr(0), as_expr(0)
    while isinstance(x, Resize):
        left, right = left + x.left, right + x.right
        if is_true(left >= 0) and is_true(right >= 0):
            return True
        x = made.get(x.source)
    return False


def check_reads_covered(model: CoverageMaps) -> None:
    """Raise `ScheduleError` where a cut tensor is an output, or is read outside of what its loops compute."""
    check_written(model)
    for t in model.fusion.tensors:
        check_covered(model, t)


def check_covered(model: CoverageMaps, t: Tensor) -> None:
    """`check_reads_covered` of one tensor."""
    steps = cuts(model, t) if t.definition is not None else ()
    if not steps:
        return
    if model.fusion.is_output(t):
        raise _outside_error(t, steps[0][0], f"{t.name} is an output, all of its elements are needed")
    if t.definition is not None and t.definition.op in SCATTERS:
        raise _outside_error(t, steps[0][0], f"{t.definition!r} writes at every element of its index")
    for e in t.uses:
        for k in e.operands_of(t):
            _check_read(model, e, k, t, steps)


def check_written(model: CoverageMaps) -> None:
    """Raise `ScheduleError` where an output is inlined into a loop of another extent that may be empty."""
    for t in model.fusion.outputs:
        if t.definition is None or not t.inline_position:
            continue
        for loop, d in zip(model.loops(t.definition)[: t.inline_position], t.loop, strict=False):
            if loop.domain is not d and not is_true(loop.extent >= 1):
                raise ScheduleError(
                    f"{t.name} is an output, and inlined at {t.inline_position} into a loop that may be empty: it "
                    "would not be written",
                    where=t.source_line,
                    because=[f"the loop has the extent {loop.extent} of {loop.domain.label}, not {d.extent}"],
                    hint=f"inline {t.name} at 0, or give the extent a min of 1",
                )


def _check_read(model: CoverageMaps, e: TensorExpr, k: int, t: Tensor, steps: tuple[Cut, ...]) -> None:
    read = model.read(e, k)
    if read.predicate == FALSE or any(loop.extent == 0 for loop in model.loops(e)):
        return  # these loops never read it
    solver, key = model.solver(e), key_of(e, k)
    for x, inside_of in steps:
        for d in inside_of:
            if not solver.known(key(d)):
                raise _outside_error(t, x, f"{e!r} reads it at a coordinate that its loops do not lead to")
            c = solver.unclamped_coordinate(key(d))
            inside = and_(c >= 0, c < d.extent)
            if isinstance(x, Stride) and x.step not in (1, -1):  # between the steps there is nothing
                if not solver.known(key(x.source)):
                    raise _outside_error(t, x, f"{e!r} reads it at a coordinate that its loops do not lead to")
                inside = and_(inside, ((solver.unclamped_coordinate(key(x.source)) - x.start) % x.step).eq(0))
            facts = (*read.conditions, *read.load_bounds)
            if not is_true(simplify(inside, facts=facts), facts) and not enumerate_points(inside, POINTS, facts):
                at = f" at {e.source_line}" if e.source_line else ""
                raise _outside_error(
                    t, x, f"{e!r}{at} reads it at {', '.join(map(str, read.coordinates))}, not provably inside"
                )


def _outside_error(t: Tensor, x: DomainExpr, because: str) -> ScheduleError:
    return ScheduleError(
        f"the schedule of {t.name} computes a part of it only: {x}",
        where=x.line or t.source_line,
        because=[because],
        hint=f"give the cut use its own copy (ig.schedule.recompute), or leave the loops of {t.name} whole",
    )
