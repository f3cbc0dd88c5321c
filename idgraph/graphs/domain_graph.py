"""Graphs whose keys are axes: the exact graph, and what every such graph can be asked."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from idgraph.errors import IndexingError, short_repr, shortened, user_line
from idgraph.graphs.builder import CongruenceClosure
from idgraph.graphs.forms import TensorTemplates
from idgraph.graphs.graph_view import GraphView
from idgraph.graphs.numbering import KeyList, key_text
from idgraph.graphs.reasons import Explanation
from idgraph.graphs.valgraph import Group, ValGraph
from idgraph.ir import Fusion, IterDomain, Mapped, Tensor, TensorExpr


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
        return self.graph.lookup(_axis(domain))

    def __contains__(self, domain: object) -> bool:
        return isinstance(domain, IterDomain) and self.graph.holds(domain)

    @shortened
    def mapped(self, a: IterDomain, b: IterDomain) -> bool:
        """True when the two axes are the same."""
        return self.graph.same(_axis(a), _axis(b))

    @shortened
    def explain(self, a: IterDomain, b: IterDomain) -> Explanation:
        """Why two axes are the same (a chain of facts), or where they part.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t0 = f.input("t0", shape=(4, 8))
        >>> t1 = f.output(t0.T)
        >>> m = ig.IdModel(f)
        >>> print(m.exact.explain(t0.logical[1], t1.logical[0]))
        t0.I1 = t1.I3: permute -> t1 reads axis 1 of t0 at the same coordinate (<doctest ...)
        """
        found = self.graph.chain(_axis(a), _axis(b))
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


def _axis(d: IterDomain) -> IterDomain:
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
        self.rebuild()

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
