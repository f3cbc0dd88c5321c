"""The graphs coarser than exact: almost exact, broadcast, permissive, permissive resize, and the loop graph.

Each is the one before it plus one kind of mapping, so a mapping made by a finer graph is never lost (law L5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from idgraph.graphs.builder import CongruenceClosure
from idgraph.graphs.coordinates import transparent
from idgraph.graphs.domain_graph import DomainGraph, ExactBuilder, Unmappable
from idgraph.graphs.forms import SignatureTable, TensorTemplates, own_exprs
from idgraph.graphs.index_graph import SharedLoop
from idgraph.graphs.loops import LoopNests
from idgraph.graphs.nested import join_nested
from idgraph.graphs.numbering import KeyList
from idgraph.ir import DomainExpr, Fixed, Fusion, IterDomain, Mapped, Merge, Resize, Stride, Tensor

Builder = CongruenceClosure[IterDomain]
Transparent = tuple[int, int, DomainExpr]  # two axes that an expression beside a single element makes one


def build_almost_exact(
    fusion: Fusion, exact: Builder | None = None, plans: TensorTemplates | None = None
) -> DomainGraph:
    """Exact, and: size-one merges and splits change nothing; merges and divisible splits of one axis are one relation.

    Their nesting does not matter: ``(a b) c`` is ``a (b c)``. Two axes of one tensor's root, logical or loop list are
    never mapped unless the exact graph has them in one group. Where the mappings together would do that, expressions
    beside single elements are no longer compared there. Where that is not enough, the mappings in the group (or those
    around it that imply it) are dropped, all of them, so their order does not matter.
    """
    plans = plans or TensorTemplates()
    exact = exact or ExactBuilder(fusion, plans)
    pairs: list[Transparent] = [
        (exact.key_number(a), exact.key_number(b), x) for t in fusion.tensors for x, a, b in _once(t)
    ]
    left_out: frozenset[int] = frozenset()
    quiet: frozenset[int] = frozenset()
    unmappable: dict[frozenset[IterDomain], Unmappable] = {}
    while True:
        builder = exact.fork("almost exact")
        builder.quieten(quiet)
        for a, b, x in pairs:
            builder.join(a, b, ("size one", None, None, 0, (x,)))
        builder.join_parts(left_out)
        join_nested(builder, left_out)
        glued = list(_glued(fusion, exact, builder)) if builder.unions > exact.unions else []
        if not glued:
            return DomainGraph("almost exact", fusion, builder.build(), tuple(unmappable.values()))
        for pair in glued:
            unmappable.setdefault(frozenset(pair), pair)
        groups = {builder.number(a) for a, _ in glued}
        silent = quiet | _beside(builder, groups, pairs)
        if silent != quiet:
            quiet = silent
            continue
        pairs, left_out = _without(builder, groups, pairs, left_out)


def _once(t: Tensor) -> Iterator[tuple[DomainExpr, IterDomain, IterDomain]]:
    """Size-one pairs, one for each expression: of two axes of one element only one is the merged axis."""
    for x in own_exprs(t):
        for a, b, _ in transparent(x)[:1]:
            yield x, a, b


def _beside(builder: Builder, glued: set[int], pairs: Sequence[Transparent]) -> frozenset[int]:
    """The expressions beside single elements that read or make an axis of these groups.

    All that they say is said by the pair that each makes one. Two of them on one axis would make their single elements
    one as well.
    """
    nodes, find, named = builder.nodes, builder.sets.find, {x for _, _, x in pairs}
    return frozenset(
        n
        for n in range(nodes.visible or len(nodes))
        if nodes.form[n].expr in named and not glued.isdisjoint(map(find, (*nodes.ins[n], *nodes.outs[n])))
    )


def _glued(fusion: Fusion, exact: Builder, builder: Builder) -> Iterator[Unmappable]:
    """Pairs of axes of one list of a tensor that are one here and that the exact graph keeps apart."""
    number, was, now = exact.key_number, exact.sets.find, builder.sets.find
    for t in fusion.tensors:
        for axes in dict.fromkeys((t.root, t.logical, t.loop)):
            seen: dict[int, IterDomain] = {}
            for d in axes:
                n = number(d)
                first = seen.setdefault(now(n), d)
                if was(number(first)) != was(n):
                    yield first, d


def _without(
    builder: Builder, glued: set[int], pairs: list[Transparent], left_out: frozenset[int]
) -> tuple[list[Transparent], frozenset[int]]:
    """Pairs and expressions without those in the glued groups; where there is none left, without those around them.

    What glues two axes by congruence are mappings of the groups that their expressions read or make.
    """
    nodes, find = builder.nodes, builder.sets.find
    about = [tuple(map(find, (*nodes.ins[n], *nodes.outs[n]))) for n in range(nodes.visible or len(nodes))]
    area = glued
    while True:
        near = [n for n, groups in enumerate(about) if not area.isdisjoint(groups)]
        kept = [p for p in pairs if find(p[0]) not in area]
        dropped = left_out.union(n for n in near if nodes.form[n].parts >= 0)
        if len(kept) < len(pairs) or dropped != left_out:
            return kept, dropped
        wider = area.union(*(about[n] for n in near))
        if wider == area:  # nothing else maps anything here
            return [], frozenset(range(len(about)))
        area = wider


def _broadcast(builder: Builder, fusion: Fusion) -> None:
    for e in fusion.exprs:
        for t, row in zip(e.inputs, e.reads, strict=True):
            for p, (axis, read) in enumerate(zip(t.axes, row, strict=True)):
                if isinstance(read, Fixed) and read.resolves is not None:
                    builder.map(axis, read.resolves, ("broadcast", e, t, p, ()))
                elif isinstance(read, Mapped) and axis.is_broadcast != read.domain.is_broadcast:
                    builder.map(axis, read.domain, ("broadcast", e, t, p, ()))  # a broadcast axis that is summed
    builder.join_loose()


def _forward(builder: Builder, fusion: Fusion) -> None:
    for x in _all_exprs(fusion):
        if isinstance(x, Merge) and x.outer.is_broadcast != x.inner.is_broadcast:
            kept = x.inner if x.outer.is_broadcast else x.outer
            builder.map(kept, x.out, ("forward", None, None, 0, (x,)))
    plans = TensorTemplates()
    for t in fusion.tensors:
        plan = plans.of(t)
        for x, a, b, _ in plan.transparent:
            builder.map(plan.domains[a], plan.domains[b], ("size one", None, None, 0, (x,)))
    builder.join_parts()


def _share(shared: Sequence[SharedLoop], builder: Builder, _: Fusion) -> None:
    for t, e, j in shared:
        builder.map(t.loop[j], e.output.loop[j], ("coordinate", e, t, j, ()))


def _resized(builder: Builder, fusion: Fusion) -> None:
    for x in _all_exprs(fusion):
        if isinstance(x, (Resize, Stride)):
            builder.map(x.source, x.out, ("resize", None, None, 0, (x,)))


def _all_exprs(fusion: Fusion) -> Iterator[DomainExpr]:
    for t in fusion.tensors:
        yield from own_exprs(t)


Part = Callable[[Builder, Fusion], None]


def _build(name: str, fusion: Fusion, exact: Builder | None, *parts: Part) -> DomainGraph:
    builder = (exact or ExactBuilder(fusion)).fork(name)
    for part in parts:
        part(builder, fusion)
    return DomainGraph(name, fusion, builder.build())


def build_broadcast(fusion: Fusion, exact: Builder | None = None) -> DomainGraph:
    """Exact, and broadcast axes with what they resolve to."""
    return _build("broadcast", fusion, exact, _broadcast)


def build_permissive(fusion: Fusion, exact: Builder | None = None, shared: Sequence[SharedLoop] = ()) -> DomainGraph:
    """Broadcast, and forwarding: a merge with a broadcast (or with one element) is the other axis.

    Merges and divisible splits are one relation here too. Loops ``shared`` by coordinates alone are mapped as well.
    """
    return _build("permissive", fusion, exact, _broadcast, _forward, partial(_share, shared))


def build_permissive_resize(
    fusion: Fusion, exact: Builder | None = None, shared: Sequence[SharedLoop] = ()
) -> DomainGraph:
    """Permissive, and the input of a resize or stride with its output."""
    return _build("permissive resize", fusion, exact, _broadcast, _forward, partial(_share, shared), _resized)


def build_loop(fusion: Fusion, nests: LoopNests) -> DomainGraph:
    """Loop axes that share one real loop: those left of an inlined tensor's position with its consumers'."""
    keys: KeyList[IterDomain] = KeyList()
    keys.enter(list(dict.fromkeys(d for t in fusion.tensors for d in t.loop)))
    builder: Builder = CongruenceClosure("loop", keys, SignatureTable())
    for t in fusion.tensors:
        for e in t.uses:
            for j in range(nests.shared(t)):
                builder.map(t.loop[j], e.output.loop[j], ("inline", e, t, j, ()))
    return DomainGraph("loop", fusion, builder.build())
