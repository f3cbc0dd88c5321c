"""Reshapes moved behind pointwise operations, so that readers of a row's results stay over the row's own axes.

``reshape(a) * w`` is computed over axes that the rows of ``a`` do not have, a kernel of its own; as
``reshape(a * w')`` the product is part of the row's pass, and the reshape says where it is written. ``w'`` is a view of
``w``, broadcast and reshaped the other way. Where ``w`` is computed from a reduction too, over other rows, the product
is part of the pass of either, and no exchange makes fewer kernels: it stays.

What ends it: pointwise operations are visited once each, producers first, and an exchange replaces one by one.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from idgraph.arith import is_true
from idgraph.ir import Fusion, Tensor, TensorExpr, movement
from idgraph.ir.indexing import attr
from idgraph.ir.reduce import REDUCTIONS, int_tuple
from idgraph.ir.registry import apply
from idgraph.rewrite.read_at import POINTWISE
from idgraph.rewrite.replacing import replace_operation

NEAR: Final = 64  # tensors looked at above a reshape


def sink_reshapes_below_pointwise(fusion: Fusion) -> None:
    """Exchange reshapes of tensors computed from reductions with the pointwise operations behind them.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, w = f.input("x", shape=(4, 6, 8)), f.input("w", shape=(1, 6, 1))
    >>> rows = ig.reshape(x, 4, 2, 24)
    >>> t = f.output(ig.reshape(rows - ig.mean(rows, 2, keepdim=True), 4, 6, 8) * w)
    >>> sink_reshapes(f)
    >>> [e.op for e in f.exprs][-4:]
    ['expand', 'reshape', 'mul', 'reshape']
    """
    for e in fusion.exprs:
        if e.output.definition is e and _sinkable(e) is not None:
            replace_operation(e, partial(_sunk, e))


def drop_single_axes(fusion: Fusion) -> None:
    """Axes of one element are not reduced: they are dropped, or stay as they are.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(ig.sum(f.input("x", shape=(1, 6, 8)), (0, 2)))
    >>> drop_single_axes(f)
    >>> [(e.op, e.attrs["dims"]) for e in f.exprs]
    [('sum', (2,)), ('squeeze', (0,))]
    """
    for e in fusion.exprs:
        if e.op not in REDUCTIONS or not e.is_reduction:
            continue
        x = e.inputs[0]
        dims = sorted(d % x.ndim for d in int_tuple(e.attrs, "dims"))
        single = [d for d in dims if x.axes[d].extent == 1]
        if single and len(single) < len(dims):
            replace_operation(e, partial(_over, e, tuple(d for d in dims if d not in single), tuple(single)))


def _over(e: TensorExpr, dims: tuple[int, ...], single: tuple[int, ...]) -> Tensor:
    x, kept = e.inputs[0], bool(e.attrs.get("keepdim", False))
    made = apply(x.fusion, e.op, (x,), {**e.attrs, "dims": dims}, None)
    if kept:
        return made
    return movement.squeeze(made, [d - sum(r < d for r in dims) for d in single])


def _sinkable(e: TensorExpr) -> Tensor | None:
    """The operand of a pointwise operation that is a reshape of a tensor computed from a reduction, and the only one
    that is computed from a reduction: another of those would be behind a reshape instead."""
    if e.op not in POINTWISE or any(x.dtype == "bool" for x in e.inputs):
        return None
    for m in e.inputs:
        made = m.definition
        if made is None or made.op != "reshape" or m.fusion.is_output(m):
            continue
        if any(use.op not in POINTWISE for use in m.uses):
            continue
        if _alike(m, e.output) and _after_reduction(made.inputs[0]):
            a = made.inputs[0]
            others = [x for x in e.inputs if x is not m and _of_shape(x, a) is None]
            return None if any(_after_reduction(x) for x in others) else m
    return None


def _of_shape(x: Tensor, a: Tensor) -> Tensor | None:
    """The operand of a reshape ``x``, where that has the shape of ``a``."""
    e = x.definition
    return e.inputs[0] if e is not None and e.op == "reshape" and _alike(e.inputs[0], a) else None


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.ndim == b.ndim and all(is_true(p.extent.eq(q.extent)) for p, q in zip(a.axes, b.axes, strict=True))


def _after_reduction(t: Tensor) -> bool:
    """Whether ``t`` is computed from a reduction by pointwise operations."""
    seen, work = {t}, [t]
    while work and len(seen) < NEAR:
        e = work.pop().definition
        if e is None:
            continue
        if e.op in REDUCTIONS and e.is_reduction:
            return True
        if e.op in POINTWISE or e.op in ("unsqueeze", "expand"):
            new = [x for x in e.inputs if x not in seen]
            seen.update(new)
            work += new
    return False


def _sunk(e: TensorExpr) -> Tensor:
    m = _sinkable(e)
    made = m.definition if m is not None else None
    if m is None or made is None:
        raise AssertionError("found before")
    a = made.inputs[0]
    wide, narrow = [attr(d.extent) for d in m.axes], [attr(d.extent) for d in a.axes]

    def moved(x: Tensor) -> Tensor:
        if x is m:
            return a
        before = _of_shape(x, a)
        if before is not None:
            return before
        broad = movement.expand(x, wide) if x.ndim < m.ndim or any(d.is_broadcast for d in x.axes) else x
        return movement.reshape(broad, *narrow)

    args = tuple(moved(x) if isinstance(x, Tensor) else x for x in e.args)
    return movement.reshape(apply(a.fusion, e.op, args, dict(e.attrs), None), *wide)
