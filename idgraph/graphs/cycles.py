"""Cycles of a graph of groups: found by one strongly-connected-components pass, each with a witness and a kind.

The kind is decided by composing the coordinate maps once around: *identity* gives the coordinate back, *shift* adds a
constant, *reorder* does anything else. Axes that enter the cycle from the side are free variables of the composition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from idgraph.arith import Expr, Proof, as_expr, prove_equal, simplify, symbol
from idgraph.errors import SourceLine
from idgraph.graphs.coordinates import forward, transparent
from idgraph.graphs.valgraph import ExprGroup, Group, ValGraph
from idgraph.ir import IterDomain, Tensor, TensorExpr
from idgraph.ir.domains import DomainExpr, Roll

K = TypeVar("K")
CycleKind = Literal["identity", "shift", "reorder"]


@dataclass(frozen=True, slots=True)
class Cycle(Generic[K]):
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


def axis_of(key: object) -> IterDomain:
    """The axis of a key: the key itself, or the first part of an index-graph key."""
    if isinstance(key, IterDomain):
        return key
    if isinstance(key, tuple):
        first: object = key[0]  # pyright: ignore[reportUnknownVariableType]
        if isinstance(first, IterDomain):
            return first
    raise TypeError(f"{key!r} is no key of a domain graph")


def e_tensor(e: DomainExpr) -> str:
    """``of t3 = cat(...) at file:line`` for a domain expression on the root-to-logical path of a tensor."""
    t = e.outputs[0].tensor
    if t is None:
        return ""
    if t.definition is not None and any(x is e for x in t.domain.exprs):
        where = f" at {t.source_line}" if t.source_line else ""
        return f"of {t.name} = {t.definition.op}(...){where}"
    return f"of the schedule of {t.name}"


def components(graph: ValGraph[K]) -> list[list[Group[K]]]:
    """Strongly connected components with a cycle, by an iterative Tarjan pass; edges run from inputs to outputs."""
    after: dict[int, list[int]] = {}
    named = {g.number: g for x in graph.expr_groups for g in (*x.inputs, *x.outputs)}
    loops: set[int] = set()
    for x in graph.expr_groups:
        for a in x.inputs:
            for b in x.outputs:
                after.setdefault(a.number, []).append(b.number)
                after.setdefault(b.number, [])
                if a is b and not transparent(x.expr):
                    loops.add(a.number)
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    on: set[int] = set()
    stack: list[int] = []
    found: list[list[Group[K]]] = []
    for root in after:
        if root in order:
            continue
        work = [(root, 0)]
        while work:
            node, at = work.pop()
            if at == 0:
                order[node] = low[node] = len(order)
                stack.append(node)
                on.add(node)
            pushed = False
            for k in range(at, len(after[node])):
                to = after[node][k]
                if to not in order:
                    work += [(node, k + 1), (to, 0)]
                    pushed = True
                    break
                if to in on:
                    low[node] = min(low[node], order[to])
            if pushed:
                continue
            if low[node] == order[node]:
                members: list[int] = []
                while True:
                    top = stack.pop()
                    on.discard(top)
                    members.append(top)
                    if top == node:
                        break
                if len(members) > 1 or node in loops:
                    found.append([named[m] for m in sorted(members)])
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[node])
    return sorted(found, key=lambda members: members[0].number)


def find_cycles(graph: ValGraph[K]) -> tuple[Cycle[K], ...]:
    """Every elementary cause once: a shortest cycle through each expression that stands on one, without repeats."""
    found: list[Cycle[K]] = []
    for members in components(graph):
        inside = {g.number for g in members}
        edges = [
            x
            for x in graph.expr_groups
            if any(g.number in inside for g in x.inputs) and any(g.number in inside for g in x.outputs)
        ]
        covered: set[int] = set()
        for x in edges:
            # A step that keeps its axis, beside one of a single element, is no cause of a cycle.
            if x.number in covered or (transparent(x.expr) and set(x.inputs) & set(x.outputs)):
                continue
            way = _shortest_through(x, edges, inside)
            covered.update(step.number for _, step, _ in way)
            found.append(_cycle(graph, way))
    return tuple(found)


def _shortest_through(
    first: ExprGroup[K], edges: Sequence[ExprGroup[K]], inside: set[int]
) -> list[tuple[Group[K], ExprGroup[K], Group[K]]]:
    """The shortest way from an output of ``first`` back to one of its inputs, ``first`` in front."""
    by_input: dict[int, list[ExprGroup[K]]] = {}
    for x in edges:
        for g in dict.fromkeys(g for g in x.inputs if g.number in inside):
            by_input.setdefault(g.number, []).append(x)
    goals = {g.number for g in first.inputs if g.number in inside}
    before: dict[int, tuple[Group[K], ExprGroup[K], Group[K]] | None] = {}
    queue: deque[Group[K]] = deque()
    for g in first.outputs:
        if g.number in inside and g.number not in before:
            before[g.number] = None
            queue.append(g)
    while queue:
        g = queue.popleft()
        if g.number in goals:
            way: list[tuple[Group[K], ExprGroup[K], Group[K]]] = []
            at = before[g.number]
            start = g
            while at is not None:
                way.insert(0, at)
                start = at[0]
                at = before[start.number]
            return [(g, first, start), *way]
        for x in by_input.get(g.number, []):
            for to in x.outputs:
                if to.number in inside and to.number not in before:
                    before[to.number] = (g, x, to)
                    queue.append(to)
    raise AssertionError("an edge inside a strongly connected component stands on a cycle")


def _known_sides(graph: ValGraph[K], start: Group[K], c: Expr) -> dict[int, Expr]:
    """Coordinates that follow forward from the start's alone: what a split leaves beside the way is known too."""
    known = {start.number: c}
    pending = [start]
    while pending:
        for x in graph.uses(pending.pop()):
            if all(g.number in known for g in x.inputs):
                values = forward(x.expr, tuple(known[g.number] for g in x.inputs))
                for g, v in zip(x.outputs, values, strict=True):
                    if g.number not in known:
                        known[g.number] = simplify(v)
                        pending.append(g)
    return known


def _cycle(graph: ValGraph[K], way: list[tuple[Group[K], ExprGroup[K], Group[K]]]) -> Cycle[K]:
    start = way[0][0]
    c = symbol("c", 0, axis_of(start.keys[0]).extent - 1)
    sides = _known_sides(graph, start, c)
    value: Expr = c
    for source, step, to in way:
        inputs: list[Expr] = []
        taken = False
        for g in step.inputs:
            if g is source and not taken:
                inputs.append(value)
                taken = True
            else:
                extent = axis_of(g.keys[0]).extent
                inputs.append(sides.setdefault(g.number, symbol(f"side{g.number}", 0, extent - 1)))
        value = simplify(forward(step.expr, tuple(inputs))[step.outputs.index(to)])
    kind, shift, modulus = _classify(value, c, [s.expr for _, s, _ in way])
    exprs = tuple(_told(s) for _, s, _ in way)
    closing = _closing(graph, way)
    lines = dict.fromkeys(t.source_line for e in exprs if (t := e.outputs[0].tensor) is not None and t.source_line)
    if closing is not None and closing.source_line is not None:
        lines[closing.source_line] = None
    return Cycle(graph.name, kind, shift, modulus, value, tuple(g for g, _, _ in way), exprs, closing, tuple(lines))


def _told(step: ExprGroup[K]) -> DomainExpr:
    """Of equal expressions one that an operation made rather than a schedule: the report names its line."""
    for e in step.exprs:
        t = e.outputs[0].tensor
        if t is not None and any(x is e for x in t.domain.exprs):
            return e
    return step.expr


def _classify(net: Expr, c: Expr, exprs: Sequence[DomainExpr]) -> tuple[CycleKind, Expr | None, Expr | None]:
    zero = as_expr(0)
    moved = simplify(net - c)
    if moved == 0:
        return "identity", zero, None
    if c not in moved.symbols and not any(str(s).startswith("side") for s in moved.symbols):
        return "shift", moved, None
    if isinstance(prove_equal(net, c), Proof):
        return "identity", zero, None
    turns = [e for e in exprs if isinstance(e, Roll)]
    if turns:
        n, total = turns[0].source.extent, zero
        for e in turns:
            total = total + e.shift
        total = simplify(total % n)
        if isinstance(prove_equal(net, (c + total) % n), Proof):
            return "shift", total, n
    return "reorder", None, None


def _closing(graph: ValGraph[K], way: list[tuple[Group[K], ExprGroup[K], Group[K]]]) -> TensorExpr | None:
    """The operation whose mapping joined the two ends: the latest one on the chains inside the cycle's groups."""
    latest: TensorExpr | None = None
    latest_at = -1
    for k, (source, step, _) in enumerate(way):
        _, before, _ = way[k - 1]
        made = [key for key in source if any(axis_of(key) in e.outputs for e in before.exprs)]
        read = [key for key in source if any(axis_of(key) in e.inputs for e in step.exprs)]
        if not made or not read:
            continue
        for fact in graph.chain(made[0], read[0]).facts:
            e = fact.reason.expr
            if e is None:
                continue
            exprs = e.output.fusion.exprs
            at = exprs.index(e)
            if at > latest_at:
                latest, latest_at = e, at
    return latest
