"""The order of a tensor's axes in memory, carried over along the mapping to the tensors that are computed from it.

An order is a list of axes, outermost in memory first. An operation reads its operand at axes of its output, and axis
expressions lead from there to the axes that its readers see; the order follows them:

    permute, slice, pad, cat, flip, roll    [a, b] -> [a', b']
    split (a reshape)                       [a, b] -> [outer, inner, b']
    merge (a reshape)                       [a, outer, inner] -> [a', out], where they are neighbours in that order
    gather                                  [a, b] -> [i', j', b'], where an index of axes i and j picks of a
    reduction, select                       the axis drops out

Axes of one element do not count, and are in no order.

The strides that torch's eager mode gives, operation by operation, for constant shapes.

Sources: ``TensorIterator.cpp`` (`reorder_dimensions`, `fast_set_up`), ``TensorUtils.cpp`` (`computeStride`),
``MemoryFormat.h`` (`is_strides_like_channels_last`), the structured meta functions of reductions and of ``cat``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from idgraph.arith import Expr, is_true
from idgraph.errors import OperationError
from idgraph.index.allocation import strides
from idgraph.index.allocation import strides as allocated
from idgraph.index.index_solver import steps_of_index
from idgraph.ir import (
    SCATTERS,
    DomainExpr,
    Fixed,
    Fusion,
    IterDomain,
    LoadedCoordinate,
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
from idgraph.ir.op_builders import result_dtype
from idgraph.ir.op_table import POINTWISE, names

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
    if not e.output.domain.exprs and len({d for to in read.values() for d in to}) == sum(map(len, read.values())):
        wanted = set(e.output.axes)
        pairs = [
            (to, name)
            for d, name in zip(order.axes, order.names, strict=True)
            for to in read.get(d, ())
            if to.kind != "broadcast" and to in wanted
        ]
        if pairs:
            return Order(order.source, tuple([to for to, _ in pairs]), tuple([name for _, name in pairs]))
    axes: list[IterDomain] = []
    names: dict[IterDomain, str] = {}
    for d, name in zip(order.axes, order.names, strict=True):
        for to in read.get(d, ()):
            if to not in names:
                axes.append(to)
                names[to] = name
    if not axes and order.axes:
        return Order(order.source, (), (), f"{e.op} reads none of the axes of {e.inputs[operand].name}")
    for x in _exprs_in_order(e.output, axes):
        reason = _replay_backward(x, axes, names)
        if reason:
            line = f" at {e.source_line}" if e.source_line else ""
            return Order(order.source, (), (), f"{reason} in the memory of {order.source.name}: {e.op}{line}")
    wanted = {d for d in e.output.axes if not d.is_broadcast}
    kept = tuple(dict.fromkeys(d for d in axes if d in wanted))  # a place is that of the first axis read there
    return Order(order.source, kept, tuple(names[d] for d in kept))


def _read_at(e: TensorExpr, operand: int) -> dict[IterDomain, tuple[IterDomain, ...]]:
    """For each axis of an operand the axes of the output at which it is read: those of the index, of a gathered one."""
    t, read = e.inputs[operand], e.reads[operand]
    if e.op in SCATTERS and operand == 0:  # the result has the operand's own axes
        return {a: (b,) for a, b in zip(t.axes, e.output.axes, strict=True)}
    own = {r.domain for r in read if isinstance(r, Mapped)}
    found: dict[IterDomain, tuple[IterDomain, ...]] = {}
    for d, r in zip(t.axes, read, strict=True):
        if isinstance(r, Mapped):
            found[d] = (r.domain,)
        elif isinstance(r, LoadedCoordinate):
            index, at = e.inputs[r.operand], e.reads[r.operand]
            made = {a: x.domain for a, x in zip(index.axes, at, strict=True) if isinstance(x, Mapped)}
            found[d] = tuple(x for a in _by_step(index) if (x := made.get(a)) is not None and x not in own)
    return found


def _by_step(index: Tensor) -> list[IterDomain]:
    """The axes of an index tensor, those of larger steps first; of equal ones, as those of windows, the shorter one."""
    axes, steps = [d for d in index.axes if not d.is_broadcast], steps_of_index(index)
    if steps is None or not all(d.extent.is_const and steps[d].is_const for d in axes):
        return axes
    return sorted(axes, key=lambda d: (-abs(int(steps[d])), int(d.extent)))


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


Ints = tuple[int, ...]
VIEWS = frozenset({"permute", "transpose", "unsqueeze", "squeeze", "expand", "slice", "select", "broadcast"})
LIKE_OPERAND = frozenset({"cast", "copy", "flip"})  # ``empty_like`` with the preserved format
ELEMENTWISE = POINTWISE - {"cast"}
COMPUTED_IN_RESULT = frozenset(names(result=("float",)))  # integers become floats before
_CHANNELS_LAST = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}  # innermost first


def eager_strides(fusion: Fusion) -> dict[Tensor, Ints]:
    """Elements between neighbours of each axis, for every tensor of the fusion.

    Raises `OperationError` where a size or a stride is a symbol: eager mode compares numbers.
    """
    found: dict[Tensor, Ints] = {}
    for t in fusion.tensors:
        if not all(isinstance(n, int) for n in t.shape):
            raise OperationError(f"{t.name} has shape {t.shape}: eager strides need numbers", where=t.source_line)
        found[t] = _declared(t) if t.definition is None else _result_strides(t.definition, found)
    return found


def _sizes(t: Tensor) -> Ints:
    return tuple(int(d.extent) for d in t.axes)


def _declared(t: Tensor) -> Ints:
    by_axis = dict(zip(t.allocation, allocated(t), strict=True))
    given = [by_axis.get(d) for d in t.axes]
    if any(s is None or not s.is_const for s in given):
        raise OperationError(f"strides of {t.name} are not numbers: eager strides need numbers", where=t.source_line)
    return tuple(int(s) for s in given if s is not None)


def contiguous(sizes: Sequence[int], order: Sequence[int] | None = None) -> Ints:
    """Dense strides, by axis; ``order`` names the axes innermost first (None: the last one).

    >>> contiguous((2, 3, 4)), contiguous((2, 3, 4), (1, 2, 0))
    ((12, 4, 1), (12, 1, 3))
    """
    made = [1] * len(sizes)
    step = 1
    for axis in reversed(range(len(sizes))) if order is None else order:
        made[axis] = step
        step *= max(sizes[axis], 1)
    return tuple(made)


def _result_strides(e: TensorExpr, known: dict[Tensor, Ints]) -> Ints:
    t = e.output
    sizes = _sizes(t)
    if e.op in VIEWS:
        return _view(e, known[e.inputs[0]])
    if e.op == "reshape":
        source = e.inputs[0]
        return view_strides(_sizes(source), known[source], sizes) or contiguous(sizes)
    if e.op in LIKE_OPERAND:
        return _preserved(sizes, known[e.inputs[0]])
    if e.op == "pad":  # channels last stays where the strides are like it
        return contiguous(sizes, _suggested(_sizes(e.inputs[0]), known[e.inputs[0]]))
    if e.op == "cat":
        formats = [_suggested(_sizes(x), known[x]) for x in e.inputs]
        same = formats[0] is not None and all(f == formats[0] for f in formats)
        return contiguous(sizes, formats[0] if same else None)
    if e.op in ELEMENTWISE:
        return _iterated(sizes, [_iterator_operand(e, a, known) for a in e.args])
    return contiguous(sizes)


def _iterator_operand(e: TensorExpr, a: object, known: dict[Tensor, Ints]) -> tuple[Ints, Ints]:
    """Sizes and strides of an operand as the iterator sees it: on the CPU it is converted to the common type first."""
    if not isinstance(a, Tensor):
        return (), ()  # a number has no axes
    sizes, given = _sizes(a), known[a]
    if e.op == "where" and a is e.inputs[0]:
        return sizes, given
    common = e.output.dtype if e.op in COMPUTED_IN_RESULT else result_dtype(e.args[1:] if e.op == "where" else e.args)
    return sizes, given if a.dtype == common else _preserved(sizes, given)


def _view(e: TensorExpr, given: Ints) -> Ints:
    """Strides of a view: those of the axes that are read, along the axis expressions of a slice."""
    t, source = e.output, e.inputs[0]
    by_axis: dict[IterDomain, int] = {}
    for stride, axis, read in zip(given, source.axes, e.reads[0], strict=True):
        if isinstance(read, Mapped):
            by_axis[read.domain] = stride
        elif isinstance(read, Fixed) and read.resolves is not None:
            by_axis[read.resolves] = stride if axis.extent == read.resolves.extent else 0
    for x in t.domain.exprs:
        match x:
            case Resize(a, b):
                by_axis[b] = by_axis[a]
            case Stride(a, b, _, step):
                by_axis[b] = by_axis[a] * int(step)
            case Split(a, outer, inner):
                by_axis[inner], by_axis[outer] = by_axis[a], by_axis[a] * int(inner.extent)
            case Merge(_, inner, out):
                by_axis[out] = by_axis[inner]
            case _:
                continue
    made: list[int] = []
    for k in reversed(range(len(t.axes))):
        d = t.axes[k]
        if d in by_axis:
            stride = by_axis[d]
        elif e.op != "unsqueeze":
            stride = 0  # a new axis of an expansion
        elif k + 1 < len(t.axes):
            stride = made[0] * int(t.axes[k + 1].extent)
        else:
            stride = 1
        made.insert(0, stride)
    return tuple(made)


def view_strides(sizes: Ints, strides: Ints, wanted: Ints) -> Ints | None:
    """Strides of a view of another shape; None where there is none and torch copies (its ``computeStride``).

    >>> view_strides((4, 6), (6, 1), (2, 2, 6)), view_strides((4, 6), (1, 4), (24,))
    ((12, 6, 1), None)
    """
    if not sizes:
        return (1,) * len(wanted)
    if 0 in sizes:
        return contiguous(wanted) if sizes != wanted else strides
    made = [0] * len(wanted)
    view = len(wanted) - 1
    base, elements, viewed = strides[-1], 1, 1
    for axis in reversed(range(len(sizes))):
        elements *= sizes[axis]
        if axis == 0 or (sizes[axis - 1] != 1 and strides[axis - 1] != elements * base):
            while view >= 0 and (viewed < elements or wanted[view] == 1):
                made[view] = viewed * base
                viewed *= wanted[view]
                view -= 1
            if viewed != elements:
                return None
            if axis:
                base, elements, viewed = strides[axis - 1], 1, 1
    return tuple(made) if view == -1 else None


def _is_dense(sizes: Ints, strides: Ints) -> bool:
    """Whether the elements lie side by side without a gap or an overlap, in some order (non-overlapping and dense)."""
    if len(sizes) == 1:
        return sizes[0] < 2 or strides[0] == 1
    step = 1
    for axis in sorted(range(len(sizes)), key=lambda a: (sizes[a] < 2, strides[a])):
        if sizes[axis] < 2:
            return True
        if strides[axis] != step:
            return False
        step *= sizes[axis]
    return True


def _is_contiguous(sizes: Ints, strides: Ints) -> bool:
    step = 1
    for n, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if n != 1:
            if stride != step:
                return False
            step *= n
    return True


def _suggested(sizes: Ints, strides: Ints) -> Ints | None:
    """The axes, innermost first, of the channels-last format that the strides are like; None for contiguous."""
    order = _CHANNELS_LAST.get(len(sizes))
    if order is None or strides[1] == 0:
        return None
    least = 0
    for d in order:
        if sizes[d] == 0 or strides[d] < least or (d == 0 and least == strides[1]):
            return None
        least = strides[d] * max(sizes[d], 1) if sizes[d] > 1 else strides[d]
    return order


def _preserved(sizes: Ints, strides: Ints) -> Ints:
    """``empty_like`` with the preserved format."""
    return strides if _is_dense(sizes, strides) else contiguous(sizes, _sorted(sizes, [strides]))


def _iterated(sizes: Ints, operands: Sequence[tuple[Ints, Ints]]) -> Ints:
    """The strides that TensorIterator gives to the result of an elementwise operation."""
    if not operands:
        return contiguous(sizes)
    if all(mine == sizes for mine, _ in operands):
        first = operands[0][1]
        if all(_is_contiguous(*o) for o in operands):
            return contiguous(sizes)
        order = (
            _CHANNELS_LAST[4] if len(sizes) == 4 else None
        )  # the fast path has no channels-last format in three dimensions
        if order is not None and all(_is_contiguous_as(*o, order) for o in operands):
            return contiguous(sizes, order)
        if all(_is_dense(*o) and o[1] == first for o in operands):
            return first
    rows: list[Ints] = []
    for mine, steps in operands:
        missing = len(sizes) - len(mine)
        own = [0 if n == 1 and sizes[missing + k] != 1 else s for k, (n, s) in enumerate(zip(mine, steps, strict=True))]
        rows.append((*[0] * missing, *own))
    return contiguous(sizes, _sorted(sizes, rows))


def _is_contiguous_as(sizes: Ints, strides: Ints, order: Ints) -> bool:
    step = 1
    for d in order:
        if sizes[d] != 1:
            if strides[d] != step:
                return False
            step *= sizes[d]
    return True


def _sorted(sizes: Ints, rows: Sequence[Ints]) -> Ints:
    """Axes, innermost first: an insertion sort by strides, operand by operand, as `reorder_dimensions` has it."""
    perm = list(reversed(range(len(sizes))))

    def compare(a: int, b: int) -> int:
        for row in rows:
            if row[a] == 0 or row[b] == 0:
                continue
            if row[a] != row[b]:
                return -1 if row[a] < row[b] else 1
            if sizes[a] > sizes[b]:
                return 1
        return 0

    for start in range(1, len(perm)):
        at = start
        for before in reversed(range(start)):
            found = compare(perm[before], perm[at])
            if found > 0:
                perm[before], perm[at] = perm[at], perm[before]
                at = before
            elif found < 0:
                break
    return tuple(perm)
