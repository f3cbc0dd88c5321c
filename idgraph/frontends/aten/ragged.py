"""Handlers of rows of different length: nested tensors of layout jagged, and segment reductions by offsets.

A nested tensor is its values, one row behind the other, and its offsets: what torch.compile shows are operations on
these two. (torch/nested/_internal/ops.py)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from idgraph.arith import Expr, as_expr
from idgraph.frontends.importer import Call, Unmapped, handles
from idgraph.ir import Tensor
from idgraph.ir import ops_ragged as ragged
from idgraph.ir import ops_reduce as composite
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr
from idgraph.ir.dtypes import Scalar
from idgraph.ir.op_builders import same_extent

_SEGMENTS: Final[Mapping[str, Callable[[Tensor, int], Tensor]]] = {
    "sum": composite.sum, "mean": composite.mean, "max": composite.amax, "min": composite.amin, "prod": composite.prod,
}  # fmt: skip


def _one_offsets(c: Call) -> Tensor:
    offsets = c.tensors(1, "offsets")
    if len(offsets) != 1:
        raise Unmapped(f"{len(offsets)} ragged axes in one tensor")
    return offsets[0]


@handles("aten._jagged_to_padded_dense_forward.default")
def jagged_to_padded(c: Call) -> Tensor:
    """The rows of values side by side, ``padding_value`` behind their ends, cut or grown to ``max_lengths``."""
    x, offsets = c.tensor(0, "values"), _one_offsets(c)
    (length,) = c.sizes(2, "max_lengths")
    fill = c.number(3, "padding_value", 0.0)
    made = ragged.pad_ragged(ragged.partition(x, 0, offsets), fill)
    return _resized(made, length, fill)


@handles("aten._padded_dense_to_jagged_forward.default")
def padded_to_jagged(c: Call) -> Tensor:
    """The values of rows that lie side by side: what stands behind the ends is left out."""
    x, offsets = c.tensor(0, "dense"), _one_offsets(c)
    total = c.size_or_none(2, "total_L")
    if total is None:
        raise Unmapped("the number of values is known only when offsets are loaded")
    return ragged.combine(ragged.crop_ragged(_resized(x, total, 0.0), 0, offsets))


@handles("aten.segment_reduce.default")
def segment_reduce(c: Call) -> Tensor:
    """The sum, mean, maximum, minimum or product of each segment, which ``offsets`` name."""
    x, how, offsets = c.tensor(0, "data"), c.text(1, "reduce", ""), c.tensor_or_none(4, "offsets")
    if offsets is None or offsets.ndim != 1:
        raise Unmapped("segments by lengths or indices")
    if c.get(7, "initial", None) is not None:
        raise Unmapped("an initial value of each segment")
    if c.int(5, "axis", 0) % x.ndim or how not in _SEGMENTS:
        raise Unmapped("segments of another axis than the first")
    return _SEGMENTS[how](ragged.partition(x, 0, offsets), 1)


def _resized(x: Tensor, length: int | Expr, fill: Scalar) -> Tensor:
    """Axis 1 cut, or grown by ``fill``, to ``length`` elements."""
    wanted, n = as_expr(length), x.axes[1].extent
    if same_extent(n, wanted):
        return x
    return movement.pad(x, [*[0, 0] * (x.ndim - 2), 0, attr(wanted - n)], value=fill)
