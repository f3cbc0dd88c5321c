"""Loops that inlining makes one, as classes of loop axes; and which axes of their tensors feed each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from idgraph.ir import DomainExpr, IterDomain, Tensor


class LoopClasses:
    """Classes of the loop axes of computed tensors: those left of a tensor's position are its readers' too."""

    def __init__(self, tensors: Sequence[Tensor], shared: Callable[[Tensor], int]) -> None:
        self._tensors = tensors
        parent: dict[IterDomain, IterDomain] = {}

        def find(d: IterDomain) -> IterDomain:
            while (above := parent.get(d, d)) is not d:
                parent[d] = d = parent.get(above, above)
            return d

        for t in tensors:
            count = shared(t)
            for e in t.uses if count else ():
                for mine, theirs in zip(t.loop[:count], e.output.loop, strict=False):
                    parent[find(mine)] = find(theirs)
        self._leader = {d: find(d) for d in {*parent, *parent.values()}}

    @property
    def joined(self) -> Set[IterDomain]:
        """The loop axes that are one with another."""
        return self._leader.keys()

    def find(self, d: IterDomain) -> IterDomain:
        """The representative of the class of a loop axis."""
        return self._leader.get(d, d)

    def fed(self, named: Mapping[IterDomain, IterDomain], of: Iterable[Tensor]) -> dict[IterDomain, set[IterDomain]]:
        """For each class of several loops, one of them of a tensor in ``of``, those of the axes ``named`` that feed any
        of them, as they are called there."""
        found: dict[IterDomain, set[IterDomain]] = {}
        leader = self._leader
        wanted = {leader[d] for t in of for d in t.loop if d in leader}
        for t in self._tensors if wanted else ():
            loops = [d for d in t.loop if leader.get(d) in wanted]
            if not loops:
                continue
            mine = [c for c in dict.fromkeys((*t.root, *t.logical)) if c in named]
            if not mine:
                continue
            above = sources(mine, (*t.domain.exprs, *t.domain.loop_exprs))
            for d in loops:
                feeding = above.get(d, 0)
                if feeding:
                    met = found.setdefault(leader[d], set())
                    met.update([named[c] for n, c in enumerate(mine) if feeding >> n & 1])
        return found


def sources(axes: Sequence[IterDomain], exprs: Iterable[DomainExpr]) -> dict[IterDomain, int]:
    """For each of ``axes``, and each axis that ``exprs`` (in the order in which they were added) make of them, which of
    them it is made of: a number whose bit n is set for ``axes[n]``."""
    found = {d: 1 << n for n, d in enumerate(axes)}
    for e in exprs:
        bits = 0
        for x in e.inputs:
            bits |= found.get(x, 0)
        if bits:
            for x in e.outputs:
                found[x] = found.get(x, 0) | bits
    return found


def descendants(d: IterDomain, exprs: list[DomainExpr]) -> set[IterDomain]:
    """``d`` and every axis made of it by ``exprs`` (in the order in which they were added)."""
    found = {d}
    for e in exprs:
        if any(x in found for x in e.inputs):
            found.update(e.outputs)
    return found
