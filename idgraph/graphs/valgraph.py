"""ValGraph: which keys (axes, or axis and operation) are the same, closed under congruence of domain expressions.

Two domain expressions with equal attributes whose inputs are the same have the same outputs (forward), and the other
way round (backward). A merge maps backward only where the inner extents agree or one input is mapped already. Equal
attributes are equal expressions after simplification, so ``2*n`` and ``n + n`` are one attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar, cast

from idgraph.arith import Expr, simplify
from idgraph.errors import IndexingError
from idgraph.graphs.disjoint import DisjointSets
from idgraph.graphs.reasons import Explanation, Fact, Reason
from idgraph.ir.domains import DomainExpr, IterDomain, Merge, Split

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, eq=False)
class Group(Generic[K]):
    """Keys that are the same, in the order in which they entered the graph. Compare groups by identity.

    ``number`` is that of the first key: stable from run to run, not consecutive.
    """

    number: int
    keys: tuple[K, ...]

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)

    def __contains__(self, key: object) -> bool:
        return key in self.keys

    def __repr__(self) -> str:
        return "{" + ", ".join(map(key_text, self.keys)) + "}"


@dataclass(frozen=True, slots=True, eq=False)
class ExprGroup(Generic[K]):
    """Domain expressions that are the same, with the groups they read and make."""

    number: int
    exprs: tuple[DomainExpr, ...]
    inputs: tuple[Group[K], ...]
    outputs: tuple[Group[K], ...]

    @property
    def expr(self) -> DomainExpr:
        """The first of the expressions."""
        return self.exprs[0]

    def __repr__(self) -> str:
        return (
            f"{type(self.expr).__name__}({', '.join(map(repr, self.inputs))} -> {', '.join(map(repr, self.outputs))})"
        )


def key_text(key: object) -> str:
    """``t1.I3``, or ``(t1.I3, slice -> t1)`` for a key of the index graph."""
    if isinstance(key, tuple):
        parts = cast("tuple[object, ...]", key)
        return f"({', '.join(map(key_text, parts))})"
    label = getattr(key, "label", None)
    if isinstance(label, str):
        return label
    op, output = getattr(key, "op", None), getattr(key, "output", None)
    return f"{op} -> {output.name}" if output is not None else str(key)


@dataclass(slots=True)
class _Node:
    """One domain expression in a graph: the element numbers it reads and makes."""

    expr: DomainExpr
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    attributes: tuple[object, ...]


def canonical(attributes: Sequence[object]) -> tuple[object, ...]:
    """Attributes with every expression in normal form."""
    return tuple(simplify(a) if isinstance(a, Expr) else a for a in attributes)


def _attributes(e: DomainExpr) -> tuple[object, ...]:
    # Extents that the coordinates depend on belong to the signature: the split axis', the inner axis of a merge.
    match e:
        case Split():
            extra: tuple[object, ...] = (e.source.extent, e.inner.extent)
        case Merge():
            extra = ()
        case _:
            extra = (e.inputs[-1].extent,)
    return canonical((*e.attributes, *extra))


class GraphBuilder(Generic[K]):
    """Grows a ValGraph, closed under congruence after every step; `build` freezes it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sets = DisjointSets()
        self.ids: dict[K, int] = {}
        self.keys: list[K] = []
        self.unions = 0
        self._nodes: list[_Node] = []
        self._uses: dict[int, list[int]] = {}
        self._expr_parent: list[int] = []
        self._forward: dict[tuple[object, ...], int] = {}
        self._backward: dict[tuple[object, ...], int] = {}
        self._pending: list[tuple[int, int, Reason]] = []

    def fork(self, name: str) -> GraphBuilder[K]:
        """A copy to go on with: coarser graphs start from the exact one."""
        made: GraphBuilder[K] = GraphBuilder(name)
        made.sets, made.ids, made.keys, made.unions = self.sets.copy(), self.ids.copy(), self.keys.copy(), self.unions
        made._nodes, made._expr_parent = self._nodes.copy(), self._expr_parent.copy()
        made._uses = {k: v.copy() for k, v in self._uses.items()}
        made._forward, made._backward = self._forward.copy(), self._backward.copy()
        return made

    def add(self, key: K) -> int:
        """The number of a key, entering it if it is new."""
        found = self.ids.get(key)
        if found is None:
            found = self.ids[key] = self.sets.add()
            self.keys.append(key)
        return found

    def add_new(self, keys: Sequence[K]) -> int:
        """Enter keys known to be new; returns the first of their consecutive numbers."""
        first = self.sets.add_many(len(keys))
        self.ids.update(zip(keys, range(first, first + len(keys)), strict=True))
        self.keys.extend(keys)
        return first

    def add_expr(self, e: DomainExpr, key: Callable[[IterDomain], K]) -> None:
        """Enter a domain expression between the keys of its axes."""
        ins, outs = tuple(self.add(key(d)) for d in e.inputs), tuple(self.add(key(d)) for d in e.outputs)
        n = len(self._nodes)
        self._nodes.append(_Node(e, ins, outs, _attributes(e)))
        self._expr_parent.append(n)
        for x in dict.fromkeys(self.sets.find(x) for x in (*ins, *outs)):
            self._uses.setdefault(x, []).append(n)
        self._sign(n)
        if self._pending:
            self._drain()

    def map(self, a: K, b: K, why: Reason) -> None:
        """State that two keys are the same, and follow what that implies."""
        self.join(self.add(a), self.add(b), why)

    def join(self, a: int, b: int, why: Reason) -> None:
        """`map` for keys by number."""
        self._unite(a, b, why)
        if self._pending:
            self._drain()

    def same(self, a: K, b: K) -> bool:
        """True when the two are one already."""
        return self.sets.find(self.add(a)) == self.sets.find(self.add(b))

    def number(self, key: K) -> int:
        """The present representative of a key's group."""
        return self.sets.find(self.add(key))

    def members(self, key: K) -> list[K]:
        """Keys in one group with ``key`` at present."""
        return [self.keys[n] for n in self.sets.members(self.add(key))]

    def _drain(self) -> None:
        while self._pending:
            self._unite(*self._pending.pop())

    def _unite(self, a: int, b: int, why: Reason) -> None:
        sets = self.sets
        ra, rb = sets.find(a), sets.find(b)
        if ra == rb:
            return
        sets.union(a, b, why)
        self.unions += 1
        if not self._uses:
            return
        keep = sets.parent[ra]
        gone = rb if keep == ra else ra
        moved = self._uses.pop(gone, None)
        if moved:
            self._uses.setdefault(keep, []).extend(moved)
            for n in moved:
                self._sign(n)

    def _sign(self, n: int) -> None:
        """Look an expression up by its inputs and by its outputs; equal ones are merged."""
        node, find = self._nodes[n], self.sets.find
        ins, outs = tuple(map(find, node.ins)), tuple(map(find, node.outs))
        other = self._forward.setdefault((*node.attributes, ins), n)
        if other != n and find_expr(self._expr_parent, other) != find_expr(self._expr_parent, n):
            self._join(other, n, "congruence")
        for signature in self._backward_signatures(node, ins, outs):
            other = self._backward.setdefault(signature, n)
            if other != n and find_expr(self._expr_parent, other) != find_expr(self._expr_parent, n):
                self._join(other, n, "backward")

    def _backward_signatures(
        self, node: _Node, ins: tuple[int, ...], outs: tuple[int, ...]
    ) -> Iterator[tuple[object, ...]]:
        e = node.expr
        if isinstance(e, Merge):
            inner = simplify(e.inner.extent)
            if inner != 0:
                yield ("inner extent", inner, outs)
            # One input mapped: the same total and the same part leave the same other part.
            yield ("outer", simplify(e.outer.extent), ins[0], outs)
            yield ("inner", inner, ins[1], outs)
        else:
            yield (*node.attributes, outs)

    def _join(self, a: int, b: int, because: str) -> None:
        first, second = self._nodes[a], self._nodes[b]
        if because == "backward" and isinstance(first.expr, Merge) and isinstance(second.expr, Merge):
            pairs = ((first.expr.outer, second.expr.outer), (first.expr.inner, second.expr.inner))
            if any(x.extent != y.extent and simplify(x.extent - y.extent) != 0 for x, y in pairs):
                return
        self._expr_parent[find_expr(self._expr_parent, b)] = find_expr(self._expr_parent, a)
        why = Reason("congruence" if because == "congruence" else "backward", steps=(first.expr, second.expr))
        for x, y in zip((*first.ins, *first.outs), (*second.ins, *second.outs), strict=True):
            self._pending.append((x, y, why))

    def build(self) -> ValGraph[K]:
        """The finished, immutable graph."""
        return ValGraph(self.name, self.sets, self.ids, self.keys, self._nodes, self._expr_parent)


def find_expr(parent: list[int], n: int) -> int:
    """Representative of an expression, with path halving."""
    while parent[n] != n:
        parent[n] = parent[parent[n]]
        n = parent[n]
    return n


class ValGraph(Generic[K]):
    """An immutable view of groups, expression groups and reasons; group objects are made when asked for."""

    def __init__(
        self,
        name: str,
        sets: DisjointSets,
        ids: dict[K, int],
        keys: list[K],
        nodes: list[_Node],
        expr_parent: list[int],
    ) -> None:
        self.name = name
        self._sets = sets
        self._ids = ids
        self._keys = keys
        self._nodes = nodes
        self._expr_parent = expr_parent
        self._made: dict[int, Group[K]] = {}

    def number(self, key: K) -> int:
        """A number that two keys share exactly when they are the same; raises `IndexingError` for an unknown key."""
        n = self._ids.get(key)
        if n is None:
            raise IndexingError(
                f"{key_text(key)} is not in the {self.name} graph",
                hint="ask for axes of tensors of this fusion, scheduled before the graph was built",
            )
        return self._sets.find(n)

    def numbered(self, number: int) -> Group[K]:
        """The group of a number."""
        found = self._made.get(number)
        if found is None:
            members = sorted(self._sets.members(number))
            found = self._made[number] = Group(members[0], tuple(self._keys[m] for m in members))
        return found

    @cached_property
    def groups(self) -> tuple[Group[K], ...]:
        """All groups, in the order in which their first key entered."""
        find = self._sets.find
        return tuple(self.numbered(n) for n in dict.fromkeys(find(x) for x in range(len(self._keys))))

    @cached_property
    def expr_groups(self) -> tuple[ExprGroup[K], ...]:
        """All groups of equal domain expressions."""
        by_expr: dict[int, list[_Node]] = {}
        for n, node in enumerate(self._nodes):
            by_expr.setdefault(find_expr(self._expr_parent, n), []).append(node)
        find = self._sets.find
        return tuple(
            ExprGroup(
                number,
                tuple(dict.fromkeys(m.expr for m in members)),
                tuple(self.numbered(find(x)) for x in members[0].ins),
                tuple(self.numbered(find(x)) for x in members[0].outs),
            )
            for number, members in enumerate(by_expr.values())
        )

    @cached_property
    def _about(self) -> tuple[dict[int, list[ExprGroup[K]]], dict[int, list[ExprGroup[K]]]]:
        definitions: dict[int, list[ExprGroup[K]]] = {}
        uses: dict[int, list[ExprGroup[K]]] = {}
        for x in self.expr_groups:
            for g in dict.fromkeys(g.number for g in x.outputs):
                definitions.setdefault(g, []).append(x)
            for g in dict.fromkeys(g.number for g in x.inputs):
                uses.setdefault(g, []).append(x)
        return definitions, uses

    def lookup(self, key: K) -> Group[K]:
        """The group of a key; raises `IndexingError` for a key that is not in this graph."""
        return self.numbered(self.number(key))

    def holds(self, key: K) -> bool:
        """True of a key of this graph."""
        return key in self._ids

    def same(self, a: K, b: K) -> bool:
        """True when two keys are in one group."""
        return self.number(a) == self.number(b)

    def definitions(self, group: Group[K]) -> tuple[ExprGroup[K], ...]:
        """Expression groups that make this group."""
        return tuple(self._about[0].get(group.number, ()))

    def uses(self, group: Group[K]) -> tuple[ExprGroup[K], ...]:
        """Expression groups that read this group."""
        return tuple(self._about[1].get(group.number, ()))

    def chain(self, a: K, b: K) -> Explanation:
        """Why two keys are the same: the facts on the path between them in the proof forest."""
        if not self.same(a, b):
            return Explanation(False, (), self._parting(a, b))
        facts: list[Fact] = []
        for x, y, why in self._sets.path(self._ids[a], self._ids[b]):
            left, right = self._keys[x], self._keys[y]
            facts.append(Fact(left, right, why, f"{key_text(left)} = {key_text(right)}: {why}"))
        return Explanation(True, tuple(facts))

    def _parting(self, a: K, b: K) -> str:
        mine, theirs = self.lookup(a), self.lookup(b)
        for x in self.definitions(mine):
            for y in self.definitions(theirs):
                if type(x.expr) is type(y.expr):
                    for p, q in zip(x.inputs, y.inputs, strict=True):
                        if p is not q:
                            return (
                                f"{key_text(a)} and {key_text(b)} are not the same: {x.expr} and {y.expr} part at "
                                f"{key_text(p.keys[0])} and {key_text(q.keys[0])}"
                            )
                    return (
                        f"{key_text(a)} and {key_text(b)} are not the same: made of the same axes by {x.expr} and "
                        f"{y.expr}, which differ"
                    )
        return f"{key_text(a)} and {key_text(b)} are not the same: no operation maps {mine} to {theirs}"
