"""Resizes replayed upstream: what a slice, pad or cat reads is computed in loops over its result."""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.errors import ScheduleError, arguments, user_line
from idgraph.ir import DomainExpr, Fusion, IterDomain, Mapped, Merge, Resize, Split, Tensor, TensorExpr, check_fusion
from idgraph.ir.clone import rewriting
from idgraph.ir.op_builders import same_extent


@arguments(ScheduleError, first=True, keep=rewriting)
def resize_to_inputs(fusion: Fusion, expr: TensorExpr) -> None:
    """Replay the resizes of ``expr`` (a slice, pad or cat) on every computed tensor upstream of it.

    Afterwards the loops of those tensors run over the resized axis, so they are exactly the loops of ``expr.output``.
    Upstream of a reshape they are split and merged as it does, then resized. A slice, pad or cat on the way is passed
    where its own resizes were replayed upstream before. Inputs of the fusion stay as they are. Raises `ScheduleError`
    for an operation that resizes nothing.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t1 = ig.copy(f.input("t0", shape=(64,)))
    >>> t2 = f.output(t1[32:])
    >>> ig.schedule.resize_to_inputs(f, t2.definition)
    >>> t1.loop, t1.domain.loop_exprs
    ((I4[32],), [Resize(I1[64] -> I4[32]; -32, 0)])
    >>> t1 = ig.copy(f.input("t3", shape=(4, 100)))
    >>> t2 = f.output(ig.reshape(t1, 4, 5, 20)[..., 1:10])
    >>> ig.schedule.resize_to_inputs(f, t2.definition)
    >>> [str(d.extent) for d in t1.loop]
    ['4', '5', '9']
    """
    check_fusion(fusion, "resize_to_inputs", ScheduleError)
    if not isinstance(expr, TensorExpr) or expr.output not in fusion:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ScheduleError(
            f"resize_to_inputs: {expr!r} is not an operation of fusion {fusion.name}",
            where=user_line(),
            hint="name a slice, a pad or a cat by its output: t.definition (None for an input)",
        )
    out = expr.output
    resizes = [x for x in out.domain.exprs if isinstance(x, Resize)]
    if not resizes:
        raise ScheduleError(
            f"resize_to_inputs: {expr!r} resizes no axis", where=user_line(), hint="name a slice, a pad or a cat"
        )
    for x in resizes:
        for k in range(len(expr.inputs)):
            for axis, read in zip(expr.inputs[k].axes, expr.reads[k], strict=True):
                if isinstance(read, Mapped) and read.domain is x.source:
                    _resize_upstream(expr.inputs[k], axis, x, set())


def _resize_upstream(t: Tensor, axis: IterDomain, x: Resize, seen: set[Tensor]) -> None:
    """Resize ``axis``, a loop of ``t``, like ``x`` does, and the loops of its producers that are this axis."""
    if t.definition is None or t in seen:
        return
    seen.add(t)
    if axis not in t.loop:
        raise _scheduled(t, axis)
    e, steps = t.definition, _leading(t, axis)
    t.resize(t.loop.index(axis), x.left, x.right)
    for p, row in zip(e.inputs, e.reads, strict=True):
        image: dict[IterDomain, IterDomain] = {}
        for mine, read in zip(p.axes, row, strict=True):
            if isinstance(read, Mapped) and same_extent(mine.extent, read.domain.extent):
                image.setdefault(read.domain, mine)
        if p.definition is not None and p not in seen and _replayed(p, image, steps, axis):
            _resize_upstream(p, image[axis], x, seen)


def _leading(t: Tensor, axis: IterDomain) -> list[DomainExpr]:
    """The steps of ``t``, in order, from its root to ``axis``."""
    found: list[DomainExpr] = []
    wanted = {axis}
    for step in reversed([*t.domain.exprs, *t.domain.loop_exprs]):
        if any(d in wanted for d in step.outputs):
            wanted.update(step.inputs)
            found.insert(0, step)
    return found


def _replayed(t: Tensor, image: dict[IterDomain, IterDomain], steps: Sequence[DomainExpr], wanted: IterDomain) -> bool:
    """Whether the loops of ``t`` take the steps to ``wanted``, or have taken them; ``image`` gets what they make.

    Splits and merges are made where they are missing. Where anything else is, or an axis is read at no coordinate of
    its own, the loops stay as they are.
    """
    plan: list[DomainExpr] = []
    known = set(image)
    for step in steps:
        if not all(d in known for d in step.inputs):
            if isinstance(step, Resize):
                continue  # the part of a cat that another operand fills
            return False
        alike = None if plan else _matching_step(t, [image[d] for d in step.inputs], step)
        if alike is not None:
            image.update(zip(step.outputs, alike.outputs, strict=True))
        elif isinstance(step, (Split, Merge)):
            plan.append(step)
        else:
            return False
        known.update(step.outputs)
    if wanted not in known:
        return False
    for step in plan:
        have = [image[d] for d in step.inputs]
        for d in have:
            if d not in t.loop:
                raise _scheduled(t, d)
        at = [t.loop.index(d) for d in have]
        if isinstance(step, Split):
            t.split(at[0], step.factor, inner=step.inner_split)
        else:
            t.merge(at[0], at[1])
        image.update(zip(step.outputs, t.domain.loop_exprs[-1].outputs, strict=True))
    return True


def _matching_step(t: Tensor, axes: Sequence[IterDomain], step: DomainExpr) -> DomainExpr | None:
    """The axes that the schedule of ``t`` makes of ``axes`` by a step like this one."""
    for y in t.domain.loop_exprs:
        if list(y.inputs) == axes and type(y) is type(step) and len(y.outputs) == len(step.outputs):
            both = zip((*y.inputs, *y.outputs), (*step.inputs, *step.outputs), strict=True)
            moved = not isinstance(y, Resize) or not isinstance(step, Resize) or same_extent(y.left, step.left)
            plain = isinstance(y, (Split, Merge, Resize)) or y.attributes == step.attributes
            if plain and moved and all(same_extent(a.extent, b.extent) for a, b in both):
                return y
    return None


def _scheduled(t: Tensor, axis: IterDomain) -> ScheduleError:
    return ScheduleError(
        f"resize_to_inputs: axis {axis.label} is already scheduled",
        where=user_line(),
        hint=f"call it before {t.name} is split or merged",
    )
