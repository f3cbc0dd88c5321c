"""Handlers of ATen pools, forward and backward, with windows that may begin inside and end outside (ceil_mode).

Each place of a window is one strided slice of the padded tensor, so that every coordinate stays affine.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

from idgraph.arith import as_expr, is_true
from idgraph.frontends.aten.pointwise import narrowed, wide_of
from idgraph.frontends.aten.windows import few, laid, per_axis, plain, windows
from idgraph.frontends.dynamic_shapes import Size
from idgraph.frontends.graph import same_size
from idgraph.frontends.importer import Call, Parts, Unmapped, fixed, fixed_extent, handles
from idgraph.ir import Fusion, Scalar, Tensor, is_float
from idgraph.ir import ops_index as indexed
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as composite
from idgraph.ir import ops_view as movement

_LOWEST = float("-inf")


@dataclass(frozen=True, slots=True)
class Window:
    """Windows over the last axes: their sizes, distances and dilations, and the elements of padding on each side.

    ``extra`` elements behind the padding belong to windows that end outside; no window begins there.
    """

    kernel: tuple[int, ...]
    step: tuple[int, ...]
    sides: tuple[int, ...]
    spread: tuple[int, ...]
    extra: tuple[int, ...]
    count: tuple[Size, ...]

    @property
    def rank(self) -> int:
        """The number of axes that windows have."""
        return len(self.kernel)

    def padded(self, x: Tensor, value: Scalar, beyond: Scalar | None = None) -> Tensor:
        """x with ``value`` in the padding and ``beyond`` (the same unless given) behind it."""
        sides = [n for side in reversed(self.sides) for n in (side, side)]
        wide = movement.pad(x, sides, value) if any(sides) else x
        behind = [n for more in reversed(self.extra) for n in (0, more)]
        return movement.pad(wide, behind, value if beyond is None else beyond) if any(behind) else wide

    def parts(self, x: Tensor) -> list[Tensor]:
        """For each place in a window the elements of a padded tensor that all windows have there."""
        made, count = windows(x, self.kernel, self.step, self.spread)
        if not all(map(same_size, count, self.count)):
            raise Unmapped(f"windows {self.kernel}, {self.step} apart: {count} of them, not {self.count}")
        return made

    def begin(self, fusion: Fusion, strides: Sequence[Size]) -> Tensor:
        """[window]: the sum over axes of the coordinate where it begins (below 0 in the padding), times the stride."""
        axes = [
            fusion.iota(n, -p * s, k * s) if isinstance(s, int) else ops.mul(fusion.iota(n, -p, k), s)
            for n, p, k, s in zip(self.count, self.sides, self.step, strides, strict=True)
        ]
        return reduce(ops.add, map(self._along, range(self.rank), axes))

    def first(self, fusion: Fusion, strides: Sequence[Size]) -> Tensor:
        """[window]: the sum over axes of its first place behind the padding in front, times the stride."""
        axes = [
            ops.mul(ops.floor_divide(ops.maximum(fusion.iota(n, p + d - 1, -k), 0), d), s)
            for n, p, d, k, s in zip(self.count, self.sides, self.spread, self.step, strides, strict=True)
        ]
        return reduce(ops.add, map(self._along, range(self.rank), axes))

    def places(self, fusion: Fusion, plane: Sequence[Size], padding: bool) -> Tensor:
        """[window]: how many of its places lie in the plane, or with ``padding`` also those in the padding."""
        axes: list[Tensor] = []
        for n, m, p, k, s in zip(plane, self.count, self.sides, self.kernel, self.step, strict=True):
            first, end = fusion.iota(m, -p, s), ops.minimum(fusion.iota(m, k - p, s), plain(n + p if padding else n))
            axes.append(ops.sub(end, first if padding or not p else ops.maximum(first, 0)))
        return reduce(ops.mul, map(self._along, range(self.rank), axes))

    def _along(self, axis: int, line: Tensor) -> Tensor:
        return movement.reshape(line, [n if p == axis else 1 for p, n in enumerate(self.count)])

    def offsets(self, strides: Sequence[Size]) -> list[Size]:
        """Of each place in a window, how far it is from the first where a step along an axis is its stride."""
        return [plain(sum(map(operator.mul, place, strides))) for place in product(*map(range, self.kernel))]


def _window(c: Call, plane: Sequence[Size], at: Sequence[int], ceil: bool) -> Window:
    """The windows of arguments kernel_size, stride, padding, dilation at positions ``at`` (-1: not an argument)."""
    rank = len(plane)
    kernel = per_axis(c.ints(at[0], "kernel_size"), rank, 1)
    step = per_axis(c.ints(at[1], "stride", ()), rank, 0)
    step = step if any(step) else kernel
    sides = per_axis(c.ints(at[2], "padding", 0), rank, 0)
    spread = per_axis(c.ints(at[3], "dilation", 1), rank, 1)
    few(kernel)
    if min(*kernel, *step, *spread) < 1 or min(sides) < 0:
        raise c.error(f"windows {kernel}, {step} apart, with padding {sides}")
    count: list[Size] = []
    extra: list[int] = []
    for n, k, s, p, d in zip(plane, kernel, step, sides, spread, strict=True):
        room = n + 2 * p - d * (k - 1) - 1
        if not isinstance(n, int) or not isinstance(room, int):
            if ceil or is_true(as_expr(room) < 0):
                raise Unmapped(
                    f"windows {tuple(kernel)} that overlap or end outside of the dynamic shape {tuple(plane)}"
                )
            count.append(plain(room // s + 1))
            extra.append(0)
            continue
        found = (-(-room // s) if ceil else room // s) + 1
        if ceil and (found - 1) * s >= n + p:  # no window begins in the padding behind
            found -= 1
        if found < 1:
            raise Unmapped(f"no window {tuple(kernel)} in shape {tuple(plane)}")
        count.append(found)
        extra.append(max((found - 1) * s + d * (k - 1) + 1 - n - 2 * p, 0))
    return Window(tuple(kernel), tuple(step), tuple(sides), tuple(spread), tuple(extra), tuple(count))


def _plane(x: Tensor, rank: int) -> tuple[Size, ...]:
    return x.shape[x.ndim - rank :]


def _plane_size(plane: Sequence[Size]) -> Size:
    return plain(math.prod(plane))


# means ----------------------------------------------------------------------------------------------------------------


def _window_divisor(c: Call, w: Window, plane: Sequence[Size], dtype: str, at: int) -> Tensor | float:
    """The divisor of the sum of each window: one number, or a tensor with one for each window."""
    whole, divisor = c.flag(at, "count_include_pad", True), c.get(at + 1, "divisor_override", None)
    if isinstance(divisor, int):
        return float(divisor)
    if not any(w.extra) and (whole or not any(w.sides)):
        return float(math.prod(w.kernel))
    return ops.cast(w.places(c.fusion, plane, whole), dtype)


@handles("aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(c: Call) -> Tensor:
    """The mean of each window; places in the padding count or not."""
    x, rank = c.tensor(0, "self"), 3 if "3d" in c.node.target else 2
    if not is_float(x.dtype):
        raise Unmapped(f"a mean of {x.dtype}")
    w = _window(c, _plane(x, rank), (1, 2, 3, -1), c.flag(4, "ceil_mode"))
    wide = wide_of(x)
    total = reduce(ops.add, w.parts(w.padded(wide, 0.0)))
    return narrowed(ops.div(total, _window_divisor(c, w, _plane(x, rank), wide.dtype, 5)), x)


@handles("aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default")
def avg_pool_backward(c: Call) -> Tensor:
    """The gradient of each window's mean, laid out at every place of the window and added."""
    grad, x, rank = c.tensor(0, "grad_output"), c.tensor(1, "self"), 3 if "3d" in c.node.target else 2
    plane = _plane(x, rank)
    w = _window(c, plane, (2, 3, 4, -1), c.flag(5, "ceil_mode"))
    wide = wide_of(grad)
    share = ops.div(wide, _window_divisor(c, w, plane, wide.dtype, 6))
    full = [plain(n + 2 * p + e) for n, p, e in zip(plane, w.sides, w.extra, strict=True)]
    zero = c.fusion.full((*x.shape[: x.ndim - rank], *full), 0.0, wide.dtype)
    places = product(*(range(k) for k in w.kernel))
    total = reduce(ops.add, [laid(zero, share, place, w.step, w.count) for place in places])
    cut = [n for p, e in zip(reversed(w.sides), reversed(w.extra), strict=True) for n in (-p, -p - e)]
    return narrowed(movement.pad(total, cut) if any(cut) else total, grad)


# maxima ---------------------------------------------------------------------------------------------------------------


@handles("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool(c: Call) -> Parts:
    """(largest of each window, number of its element in the plane); NaN wins, of equal ones the first."""
    x, rank = c.tensor(0, "self"), 3 if "3d" in c.node.target else 2
    if not is_float(x.dtype):
        raise Unmapped(f"the largest of windows of {x.dtype}")
    plane = _plane(x, rank)
    w = _window(c, plane, (1, 2, 3, 4), c.flag(5, "ceil_mode"))
    parts = w.parts(w.padded(x, _LOWEST))

    def numbers() -> Tensor:
        strides = [_plane_size(plane[p + 1 :]) for p in range(rank)]
        far = [plain(d * n) for d, n in zip(w.spread, strides, strict=True)]
        return ops.add(w.begin(c.fusion, strides), _largest(parts, w, far, c.fusion))

    return reduce(ops.maximum, parts), numbers


def _largest(parts: Sequence[Tensor], w: Window, far: Sequence[Size], fusion: Fusion) -> Tensor:
    """Of each window the place of the first largest of ``parts``, a step along an axis being as ``far``.

    The padding is never larger than an element, so that the search begins at the first place behind it.
    """
    best, chosen = parts[0], w.first(fusion, far)
    for part, offset in list(zip(parts, w.offsets(far), strict=True))[1:]:
        better = ops.logical_or(ops.gt(part, best), ops.isnan(part))
        best, chosen = ops.where(better, part, best), ops.where(better, offset, chosen)
    return movement.expand(chosen, best.shape)


@handles(
    "aten.max_pool2d_with_indices_backward.default", "aten.max_pool3d_with_indices_backward.default",
    "aten.adaptive_max_pool2d_backward.default", "aten.adaptive_max_pool3d_backward.default",
)  # fmt: skip
def max_pool_backward(c: Call) -> Tensor:
    """The gradient of each window, added to the element that was its largest."""
    grad, x, rank = c.tensor(0, "grad_output"), c.tensor(1, "self"), 3 if "3d" in c.node.target else 2
    adaptive = "adaptive" in c.node.target
    for k, name in () if adaptive else enumerate(("kernel_size", "stride", "padding", "dilation", "ceil_mode"), 2):
        c.get(k, name, None)  # the indices say which element it was
    index = c.tensor(2 if adaptive else 7, "indices")
    shape = x.shape
    lead = shape[: x.ndim - rank]
    flat = [movement.reshape(t, (*lead, _plane_size(_plane(t, rank)))) for t in (index, grad)]
    zero = c.fusion.full((*lead, _plane_size(_plane(x, rank))), 0.0, x.dtype)
    return movement.reshape(indexed.scatter_add(zero, len(lead), *flat), shape)


@handles("prims._low_memory_max_pool_with_offsets.default")
def max_pool_offsets(c: Call) -> Parts:
    """(largest of each window, number of its place in the window)."""
    x = c.tensor(0, "self")
    kernel = c.ints(1, "kernel_size")
    if not is_float(x.dtype):
        raise Unmapped(f"the largest of windows of {x.dtype}")
    plane = _plane(x, len(kernel))
    w = _window(c, plane, (1, 2, 3, 4), c.flag(5, "ceil_mode"))
    parts = w.parts(w.padded(x, _LOWEST))

    def offsets() -> Tensor:
        far = [math.prod(w.kernel[p + 1 :]) for p in range(w.rank)]
        return ops.cast(_largest(parts, w, far, c.fusion), "int8")

    return reduce(ops.maximum, parts), offsets


@handles("prims._low_memory_max_pool_offsets_to_indices.default")
def offsets_to_indices(c: Call) -> Tensor:
    """The number in the plane of the place in a window, from the window's position."""
    offsets, kernel, plane = c.tensor(0, "self"), c.ints(1, "kernel_size"), c.ints(2, "input_size")
    step, sides, spread = c.ints(3, "stride"), c.ints(4, "padding"), c.ints(5, "dilation")
    rank, wide = len(kernel), ops.cast(offsets, "int64")
    found: Tensor | None = None
    for p in range(rank):
        place = ops.remainder(ops.floor_divide(wide, math.prod(kernel[p + 1 :])), kernel[p])
        at = offsets.ndim - rank + p
        n = fixed_extent(offsets, at)
        first = movement.reshape(
            c.fusion.iota(n, -sides[p], step[p]), [n if q == at else 1 for q in range(offsets.ndim)]
        )
        line = ops.mul(ops.add(first, ops.mul(place, spread[p])), math.prod(plane[p + 1 :]))
        found = line if found is None else ops.add(found, line)
    if found is None:
        raise Unmapped("windows of no axis")
    return found


# windows between fractions of an axis ---------------------------------------------------------------------------------


@handles("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def adaptive_max_pool(c: Call) -> Parts:
    """(largest of each of output_size windows an axis, number of its element in the plane)."""
    x, size = c.tensor(0, "self"), c.ints(1, "output_size")
    plane = fixed(_plane(x, len(size)))
    if not is_float(x.dtype) or min(*plane, *size) < 1:
        raise Unmapped(f"the largest of windows of {x.dtype} between {plane} and {size}")
    taken, inner = _fractions(x, size)
    best = composite.amax(taken, inner, True)

    def numbers() -> Tensor:
        total = math.prod(plane)
        all_places, _ = _fractions(movement.reshape(c.fusion.iota(total), plane), size)
        hit = ops.logical_or(ops.eq(taken, best), ops.isnan(taken))
        return composite.amin(ops.where(hit, all_places, total), inner)

    return movement.squeeze(best, inner), numbers


@handles("aten._adaptive_avg_pool2d.default")
def adaptive_avg_pool(c: Call) -> Tensor:
    """The mean of each of output_size windows an axis; a place past a window's end counts nothing."""
    x, size = c.tensor(0, "self"), c.ints(1, "output_size")
    plane = fixed(_plane(x, 2))
    if not is_float(x.dtype) or min(*plane, *size) < 1:
        raise Unmapped(f"means of windows of {x.dtype} between {plane} and {size}")
    taken, inner = _fractions(wide_of(x), size)
    total, each = taken, 1
    for p, (n, m) in enumerate(zip(plane, size, strict=True)):
        if n % m == 0:
            each *= n // m
            continue
        _, count = _adaptive_windows(x, n, m)
        most, behind = fixed_extent(taken, inner[p]), [1] * (2 - 2 * p)
        inside = ops.lt(movement.reshape(c.fusion.iota(most), (1, most)), count)
        total = ops.where(movement.reshape(inside, (m, most, *behind)), total, 0.0)
        total = ops.div(total, ops.cast(movement.reshape(count, (m, 1, *behind)), total.dtype))
    found = composite.sum(total, inner)
    return narrowed(found if each == 1 else ops.div(found, float(each)), x)


def _fractions(x: Tensor, size: Sequence[int]) -> tuple[Tensor, tuple[int, ...]]:
    """x with each of the last axes as (window, place in it), and the axes of places; a place past the end repeats."""
    first, plane = x.ndim - len(size), fixed(_plane(x, len(size)))
    for p in reversed(range(len(size))):
        if plane[p] % size[p]:
            row, _ = _adaptive_windows(x, plane[p], size[p])
            m, most = fixed(row.shape)
            taken = composite.index_select(x, first + p, movement.reshape(row, m * most))
        else:  # windows of one length, side by side
            m, most, taken = size[p], plane[p] // size[p], x
        shape = taken.shape
        x = movement.reshape(taken, (*shape[: first + p], m, most, *shape[first + p + 1 :]))
    return x, tuple(first + 2 * p + 1 for p in range(len(size)))


def _adaptive_windows(x: Tensor, n: int, m: int) -> tuple[Tensor, Tensor]:
    """[window, place]: the element of ``n`` there, the last one again past the end; and [window, 1]: their number."""
    most = max(-(-(i + 1) * n // m) - i * n // m for i in range(m))
    number = movement.reshape(x.fusion.iota(m), (m, 1))
    start = ops.floor_divide(ops.mul(number, n), m)
    end = ops.floor_divide(ops.add(ops.mul(number, n), n + m - 1), m)
    place = movement.reshape(x.fusion.iota(most), (1, most))
    return ops.minimum(ops.add(start, place), ops.sub(end, 1)), ops.sub(end, start)


@handles("aten._adaptive_avg_pool2d_backward.default")
def adaptive_avg_pool_backward(c: Call) -> Tensor:
    """The gradient of each window's mean, added to every element of the window."""
    grad, x = c.tensor(0, "grad_output"), c.tensor(1, "self")
    lead, plane, size = x.shape[:-2], fixed(_plane(x, 2)), fixed(_plane(grad, 2))
    if min(*plane, *size) < 1:
        raise Unmapped(f"means of windows between {plane} and {size}")
    share, k = wide_of(grad), len(lead)
    indices: list[Tensor | None] = [None] * k
    for p in (1, 0):  # [..., window, place] of one axis after the other
        row, count = _adaptive_windows(x, plane[p], size[p])
        m, most = fixed(row.shape)
        inside = ops.lt(movement.reshape(x.fusion.iota(most), (1, most)), count)
        weight = ops.where(inside, ops.reciprocal(ops.cast(count, share.dtype)), 0.0)
        rest = [1] * (share.ndim - k - p - 1)
        share = ops.mul(movement.unsqueeze(share, k + p + 1), movement.reshape(weight, (m, most, *rest)))
        indices.insert(k, movement.reshape(row, (m * most, *([1] if p == 0 else []))))
    rows, columns = (fixed_extent(t, 0) for t in indices[k:] if t is not None)
    zero = c.fusion.full((*lead, *plane), 0.0, share.dtype)
    total = indexed.index_put(zero, indices, movement.reshape(share, (*lead, rows, columns)), True)
    return narrowed(total, grad)
