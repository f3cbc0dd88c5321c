"""Whether the loop nests that inlining asks for can be put in an order: producers finished before their readers.

Loop nests of equal structure: a model of many equal blocks has many nests, and what is legal in one is in all.

A nest is described by values: its axes by number in the order in which they are met, with kind and extent, and all
that an index graph is made of between those numbers. Nests of one description differ in names only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

from idgraph.errors import ScheduleError
from idgraph.graphs.loop_nest import LoopNests
from idgraph.graphs.loop_promotion import Promotion
from idgraph.graphs.union_find import EquivalenceClasses
from idgraph.ir import AxisRead, DomainExpr, Fixed, Fusion, IterDomain, LoadedCoordinate, Mapped, Tensor, TensorExpr
from idgraph.ir.walks import reach


def order_nests(fusion: Fusion) -> None:
    """Raise `ScheduleError` where operations that share a loop depend on one outside of it that depends on them."""
    # The groups change only at a level where a tensor is inlined; at the last one no loop is shared.
    *levels, _ = sorted({0, *(t.inline_position for t in fusion.tensors)})
    for level in levels:
        _order_level(fusion, level)


class NestMembers:
    """Operations that share their first loops, while tensors are inlined one after the other, consumers first: how far
    each may go before two nests would have to stand both before and after each other, as `order_nests` judges it."""

    def __init__(self, fusion: Fusion) -> None:
        self._place = {e: n for n, e in enumerate(fusion.exprs)}
        # The nests of neighbouring levels are the same, but where a tensor is inlined: at positions of which there are
        # few. The first levels have those of the first of these bands, up to where it ends, and so on.
        self._ends: list[int] = []
        self._leader: list[dict[TensorExpr, TensorExpr]] = []
        self._members: list[dict[TensorExpr, list[TensorExpr]]] = []
        self._open: list[tuple[Tensor, int]] = []  # inlined, but not yet joined: most are read once, so nobody asks
        for t in fusion.tensors:
            self.join(t, t.inline_position)

    def copy(self) -> NestMembers:
        """The same, to go on from."""
        made = NestMembers.__new__(NestMembers)
        made._place = self._place
        made._ends, made._open = [*self._ends], [*self._open]
        made._leader = [dict(x) for x in self._leader]
        made._members = [{nest: list(of) for nest, of in x.items()} for x in self._members]
        return made

    def limit(self, t: Tensor, most: int) -> int:
        """The largest position, up to ``most``, at which ``t`` ties no two nests that depend on each other."""
        uses = t.uses
        if len(uses) < 2:
            return most
        for other, position in self._open:
            self._join(other, position)
        self._open.clear()
        level = 0
        for band, end in enumerate(self._ends):
            if level >= most:
                break
            nests = {self._nest(band, e) for e in uses}
            if len(nests) > 1 and self._depend(band, nests):
                return level
            level = end
        return most

    def join(self, t: Tensor, position: int) -> None:
        """``t`` is inlined at ``position``."""
        if t.definition is not None and position:
            self._open.append((t, position))

    def _join(self, t: Tensor, position: int) -> None:
        if t.definition is None:
            return
        self._end_at(position)
        for end, leader, members in zip(self._ends, self._leader, self._members, strict=True):
            if end > position:
                break
            for e in t.uses:
                _unite(leader, members, t.definition, e)

    def _end_at(self, position: int) -> None:
        """Let a band of levels end at ``position``."""
        band = bisect_left(self._ends, position)
        if band == len(self._ends):
            leader, members = dict[TensorExpr, TensorExpr](), dict[TensorExpr, list[TensorExpr]]()
        elif self._ends[band] == position:
            return
        else:
            leader = dict(self._leader[band])
            members = {nest: list(of) for nest, of in self._members[band].items()}
        self._ends.insert(band, position)
        self._leader.insert(band, leader)
        self._members.insert(band, members)

    def _nest(self, band: int, e: TensorExpr) -> TensorExpr:
        return self._leader[band].get(e, e)

    def _of(self, band: int, nest: TensorExpr) -> Sequence[TensorExpr]:
        return self._members[band].get(nest, (nest,))

    def _depend(self, band: int, nests: set[TensorExpr]) -> bool:
        """Whether values flow from one of the nests to another, through whatever else."""
        last = max(self._place[e] for n in nests for e in self._of(band, n))

        def onward(nest: TensorExpr) -> Iterator[TensorExpr]:
            uses = (use for e in self._of(band, nest) for use in e.output.uses)
            return (self._nest(band, use) for use in uses if self._place[use] <= last)

        return any(not nests.isdisjoint(reach([start], onward).keys() - {start}) for start in nests)


def _unite(
    leader: dict[TensorExpr, TensorExpr], members: dict[TensorExpr, list[TensorExpr]], a: TensorExpr, b: TensorExpr
) -> None:
    """Make the nests of ``a`` and ``b`` one, at one level."""
    small, large = leader.get(a, a), leader.get(b, b)
    if small is large:
        return
    moved, stay = members.get(small), members.get(large)
    if moved is not None and len(moved) > (1 if stay is None else len(stay)):
        small, large, moved, stay = large, small, stay, moved
    if stay is None:
        stay = members[large] = [large]
    if moved is None:
        leader[small] = large
        stay.append(small)
        return
    leader.update(dict.fromkeys(moved, large))
    stay += moved  # a copy of it for each one would be quadratic
    del members[small]


def _order_level(fusion: Fusion, level: int) -> None:
    """Contract tensors sharing the first ``level + 1`` loops; the rest must be acyclic between the groups."""
    nests = EquivalenceClasses[TensorExpr]()
    for t in fusion.tensors:
        if t.inline_position > level and t.definition is not None:
            for use in t.uses:
                nests.union(use, into=t.definition)
    find = nests.find
    after: dict[TensorExpr, set[TensorExpr]] = {}
    for e in fusion.exprs:
        for t in e.inputs:
            if t.definition is None:
                continue
            if find(t.definition) is find(e):
                if t.inline_position <= level:
                    raise _nested_producer_error(t, e, level)
            else:
                after.setdefault(find(t.definition), set()).add(find(e))
    state: dict[TensorExpr, int] = {}
    for root in list(after):
        stack = [(root, iter(sorted(after.get(root, ()), key=lambda e: e.name)))]
        if state.get(root):
            continue
        state[root] = 1
        while stack:
            node, rest = stack[-1]
            to = next(rest, None)
            if to is None:
                state[node] = 2
                stack.pop()
            elif state.get(to) == 1:
                raise ScheduleError(
                    f"the loop nest of {to.output.name} would have to stand both before and after that of "
                    f"{node.output.name}",
                    where=to.source_line,
                    because=[f"{node!r} stands between operations that share loop {level} with {to!r}"],
                    subject=(node.output.name, to.output.name),
                )
            elif not state.get(to):
                state[to] = 1
                stack.append((to, iter(sorted(after.get(to, ()), key=lambda e: e.name))))


def _nested_producer_error(t: Tensor, e: TensorExpr, level: int) -> ScheduleError:
    where = f" at {e.source_line}" if e.source_line else ""
    return ScheduleError(
        f"{t.name} is not finished where {e.output.name} reads it: both stand inside one loop {level}, but {t.name} is "
        f"inlined at {t.inline_position} only",
        where=t.source_line,
        because=[f"{e!r}{where}", f"other tensors inlined past loop {level} tie the two into one nest"],
        subject=(t.name, e.output.name),
    )


def unique_nests(exprs: Sequence[TensorExpr], nests: LoopNests, promotion: Promotion) -> tuple[TensorExpr, ...]:
    """Those of ``exprs`` that stand in the first nest of each structure; all that share a loop must be among them."""
    first: dict[Hashable, list[TensorExpr]] = {}
    for nest in _group_by_nest(exprs, nests.shared):
        first.setdefault(structural_key(nest, nests, promotion), nest)
    kept = {e for nest in first.values() for e in nest}
    return tuple(e for e in exprs if e in kept)


def isomorphic_exprs(exprs: Sequence[TensorExpr]) -> dict[TensorExpr, TensorExpr]:
    """For each of ``exprs`` the one in its place in the first nest that is scheduled alike.

    All that share a loop must be among ``exprs``. Nests are compared before anything is resolved in them; what is
    resolved in two that are alike is the same, unless it is resolved by what is read elsewhere (`Nests.beside`).
    """
    first: dict[Hashable, list[TensorExpr]] = {}
    found: dict[TensorExpr, TensorExpr] = {}
    for nest in _group_by_nest(exprs, _shared):
        found.update(zip(nest, first.setdefault(structural_key(nest), nest), strict=True))
    return found


def _shared(t: Tensor) -> int:
    return t.inline_position if t.uses else 0


def _group_by_nest(exprs: Sequence[TensorExpr], shared: Callable[[Tensor], int]) -> list[list[TensorExpr]]:
    """Operations by nest: those that share a loop with any other stand together, in order."""
    inside, nests = set(exprs), EquivalenceClasses[TensorExpr]()
    for e in exprs:
        for t in e.inputs:
            if t.definition in inside and shared(t):
                nests.union(t.definition, into=e)
    return nests.groups(exprs)


def structural_key(
    exprs: Iterable[TensorExpr], nests: LoopNests | None = None, promotion: Promotion | None = None
) -> Hashable:
    """Everything that the index graph of ``exprs`` is made of, as a value: equal ones have equal graphs, but for names.

    Without ``nests`` and ``promotion`` it is everything that these are made of too, unless by what is read elsewhere.
    """
    made = _Description(nests, promotion)
    for e in exprs:
        made.operation(e)
        if nests is None or promotion is None:
            made.loops(e)
    return tuple(made.parts)


class _Description:
    """The parts so far; axes and tensors are numbered when they are first met."""

    def __init__(self, nests: LoopNests | None, promotion: Promotion | None) -> None:
        self.parts: list[Hashable] = []
        self._nests = nests
        self._promotion = promotion
        self._axes: dict[IterDomain, int] = {}
        self._tensors: dict[Tensor, int] = {}
        self._widened: set[Tensor] = set()

    def operation(self, e: TensorExpr) -> None:
        """An operation with its tensors, what it reads, and what its shared loops are made."""
        self.parts.append(e.op)
        for t in (e.output, *e.inputs):
            self.tensor(t)
        for k, (t, row) in enumerate(zip(e.inputs, e.reads, strict=True)):
            self.parts.append(tuple([self.read(r) for r in row]))
            if self._nests is not None and t not in self._widened:
                self.parts += [(k, self.axis(a), self.axis(b)) for a, b in self._nests.promoted_pairs(t, e, k)]
        if self._promotion is None:
            return
        for d in e.output.loop:
            by = self._promotion.of(d)
            if by is not d:
                self.parts.append((self.axis(d), self.axis(by)))

    def loops(self, e: TensorExpr) -> None:
        """The ways of the loops of an operation, and whether its results must be whole where loops are shared."""
        t = e.output
        self.parts.append(tuple([d.parallel for d in t.domain.loop]))
        if _shared(t):
            self.parts.append(t.fusion.is_output(t))

    def tensor(self, t: Tensor) -> None:
        """A tensor: its number, and everything about it where it is met first."""
        count = len(self._tensors)
        number = self._tensors.setdefault(t, count)
        self.parts.append(number)
        if number < count:
            return
        domain, many = t.domain, self.many
        root, logical = domain.root, domain.logical
        # What is the same list of axes again, or an empty one, needs no numbers of its own.
        own = many(root)
        self.parts += (_shared(t), own, own if logical is root else many(logical))
        self.parts.append(own if domain.allocation is root else many(domain.allocation))
        if domain.exprs:
            self.steps(domain.exprs)
        pattern = domain.made_after() if self._nests is None else None
        if pattern is not None:  # no other tensor names the axes of these loops before anything is resolved
            self.parts.append(pattern)
            return
        if domain.loop_exprs:
            self.steps(domain.loop_exprs)
        self.parts.append(own if domain.loop is root else many(domain.loop))
        shadow = self._nests.shadows.get(t) if self._nests is not None else None
        if shadow is not None:
            self.steps(shadow.exprs)
            if (
                shadow.lacking
            ):  # what else is merged with its axes is a walk through the nest to say: it is like no other
                self.parts.append(t)
                self._widened.add(t)
            direct = tuple([(j, self.axis(d)) for j, d in shadow.direct.items()])
            self.parts += (many(shadow.loop), self.pairs(shadow.axis), self.pairs(shadow.resolved), direct)

    def steps(self, exprs: Sequence[DomainExpr]) -> None:
        """Domain expressions, in order."""
        self.parts.append(tuple([(x.attributes, self.many(x.inputs), self.many(x.outputs)) for x in exprs]))

    def read(self, r: AxisRead) -> Hashable:
        """How one axis of an operand is read."""
        match r:
            case Mapped():
                return self.axis(r.domain)
            case Fixed(index, why, resolves):
                return (index, why, None if resolves is None else self.axis(resolves))
            case LoadedCoordinate(operand):
                return ("loaded", operand)

    def pairs(self, of: Mapping[IterDomain, IterDomain]) -> Hashable:
        """Axes and what stands for them."""
        return tuple([(self.axis(a), self.axis(b)) for a, b in of.items()])

    def many(self, axes: Iterable[IterDomain]) -> tuple[int, ...]:
        """Axes by number."""
        known, parts = self._axes, self.parts
        found: list[int] = []
        for d in axes:
            number = known.get(d)
            if number is None:
                number = known[d] = len(known)
                parts.append((d.kind, d.extent))
            found.append(number)
        return tuple(found)

    def axis(self, d: IterDomain) -> int:
        """The number of an axis; its kind and extent become a part where it is met first."""
        number = self._axes.get(d)
        if number is None:
            number = self._axes[d] = len(self._axes)
            self.parts.append((d.kind, d.extent))
        return number
