"""Broadcasts before operations on one element: a norm's weights are cast where they are multiplied.

``unsqueeze(cast(w))`` lies on the loops of ``w`` until it is broadcast, so that no row's nest could hold the cast; as
``cast(unsqueeze(w))`` it is computed in the row's own loops, and ``w`` is all that is read.

Reshapes moved behind pointwise operations, so that readers of a row's results stay over the row's own axes.

``reshape(a) * w`` is computed over axes that the rows of ``a`` do not have, a kernel of its own; as
``reshape(a * w')`` the product is part of the row's pass, and the reshape says where it is written. ``w'`` is a view of
``w``, broadcast and reshaped the other way. Where ``w`` is computed from a reduction too, over other rows, the product
is part of the pass of either, and no exchange makes fewer kernels: it stays.

What ends it: pointwise operations are visited once each, producers first, and an exchange replaces one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

from idgraph.arith import is_true
from idgraph.ir import Fixed, Fusion, Mapped, Tensor, TensorExpr
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr
from idgraph.ir.op_builders import REDUCTIONS, aligned_reads, int_tuple, same_extent
from idgraph.ir.op_table import POINTWISE, apply
from idgraph.ir.walks import operands, reach

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class RewriteRule(Generic[M]):
    """Operations ``ops`` of which ``match`` finds what it looks for are computed as ``build`` makes them of that."""

    ops: Collection[str]
    match: Callable[[TensorExpr], M | None]
    build: Callable[[TensorExpr, M], Tensor]


def rewrite(fusion: Fusion, rule: RewriteRule[M]) -> bool:
    """Apply a rule to the operations that there are, in their order; whether any matched. What a rewrite adds is not
    looked at; what it takes away stands in front of it.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(-(-f.input("x", shape=(8,))))
    >>> inner = lambda e: produced_by(e.inputs[0], ("neg",))
    >>> rule = RewriteRule(("neg",), inner, lambda e, made: ops.copy(made.inputs[0]))
    >>> rewrite(f, rule), [e.op for e in f.exprs], rewrite(f, rule)
    (True, ['copy'], False)
    """
    applied = False
    for e in fusion.exprs:
        if e.op in rule.ops and (found := rule.match(e)) is not None:
            replace_operation(e, partial(rule.build, e, found))
            applied = True
    return applied


def produced_by(t: Tensor, ops: Collection[str]) -> TensorExpr | None:
    """The operation that computes ``t``, where it is one of ``ops``."""
    return t.definition if t.definition is not None and t.definition.op in ops else None


def replace_operation(e: TensorExpr, build: Callable[[], Tensor]) -> None:
    """Let the output of ``e`` be computed as ``build`` says; operations that only served ``e`` are removed."""
    fusion, t = e.output.fusion, e.output
    made, exprs = fusion.trying(lambda: materialize_shape(build(), t), e.source_line)
    kept = _needed(made, exprs)
    before = e.inputs
    spare = [x for x in reversed(exprs) if x not in kept]
    if spare:
        fusion.remove(spare)
    fusion.adopt(t, made, [x for x in exprs if x in kept])
    gone = _idle(before)
    if gone:
        fusion.remove(gone)


def _idle(tensors: Sequence[Tensor]) -> list[TensorExpr]:
    """The operations behind ``tensors`` that serve nobody, readers first: what others read is not walked."""
    gone: dict[TensorExpr, None] = {}
    open_ = list(tensors)
    while open_:
        t = open_.pop()
        e = t.definition
        if e is None or e in gone:
            continue
        if any(o.fusion.is_output(o) or any(u not in gone for u in o.uses) for o in e.outputs):
            continue
        gone[e] = None
        open_ += e.inputs
    return list(gone)


def _needed(made: Tensor, exprs: Sequence[TensorExpr]) -> set[TensorExpr]:
    wanted = {made}
    kept: set[TensorExpr] = set()
    for x in reversed(exprs):
        if x.output in wanted:
            kept.add(x)
            wanted.update(x.inputs)
    return kept


def materialize_shape(made: Tensor, t: Tensor) -> Tensor:
    """``made`` in the shape and type of ``t``, as a tensor that nobody reads yet."""
    if made.dtype != t.dtype:
        made = ops.cast(made, t.dtype)
    if not all(same_extent(a.extent, b.extent) for a, b in zip(made.axes, t.axes, strict=True)):
        made = movement.expand(made, list(t.shape))
    return ops.copy(made) if made.uses or made.definition is None else made


_OF_NUMBERS: Final = ("unsqueeze", "reshape")  # views of one element that the program itself may have
SCALARS: Final = 8  # operations on one element that each reader may do again


def broadcasts_first(fusion: Fusion) -> None:
    """Exchange broadcasts of new axes with the cheap operations before them; tensors needed no more are removed.

    What ends it: an exchange moves one broadcast towards the inputs, past one operation of one operand.
    """
    while True:
        for t in fusion.tensors:
            if _is_cheap(t):
                wide_views(t)
        if not rewrite(fusion, _view_before(("unsqueeze",), _is_cheap)):
            return


def numbers_into_readers(fusion: Fusion) -> None:
    """Compute what a few operations make of single elements in the loops of its readers: a tensor without axes has no
    loop that a reader's nest could hold it by.

    That of reductions is left: their kernel ends with it.
    """
    for t in fusion.tensors:
        if _is_of_numbers(t):
            wide_views(t)
    while rewrite(fusion, _view_before(_OF_NUMBERS, _is_of_numbers)):
        pass


def _view_before(views: Collection[str], where: Callable[[Tensor], bool]) -> RewriteRule[Tensor]:
    """Views of tensors ``where`` this holds, exchanged with what computes them."""
    return RewriteRule(views, lambda e: e.inputs[0] if where(e.inputs[0]) else None, _exchanged)


def _is_of_numbers(t: Tensor) -> bool:
    """True of one element that at most `SCALARS` operations, each on one element, compute of such inputs."""
    if t.definition is None or t.ndim:
        return False
    seen = reach([t], lambda u: operands(u) if produced_by(u, POINTWISE) else (), 4 * SCALARS)
    made = [u for u in seen if u.definition is not None]
    of_numbers = all(produced_by(u, POINTWISE) if u.definition is not None else not u.ndim for u in seen)
    return of_numbers and len(made) <= SCALARS


def wide_views(t: Tensor) -> list[Tensor]:
    """Views of ``t`` with as many axes as its readers have, where those are more; these read the views then."""
    fusion, made = t.fusion, list[Tensor]()
    missing: dict[int, dict[TensorExpr, None]] = {}
    for use in t.uses:
        if (use.op in POINTWISE or use.op == "expand") and use.output.ndim > t.ndim:
            missing.setdefault(use.output.ndim - t.ndim, {})[use] = None
    for count, uses in missing.items():
        with fusion.at_line(next(iter(uses)).source_line):
            view = apply(fusion, "unsqueeze", (t,), {"dims": tuple(range(count))}, None)
        for use in sorted(uses, key=fusion.exprs.index, reverse=True):
            fusion.replace_operand(use, t, view)
            rows = zip(use.inputs, use.reads, strict=True)
            use.reads = tuple(aligned_reads(view, use.output.root) if u is view else row for u, row in rows)
        made.append(view)
    return made


def _is_cheap(t: Tensor) -> bool:
    """True of what at most `SCALARS` operations, each on one element, compute of inputs of its own axes, and that is
    not asked for itself: computing it again costs less than a kernel of its own and a load."""
    if t.definition is None or t.definition.op == "unsqueeze" or t.fusion.is_output(t) or not t.ndim:
        return False
    seen: set[Tensor] = set()
    work = [t]
    while work:
        u = work.pop()
        e = u.definition
        if u in seen or (u is not t and (e is None or e.op == "unsqueeze" or not e.inputs)):
            continue
        seen.add(u)
        if e is None or e.op not in POINTWISE or not e.inputs or len(seen) > SCALARS or u.domain.exprs:
            return False
        reads = [r for row in e.reads for r in row if not (isinstance(r, Fixed) and r.why == "broadcast")]
        if not all(isinstance(r, Mapped) for r in reads) or any(x.ndim < t.ndim for x in e.inputs):
            return False
        work += e.inputs
    return True


def _exchanged(e: TensorExpr, t: Tensor) -> Tensor:
    """The view ``e`` of what computes ``t``, as that of views."""
    before = t.definition
    assert before is not None
    moved = {x: apply(t.fusion, e.op, (x,), dict(e.attrs), None) for x in dict.fromkeys(before.inputs)}
    args = tuple(moved[a] if isinstance(a, Tensor) else a for a in before.args)
    return apply(t.fusion, before.op, args, dict(before.attrs), None)


def join_views(fusion: Fusion) -> None:
    """One unsqueeze for several in a row: loops that merge all of their axes run over axes that their operand lacks."""
    for t in fusion.tensors:
        if produced_by(t, ("unsqueeze",)):
            wide_views(t)
    rewrite(fusion, RewriteRule(("unsqueeze",), lambda e: produced_by(e.inputs[0], ("unsqueeze",)), _unsqueezed_once))


def _unsqueezed_once(e: TensorExpr, inner: TensorExpr) -> Tensor:
    outer = int_tuple(e.attrs, "dims")
    places = [p for p in range(e.output.ndim) if p not in outer]  # where the view's axes are
    dims = tuple(sorted((*outer, *(places[p] for p in int_tuple(inner.attrs, "dims")))))
    return apply(e.output.fusion, "unsqueeze", inner.inputs, {"dims": dims})


def join_reshapes(fusion: Fusion) -> None:
    """A reshape of a reshape reads what the first one does: loops are then one step away from those before. So does a
    copy of one, which is a reshape."""
    rewrite(fusion, RewriteRule(("reshape", "copy"), _reshaped_before, _reshaped_once))


def _reshaped_before(e: TensorExpr) -> TensorExpr | None:
    inner = produced_by(e.inputs[0], ("reshape",))
    stays = e.op == "copy" and (e.inputs[0].fusion.is_output(e.inputs[0]) or e.output.allocation != e.output.logical)
    return None if stays else inner


def _reshaped_once(e: TensorExpr, inner: TensorExpr) -> Tensor:
    return apply(e.output.fusion, "reshape", inner.inputs, {"shape": tuple(attr(d.extent) for d in e.output.axes)})


NEAR: Final = 64  # tensors looked at above a reshape


def sink_reshapes_below_pointwise(fusion: Fusion) -> None:
    """Exchange reshapes of tensors computed from reductions with the pointwise operations behind them."""
    rewrite(fusion, RewriteRule(POINTWISE, _sinkable, _sunk))


def drop_single_axes(fusion: Fusion) -> None:
    """Axes of one element are not reduced: they are dropped, or stay as they are.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(ig.sum(f.input("x", shape=(1, 6, 8)), (0, 2)))
    >>> drop_single_axes(f)
    >>> [(e.op, e.attrs["dims"]) for e in f.exprs]
    [('sum', (2,)), ('squeeze', (0,))]
    """
    rewrite(fusion, RewriteRule(REDUCTIONS, _single_axes, _over_others))


def _single_axes(e: TensorExpr) -> tuple[int, ...] | None:
    """The reduced axes of one element, where there are others."""
    x, dims = e.inputs[0], int_tuple(e.attrs, "dims")
    single = tuple(sorted(d % x.ndim for d in dims if x.axes[d].extent == 1))
    return single if e.is_reduction and 0 < len(single) < len(dims) else None


def _over_others(e: TensorExpr, single: tuple[int, ...]) -> Tensor:
    x = e.inputs[0]
    dims = tuple(d for d in sorted(d % x.ndim for d in int_tuple(e.attrs, "dims")) if d not in single)
    made = apply(x.fusion, e.op, (x,), {**e.attrs, "dims": dims}, None)
    if e.attrs.get("keepdim", False):
        return made
    return movement.squeeze(made, [d - sum(r < d for r in dims) for d in single])


def _sinkable(e: TensorExpr) -> Tensor | None:
    """The operand of a pointwise operation that is a reshape of a tensor computed from a reduction, and the only one
    that is computed from a reduction: another of those would be behind a reshape instead."""
    if e.op not in POINTWISE:
        return None
    for m in e.inputs:
        made = produced_by(m, ("reshape",))
        if made is None or m.fusion.is_output(m) or any(use.op not in POINTWISE for use in m.uses):
            continue
        a = made.inputs[0]
        if _same_shape(m, e.output) and _after_reduction(a):
            others = [x for x in e.inputs if x is not m and _of_shape(x, a) is None]
            return None if any(x.dtype == "bool" or _after_reduction(x) for x in others) else m
    return None


def _of_shape(x: Tensor, a: Tensor) -> Tensor | None:
    """The operand of a reshape ``x``, where that has the shape of ``a``."""
    e = produced_by(x, ("reshape",))
    return e.inputs[0] if e is not None and _same_shape(e.inputs[0], a) else None


def _same_shape(a: Tensor, b: Tensor) -> bool:
    return a.ndim == b.ndim and all(is_true(p.extent.eq(q.extent)) for p, q in zip(a.axes, b.axes, strict=True))


def _after_reduction(t: Tensor) -> bool:
    """Whether ``t`` is computed from a reduction by pointwise operations."""
    through = {*POINTWISE, "unsqueeze", "expand"}
    near = reach([t], lambda u: operands(u) if produced_by(u, through) else (), NEAR)
    return any((e := produced_by(u, REDUCTIONS)) is not None and e.is_reduction for u in near)


def _sunk(e: TensorExpr, m: Tensor) -> Tensor:
    (a,) = operands(m)
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
