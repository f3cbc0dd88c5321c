"""Cycles of a graph of groups: found by one strongly-connected-components pass, each with a witness and a kind.

The kind is decided by composing the coordinate maps once around: *identity* gives the coordinate back, *shift* adds a
constant, *reorder* does anything else. Axes that enter the cycle from the side are free variables of the composition.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Generic, TypeVar

from idgraph.arith import Expr, simplify
from idgraph.display import Printed
from idgraph.errors import SourceLine
from idgraph.graphs.keys import axis_of
from idgraph.graphs.rounds import Composer, CycleKind, Round
from idgraph.graphs.trees import Step
from idgraph.graphs.valgraph import Group, ValGraph
from idgraph.graphs.ways import Net, Way, find_ways
from idgraph.ir import IterDomain, Tensor, TensorExpr
from idgraph.ir.domains import DomainExpr

K = TypeVar("K", bound=Hashable)


class Cycle(Printed, Generic[K]):
    """One way around: ``groups[i]`` is read by ``exprs[i]``, which makes ``groups[i + 1]`` (the last makes the first).

    ``shift`` is the coordinate after going once round ``exprs`` in their order, minus before (modulo ``modulus`` where
    a roll wraps); None for a reorder. ``net`` is the coordinate after one round as an expression of ``c``, the
    coordinate before. All of it is worked out when first asked for: many long cycles may share most of their steps.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.input("t", shape=(8,))
    >>> out = f.output(t + ig.pad(t, (3, -3)))
    >>> [(c.kind, c.shift, c.net, c.closing.op) for c in ig.IdModel(f).exact.cycles()]
    [('shift', 3, c + 3, 'add')]
    """

    def __init__(self, finder: _Finder[K], way: Way) -> None:
        self._finder = finder
        self._way = way

    @property
    def graph(self) -> str:
        """The name of the graph."""
        return self._finder.graph.name

    @cached_property
    def _steps(self) -> list[Step]:
        return self._way.steps()

    @cached_property
    def _round(self) -> Round:
        adds = self._way.adds
        if adds is None:
            return self._finder.composer.around(self._steps)
        return self._finder.composer.translated(self._steps[0].source, adds)

    @cached_property
    def shift(self) -> Expr | None:
        """The coordinate after once around, minus before; None for a reorder."""
        adds = self._way.adds
        return self._round.shift if adds is None else simplify(adds)

    @property
    def kind(self) -> CycleKind:
        """Whether once around gives the coordinate back, adds to it, or does anything else."""
        if self._way.adds is None:
            return self._round.kind
        return "identity" if self.shift == 0 else "shift"

    @property
    def modulus(self) -> Expr | None:
        """The extent around which ``shift`` wraps, where a roll does so."""
        return None if self._way.adds is not None else self._round.modulus

    @property
    def net(self) -> Expr:
        """The coordinate after one round as an expression of ``c``, the coordinate before."""
        return self._round.net

    @cached_property
    def groups(self) -> tuple[Group[K], ...]:
        """The groups on the way, the first of them read by the first expression."""
        return tuple(self._finder.graph.numbered(step.source) for step in self._steps)

    @cached_property
    def exprs(self) -> tuple[DomainExpr, ...]:
        """The expressions on the way."""
        return tuple(self._finder.told(step.node) for step in self._steps)

    @cached_property
    def closing(self) -> TensorExpr | None:
        """The operation whose mapping closes the cycle."""
        return self._finder.closing(self._steps)

    @cached_property
    def lines(self) -> tuple[SourceLine, ...]:
        """The user's lines behind the expressions, then that of the closing operation."""
        made = (e.outputs[0].tensor for e in self.exprs)
        lines = dict.fromkeys(t.source_line for t in made if t is not None and t.source_line)
        if self.closing is not None and self.closing.source_line is not None:
            lines[self.closing.source_line] = None
        return tuple(lines)

    @property
    def domains(self) -> tuple[IterDomain, ...]:
        """The axes that the expressions on the cycle read and make, in order."""
        return tuple(dict.fromkeys(d for e in self.exprs for d in (*e.inputs, *e.outputs)))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor with an axis on the cycle, in the order of the groups."""
        keyed = (axis_of(k).tensor for g in self.groups for k in g)
        return tuple(dict.fromkeys(t for t in keyed if t is not None))

    @property
    def changes_index(self) -> bool:
        """True of a cycle that a search over the graph must not run through."""
        return self.kind != "identity"

    def __repr__(self) -> str:
        return f"Cycle({self.kind} in the {self.graph} graph, {self._way.sums.steps} expressions)"

    def __str__(self) -> str:
        head = f"{self.kind} cycle in the {self.graph} graph"
        if self.kind == "shift":
            wrap = f" modulo {self.modulus}" if self.modulus is not None else ""
            head += f": once around adds {self.shift}{wrap} to the coordinate"
        elif self.kind == "reorder":
            head += f": once around takes coordinate c to {self.net}"
        lines = [head]
        lines += [f"  {e}" + (f"   {e_tensor(e)}" if e_tensor(e) else "") for e in self.exprs]
        if self.closing is not None:
            where = f" ({self.closing.source_line})" if self.closing.source_line else ""
            lines.append(f"  closed by {self.closing!r}{where}: it maps the two ends onto each other")
        if self.changes_index:
            lines.append("  the index graph keeps one node for each axis and operation, so no index runs through it")
        return "\n".join(lines)


def e_tensor(e: DomainExpr) -> str:
    """``of t3 = cat(...) at file:line`` for a domain expression on the root-to-logical path of a tensor."""
    t = e.outputs[0].tensor
    if t is None:
        return ""
    if t.definition is not None and any(x is e for x in t.domain.exprs):
        where = f" at {t.source_line}" if t.source_line else ""
        return f"of {t.name} = {t.definition.op}(...){where}"
    return f"of the schedule of {t.name}"


def find_cycles(graph: ValGraph[K]) -> tuple[Cycle[K], ...]:
    """Every elementary cause once: a cycle through each expression that stands on one, without repeats."""
    net = Net(graph.nodes, graph.find)
    found = find_ways(net)
    finder = _Finder(graph, net)
    return tuple(Cycle(finder, way) for way in found)


class _Finder(Generic[K]):
    """What the cycles of one graph share."""

    def __init__(self, graph: ValGraph[K], net: Net) -> None:
        self.graph = graph
        self.composer = Composer(graph, net)
        self._net = net
        self._order: dict[TensorExpr, int] = {}

    def told(self, node: int) -> DomainExpr:
        """Of equal expressions one that an operation made rather than a schedule: the report names its line."""
        for n in self._net.equal[node]:
            e = self.graph.nodes.form[n].expr
            t = e.outputs[0].tensor
            if t is not None and any(x is e for x in t.domain.exprs):
                return e
        return self.graph.nodes.form[node].expr

    def closing(self, way: Sequence[Step]) -> TensorExpr | None:
        """The operation whose mapping joined the two ends: the latest one on the chains inside the cycle's groups."""
        latest: TensorExpr | None = None
        nodes, find, order = self.graph.nodes, self.graph.find, self._order
        for k, step in enumerate(way):
            made = next(x for x in nodes.outs[way[k - 1].node] if find(x) == step.source)
            read = next(x for x in nodes.ins[step.node] if find(x) == step.source)
            for _, _, why in self.graph.path(made, read):
                e = why[1]
                if isinstance(e, int) or e is None:
                    continue
                if not order:
                    order.update((x, n) for n, x in enumerate(e.output.fusion.exprs))
                if latest is None or order[e] > order[latest]:
                    latest = e
        return latest
