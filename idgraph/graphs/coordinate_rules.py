"""One rule table: the coordinates on one side of a domain expression from those on the other.

Written once over any arithmetic with + - * // % and ^ (ints, index expressions). Splits, merges, rolls and swizzles are
exact both ways; a resize is ``source + left``; a stride is ``source = start + step * out``; rows of loaded length are
known by name.

A fusion of many layers asks the same of every layer. Searches name free coordinates in the order in which they meet
them, so that equal layers ask in equal words; the answers are kept as long as the net is.

They are solved one by one, since a padded loop takes an axis out of range where its equals are not; which of those
points count is what the bounds on the way say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from idgraph.arith import FALSE, TRUE, Expr, and_, as_expr, is_true, not_, prove, prove_equal, simplify, symbol
from idgraph.arith.prove import Proof
from idgraph.ir.iter_domain import DomainExpr, IterDomain, Merge, Resize, Roll, RowPartition, Split, Stride, Swizzle
from idgraph.ir.op_builders import same_extent

_ZERO, _ONE = as_expr(0), as_expr(1)


def forward(e: DomainExpr, values: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Coordinates of ``e.outputs`` from those of ``e.inputs``.

    A stride gives (source - start) // step, which is the coordinate only where the division is exact.
    """
    match e:
        case Split():
            n = e.inner.extent
            (x,) = values
            return (x, as_expr(0)) if n == 0 else (x // n, x % n)
        case Merge():
            outer, inner = values
            return (outer * e.inner.extent + inner,)
        case Resize():
            return (values[0] + e.left,)
        case Stride():
            return ((values[0] - e.start) // e.step,)
        case Roll():
            n = e.source.extent
            return (values[0] if n == 0 else (values[0] + e.shift) % n,)
        case Swizzle():
            x, y = values
            return (x, x ^ y if e.kind == "xor" else (x + y) % e.y.extent)
        case RowPartition():
            return _joined(e, *values) if e.combines else _row_and_place(e, *values)
        case _:
            assert_never(e)


def backward(e: DomainExpr, values: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Coordinates of ``e.inputs`` from those of ``e.outputs``."""
    match e:
        case Split():
            outer, inner = values
            return (outer * e.inner.extent + inner,)
        case Merge():
            n = e.inner.extent
            (x,) = values
            return (as_expr(0), x) if n == 0 else (x // n, x % n)
        case Resize():
            return (values[0] - e.left,)
        case Stride():
            return (e.start + e.step * values[0],)
        case Roll():
            n = e.source.extent
            return (values[0] if n == 0 else (values[0] - e.shift) % n,)
        case Swizzle():
            x, y = values
            return (x, x ^ y if e.kind == "xor" else (y - x) % e.y.extent)
        case RowPartition():
            return _row_and_place(e, *values) if e.combines else _joined(e, *values)
        case _:
            assert_never(e)


def _row_and_place(e: RowPartition, flat: Expr) -> tuple[Expr, Expr]:
    """The row of an element, and its place there: what is loaded is a symbol named by where it is loaded from, so that
    equal loads are equal. Rows and back are the identity."""
    row = symbol(f"row of {flat} in {e.offsets.name}", 0)
    return row, flat - _row_start(e, row)


def _joined(e: RowPartition, component: Expr, ragged: Expr) -> tuple[Expr]:
    return (_row_start(e, component) + ragged,)


def _row_start(e: RowPartition, component: Expr) -> Expr:
    return symbol(f"{e.offsets.name}[{component}]", 0)


def is_bijective_at(e: DomainExpr, at: Mapping[IterDomain, Expr]) -> bool:
    """True where, at the coordinates ``at``, each side of ``e`` provably follows from the other."""
    if isinstance(e, RowPartition):
        return False
    ins, outs = tuple(at[d] for d in e.inputs), tuple(at[d] for d in e.outputs)
    pairs = (*zip(forward(e, ins), outs, strict=True), *zip(backward(e, outs), ins, strict=True))
    return all(simplify(a - b) == _ZERO for a, b in pairs)


def transparent(e: DomainExpr) -> tuple[tuple[IterDomain, IterDomain, IterDomain | None], ...]:
    """(a, b, beside): axes with one coordinate on both sides of ``e``, beside an axis of one element (None: by itself).

    They are one only while ``beside`` stays at 0, see `resized_axes`.
    """
    match e:
        case Merge():
            pairs = ((e.outer, e.out, e.inner), (e.inner, e.out, e.outer))
        case Split():
            pairs = ((e.source, e.outer, e.inner), (e.source, e.inner, e.outer))
        case Resize():
            return ((e.source, e.out, None),) if e.left == 0 and e.right == 0 else ()
        case _:
            return ()
    # The extents must agree too: an axis of one element split by 8 is not its padded part.
    return tuple((a, b, other) for a, b, other in pairs if other.extent == _ONE and a.extent == b.extent)


def is_product(a: Expr, b: Expr, c: Expr) -> bool:
    """True where a * b = c by proof."""
    if a.is_const and b.is_const and c.is_const:
        return int(a) * int(b) == int(c)
    return same_extent(a * b, c)


def resized_axes(exprs: Sequence[DomainExpr]) -> set[IterDomain]:
    """Axes that loops made by ``exprs`` (in order) may run past: split with a remainder, grown, or made of such."""
    found: set[IterDomain] = set()
    for e in reversed(exprs):
        match e:
            case Split():
                loose = not is_product(e.outer.extent, e.inner.extent, e.source.extent)
            case Resize():
                loose = not all(int(x) <= 0 if x.is_const else is_true(x <= 0) for x in (e.left, e.right))
            case _:
                loose = False
        if loose or any(d in found for d in e.outputs):
            found.update(e.inputs)
    return found


_POINTS = 1 << 16  # points looked at to see whether a condition holds anywhere


def bounds(e: DomainExpr, ins: tuple[Expr, ...], outs: tuple[Expr, ...]) -> list[Expr]:
    """The condition that axes of an expression have elements at these coordinates, as far as it decides that."""
    if not isinstance(e, (Resize, Stride)):
        return []
    found = [ins[0] >= 0, ins[0] < e.source.extent, outs[0] >= 0, outs[0] < e.out.extent]
    if isinstance(e, Stride) and e.step not in (1, -1):
        found.append(((ins[0] - e.start) % e.step).eq(0))  # between the steps there is no element
    return found


def possible(condition: Expr) -> Expr:
    """The condition simplified; FALSE where it is known to hold nowhere."""
    found = simplify(condition)
    if found is TRUE or found is FALSE:
        return found
    size = 1
    for s in found.symbols:
        count = s.range.size
        size = 0 if count is None else size * count
    if 0 < size <= _POINTS:
        return FALSE if isinstance(prove(not_(found)), Proof) else found
    return FALSE if is_true(not_(found)) else found


CycleKind = Literal["identity", "shift", "reorder", "empty"]
Coordinates = tuple[Expr, ...]


class TransferFunctions:
    """Answers of the algebra, kept."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[object, ...], int] = {}
        self._kind_of: dict[DomainExpr, int] = {}
        self._may_keep: dict[DomainExpr, bool] = {}
        self._starts: dict[Expr, Expr] = {}  # where rows begin, by name, with the number of the row
        self._made: dict[tuple[int, Coordinates], Coordinates] = {}
        self._inside: dict[tuple[int, Coordinates, Coordinates], Expr] = {}
        self._under: dict[tuple[Expr, Expr], Expr] = {}
        self._same: dict[tuple[Expr, Expr, Expr], bool] = {}

    def kind(self, e: DomainExpr) -> int:
        """A number that expressions share which do the same to the same coordinates."""
        found = self._kind_of.get(e)
        if found is None:
            extents = (d.extent for d in (*e.inputs, *e.outputs))
            key = (type(e).__name__, e.attributes, *extents)
            found = self._kind_of[e] = self._kinds.setdefault(key, len(self._kinds))
        return found

    def may_be_identity(self, e: DomainExpr) -> bool:
        """Whether ``e`` keeps an axis beside one of a single element."""
        found = self._may_keep.get(e)
        if found is None:
            found = self._may_keep[e] = bool(transparent(e))
        return found

    def outputs_of(self, e: DomainExpr, ins: Coordinates) -> Coordinates:
        """The coordinates that ``e`` makes."""
        key = self.kind(e), ins
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = tuple(map(simplify, self._forward(e, ins)))
        return found

    def _forward(self, e: DomainExpr, ins: Coordinates) -> Coordinates:
        """`forward`, where an element of a row, ``off[c] + r``, is known to be in that row: it is in no other."""
        if not isinstance(e, RowPartition):
            return forward(e, ins)
        if e.combines:
            self._starts[_row_start(e, ins[0])] = ins[0]
            return forward(e, ins)
        for start, row in self._starts.items():
            if start in ins[0].symbols and start == _row_start(e, row):
                return row, ins[0] - start
        return forward(e, ins)

    def inside(self, e: DomainExpr, ins: Coordinates, conditions: Sequence[Expr]) -> Expr:
        """The condition that ``e`` has an element there and all ``conditions`` hold; FALSE where that is nowhere.

        The first condition as it is where the others add nothing to it: that one is known to hold somewhere.
        """
        key = self.kind(e), ins, tuple(conditions)
        found = self._inside.get(key)
        if found is None:
            whole = and_(*conditions, *bounds(e, ins, self.outputs_of(e, ins)))
            found = self._inside[key] = whole if whole == conditions[0] else possible(whole)
        return found

    def under(self, value: Expr, held: Expr) -> Expr:
        """``value`` where ``held`` holds."""
        if held is TRUE:
            return value
        key = value, held
        found = self._under.get(key)
        if found is None:
            found = self._under[key] = simplify(value, facts=(held,))
        return found

    def same(self, value: Expr, c: Expr, held: Expr) -> bool:
        """Whether ``value`` is ``c`` wherever ``held`` holds, by proof."""
        if value is c:
            return True
        key = value, c, held
        found = self._same.get(key)
        if found is None:
            found = self._same[key] = isinstance(prove_equal(value, c, facts=(held,)), Proof)
        return found


Side = Literal["start", "stop", "step"]


@dataclass(frozen=True, slots=True)
class Bound:
    """``condition``: that the coordinate of ``axis`` is not below 0 ("start"), below the extent ("stop"), or one that a
    stride takes ("step"). ``expr`` is the expression through which the coordinate was found; None for a loop itself."""

    condition: Expr
    axis: IterDomain
    side: Side
    expr: DomainExpr | None


@dataclass(frozen=True, slots=True)
class CoordinateStep:
    """The step by which an axis' coordinate was found: through ``expr``, forward or backward."""

    expr: DomainExpr
    is_forward: bool

    @property
    def sources(self) -> tuple[IterDomain, ...]:
        """The axes it was found from."""
        return self.expr.inputs if self.is_forward else self.expr.outputs


class CoordinateSolver:
    """Coordinates of an output's axes: backward from the loops first, then wherever its expressions lead."""

    def __init__(self, start: Iterable[tuple[IterDomain, Expr]], exprs: Sequence[DomainExpr]) -> None:
        self.value: dict[IterDomain, Expr] = {}
        self.step: dict[IterDomain, CoordinateStep] = {}
        self._exact: dict[IterDomain, bool] = {}
        for d, v in start:
            self.value.setdefault(d, v)
        for x in reversed(exprs):
            self._take(x, is_forward=False)
        before = -1
        while before != len(self.value):  # loops upstream of logical axes need forward steps
            before = len(self.value)
            for x in exprs:
                self._take(x, is_forward=True)
            for x in reversed(exprs):
                self._take(x, is_forward=False)

    def _take(self, x: DomainExpr, is_forward: bool) -> None:
        known, wanted = (x.inputs, x.outputs) if is_forward else (x.outputs, x.inputs)
        if not all(d in self.value for d in known) or all(d in self.value for d in wanted):
            return
        if isinstance(x, RowPartition):
            if x.flat not in known:  # which row an element is in no expression says
                self.value[x.flat] = simplify(x.start + self.value[x.ragged])
                self.step[x.flat] = CoordinateStep(x, is_forward)
            return
        values = tuple(self.value[d] for d in known)
        for d, v in zip(wanted, forward(x, values) if is_forward else backward(x, values), strict=True):
            if d not in self.value:
                self.value[d] = simplify(v)
                self.step[d] = CoordinateStep(x, is_forward)

    def is_invertible_path(self, d: IterDomain) -> bool:
        """Whether every expression on the way to ``d`` relates both of its sides at every point of the loops, so that
        either side follows from the other: a stride does not beside the elements it takes, nor a merge of an inner
        coordinate out of range."""
        found = self._exact.get(d)
        if found is None:
            step = self.step.get(d)
            found = step is None or (
                is_bijective_at(step.expr, self.value) and all(map(self.is_invertible_path, step.sources))
            )
            self._exact[d] = found
        return found

    def bounds_on_path(self, domains: Iterable[IterDomain], stop: frozenset[IterDomain]) -> Iterator[Bound]:
        """Bounds of every axis on the way to ``domains`` (those in ``stop`` are known to be in theirs)."""
        seen: set[IterDomain] = set(stop)
        pending = [d for d in domains if d in self.value]
        while pending:
            d = pending.pop()
            if d in seen:
                continue
            seen.add(d)
            step = self.step.get(d)
            made_by = step.expr if step is not None else None
            if isinstance(made_by, RowPartition):  # the rows cover the axis, and no row is longer than it is
                yield Bound(self.value[made_by.ragged] < made_by.length, d, "stop", made_by)
                pending += (*made_by.inputs, *made_by.outputs)
                continue
            yield Bound(self.value[d] >= 0, d, "start", made_by)
            yield Bound(self.value[d] < d.extent, d, "stop", made_by)
            if step is None:
                continue
            if isinstance(step.expr, Stride) and step.is_forward:
                taken = ((self.value[step.expr.source] - step.expr.start) % step.expr.step).eq(0)
                yield Bound(taken, d, "step", made_by)
            # The axes that a step fixes beside this one must be in bounds too, for the point to be the only one.
            pending += step.expr.inputs
            pending += step.expr.outputs
