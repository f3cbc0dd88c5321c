"""The order of a tensor's axes in memory, carried over along the mapping to the tensors that are computed from it.

An order is a list of axes, outermost in memory first. An operation reads its operand at axes of its output, and axis
expressions lead from there to the axes that its readers see; the order follows them:

    permute, slice, pad, cat, flip, roll    [a, b] -> [a', b']
    split (a reshape)                       [a, b] -> [outer, inner, b']
    merge (a reshape)                       [a, outer, inner] -> [a', out], where they are neighbours in that order
    reduction, select, gather               the axis drops out

Axes of one element do not count, and are in no order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from idgraph.arith import Expr, is_true
from idgraph.index.allocation import strides
from idgraph.ir import (
    SCATTERS,
    DomainExpr,
    IterDomain,
    Mapped,
    Merge,
    Resize,
    Roll,
    RowPartition,
    Split,
    Stride,
    Swizzle,
    Tensor,
    TensorExpr,
)

MAX_ORDERS = 16  # that one tensor is offered


@dataclass(frozen=True, slots=True)
class Order:
    """Axes of a tensor that come from ``source``, outermost in memory first; ``names[k]`` tells from where.

    ``lost`` is the reason why the order ended before it reached the tensor; then there are no axes.
    """

    source: Tensor
    axes: tuple[IterDomain, ...]
    names: tuple[str, ...]
    lost: str = ""

    def agrees(self, other: Order) -> bool:
        """Whether the axes of ``other`` are among these, in the same order."""
        mine = [d for d in self.axes if d in set(other.axes)]
        return mine == list(other.axes)


def memory_order(t: Tensor) -> tuple[IterDomain, ...]:
    """The axes of a tensor by falling stride; those of one element, or whose elements are one (stride 0), left out.

    Strides that are symbols keep the order of the allocation where neither is proved larger. An allocation of split or
    merged axes gives no order of the axes: they keep their logical order.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("t", shape=(4, 1, 6, 8), strides=(1, 7, 32, 4))
    >>> memory_order(t)
    (I2[6], I3[8], I0[4])
    """
    own = [d for d in t.axes if d.kind != "gather_scatter" or d in t.logical]
    if not set(t.allocation) <= set(own):
        return tuple(d for d in own if not d.is_broadcast)
    made: list[tuple[IterDomain, Expr]] = []
    for d, stride in zip(t.allocation, strides(t), strict=True):
        if d.is_broadcast or stride == 0:
            continue
        at = len(made)
        while at and is_true(made[at - 1][1] < stride):
            at -= 1
        made.insert(at, (d, stride))
    return tuple(d for d, _ in made)


def own_order(t: Tensor) -> Order:
    """The order of an input, or of a tensor whose memory the user laid out."""
    axes = memory_order(t)
    return Order(t, axes, tuple(f"axis {t.axes.index(d)} of {t.name}" for d in axes))


def carried(e: TensorExpr, operand: int, order: Order) -> Order:
    """The order of an operand's axes as one of the output's."""
    read = _read_at(e, operand)
    if not e.output.domain.exprs and len(set(read.values())) == len(read):
        wanted = set(e.output.axes)
        pairs = [
            (to, name)
            for d, name in zip(order.axes, order.names, strict=True)
            if (to := read.get(d)) is not None and to.kind != "broadcast" and to in wanted
        ]
        if pairs:
            return Order(order.source, tuple([to for to, _ in pairs]), tuple([name for _, name in pairs]))
    axes: list[IterDomain] = []
    names: dict[IterDomain, str] = {}
    for d, name in zip(order.axes, order.names, strict=True):
        if d in read:
            axes.append(read[d])
            names[read[d]] = name
    if not axes and order.axes:
        return Order(order.source, (), (), f"{e.op} reads none of the axes of {e.inputs[operand].name}")
    for x in _exprs_in_order(e.output, read.values()):
        reason = _replay_backward(x, axes, names)
        if reason:
            line = f" at {e.source_line}" if e.source_line else ""
            return Order(order.source, (), (), f"{reason} in the memory of {order.source.name}: {e.op}{line}")
    wanted = {d for d in e.output.axes if not d.is_broadcast}
    kept = tuple(d for d in axes if d in wanted)
    return Order(order.source, kept, tuple(names[d] for d in kept))


def _read_at(e: TensorExpr, operand: int) -> dict[IterDomain, IterDomain]:
    """For each axis of an operand the axis of the output at which it is read."""
    t, read = e.inputs[operand], e.reads[operand]
    if e.op in SCATTERS and operand == 0:  # the result has the operand's own axes
        return dict(zip(t.axes, e.output.axes, strict=True))
    return {d: r.domain for d, r in zip(t.axes, read, strict=True) if isinstance(r, Mapped)}


def _exprs_in_order(t: Tensor, read: Iterable[IterDomain]) -> Iterator[DomainExpr]:
    """The axis expressions from root to logical, each behind those that make what it reads; ``read``: axes at which an
    operand is read. Those of a cat's pieces are not root axes, but for the first piece's."""
    known, pending = {*t.root, *read}, list(t.domain.exprs)
    while pending:
        ready = [x for x in pending if all(d in known for d in x.inputs)]
        if not ready:
            return
        for x in ready:
            yield x
            known.update(x.outputs)
        pending = [x for x in pending if x not in ready]


def _replay_backward(x: DomainExpr, axes: list[IterDomain], names: dict[IterDomain, str]) -> str:
    """Take one axis expression, in place; the reason where the order ends there."""
    match x:
        case Resize(source, out) | Stride(source, out) | Roll(source, out):
            _replace_neighbours(axes, names, [source], [out])
        case Split(source, outer, inner):
            _replace_neighbours(axes, names, [source], [d for d in (outer, inner) if not d.is_broadcast])
        case Merge(outer, inner, out):
            have = [d for d in (outer, inner) if d in axes]
            missing = [d for d in (outer, inner) if d not in axes and d.extent != 1]
            if missing:  # filled by another operand, or of one element there: this source does not place it
                _replace_neighbours(axes, names, have, [])
            elif len(have) == 2 and axes.index(inner) != axes.index(outer) + 1:
                return f"{names[outer]} and {names[inner]} are not neighbours"
            else:
                _replace_neighbours(axes, names, have, [out])
        case Swizzle(sx, sy, out_x, out_y):
            _replace_neighbours(axes, names, [sx], [out_x])
            _replace_neighbours(axes, names, [sy], [out_y])
        case RowPartition():
            have = [d for d in x.inputs if d in axes]
            together = len(have) == len(x.inputs) and axes[axes.index(have[0]) :][: len(have)] == have
            _replace_neighbours(axes, names, have, x.outputs if together else [])  # where rows end has no such axis
        case _:
            assert_never(x)
    return ""


def _replace_neighbours(
    axes: list[IterDomain], names: dict[IterDomain, str], old: Sequence[IterDomain], new: Sequence[IterDomain]
) -> None:
    """Replace by ``new`` the neighbours ``old``; nothing changes where the order does not have them."""
    if not old or old[0] not in axes:
        return
    at = axes.index(old[0])
    name = " and ".join(dict.fromkeys(names[d] for d in old))
    axes[at : at + len(old)] = list(new)
    for d in new:
        names[d] = name


def offered(t: Tensor, known: dict[Tensor, tuple[Order, ...]]) -> tuple[tuple[Order, ...], tuple[str, ...]]:
    """The orders that a tensor's operands offer it, most axes first; and why others ended.

    An order whose axes another order of the same source has in the same order is not offered again.
    """
    e = t.definition
    if e is None:
        return (own_order(t),), ()
    every = [carried(e, k, o) for k, x in enumerate(e.inputs) for o in known.get(x, ())]
    lost = tuple(dict.fromkeys(o.lost for o in every if o.lost))
    kept: list[Order] = []
    for o in sorted((o for o in every if o.axes), key=lambda o: -len(o.axes)):  # stable: operands in their order
        if not any(k.source is o.source and k.agrees(o) for k in kept):
            kept.append(o)
    return tuple(kept[:MAX_ORDERS]), lost
