"""Cycles of a graph of groups: found by one strongly-connected-components pass, each with a witness and a kind.

The kind is decided by composing the coordinate maps once around: *identity* gives the coordinate back, *shift* adds a
constant, *reorder* does anything else. Axes that enter the cycle from the side are free variables of the composition.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from idgraph.arith import Expr
from idgraph.display import Printed
from idgraph.errors import SourceLine
from idgraph.graphs.rounds import Composer, CycleKind, axis_of
from idgraph.graphs.valgraph import Group, ValGraph
from idgraph.graphs.ways import Net, Way, find_ways
from idgraph.ir import IterDomain, Tensor, TensorExpr
from idgraph.ir.domains import DomainExpr

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Cycle(Printed, Generic[K]):
    """One way around: ``groups[i]`` is read by ``exprs[i]``, which makes ``groups[i + 1]`` (the last makes the first).

    ``shift`` is the coordinate after going once round ``exprs`` in their order, minus before (modulo ``modulus`` where
    a roll wraps); None for a reorder. ``net`` is the coordinate after one round as an expression of ``c``, the
    coordinate before.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.input("t", shape=(8,))
    >>> out = f.output(t + ig.pad(t, (3, -3)))
    >>> [(c.kind, c.shift, c.net, c.closing.op) for c in ig.IdModel(f).exact.cycles()]
    [('shift', 3, c + 3, 'add')]
    """

    graph: str
    kind: CycleKind
    shift: Expr | None
    modulus: Expr | None
    net: Expr
    groups: tuple[Group[K], ...]
    exprs: tuple[DomainExpr, ...]
    closing: TensorExpr | None
    lines: tuple[SourceLine, ...]

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
    if not found:
        return ()
    composer = Composer(graph, net)
    order: dict[TensorExpr, int] = {}
    return tuple(_cycle(graph, net, composer, way, order) for way in found)


def _cycle(graph: ValGraph[K], net: Net, composer: Composer, way: Way, order: dict[TensorExpr, int]) -> Cycle[K]:
    made = composer.around(way)
    exprs = tuple(_told(graph, net, step.node) for step in way)
    closing = _closing(graph, way, order)
    lines = dict.fromkeys(t.source_line for e in exprs if (t := e.outputs[0].tensor) is not None and t.source_line)
    if closing is not None and closing.source_line is not None:
        lines[closing.source_line] = None
    groups = tuple(graph.numbered(step.source) for step in way)
    return Cycle(graph.name, made.kind, made.shift, made.modulus, made.net, groups, exprs, closing, tuple(lines))


def _told(graph: ValGraph[K], net: Net, node: int) -> DomainExpr:
    """Of equal expressions one that an operation made rather than a schedule: the report names its line."""
    for n in net.equal[node]:
        e = graph.nodes.form[n].expr
        t = e.outputs[0].tensor
        if t is not None and any(x is e for x in t.domain.exprs):
            return e
    return graph.nodes.form[node].expr


def _closing(graph: ValGraph[K], way: Way, order: dict[TensorExpr, int]) -> TensorExpr | None:
    """The operation whose mapping joined the two ends: the latest one on the chains inside the cycle's groups."""
    latest: TensorExpr | None = None
    nodes, find = graph.nodes, graph.find
    for k, step in enumerate(way):
        made = next(x for x in nodes.outs[way[k - 1].node] if find(x) == step.source)
        read = next(x for x in nodes.ins[step.node] if find(x) == step.source)
        for _, _, why in graph.path(made, read):
            e = why[1]
            if isinstance(e, int) or e is None:
                continue
            if not order:
                order.update((x, n) for n, x in enumerate(e.output.fusion.exprs))
            if latest is None or order[e] > order[latest]:
                latest = e
    return latest
