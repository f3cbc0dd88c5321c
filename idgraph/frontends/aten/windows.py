"""Handlers of ATen operations over windows of places: unfold, fold, pads of other modes, nearest sampling.

Each place of a window is one strided slice of the padded tensor, so that every coordinate stays affine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

from idgraph.arith import Expr, as_expr, is_true, simplify
from idgraph.frontends.dynamic_shapes import Size
from idgraph.frontends.importer import Call, Unmapped, fixed, fixed_extent, handles
from idgraph.ir import Scalar, Tensor, is_float
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as composite
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr

MAX_PLACES = 32  # each is a statement of a kernel, and of what it is fused with; of more the library has a loop


def per_axis(values: Sequence[int], rank: int, default: int) -> list[int]:
    """torch's list for each spatial axis: one number stands for all, none for the default."""
    found = list(values) or [default]
    return found * rank if len(found) == 1 else found


def padded(x: Tensor, sides: Sequence[int], value: Scalar) -> Tensor:
    """The last axes with as many elements in front and behind."""
    pads = [n for side in reversed(sides) for n in (side, side)]
    return movement.pad(x, pads, value) if any(pads) else x


def windows(
    x: Tensor, kernel: Sequence[int], step: Sequence[int], spread: Sequence[int]
) -> tuple[list[Tensor], list[Size]]:
    """For each place in a window of the last axes the strided slice of all windows' elements there; windows an axis."""
    rank, first = len(kernel), x.ndim - len(kernel)
    shape = x.shape[first:]
    count = [plain((shape[p] - spread[p] * (kernel[p] - 1) - 1) // step[p] + 1) for p in range(rank)]
    if min(*kernel, *step, *spread) < 1 or any(is_true(as_expr(n) < 1) for n in count):
        raise Unmapped(f"windows {tuple(kernel)}, {tuple(step)} apart, of shape {shape}")
    made = [x]
    for p, n in enumerate(kernel):  # places that agree in the axes before share the slices of these
        ends = [(at * spread[p], plain(at * spread[p] + (count[p] - 1) * step[p] + 1)) for at in range(n)]
        made = [movement.slice(part, first + p, start, end, step[p]) for part in made for start, end in ends]
    return made, count


def plain(size: Size) -> Size:
    """A size in its simplest form, a number where it is one."""
    return attr(simplify(as_expr(size)))


def few(kernel: Sequence[int]) -> None:
    """`Unmapped` where a window has too many places for a slice each."""
    total = 1
    for k in kernel:
        total *= k
    if total > MAX_PLACES:
        raise Unmapped(f"a window of {total} places, more than {MAX_PLACES}")


def _batched(x: Tensor, rank: int) -> Tensor:
    """With an axis of batches in front, which torch lets one leave out."""
    return movement.unsqueeze(x, 0) if x.ndim == rank else x


@handles("aten.im2col.default")
def im2col(c: Call) -> Tensor:
    """[N, C, H, W] -> [N, C * places, windows]: torch's F.unfold."""
    x, kernel, spread = c.tensor(0, "self"), c.ints(1, "kernel_size"), c.ints(2, "dilation")
    sides, step = c.ints(3, "padding"), c.ints(4, "stride")
    few(kernel)
    batch = _batched(x, 3)
    parts, count = windows(padded(batch, sides, 0.0 if is_float(x.dtype) else 0), kernel, step, spread)
    n, channels = batch.shape[0], fixed_extent(batch, 1)
    flat = movement.reshape(movement.stack(parts, 2), (n, channels * len(parts), count[0] * count[1]))
    return flat if x.ndim == 4 else movement.squeeze(flat, 0)


@handles("aten.col2im.default")
def col2im(c: Call) -> Tensor:
    """[N, C * places, windows] -> [N, C, H, W]: torch's F.fold; each place of the windows is laid out and added."""
    x, size, kernel = c.tensor(0, "self"), c.ints(1, "output_size"), c.ints(2, "kernel_size")
    spread, sides, step = c.ints(3, "dilation"), c.ints(4, "padding"), c.ints(5, "stride")
    few(kernel)
    batch = _batched(x, 2)
    full = [n + 2 * p for n, p in zip(size, sides, strict=True)]
    count = [(full[p] - spread[p] * (kernel[p] - 1) - 1) // step[p] + 1 for p in range(2)]
    n, (rows, columns) = batch.shape[0], fixed(batch.shape[1:])
    places = kernel[0] * kernel[1]
    if rows % places or columns != count[0] * count[1]:
        raise c.error(f"shape {tuple(x.shape)} is not a list of windows {kernel} of {size}")
    parts = movement.reshape(batch, (n, rows // places, *kernel, *count))
    zero = c.fusion.full((n, rows // places, *full), 0.0 if is_float(x.dtype) else 0, x.dtype)
    total: Tensor | None = None
    for a, b in product(range(kernel[0]), range(kernel[1])):
        part = movement.select(movement.select(parts, 2, a), 2, b)
        placed = laid(zero, part, (a * spread[0], b * spread[1]), step, count)
        total = placed if total is None else ops.add(total, placed)
    cut = (
        movement.pad(total, [-sides[1], -sides[1], -sides[0], -sides[0]]) if total is not None and any(sides) else total
    )
    if cut is None:
        raise Unmapped("windows without elements")
    return cut if x.ndim == 3 else movement.squeeze(cut, 0)


def laid(zero: Tensor, part: Tensor, start: Sequence[int], step: Sequence[int], count: Sequence[Size]) -> Tensor:
    """``part`` at every step-th place from ``start`` of the last axes of zeros."""
    first = zero.ndim - len(start)
    ends = [plain(a + (n - 1) * s + 1) for a, n, s in zip(start, count, step, strict=True)]
    inner = [zero]
    for p in range(len(start) - 1):
        inner.append(movement.slice(inner[-1], first + p, start[p], ends[p], step[p]))
    for p in reversed(range(len(start))):
        part = movement.slice_scatter(inner[p], part, first + p, start[p], ends[p], step[p])
    return part


# pads of other modes, and sampling ------------------------------------------------------------------------------------


@handles("aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default")
def reflection_pad(c: Call) -> Tensor:
    """Mirrored at the first and the last element, last axis first."""
    return _each_axis(c, _reflected)


@handles("aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default")
def replication_pad(c: Call) -> Tensor:
    """The first and the last element repeated, last axis first."""
    return _each_axis(c, _replicated)


def _each_axis(c: Call, pad: Callable[[Tensor, int, int, int], Tensor]) -> Tensor:
    x, pads = c.tensor(0, "self"), c.ints(1, "padding")
    for k in range(len(pads) // 2):
        dim, left, right = x.ndim - 1 - k, pads[2 * k], pads[2 * k + 1]
        cut = movement.slice(x, dim, max(-left, 0), attr(x.axes[dim].extent - max(-right, 0)))
        x = pad(cut if cut.shape != x.shape else x, dim, max(left, 0), max(right, 0))
    return ops.copy(x) if x is c.tensor(0, "self") else x


def _reflected(x: Tensor, dim: int, left: int, right: int) -> Tensor:
    n = x.axes[dim].extent
    if is_true(n <= max(left, right)):
        raise Unmapped(f"a mirror of {max(left, right)} elements beside {n}")
    if not left and not right:
        return x
    place = ops.sub(x.fusion.iota(attr(n + left + right), dtype="int64"), left)
    near = ops.minimum(place, ops.sub(attr(2 * n - 2), place)) if right else place
    near = ops.maximum(near, ops.neg(place)) if left else near
    return composite.index_select(x, dim, _clamped(near, n))


def _replicated(x: Tensor, dim: int, left: int, right: int) -> Tensor:
    n = x.axes[dim].extent
    if not is_true(n >= 1):
        raise Unmapped("no element to repeat")
    if not left and not right:
        return x
    place = ops.sub(x.fusion.iota(attr(n + left + right), dtype="int64"), left)
    return composite.index_select(x, dim, _clamped(place, n))


def _clamped(place: Tensor, n: Expr) -> Tensor:
    """Clamped to the axis, so that its bounds are proved: no index is loaded and checked."""
    return ops.minimum(ops.maximum(place, 0), attr(n - 1))


@handles(
    "aten.upsample_nearest1d.vec", "aten.upsample_nearest2d.vec", "aten.upsample_nearest3d.vec",
    "aten.upsample_nearest1d.default", "aten.upsample_nearest2d.default", "aten.upsample_nearest3d.default",
    "aten._upsample_nearest_exact1d.vec", "aten._upsample_nearest_exact2d.vec", "aten._upsample_nearest_exact3d.vec",
    "aten._upsample_nearest_exact1d.default", "aten._upsample_nearest_exact2d.default",
    "aten._upsample_nearest_exact3d.default",
)  # fmt: skip
def upsample_nearest(c: Call) -> Tensor:
    """The element nearest to each place: repeated where sizes divide, strided where they divide the other way."""
    x = c.tensor(0, "input")
    c.get(1, "output_size", None)
    wanted, have = fixed(c.meta.shape[2:]), fixed(x.shape[2:])
    rank = x.ndim - 2
    if c.node.target.endswith(".vec"):
        given = () if c.get(2, "scale_factors", None) is None else c.items(2, "scale_factors")
    else:
        given = tuple(c.get(k, f"scales_{k}", None) for k in range(2, 2 + rank))
    scales = [*given, *(None for _ in range(rank - len(given)))]
    exact = "exact" in c.node.target
    for p in range(rank):
        scale = scales[p]
        x = _nearest(x, 2 + p, have[p], wanted[p], scale if isinstance(scale, (int, float)) else None, exact)
    return ops.copy(x) if x is c.tensor(0, "input") else x


def _sources(n: int, m: int, scale: float | None, exact: bool) -> npt.NDArray[np.int64]:
    """The element that torch's CPU kernel takes for each of ``m`` places; its arithmetic is float32."""
    places = np.arange(m)
    if not exact and n == m:
        return places
    if not exact and m == 2 * n:
        return places // 2
    step = np.float32(n / m if scale is None else 1.0 / scale)
    at = places.astype(np.float32) + np.float32(0.5 if exact else 0.0)
    return np.minimum(np.floor(at * step).astype(np.int64), n - 1)


def _nearest(x: Tensor, dim: int, n: int, m: int, scale: float | None, exact: bool) -> Tensor:
    if n < 1 or m < 1:
        raise Unmapped("a sample of no element")
    sources, places = _sources(n, m, scale, exact), np.arange(m)
    if n == m and np.array_equal(sources, places):
        return x
    shape = x.shape
    if m % n == 0 and np.array_equal(sources, places // (m // n)):
        wide = movement.expand(movement.unsqueeze(x, dim + 1), (*shape[: dim + 1], m // n, *shape[dim + 1 :]))
        return movement.reshape(wide, (*shape[:dim], m, *shape[dim + 1 :]))
    first = int(sources[0])
    if n % m == 0 and np.array_equal(sources, first + places * (n // m)):
        return movement.slice(x, dim, first, first + (m - 1) * (n // m) + 1, n // m)
    step = x.fusion.full((), float(np.float32(n / m if scale is None else 1.0 / scale)), "float32")
    at = x.fusion.iota(m, dtype="float32")
    at = ops.add(at, 0.5) if exact else at
    source = ops.cast(ops.floor(ops.mul(at, step)), "int64")
    return composite.index_select(x, dim, ops.minimum(source, n - 1))
