"""ValGraph: which keys (axes, or axis and operation) are the same, and why; see `idgraph.graphs.builder` for how."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

from idgraph.errors import IndexingError, user_line
from idgraph.graphs.disjoint import DisjointSets
from idgraph.graphs.forms import Form
from idgraph.graphs.keys import Keys, axis_of, key_text
from idgraph.graphs.parting import Edge, crossings, first_parting, two_axes
from idgraph.graphs.reasons import ANY, Equal, Explanation, Fact, Reason, Why
from idgraph.ir.domains import DomainExpr

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


def _short(group: Group[Any]) -> str:
    """A group with at most four of its keys."""
    shown = ", ".join(map(key_text, group.keys[:4]))
    return "{" + shown + (f" and {len(group) - 4} more" if len(group) > 4 else "") + "}"


def _line(x: DomainExpr) -> str:
    t = x.outputs[0].tensor
    if t is None or not any(e is x for e in t.domain.exprs):
        return f" ({x.line})" if x.line is not None else ""
    return f" of {t.name}" + (f" ({t.source_line})" if t.source_line else "")


class Nodes:
    """Domain expressions of a graph by number: form, elements read and made, and which of them are equal."""

    __slots__ = ("_parent", "form", "ins", "outs", "visible")

    def __init__(self) -> None:
        self.visible: int | None = None  # expressions from this number on show in no group of expressions
        self.form: list[Form] = []
        self.ins: list[tuple[int, ...]] = []
        self.outs: list[tuple[int, ...]] = []
        self._parent: list[int] = []

    def __len__(self) -> int:
        return len(self.form)

    def add(self, form: Form, ins: tuple[int, ...], outs: tuple[int, ...]) -> int:
        """A new expression; returns its number."""
        n = len(self.form)
        self.form.append(form)
        self.ins.append(ins)
        self.outs.append(outs)
        self._parent.append(n)
        return n

    def copy(self) -> Nodes:
        """An independent copy."""
        made = Nodes()
        made.form, made.ins, made.outs = self.form.copy(), self.ins.copy(), self.outs.copy()
        made._parent, made.visible = self._parent.copy(), self.visible
        return made

    def find(self, n: int) -> int:
        """Representative of the expressions equal to one."""
        parent = self._parent
        while parent[n] != n:
            parent[n] = n = parent[parent[n]]
        return n

    def unite(self, a: int, b: int) -> bool:
        """State that two are equal; False where that was known. The one entered first represents both."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return False
        self._parent[max(a, b)] = min(a, b)
        return True

    def classes(self) -> dict[int, list[int]]:
        """The numbers of equal expressions by the first of them."""
        found: dict[int, list[int]] = {}
        for n in range(len(self.form) if self.visible is None else self.visible):
            found.setdefault(self.find(n), []).append(n)
        return found


class ValGraph(Generic[K]):
    """An immutable view of groups, expression groups and reasons; group objects are made when asked for."""

    def __init__(
        self, name: str, sets: DisjointSets[Why], keys: Keys[K], nodes: Nodes, hidden: Sequence[K] = ()
    ) -> None:
        self.name = name
        self.nodes = nodes
        self._sets = sets
        self._keys = keys
        self._hidden = hidden
        self._made: dict[int, Group[K]] = {}

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
        except TypeError:  # what cannot be hashed, or is a key of another kind of graph, is no key of this one
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

    def numbered(self, number: int) -> Group[K]:
        """The group of a number."""
        found = self._made.get(number)
        if found is None:
            shown = len(self._keys)
            members = sorted(n for n in self._sets.members(number) if n < shown)
            found = self._made[number] = Group(members[0], tuple(map(self._keys.at, members)))
        return found

    @cached_property
    def groups(self) -> tuple[Group[K], ...]:
        """All groups, in the order in which their first key entered."""
        find = self._sets.find
        return tuple(self.numbered(n) for n in dict.fromkeys(find(x) for x in range(len(self._keys))))

    @cached_property
    def expr_groups(self) -> tuple[ExprGroup[K], ...]:
        """All groups of equal domain expressions."""
        return tuple(self.expr_group(first, equal) for first, equal in self.nodes.classes().items())

    def expr_group(self, first: int, equal: list[int]) -> ExprGroup[K]:
        """The group of equal expressions, ``first`` in front, by number."""
        nodes, find = self.nodes, self._sets.find
        return ExprGroup(
            first,
            tuple(dict.fromkeys(nodes.form[n].expr for n in equal)),
            tuple(self.numbered(find(x)) for x in nodes.ins[first]),
            tuple(self.numbered(find(x)) for x in nodes.outs[first]),
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
        return self._known(key) is not None

    def owns(self, group: Group[Any]) -> bool:
        """True of a group of this very graph."""
        return bool(group.keys) and self.holds(group.keys[0]) and self.lookup(group.keys[0]) is group

    def same(self, a: K, b: K) -> bool:
        """True when two keys are in one group."""
        return self.number(a) == self.number(b)

    def definitions(self, group: Group[K]) -> tuple[ExprGroup[K], ...]:
        """Expression groups that make this group."""
        return tuple(self._about[0].get(group.number, ()))

    def uses(self, group: Group[K]) -> tuple[ExprGroup[K], ...]:
        """Expression groups that read this group."""
        return tuple(self._about[1].get(group.number, ()))

    # explanations -------------------------------------------------------------------------------------------------

    def chain(self, a: K, b: K) -> Explanation:
        """Why two keys are the same: the facts on the path between them in the proof forest."""
        if not self.same(a, b):
            return Explanation(False, (), self._parting(a, b))
        return Explanation(True, tuple(self._fact(*edge) for edge in self.path(self.key_number(a), self.key_number(b))))

    def path(self, a: int, b: int) -> list[tuple[int, int, Why]]:
        """The path between two elements in the proof forest, as elements and what made them one."""
        return self._sets.path(a, b)

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
                    return f"{head}: two outputs of {x.expr}{_line(x.expr)}"
                if type(x.expr) is type(y.expr):
                    for p, q in zip(x.inputs, y.inputs, strict=True):
                        if p is not q:
                            at = f"{key_text(p.keys[0])} and {key_text(q.keys[0])}"
                            return f"{head}: {x.expr} and {y.expr} part at {at}"
                    return f"{head}: made of the same axes by {x.expr} and {y.expr}, which differ"
        way = first_parting(self.number(a), self.number(b), self._edges, lambda n: _short(self.numbered(n)))
        nothing = f"no operation maps {_short(mine)} to {_short(theirs)}"
        axes = two_axes(mine.keys, theirs.keys)
        if axes is not None:
            return f"{head}: {axes}, and {nothing}"
        return f"{head}: {way or nothing}"

    def _edges(self, number: int) -> Iterator[Edge]:
        """Steps from a group: expressions that read it, that make it, and what maps nothing."""
        group = self.numbered(number)
        for x in self.uses(group):
            for g in x.outputs:
                yield Edge(self._number(g), f"{_short(g)} is made of {_short(group)} by {x.expr}" + _line(x.expr))
        for x in self.definitions(group):
            for g in x.inputs:
                yield Edge(self._number(g), f"{_short(group)} is made of {_short(g)} by {x.expr}" + _line(x.expr))
        for key, text in crossings(self.name, group.keys):
            n = self._known(cast("K", key))
            if n is not None:
                yield Edge(self._sets.find(n), text)

    def _number(self, group: Group[K]) -> int:
        return self._sets.find(group.number)
