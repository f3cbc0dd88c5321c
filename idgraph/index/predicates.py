"""Predicates as conjuncts in the user's terms: which axis each bounds, at which end, and what made it necessary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from idgraph.arith import FALSE, TRUE, Expr, simplify
from idgraph.display import Printed
from idgraph.graphs.own_axes import Bound, Side
from idgraph.index.access_function import AccessFunction
from idgraph.ir import DomainExpr, IterDomain, Merge, Resize, Roll, Split, Stride, Swizzle, tensor_of


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
