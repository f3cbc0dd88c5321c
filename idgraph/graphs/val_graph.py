"""ValGraph: which keys (axes, or axis and operation) are the same, and why; see `idgraph.graphs.congruence_closure`
for how.

A graph is integers in arrays. Groups, groups of expressions and their keys are objects made when somebody looks at
them, and live as long as somebody holds them: listing a graph leaves nothing for a garbage collector to walk through.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, Generic, TypeVar, cast, overload
from weakref import WeakValueDictionary

from idgraph.errors import IndexingError, user_line
from idgraph.graphs.expr_nodes import ENodes
from idgraph.graphs.proof import (
    ANY,
    Equal,
    Explanation,
    Fact,
    LabeledEdge,
    Reason,
    Reasons,
    Why,
    distinct_axes_of_one_tensor,
    first_divergence,
    unmapped_neighbors,
)
from idgraph.graphs.signature import Keys, axis_of, key_text
from idgraph.graphs.union_find import UnionFind
from idgraph.ir.fusion import tensor_of
from idgraph.ir.iter_domain import DomainExpr

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
_LAST = -1


class _Weak:
    """A weak reference may hold it: `weakref_slot` of a generic dataclass adds none on Python 3.12."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True, eq=False)
class Group(_Weak, Generic[K]):
    """Keys that are the same, in the order in which they entered the graph. Compare groups by identity.

    ``number`` is that of the first key: stable from run to run, not consecutive.
    """

    number: int
    graph: ValGraph[K] = field(repr=False)
    _listed: tuple[K, ...] | None = field(default=None, init=False, repr=False)

    @property
    def keys(self) -> tuple[K, ...]:
        """The keys, listed when first asked for."""
        found = self._listed
        if found is None:
            found = tuple(self.graph.keys_of(self.number))
            object.__setattr__(self, "_listed", found)
        return found

    @property
    def first(self) -> K:
        """The key that entered first."""
        return self.graph.key_at(self.number)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys)

    def __len__(self) -> int:
        return self.graph.size_of(self.number)

    def __contains__(self, key: object) -> bool:
        return any(type(k) is type(key) for k in self.keys) and key in self.keys

    def __repr__(self) -> str:
        return "{" + ", ".join(map(key_text, self.keys)) + "}"


@dataclass(frozen=True, slots=True, eq=False)
class ExprGroup(_Weak, Generic[K]):
    """Domain expressions that are the same, with the groups they read and make. Compare by identity."""

    number: int
    graph: ValGraph[K] = field(repr=False)

    @property
    def expr(self) -> DomainExpr:
        """The first of the expressions."""
        return self.graph.nodes.form[self.number].expr

    @property
    def exprs(self) -> tuple[DomainExpr, ...]:
        """All of them, in the order in which they entered the graph."""
        nodes = self.graph.nodes
        return tuple(dict.fromkeys(nodes.form[n].expr for n in nodes.equal(self.number)))

    @property
    def inputs(self) -> tuple[Group[K], ...]:
        """The groups they read."""
        return tuple(map(self.graph.group_of, self.graph.nodes.ins[self.number]))

    @property
    def outputs(self) -> tuple[Group[K], ...]:
        """The groups they make."""
        return tuple(map(self.graph.group_of, self.graph.nodes.outs[self.number]))

    def __repr__(self) -> str:
        return (
            f"{type(self.expr).__name__}({', '.join(map(repr, self.inputs))} -> {', '.join(map(repr, self.outputs))})"
        )


class LazySequence(Sequence[T]):
    """Objects by number, each made when it is looked at; reads like a tuple of them."""

    __slots__ = ("_make", "_numbers")

    def __init__(self, numbers: Sequence[int], make: Callable[[int], T]) -> None:
        self._numbers = numbers
        self._make = make

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[T]:
        return map(self._make, self._numbers)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        if isinstance(at, slice):
            return tuple(map(self._make, self._numbers[at]))
        return self._make(self._numbers[at])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LazySequence):
            return self._make == cast("LazySequence[object]", other)._make  # the same method of the same graph
        return isinstance(other, tuple) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(self._make)

    def __repr__(self) -> str:
        return repr(tuple(self))


def _short(group: Group[Any]) -> str:
    """A group with at most four of its keys."""
    shown = ", ".join(map(key_text, islice(group.graph.keys_of(group.number), 4)))
    return "{" + shown + (f" and {len(group) - 4} more" if len(group) > 4 else "") + "}"


def _line_of_expr(x: DomainExpr) -> str:
    t = tensor_of(x.outputs[0])
    if t is None or not any(e is x for e in t.domain.exprs):
        return f" ({x.line})" if x.line is not None else ""
    return f" of {t.name}" + (f" ({t.source_line})" if t.source_line else "")


class AdjacencyLists:
    """For each group, by number, the groups of expressions that have it on one side: chains through two arrays."""

    __slots__ = ("_after", "_head", "_node")

    def __init__(self, firsts: array[int], groups_of: Callable[[int], Sequence[int]]) -> None:
        self._head: dict[int, int] = {}
        self._node, self._after = array("q"), array("q")
        for n in reversed(firsts):
            for g in dict.fromkeys(groups_of(n)):
                self._after.append(self._head.get(g, _LAST))
                self._head[g] = len(self._node)
                self._node.append(n)

    def of(self, group: int) -> Iterator[int]:
        """The first expression of each, in the order in which they entered."""
        at = self._head.get(group, _LAST)
        while at != _LAST:
            yield self._node[at]
            at = self._after[at]


class ValGraph(Generic[K]):
    """An immutable view of groups, expression groups and reasons; group objects are made when asked for."""

    def __init__(
        self, name: str, sets: UnionFind, keys: Keys[K], nodes: ENodes, reasons: Reasons, hidden: Sequence[K] = ()
    ) -> None:
        self.name = name
        self.nodes = nodes
        self._sets = sets
        self._keys = keys
        self._reasons = reasons
        self._hidden = hidden
        # One object for a group as long as anybody holds it, so that identity tells groups apart.
        self._made: WeakValueDictionary[int, Group[K]] = WeakValueDictionary()
        self._made_exprs: WeakValueDictionary[int, ExprGroup[K]] = WeakValueDictionary()

    def find(self, element: int) -> int:
        """The number of the group of an element that an expression reads or makes."""
        return self._sets.find(element)

    def key_number(self, key: K) -> int:
        """The number of a key itself; raises `IndexingError` for an unknown key."""
        n = self._known(key)
        if n is None:
            raise IndexingError(
                f"{key_text(key)} is not in the {self.name} graph",
                where=user_line(),
                hint="ask for axes of tensors of this fusion; after a schedule step ask a new graph: ig.IdModel(f)",
            )
        return n

    def _known(self, key: K) -> int | None:
        try:
            found = self._keys.number(key)
        except TypeError:  # what cannot be hashed, or is a key of another kind of graph, is not a key of this one
            return None
        if found is None and key in self._hidden:  # as an explanation names it
            return len(self._keys) + self._hidden.index(key)
        return found

    def _at(self, number: int) -> K:
        shown = len(self._keys)
        return self._keys.at(number) if number < shown else self._hidden[number - shown]

    def number(self, key: K) -> int:
        """A number that two keys share exactly when they are the same; raises `IndexingError` for an unknown key."""
        return self._sets.find(self.key_number(key))

    # groups -------------------------------------------------------------------------------------------------------

    @cached_property
    def _firsts(self) -> dict[int, int]:
        """For the representative of each group its first key."""
        shown = len(self._keys)
        roots = self._sets.roots()
        # The last one entered for a representative stays.
        return dict(zip(reversed(roots[:shown]), range(shown - 1, -1, -1), strict=True))

    @cached_property
    def _numbers(self) -> array[int]:
        """The numbers of all groups, rising."""
        return array("q", sorted(self._firsts.values()))

    @cached_property
    def _after(self) -> array[int]:
        """For each key the next one of its group."""
        shown = len(self._keys)
        parent, head = self._sets.roots(), dict[int, int]()
        after = array("q", [_LAST]) * shown
        for x in range(shown - 1, -1, -1):
            root = parent[x]
            after[x] = head.get(root, _LAST)
            head[root] = x
        return after

    def keys_of(self, number: int) -> Iterator[K]:
        """The keys of a group, by its number, in the order in which they entered."""
        return map(self._keys.at, self._chain(number))

    def _chain(self, number: int) -> Iterator[int]:
        after = self._after
        while number != _LAST:
            yield number
            number = after[number]

    def key_at(self, number: int) -> K:
        """The key of a number."""
        return self._keys.at(number)

    def size_of(self, number: int) -> int:
        """The number of keys in a group, by the group's number."""
        return sum(1 for _ in self._chain(number)) if self._hidden else self._sets.size(number)

    def _group(self, number: int) -> Group[K]:
        found = self._made.get(number)
        if found is None:
            found = self._made[number] = Group(number, self)
        return found

    def _expr_group(self, number: int) -> ExprGroup[K]:
        found = self._made_exprs.get(number)
        if found is None:
            found = self._made_exprs[number] = ExprGroup(number, self)
        return found

    def numbered(self, number: int) -> Group[K]:
        """The group of a representative, as `find` and `number` tell it."""
        return self._group(self._firsts[number])

    def group_of(self, element: int) -> Group[K]:
        """The group of an element that an expression reads or makes."""
        return self._group(self._firsts[self._sets.find(element)])

    @property
    def groups(self) -> Sequence[Group[K]]:
        """All groups, in the order in which their first key entered; their number costs no object."""
        return LazySequence(self._numbers, self._group)

    @cached_property
    def _classes(self) -> array[int]:
        return self.nodes.representatives()

    @property
    def expr_groups(self) -> Sequence[ExprGroup[K]]:
        """All groups of equal domain expressions."""
        return LazySequence(self._classes, self._expr_group)

    def _numbers_of(self, elements: Sequence[int]) -> list[int]:
        return [self._firsts[self._sets.find(x)] for x in elements]

    @cached_property
    def _makers(self) -> AdjacencyLists:
        return AdjacencyLists(self._classes, lambda n: self._numbers_of(self.nodes.outs[n]))

    @cached_property
    def _readers(self) -> AdjacencyLists:
        return AdjacencyLists(self._classes, lambda n: self._numbers_of(self.nodes.ins[n]))

    def lookup(self, key: K) -> Group[K]:
        """The group of a key; raises `IndexingError` for a key that is not in this graph."""
        return self.numbered(self.number(key))

    def holds(self, key: K) -> bool:
        """True of a key of this graph."""
        return self._known(key) is not None

    def owns(self, group: Group[Any]) -> bool:
        """True of a group of this very graph."""
        return group.graph is self

    def same(self, a: K, b: K) -> bool:
        """True when two keys are in one group."""
        return self.number(a) == self.number(b)

    def definitions(self, group: Group[K]) -> tuple[ExprGroup[K], ...]:
        """Expression groups that make this group."""
        return tuple(map(self._expr_group, self._makers.of(group.number)))

    def uses(self, group: Group[K]) -> tuple[ExprGroup[K], ...]:
        """Expression groups that read this group."""
        return tuple(map(self._expr_group, self._readers.of(group.number)))

    # explanations -------------------------------------------------------------------------------------------------

    def chain(self, a: K, b: K) -> Explanation:
        """Why two keys are the same: the facts on the path between them in the proof forest."""
        if not self.same(a, b):
            return Explanation(False, (), self._parting(a, b))
        return Explanation(True, tuple(self._fact(*edge) for edge in self.path(self.key_number(a), self.key_number(b))))

    def path(self, a: int, b: int) -> list[tuple[int, int, Why]]:
        """The path between two elements in the proof forest, as elements and what made them one."""
        return [(x, y, self._reasons.why(n)) for x, y, n in self._sets.path(a, b)]

    @property
    def elements(self) -> int:
        """The number of elements: keys, and what shows in no group."""
        return len(self._sets)

    def proof_premises(self, x: int, y: int, why: Why) -> list[tuple[int, int]]:
        """The pairs of elements whose sameness one union rests on; none for what an operation says itself."""
        return [] if len(why) == 5 else self._premises(why, {x, y})

    def _fact(self, x: int, y: int, why: Why) -> Fact:
        at, nodes = self._at, self.nodes
        left, right = at(x), at(y)
        text = f"{key_text(left)} = {key_text(right)}: "
        if len(why) == 5:
            because, e, t, axis, steps = why
            if axis == ANY and t is not None:
                axis = next(p for d in map(axis_of, (left, right)) for p, own in enumerate(t.axes) if own is d)
            reason = Reason(because, e, t, axis, steps)
            return Fact(left, right, reason, f"{text}{reason}")
        because, m, n = why
        reason = Reason(because, steps=(nodes.form[m].expr, nodes.form[n].expr))
        premises = tuple((at(p), at(q)) for p, q in self._premises(why, {x, y}))
        since = " and ".join(f"{key_text(p)} = {key_text(q)}" for p, q in premises)
        return Fact(left, right, reason, f"{text}{reason}" + (f", since {since}" if since else ""), premises)

    def _premises(self, why: Equal, equated: set[int]) -> list[tuple[int, int]]:
        """The pairs of elements whose sameness made two expressions equal, and so ``equated`` their other sides."""
        nodes, (_, m, n) = self.nodes, why
        one, two = (nodes.ins[m], nodes.outs[m]), (nodes.ins[n], nodes.outs[n])
        if type(nodes.form[m].expr) is not type(nodes.form[n].expr):  # a merge and the split that undoes it
            two = two[::-1]
        ins, outs = (list(zip(*sides, strict=True)) for sides in zip(one, two, strict=True))
        # By pairs: one expression may read what the other makes, so an element alone does not tell the side.
        given = outs if any({p, q} == equated for p, q in ins) else ins
        return [(p, q) for p, q in given if p != q]

    def _parting(self, a: K, b: K) -> str:
        mine, theirs = self.lookup(a), self.lookup(b)
        head = f"{key_text(a)} and {key_text(b)} are not the same"
        for x in self.definitions(mine):
            for y in self.definitions(theirs):
                if x is y:
                    return f"{head}: two outputs of {x.expr}{_line_of_expr(x.expr)}"
                if type(x.expr) is type(y.expr):
                    for p, q in zip(x.inputs, y.inputs, strict=True):
                        if p is not q:
                            at = f"{key_text(p.first)} and {key_text(q.first)}"
                            return f"{head}: {x.expr} and {y.expr} part at {at}"
                    return f"{head}: made of the same axes by {x.expr} and {y.expr}, which differ"
        way = first_divergence(self.number(a), self.number(b), self._edges, lambda n: _short(self.numbered(n)))
        nothing = f"no operation maps {_short(mine)} to {_short(theirs)}"
        axes = distinct_axes_of_one_tensor(self.keys_of(mine.number), self.keys_of(theirs.number))
        if axes is not None:
            return f"{head}: {axes}, and {nothing}"
        return f"{head}: {way or nothing}"

    def _edges(self, number: int) -> Iterator[LabeledEdge]:
        """Steps from a group: expressions that read it, that make it, and what maps nothing."""
        group = self.numbered(number)
        for x in self.uses(group):
            for g in x.outputs:
                yield LabeledEdge(
                    self._number(g), f"{_short(g)} is made of {_short(group)} by {x.expr}" + _line_of_expr(x.expr)
                )
        for x in self.definitions(group):
            for g in x.inputs:
                yield LabeledEdge(
                    self._number(g), f"{_short(group)} is made of {_short(g)} by {x.expr}" + _line_of_expr(x.expr)
                )
        for key, text in unmapped_neighbors(self.name, self.keys_of(group.number)):
            n = self._known(cast("K", key))
            if n is not None:
                yield LabeledEdge(self._sets.find(n), text)

    def _number(self, group: Group[K]) -> int:
        return self._sets.find(group.number)
