"""Loops that were replayed once, for the next tensor that is to get the same from what is the same.

What a replay does depends on extents, kinds and steps, and on which axes correspond; a model of many equal layers asks
for few different ones. The first is replayed step by step, the others get copies of its axes and steps.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from idgraph.arith import Expr
from idgraph.errors import user_line
from idgraph.graphs.loop_nest import replayed_expr
from idgraph.ir import DomainExpr, IterDomain, Tensor
from idgraph.ir.iter_domain import Kind, Parallel
from idgraph.ir.schedule_log import ScheduleStep

Made = tuple[DomainExpr, tuple[int, ...], tuple[tuple[Expr, Kind], ...]]


@dataclass(frozen=True, slots=True, eq=False)
class ReplayRecipe:
    """Steps from a tensor's own axes to its loops. Axes are numbers: its own, then what each step makes, in order.

    It is the pattern of the loops that it gave (`TensorDomain`).
    """

    made: tuple[Made, ...]  # an expression like it, its inputs, the extents and kinds of its outputs
    loop: tuple[tuple[int, Parallel], ...]
    log: tuple[ScheduleStep, ...]

    def give(self, t: Tensor) -> None:
        """Do the same to ``t``, whose loops are its own axes."""
        domain = t.domain
        axes = [*domain.loop, *t.fusion.axes_like([known for _, _, made in self.made for known in made], t)]
        at = len(domain.loop)
        for like, inputs, outputs in self.made:
            outs = axes[at : at + len(outputs)]
            e = replayed_expr(like, [axes[n] for n in inputs], outs)
            for d in outs:
                d.defined_by(e)
            domain.loop_exprs.append(e)
            at += len(outs)
        domain.loop = tuple([axes[n] for n, _ in self.loop])
        domain.pattern, domain.patterned = self, domain.loop
        for n, way in self.loop:
            axes[n].parallel = way
        t.note_steps(self.log, user_line())


def recipe_of(t: Tensor, own: Sequence[IterDomain], steps: int) -> ReplayRecipe | None:
    """How ``t`` got its loops from the axes ``own``, by its log after the first ``steps``, and their pattern from now
    on; None of loops that were made of anything else, or whose steps were logged before the replay began."""
    number = {d: n for n, d in enumerate(own)}
    made: list[Made] = []
    for e in t.domain.loop_exprs:
        if any(d not in number for d in e.inputs):
            return None
        made.append((e, tuple(number[d] for d in e.inputs), tuple((d.extent, d.kind) for d in e.outputs)))
        for d in e.outputs:
            number[d] = len(number)
    found = ReplayRecipe(tuple(made), tuple((number[d], d.parallel) for d in t.loop), t.log[steps:])
    t.domain.pattern, t.domain.patterned = found, t.loop
    return found


def described_replay(
    own: Sequence[IterDomain],
    image: Mapping[IterDomain, IterDomain],
    exprs: Iterable[DomainExpr],
    loop: Iterable[IterDomain],
    cut: bool,
) -> Hashable:
    """All that a replay of ``exprs`` up to ``loop`` depends on, as a value: axes by number where they are met first.

    Where the loops that are replayed were made after a pattern, that stands for their steps (`patterned_replay`).

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(64,))
    >>> a, b, c = (f.output(ig.exp(x)).split(0, n) for n in (8, 8, 4))
    >>> first, second, third = (
    ...     described_replay(t.logical, {}, t.domain.loop_exprs, t.loop, True) for t in (a, b, c)
    ... )
    >>> first == second, first == third
    (True, False)
    """
    axes: dict[IterDomain, int] = {}
    parts: list[Hashable] = [cut, len(own), len(image)]

    def number(d: IterDomain) -> int:
        n = axes.get(d)
        if n is None:
            n = axes[d] = len(axes)
            parts.append((d.kind, d.extent))
        return n

    for d in own:
        number(d)
    for a, b in image.items():
        parts.append((number(a), number(b)))
    for e in exprs:
        parts.append((e.attributes, *[number(d) for d in (*e.inputs, *e.outputs)]))
    parts += [(number(d), d.parallel) for d in loop]
    return tuple(parts)


def patterned_replay(
    own: Sequence[IterDomain],
    image: Mapping[IterDomain, IterDomain],
    pattern: Hashable,
    start: Sequence[IterDomain],
    loop: Iterable[IterDomain],
    cut: bool,
) -> Hashable:
    """The same of the steps of a pattern that begins with the axes ``start``; None where others correspond too.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.exp(f.input("x", shape=(64,)))
    >>> u = f.output(t * 2.0)
    >>> key = patterned_replay(t.logical, {u.logical[0]: t.logical[0]}, "halves", u.logical, u.loop, True)
    >>> key == patterned_replay(t.logical, {}, "halves", u.logical, u.loop, True)
    False
    """
    mine, theirs = {d: n for n, d in enumerate(own)}, {d: n for n, d in enumerate(start)}
    parts: list[Hashable] = [pattern, cut, len(own)]
    for d in own:
        parts += (d.kind, d.extent)
    for d in start:
        parts += (d.kind, d.extent)
    for a, b in image.items():
        at, to = theirs.get(a), mine.get(b)
        if at is None or to is None:
            return None
        parts += (at, to)
    parts += [d.parallel for d in loop]
    return tuple(parts)
