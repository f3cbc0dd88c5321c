"""Scheduling one tensor like another: its loop axes replayed across the operations between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import assert_never

from idgraph.arith import is_true
from idgraph.errors import ScheduleError, user_line
from idgraph.ir import (
    DomainExpr,
    Fixed,
    Fusion,
    IterDomain,
    Loaded,
    Mapped,
    Merge,
    Resize,
    Roll,
    Split,
    Stride,
    Swizzle,
    Tensor,
    TensorExpr,
    check_fusion,
)  # fmt: skip
from idgraph.ir.loops import reset
from idgraph.ir.pointwise import same_extent


def _producer_axes(e: TensorExpr, k: int) -> dict[IterDomain, IterDomain]:
    """Root axes of the output that operand ``k`` is read at, with the operand's axes; resolved broadcasts too."""
    found: dict[IterDomain, IterDomain] = {}
    for axis, read in zip(e.inputs[k].axes, e.reads[k], strict=True):
        match read:
            case Mapped(domain):
                found.setdefault(domain, axis)
            case Fixed(resolves=IterDomain() as to):
                found.setdefault(to, axis)
            case _:
                pass
    return found


class _Replay:
    """Grows a tensor's loops, by schedule steps, so that they correspond to given axes of another tensor."""

    def __init__(self, tensor: Tensor, known: dict[IterDomain, IterDomain]) -> None:
        self.tensor = tensor
        self.image = dict(known)

    def through(self, exprs: Sequence[DomainExpr], wanted: set[IterDomain]) -> None:
        """Replay those of ``exprs`` that lead to ``wanted``; a merge with an axis unknown here keeps the other one."""
        needed = set(wanted)
        for e in reversed(exprs):
            if any(d in needed for d in e.outputs):
                needed.update(e.inputs)
        for e in exprs:
            if not any(d in needed for d in e.outputs) or all(d in self.image for d in e.outputs):
                continue
            have = [self.image[d] for d in e.inputs if d in self.image]
            if len(have) == len(e.inputs):
                if all(d in self.tensor.loop for d in have):
                    self._step(e, [self.tensor.loop.index(d) for d in have])
            elif have and isinstance(e, Merge):
                self.image[e.out] = have[0]

    def _step(self, e: DomainExpr, at: list[int]) -> None:
        t, before = self.tensor, set(self.tensor.loop)
        match e:
            case Split():
                t.split(at[0], e.factor, inner=e.inner_split)
            case Merge():
                if len({t.loop[p].kind == "reduction" for p in at}) > 1:
                    return
                t.merge(at[0], at[1])
            case Resize():
                source = t.loop[at[0]].extent
                if not all(is_true(x >= 0) for x in (source + e.left, source + e.right, source + e.left + e.right)):
                    return
                t.resize(at[0], e.left, e.right)
            case Stride():
                if not same_extent(t.loop[at[0]].extent, e.source.extent):
                    return  # a broadcast axis that the reader resolves has none of the elements in question
                t.stride(at[0], e.start, int(e.step), e.out.extent)
            case Roll():
                t.roll(at[0], e.shift)
            case Swizzle():
                t.swizzle(e.kind, at[0], at[1])
            case _:
                assert_never(e)
        made = t.domain.loop_exprs[-1].outputs
        self.image.update({old: new for old, new in zip(e.outputs, made, strict=True) if new not in before})


def replay_loops(
    target: Tensor, image: dict[IterDomain, IterDomain], exprs: Sequence[DomainExpr], reference: Tensor
) -> None:
    """Give ``target`` the loops of ``reference``: ``image`` says which axes correspond, ``exprs`` what to replay.

    Loops that correspond come first, in the reference's order and with its parallel types; then the target's other
    axes, reduced ones last.
    """
    reset(target)
    replay = _Replay(target, image)
    replay.through(exprs, set(reference.loop))
    order: list[int] = []
    for d in reference.loop:
        mine = replay.image.get(d)
        if mine is not None and mine in target.loop and target.loop.index(mine) not in order:
            order.append(target.loop.index(mine))
            if d.parallel != "serial" and mine.kind != "reduction":
                target.parallelize(order[-1], d.parallel)
    rest = [p for p in range(len(target.loop)) if p not in order]
    rest.sort(key=lambda p: target.loop[p].kind == "reduction")
    if [*order, *rest] != sorted([*order, *rest]):
        target.reorder([*order, *rest])


def like_consumer(producer: Tensor, e: TensorExpr, k: int) -> None:
    """Loops of a producer as its consumer ``e.output`` has them: e's own resizes and reshapes replayed first."""
    consumer = e.output
    image = _producer_axes(e, k)
    own = set(image)
    # Of several definitions of one axis (cat) only the operand's own leads to its axes.
    path = [
        x for x in consumer.domain.exprs if not isinstance(x, Resize) or x.source in own or x.source in _made(consumer)
    ]
    replay_loops(producer, image, [*path, *consumer.domain.loop_exprs], consumer)


def _made(t: Tensor) -> set[IterDomain]:
    return {d for x in t.domain.exprs for d in x.outputs}


def like_producer(consumer: Tensor, e: TensorExpr, k: int) -> None:
    """Loops of a consumer as operand ``k`` of its definition has them, where its logical axes are the root axes."""
    producer = e.inputs[k]
    image = {axis: root for root, axis in _producer_axes(e, k).items() if root in consumer.logical}
    replay_loops(consumer, image, producer.domain.loop_exprs, producer)


def like(fusion: Fusion, reference: Tensor) -> None:
    """Schedule every computed tensor as ``reference``: its loop axes are replayed through every operation on the way.

    Producers come first through the consumers that read them (slices, pads, cats and reshapes on the way are replayed,
    so that all loops are exactly mapped); tensors of other branches follow their producers. Parallel types go along.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t0 = f.input("t0", shape=(64,))
    >>> t1, t2 = t0[:32], t0[32:]
    >>> t4 = f.output(t0 + ig.cat([t2, t1], dim=0))
    >>> _ = t4.split(0, 8)
    >>> ig.schedule.like(f, t4)
    >>> t1.domain.loop_exprs
    [Resize(I2[32] -> I17[64]; 32, 0), Split(I17[64] -> I18[8], I19[8]; 8)]
    """
    check_fusion(fusion, "like", ScheduleError)
    if reference not in fusion or reference.definition is None:
        named = reference.name if isinstance(reference, Tensor) else repr(reference)  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ScheduleError(
            f"like: {named} is not a computed tensor of fusion {fusion.name}",
            where=user_line(),
            hint="take an output, or another tensor that an operation makes",
        )
    done = {reference}
    queue = deque([reference])
    while queue:
        t = queue.popleft()
        e = t.definition
        if e is not None:
            for k, p in enumerate(e.inputs):
                if p not in done and p.definition is not None and not any(isinstance(r, Loaded) for r in e.reads[k]):
                    like_consumer(p, e, k)
                    done.add(p)
                    queue.append(p)
        for use in t.uses:
            if use.output not in done:
                like_producer(use.output, use, use.operands_of(t)[0])
                done.add(use.output)
                queue.append(use.output)


def resize_to_inputs(fusion: Fusion, expr: TensorExpr) -> None:
    """Replay the resizes of ``expr`` (a slice, pad or cat) on every computed tensor upstream of it.

    Afterwards the loops of those tensors run over the resized axis, so they are exactly the loops of ``expr.output``.
    Inputs of the fusion stay as they are. Raises `ScheduleError` for an operation that resizes nothing.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t1 = ig.copy(f.input("t0", shape=(64,)))
    >>> t2 = f.output(t1[32:])
    >>> ig.schedule.resize_to_inputs(f, t2.definition)
    >>> t1.loop, t1.domain.loop_exprs
    ((I4[32],), [Resize(I1[64] -> I4[32]; -32, 0)])
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
    if t.definition is None or t in seen:
        return
    seen.add(t)
    if axis in t.loop:
        t.resize(t.loop.index(axis), x.left, x.right)
    else:
        raise ScheduleError(
            f"resize_to_inputs: axis {axis.label} is already scheduled",
            where=user_line(),
            hint=f"call it before {t.name} is split or merged",
        )
    if axis not in t.root:
        return
    e = t.definition
    for p, row in zip(e.inputs, e.reads, strict=True):
        for mine, read in zip(p.axes, row, strict=True):
            if isinstance(read, Mapped) and read.domain is axis and same_extent(mine.extent, axis.extent):
                _resize_upstream(p, mine, x, seen)
