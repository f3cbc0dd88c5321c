"""Whether the order of a scatter's entries can be seen: not where all that name one element write the same value.

A value is the same for such entries if it is computed from the element's own coordinates and the indices that name it:
a number, a row of them, or what a gather with the same indices has read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

from idgraph.arith import as_expr
from idgraph.ir.axis_read import AxisRead, Fixed, LoadedCoordinate, Mapped
from idgraph.ir.fusion import Tensor, TensorExpr
from idgraph.ir.gather_scatter_builders import adds, entry_axes
from idgraph.ir.iter_domain import IterDomain, Resize
from idgraph.ir.op_table import GATHERS, POINTWISE, VIEWS

Place: TypeAlias = "IterDomain | tuple[object, ...]"
"""Where an axis is read: along a root axis of the scatter, or at what is computed of others (an expression's name, its
attributes and its places). Equal ones are equal coordinates."""
_FIRST: Place = (0,)
_LOOKED = 256  # tensors that a value is traced through; beyond them entries are taken to differ
_FOLLOWED = POINTWISE | VIEWS | GATHERS | {"sum", "prod", "amax", "amin", "any", "all", "full"}


def ordered_entries(e: TensorExpr) -> tuple[IterDomain, ...]:
    """The `entry_axes` whose points must be visited in their order: none of a scatter that adds, and none where all
    entries that name an element write the same value.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i, v = f.input("x", shape=(4, 9)), f.input("i", shape=(4, 3), dtype="int64"), f.input("v", shape=(4, 3))
    >>> [len(ordered_entries(ig.scatter(x, 1, i, y).definition)) for y in (v, 0.5, ig.gather(x, 1, i) * 2.0)]
    [1, 0, 0]
    """
    if adds(e):
        return ()
    meeting = entry_axes(e)
    value = e.args[-1] if meeting else None
    if not isinstance(value, Tensor):
        return ()
    return () if _Value(e, frozenset(meeting)).same(value, _operand_places(value, e.reads[-1], {})) else meeting


class _Value:
    """The value of an entry, traced back to all that decides it."""

    def __init__(self, e: TensorExpr, entries: frozenset[IterDomain]) -> None:
        self.entries, self.left = entries, _LOOKED
        self.known: dict[tuple[Tensor, tuple[Place, ...]], bool] = {}
        indices = {r.operand for r in e.reads[0] if isinstance(r, LoadedCoordinate)}
        self.indices = [(e.inputs[k], _operand_places(e.inputs[k], e.reads[k], {})) for k in sorted(indices)]

    def same(self, t: Tensor, at: tuple[Place, ...]) -> bool:
        """Whether ``t`` at these places is one value for all entries that name an element."""
        if not any(map(self.differs, at)):
            return True
        if (t, at) not in self.known:
            self.left -= 1
            self.known[t, at] = self.left > 0 and (
                any(self.equal(t, at, x, where) for x, where in self.indices) or self.computed(t, at)
            )
        return self.known[t, at]

    def differs(self, place: object) -> bool:
        """Whether entries that name one element have different ones of a place."""
        if isinstance(place, tuple):
            return any(map(self.differs, cast("tuple[object, ...]", place)))
        return place in self.entries if isinstance(place, IterDomain) else False

    def computed(self, t: Tensor, at: tuple[Place, ...]) -> bool:
        """Whether all that ``t`` reads there is the same."""
        e = t.definition
        if e is None or e.op not in _FOLLOWED:
            return False
        place = _places(t, at)
        for operand, row in zip(e.inputs, e.reads, strict=True):
            found: list[Place] = []
            for p, r in zip(_operand_places(operand, row, place), row, strict=True):
                if isinstance(r, LoadedCoordinate):
                    x = e.inputs[r.operand]
                    index = _operand_places(x, e.reads[r.operand], place)
                    found.append(("loaded", x, index) if not self.same(x, index) else ("loaded", x))
                else:
                    found.append(p)
            if not self.same(operand, tuple(found)):
                return False
        return True

    def equal(self, a: Tensor, at: tuple[Place, ...], b: Tensor, to: tuple[Place, ...]) -> bool:
        """Whether ``a`` at some places is ``b`` at others: one tensor there, or computed by the same operations."""
        self.left -= 1
        (a, at), (b, to) = _behind_views(a, at), _behind_views(b, to)
        if a is b and at == to:
            return True
        x, y = a.definition, b.definition
        if self.left < 0 or x is None or y is None or x.op not in POINTWISE or a.dtype != b.dtype:
            return False
        if (x.op, x.attrs, len(x.args)) != (y.op, y.attrs, len(y.args)):
            return False
        places, others = _places(a, at), _places(b, to)
        operands = zip(x.inputs, x.reads, y.inputs, y.reads, strict=False)
        for p, q in zip(x.args, y.args, strict=True):
            if isinstance(p, Tensor) != isinstance(q, Tensor) or (not isinstance(p, Tensor) and p != q):
                return False
        return all(
            self.equal(p, _operand_places(p, r, places), q, _operand_places(q, s, others)) for p, r, q, s in operands
        )


def _behind_views(t: Tensor, at: tuple[Place, ...]) -> tuple[Tensor, tuple[Place, ...]]:
    """The tensor behind a view, and the places in it."""
    while (e := t.definition) is not None and e.op in VIEWS:
        place = _places(t, at)
        t, at = e.inputs[0], _operand_places(e.inputs[0], e.reads[0], place)
    return t, at


def _places(t: Tensor, at: tuple[Place, ...]) -> dict[IterDomain, Place]:
    """The places of the root axes of ``t`` where its axes are at some."""
    place: dict[IterDomain, Place] = dict(zip(t.axes, at, strict=True))
    for x in reversed(t.domain.exprs):
        made = tuple(place.get(d, d) for d in x.outputs)
        if isinstance(x, Resize) and x.left == as_expr(0):
            place[x.source] = made[0]
            continue
        sizes = tuple(str(d.extent) for d in x.inputs)
        how = (type(x).__name__, *map(str, x.attributes), *sizes)
        place |= {d: (*how, n, *made) for n, d in enumerate(x.inputs)}
    return place


def _operand_places(t: Tensor, row: Sequence[AxisRead], place: Mapping[IterDomain, Place]) -> tuple[Place, ...]:
    """The places of an operand's axes, where those of its reader are at ``place``, or each at itself."""
    found: list[Place] = []
    for d, r in zip(t.axes, row, strict=True):
        match r:
            case _ if d.is_broadcast:
                found.append(_FIRST)
            case Mapped(domain):
                found.append(place.get(domain, domain))
            case Fixed(index):
                found.append((str(index),))
            case LoadedCoordinate(k):
                found.append(("loaded", k, t))
    return tuple(found)
