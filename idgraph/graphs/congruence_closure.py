"""Growing a ValGraph: direct unions first, then closed under congruence of domain expressions.

Two domain expressions of one form whose inputs are the same have the same outputs (forward), and the other way round
(backward); a merge maps backward only where its extents are equal too. What the closure is does not depend on the
order in which keys, expressions and mappings were entered. All state is integers: a signature is one of them too.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable
from copy import copy
from typing import Generic, Literal, TypeVar

from idgraph.errors import IndexingError
from idgraph.graphs.expr_nodes import NO_OPERAND, SIDES, ENodes
from idgraph.graphs.proof import Reasons, Told, equal
from idgraph.graphs.signature import ExprSignature, Keys, SignatureTable, key_text
from idgraph.graphs.union_find import UnionFind
from idgraph.graphs.val_graph import ValGraph
from idgraph.ir import DomainExpr, IterDomain, Merge, Split

K = TypeVar("K", bound=Hashable)
_TABLES = 4  # kinds of signatures, kept in one dictionary
_BITS = 30  # of an element in a signature


class CongruenceClosure(Generic[K]):
    """Grows a graph over numbered keys; asking it, or `rebuild`, closes it under congruence; `build` freezes it.

    >>> import idgraph as ig
    >>> from idgraph.graphs.signature import KeyList
    >>> f = ig.Fusion("f")
    >>> t, u = (f.input(name, shape=(30,)) + 1 for name in "ab")
    >>> steps = [v.split(0, 8).domain.loop_exprs[0] for v in (t, u)]
    >>> keys = KeyList()
    >>> _ = keys.enter([*t.logical, *t.loop, *u.logical, *u.loop])
    >>> b = CongruenceClosure("example", keys, SignatureTable())
    >>> [b.add_expr(x, lambda d: d) for x in steps]
    [0, 1]
    >>> b.map(t.logical[0], u.logical[0], ("access", None, None, 0, ()))
    >>> [b.same(x, y) for x, y in zip(t.loop, u.loop)]
    [True, True]
    """

    def __init__(self, name: str, keys: Keys[K], forms: SignatureTable) -> None:
        self.name = name
        self.keys = keys
        self.forms = forms
        self.sets = UnionFind(len(keys))
        self.nodes = ENodes()
        self.reasons = Reasons()
        self.hidden: list[K] = []  # numbered behind the keys; they show in no group
        self.unions = 0
        self._signed = 0  # nodes before this one are in the tables below
        # Expressions by the groups they read or make: a circular list of their sides for each group, by its last one.
        self._last: dict[int, int] = {}
        self._ring = array("q")
        self._known: dict[int, int] = {}
        self._known_loose: dict[tuple[int, ...], int] = {}
        self._pending: list[tuple[int, int, int]] = []
        self._parts = self._loose = False
        self._left_out: frozenset[int] = frozenset()
        self._quiet: frozenset[int] = frozenset()

    def fork(self, name: str) -> CongruenceClosure[K]:
        """A copy to go on with: coarser graphs start from the exact one."""
        self.rebuild()
        made = copy(self)
        made.name, made.sets, made.nodes = name, self.sets.copy(), self.nodes.copy()
        made.hidden = self.hidden.copy()
        made._last, made._ring = self._last.copy(), self._ring[:]
        made._known, made._known_loose, made._pending = self._known.copy(), self._known_loose.copy(), []
        return made

    def without_unions(self, name: str) -> CongruenceClosure[K]:
        """Only the keys and expressions, to unite and settle anew."""
        made = copy(self)
        made.name, made.sets, made.nodes, made.unions = name, UnionFind(len(self.sets)), self.nodes.without_unions(), 0
        made._last, made._ring, made._signed = {}, array("q"), 0
        made._known, made._known_loose, made._pending = {}, {}, []
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

    def add_node(self, form: ExprSignature, ins: tuple[int, ...], outs: tuple[int, ...]) -> int:
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

    def map(self, a: K, b: K, why: Told) -> None:
        """State that two keys are the same."""
        self.join(self.key_number(a), self.key_number(b), why)

    def join(self, a: int, b: int, why: Told) -> None:
        """`map` for keys by number. What it implies follows when the graph is asked."""
        number = self.reasons.tell(why)
        if self._last:
            self._unite(a, b, number)
        else:
            self.unions += self.sets.union(a, b, number)

    def join_parts(self, left_out: frozenset[int] = frozenset()) -> None:
        """From now on ``whole = outer * n + inner`` is one relation, whether a merge or a divisible split states it.

        Expressions ``left_out``, by number, take no part.
        """
        self.rebuild()
        self._parts, self._left_out = True, left_out
        for n in range(self._signed):
            if self.nodes.form[n].parts >= 0 and n not in left_out:
                self._sign_parts(n)
        self.rebuild()

    def quieten(self, nodes: frozenset[int]) -> None:
        """From now on these expressions, by number, make nothing else the same by being equal to others."""
        self.rebuild()
        self._quiet = nodes

    def join_loose(self) -> None:
        """From now on expressions with equal attributes are congruent whatever the extents of what they read.

        So a broadcast that is scheduled like the axis it resolves to stays with it. A merge maps backward where one of
        its inputs is the same as the other merge's, or has an equal extent.
        """
        self.rebuild()
        self._loose = True
        for n in range(self._signed):
            self._hashcons_ignoring_extents(n)
        self.rebuild()

    # asking -------------------------------------------------------------------------------------------------------

    def same(self, a: K, b: K) -> bool:
        """True when the two are one by now."""
        return self.number(a) == self.number(b)

    def number(self, key: K) -> int:
        """The present representative of a key's group."""
        self.rebuild()
        return self.sets.find(self.key_number(key))

    def build(self) -> ValGraph[K]:
        """The finished, immutable graph."""
        self.rebuild()
        return ValGraph(self.name, self.sets, self.keys, self.nodes, self.reasons, self.hidden)

    # congruence ---------------------------------------------------------------------------------------------------

    def rebuild(self) -> None:
        """Close the graph under congruence."""
        if not self._pending and self._signed == len(self.nodes):
            return
        sides, find, parent, last, ring = self.nodes.sides, self.sets.find, self.sets.parent, self._last, self._ring
        first, self._signed = self._signed, len(self.nodes)
        ring.extend(range(SIDES * first, SIDES * self._signed))
        for at in range(SIDES * first, SIDES * self._signed):
            x = sides[at]
            if x == NO_OPERAND:
                continue
            root = parent[x]
            if parent[root] != root:
                root = find(root)
            end = last.get(root)
            if end is not None:
                ring[at], ring[end] = ring[end], at
            last[root] = at
        for n in range(first, self._signed):
            self._hashcons(n)
        pending = self._pending
        while pending:
            self._unite(*pending.pop())

    def _unite(self, a: int, b: int, why: int) -> None:
        sets = self.sets
        ra, rb = sets.find(a), sets.find(b)
        if ra == rb:
            return
        sets.union(a, b, why)
        self.unions += 1
        keep = sets.parent[ra]
        gone = rb if keep == ra else ra
        moved = self._last.pop(gone, None)
        if moved is None:
            return
        ring = self._ring
        nodes, at = list[int](), ring[moved]
        while at != moved:
            nodes.append(at // SIDES)
            at = ring[at]
        nodes.append(moved // SIDES)
        end = self._last.get(keep)
        if end is not None:
            ring[moved], ring[end] = ring[end], ring[moved]
        self._last[keep] = moved
        for n in nodes:
            self._hashcons(n)

    def _hashcons(self, n: int) -> None:
        """Look an expression up by its inputs and by its outputs; equal ones are merged."""
        if n in self._quiet:
            return
        nodes, known = self.nodes, self._known
        form = nodes.form[n]
        made = self._signature(_TABLES * form.forward, SIDES * n)
        other = known.setdefault(made, n)
        if other != n and self._evict_inactive(made, other, n) and nodes.merge(other, n):
            self._equate("congruence", other, n)
        made = self._signature(_TABLES * form.backward + 1, SIDES * n + 2)
        other = known.setdefault(made, n)
        if other != n and self._evict_inactive(made, other, n) and nodes.merge(other, n):
            self._equate("backward", other, n)
        if self._parts and form.parts >= 0 and n not in self._left_out:
            self._sign_parts(n)
        if self._loose:
            self._hashcons_ignoring_extents(n)

    def _evict_inactive(self, signature: int, known: int, n: int) -> bool:
        """Whether the expression known by that signature is not quiet; else ``n`` takes its place."""
        if known not in self._quiet:
            return True
        self._known[signature] = n
        return False

    def _signature(self, tag: int, at: int) -> int:
        """The groups of one side of an expression (one or two axes); most elements are one step from their root."""
        parent, sides = self.sets.parent, self.nodes.sides
        a = parent[sides[at]]
        if parent[a] != a:
            a = self.sets.find(a)
        b = sides[at + 1]
        if b == NO_OPERAND:
            return _packed(tag, a)
        b = parent[b]
        if parent[b] != b:
            b = self.sets.find(b)
        return _packed(tag, a, b)

    def _hashcons_ignoring_extents(self, n: int) -> None:
        nodes, find = self.nodes, self.sets.find
        form, outs = nodes.form[n], tuple(map(find, nodes.outs[n]))
        self._meet_loose((form.loose, 0, *map(find, nodes.ins[n])), n, "congruence")
        x = form.expr
        if not isinstance(x, Merge):
            self._meet_loose((form.loose, 1, *outs), n, "backward")
            return
        for place, (d, key) in enumerate(zip(x.inputs, nodes.ins[n], strict=True)):
            self._meet_loose((form.loose, 2 + place, *outs, find(key)), n, "backward")
            self._meet_loose((form.loose, 4 + place, *outs, self.forms.extent(d.extent)), n, "backward")

    def _meet_loose(self, signature: tuple[int, ...], n: int, because: Literal["congruence", "backward"]) -> None:
        other = self._known_loose.setdefault(signature, n)
        if other != n:
            side = self.nodes.outs if because == "congruence" else self.nodes.ins
            why = equal(because, other, n)
            self._pending += [(x, y, why) for x, y in zip(side[other], side[n], strict=True)]

    def _equate(self, because: Literal["congruence", "backward"], a: int, b: int) -> None:
        sides, why = self.nodes.sides, equal(because, a, b)
        for k in range(SIDES):
            x, y = sides[SIDES * a + k], sides[SIDES * b + k]
            if x != y:
                self._pending.append((x, y, why))

    def _sign_parts(self, n: int) -> None:
        find, number = self.sets.find, self.nodes.form[n].parts
        whole, outer, inner = self.division(n)
        known = self._known
        other = known.setdefault(_packed(_TABLES * number + 2, find(whole)), n)
        if other != n:
            _, a, b = self.division(other)
            why = equal("backward", other, n)
            self._pending += ((a, outer, why), (b, inner, why))
        other = known.setdefault(_packed(_TABLES * number + 3, find(outer), find(inner)), n)
        if other != n:
            self._pending.append((self.division(other)[0], whole, equal("congruence", other, n)))

    def division(self, n: int) -> tuple[int, int, int]:
        """(whole, outer, inner) of a merge or split."""
        nodes = self.nodes
        one, two = nodes.ins[n], nodes.outs[n]
        if not isinstance(nodes.form[n].expr, Split):
            one, two = two, one
        return one[0], two[0], two[1]


def _packed(tag: int, a: int, b: int = -1) -> int:
    """One number for a kind of signature and one or two groups."""
    return (tag << _BITS | a) << _BITS | b + 1
