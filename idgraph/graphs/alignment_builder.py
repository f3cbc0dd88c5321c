"""The unions of the exact graph that join equal coordinates; the others become edges of the aligned graph.

A union is kept unless, with those that are kept already, it would

- close a cycle that changes an index (some coordinate comes back to its group as another one), or
- put two axes in one group that one operation touches at different coordinates, as ``t + t.T`` does.

Where any one of several unions could be dropped, their order decides: operations by their distance from the inputs,
then by name; the operands of one operation likewise. So the residual add that closes a cycle loses a union, that with
the operand computed last; the operations before it keep theirs. The axes of one operand are united at once where that
keeps the law. The order in which a program lists independent operations, or the operands of a sum, has no effect.

A coordinate is named by the axis of the operation's own output that runs over it; what is read at a constant or at a
loaded value has a name of its own. An axis of one element has coordinate 0 everywhere, and does not count.

The groups of a net on which a cycle can change a coordinate: those that two different ways join.

An expression relates groups: a merge and the split that undoes it are one relation, as are a pad and the slice that
takes it off. Where relations and groups form a tree, whoever comes back to a group comes back by the relation by which
it left, with the coordinate with which it left. So only what is left when leaves are taken off, again and again, has to
be looked at with coordinates (the 2-core of groups and relations).

Long: one algorithm: the unions of the exact graph but those that change an index.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence, Set
from functools import partial
from typing import NamedTuple

from idgraph.arith import simplify
from idgraph.graphs.congruence_closure import CongruenceClosure
from idgraph.graphs.coordinate_propagation import translation
from idgraph.graphs.coordinate_rules import TransferFunctions
from idgraph.graphs.cycle_enumeration import VisitedStates, follow, is_identity
from idgraph.graphs.exact import ExactBuilder
from idgraph.graphs.flow_graph import GroupDigraph, is_identity_edge, sibling_axes
from idgraph.graphs.signature import axis_of, own_domains, own_exprs
from idgraph.ir import SCATTERS, DomainExpr, Fusion, IterDomain, Mapped, Tensor, TensorExpr, tensor_of
from idgraph.ir.iter_domain import is_one
from idgraph.ir.walks import reach

At = IterDomain | tuple[int, int]  # an own axis, or a place that is read otherwise: operand and axis
Touched = dict[TensorExpr, frozenset[At]]


def coordinate_uses(d: IterDomain) -> Touched:
    """Every operation that touches an axis, the one that makes its tensor and those that read it, and where."""
    found: Touched = {}
    t = tensor_of(d)
    if t is None or is_one(d.extent):
        return found
    if t.definition is not None:
        found[t.definition] = frozenset((d,))
    axes = t.axes
    if d in axes:
        p = axes.index(d)
        for e in dict.fromkeys(t.uses):
            found[e] = frozenset(_read_at(e, k, p) for k, x in enumerate(e.inputs) if x is t)
    return found


def _read_at(e: TensorExpr, k: int, p: int) -> At:
    read = e.reads[k][p]
    if isinstance(read, Mapped):
        return read.domain
    # A scatter reads the elements that it updates where it writes them.
    return e.output.logical[p] if e.op in SCATTERS and k == 0 else (k, p)


def axes_used_by(e: TensorExpr) -> Iterator[tuple[IterDomain, At]]:
    """The axes that an operation touches, each with its coordinate."""
    for d in own_domains(e.output):
        if not is_one(d.extent):
            yield d, d
    for k, t in enumerate(e.inputs):
        for p, d in enumerate(t.axes):
            if not is_one(d.extent):
                yield d, _read_at(e, k, p)


def has_conflicting_coordinates(
    e: TensorExpr, mine: frozenset[At], theirs: frozenset[At], is_there: Callable[[IterDomain], bool]
) -> bool:
    """True where an operation touches one group at coordinates that nothing else keeps equal.

    Where one of two own axes is made of the other and that other ``is_there`` too, the group is on a cycle, which is
    judged instead. The parts of a concatenated axis are never touched at one point.
    """
    return any(a is not b and a != b and not _related(e, a, b, is_there) for a in mine for b in theirs)


def _related(e: TensorExpr, a: At, b: At, is_there: Callable[[IterDomain], bool]) -> bool:
    if isinstance(a, tuple) or isinstance(b, tuple):
        return False
    pairs = ((a, b), (b, a))
    return any(_made_of(e, x, y) and is_there(x) for x, y in pairs) or bool(_cat_axes_of(e, a) & _cat_axes_of(e, b))


def _made_of(e: TensorExpr, a: IterDomain, b: IterDomain) -> bool:
    found = {a}
    for x in own_exprs(e.output):
        if any(d in found for d in x.inputs):
            found.update(x.outputs)
    return b in found


def _cat_axes_of(e: TensorExpr, d: IterDomain) -> set[IterDomain]:
    """Concatenated axes that an axis is an operand's part of."""
    return {x.outputs[0] for x in e.output.domain.exprs if x.inputs[0] is d and len(x.outputs[0].definitions) > 1}


def two_core(net: GroupDigraph, among: Collection[int], relation: Callable[[int], Hashable]) -> set[int]:
    """The groups ``among`` on cycles that leave and come back by different relations; every such cycle has only these.

    ``relation`` is equal for expressions that relate the same groups in the same manner, whichever side they read.
    """
    joined: dict[Hashable, list[int]] = {}
    of: dict[int, list[Hashable]] = {g: [] for g in among}
    for g in among:
        for n in net.uses(g):
            outs = net.outs(n)
            if of.keys().isdisjoint(outs) or is_identity_edge(net, n):
                continue
            key = relation(n)
            if key not in joined:
                joined[key] = sides = [x for x in (*net.ins(n), *outs) if x in of]
                for x in sides:
                    of[x].append(key)
    count = {key: len(sides) for key, sides in joined.items()}
    degree = {g: len(keys) for g, keys in of.items()}
    leaves = [g for g, d in degree.items() if d == 1]
    while leaves:
        g = leaves.pop()
        if degree[g] != 1:
            continue  # the relation that it was a leaf of has gone
        degree[g] = 0
        key = next(k for k in of[g] if count[k] > 1)
        count[key] -= 1
        if count[key] == 1:
            last = next(x for x in joined[key] if degree[x] > 0)
            degree[last] -= 1
            if degree[last] == 1:
                leaves.append(last)
    return {g for key, sides in joined.items() if count[key] > 1 for g in sides}


_NEAR = 32  # expressions looked at for those that take an axis from beside a way
_PLACES = 2_000  # places of the searches for one union; where they do not suffice, the union is an edge


class Union(NamedTuple):
    """Operation ``expr`` reads axis ``left`` at the coordinate of its own axis ``right``; both are element numbers."""

    left: int
    right: int
    expr: TensorExpr


def unions_of(fusion: Fusion, exact: ExactBuilder, groups: Set[int]) -> Iterator[list[Union]]:
    """The unions of axes in some ``groups`` of the exact graph that operations state, by operands, in aligned order."""
    depth: dict[Tensor, int] = {}
    first: dict[TensorExpr, int] = {}
    operands = 0
    for e in fusion.exprs:
        depth[e.output] = 1 + max([depth.get(t, 0) for t in e.inputs], default=0)
        first[e] = operands
        operands += len(e.inputs)
    rank = {t: (depth.get(t, 0), len(t.name), t.name) for t in fusion.tensors}
    find = exact.sets.find
    for e in sorted(fusion.exprs, key=lambda e: rank[e.output]):
        inputs = e.inputs
        for k in sorted(range(len(inputs)), key=lambda k: rank[inputs[k]]):
            found = [Union(a, b, e) for a, b in exact.stated(first[e] + k) if find(a) in groups]
            if found:
                yield found


class AlignmentBuilder(GroupDigraph):
    """Takes unions one by one, and takes back those that break the law; also the net of what is united so far.

    ``parent`` starts with the groups of everything that no such union can concern; ``nodes`` are the expressions
    between the others.
    """

    def __init__(self, exact: CongruenceClosure[IterDomain], parent: list[int], nodes: Sequence[int]) -> None:
        self._forms = {n: exact.nodes.form[n] for n in nodes}
        self._exact = exact
        self.effects = TransferFunctions()
        self._parent = parent
        # The groups that expressions read and make, and the expressions that read and make a group, of equal ones one.
        self._ins = {n: tuple(map(self.find, exact.nodes.ins[n])) for n in nodes}
        self._outs = {n: tuple(map(self.find, exact.nodes.outs[n])) for n in nodes}
        self._enter(nodes)
        self._equal: dict[int, dict[int, None]] = {}  # to an expression those that became equal to it
        self._touched: dict[int, Touched] = {}
        self._table: dict[tuple[int, ...], int] = {}
        self._refused: set[frozenset[tuple[int, int]]] = set()  # unions that break the law while no way is new
        self._undo: list[Callable[[], object]] = []
        self._met: list[int] = []  # parts of concatenated axes that became equal to others
        self._moved: list[tuple[int, list[int]]] = []  # groups that went into others, with their expressions
        self._frames: dict[int, list[tuple[int, tuple[int, ...]]]] = {}  # see `_frames_of`
        pending: list[tuple[int, int]] = []
        for n in nodes:
            self._sign(n, pending)
        self._close(pending)
        self._moved.clear()
        self._undo.clear()

    def take(self, operand: Sequence[Union]) -> list[Union]:
        """Unite what an operand maps, all of its axes at once where that keeps the law, else one by one.

        Where two axes are cut out of one, uniting only one of them leaves the other open. Returns the unions left out.
        """
        if len(operand) > 1 and self._unite(operand):
            return []
        return [u for u in operand if not self._unite((u,))]

    def _unite(self, unions: Sequence[Union]) -> bool:
        """Unite axes and what follows from it; False, and nothing is done, where that breaks the law."""
        pairs = [(self.find(u.left), self.find(u.right)) for u in unions]
        asked = frozenset((a, b) if a < b else (b, a) for a, b in pairs if a != b)
        if not asked or asked in self._refused:
            return not asked
        self._met.clear()
        arisen = self._arisen() if self._close(pairs) else None
        kept = arisen is not None and all(map(self._is_true, arisen))
        if not kept:
            self._take_back()
            self._refused.add(asked)
        elif arisen:
            self._refused.clear()
        self._moved.clear()
        self._undo.clear()
        return kept

    # uniting ------------------------------------------------------------------------------------------------------

    def find(self, x: int) -> int:
        """The present representative of an element's group."""
        parent = self._parent
        while parent[x] != x:
            x = parent[x]
        return x

    def _close(self, pending: list[tuple[int, int]]) -> bool:
        while pending:
            a, b = map(self.find, pending.pop())
            if a == b:
                continue
            small, large = (a, b) if (self._weight(a), a) < (self._weight(b), b) else (b, a)
            if not self._join_touched(small, large):
                return False
            self._parent[small] = large
            self._undo.append(partial(self._parent.__setitem__, small, small))
            self._move(small, large, pending)
        return True

    def _move(self, small: int, large: int, pending: list[tuple[int, int]]) -> None:
        """The expressions about one group are about the other; those equal to one that is there go."""
        sides = (self._readers, self._ins), (self._makers, self._outs)
        own = dict.fromkeys(n for about, _ in sides for n in about.get(small, ()))
        new: list[int] = []
        for n in own:
            for _, groups in sides:
                before = groups[n]
                if small in before:
                    groups[n] = tuple([large if x == small else x for x in before])
                    self._undo.append(partial(groups.__setitem__, n, before))
            self._sign(n, pending)
            if self._stands(n):
                for about, groups in sides:
                    if large in groups[n]:
                        self._hold(about.setdefault(large, {}), n)
                new.append(n)
                continue
            for about, groups in sides:
                for x in dict.fromkeys(groups[n]):
                    self._drop(about.get(x), n)
        self._moved.append((small, new))

    def _arisen(self) -> list[tuple[int, list[int]]]:
        """Groups that went into others, with the expressions of new ways there.

        An expression equal to another brings none. But equal parts of a concatenated axis may be of different operands:
        expressions that take this axis from beside a way have more to take.
        """
        found = [(small, [n for n in new if self._stands(n)]) for small, new in self._moved]
        taking = dict.fromkeys(n for part in self._met for n in self._taking(part))
        return [*((small, new) for small, new in found if new), *((self._outs[n][0], [n]) for n in taking)]

    def _taking(self, part: int) -> list[int]:
        """The expressions of several inputs that read the axis of a part, or what follows from it."""
        seen, pending, found = set[int](), list(self._outs[part]), list[int]()
        while pending and len(seen) < _NEAR:
            for n in self.uses(pending.pop()):
                if n not in seen:
                    seen.add(n)
                    if len(self._ins[n]) > 1:
                        found.append(n)
                    pending += self._outs[n]
        return found

    def _hold(self, held: dict[int, None], n: int) -> None:
        if n not in held:
            held[n] = None
            self._undo.append(partial(held.pop, n))

    def _drop(self, held: dict[int, None] | None, n: int) -> None:
        if held is not None and n in held:
            del held[n]
            self._undo.append(partial(held.__setitem__, n, None))

    def _weight(self, group: int) -> int:
        touched = self._touched.get(group)
        weight = len(self._touched_by(group) if touched is None else touched)
        for about in (self._readers, self._makers):
            held = about.get(group)
            weight += 0 if held is None else len(held)
        return weight

    def _touched_by(self, group: int) -> Touched:
        found = self._touched.get(group)
        if found is None:
            found = self._touched[group] = coordinate_uses(axis_of(self._exact.at(group)))
        return found

    def _join_touched(self, small: int, large: int) -> bool:
        """Operations that touch one of the two groups touch both now; False where that is at different coordinates."""
        mine, theirs = self._touched_by(small), self._touched_by(large)
        fresh, more = mine, Touched()
        if met := mine.keys() & theirs.keys():
            for e in met:
                at, known = mine[e], theirs[e]
                if at <= known:
                    continue
                if has_conflicting_coordinates(
                    e, at, known, lambda d: self.find(self._exact.key_number(d)) in (small, large)
                ):
                    return False
                more[e] = known | at
            fresh = {e: at for e, at in mine.items() if e not in met}
        self._undo.append(partial(_forget, theirs, fresh, {e: theirs[e] for e in more}))
        theirs.update(fresh)
        theirs.update(more)
        return True

    def _stands(self, n: int) -> bool:
        """False of an expression that another one stands for, which reads and makes the same."""
        first = self._first(n)
        return first == n or self._forms[first].backward != self._forms[n].backward

    def _sign(self, n: int, pending: list[tuple[int, int]]) -> None:
        """Look an expression up by both sides."""
        form = self._forms[n]
        for key in ((2 * form.forward, *self._ins[n]), (2 * form.backward + 1, *self._outs[n])):
            other = self._table.get(key)
            if other is None:
                self._table[key] = n
                self._undo.append(partial(self._table.pop, key))
            elif other != n:
                pending += zip((*self._ins[other], *self._outs[other]), (*self._ins[n], *self._outs[n]), strict=True)
        first = self._first(n)
        held = self._equal.setdefault(first, {})
        if n != first and n not in held:
            held[n] = None
            if len(self._forms[n].expr.outputs[0].definitions) > 1:
                self._met.append(n)
            self._undo.append(partial(held.pop, n))

    def _take_back(self) -> None:
        for step in reversed(self._undo):
            step()

    # judging ------------------------------------------------------------------------------------------------------

    def _is_true(self, joined: tuple[int, list[int]]) -> bool:
        """True where every cycle that arose when a group took in another one gives coordinates back.

        Such a cycle goes through an expression that only the smaller group had before.
        """
        small, own = joined
        large = self.find(small)
        out = [n for n in own if large in self.ins(n)]
        into = [n for n in own if large in self.outs(n)]
        among = self._between({g for n in out for g in self.outs(n)}, {large}, large) if out else set[int]()
        if into:
            among |= self._between({large}, {g for n in into for g in self.ins(n)}, large)
        if not among:
            return True
        among = two_core(self, among, self._relation)
        starts = [large, *sorted(among - {large})] if large in among else sorted(among)
        reached = VisitedStates(_PLACES)
        for start in starts:
            for carrier, end in follow(self, start, start, among.__contains__, reached=reached.afresh()):
                if reached.is_full or not is_identity(self, carrier, end):
                    return False
        return not reached.is_full

    def _relation(self, n: int) -> Hashable:
        """The relation of groups that an expression states, whichever side it reads."""
        form, (a, *more), (b, *rest) = self._forms[n], self.ins(n), self.outs(n)
        if form.parts >= 0:
            return (form.parts, a, b, rest[0]) if rest else (form.parts, b, a, more[0])
        by = translation(form.expr)
        if by is None:
            return n
        return (a, b, by) if a < b else (b, a, simplify(-by))

    def _between(self, start: set[int], goal: set[int], stop: int) -> set[int]:
        """Groups on ways from some groups to others that do not go on through ``stop``.

        Both ends grow in turn, so the cost is that of the smaller side.
        """
        found, pending, side = (set(start), set(goal)), (list(start), list(goal)), 0
        while pending[0] and pending[1]:
            at = pending[side].pop()
            if at != stop or at in (start, goal)[side]:
                fresh = [g for g in self._beyond(at, forwards=side == 0) if g not in found[side]]
                found[side].update(fresh)
                pending[side].extend(dict.fromkeys(fresh))
            side = 1 - side
        side = 1 if pending[0] else 0
        whole, other = found[side], (goal, start)[side]
        back = (g for g in other if g in whole)
        return set(reach(back, lambda at: whole.intersection(self._beyond(at, forwards=side == 1))))

    def _beyond(self, group: int, *, forwards: bool) -> Iterator[int]:
        for n in self.uses(group) if forwards else self.definitions(group):
            yield from self.outs(n) if forwards else self.ins(n)

    # the net ------------------------------------------------------------------------------------------------------

    def _first(self, node: int) -> int:
        """Of equal expressions the first."""
        return self._table[2 * self._forms[node].forward, *self._ins[node]]

    def expr(self, node: int) -> DomainExpr:
        """The expression itself."""
        return self._forms[node].expr

    def equal_exprs(self, node: int) -> Sequence[DomainExpr]:
        """All expressions equal to one, itself too."""
        found: dict[int, None] = {}
        pending = [self._first(node)]
        while pending:
            n = pending.pop()
            if n not in found:
                found[n] = None
                pending += self._equal.get(n, ())
        return [self._forms[n].expr for n in found]

    def axis(self, group: int) -> IterDomain:
        """An axis of a group."""
        return axis_of(self._exact.at(group))

    def group(self, axis: IterDomain) -> int:
        """The group of an axis."""
        return self.find(self._exact.key_number(axis))

    def frame(self, group: int) -> list[int]:
        """The groups of the axes that tensors have beside one of a group."""
        found: dict[int, None] = {}
        find = self.find
        seen: set[int] = set()
        for n in dict.fromkeys((*self.uses(group), *self.definitions(group))):
            for g, (x, beside) in zip((*self._ins[n], *self._outs[n]), self._frames_of(n), strict=True):
                if g == group and x not in seen:
                    seen.add(x)
                    found.update(dict.fromkeys(map(find, beside)))
        found.pop(group, None)
        return list(found)

    def _frames_of(self, n: int) -> list[tuple[int, tuple[int, ...]]]:
        """The axes of an expression, each with those that its tensor has beside it."""
        found = self._frames.get(n)
        if found is None:
            exact, nodes = self._exact, self._exact.nodes
            found = self._frames[n] = [
                (x, tuple(map(exact.key_number, sibling_axes(axis_of(exact.at(x))))))
                for x in (*nodes.ins[n], *nodes.outs[n])
            ]
        return found


def _forget(held: Touched, fresh: Touched, before: Touched) -> None:
    """Take back what was entered anew, and what stood there before."""
    for e in fresh:
        del held[e]
    held.update(before)
