"""Loops that a nest widens by axes a tensor lacks: ``t[i]`` inlined into a loop over ``merge(b, i)`` of its reader.

The reader's broadcast ``b`` is resolved to a concrete axis, so the shared loop runs over both; ``t`` takes part in it
by merging its own axis with a *lacking* one at the same point of its schedule. What one tensor of a nest needs, its
producers and the other readers of its producers need too: the rules are applied until nothing changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from idgraph.arith import ArithError, Expr, simplify
from idgraph.errors import ScheduleError
from idgraph.graphs.coordinate_rules import resized_axes
from idgraph.graphs.union_find import EquivalenceClasses
from idgraph.ir import (
    DomainExpr,
    Fixed,
    IterDomain,
    Mapped,
    Merge,
    Resize,
    Roll,
    RowPartition,
    Split,
    Stride,
    Swizzle,
    Tensor,
    TensorExpr,
)
from idgraph.ir.iter_domain import is_one
from idgraph.ir.loop_transforms import part_count
from idgraph.ir.op_builders import same_extent
from idgraph.ir.verifier import LARGEST


@dataclass(frozen=True, slots=True)
class ForwardedMerge:
    """An axis merged with a lacking one of ``extent`` elements; ``is_outer`` says that the axis itself is the outer."""

    extent: Expr
    is_outer: bool

    def same(self, other: ForwardedMerge) -> bool:
        """Equal by proof."""
        return self.is_outer == other.is_outer and same_extent(self.extent, other.extent)


# The place of a lacking axis in a reader: an axis of its own (None), or the numbered lacking one of an axis.
Place = tuple[IterDomain, int | None]
Wanted = dict[IterDomain, list[tuple[ForwardedMerge, Place]]]


_Read = tuple[Tensor, TensorExpr, int]
_Rule = tuple[Callable[[Tensor, TensorExpr, int], Tensor | None], _Read]
_LAPS = 3  # of a ring of rules that each make an axis longer: then they do so in every lap
_ROUNDS = 3  # nests that end at all have settled by then, nearly always


class _Cause(NamedTuple):
    """A rule that widened a tensor, and why it was asked."""

    rule: _Rule
    before: _Cause | None


def shared_reads(
    exprs: Sequence[TensorExpr], shared: Callable[[Tensor], int]
) -> Iterator[tuple[Tensor, TensorExpr, int]]:
    """(tensor, operation, operand) for each read of a tensor inlined into the operation."""
    for e in exprs:
        for k, t in enumerate(e.inputs):
            if shared(t):
                yield t, e, k


def merges_lacking(e: TensorExpr, among: Collection[Tensor] | None = None) -> bool:
    """Whether an axis of the output of ``e`` that is a broadcast or that some operand (of ``among``) does not have, or
    what is made of one, is merged with anything."""
    wide = lacking_axes(e, among)
    for x in (*e.output.domain.exprs, *e.output.domain.loop_exprs) if wide else ():
        if any(d in wide for d in x.inputs):
            if isinstance(x, Merge):
                return True
            wide.update(x.outputs)
    return False


def lacking_axes(e: TensorExpr, among: Collection[Tensor] | None = None) -> set[IterDomain]:
    """The axes of the output of ``e`` that are broadcasts, or at which some operand (of ``among``) is not read."""
    logical = e.output.logical
    found = {d for d in logical if d.is_broadcast}
    for t, row in zip(e.inputs, e.reads, strict=True):
        if t.ndim < len(logical) and (among is None or t in among):
            read = {r.domain if isinstance(r, Mapped) else r.resolves if isinstance(r, Fixed) else None for r in row}
            found.update(d for d in logical if d not in read)
    return found


def broadcast_sources(t: Tensor, count: int) -> set[IterDomain]:
    """Axes of t's schedule that lead to its first ``count`` loops."""
    found = set(t.loop[:count])
    for x in reversed(t.domain.loop_exprs):
        if any(d in found for d in x.outputs):
            found.update(x.inputs)
    return found


class BroadcastForwarding:
    """For each tensor its axes that are merged with lacking ones, in order.

    ``standing(t, d)`` is the extent of what stands for a resolved broadcast axis of ``t``, or what a step made of one;
    None for other axes.
    """

    def __init__(
        self,
        exprs: Sequence[TensorExpr],
        shared: Callable[[Tensor], int],
        standing: Callable[[Tensor, IterDomain], Expr | None],
    ) -> None:
        self.of: dict[Tensor, dict[IterDomain, list[ForwardedMerge]]] = {}
        self._shared = shared
        self._standing = standing
        self._wants: dict[IterDomain, tuple[TensorExpr, int]] = {}  # the read that tells the forwards of an axis
        self._ways: dict[_Read, _ForwardingPath] = {}
        self._changes: Counter[Tensor] = Counter()  # how often each tensor was widened
        self._extents: dict[Tensor, tuple[int, dict[IterDomain, Expr]]] = {}  # at that number of changes
        reads = list(shared_reads(exprs, shared))
        # Nothing is widened where no reader merges what it reads with a broadcast of its own: such merges come first,
        # then what they widen.
        self._seeds: set[_Read] = set()
        rules: list[_Rule] = [(self._to_producer, read) for read in reversed(reads)]
        rules += [(self._to_reader, read) for read in reads]
        with suppress(ArithError):  # a symbolic extent that is a multiple of itself has outgrown all numbers
            self._seeds = {r for r in reads if merges_lacking(r[1]) and self._forwarding_path(*r).lacks}
            most = len(reads) + 2  # each round settles one tensor more, at the least
            if not self._seeds or self._settled(rules, most):
                return
        raise _endless(*next(((t, e) for t, e, _ in reads if t in self.of), reads[0][:2]))

    def _settled(self, rules: Sequence[_Rule], most: int) -> bool:
        """Apply the rules in turn; True as soon as nothing changes in a round.

        A rule that changed nothing is passed over until one of its two tensors is widened.
        """
        idle: dict[int, tuple[int, int]] = {}
        for n in range(most):
            widened: list[Tensor] = []
            for at, (rule, read) in enumerate(rules):
                if read not in self._seeds and read[0] not in self.of and read[1].output not in self.of:
                    continue
                if idle.get(at) == (state := self._state(read)):
                    continue
                if (found := rule(*read)) is None:
                    idle[at] = state
                else:
                    widened.append(found)
            if not widened:
                return True
            if n == _ROUNDS:
                self._look_deep(rules, widened)
        return False

    def _state(self, read: _Read) -> tuple[int, int]:
        return self._changes[read[0]], self._changes[read[1].output]

    def _look_deep(self, rules: Sequence[_Rule], widened: Sequence[Tensor]) -> None:
        """Raise where loops widen themselves without end, found by going round in the few that do.

        Rounds come to the same end, after many times the work: each takes the whole nest along. Here what was widened
        last goes on first, and where a rule follows from itself, the rules between go round by themselves. What is
        found short of an end is put back: rounds decide which reader is asked.
        """
        touching: dict[Tensor, list[_Rule]] = {}
        for rule in rules:
            t, e, _ = rule[1]
            for x in {t, e.output}:
                touching.setdefault(x, []).append(rule)
        of, wants = {t: {d: [*fs] for d, fs in found.items()} for t, found in self.of.items()}, dict(self._wants)
        left: list[tuple[Tensor, _Cause | None]] = [(t, None) for t in dict.fromkeys(widened)]
        budget = 4 * len(rules)
        while left and budget > 0:
            t, cause = left.pop()
            for rule in touching[t]:
                budget -= 1
                if (found := rule[0](*rule[1])) is not None:
                    left.append((found, why := _Cause(rule, cause)))
                    budget -= self._go_round(why)
        self.of, self._wants = of, wants
        for t in self._changes:  # rules are asked again
            self._changes[t] += 1

    def _go_round(self, cause: _Cause) -> int:
        """Apply the rules from the last use of a rule to this one, in turn; how many were applied.

        Raises where each makes an axis longer in each lap: what one lap adds, the next adds again.
        """
        ring, at = [cause.rule], cause.before
        while at is not None and at.rule != cause.rule:
            ring.append(at.rule)
            at = at.before
        if at is None:
            return 0
        for n, (rule, read) in enumerate(_LAPS * ring[::-1]):
            before = self._length(read)
            if rule(*read) is None or self._length(read) == before:
                return n
        raise _endless(*cause.rule[1][:2])

    def _length(self, read: _Read) -> int:
        return sum(len(found) for t in (read[0], read[1].output) for found in self.of.get(t, {}).values())

    def at(self, t: Tensor, d: IterDomain) -> list[ForwardedMerge]:
        """The axes that an axis is merged with."""
        return self.of.get(t, {}).get(d, [])

    def widening_conflicts(self, t: Tensor) -> list[str]:
        """One sentence for each way in which readers widen an axis of ``t``, where these differ; else nothing."""
        told: dict[tuple[IterDomain, str], TensorExpr] = {}
        for e in t.uses:
            for k in e.operands_of(t):
                for axis, wanted in self.walk(t, e, k)[0].items():
                    told.setdefault((axis, " x ".join(str(f.extent) for f, _ in wanted)), e)
        axes = [axis for axis, _ in told]
        return [
            f"the loops of {e.output.name} merge {axis.label} with {extents} elements that {t.name} lacks"
            for (axis, extents), e in told.items()
            if axes.count(axis) > 1
        ]

    def _to_producer(self, t: Tensor, e: TensorExpr, k: int) -> Tensor | None:
        """The tensor of the read where what its reader needs has widened it; else None."""
        changed: Tensor | None = None
        for axis, found in self.walk(t, e, k)[0].items():
            wanted, known = [f for f, _ in found], self.at(t, axis)
            grown = self._wants.get(axis) == (e, k) and not all(map(ForwardedMerge.same, wanted, known))
            if len(wanted) > len(known) or grown:  # what the reader lacks may itself have been widened meanwhile
                if prod(max(1, int(f.extent)) for f in wanted if f.extent.is_const) > LARGEST:
                    raise _endless(t, e)  # no loop is as long: an extent that is a multiple of itself
                self.of.setdefault(t, {})[axis], self._wants[axis] = wanted, (e, k)
                self._changes[t] += 1
                changed = t
        return changed

    def _to_reader(self, t: Tensor, e: TensorExpr, k: int) -> Tensor | None:
        """The reader where what the tensor needs has widened it; else None."""
        if t not in self.of:
            return None
        changed: Tensor | None = None
        wanted, known = self.walk(t, e, k)
        # An axis that only the operation's own steps lead to (the index of a scatter) takes no other axis along.
        widened = {*e.output.logical, *(d for x in e.output.domain.loop_exprs for d in x.outputs)}
        for axis, mine in self.of[t].items():
            theirs = wanted.get(axis, [])
            last = [d for d, own in known.items() if own is axis and d in widened]
            if last and len(theirs) < len(mine) and all(f.same(g) for (f, _), g in zip(theirs, mine, strict=False)):
                self.of.setdefault(e.output, {}).setdefault(last[-1], []).extend(mine[len(theirs) :])
                self._changes[e.output] += 1
                changed = e.output
        return changed

    def walk(self, t: Tensor, e: TensorExpr, k: int) -> tuple[Wanted, Mapping[IterDomain, IterDomain]]:
        """The axes of t that the reader's shared loops need, and the reader's axes with t's that correspond."""
        way = self._forwarding_path(t, e, k)
        wanted, needed = Wanted(), set[IterDomain]()
        for axis, d, is_outer, is_padded in way.steps:
            if is_outer is None:  # what the reader's axis is merged with, the tensor's is too
                found = [(f, (d, i)) for i, f in enumerate(self.at(e.output, d))]
                is_needed = bool(found)
            else:
                extent = self.extent(e.output, d)
                found = [(ForwardedMerge(extent, is_outer), (d, None))]
                is_needed = is_padded or not is_one(extent)
            if found:
                wanted.setdefault(axis, []).extend(found)
            if is_needed:
                needed.add(axis)
        # Merged with single elements only, an axis keeps its coordinate, unless loops run past the end.
        return {axis: found for axis, found in wanted.items() if axis in needed}, way.known

    def _forwarding_path(self, t: Tensor, e: TensorExpr, k: int) -> _ForwardingPath:
        found = self._ways.get((t, e, k))
        if found is None:
            found = self._ways[t, e, k] = _ForwardingPath(t, e, k, self._shared(t))
        return found

    def extent(self, t: Tensor, d: IterDomain) -> Expr:
        """The extent of what stands for an axis of ``t``, with all that it is merged with."""
        changes, known = self._extents.get(t, (-1, {}))
        if changes != self._changes[t]:
            known = dict[IterDomain, Expr]()
            for axis in (*t.root, *t.logical):
                standing = self._standing(t, axis)
                known.setdefault(axis, self._widened(t, axis, axis.extent if standing is None else standing))
            for x in t.domain.loop_exprs:
                made = replay_extents(x, [known.get(axis, axis.extent) for axis in x.inputs])
                known.update(
                    (axis, self._widened(t, axis, extent)) for axis, extent in zip(x.outputs, made, strict=True)
                )
            self._extents[t] = self._changes[t], known
        return known.get(d, d.extent)

    def _widened(self, t: Tensor, d: IterDomain, extent: Expr) -> Expr:
        for f in self.at(t, d):
            extent = simplify(extent * f.extent)
        return extent


def _endless(t: Tensor, e: TensorExpr) -> ScheduleError:
    return ScheduleError(
        f"tensor {t.name} is inlined at {t.inline_position} into loops of {e.output.name} that widen it without end",
        where=t.source_line,
        because=[
            f"they merge an axis of {t.name} with one that it lacks, which is then a part of what the other axis lacks"
        ],
        subject=(t.name, e.output.name),
    )


def replay_extents(e: DomainExpr, extents: list[Expr]) -> list[Expr]:
    """Extents of the outputs of ``e`` when its inputs have these extents."""
    match e:
        case Split():
            rest = part_count(extents[0], e.factor)
            return [rest, e.factor] if e.inner_split else [e.factor, rest]
        case Merge():
            return [simplify(extents[0] * extents[1])]
        case Resize():
            return [simplify(extents[0] + e.left + e.right)]
        case Stride():
            return [e.out.extent]
        case Roll():
            return [extents[0]]
        case Swizzle():
            return [extents[0], extents[1]]
        case RowPartition():
            return [d.extent for d in e.outputs]


class _AxisPair(NamedTuple):
    """An axis of a tensor beside an axis of its reader: both go on as one, or (``is_outer``) it is merged with that."""

    axis: IterDomain
    reader: IterDomain
    is_outer: bool | None = None
    is_padded: bool = False


class _ForwardingPath:
    """Down the schedule of a reader and of the tensor it reads at once; nothing here changes while axes are widened."""

    def __init__(self, t: Tensor, e: TensorExpr, k: int, count: int) -> None:
        self.known: dict[IterDomain, IterDomain] = {}  # the reader's axes with the tensor's that correspond
        self.steps: list[_AxisPair] = []
        domain = e.output.domain
        self._shared = broadcast_sources(e.output, count)
        self._padded = resized_axes(domain.loop_exprs)
        self._own = {x.inputs: x for x in t.domain.loop_exprs}
        for axis, read in zip(t.axes, e.reads[k], strict=True):
            match read:
                case Mapped(d) | Fixed(resolves=IterDomain() as d):
                    self._enter(d, axis)
                case _:
                    pass
        # Axes at which the operand is not read, and what is made of them: broadcasts made by the operation itself, and
        # axes that only other operands have; nor are they on the way from or to what is read.
        others = {d for x in domain.exprs for d in (*x.inputs, *x.outputs)}
        self._fresh = {d for d in e.output.logical if d not in self.known and d not in others}
        for x in (*domain.exprs, *domain.loop_exprs):  # also a reshape's steps
            self._take(x)

    @property
    def lacks(self) -> bool:
        """Whether the reader merges an axis with one that the tensor lacks."""
        return any(x.is_outer is not None for x in self.steps)

    def _enter(self, d: IterDomain, axis: IterDomain) -> None:
        """Two axes correspond."""
        self.known[d] = axis
        if d in self._shared:
            self.steps.append(_AxisPair(axis, d))

    def _take(self, x: DomainExpr) -> None:
        """One step of the reader's schedule."""
        have = [d for d in x.inputs if d in self.known]
        if len(have) == len(x.inputs):
            mine = self._own.get(tuple(self.known[d] for d in have))
            if mine is not None and type(mine) is type(x) and mine.attributes == x.attributes:
                for d, axis in zip(x.outputs, mine.outputs, strict=True):
                    self._enter(d, axis)
        elif all(d in self._fresh for d in x.inputs):
            self._fresh.update(x.outputs)
        elif have and isinstance(x, Merge) and x.out in self._shared:
            lacking = x.inner if have[0] is x.outer else x.outer
            if lacking in self._fresh:
                axis = self.known[have[0]]
                self.steps.append(_AxisPair(axis, lacking, have[0] is x.outer, lacking in self._padded))
                self._enter(x.out, axis)


class LoopClasses:
    """Classes of the loop axes of computed tensors: those left of a tensor's position are its readers' too."""

    def __init__(self, tensors: Sequence[Tensor], shared: Callable[[Tensor], int]) -> None:
        self._tensors = tensors
        classes = EquivalenceClasses[IterDomain]()
        for t in tensors:
            count = shared(t)
            for e in t.uses if count else ():
                for mine, theirs in zip(t.loop[:count], e.output.loop, strict=False):
                    classes.union(mine, into=theirs)
        parent = classes.parent
        self._leader = {d: classes.find(d) for d in {*parent, *parent.values()}}

    @property
    def joined(self) -> Set[IterDomain]:
        """The loop axes that are one with another."""
        return self._leader.keys()

    def find(self, d: IterDomain) -> IterDomain:
        """The representative of the class of a loop axis."""
        return self._leader.get(d, d)

    def fed(self, named: Mapping[IterDomain, IterDomain], of: Iterable[Tensor]) -> dict[IterDomain, set[IterDomain]]:
        """For each class of several loops, one of them of a tensor in ``of``, those of the axes ``named`` that feed any
        of them, as they are called there."""
        found: dict[IterDomain, set[IterDomain]] = {}
        leader = self._leader
        wanted = {leader[d] for t in of for d in t.loop if d in leader}
        for t in self._tensors if wanted else ():
            loops = [d for d in t.loop if leader.get(d) in wanted]
            if not loops:
                continue
            mine = [c for c in dict.fromkeys((*t.root, *t.logical)) if c in named]
            if not mine:
                continue
            above = sources(mine, (*t.domain.exprs, *t.domain.loop_exprs))
            for d in loops:
                feeding = above.get(d, 0)
                if feeding:
                    met = found.setdefault(leader[d], set())
                    met.update([named[c] for n, c in enumerate(mine) if feeding >> n & 1])
        return found


def sources(axes: Sequence[IterDomain], exprs: Iterable[DomainExpr]) -> dict[IterDomain, int]:
    """For each of ``axes``, and each axis that ``exprs`` (in the order in which they were added) make of them, which of
    them it is made of: a number whose bit n is set for ``axes[n]``."""
    found = {d: 1 << n for n, d in enumerate(axes)}
    for e in exprs:
        bits = 0
        for x in e.inputs:
            bits |= found.get(x, 0)
        if bits:
            for x in e.outputs:
                found[x] = found.get(x, 0) | bits
    return found


def descendants(d: IterDomain, exprs: list[DomainExpr]) -> set[IterDomain]:
    """``d`` and every axis made of it by ``exprs`` (in the order in which they were added)."""
    found = {d}
    for e in exprs:
        if any(x in found for x in e.inputs):
            found.update(e.outputs)
    return found
