"""Graphs whose keys are axes: the exact graph, and what every such graph can be asked.

The graphs coarser than exact: almost exact, broadcast, permissive, permissive resize, and the loop graph.

Each is the one before it plus one kind of mapping, so a mapping made by a finer graph is never lost (law L5).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import permutations

from idgraph.arith import Expr, simplify
from idgraph.errors import IndexingError, short_repr, shortened, user_line
from idgraph.graphs.congruence_closure import CongruenceClosure
from idgraph.graphs.coordinate_rules import is_product, transparent
from idgraph.graphs.graph_view import GraphView
from idgraph.graphs.index_graph import SharedLoop
from idgraph.graphs.loop_nest import LoopNests
from idgraph.graphs.proof import Explanation
from idgraph.graphs.signature import KeyList, SignatureTable, TensorTemplates, axis_of, key_text, own_exprs
from idgraph.graphs.val_graph import Group, ValGraph
from idgraph.ir import (
    DomainExpr,
    Fixed,
    Fusion,
    IterDomain,
    Mapped,
    Merge,
    Resize,
    RowPartition,
    Split,
    Stride,
    Tensor,
    TensorExpr,
)
from idgraph.ir.iter_domain import Owner, is_one
from idgraph.ir.op_table import ROWS

Pair = tuple[int, int]


def join_nested(builder: CongruenceClosure[IterDomain], left_out: frozenset[int]) -> None:
    """Close a graph that takes merges and divisible splits for one relation under both rules; once, at its end.

    Expressions ``left_out``, by number, take no part.
    """
    builder.nodes.visible = len(builder.nodes)
    while _Round(builder, left_out).grow():
        builder.rebuild()


class _Round:
    """The mappings that the groups lack as they are now."""

    def __init__(self, builder: CongruenceClosure[IterDomain], left_out: frozenset[int]) -> None:
        self._builder = builder
        self._parts: dict[int, dict[Pair, None]] = {}  # of each group the pairs that it is merged of, or split into
        self._whole: dict[Pair, int] = {}
        nodes, find = builder.nodes, builder.sets.find
        for n in range(len(nodes)):
            form = nodes.form[n]
            if form.parts < 0 or n in left_out or not isinstance(form.expr, (Merge, Split)):
                continue
            if is_one(form.expr.outer.extent) or is_one(form.expr.inner.extent):
                continue  # another rule
            whole, outer, inner = map(find, builder.division(n))
            if whole not in (outer, inner):
                self._parts.setdefault(whole, {})[outer, inner] = None
                self._whole[outer, inner] = whole

    def grow(self) -> bool:
        """Enter what is missing; False where nothing is."""
        before = len(self._builder.nodes)
        for whole, pairs in self._parts.items():
            for outer, inner in pairs:
                for a, b in self._parts.get(outer, ()):
                    self._state(whole, a, self._merged(b, inner))
                for b, c in self._parts.get(inner, ()):
                    self._state(whole, self._merged(outer, b), c)
            if len(pairs) > 1:
                for (high, low), (higher, wide) in permutations(pairs, 2):
                    self._refine(high, low, higher, wide)
        return len(self._builder.nodes) > before

    def _refine(self, high: int, low: int, higher: int, wide: int) -> None:
        """``high low`` and ``higher wide`` are one axis: what lies between the two boundaries, where there is such."""
        factor = _quotient(self._extent(wide), self._extent(low))
        if factor is None:
            return
        known = [x for a, x in self._parts.get(high, ()) if a == higher]
        known += [x for x, c in self._parts.get(wide, ()) if c == low]
        between = known[0] if known else self._hidden(factor, f"between({self._label(higher)}, {self._label(low)})")
        self._state(high, higher, between)
        self._state(wide, between, low)

    def _merged(self, outer: int, inner: int) -> int:
        """The group of two merged, a hidden one if need be."""
        found = self._whole.get((outer, inner))
        if found is None:
            extent = simplify(self._extent(outer) * self._extent(inner))
            found = self._hidden(extent, f"merge({self._label(outer)}, {self._label(inner)})")
            self._state(found, outer, inner)
        return found

    def _state(self, whole: int, outer: int, inner: int) -> None:
        """Enter a hidden merge, unless it is known."""
        if self._whole.get((outer, inner)) == whole or whole in (outer, inner):
            return
        self._whole.setdefault((outer, inner), whole)
        builder = self._builder
        a, b, out = (axis_of(builder.at(x)) for x in (outer, inner, whole))
        builder.add_node(builder.forms.of(Merge(a, b, out, None)), (outer, inner), (whole,))

    def _hidden(self, extent: Expr, name: str) -> int:
        made = IterDomain(0, extent, "iteration")
        made.name = name
        return self._builder.hide(made)

    def _extent(self, element: int) -> Expr:
        return axis_of(self._builder.at(element)).extent

    def _label(self, element: int) -> str:
        return axis_of(self._builder.at(element)).label


def _quotient(a: Expr, b: Expr) -> Expr | None:
    """``a / b`` where that is a whole number greater than one by proof."""
    if a.is_const and b.is_const:
        return None if int(b) == 0 or int(a) % int(b) or int(a) == int(b) else simplify(a // b)
    found = simplify(a // b)
    return found if is_product(found, b, a) and found != 1 else None


@dataclass(frozen=True, slots=True)
class SelfMapping:
    """Two axes of one tensor in one group, as in ``t + t.T``: ``tensor`` is mapped onto itself by ``reason``."""

    tensor: Tensor
    first: IterDomain
    second: IterDomain
    reason: Explanation

    def __iter__(self):
        return iter((self.tensor, self.first, self.second, self.reason))

    def __str__(self) -> str:
        return f"{self.tensor.name} is mapped onto itself: {self.first} = {self.second}\n{self.reason}"

    __repr__ = __str__


Unmappable = tuple[IterDomain, IterDomain]


class DomainGraph(GraphView[IterDomain]):
    """Groups of equal axes. Built once, then immutable.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t0 = f.input("t0", shape=(64,))
    >>> t4 = t0 + ig.cat([t0[32:], t0[:32]], dim=0)
    >>> g = ig.IdModel(f).exact
    >>> g.mapped(t0.logical[0], t4.logical[0])
    True
    >>> [c.kind for c in g.cycles()]
    ['shift', 'shift']

    ``unmappable`` lists pairs of axes of one tensor's root, logical or loop list that the rules of the almost exact
    graph would make one: they stay apart, and with them what implies it.
    """

    def __init__(
        self, name: str, fusion: Fusion, graph: ValGraph[IterDomain], unmappable: tuple[Unmappable, ...] = ()
    ) -> None:
        super().__init__(name, fusion, graph)
        self.unmappable = unmappable

    @shortened
    def group(self, domain: IterDomain) -> Group[IterDomain]:
        """The group of an axis; raises `IndexingError` for an axis the graph does not hold.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t0 = f.input("t0", shape=(4, 8))
        >>> t1 = f.output(t0.T)
        >>> m = ig.IdModel(f)
        >>> m.exact.group(t0.logical[1])
        {t0.I1, t1.I3}
        """
        return self.graph.lookup(_check_domain(domain))

    def __contains__(self, domain: object) -> bool:
        return isinstance(domain, IterDomain) and self.graph.holds(domain)

    @shortened
    def mapped(self, a: IterDomain, b: IterDomain) -> bool:
        """True when the two axes are the same."""
        return self.graph.same(_check_domain(a), _check_domain(b))

    @shortened
    def explain(self, a: IterDomain, b: IterDomain) -> Explanation:
        """Why two axes are the same (a chain of facts), or which operation separates them.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t0 = f.input("t0", shape=(4, 8))
        >>> t1 = f.output(t0.T)
        >>> m = ig.IdModel(f)
        >>> print(m.exact.explain(t0.logical[1], t1.logical[0]))
        t0.I1 = t1.I3: permute -> t1 reads axis 1 of t0 at the same coordinate (<doctest ...)
        """
        found = self.graph.chain(_check_domain(a), _check_domain(b))
        if found.mapped or not any({a, b} == set(pair) for pair in self.unmappable):
            return found
        t = a.tensor.name if a.tensor is not None else ""
        return replace(
            found,
            parting=f"{a.label} and {b.label} are not the same: two axes of {t}, which mappings beside single elements "
            f"and through divisible splits would make one; these are left out around them",
        )

    @cached_property
    def self_mappings(self) -> tuple[SelfMapping, ...]:
        """Tensors two of whose root, logical or loop axes are in one group."""
        found: list[SelfMapping] = []
        for t in self.fusion.tensors:
            for axes in dict.fromkeys((t.root, t.logical, t.loop)):
                seen: dict[int, IterDomain] = {}
                for d in axes:
                    if d not in self:
                        continue
                    number = self.graph.number(d)
                    if number in seen and not d.is_broadcast:
                        found.append(SelfMapping(t, seen[number], d, self.explain(seen[number], d)))
                    seen.setdefault(number, d)
        unique: dict[frozenset[IterDomain], SelfMapping] = {}
        for s in found:  # a transposed tensor has the pair in its root and in its logical axes
            unique.setdefault(frozenset((s.first, s.second)), s)
        return tuple(unique.values())

    def __str__(self) -> str:
        return "\n".join(
            "{" + ", ".join(key_text(k) for k in g) + "}" for g in self.groups if len(g) > 1 or len(self.groups) < 40
        )


def _check_domain(d: IterDomain) -> IterDomain:
    if not isinstance(d, IterDomain):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise IndexingError(
            f"{short_repr(d)} is not an axis of a tensor",
            where=user_line(),
            hint="an IterDomain, such as t.logical[0] or t.loop[0]",
        )
    return d


class ExactBuilder(CongruenceClosure[IterDomain]):
    """The exact graph, still growing, with what its operations say of axes: coarser graphs fork it.

    ``entered`` has the number of each tensor's first axis; `stated` the unions of each operand.
    """

    def __init__(self, fusion: Fusion, plans: TensorTemplates | None = None) -> None:
        plans = plans or TensorTemplates()
        plan_of, keys = plans.of, KeyList[IterDomain]()
        self.entered = {t: keys.enter(plan_of(t).domains) for t in fusion.tensors}
        super().__init__("exact", keys, plans.forms)
        for t, first in self.entered.items():
            for form, ins, outs in plan_of(t).exprs:
                self.nodes.add(form, ins, outs, first)
        self._plans = plans
        self._loose: set[TensorExpr] = set()  # operations with an axis of an operand that they unite with none
        # The elements that operations unite and why, by number, and for each operand in turn where its unions end.
        self._left, self._right, self._why, self._ends = array("q"), array("q"), array("q"), array("q")
        left, right, whys = self._left, self._right, self._why
        union = self.sets.union  # nothing is settled yet, so a union has no consequences to follow
        for e in fusion.exprs:
            out, base = plan_of(e.output), self.entered[e.output]
            for t, row in zip(e.inputs, e.reads, strict=True):
                mine, first = plan_of(t), self.entered[t]
                domains, why = mine.domains, self.reasons.access(e, t)
                for at, read in zip(mine.axes, row, strict=True):
                    d = read.domain if isinstance(read, Mapped) else None
                    if d is None or (domains[at].kind == "broadcast") != (d.kind == "broadcast"):
                        self._loose.add(e)
                    else:
                        a, b = first + at, base + out.place(d, at)
                        left.append(a)
                        right.append(b)
                        whys.append(why)
                        self.unions += union(a, b, why)
                self._ends.append(len(left))
        self._join_rows(fusion)
        self.rebuild()

    def _join_rows(self, fusion: Fusion) -> None:
        """Ragged axes are one where their offsets are one tensor, and so are their components."""
        first: dict[Owner, tuple[IterDomain, IterDomain]] = {}
        for e in fusion.exprs:
            for x in e.output.domain.exprs if e.op in ROWS else ():
                if not isinstance(x, RowPartition):
                    continue
                pair, cut = (x.component, x.ragged), e.inputs[1].definition
                offsets = cut.inputs[0] if cut is not None else e.inputs[1]
                for a, b in zip(first.setdefault(x.offsets, pair), pair, strict=True):
                    if a is not b:
                        self.map(a, b, ("rows", e, offsets, 0, (x,)))

    def stated(self, operand: int) -> Iterator[tuple[int, int]]:
        """The pairs of elements that the reads of an operand unite; operands are counted through the fusion."""
        begin, end = self._ends[operand - 1] if operand else 0, self._ends[operand]
        return zip(self._left[begin:end], self._right[begin:end], strict=True)

    def is_plain(self, e: TensorExpr) -> bool:
        """True where no two of the axes that an operation touches are in one group, but for those that it unites."""
        first, count = self.entered[e.output], len(self._plans.of(e.output).domains)
        groups = {*map(self.sets.find, range(first, first + count))}
        return e not in self._loose and len(groups) == count

    def without(self, left_out: Collection[tuple[int, int]], name: str) -> CongruenceClosure[IterDomain]:
        """The graph grown again without the unions of these pairs of elements."""
        made = self.without_unions(name)
        union = made.sets.union
        for a, b, why in zip(self._left, self._right, self._why, strict=True):
            if (a, b) not in left_out:
                made.unions += union(a, b, why)
        made.rebuild()
        return made


def build_exact(fusion: Fusion) -> DomainGraph:
    """Producer logical with consumer root axes, same position, never a broadcast with something else."""
    return DomainGraph("exact", fusion, ExactBuilder(fusion).build())


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
        silent = quiet | _adjacent_exprs(builder, groups, pairs)
        if silent != quiet:
            quiet = silent
            continue
        pairs, left_out = _without_groups(builder, groups, pairs, left_out)


def _once(t: Tensor) -> Iterator[tuple[DomainExpr, IterDomain, IterDomain]]:
    """Size-one pairs, one for each expression: of two axes of one element only one is the merged axis."""
    for x in own_exprs(t):
        for a, b, _ in transparent(x)[:1]:
            yield x, a, b


def _adjacent_exprs(builder: Builder, glued: set[int], pairs: Sequence[Transparent]) -> frozenset[int]:
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


def _without_groups(
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

    Merges and divisible splits are one relation here too. Loops ``shared`` only by coordinates are mapped as well.
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
