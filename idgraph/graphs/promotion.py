"""The axis that gives each loop its extent, and the way it runs: one answer for all that share a loop.

Tensors inlined at k share their first k loops with their readers, so loops fall into classes. A class runs over an axis
of one of its tensors in which no broadcast was resolved, a reader's rather than a producer's. Where there is none, it
runs over the stand-in of a reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from idgraph.errors import ScheduleError
from idgraph.graphs.loops import LoopNests
from idgraph.ir import IterDomain, Tensor, tensor_of
from idgraph.ir.domains import Parallel


class Promotion:
    """For each loop axis of a computed tensor the axis that gives its loop the extent, and the way the loop runs."""

    def __init__(self, nests: LoopNests) -> None:
        self.nests = nests
        # Only of loops that are shared or widened: most are neither, and run over their own axis in its own way.
        self._of: dict[IterDomain, IterDomain] = {}
        self._way: dict[IterDomain, Parallel] = {}
        classes: dict[IterDomain, list[IterDomain]] = {}
        self._joined = nests.joined
        for e in reversed(nests.exprs) if self._joined else ():
            for j, d in enumerate(e.output.loop):
                if d in self._joined:
                    classes.setdefault(nests.loop_class(e.output, j), []).append(d)
        for members in classes.values():
            self._way.update(dict.fromkeys(members, _one_way(members)))
        moved: dict[IterDomain, IterDomain] = {}  # loops that run over a stand-in
        for t, shadow in nests.shadows.items():
            stands = (shadow.direct.get(j, d) for j, d in enumerate(shadow.loop))
            if t.definition is not None:
                moved.update((d, by) for d, by in zip(t.loop, stands, strict=True) if by is not d)
        for e in reversed(nests.exprs) if moved else ():  # readers first: a shared loop takes its extent from them
            for j, d in enumerate(e.output.loop):
                if d in moved:
                    self._of[d] = self._given(e.output, j, moved, classes.get(nests.loop_class(e.output, j), ()))

    def _given(
        self, t: Tensor, j: int, moved: Mapping[IterDomain, IterDomain], members: Sequence[IterDomain]
    ) -> IterDomain:
        """The axis that gives loop ``j`` of ``t``, not one of its own, the extent: of a reader, as near as can be;
        else of whatever else shares the loop; else a stand-in."""
        read = [self.of(e.output.loop[j]) for e in t.uses if j < t.inline_position]
        real = [d for d in (*read, *members) if d in self._joined and d not in moved]
        return next(iter((*real, *read, moved[t.loop[j]])))

    def of(self, d: IterDomain) -> IterDomain:
        """The axis that gives the loop of ``d`` its extent."""
        return self._of.get(d, d)

    def way(self, d: IterDomain) -> Parallel:
        """The way the loop of ``d`` runs: serially, unless any that shares it says otherwise."""
        return self._way.get(d, d.parallel)

    def __contains__(self, d: object) -> bool:
        return d in self._loops

    @cached_property
    def _loops(self) -> frozenset[IterDomain]:
        return frozenset(d for e in self.nests.exprs for d in e.output.loop)


def _one_way(members: Sequence[IterDomain]) -> Parallel:
    """The way one loop runs: any other way overrides serial, and blocks and threads override lanes."""
    found: dict[Parallel, IterDomain] = {d.parallel: d for d in members if d.parallel != "serial"}
    threads: list[Parallel] = [w for w in found if w.startswith(("blockIdx", "threadIdx"))]
    chosen = threads or list(found)
    if len(chosen) > 1:
        a, b = (found[w] for w in chosen[:2])
        raise ScheduleError(
            f"the loops {a.label} on {a.parallel} and {b.label} on {b.parallel} are one by inlining",
            where=next((t.source_line for t in map(tensor_of, (a, b)) if t is not None), None),
            because=["a shared loop runs one way"],
            subject=tuple(t.name for t in (a.tensor, b.tensor) if t is not None),
        )
    return chosen[0] if chosen else "serial"
