"""Loop nests: which loop axes of which tensors are one loop, and where a broadcast loop takes its extent from.

Tensors inlined at k share their first k loops with every consumer. A broadcast axis that feeds such a loop is resolved
to what the other tensors of the nest say; a tensor whose split or merged loops are touched by that gets *shadow* axes:
a replay of its schedule on the resolved axes, which belongs to no tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from idgraph.arith import Expr, ceildiv, simplify
from idgraph.errors import ScheduleError
from idgraph.ir import (
    SCATTERS,
    AxisRead,
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
from idgraph.ir.pointwise import same_extent


@dataclass(slots=True)
class Shadow:
    """What stands for a tensor's axes inside shared loops: itself where nothing is resolved, else fresh replays.

    ``axis`` maps logical and derived axes to their stand-ins; ``exprs`` make the stand-ins; ``direct`` are loop
    positions that are resolved broadcast axes themselves (their coordinate is 0, only the loop is promoted).
    """

    loop: tuple[IterDomain, ...]
    axis: dict[IterDomain, IterDomain] = field(default_factory=dict[IterDomain, IterDomain])
    exprs: list[DomainExpr] = field(default_factory=list[DomainExpr])
    direct: dict[int, IterDomain] = field(default_factory=dict[int, IterDomain])

    def of(self, d: IterDomain) -> IterDomain:
        """The stand-in of an axis."""
        return self.axis.get(d, d)

    def read_at(self, read: AxisRead) -> IterDomain | None:
        """The axis of this output at whose coordinate it reads the stand-in of an operand's axis; None for 0.

        A broadcast that this output does not resolve has one element, which every step of the wider loop computes.
        """
        match read:
            case Mapped(domain) if domain in self.axis or not domain.is_broadcast:
                return self.of(domain)
            case Fixed(resolves=IterDomain() as to):
                return self.of(to)
            case _:
                return None


class Nests:
    """Union of tensors that share loops, with the resolution of broadcast axes inside each nest."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        check_positions(fusion)
        self._parent: dict[IterDomain, IterDomain] = {}
        self._fresh = 0
        self.shadows: dict[Tensor, Shadow] = {}
        self._resolve()
        for t in fusion.tensors:
            self.shadows[t] = self._shadow(t)

    def shared(self, t: Tensor) -> int:
        """How many of t's loops are shared with its consumers."""
        return t.inline_position if t.uses else 0

    # resolution ---------------------------------------------------------------------------------------------------

    def _find(self, d: IterDomain) -> IterDomain:
        while self._parent.setdefault(d, d) is not d:
            self._parent[d] = self._parent[self._parent[d]]
            d = self._parent[d]
        return d

    def _union(self, a: IterDomain, b: IterDomain) -> None:
        ra, rb = self._find(a), self._find(b)
        if ra is rb:
            return
        # A concrete axis represents its set, so that a broadcast finds what it resolves to.
        if ra.is_broadcast and not rb.is_broadcast:
            ra, rb = rb, ra
        if not ra.is_broadcast and not rb.is_broadcast and not same_extent(ra.extent, rb.extent):
            self._conflicts[rb] = ra
        self._parent[rb] = ra

    def _resolve(self) -> None:
        self._conflicts: dict[IterDomain, IterDomain] = {}
        for e in self.fusion.exprs:
            for t, row in zip(e.inputs, e.reads, strict=True):
                if not self.shared(t):
                    continue
                for axis, read in zip(t.axes, row, strict=True):
                    if isinstance(read, Mapped) and axis.is_broadcast:
                        self._union(axis, read.domain)
                    elif isinstance(read, Fixed) and read.resolves is not None:
                        self._union(axis, read.resolves)

    def resolved(self, d: IterDomain) -> IterDomain | None:
        """The concrete axis a broadcast axis is resolved to inside its nest; None where it stays a broadcast."""
        if not d.is_broadcast or d not in self._parent:
            return None
        found = self._find(d)
        return None if found.is_broadcast else found

    def _check_conflict(self, t: Tensor, d: IterDomain) -> None:
        for lost, kept in self._conflicts.items():
            if self._find(lost) is self._find(d):
                raise ScheduleError(
                    f"the broadcast axis {d.label} is inlined into two extents: {kept.extent} of {kept.label} and "
                    f"{lost.extent} of {lost.label}",
                    where=t.source_line,
                    because=[f"one loop cannot have both extents, and {t.name} is inlined at {t.inline_position}"],
                    hint=f"inline {t.name} further left, or give each use its own copy: ig.schedule.recompute",
                )

    # shadows ------------------------------------------------------------------------------------------------------

    def _feeds(self, t: Tensor) -> Iterator[tuple[IterDomain, bool]]:
        """Broadcast logical axes that feed a shared loop of t or of a producer inlined into it; True if transformed."""
        k = max([self.shared(t), *(self.shared(p) for p in t.definition.inputs)] if t.definition else [self.shared(t)])
        if not k:
            return
        for d in t.logical:
            if not d.is_broadcast or self.resolved(d) is None:
                continue
            reach = descendants(d, t.domain.loop_exprs)
            if any(x in reach for x in t.loop[:k]):
                yield d, any(d in e.inputs for e in t.domain.loop_exprs)

    def _shadow(self, t: Tensor) -> Shadow:
        feeding = list(self._feeds(t))
        for d, _ in feeding:
            self._check_conflict(t, d)
        made = Shadow(t.loop)
        for d, transformed in feeding:
            target = self.resolved(d)
            if target is None:
                continue
            if transformed:
                made.axis[d] = self._new(target.extent, t)
            else:
                made.direct[t.loop.index(d)] = target
        if made.axis:
            for e in t.domain.loop_exprs:
                if any(x in made.axis for x in e.inputs):
                    self._replay(e, made, t)
            made.loop = tuple(made.of(d) for d in t.loop)
        return made

    def _new(self, extent: Expr, t: Tensor) -> IterDomain:
        fresh = IterDomain(self._fresh, simplify(extent), "iteration", None)
        fresh.name = f"{t.name}.p{self._fresh}"
        self._fresh += 1
        return fresh

    def _replay(self, e: DomainExpr, made: Shadow, t: Tensor) -> None:
        """The same expression on stand-ins, with fresh outputs."""
        ins = [made.of(d) for d in e.inputs]
        outs = [self._new(x, t) for x in replay_extents(e, [d.extent for d in ins])]
        for old, new in zip(e.outputs, outs, strict=True):
            new.parallel = old.parallel
            made.axis[old] = new
        replayed = replayed_expr(e, ins, outs)
        made.exprs.append(replayed)
        for d in outs:
            d.definitions = (replayed,)


def descendants(d: IterDomain, exprs: list[DomainExpr]) -> set[IterDomain]:
    """``d`` and every axis made of it by ``exprs`` (in the order in which they were added)."""
    found = {d}
    for e in exprs:
        if any(x in found for x in e.inputs):
            found.update(e.outputs)
    return found


def replay_extents(e: DomainExpr, extents: list[Expr]) -> list[Expr]:
    """Extents of the outputs of ``e`` when its inputs have these extents."""
    match e:
        case Split():
            rest = simplify(ceildiv(extents[0], e.factor))
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


def replayed_expr(e: DomainExpr, ins: list[IterDomain], outs: list[IterDomain]) -> DomainExpr:
    """The expression ``e`` between other axes."""
    match e:
        case Split():
            return Split(ins[0], outs[0], outs[1], e.factor, e.inner_split, e.line)
        case Merge():
            return Merge(ins[0], ins[1], outs[0], e.line)
        case Resize():
            return Resize(ins[0], outs[0], e.left, e.right, e.line)
        case Stride():
            return Stride(ins[0], outs[0], e.start, e.step, e.line)
        case Roll():
            return Roll(ins[0], outs[0], e.shift, e.line)
        case Swizzle():
            return Swizzle(ins[0], ins[1], outs[0], outs[1], e.kind, e.line)


def check_positions(fusion: Fusion) -> None:
    """Every inlined tensor fits its consumers' loops in number, and shares no reducing loop of its own."""
    for t in fusion.tensors:
        k = t.inline_position
        if not k:
            continue
        _check_whole(t)
        if k > len(t.loop) or any(d.kind == "reduction" for d in t.loop[:k]):
            raise ScheduleError(
                f"tensor {t.name} is inlined at {k}, but its loops were rescheduled to {', '.join(map(repr, t.loop))}",
                where=t.source_line,
                hint=f"inline {t.name} after its last split, merge or reorder",
            )
        for e in t.uses:
            if len(e.output.loop) < k:
                raise past_consumer(t, e, k)


def _check_whole(t: Tensor) -> None:
    """What a scatter writes at loaded coordinates is whole in memory before, and read when it is done."""
    readers = [e for e in t.uses if e.op in SCATTERS and e.inputs[0] is t]
    made = t.definition
    if made is not None and made.op in SCATTERS:
        because = f"{made!r} writes at loaded coordinates: an element is final when all its loops have ended"
    elif readers:
        because = f"{readers[0]!r} updates elements at loaded coordinates: all of {t.name} must be there before"
    else:
        return
    raise ScheduleError(
        f"tensor {t.name} is inlined at {t.inline_position}, but it must be whole in memory",
        where=t.source_line,
        because=[because],
        hint=f"inline {t.name} at 0 (memory and a launch of its own)",
    )


def past_consumer(t: Tensor, e: TensorExpr, k: int) -> ScheduleError:
    """The error for an inlining past a consumer's loops."""
    return ScheduleError(
        f"tensor {t.name} is inlined at {k}, past its consumer {e.output.name}, which has {len(e.output.loop)} loops",
        where=t.source_line,
        because=[f"{e!r}" + (f" at {e.source_line}" if e.source_line else "")],
        hint=f"inline {t.name} at most at {len(e.output.loop)}",
    )
