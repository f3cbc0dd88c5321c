"""An operation computed another way: its tensor keeps its name and place, what served it alone goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from idgraph.ir import Tensor, TensorExpr, movement, ops
from idgraph.ir.pointwise import same_extent


def replace_operation(e: TensorExpr, build: Callable[[], Tensor]) -> None:
    """Let the output of ``e`` be computed as ``build`` says; operations that served ``e`` alone are removed."""
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
