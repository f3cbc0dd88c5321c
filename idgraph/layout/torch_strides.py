"""The strides that torch's eager mode gives, operation by operation, for constant shapes.

Sources: ``TensorIterator.cpp`` (`reorder_dimensions`, `fast_set_up`), ``TensorUtils.cpp`` (`computeStride`),
``MemoryFormat.h`` (`is_strides_like_channels_last`), the structured meta functions of reductions and of ``cat``.
"""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.errors import OperationError
from idgraph.index.allocation import strides as allocated
from idgraph.ir import Fixed, Fusion, IterDomain, Mapped, Merge, Resize, Split, Stride, Tensor, TensorExpr
from idgraph.ir.op_builders import result_dtype
from idgraph.ir.op_table import POINTWISE, names

Ints = tuple[int, ...]
VIEWS = frozenset({"permute", "transpose", "unsqueeze", "squeeze", "expand", "slice", "select", "broadcast"})
LIKE_OPERAND = frozenset({"cast", "copy", "flip"})  # ``empty_like`` with the preserved format
ELEMENTWISE = POINTWISE - {"cast"}
COMPUTED_IN_RESULT = frozenset(names(result=("float",)))  # integers become floats before
_CHANNELS_LAST = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}  # innermost first


def eager_strides(fusion: Fusion) -> dict[Tensor, Ints]:
    """Elements between neighbours of each axis, for every tensor of the fusion.

    Raises `OperationError` where a size or a stride is a symbol: eager mode compares numbers.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(2, 3, 4, 5), strides=(60, 1, 15, 3))
    >>> y = ig.relu(x)[:, :, 0] + 1.0
    >>> eager_strides(f)[y]
    (15, 1, 3)
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
    for mine, strides in operands:
        missing = len(sizes) - len(mine)
        own = [
            0 if n == 1 and sizes[missing + k] != 1 else s for k, (n, s) in enumerate(zip(mine, strides, strict=True))
        ]
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
