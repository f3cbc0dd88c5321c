"""Reductions in two stages: few results of many elements each, as parts that run side by side and a sum of the parts.

One block, or one core, would otherwise do all of it. The parts are tensors in memory, so their order is fixed: the
result does not depend on which of them is ready first, and no atomics are needed.

Running sums likewise: of each part by itself, after what all parts before it come to.

Squared deviations from a mean by parts, each from a mean of its own.

Of the deviations of all elements from their mean a first launch would need the mean: two passes over memory. The means
of parts are known while a block holds a part, and what the mean of all adds follows from the parts (Chan, Golub and
LeVeque, 1979): the sum over a part of (x - m)^2 is that of (x - r)^2 plus (r - m) (2 (s - n r) + n (r - m)), for
its sum s, its n elements and any r.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import hypot, prod
from typing import Final

from idgraph.ir import DType, Fusion, Tensor, TensorExpr, is_float, item_size
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as composite
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr
from idgraph.ir.axis_read import Attr, Mapped
from idgraph.ir.device import current_device, floor_power_of_two
from idgraph.ir.op_builders import REDUCTIONS, ROUNDED_TO, int_tuple
from idgraph.ir.op_table import OPERATIONS, POINTWISE, apply
from idgraph.ir.walks import operands, reach
from idgraph.layout.inference import bytes_of
from idgraph.rewrite.canonicalize_views import replace_operation

PARTS: Final = 8  # of one result for each processor, about; a second stage reads as many
LEAST: Final = 256  # elements of a part
BLOCKS: Final = (
    12  # times `_idle_results()` results of all parts: blocks enough for an even share of each multiprocessor
)
ALIGNED: Final = 16  # elements that parts are multiples of, so that each starts aligned


def two_stages(fusion: Fusion) -> None:
    """Rewrite the reductions that have few results of many elements each; outputs keep their names and tensors.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(ig.sum(f.input("x", shape=(1 << 20,))))
    >>> two_stages(f)
    >>> [(e.op, tuple(map(str, e.output.shape))) for e in f.exprs]
    [('reshape', ('1024', '1024')), ('sum', ('1024',)), ('sum', ()), ('cast', ())]
    """
    known = dict[tuple[Tensor, tuple[int, ...]], StageSplit]()  # of sums that deviations are taken from
    for e in fusion.exprs:
        found = deviation_of(e)
        if found is not None and (split := _deviation_split(e)) is not None:
            known[found.x, reduced_dims(e)] = split
    for e in fusion.exprs:
        if e.op not in REDUCTIONS or not e.is_reduction:
            continue
        found = deviation_of(e)
        split = known.get((found.x if found is not None else e.inputs[0], reduced_dims(e))) or _two_stage_split(e)
        if split is not None:
            parts = partial(deviation_in_parts, e, found, split) if found is not None and split.rest is None else None
            replace_operation(e, partial(finished, e, parts or partial(_in_stages, e, split)))


def scans_in_parts(fusion: Fusion) -> None:
    """Rewrite the running sums of few long rows or columns, where parts take less time.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(ig.cumsum(f.input("x", shape=(1 << 15, 64)), 0))
    >>> scans_in_parts(f)
    >>> [(e.op, tuple(map(str, e.output.shape))) for e in f.exprs if e.op in ("cumsum", "sum")]
    [('cumsum', ('512', '64', '64')), ('sum', ('512', '64')), ('cumsum', ('512', '64'))]
    """
    for e in fusion.exprs:
        if e.op == "cumsum" and (parts := _scan_parts(e)) is not None:
            replace_operation(e, partial(_scanned_in_parts, e, parts))


def _scan_parts(e: TensorExpr) -> int | None:
    """How many parts the axis of a scan has that go side by side; None where it goes as fast in one."""
    x, gpu = e.inputs[0], current_device()
    sizes, dim = [int(d.extent) if d.extent.is_const else 0 for d in x.axes], _scanned_dim(e)
    points, length = prod(sizes), sizes[dim] if sizes else 0
    if not points:
        return None
    last = dim == x.ndim - 1
    blocks = points // length if last else -(-points // length // gpu.warp)
    wanted = max(1, _enough() * PARTS // blocks)
    parts = min((p for p in range(2, 2 * wanted) if length % p == 0), key=lambda p: abs(p - wanted), default=1)
    read, written = _read_bytes(x), points * item_size(e.output.dtype)
    single = (read + written) / gpu.bandwidth / gpu.busy(blocks)
    wide = points * item_size(wide_type(e))
    split = (2 * read + written + 2 * wide) / gpu.bandwidth / gpu.busy(blocks * parts) + 2e-6 * gpu.launch_us
    return parts if parts > 1 and split < single else None


def _scanned_dim(e: TensorExpr) -> int:
    dim = e.attrs["dim"]
    return dim % e.output.ndim if isinstance(dim, int) else 0


def wide_type(e: TensorExpr) -> DType:
    """The type of sums between stages, so that the result is rounded once."""
    return "float64" if is_float(e.output.dtype) else e.output.dtype


def _scanned_in_parts(e: TensorExpr, parts: int) -> Tensor:
    x, dim, wide = e.inputs[0], _scanned_dim(e), wide_type(e)
    shape = [attr(d.extent) for d in x.axes]
    pieces = movement.reshape(x, *shape[:dim], parts, int(x.axes[dim].extent) // parts, *shape[dim + 1 :])
    each = composite.cumsum(pieces, dim + 1, dtype=wide)
    ends = [*[0] * (2 * (x.ndim - 1 - dim)), 1, -1]
    before = composite.cumsum(movement.pad(composite.sum(pieces, dim + 1, dtype=wide), ends), dim)
    made = movement.reshape(ops.add(each, movement.unsqueeze(before, dim + 1)), shape)
    return made if made.dtype == e.output.dtype else ops.cast(made, e.output.dtype)


def _enough() -> int:
    """Blocks that keep a device busy: one for each processor, as a power of two."""
    return floor_power_of_two(current_device().processors)


def _idle_results() -> int:
    """Results of neighbouring threads, side by side in memory, that leave a device idle."""
    return max(1, current_device().resident_threads // 64)


def _two_stage_split(e: TensorExpr) -> StageSplit | None:
    """The way to reduce in two stages; None where that is not worth it, or not known to be."""
    (x,) = e.inputs
    sizes = [int(d.extent) if d.extent.is_const else 0 for d in x.axes]
    dims = reduced_dims(e)
    kept, reduced = prod(n for p, n in enumerate(sizes) if p not in dims), prod(sizes[p] for p in dims)
    if dims and dims[-1] != x.ndim - 1:  # columns that do not lie innermost run on neighbouring threads
        return _split_across(x, sizes, dims, kept, reduced)
    if not kept or not reduced or not _pays(x, kept):
        return None
    most = _enough() * PARTS
    found: list[tuple[int, StageSplit]] = []  # whole axes first: nothing has to be cut
    for k in range(1, len(dims)):
        inner = prod(sizes[p] for p in dims[k:])
        if inner >= LEAST and (blocks := reduced // inner * kept) >= _enough():
            found.append((max(blocks // most, most // blocks), StageSplit(None, dims[k:], dims[:k])))
    if found:
        return min(found, key=lambda x: x[0])[1]
    first = (run := _adjacent_axes(dims)[-1])[0]  # what lies innermost, in parts
    length, front = prod(sizes[p] for p in run), tuple(d for d in dims if d not in run)
    parts = _equal_part_count(length)
    lead = tuple(attr(n) for n in x.shape[:first])
    if parts is not None:
        return StageSplit((*lead, parts, length // parts), (first + 1,), (*front, first))
    whole = length - length % (_enough() * ALIGNED)
    parts = _equal_part_count(whole)
    return None if parts is None or front else StageSplit((*lead, parts, whole // parts), (first + 1,), (first,), whole)


def _pays(x: Tensor, results: int) -> bool:
    """Whether all processors read and compute what ``x`` is made of, and a second launch the parts, sooner than a block
    for each of so many results does."""
    gpu = current_device()
    idle = max(1.0, gpu.processors / results) - 1
    memory = _read_bytes(x) / gpu.bandwidth * (1 / gpu.busy(results) - 1)
    return hypot(memory, _operation_seconds(x) * idle) > gpu.launch_us * 1e-6


def _operation_seconds(x: Tensor) -> float:
    """Seconds in which all processors compute a tensor, element by element, from what it is made of."""
    made = {t.definition: t for t in reach([x], _elementwise) if t.definition is not None}
    total, gpu = 0.0, current_device()
    for e, t in made.items():
        cycles = OPERATIONS[e.op].cycles if e.op in POINTWISE else "free"
        points = prod(int(d.extent) if d.extent.is_const else 0 for d in t.axes)
        total += 0.0 if cycles == "free" else points / gpu.rate(t.dtype, special=cycles != "plain")
    return total


def _elementwise(t: Tensor) -> Sequence[Tensor]:
    """The operands of an operation on elements; none of others."""
    return operands(t) if t.definition is not None and t.definition.op in POINTWISE else ()


def _read_bytes(x: Tensor) -> int:
    """Bytes of what a tensor is made of, element by element."""
    leaves = reach([x], _elementwise)
    return sum(bytes_of(t) for t in leaves if t.definition is None or t.definition.op not in POINTWISE)


def _deviation_split(e: TensorExpr) -> StageSplit | None:
    """The same for squared deviations from a mean: parts that a block holds are also read once, not twice."""
    (x,) = e.inputs
    dims, sizes = reduced_dims(e), [int(d.extent) if d.extent.is_const else 0 for d in x.axes]
    split = _two_stage_split(e)
    if split is not None or not dims or dims[-1] != x.ndim - 1:
        return split
    reduced = prod(sizes[p] for p in dims)
    run = _adjacent_axes(dims)[-1]
    inner = prod(sizes[p] for p in run)
    if len(run) == len(dims) or reduced <= current_device().registers // 2 or inner < LEAST:
        return None
    return StageSplit(None, tuple(run), tuple(p for p in dims if p not in run))


def _split_across(x: Tensor, sizes: Sequence[int], dims: Sequence[int], kept: int, reduced: int) -> StageSplit | None:
    """The longest run of neighbouring reduced axes in parts, where the rows that neighbouring threads take are too few
    for a device."""
    if not 0 < kept < (narrow := _idle_results()) or reduced < 2 * LEAST:
        return None
    run = max(_adjacent_axes(dims), key=lambda axes: prod(sizes[d] for d in axes))
    length = prod(sizes[d] for d in run)
    wanted = min(BLOCKS * narrow // kept, reduced // LEAST, length)
    parts = max((p for p in range(1, wanted + 1) if length % p == 0), default=1)
    if parts * 4 <= wanted or parts <= 2:
        return None
    shape = [attr(d.extent) for d in x.axes]
    first, last = run[0], run[-1]
    moved = len(run) - 2  # axes that there are fewer behind the run
    inner = (*(d for d in dims if d < first), first + 1, *(d - moved for d in dims if d > last))
    outer = first - sum(d < first for d in dims)
    return StageSplit((*shape[:first], parts, length // parts, *shape[last + 1 :]), inner, (outer,))


def _adjacent_axes(dims: Sequence[int]) -> list[list[int]]:
    """Sorted axes as runs of neighbours.

    >>> _adjacent_axes([0, 1, 3])
    [[0, 1], [3]]
    """
    found: list[list[int]] = []
    for d in dims:
        if found and found[-1][-1] == d - 1:
            found[-1].append(d)
        else:
            found.append([d])
    return found


def _equal_part_count(n: int) -> int | None:
    """A number of equal, aligned parts of ``n`` elements, near `PARTS` for each processor."""
    most = _enough() * PARTS
    found = [p for p in range(_enough(), 2 * most + 1) if n % (p * ALIGNED) == 0 and n // p >= LEAST]
    return min(found, key=lambda p: abs(p - most), default=None)


def _in_stages(e: TensorExpr, split: StageSplit) -> Tensor:
    """Parts, and what is made of them; what is behind the last whole part is one more."""
    x = e.inputs[0]
    if split.rest is None:
        return stage(e, stage(e, cut(x, split), split.inner), split.outer)
    lead = split.outer[0]
    flat = movement.reshape(x, *x.shape[:lead], -1) if x.ndim > lead + 1 else x
    whole = movement.slice(flat, lead, 0, split.rest)
    first = stage(e, stage(e, cut(whole, split), split.inner), split.outer)
    rest = stage(e, movement.slice(flat, lead, split.rest, None), (lead,))
    return apply(x.fusion, OPERATIONS[e.op].combine, (first, rest), {}, None)


_NEAR = 64  # operations between a mean and what it is of


@dataclass(frozen=True, slots=True)
class StageSplit:
    """A reduction in two stages: of x in ``shape`` (None: as it is) over axes ``inner``, then over ``outer`` of what
    that leaves; ``rest``: the element of the flat reduced axes from which on no part is whole."""

    shape: tuple[Attr, ...] | None
    inner: tuple[int, ...]
    outer: tuple[int, ...]
    rest: int | None = None


@dataclass(frozen=True, slots=True)
class Deviation:
    """A sum of (x - m)^2 over axes along which ``m`` does not change, and ``m`` needs all of ``x``."""

    x: Tensor
    m: Tensor


def reduced_dims(e: TensorExpr) -> tuple[int, ...]:
    """The axes of its operand that a reduction reduces, in order."""
    return tuple(sorted(d % e.inputs[0].ndim for d in int_tuple(e.attrs, "dims"))) if e.inputs[0].ndim else ()


def deviation_of(e: TensorExpr) -> Deviation | None:
    """The tensor and the mean whose squared deviations a reduction sums; None of others."""
    square = e.inputs[0].definition if e.op == "sum" and e.is_reduction else None
    if square is None or not (square.op == "square" or (square.op == "mul" and len({*square.inputs}) == 1)):
        return None
    apart = square.inputs[0].definition
    if apart is None or apart.op != "sub" or len(apart.inputs) != 2:
        return None
    along = {apart.output.axes[d] for d in reduced_dims(e)}
    for x, m, row in zip(apart.inputs, apart.inputs[::-1], apart.reads[::-1], strict=True):
        still = not any(isinstance(r, Mapped) and r.domain in along for r in row)
        plain = x.dtype == e.output.dtype and x.dtype in ("float32", "float64") and m.ndim in (0, x.ndim)
        if (
            still
            and plain
            and [d.extent for d in x.axes] == [d.extent for d in apart.output.axes]
            and x in reach([m], operands, _NEAR)
        ):
            return Deviation(x, m)
    return None


def cut(x: Tensor, split: StageSplit) -> Tensor:
    """``x`` in the shape of its parts."""
    return x if split.shape is None else _made_once(x, "reshape", {"shape": split.shape})


def _made_once(x: Tensor, op: str, attrs: dict[str, Attr]) -> Tensor:
    """An operation on ``x``, or what it has made already."""
    for e in x.uses:
        if e.op == op and e.inputs == (x,) and {**e.attrs} == attrs and e.output in x.fusion:
            return e.output
    return apply(x.fusion, op, (x,), attrs, None)


def deviation_in_parts(e: TensorExpr, of: Deviation, split: StageSplit) -> Tensor:
    """The sum of squared deviations ``of`` a tensor in two stages, each part from its own mean."""
    parts = cut(of.x, split)
    n = float(prod(int(parts.axes[d].extent) for d in split.inner))
    total = stage(e, parts, split.inner)
    mean = ops.cast(ops.div(total, n), of.x.dtype)
    apart = ops.sub(parts, movement.unsqueeze(mean, list(split.inner)))
    own = stage(e, ops.square(apart), split.inner)
    wide = ops.cast(mean, "float64")
    m = movement.squeeze(of.m, list(reduced_dims(e))) if of.m.ndim else of.m
    gap = ops.sub(wide, ops.cast(movement.unsqueeze(m, list(split.outer)) if m.ndim else m, "float64"))
    left = ops.add(ops.mul(ops.sub(total, ops.mul(wide, n)), 2.0), ops.mul(gap, n))
    return stage(e, ops.add(own, ops.mul(gap, left)), split.outer)


def finished(e: TensorExpr, way: Callable[[], Tensor]) -> Tensor:
    """The result in the type and the shape that it had."""
    made = way()
    if made.dtype != e.output.dtype:
        made = ops.cast(made, e.output.dtype)
    if e.attrs.get("keepdim", False):
        for d in sorted(d % e.inputs[0].ndim for d in int_tuple(e.attrs, "dims")):
            made = movement.unsqueeze(made, d)
    return made


def stage(e: TensorExpr, x: Tensor, dims: Sequence[int]) -> Tensor:
    """One stage of the reduction ``e``. Between stages sums are float64: the result is rounded once, as that of one is.

    The first stage says what it is rounded to, and adds up terms as a sum of that type does.
    """
    attrs: dict[str, Attr] = {"dims": tuple(dims)}
    if e.op in ("sum", "prod"):
        attrs["dtype"] = wide_type(e)
        if attrs["dtype"] not in (e.output.dtype, x.dtype):
            attrs[ROUNDED_TO] = e.output.dtype
    return _made_once(x, e.op, attrs)
