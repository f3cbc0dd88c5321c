"""Handlers of ATen losses over classes: the negative log-likelihood and its gradient, as one gathered element a row."""

from __future__ import annotations

from dataclasses import dataclass

from idgraph.frontends.aten.pointwise import narrowed, wide_of
from idgraph.frontends.importer import Call, Parts, Unmapped, handles
from idgraph.ir import Tensor, composite, is_float, is_integer, movement, ops
from idgraph.ir.indexing import attr

_NONE, _MEAN, _SUM = 0, 1, 2  # torch's numbers of reductions


@dataclass(frozen=True, slots=True)
class _Rows:
    """Of each row, the class axis ``dim`` kept with extent 1: whether it counts, its class, the weight of that."""

    dim: int
    valid: Tensor
    own: Tensor
    weight: Tensor


def _rows(c: Call, x: Tensor, target: Tensor, weight: Tensor | None, ignored: int) -> _Rows:
    """Raises `Unmapped` for what torch's kernel refuses or the IR cannot express."""
    if not is_float(x.dtype) or not is_integer(target.dtype) or not x.ndim:
        raise Unmapped(f"a likelihood of {x.dtype} with {x.ndim} axes at targets of {target.dtype}")
    dim = 0 if x.ndim == 1 else 1
    if target.ndim != x.ndim - 1:
        raise c.error(f"target of shape {target.shape} for log-probabilities of shape {x.shape}")
    row = movement.unsqueeze(target, dim)
    valid = ops.ne(row, ignored)
    own = ops.where(valid, row, 0)
    kind = wide_of(x).dtype
    if weight is None:
        return _Rows(dim, valid, own, ops.cast(valid, kind))
    flat = composite.index_select(weight, 0, movement.reshape(own, -1))
    share = wide_of(movement.reshape(flat, [attr(d.extent) for d in own.axes]))
    return _Rows(dim, valid, own, ops.where(valid, share, 0.0))


@handles("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
def nll_loss(c: Call) -> Parts:
    """(the loss, the sum of the weights of the rows that count)."""
    x, target, weight = c.tensor(0, "self"), c.tensor(1, "target"), c.tensor_or_none(2, "weight")
    reduction, ignored = c.int(3, "reduction"), c.int(4, "ignore_index")
    r = _rows(c, x, target, weight, ignored)
    picked = wide_of(composite.gather(x, r.dim, r.own))
    # Not by multiplying with 0: an ignored row may hold inf or NaN.
    terms = movement.squeeze(ops.where(r.valid, ops.neg(ops.mul(picked, r.weight)), 0.0), r.dim)
    if reduction == _NONE:
        return narrowed(terms, x), c.fusion.full((), 0.0, x.dtype)
    weights = movement.squeeze(r.weight, r.dim)
    total = composite.sum(weights) if weights.ndim else weights
    loss = composite.sum(terms) if terms.ndim else terms
    if reduction == _MEAN:
        loss = ops.div(loss, total)
    elif reduction != _SUM:
        raise c.error(f"reduction {reduction} is not one of 0, 1, 2")
    return narrowed(loss, x), narrowed(total, x)


@handles("aten.nll_loss_backward.default", "aten.nll_loss2d_backward.default")
def nll_loss_backward(c: Call) -> Tensor:
    """-weight at each row's own class, 0 elsewhere, times the gradient of the loss."""
    grad, x, target = c.tensor(0, "grad_output"), c.tensor(1, "self"), c.tensor(2, "target")
    weight = c.tensor_or_none(3, "weight")
    reduction, ignored = c.int(4, "reduction"), c.int(5, "ignore_index")
    total = c.tensor(6, "total_weight")
    r = _rows(c, x, target, weight, ignored)
    g = wide_of(grad)
    if reduction == _MEAN:
        g = ops.div(g, wide_of(total))
    g = movement.unsqueeze(g, r.dim) if reduction == _NONE else movement.reshape(g, [1] * x.ndim)
    # As above: a mean over no rows divides by 0, and rows that do not count have no gradient.
    slope = ops.where(r.valid, ops.neg(ops.mul(r.weight, g)), 0.0)
    number = c.fusion.iota(attr(x.axes[r.dim].extent))
    others = [p for p in range(x.ndim) if p != r.dim]
    hit = ops.eq(movement.unsqueeze(number, others) if others else number, r.own)
    return narrowed(ops.where(hit, slope, 0.0), x)
