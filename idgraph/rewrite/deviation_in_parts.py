"""Stages of a reduction, and squared deviations from a mean by parts, each from a mean of its own.

Of the deviations of all elements from their mean a first launch would need the mean: two passes over memory. The means
of parts are known while a block holds a part, and what the mean of all adds follows from the parts (Chan, Golub and
LeVeque, 1979): the sum over a part of (x - m)^2 is that of (x - r)^2 plus (r - m) (2 (s - n r) + n (r - m)), for
its sum s, its n elements and any r.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from idgraph.ir import Tensor, TensorExpr
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_view as movement
from idgraph.ir.axis_read import Attr, Mapped
from idgraph.ir.dtypes import is_float
from idgraph.ir.op_builders import ROUNDED_TO, int_tuple
from idgraph.ir.op_table import apply
from idgraph.ir.walks import operands, reach

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
    """The tensor and the mean whose squared deviations a reduction sums; None of others.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(64, 32))
    >>> y = x - ig.mean(x, (0, 1), keepdim=True)
    >>> t = f.output(ig.sum(y * y))
    >>> [(d.x.name, d.m.name) for e in f.exprs if (d := deviation_of(e))]
    [('x', 't2')]
    """
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
        attrs["dtype"] = "float64" if is_float(e.output.dtype) else e.output.dtype
        if attrs["dtype"] not in (e.output.dtype, x.dtype):
            attrs[ROUNDED_TO] = e.output.dtype
    return _made_once(x, e.op, attrs)
