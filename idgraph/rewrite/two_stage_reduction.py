"""Reductions in two stages: few results of many elements each, as parts that run side by side and a sum of the parts.

One block, or one core, would otherwise do all of it. The parts are tensors in memory, so their order is fixed: the
result does not depend on which of them is ready first, and no atomics are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Final

from idgraph.ir import Fusion, Tensor, TensorExpr
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr
from idgraph.ir.device import current_device, floor_power_of_two
from idgraph.ir.dtypes import is_float
from idgraph.ir.iter_domain import Attr
from idgraph.ir.op_builders import REDUCTIONS, ROUNDED_TO, int_tuple
from idgraph.ir.op_table import OPERATIONS, apply
from idgraph.rewrite.canonicalize_views import replace_operation

LONG: Final = 1 << 16  # elements of one result that are worth a second launch
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
    for e in fusion.exprs:
        if e.op in REDUCTIONS and e.is_reduction:
            way = _two_stage_split(e)
            if way is not None:
                replace_operation(e, partial(finished, e, way))


def _few() -> int:
    """Results that leave most of a device idle: one for four processors."""
    return max(1, floor_power_of_two(current_device().processors) // 4)


def _idle_results() -> int:
    """Results of neighbouring threads, side by side in memory, that leave a device idle."""
    return max(1, current_device().resident_threads // 64)


def _two_stage_split(e: TensorExpr) -> Callable[[], Tensor] | None:
    """The way to reduce in two stages; None where that is not worth it, or not known to be."""
    (x,) = e.inputs
    sizes = [int(d.extent) if d.extent.is_const else 0 for d in x.axes]
    dims = sorted(d % x.ndim for d in int_tuple(e.attrs, "dims"))
    kept, reduced = prod(n for p, n in enumerate(sizes) if p not in dims), prod(sizes[p] for p in dims)
    if dims and dims[-1] != x.ndim - 1:  # columns that do not lie innermost run on neighbouring threads
        return _way_across(e, x, sizes, dims, kept, reduced)
    few = _few()
    if not 0 < kept <= few or reduced < LONG or dims != list(range(x.ndim - len(dims), x.ndim)):
        return None
    for k in range(len(dims) - 1, 0, -1):  # whole axes first: nothing has to be cut
        inner = prod(sizes[p] for p in dims[k:])
        if inner >= LEAST and reduced // inner * kept >= 4 * few:
            return partial(_by_axes, e, x, dims[:k], dims[k:])
    parts = _equal_part_count(reduced)
    if parts is not None:
        return partial(_by_parts, e, x, len(dims), parts, reduced)
    whole = reduced - reduced % (4 * few * ALIGNED)
    parts = _equal_part_count(whole)
    return None if parts is None else partial(_with_rest, e, x, len(dims), parts, whole)


def _way_across(
    e: TensorExpr, x: Tensor, sizes: Sequence[int], dims: Sequence[int], kept: int, reduced: int
) -> Callable[[], Tensor] | None:
    """The longest run of neighbouring reduced axes in parts, where the rows that neighbouring threads take are too few
    for a device."""
    if not 0 < kept < (narrow := _idle_results()) or reduced < 2 * LEAST:
        return None
    run = max(_adjacent_axes(dims), key=lambda axes: prod(sizes[d] for d in axes))
    length = prod(sizes[d] for d in run)
    wanted = min(BLOCKS * narrow // kept, reduced // LEAST, length)
    parts = max((p for p in range(1, wanted + 1) if length % p == 0), default=1)
    return partial(_by_slices, e, x, dims, run, parts) if parts * 4 > wanted and parts > 2 else None


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


def _by_slices(e: TensorExpr, x: Tensor, dims: Sequence[int], run: Sequence[int], parts: int) -> Tensor:
    """The axes ``run`` as one, cut into ``parts``, which stay for the second stage."""
    shape = [attr(d.extent) for d in x.axes]
    first, last = run[0], run[-1]
    length = prod(int(x.axes[d].extent) for d in run)
    cut = movement.reshape(x, *shape[:first], parts, length // parts, *shape[last + 1 :])
    moved = len(run) - 2  # axes that there are fewer behind the run
    inner = [d for d in dims if d < first] + [first + 1] + [d - moved for d in dims if d > last]
    return stage(e, stage(e, cut, inner), (first - sum(d < first for d in dims),))


def _equal_part_count(n: int) -> int | None:
    """A number of equal, aligned parts of ``n`` elements, near `PARTS` for each processor."""
    most = 4 * _few() * PARTS
    found = [p for p in range(4 * _few(), 2 * most + 1) if n % (p * ALIGNED) == 0 and n // p >= LEAST]
    return min(found, key=lambda p: abs(p - most), default=None)


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
        attrs["dtype"] = "float64" if is_float(e.output.dtype) else e.output.dtype
        if attrs["dtype"] not in (e.output.dtype, x.dtype):
            attrs[ROUNDED_TO] = e.output.dtype
    return apply(x.fusion, e.op, (x,), attrs, None)


def _by_axes(e: TensorExpr, x: Tensor, outer: Sequence[int], inner: Sequence[int]) -> Tensor:
    return stage(e, stage(e, x, inner), outer)


def _by_parts(e: TensorExpr, x: Tensor, count: int, parts: int, n: int) -> Tensor:
    """The last ``count`` axes, of ``n`` elements together, cut into ``parts``."""
    cut = movement.reshape(x, *x.shape[: x.ndim - count], parts, n // parts)
    return stage(e, stage(e, cut, (cut.ndim - 1,)), (cut.ndim - 2,))


def _with_rest(e: TensorExpr, x: Tensor, count: int, parts: int, whole: int) -> Tensor:
    """Equal parts up to element ``whole`` of the last ``count`` axes, and what is behind it."""
    flat = movement.reshape(x, *x.shape[: x.ndim - count], -1) if count > 1 else x
    at = flat.ndim - 1
    first = _by_parts(e, movement.slice(flat, at, 0, whole), 1, parts, whole)
    rest = stage(e, movement.slice(flat, at, whole, None), (at,))
    return apply(x.fusion, OPERATIONS[e.op].combine, (first, rest), {}, None)
