"""Growing a ValGraph: direct unions first, then closed under congruence of domain expressions.

Two domain expressions of one form whose inputs are the same have the same outputs (forward), and the other way round
(backward); a merge maps backward only where its extents are equal too. What the closure is does not depend on the
order in which keys, expressions and mappings were entered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from copy import copy
from typing import Generic, Literal, TypeVar

from idgraph.errors import IndexingError
from idgraph.graphs.disjoint import DisjointSets
from idgraph.graphs.forms import Form, Forms
from idgraph.graphs.keys import Keys, key_text
from idgraph.graphs.reasons import Why
from idgraph.graphs.valgraph import Nodes, ValGraph
from idgraph.ir import DomainExpr, IterDomain, Merge, Split

K = TypeVar("K", bound=Hashable)
_TABLES = 5  # kinds of signatures, kept in one dictionary


class GraphBuilder(Generic[K]):
    """Grows a graph over numbered keys; asking it, or `settle`, closes it under congruence; `build` freezes it.

    >>> import idgraph as ig
    >>> from idgraph.graphs.keys import KeyList
    >>> f = ig.Fusion("f")
    >>> t, u = (f.input(name, shape=(30,)) + 1 for name in "ab")
    >>> steps = [v.split(0, 8).domain.loop_exprs[0] for v in (t, u)]
    >>> keys = KeyList()
    >>> _ = keys.enter([*t.logical, *t.loop, *u.logical, *u.loop])
    >>> b = GraphBuilder("example", keys, Forms())
    >>> [b.add_expr(x, lambda d: d) for x in steps]
    [0, 1]
    >>> b.map(t.logical[0], u.logical[0], ("access", None, None, 0, ()))
    >>> [b.same(x, y) for x, y in zip(t.loop, u.loop)]
    [True, True]
    """

    def __init__(self, name: str, keys: Keys[K], forms: Forms) -> None:
        self.name = name
        self.keys = keys
        self.forms = forms
        self.sets: DisjointSets[Why] = DisjointSets(len(keys))
        self.nodes = Nodes()
        self.hidden: list[K] = []  # numbered behind the keys; they show in no group
        self.unions = 0
        self._signed = 0  # nodes before this one are in the tables below
        self._uses: dict[int, list[int]] = {}
        self._known: dict[tuple[int, ...], int] = {}
        self._pending: list[tuple[int, int, Why]] = []
        self._parts = self._loose = False
        self._left_out: frozenset[int] = frozenset()

    def fork(self, name: str) -> GraphBuilder[K]:
        """A copy to go on with: coarser graphs start from the exact one."""
        self.settle()
        made = copy(self)
        made.name, made.sets, made.nodes = name, self.sets.copy(), self.nodes.copy()
        made.hidden = self.hidden.copy()
        made._uses = {k: v.copy() for k, v in self._uses.items()}
        made._known, made._pending = self._known.copy(), []
        return made

    # entering -----------------------------------------------------------------------------------------------------

    def key_number(self, key: K) -> int:
        """The number of a key itself; raises `IndexingError` for a key that was not entered."""
        found = self.keys.number(key)
        if found is None:
            raise IndexingError(f"{key_text(key)} is not in the {self.name} graph")
        return found

    def add_expr(self, e: DomainExpr, key: Callable[[IterDomain], K]) -> int:
        """Enter a domain expression between the keys of its axes; returns its number."""
        ins, outs = (tuple(self.key_number(key(d)) for d in axes) for axes in (e.inputs, e.outputs))
        return self.add_node(self.forms.of(e), ins, outs)

    def add_node(self, form: Form, ins: tuple[int, ...], outs: tuple[int, ...]) -> int:
        """Enter a domain expression between keys by number; returns its own number."""
        return self.nodes.add(form, ins, outs)

    def hide(self, key: K) -> int:
        """Enter a key that shows in no group; returns its number."""
        self.hidden.append(key)
        return self.sets.add()

    def at(self, number: int) -> K:
        """The key of a number, a hidden one too."""
        shown = len(self.keys)
        return self.keys.at(number) if number < shown else self.hidden[number - shown]

    def map(self, a: K, b: K, why: Why) -> None:
        """State that two keys are the same."""
        self.join(self.key_number(a), self.key_number(b), why)

    def join(self, a: int, b: int, why: Why) -> None:
        """`map` for keys by number. What it implies follows when the graph is asked."""
        if self._uses:
            self._unite(a, b, why)
        else:
            self.unions += self.sets.union(a, b, why)

    def join_parts(self, left_out: frozenset[int] = frozenset()) -> None:
        """From now on ``whole = outer * n + inner`` is one relation, whether a merge or a divisible split states it.

        Expressions ``left_out``, by number, take no part.
        """
        self.settle()
        self._parts, self._left_out = True, left_out
        for n in range(self._signed):
            if self.nodes.form[n].parts >= 0 and n not in left_out:
                self._sign_parts(n)
        self.settle()

    def join_loose(self) -> None:
        """From now on expressions with equal attributes are congruent whatever the extents of what they read.

        So a broadcast that is scheduled like the axis it resolves to stays with it. A merge maps backward where one of
        its inputs is the same as the other merge's, or has an equal extent.
        """
        self.settle()
        self._loose = True
        for n in range(self._signed):
            self._sign_loose(n)
        self.settle()

    # asking -------------------------------------------------------------------------------------------------------

    def same(self, a: K, b: K) -> bool:
        """True when the two are one by now."""
        return self.number(a) == self.number(b)

    def number(self, key: K) -> int:
        """The present representative of a key's group."""
        self.settle()
        return self.sets.find(self.key_number(key))

    def build(self) -> ValGraph[K]:
        """The finished, immutable graph."""
        self.settle()
        return ValGraph(self.name, self.sets, self.keys, self.nodes, self.hidden)

    # congruence ---------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Close the graph under congruence."""
        nodes, find, parent, uses = self.nodes, self.sets.find, self.sets.parent, self._uses
        first, self._signed = self._signed, len(nodes)
        for n in range(first, self._signed):
            for x in (*nodes.ins[n], *nodes.outs[n]):
                root = parent[x]
                if parent[root] != root:
                    root = find(root)
                found = uses.get(root)
                if found is None:
                    uses[root] = [n]
                else:
                    found.append(n)
        for n in range(first, self._signed):
            self._sign(n)
        pending = self._pending
        while pending:
            self._unite(*pending.pop())

    def _unite(self, a: int, b: int, why: Why) -> None:
        sets = self.sets
        ra, rb = sets.find(a), sets.find(b)
        if ra == rb:
            return
        sets.union(a, b, why)
        self.unions += 1
        keep = sets.parent[ra]
        gone = rb if keep == ra else ra
        moved = self._uses.pop(gone, None)
        if moved:
            self._uses.setdefault(keep, []).extend(moved)
            for n in moved:
                self._sign(n)

    def _sign(self, n: int) -> None:
        """Look an expression up by its inputs and by its outputs; equal ones are merged."""
        nodes, known = self.nodes, self._known
        form = nodes.form[n]
        other = known.setdefault(self._signature(_TABLES * form.forward, nodes.ins[n]), n)
        if other != n and nodes.unite(other, n):
            self._equate("congruence", other, n)
        other = known.setdefault(self._signature(_TABLES * form.backward + 1, nodes.outs[n]), n)
        if other != n and nodes.unite(other, n):
            self._equate("backward", other, n)
        if self._parts and form.parts >= 0 and n not in self._left_out:
            self._sign_parts(n)
        if self._loose:
            self._sign_loose(n)

    def _signature(self, tag: int, side: tuple[int, ...]) -> tuple[int, ...]:
        """The groups of one side of an expression (one or two axes); most elements are one step from their root."""
        parent = self.sets.parent
        a = parent[side[0]]
        if parent[a] != a:
            a = self.sets.find(a)
        if len(side) == 1:
            return tag, a
        b = parent[side[1]]
        if parent[b] != b:
            b = self.sets.find(b)
        return tag, a, b

    def _sign_loose(self, n: int) -> None:
        nodes, find = self.nodes, self.sets.find
        form, outs = nodes.form[n], tuple(map(find, nodes.outs[n]))
        self._meet_loose((_TABLES * form.loose + 4, 0, *map(find, nodes.ins[n])), n, "congruence")
        x = form.expr
        if not isinstance(x, Merge):
            self._meet_loose((_TABLES * form.loose + 4, 1, *outs), n, "backward")
            return
        for place, (d, key) in enumerate(zip(x.inputs, nodes.ins[n], strict=True)):
            self._meet_loose((_TABLES * form.loose + 4, 2 + place, *outs, find(key)), n, "backward")
            self._meet_loose((_TABLES * form.loose + 4, 4 + place, *outs, self.forms.extent(d.extent)), n, "backward")

    def _meet_loose(self, signature: tuple[int, ...], n: int, because: Literal["congruence", "backward"]) -> None:
        other = self._known.setdefault(signature, n)
        if other != n:
            side = self.nodes.outs if because == "congruence" else self.nodes.ins
            why: Why = (because, other, n)
            self._pending += [(x, y, why) for x, y in zip(side[other], side[n], strict=True)]

    def _equate(self, because: Literal["congruence", "backward"], a: int, b: int) -> None:
        nodes = self.nodes
        why: Why = (because, a, b)
        for x, y in zip((*nodes.ins[a], *nodes.outs[a]), (*nodes.ins[b], *nodes.outs[b]), strict=True):
            if x != y:
                self._pending.append((x, y, why))

    def _sign_parts(self, n: int) -> None:
        find, number = self.sets.find, self.nodes.form[n].parts
        whole, outer, inner = self.division(n)
        known = self._known
        other = known.setdefault((_TABLES * number + 2, find(whole)), n)
        if other != n:
            _, a, b = self.division(other)
            self._pending.append((a, outer, ("backward", other, n)))
            self._pending.append((b, inner, ("backward", other, n)))
        other = known.setdefault((_TABLES * number + 3, find(outer), find(inner)), n)
        if other != n:
            self._pending.append((self.division(other)[0], whole, ("congruence", other, n)))

    def division(self, n: int) -> tuple[int, int, int]:
        """(whole, outer, inner) of a merge or split."""
        nodes = self.nodes
        one, two = nodes.ins[n], nodes.outs[n]
        if not isinstance(nodes.form[n].expr, Split):
            one, two = two, one
        return one[0], two[0], two[1]
