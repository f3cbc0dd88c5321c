"""The effect of expressions on coordinates, worked out once for each kind of expression and each coordinate.

A fusion of many layers asks the same of every layer. Searches name free coordinates in the order in which they meet
them, so that equal layers ask in equal words; the answers are kept as long as the net is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from idgraph.arith import TRUE, Expr, Proof, and_, prove_equal, simplify
from idgraph.graphs.conditions import bounds, possible
from idgraph.graphs.coordinates import forward, transparent
from idgraph.ir import DomainExpr
from idgraph.ir.domains import is_one

CycleKind = Literal["identity", "shift", "reorder", "empty"]
Coordinates = tuple[Expr, ...]


class TransferFunctions:
    """Answers of the algebra, kept.

    >>> import idgraph as ig
    >>> from idgraph.arith import symbol
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(4, 8))
    >>> (merge,) = ig.reshape(x, (32,)).domain.exprs
    >>> effects, i, j = Effects(), symbol("i", 0, 3), symbol("j", 0, 7)
    >>> [str(v) for v in effects.made(merge, (i, j))]
    ['i*8 + j']
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[object, ...], int] = {}
        self._kind_of: dict[DomainExpr, int] = {}
        self._may_keep: dict[DomainExpr, bool] = {}
        self._reads_one: dict[DomainExpr, bool] = {}
        self._made: dict[tuple[int, Coordinates], Coordinates] = {}
        self._inside: dict[tuple[int, Coordinates, Coordinates], Expr] = {}
        self._under: dict[tuple[Expr, Expr], Expr] = {}
        self._same: dict[tuple[Expr, Expr, Expr], bool] = {}
        # The kinds of cycles by what they do, see `rounds.kind_of`.
        self.rounds: dict[object, CycleKind] = {}

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

    def reads_one(self, e: DomainExpr) -> bool:
        """Whether an axis that ``e`` reads has a single element."""
        found = self._reads_one.get(e)
        if found is None:
            found = self._reads_one[e] = any(is_one(d.extent) for d in e.inputs)
        return found

    def made(self, e: DomainExpr, ins: Coordinates) -> Coordinates:
        """The coordinates that ``e`` makes."""
        key = self.kind(e), ins
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = tuple(map(simplify, forward(e, ins)))
        return found

    def inside(self, e: DomainExpr, ins: Coordinates, conditions: Sequence[Expr]) -> Expr:
        """The condition that ``e`` has an element there and all ``conditions`` hold; FALSE where that is nowhere.

        The first condition as it is where the others add nothing to it: that one is known to hold somewhere.
        """
        key = self.kind(e), ins, tuple(conditions)
        found = self._inside.get(key)
        if found is None:
            whole = and_(*conditions, *bounds(e, ins, self.made(e, ins)))
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
