"""Merges and divisible splits of one axis, nested in different ways: ``(a b) c`` and ``a (b c)`` are one axis.

Axes made by merges and divisible splits are runs of digits of one number. Two rules enter the axes between them:

- *regroup*: where ``whole = (a b) c``, the axis ``b c`` is there too, and ``whole = a (b c)``; and the other way round;
- *refine*: where ``whole = A c`` and ``whole = B d`` and d has a multiple of c's elements, ``A = B x`` and ``d = x c``.

Axes that no tensor has are entered as *hidden* ones until nothing is missing; they are runs of digits of wholes, each
once, so there are few. Congruence then finds what is equal. Hidden axes and merges show in no group, only in
explanations.
"""

from __future__ import annotations

from itertools import permutations

from idgraph.arith import Expr, simplify
from idgraph.graphs.congruence_closure import CongruenceClosure
from idgraph.graphs.coordinate_rules import is_product
from idgraph.graphs.signature import axis_of
from idgraph.ir import IterDomain, Merge, Split
from idgraph.ir.iter_domain import is_one

Pair = tuple[int, int]


def join_nested(builder: CongruenceClosure[IterDomain], left_out: frozenset[int]) -> None:
    """Close a graph that takes merges and divisible splits for one relation under both rules; once, at its end.

    Expressions ``left_out``, by number, take no part.
    """
    builder.nodes.visible = len(builder.nodes)
    while _Round(builder, left_out).grow():
        builder.rebuild()


class _Round:
    """The mappings that the groups lack as they are now."""

    def __init__(self, builder: CongruenceClosure[IterDomain], left_out: frozenset[int]) -> None:
        self._builder = builder
        self._parts: dict[int, dict[Pair, None]] = {}  # of each group the pairs that it is merged of, or split into
        self._whole: dict[Pair, int] = {}
        nodes, find = builder.nodes, builder.sets.find
        for n in range(len(nodes)):
            form = nodes.form[n]
            if form.parts < 0 or n in left_out or not isinstance(form.expr, (Merge, Split)):
                continue
            if is_one(form.expr.outer.extent) or is_one(form.expr.inner.extent):
                continue  # another rule
            whole, outer, inner = map(find, builder.division(n))
            if whole not in (outer, inner):
                self._parts.setdefault(whole, {})[outer, inner] = None
                self._whole[outer, inner] = whole

    def grow(self) -> bool:
        """Enter what is missing; False where nothing is."""
        before = len(self._builder.nodes)
        for whole, pairs in self._parts.items():
            for outer, inner in pairs:
                for a, b in self._parts.get(outer, ()):
                    self._state(whole, a, self._merged(b, inner))
                for b, c in self._parts.get(inner, ()):
                    self._state(whole, self._merged(outer, b), c)
            if len(pairs) > 1:
                for (high, low), (higher, wide) in permutations(pairs, 2):
                    self._refine(high, low, higher, wide)
        return len(self._builder.nodes) > before

    def _refine(self, high: int, low: int, higher: int, wide: int) -> None:
        """``high low`` and ``higher wide`` are one axis: what lies between the two boundaries, where there is such."""
        factor = _quotient(self._extent(wide), self._extent(low))
        if factor is None:
            return
        known = [x for a, x in self._parts.get(high, ()) if a == higher]
        known += [x for x, c in self._parts.get(wide, ()) if c == low]
        between = known[0] if known else self._hidden(factor, f"between({self._label(higher)}, {self._label(low)})")
        self._state(high, higher, between)
        self._state(wide, between, low)

    def _merged(self, outer: int, inner: int) -> int:
        """The group of two merged, a hidden one if need be."""
        found = self._whole.get((outer, inner))
        if found is None:
            extent = simplify(self._extent(outer) * self._extent(inner))
            found = self._hidden(extent, f"merge({self._label(outer)}, {self._label(inner)})")
            self._state(found, outer, inner)
        return found

    def _state(self, whole: int, outer: int, inner: int) -> None:
        """Enter a hidden merge, unless it is known."""
        if self._whole.get((outer, inner)) == whole or whole in (outer, inner):
            return
        self._whole.setdefault((outer, inner), whole)
        builder = self._builder
        a, b, out = (axis_of(builder.at(x)) for x in (outer, inner, whole))
        builder.add_node(builder.forms.of(Merge(a, b, out, None)), (outer, inner), (whole,))

    def _hidden(self, extent: Expr, name: str) -> int:
        made = IterDomain(0, extent, "iteration")
        made.name = name
        return self._builder.hide(made)

    def _extent(self, element: int) -> Expr:
        return axis_of(self._builder.at(element)).extent

    def _label(self, element: int) -> str:
        return axis_of(self._builder.at(element)).label


def _quotient(a: Expr, b: Expr) -> Expr | None:
    """``a / b`` where that is a whole number greater than one by proof."""
    if a.is_const and b.is_const:
        return None if int(b) == 0 or int(a) % int(b) or int(a) == int(b) else simplify(a // b)
    found = simplify(a // b)
    return found if is_product(found, b, a) and found != 1 else None
