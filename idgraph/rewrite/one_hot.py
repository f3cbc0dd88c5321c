"""A sum over a one-hot mask, folded back into a gather: ``sum(where(index == iota, x, 0), dim)`` is ``x[index]``.

Only sums that are the same for every value are folded. ``sum(one_hot * x)`` is not, in floating point: a NaN or an
infinity that the index does not name makes that sum NaN.
"""

from __future__ import annotations

from functools import partial

from idgraph.arith import as_expr
from idgraph.errors import ScheduleError, arguments
from idgraph.ir import Fixed, Fusion, Mapped, Tensor, TensorExpr, check_fusion, item_size, movement, ops
from idgraph.ir import composite as rows
from idgraph.ir.decisions import Decision, Option, Saving
from idgraph.ir.dtypes import is_float
from idgraph.ir.indexing import attr
from idgraph.ir.pointwise import same_extent
from idgraph.ir.state import rewriting
from idgraph.rewrite.gathers import place_of, rewrite

VIEWS = frozenset({"reshape", "unsqueeze", "squeeze", "expand", "cast", "copy"})


@arguments(ScheduleError, first=True, keep=rewriting)
def fold_one_hots(fusion: Fusion) -> tuple[Decision, ...]:
    """Rewrite each sum over a one-hot mask as a gather, and say so; an index out of range gives 0, as the sum does.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(64, 1000)), f.input("i", shape=(64, 1), dtype="int64")
    >>> hit = ig.eq(i, ig.reshape(f.iota(1000, dtype="int64"), 1, 1000))
    >>> t = f.output(ig.sum(ig.where(hit, x, 0.0), 1))
    >>> [(d.chosen, str(d.saved)) for d in ig.schedule.fold_one_hots(f)]
    [('gather', '0 bytes not stored, 255.74 kB not moved (0.17 us at 1.5 TB/s)')]
    >>> "sum" in [e.op for e in f.exprs], "gather" in [e.op for e in f.exprs]
    (False, True)
    """
    check_fusion(fusion, "fold_one_hots", ScheduleError)
    made: list[Decision] = []
    for e in [e for e in fusion.exprs if e.op == "sum" and e.is_reduction]:
        found = _mask(e)
        if found is None:
            continue
        x, index, dim = found
        name, source = e.output.name, x.name
        saved = _saved(e, x, dim)
        line = place_of(e)
        rewrite(e, partial(_gathered, e, x, index, dim))
        made.append(
            Decision(
                "one-hot sum", name, source, "one", line, "gather", "of each row one element is not 0, at the index",
                (Option("sum", _size(x), "looks at all elements of the axis"),), saved=saved,
                proof=(
                    "where index == c for a c of the axis, the sum adds x at c and zeros",
                    "where it is out of range, every term is 0: the gather is then 0 by a selection",
                ),
            )
        )  # fmt: skip
    return tuple(made)


def _mask(e: TensorExpr) -> tuple[Tensor, Tensor, int] | None:
    """(what is selected, the index, its axis) where ``e`` sums ``where(index == iota, x, 0)`` over one axis."""
    t = e.inputs[0]
    reduced = [p for p, r in enumerate(e.reads[0]) if isinstance(r, Mapped) and r.domain.kind == "reduction"]
    made = t.definition
    while made is not None and made.op in ("copy", "cast") and made.inputs[0].dtype == t.dtype:
        t = made.inputs[0]
        made = t.definition
    if len(reduced) != 1 or made is None or made.op != "where" or len(made.args) != 3:
        return None
    hit, x, zero = made.args
    if not isinstance(hit, Tensor) or not isinstance(x, Tensor) or not _is_zero(zero) or x.dtype != e.output.dtype:
        return None
    dim = reduced[0]
    named = hit.definition
    if named is None or named.op != "eq" or "within" in named.attrs or x.ndim != t.ndim or hit.ndim != t.ndim:
        return None  # "within": one that a gather was made of, because that costs less
    if not all(same_extent(a.extent, b.extent) for a, b in zip(x.axes, t.axes)):
        return None
    a, b = (named.args[0], named.args[1])
    for numbers, index in ((a, b), (b, a)):
        if not isinstance(numbers, Tensor) or not isinstance(index, Tensor) or not _counts(numbers, dim, t):
            continue
        one = _one(index, dim)
        if one is not None and one.ndim == t.ndim and not is_float(one.dtype):
            return x, one, dim
    return None


def _is_zero(value: object) -> bool:
    if isinstance(value, Tensor):
        e = value.definition
        while e is not None and e.op in ("expand", "reshape", "unsqueeze", "copy"):
            e = e.inputs[0].definition
        return (
            e is not None and e.op == "full" and e.attrs.get("value", e.args[0] if e.args else None) in (0, 0.0, False)
        )
    return isinstance(value, (int, float)) and value == 0


def _one(index: Tensor, dim: int) -> Tensor | None:
    """The tensor that holds one index for the whole axis: itself, or what it was expanded from."""
    while True:
        if index.ndim > dim and (index.axes[dim].extent == as_expr(1) or index.axes[dim].is_broadcast):
            return index
        e = index.definition
        if e is None or e.op != "expand" or e.inputs[0].ndim != index.ndim:
            return None
        index = e.inputs[0]


def _counts(numbers: Tensor, dim: int, t: Tensor) -> bool:
    """Whether the element at coordinate c of axis ``dim`` is c: an iota along that axis, as views of it."""
    axis = dim - (t.ndim - numbers.ndim)
    if axis < 0 or not same_extent(numbers.axes[axis].extent, t.axes[dim].extent):
        return False
    e = numbers.definition
    while e is not None and e.op in VIEWS:
        source = e.inputs[0]
        others = [d for p, d in enumerate(numbers.axes) if p != axis]
        if e.op != "expand" and any(d.extent != as_expr(1) and not d.is_broadcast for d in others):
            return False
        numbers, before = source, e
        e = source.definition
        if before.op in ("copy", "cast"):
            continue
        at = [p for p, d in enumerate(source.axes) if d.extent != as_expr(1) and not d.is_broadcast]
        if len(at) > 1 or (not at and t.axes[dim].extent != as_expr(1)):
            return False
        axis = at[0] if at else 0
    if e is None or e.op != "iota" or numbers.ndim != 1:
        return False
    return e.attrs.get("start", 0) == 0 and e.attrs.get("step", 1) == 1


def _gathered(e: TensorExpr, x: Tensor, index: Tensor, dim: int) -> Tensor:
    n = attr(x.axes[dim].extent)
    shape = [1 if p == dim else attr(d.extent) for p, d in enumerate(x.axes)]
    wide = ops.cast(index, "int64") if index.dtype != "int64" else index
    wide = movement.expand(wide, shape) if any(
        not same_extent(d.extent, as_expr(k)) for d, k in zip(wide.axes, shape)
    ) else wide  # fmt: skip
    inside = ops.logical_and(ops.ge(wide, 0), ops.lt(wide, n))
    safe = ops.minimum(ops.maximum(wide, 0), n - 1)
    got = ops.where(inside, rows.gather(x, dim, safe), 0.0 if is_float(x.dtype) else 0)
    keep = any(isinstance(r, Fixed) for r in e.reads[0]) or e.output.ndim == x.ndim
    return got if keep else movement.squeeze(got, dim)


def _size(x: Tensor) -> int | None:
    total = 1
    for d in x.axes:
        if not d.extent.is_const:
            return None
        total *= int(d.extent)
    return total


def _saved(e: TensorExpr, x: Tensor, dim: int) -> Saving | None:
    whole, n = _size(x), x.axes[dim].extent
    if whole is None or not n.is_const or int(n) == 0:
        return None
    return Saving(0, (whole - whole // int(n)) * item_size(x.dtype))
