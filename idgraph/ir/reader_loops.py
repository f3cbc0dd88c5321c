"""The loops of a tensor beside those of its readers: where inlining needs a loop of one element more, or less.

A reader may loop over what the tensor lacks (a broadcast that it makes, an axis that only other operands have, a
single element) outside of loops that are the tensor's. Sharing those takes the tensor into the loop around them: it
gets one of one element there. And a loop of one element of its own, which the reader has not, moves inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from idgraph.ir.axis_read import Fixed, Mapped
from idgraph.ir.iter_domain import IterDomain, Merge, Split, is_one
from idgraph.ir.protocols import OperationLike, TensorLike


class LoopPlan(NamedTuple):
    """The loops that a tensor shares then: the numbers of its own, None for one of one element more; and the numbers of
    those of one element that move inside of them."""

    shared: tuple[int | None, ...]
    inside: tuple[int, ...]


def loop_plan(t: TensorLike, count: int) -> LoopPlan | None:
    """How the first ``count`` loops of ``t`` become loops of all its readers; None where they are already, or where the
    readers differ, or what is built on both sides does not say."""
    plans = {_plan_of_reader(t, count, e, k) for e in t.uses for k, operand in enumerate(e.inputs) if operand is t}
    plan = plans.pop() if len(plans) == 1 else None
    return None if plan is None or plan.shared == tuple(range(count)) else plan


def _plan_of_reader(t: TensorLike, count: int, e: OperationLike, k: int) -> LoopPlan | None:
    known, lacking = _corresponding(t, e, k)
    own, theirs = t.loop[:count], e.output.loop
    shared: list[int | None] = []
    inside: list[int] = []
    at = 0
    for c in theirs:
        while at < count and is_one(own[at].extent) and known.get(c) in own[at + 1 :]:
            inside.append(at)
            at += 1
        if at == count:
            break
        alone = c in lacking or is_one(c.extent)
        if known.get(c) is own[at] or (alone and is_one(own[at].extent)):
            shared.append(at)
            at += 1
        elif alone:
            shared.append(None)
        else:
            return None
    return LoopPlan(tuple(shared), tuple(inside)) if at == count else None


def _corresponding(t: TensorLike, e: OperationLike, k: int) -> tuple[dict[IterDomain, IterDomain], set[IterDomain]]:
    """The reader's axes with those of ``t`` that they are, by what is built on both sides; and those that have nothing
    to do with ``t``."""
    known: dict[IterDomain, IterDomain] = {}
    read: set[IterDomain] = set()
    for axis, way in zip(t.axes, e.reads[k], strict=True):
        to = way.domain if isinstance(way, Mapped) else way.resolves if isinstance(way, Fixed) else None
        if to is not None:
            known[to] = axis
            read.add(to)
    domain = e.output.domain
    lacking = {d for d in (*domain.root, *domain.logical) if d not in read}
    for x in domain.exprs:
        lacking.difference_update(x.outputs)
    mine = {(x.inputs, x.attributes): x.outputs for x in t.domain.loop_exprs}
    for x in (*domain.exprs, *domain.loop_exprs):
        if all(d in lacking for d in x.inputs):
            lacking.update(x.outputs)
            continue
        have = [known[d] for d in x.inputs if d in known]
        if len(have) == len(x.inputs):
            made = mine.get((tuple(have), x.attributes), ())
            if not made and isinstance(x, Split):  # into itself and a single element
                made = [have[0] if d.extent == x.source.extent and not is_one(d.extent) else d for d in x.outputs]
            known.update(zip(x.outputs, made, strict=False))
        elif have and isinstance(x, Merge) and {*x.inputs} <= lacking | known.keys():
            known[x.out] = have[0]
    return known, lacking


def inserted(plan: LoopPlan, count: int) -> tuple[Sequence[int], Sequence[int]]:
    """Where loops of one element are split off, one after the other, and the order of all loops afterwards.

    >>> inserted(LoopPlan((None, 0, 2), (1,)), 4)
    ([0], [0, 1, 3, 2, 4])
    """
    splits: list[int] = []
    place = list(range(count))  # of the loops as they were
    order: list[int] = []
    for n, p in enumerate(plan.shared):
        if p is None:
            following = next(q for q in plan.shared[n:] if q is not None)
            order.append(place[following])
            splits.append(place[following])
            place = [at + (number >= following) for number, at in enumerate(place)]
        else:
            order.append(place[p])
    return splits, [*order, *(at for at in place if at not in order)]
