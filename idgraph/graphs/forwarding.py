"""Loops that a nest widens by axes a tensor lacks: ``t[i]`` inlined into a loop over ``merge(b, i)`` of its reader.

The reader's broadcast ``b`` is resolved to a concrete axis, so the shared loop runs over both; ``t`` takes part in it
by merging its own axis with a *lacking* one at the same place of its schedule. What one tensor of a nest needs, its
producers and the other readers of its producers need too: the rules are applied until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from idgraph.arith import ArithError, Expr, simplify
from idgraph.errors import ScheduleError
from idgraph.graphs.coordinates import padded
from idgraph.ir import (
    DomainExpr,
    Fixed,
    Fusion,
    IterDomain,
    Mapped,
    Merge,
    Resize,
    Roll,
    Split,
    Stride,
    Swizzle,
    Tensor,
    TensorExpr,
)
from idgraph.ir.domains import is_one
from idgraph.ir.loops import part_count
from idgraph.ir.pointwise import same_extent


@dataclass(frozen=True, slots=True)
class Forward:
    """An axis merged with a lacking one of ``extent`` elements; ``is_outer`` says that the axis itself is the outer."""

    extent: Expr
    is_outer: bool

    def same(self, other: Forward) -> bool:
        """Equal by proof."""
        return self.is_outer == other.is_outer and same_extent(self.extent, other.extent)


# The place of a lacking axis in a reader: an axis of its own (None), or the numbered lacking one of an axis.
Place = tuple[IterDomain, int | None]
Wanted = dict[IterDomain, list[tuple[Forward, Place]]]


def shared_reads(fusion: Fusion, shared: Callable[[Tensor], int]) -> Iterator[tuple[Tensor, TensorExpr, int]]:
    """(tensor, operation, operand) for each read of a tensor inlined into the operation."""
    for e in fusion.exprs:
        for k, t in enumerate(e.inputs):
            if shared(t):
                yield t, e, k


def feeding(t: Tensor, count: int) -> set[IterDomain]:
    """Axes of t's schedule that lead to its first ``count`` loops."""
    found = set(t.loop[:count])
    for x in reversed(t.domain.loop_exprs):
        if any(d in found for d in x.outputs):
            found.update(x.inputs)
    return found


class Forwards:
    """For each tensor its axes that are merged with lacking ones, in order.

    ``standing(t, d)`` is the extent of what stands for a resolved broadcast axis of ``t``, or what a step made of one;
    None for other axes.
    """

    def __init__(
        self,
        fusion: Fusion,
        shared: Callable[[Tensor], int],
        standing: Callable[[Tensor, IterDomain], Expr | None],
    ) -> None:
        self.of: dict[Tensor, dict[IterDomain, list[Forward]]] = {}
        self._shared = shared
        self._standing = standing
        self._wants: dict[IterDomain, tuple[TensorExpr, int]] = {}  # the read that tells the forwards of an axis
        reads = list(shared_reads(fusion, shared))
        for _ in range(len(reads) + 2):  # each round settles one tensor more, at the least
            try:
                upstream = [self._to_producer(*read) for read in reversed(reads)]
                downstream = [self._to_reader(*read) for read in reads]
            except ArithError:  # an extent that is a multiple of itself has outgrown all numbers
                break
            if not any((*upstream, *downstream)):
                return
        raise _endless(*next(((t, e) for t, e, _ in reads if t in self.of), reads[0][:2]))

    def at(self, t: Tensor, d: IterDomain) -> list[Forward]:
        """The axes that an axis is merged with."""
        return self.of.get(t, {}).get(d, [])

    def apart(self, t: Tensor) -> list[str]:
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

    def _to_producer(self, t: Tensor, e: TensorExpr, k: int) -> bool:
        changed = False
        for axis, found in self.walk(t, e, k)[0].items():
            wanted, known = [f for f, _ in found], self.at(t, axis)
            grown = self._wants.get(axis) == (e, k) and not all(map(Forward.same, wanted, known))
            if len(wanted) > len(known) or grown:  # what the reader lacks may itself have been widened meanwhile
                self.of.setdefault(t, {})[axis], self._wants[axis] = wanted, (e, k)
                changed = True
        return changed

    def _to_reader(self, t: Tensor, e: TensorExpr, k: int) -> bool:
        if t not in self.of:
            return False
        changed = False
        wanted, known = self.walk(t, e, k)
        # An axis that only the operation's own steps lead to (the index of a scatter) takes no other axis along.
        widened = {*e.output.logical, *(d for x in e.output.domain.loop_exprs for d in x.outputs)}
        for axis, mine in self.of[t].items():
            theirs = wanted.get(axis, [])
            last = [d for d, own in known.items() if own is axis and d in widened]
            if last and len(theirs) < len(mine) and all(f.same(g) for (f, _), g in zip(theirs, mine, strict=False)):
                self.of.setdefault(e.output, {}).setdefault(last[-1], []).extend(mine[len(theirs) :])
                changed = True
        return changed

    def walk(self, t: Tensor, e: TensorExpr, k: int) -> tuple[Wanted, dict[IterDomain, IterDomain]]:
        """The axes of t that the reader's shared loops need, and the reader's axes with t's that correspond."""
        way = _Walk(self, t, e.output, self._shared(t))
        for axis, read in zip(t.axes, e.reads[k], strict=True):
            match read:
                case Mapped(domain):
                    way.enter(domain, axis)
                case Fixed(resolves=IterDomain() as to):
                    way.enter(to, axis)
                case _:
                    pass
        # Made by the operation itself: neither read by any operand, nor on the way from or to what is read.
        others = {d for x in e.output.domain.exprs for d in (*x.inputs, *x.outputs)}
        for row in e.reads:
            others.update(read.domain for read in row if isinstance(read, Mapped))
        way.fresh = {d for d in e.output.logical if d.is_broadcast and d not in way.known and d not in others}
        for x in (*e.output.domain.exprs, *e.output.domain.loop_exprs):  # also a reshape's steps
            way.take(x)
        # Merged with single elements only, an axis keeps its coordinate, unless loops run past the end.
        return {axis: found for axis, found in way.wanted.items() if axis in way.needed}, way.known

    def extent(self, t: Tensor, d: IterDomain) -> Expr:
        """The extent of what stands for an axis of ``t``, with all that it is merged with."""
        known: dict[IterDomain, Expr] = {}
        for axis in (*t.root, *t.logical):
            standing = self._standing(t, axis)
            known.setdefault(axis, self._widened(t, axis, axis.extent if standing is None else standing))
        for x in t.domain.loop_exprs:
            made = replay_extents(x, [known.get(axis, axis.extent) for axis in x.inputs])
            known.update((axis, self._widened(t, axis, extent)) for axis, extent in zip(x.outputs, made, strict=True))
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


class _Walk:
    """Down the schedule of a reader and of the tensor it reads at once."""

    def __init__(self, forwards: Forwards, t: Tensor, reader: Tensor, count: int) -> None:
        self.known: dict[IterDomain, IterDomain] = {}  # the reader's axes with the tensor's that correspond
        self.fresh: set[IterDomain] = set()  # broadcasts of the reader alone, and what is made of them
        self.wanted: Wanted = {}
        self.needed: set[IterDomain] = set()
        self._forwards, self._reader = forwards, reader
        self._shared = feeding(reader, count)
        self._padded = padded(reader.domain.loop_exprs)
        self._own = {x.inputs: x for x in t.domain.loop_exprs}

    def enter(self, d: IterDomain, axis: IterDomain) -> None:
        """Two axes correspond; what the reader's is merged with, the tensor's is too."""
        self.known[d] = axis
        if d in self._shared:
            for i, f in enumerate(self._forwards.at(self._reader, d)):
                self.wanted.setdefault(axis, []).append((f, (d, i)))
                self.needed.add(axis)

    def take(self, x: DomainExpr) -> None:
        """One step of the reader's schedule."""
        have = [d for d in x.inputs if d in self.known]
        if len(have) == len(x.inputs):
            mine = self._own.get(tuple(self.known[d] for d in have))
            if mine is not None and type(mine) is type(x) and mine.attributes == x.attributes:
                for d, axis in zip(x.outputs, mine.outputs, strict=True):
                    self.enter(d, axis)
        elif all(d in self.fresh for d in x.inputs):
            self.fresh.update(x.outputs)
        elif have and isinstance(x, Merge) and x.out in self._shared:
            lacking = x.inner if have[0] is x.outer else x.outer
            if lacking in self.fresh and not have[0].is_broadcast:  # permissive keeps two merged broadcasts apart
                extent, axis = self._forwards.extent(self._reader, lacking), self.known[have[0]]
                self.wanted.setdefault(axis, []).append((Forward(extent, have[0] is x.outer), (lacking, None)))
                if lacking in self._padded or not is_one(extent):
                    self.needed.add(axis)
                self.enter(x.out, axis)
