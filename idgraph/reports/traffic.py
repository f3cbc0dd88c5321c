"""Bytes that move: which distinct elements of each tensor the operations read, by their definitions.

A schedule changes when an element is read, not whether, so this looks at the operations and at what is stored: for each
axis of an operand the run of coordinates (first, step, count) that the output needs; their union over all uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, assert_never

from idgraph.arith import Expr, as_expr
from idgraph.index import buffer_size, strides
from idgraph.ir import (
    DomainExpr,
    Fixed,
    Fusion,
    IterDomain,
    Loaded,
    Mapped,
    Merge,
    Resize,
    Roll,
    Split,
    Stride,
    Swizzle,
    Tensor,
    TensorExpr,
    item_size,
)
from idgraph.reports.facts import Amount, Traffic, amount

MASK = 1 << 22  # elements of the largest union that is counted one by one


@dataclass(frozen=True, slots=True)
class Run:
    """Coordinates ``first, first + step, ...`` of one axis; ``exact`` is False where some of them may not be read."""

    first: int
    step: int
    count: int
    exact: bool = True

    def clipped(self, extent: int) -> Run:
        """Those inside of ``[0, extent)``."""
        low = max(0, -(self.first // self.step)) if self.first < 0 else 0
        high = self.count
        if self.first + self.step * (self.count - 1) >= extent:
            high = max(0, -((self.first - extent) // self.step)) if self.first < extent else 0
        return replace(self, first=self.first + self.step * low, count=max(0, high - low))

    def is_whole(self, extent: int) -> bool:
        """Every coordinate of the axis, surely."""
        return self.exact and self.count == extent


class NotConstant(Exception):
    """An extent is a symbol: only whole tensors can be counted."""


def _int(x: Expr) -> int:
    if not x.is_const:
        raise NotConstant
    return int(x)


def needed(e: TensorExpr, d: IterDomain) -> Run:
    """The coordinates of root axis ``d`` of e's output that all of the output needs."""
    kept = set(e.output.logical)  # an axis may be read whole and in part, as in slice_scatter
    readers = {x: step for step in e.output.domain.exprs for x in step.inputs if x not in kept}
    return _needed(d, readers)


def _needed(d: IterDomain, readers: dict[IterDomain, DomainExpr]) -> Run:
    extent = _int(d.extent)
    step = readers.get(d)
    if step is None:
        return Run(0, 1, extent)
    outs = [_needed(o, readers) for o in step.outputs]
    match step:
        case Resize():
            return replace(outs[0], first=outs[0].first - _int(step.left)).clipped(extent)
        case Stride():
            return _strided(outs[0], _int(step.start), _int(step.step)).clipped(extent)
        case Roll() | Split() | Merge() | Swizzle():
            whole = all(r.is_whole(_int(o.extent)) for r, o in zip(outs, step.outputs, strict=True))
            return Run(0, 1, extent, exact=whole)
        case _:
            assert_never(step)


def _strided(run: Run, start: int, step: int) -> Run:
    """The run of sources ``start + step * out``, upwards."""
    first, by = start + step * run.first, step * run.step
    if by < 0:
        first, by = first + by * (run.count - 1), -by
    return replace(run, first=first, step=by)


Box = tuple[Run, ...]


def _box(e: TensorExpr, k: int) -> Box | None:
    """The part of operand k that e reads, axis by axis; None where values say which (a gather)."""
    runs: list[Run] = []
    for axis, read in zip(e.inputs[k].axes, e.reads[k], strict=True):
        match read:
            case Mapped():
                runs.append(needed(e, read.domain))
            case Fixed():
                known = read.index.is_const
                count = 0 if read.why == "empty" else 1
                runs.append(Run(int(read.index) if known else 0, 1, count, exact=known))
            case Loaded():
                return None
            case _:
                assert_never(read)
        runs[-1] = runs[-1].clipped(_int(axis.extent))
    return tuple(runs)


def _points(e: TensorExpr) -> int:
    return prod(_int(d.extent) for d in e.output.logical)


def touched(t: Tensor) -> tuple[int, str]:
    """The number of elements of t's memory that its uses read; a reason where that is at most what is read.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("t", shape=(8, 10))
    >>> u = t[:, 1:4] + t[:, 3:9:2]
    >>> touched(t)  # columns 1, 2, 3, 5, 7
    (40, '')
    """
    shape = [_int(d.extent) for d in t.axes]
    steps = _steps(t)
    flat = [1 if step == 0 else n for n, step in zip(shape, steps, strict=True)]
    boxes: list[Box] = []
    gathered = 0
    for e in t.uses:
        for k in dict.fromkeys(e.operands_of(t)):
            box = _box(e, k)
            if box is None:
                gathered += _points(e)
                continue
            boxes.append(
                tuple(Run(0, 1, min(r.count, 1), r.exact) if s == 0 else r for r, s in zip(box, steps, strict=True))
            )
    count, why = _union(boxes, flat) if boxes else (0, "")
    if gathered and count < prod(flat):
        count, why = min(prod(flat), count + gathered), "indices are values: each read may be of another element"
    size = buffer_size(t)
    if not _apart(shape, steps) or (size.is_const and count > int(size)):
        count, why = min(count, int(size)), why or "the strides overlap"
    return count, why


def _steps(t: Tensor) -> list[int]:
    """Elements from neighbour to neighbour along each axis of the shape."""
    by_axis = dict(zip(t.allocation, strides(t), strict=True))
    if any(d not in by_axis or not by_axis[d].is_const for d in t.axes):
        return [1] * len(t.axes)  # laid out by other axes, or with free strides: every element has a place of its own
    return [int(by_axis[d]) for d in t.axes]


def _apart(shape: Sequence[int], steps: Sequence[int]) -> bool:
    """Different coordinates lie at different addresses, axes of step 0 aside."""
    reach = 0
    if all(step == 1 for step in steps):
        return True
    for step, n in sorted((s, n) for s, n in zip(steps, shape, strict=True) if s and n > 1):
        if step <= reach:
            return False
        reach += step * (n - 1)
    return True


def _union(boxes: Sequence[Box], shape: Sequence[int]) -> tuple[int, str]:
    """The number of elements in the union of the boxes."""
    if any(all(r.is_whole(n) for r, n in zip(b, shape, strict=True)) for b in boxes):
        return prod(shape), ""
    exact = all(r.exact for b in boxes for r in b)
    why = "" if exact else "a reshape of a part is read: its bounds are counted"
    partial = [p for p, n in enumerate(shape) if any(b[p].count != n for b in boxes)]
    common = prod(n for p, n in enumerate(shape) if p not in partial)
    if len(set(boxes)) == 1:
        return common * prod(boxes[0][p].count for p in partial), why
    room = [shape[p] for p in partial]
    if prod(room) > MASK:
        most = sum(prod(b[p].count for p in partial) for b in set(boxes))
        return common * min(most, prod(room)), why or "several parts, too large to be counted one by one"
    return common * _counted(boxes, partial, room), why


def _counted(boxes: Sequence[Box], partial: Sequence[int], room: Sequence[int]) -> int:
    import numpy as np  # noqa: PLC0415 - half of the time that importing the library would take

    mask = np.zeros(room, np.bool_)
    for b in set(boxes):
        runs = [b[p] for p in partial]
        mask[tuple(slice(r.first, r.first + r.step * r.count, r.step) for r in runs if r.count)] |= all(
            r.count for r in runs
        )
    return int(np.count_nonzero(mask))


def traffic_of(f: Fusion) -> tuple[Traffic, ...]:
    """Of every tensor that lives in memory: inputs, outputs, intermediates that are not inlined."""
    outputs = set(f.outputs)
    return tuple(
        _traffic(t, t in outputs) for t in f.tensors if t.definition is None or t in outputs or t.inline_position == 0
    )


def _traffic(t: Tensor, output: bool) -> Traffic:
    role: Literal["input", "output", "intermediate"] = "intermediate"
    if t.definition is None:
        role = "input"
    elif output:
        role = "output"
    size = _product(d.extent for d in t.axes)
    bytes_each = item_size(t.dtype)
    stored = t.definition is None or t.inline_position == 0
    try:
        count, why = touched(t) if stored else (0, "")
    except NotConstant:
        count, why = _symbolic(t, size)
    written = amount(as_expr(size) * bytes_each) if role != "input" else 0
    read = amount(as_expr(count) * bytes_each)
    return Traffic(t.name, role, read, written, amount(as_expr(size) * bytes_each), not why, why)


def _product(extents: Iterable[Expr]) -> Amount:
    made = as_expr(1)
    for x in extents:
        made = made * x
    return amount(made)


def _symbolic(t: Tensor, size: Amount) -> tuple[Amount, str]:
    """With symbols only what is read as a whole is counted."""
    if not t.uses:
        return 0, ""
    if any(_reads_all(e, k) for e in t.uses for k in e.operands_of(t)):
        return size, ""
    return size, "extents are symbols, and parts are read: the whole tensor is counted"


def _reads_all(e: TensorExpr, k: int) -> bool:
    cut = any(isinstance(x, (Resize, Stride)) for x in e.output.domain.exprs)
    mapped = all(isinstance(r, Mapped) or (isinstance(r, Fixed) and r.why != "select") for r in e.reads[k])
    return mapped and not cut
