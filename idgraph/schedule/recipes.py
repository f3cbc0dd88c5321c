"""Loops that were replayed once, for the next tensor that is to get the same from what is the same.

What a replay does depends on extents, kinds and steps, and on which axes correspond; a model of many equal layers asks
for few different ones. The first is replayed step by step, the others get copies of its axes and steps.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from idgraph.arith import Expr
from idgraph.errors import user_line
from idgraph.graphs.loops import replayed_expr
from idgraph.ir import DomainExpr, IterDomain, Tensor
from idgraph.ir.domains import Kind, Parallel
from idgraph.ir.step import Step

Made = tuple[DomainExpr, tuple[int, ...], tuple[tuple[Expr, Kind], ...]]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Steps from a tensor's own axes to its loops. Axes are numbers: its own, then what each step makes, in order."""

    made: tuple[Made, ...]  # an expression like it, its inputs, the extents and kinds of its outputs
    loop: tuple[tuple[int, Parallel], ...]
    log: tuple[Step, ...]

    def give(self, t: Tensor) -> None:
        """Do the same to ``t``, whose loops are its own axes."""
        new, domain, axes = t.fusion.axis_like, t.domain, list(t.domain.loop)
        for like, inputs, outputs in self.made:
            outs = [new(extent, kind, t) for extent, kind in outputs]
            e = replayed_expr(like, [axes[n] for n in inputs], outs)
            for d in outs:
                d.definitions = (e,)
            domain.loop_exprs.append(e)
            axes += outs
        domain.loop = tuple([axes[n] for n, _ in self.loop])
        for n, way in self.loop:
            axes[n].parallel = way
        t.note_steps(self.log, user_line())


def recipe_of(t: Tensor, own: Sequence[IterDomain], steps: int) -> Recipe | None:
    """How ``t`` got its loops from the axes ``own``, by its log after the first ``steps``; None of loops that were made
    of anything else, or whose steps were logged before the replay began."""
    number = {d: n for n, d in enumerate(own)}
    made: list[Made] = []
    for e in t.domain.loop_exprs:
        if any(d not in number for d in e.inputs):
            return None
        made.append((e, tuple(number[d] for d in e.inputs), tuple((d.extent, d.kind) for d in e.outputs)))
        for d in e.outputs:
            number[d] = len(number)
    return Recipe(tuple(made), tuple((number[d], d.parallel) for d in t.loop), t.log[steps:])


def described_replay(
    own: Sequence[IterDomain],
    image: Mapping[IterDomain, IterDomain],
    exprs: Iterable[DomainExpr],
    loop: Iterable[IterDomain],
    cut: bool,
) -> Hashable:
    """All that a replay of ``exprs`` up to ``loop`` depends on, as a value: axes by number where they are met first.

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
