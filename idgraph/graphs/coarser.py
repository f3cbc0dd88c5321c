"""The graphs coarser than exact: almost exact, broadcast, permissive, permissive resize, and the loop graph.

Each is the one before it plus one kind of mapping, so a mapping made by a finer graph is never lost (law L5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from idgraph.arith import simplify
from idgraph.graphs.coordinates import padded, transparent
from idgraph.graphs.domain_graph import DomainGraph, exact_builder, own_exprs
from idgraph.graphs.loops import Nests
from idgraph.graphs.reasons import Reason
from idgraph.graphs.valgraph import GraphBuilder
from idgraph.ir import DomainExpr, Fixed, Fusion, IterDomain, Merge, Resize, Split, Stride
from idgraph.ir.pointwise import same_extent

Builder = GraphBuilder[IterDomain]


class _Distinct:
    """Refuses unions that would glue two axes of one tensor's root, logical or loop list."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    def map(self, a: IterDomain, b: IterDomain, why: Reason) -> None:
        """Map two axes unless that joins two axes of one list (or they are one already)."""
        builder = self._builder
        if builder.same(a, b):
            return
        mine = {x for d in builder.members(a) for x in _lists(d)}
        if any(x in mine for d in builder.members(b) for x in _lists(d)):
            return
        builder.map(a, b, why)


def _lists(d: IterDomain) -> list[tuple[str, str]]:
    """The lists (root, logical, loop of its tensor) in which an axis stands."""
    t = d.tensor
    if t is None:
        return []
    return [(t.name, name) for name, axes in (("root", t.root), ("logical", t.logical), ("loop", t.loop)) if d in axes]


def _all_exprs(fusion: Fusion) -> Iterator[DomainExpr]:
    for t in fusion.tensors:
        yield from own_exprs(t)


def _size_one(fusion: Fusion) -> Iterator[tuple[DomainExpr, IterDomain, IterDomain]]:
    """Pairs of axes that differ by an axis of one element only, which no loop runs past."""
    for t in fusion.tensors:
        loose = padded(own_exprs(t))
        for x in own_exprs(t):
            for a, b, beside in transparent(x):
                if beside not in loose:
                    yield x, a, b


def build_almost_exact(fusion: Fusion, exact: Builder | None = None) -> DomainGraph:
    """Exact, and: size-one merges and splits change nothing; equal divisible splits; a merge split again as it was."""
    builder = (exact or exact_builder(fusion)).fork("almost exact")
    distinct = _Distinct(builder)
    exprs = list(_all_exprs(fusion))
    for x, a, b in _size_one(fusion):
        distinct.map(a, b, Reason("size one", steps=(x,)))
    splits = [x for x in exprs if isinstance(x, Split) and _divisible(x)]
    merges = [x for x in exprs if isinstance(x, Merge)]
    before = -1
    while before != builder.unions:  # a union may make two more sources equal
        before = builder.unions
        _equal_splits(builder, distinct, splits)
        _split_merges(builder, distinct, splits, merges)
    return DomainGraph("almost exact", fusion, builder.build())


def _divisible(x: Split) -> bool:
    return same_extent(x.outer.extent * x.inner.extent, x.source.extent)


def _equal_splits(builder: Builder, distinct: _Distinct, splits: list[Split]) -> None:
    """Divisible splits of one axis with one inner extent, whichever side the factor was given for."""
    seen: dict[tuple[int, object], Split] = {}
    for x in splits:
        key = (builder.number(x.source), simplify(x.inner.extent))
        first = seen.setdefault(key, x)
        if first is not x:
            why = Reason("congruence", steps=(first, x))
            distinct.map(first.outer, x.outer, why)
            distinct.map(first.inner, x.inner, why)


def _split_merges(builder: Builder, distinct: _Distinct, splits: list[Split], merges: list[Merge]) -> None:
    """``Split(Merge(a, b), b.extent)`` gives a and b back."""
    made: dict[tuple[int, object], Merge] = {}
    for m in merges:
        made.setdefault((builder.number(m.out), simplify(m.inner.extent)), m)
    for x in splits:
        m = made.get((builder.number(x.source), simplify(x.inner.extent)))
        if m is not None and same_extent(m.outer.extent, x.outer.extent):
            why = Reason("congruence", steps=(m, x))
            distinct.map(m.outer, x.outer, why)
            distinct.map(m.inner, x.inner, why)


def _broadcast(builder: Builder, fusion: Fusion) -> None:
    for e in fusion.exprs:
        for t, row in zip(e.inputs, e.reads, strict=True):
            for p, (axis, read) in enumerate(zip(t.axes, row, strict=True)):
                if isinstance(read, Fixed) and read.resolves is not None:
                    builder.map(axis, read.resolves, Reason("broadcast", e, t, p))


def _forward(builder: Builder, fusion: Fusion) -> None:
    for x in _all_exprs(fusion):
        if isinstance(x, Merge) and x.outer.is_broadcast != x.inner.is_broadcast:
            kept = x.inner if x.outer.is_broadcast else x.outer
            builder.map(kept, x.out, Reason("forward", steps=(x,)))
    for x, a, b in _size_one(fusion):
        builder.map(a, b, Reason("size one", steps=(x,)))


def _resized(builder: Builder, fusion: Fusion) -> None:
    for x in _all_exprs(fusion):
        if isinstance(x, (Resize, Stride)):
            builder.map(x.source, x.out, Reason("resize", steps=(x,)))


Part = Callable[[Builder, Fusion], None]


def _build(name: str, fusion: Fusion, exact: Builder | None, *parts: Part) -> DomainGraph:
    builder = (exact or exact_builder(fusion)).fork(name)
    for part in parts:
        part(builder, fusion)
    return DomainGraph(name, fusion, builder.build())


def build_broadcast(fusion: Fusion, exact: Builder | None = None) -> DomainGraph:
    """Exact, and broadcast axes with what they resolve to."""
    return _build("broadcast", fusion, exact, _broadcast)


def build_permissive(fusion: Fusion, exact: Builder | None = None) -> DomainGraph:
    """Broadcast, and forwarding: a merge with a broadcast (or with one element) is the other axis."""
    return _build("permissive", fusion, exact, _broadcast, _forward)


def build_permissive_resize(fusion: Fusion, exact: Builder | None = None) -> DomainGraph:
    """Permissive, and the input of a resize or stride with its output."""
    return _build("permissive resize", fusion, exact, _broadcast, _forward, _resized)


def build_loop(fusion: Fusion, nests: Nests) -> DomainGraph:
    """Loop axes that share one real loop: those left of an inlined tensor's position with its consumers'."""
    builder: Builder = GraphBuilder("loop")
    for t in fusion.tensors:
        for d in t.loop:
            builder.add(d)
    for t in fusion.tensors:
        for e in t.uses:
            for j in range(nests.shared(t)):
                builder.map(t.loop[j], e.output.loop[j], Reason("inline", e, t, j))
    return DomainGraph("loop", fusion, builder.build())
