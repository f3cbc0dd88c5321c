"""Loop nests: which loop axes of which tensors are one loop, and where a broadcast loop takes its extent from.

Tensors inlined at k share their first k loops with every consumer. A broadcast axis that feeds such a loop is resolved
to what the other tensors of the nest say; a tensor whose split or merged loops are touched by that gets *shadow* axes:
a replay of its schedule on the resolved axes, which belongs to no tensor.

Long: one structure, the nests of a fusion and what joins them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from idgraph.arith import Expr, as_expr, is_true, simplify
from idgraph.errors import ScheduleError
from idgraph.graphs.broadcast_forwarding import (
    BroadcastForwarding,
    LoopClasses,
    descendants,
    lacking_axes,
    replay_extents,
    sources,
)
from idgraph.graphs.union_find import EquivalenceClasses
from idgraph.ir import (
    SCANS,
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
    RowPartition,
    Split,
    Stride,
    Swizzle,
    Tensor,
    TensorExpr,
)
from idgraph.ir.iter_domain import is_one
from idgraph.ir.op_builders import same_extent


def scanned(e: TensorExpr) -> IterDomain:
    """The axis of its output along which a scan runs."""
    dim = e.attrs["dim"]
    assert isinstance(dim, int)
    return e.output.axes[dim % e.output.ndim]


def lacks(e: TensorExpr, k: int, loop: IterDomain) -> bool:
    """Whether none of the axes at which ``e`` reads operand ``k`` leads to a loop of its output."""
    read = (r.domain if isinstance(r, Mapped) else r.resolves if isinstance(r, Fixed) else None for r in e.reads[k])
    axes = [d for d in read if d is not None]
    return loop not in sources(axes, (*e.output.domain.exprs, *e.output.domain.loop_exprs))


def may_skip(t: Tensor) -> bool:
    """Whether loops of ``t`` may visit what its operands have not: some of its axes are padded."""
    resizes = (x for x in (*t.domain.exprs, *t.domain.loop_exprs) if isinstance(x, Resize))
    return not all(is_true(side <= 0) for x in resizes for side in (x.left, x.right))


def one_axis(fusion: Fusion) -> EquivalenceClasses[IterDomain]:
    """Axes that are one up to broadcasting: read at one coordinate, or resolved to each other."""
    found = EquivalenceClasses[IterDomain]()
    for e in fusion.exprs:
        for t, row in zip(e.inputs, e.reads, strict=True):
            for axis, read in zip(t.axes, row, strict=True):
                other = read.domain if isinstance(read, Mapped) else read.resolves if isinstance(read, Fixed) else None
                if other is not None:
                    found.union(axis, into=other)
    return found


def check_positions(fusion: Fusion) -> None:
    """Every inlined tensor fits its consumers' loops in number, and shares no reducing loop of its own."""
    for t in fusion.tensors:
        k = t.inline_position
        if not k:
            if t.memory in ("local", "shared") and t.definition is not None and t.definition.op in SCATTERS:
                _check_materialized(t, f"asks for {t.memory} memory")
            continue
        _check_materialized(t, f"is inlined at {k}")
        if k > len(t.loop) or "reduction" in [d.kind for d in t.loop[:k]]:
            raise ScheduleError(
                f"tensor {t.name} is inlined at {k}, but its loops were rescheduled to {', '.join(map(repr, t.loop))}",
                where=t.source_line,
                subject=(t.name,),
            )
        for e in t.uses:
            if len(e.output.loop) < k:
                raise _past_consumer(t, e, k)


def _check_materialized(t: Tensor, wish: str) -> None:
    """A tensor that a scatter writes at loaded coordinates is whole in memory before, and read when it is done."""
    readers = [e for e in t.uses if e.op in SCATTERS and e.inputs[0] is t]
    made = t.definition
    if made is not None and made.op in SCATTERS:
        because = f"{made!r} writes at loaded coordinates: an element is final when all its loops have ended"
    elif readers:
        because = f"{readers[0]!r} updates elements at loaded coordinates: all of {t.name} must be there before"
    else:
        return
    raise ScheduleError(
        f"tensor {t.name} {wish}, but it must be whole in memory",
        where=t.source_line,
        because=[because],
        subject=(t.name,),
    )


def _past_consumer(t: Tensor, e: TensorExpr, k: int) -> ScheduleError:
    """The error for an inlining past a consumer's loops."""
    return ScheduleError(
        f"tensor {t.name} is inlined at {k}, past its consumer {e.output.name}, which has {len(e.output.loop)} loops",
        where=t.source_line,
        because=[f"{e!r}" + (f" at {e.source_line}" if e.source_line else "")],
        subject=(t.name, e.output.name),
    )


@dataclass(slots=True)
class PromotedDomain:
    """The substitutes of a tensor's axes inside shared loops: the axis where nothing is resolved, else fresh replays.

    ``axis`` maps logical and derived axes to their stand-ins; ``exprs`` make the stand-ins; ``direct`` are loop
    positions that are resolved broadcast axes themselves (their coordinate is 0, only the loop is promoted).
    ``resolved`` maps resolved broadcast axes to fresh ones; ``lacking`` are the fresh axes that an axis was merged
    with, by axis and place (see `idgraph.graphs.broadcast_forwarding`).
    """

    loop: tuple[IterDomain, ...]
    axis: dict[IterDomain, IterDomain] = field(default_factory=dict[IterDomain, IterDomain])
    exprs: list[DomainExpr] = field(default_factory=list[DomainExpr])
    direct: dict[int, IterDomain] = field(default_factory=dict[int, IterDomain])
    resolved: dict[IterDomain, IterDomain] = field(default_factory=dict[IterDomain, IterDomain])
    lacking: dict[tuple[IterDomain, int], IterDomain] = field(default_factory=dict[tuple[IterDomain, int], IterDomain])

    def of(self, d: IterDomain) -> IterDomain:
        """The stand-in of an axis."""
        return self.axis.get(d, d)

    def read_at(self, read: AxisRead) -> IterDomain | None:
        """The axis of this output at whose coordinate it reads what stands for an operand's broadcast axis, if any."""
        match read:
            case Mapped(domain) if domain in self.resolved or not domain.is_broadcast:
                return self.resolved.get(domain, domain)
            case Fixed(resolves=IterDomain() as to):
                return self.resolved.get(to, to)
            case _:
                return None


class Shadows(dict[Tensor, PromotedDomain]):
    """Shadows of tensors; only what is not the tensor itself is kept, the others are made when asked for."""

    __slots__ = ()

    def __missing__(self, t: Tensor) -> PromotedDomain:
        return PromotedDomain(t.loop)


class LoopNests:
    """Union of tensors that share loops, with the resolution of broadcast axes inside each nest.

    ``exprs`` leaves out all other nests: whoever shares a loop with one of them must be among them. Axes of tensors
    that are ``kept`` are not widened: their loops of one step run at each step of what they are shared with.
    """

    def __init__(
        self, fusion: Fusion, exprs: Sequence[TensorExpr] | None = None, kept: Set[Tensor] = frozenset()
    ) -> None:
        self.fusion = fusion
        self._kept = kept
        self.exprs = fusion.exprs if exprs is None else exprs
        self.tensors = fusion.tensors if exprs is None else tuple([t for e in exprs for t in e.outputs])
        self.beside = False  # whether an axis was resolved by what is read elsewhere
        check_positions(fusion)
        self._resolved = EquivalenceClasses[IterDomain]()
        self._fresh = 0
        self._forwards: BroadcastForwarding | None = None
        self._conflicts: dict[IterDomain, IterDomain] = {}
        self._lengths: dict[Tensor, dict[int, Resize]] = {}
        self._classes = LoopClasses(self.tensors, self.shared)
        self.shadows = Shadows()
        if any(t.inline_position for t in self.tensors):
            self._share()

    def _share(self) -> None:
        """Resolve broadcasts in shared loops, and make what stands for the axes that this touches."""
        self._resolve()
        open_ = [t for t in self.tensors if any(self.resolved(d) is not None for d in t.logical)]
        self._fed = self._classes.fed(self._targets(open_), open_)
        self.shadows = self._all_shadows()
        self._before = self.shadows  # with nothing forwarded
        if any(self.shared(t) and any(lacking_axes(e) for e in t.uses) for t in self.tensors):
            self._forwards = BroadcastForwarding(self.exprs, self._widened, self._standing)
            self._fresh = 0
            self.shadows = self._all_shadows()
        if any(is_one(d.extent) for t in self.tensors for d in t.loop[: self.shared(t)]):
            self._promote_size_one_loops()
        self._pad_shared_loops()

    def shared(self, t: Tensor) -> int:
        """The number of t's loops that are shared with its consumers."""
        return t.inline_position if t.uses else 0

    def _widened(self, t: Tensor) -> int:
        """The number of t's shared loops, where they widen as those of its readers do."""
        return 0 if t in self._kept else self.shared(t)

    @property
    def joined(self) -> Set[IterDomain]:
        """The loop axes that are one with another."""
        return self._classes.joined

    def loop_class(self, t: Tensor, j: int) -> IterDomain:
        """The representative of all loops that are one with loop ``j`` of ``t``."""
        return self._classes.find(t.loop[j])

    # resolution ---------------------------------------------------------------------------------------------------

    def _targets(self, open_: Iterable[Tensor]) -> dict[IterDomain, IterDomain]:
        """Concrete axes that broadcast axes of ``open_`` are resolved to, and those that are one with them: what each
        is called."""
        met = {to for t in open_ for d in t.logical if (to := self.resolved(d)) is not None}
        find = self._resolved.find
        found = {d: to for d in [*self._resolved.parent] if not d.is_broadcast and (to := find(d)) in met}
        return {**found, **{to: to for to in met}}

    def _union(self, a: IterDomain, b: IterDomain) -> None:
        ra, rb = self._resolved.find(a), self._resolved.find(b)
        if ra is rb:
            return
        # A concrete axis represents its set, so that a broadcast finds what it resolves to.
        if ra.is_broadcast and not rb.is_broadcast:
            ra, rb = rb, ra
        if not ra.is_broadcast and not rb.is_broadcast and not same_extent(ra.extent, rb.extent):
            self._conflicts[rb] = ra
        self._resolved.union(rb, into=ra)

    def _resolve(self) -> None:
        for e in self.exprs:
            for t, row in zip(e.inputs, e.reads, strict=True):
                if not self.shared(t) or t in self._kept:
                    continue
                for axis, read in zip(t.axes, row, strict=True):
                    if isinstance(read, Mapped) and axis.is_broadcast:
                        self._union(axis, read.domain)
                    elif isinstance(read, Fixed) and read.resolves is not None:
                        self._union(axis, read.resolves)

        self._resolve_outer_broadcasts()

    def _resolve_outer_broadcasts(self) -> None:
        """Resolve broadcasts by concrete axes of the same loop, met only where both are read outside of the nest.

        ``a[i, 1]`` and ``b[i, j]`` computed in one loop over merge(i, j) and added later: a's loop runs over j too.
        """
        open_: set[IterDomain] = set()
        met = False  # by a loop that others share, at the most that any of them does
        for t in self.tensors:
            for d in t.logical if t not in self._kept else ():
                if d.kind == "broadcast" and self.resolved(d) is None:
                    open_.add(d)
                    if not met:
                        inputs = t.definition.inputs if t.definition is not None else ()
                        count = max(self.shared(t), *map(self.shared, inputs)) if inputs else self.shared(t)
                        met = bool(_positions(t, d, count))
        if not met:
            return
        beside: EquivalenceClasses[IterDomain] | None = None
        self.beside = True
        for loops in self._nests():
            places = {d: _positions(t, d, k) for t, k in loops.items() for d in t.logical if d in open_}
            if not any(places.values()):
                continue
            beside = beside or one_axis(self.fusion)
            concrete: dict[IterDomain, list[tuple[Tensor, IterDomain, int]]] = {}  # by what is one with them
            for u, other in loops.items():
                for c in u.logical:
                    if not c.is_broadcast:
                        concrete.setdefault(beside.find(c), []).append((u, c, other))
            for d, at in places.items():
                near = concrete.get(beside.find(d), ()) if at else ()
                met = next((c for u, c, other in near if at & _positions(u, c, other)), None)
                if met is not None:
                    self._union(d, met)

    def _nests(self) -> list[dict[Tensor, int]]:
        """Tensors computed in one nest, each with the number of its loops that others share."""
        nest: dict[Tensor, dict[Tensor, int]] = {}
        for t in self.tensors:
            k = self.shared(t)
            for e in t.uses if k else ():
                mine, theirs = nest.setdefault(t, {t: k}), nest.setdefault(e.output, {e.output: k})
                mine[t], theirs[e.output] = max(mine[t], k), max(theirs[e.output], k)
                if mine is not theirs:
                    large, small = (mine, theirs) if len(mine) >= len(theirs) else (theirs, mine)
                    large.update(small)
                    nest.update(dict.fromkeys(small, large))
        order = {t: n for n, t in enumerate(self.tensors)}
        unique = {id(found): found for found in nest.values()}
        return [dict(sorted(found.items(), key=lambda item: order[item[0]])) for found in unique.values()]

    def resolved(self, d: IterDomain) -> IterDomain | None:
        """The concrete axis a broadcast axis is resolved to inside its nest; None where it stays a broadcast."""
        if not d.is_broadcast or d not in self._resolved.parent:
            return None
        found = self._resolved.find(d)
        return None if found.is_broadcast else found

    def _check_conflict(self, t: Tensor, d: IterDomain) -> None:
        for lost, kept in self._conflicts.items():
            if self._resolved.find(lost) is self._resolved.find(d):
                raise ScheduleError(
                    f"the broadcast axis {d.label} is inlined into two extents: {kept.extent} of {kept.label} and "
                    f"{lost.extent} of {lost.label}",
                    where=t.source_line,
                    because=[f"one loop cannot have both extents, and {t.name} is inlined at {t.inline_position}"],
                    subject=(t.name, *(e.output.name for e in t.uses)),
                )

    def _promote_size_one_loops(self) -> None:
        """A loop over one element, in a loop that a reader's broadcast widens, or that runs over what the reader has
        and the tensor lacks: it stays at 0, and every step of the wide loop computes the same."""
        for e in reversed(self.exprs):
            t = e.output
            for j in range(self.shared(t)):
                mine = self.shadows[t]
                if j in mine.direct or not is_one(mine.loop[j].extent):
                    continue
                if (target := self._beyond(t, j)) is not None:
                    mine.direct[j] = target
                    self.shadows[t] = mine

    def _beyond(self, t: Tensor, j: int) -> IterDomain | None:
        """The axis that loop ``j`` of the readers of ``t`` runs over, where they agree. An operation that takes
        another term at each step is never repeated; and where readers may skip steps that lie outside of ``t``, its
        loop is padded instead."""
        e = t.definition
        ordered = e is not None and (
            e.op in SCATTERS or (e.op in SCANS and t.loop[j] in descendants(scanned(e), t.domain.loop_exprs))
        )
        readers = [self.shadows[use.output] for use in t.uses]
        targets = [reader.direct.get(j, reader.loop[j]) for reader in readers]
        if ordered or is_one(targets[0].extent) or not all(same_extent(d.extent, targets[0].extent) for d in targets):
            return None
        whole = all(
            j in reader.direct or lacks(use, k, use.output.loop[j]) or not may_skip(use.output)
            for use, reader in zip(t.uses, readers, strict=True)
            for k in use.operands_of(t)
        )
        return targets[0] if whole else None

    def _pad_shared_loops(self) -> None:
        """A shared loop runs as long as its readers' do: what it makes beside its own axis is padded or cut off.

        Whether the two are one loop is decided by their coordinates. They are not where readers differ in length, or
        where elements of an output would be cut off.
        """
        whole = frozenset(self.fusion.outputs)
        for e in reversed(self.exprs):
            t, count = e.output, self.shared(e.output)
            if not count or self._as_long(t, count):
                continue
            mine = self.shadows[t]
            readers = [self.shadows[use.output] for use in t.uses]
            for j in range(count):
                own = mine.loop[j]
                if j in mine.direct:
                    continue
                wanted = {r.direct.get(j, r.loop[j]).extent for r in readers}
                length = wanted.pop()
                if wanted or same_extent(length, own.extent) or (t in whole and not is_true(length >= own.extent)):
                    continue
                longer = self._new(length, t)
                longer.parallel = own.parallel
                made = Resize(own, longer, as_expr(0), simplify(length - own.extent), None)
                longer.definitions = (made,)
                loops = (*mine.loop[:j], longer, *mine.loop[j + 1 :])
                self.shadows[t] = mine = replace(mine, loop=loops, exprs=[*mine.exprs, made])
                self._lengths.setdefault(t, {})[j] = made

    def _as_long(self, t: Tensor, count: int) -> bool:
        """Whether the first loops of ``t`` and of all its readers are as scheduled, and of one length by their text."""
        own = t.loop[:count]
        return t not in self.shadows and all(
            use.output not in self.shadows
            and all(a.extent == b.extent for a, b in zip(own, use.output.loop[:count], strict=True))
            for use in t.uses
        )

    def lengths(self, t: Tensor) -> Mapping[int, Resize]:
        """By position the steps that make shared loops of ``t`` as long as its readers' are, where its own are not."""
        return self._lengths.get(t, {})

    @property
    def lengthened(self) -> bool:
        """Whether any loop is made as long as its readers' are."""
        return bool(self._lengths)

    def promoted_pairs(self, t: Tensor, e: TensorExpr, k: int) -> list[tuple[IterDomain, IterDomain]]:
        """Stand-ins of axes of ``t`` in loops that it shares with ``e``, each with the reader's axis of its coordinate.

        Those left out have no coordinate there, since every step of their loops computes the same element: take 0.
        """
        if not self.shared(t) or t not in self.shadows:
            return []
        mine, theirs = self.shadows[t], self.shadows[e.output]
        found: list[tuple[IterDomain, IterDomain]] = []
        for axis, read in zip(t.axes, e.reads[k], strict=True) if mine.resolved else ():
            if axis in mine.resolved and (met := theirs.read_at(read)) is not None:
                found.append((mine.resolved[axis], met))
        return [*found, *self._linked(t, e, k)] if mine.lacking else found

    def _linked(self, t: Tensor, e: TensorExpr, k: int) -> list[tuple[IterDomain, IterDomain]]:
        if self._forwards is None:
            return []
        mine, theirs = self.shadows[t].lacking, self.shadows[e.output]
        pairs = [
            (mine[axis, i], theirs.of(d) if number is None else theirs.lacking[d, number])
            for axis, wanted in self._forwards.walk(t, e, k)[0].items()
            for i, (f, (d, number)) in enumerate(wanted)
            if i < len(self._forwards.at(t, axis)) and f.same(self._forwards.at(t, axis)[i])
        ]
        # One coordinate only where the extents are one: what is left out here is refused as a loop that is not shared.
        return [(a, b) for a, b in pairs if same_extent(a.extent, b.extent)]

    def widening_conflicts(self, t: Tensor) -> list[str]:
        """Why no single nest holds all readers of ``t``, where their loops are widened differently."""
        return self._forwards.widening_conflicts(t) if self._forwards is not None and self.shared(t) else []

    def _standing(self, t: Tensor, d: IterDomain) -> Expr | None:
        found = self._before[t].axis.get(d)
        return None if found is None else found.extent

    # shadows ------------------------------------------------------------------------------------------------------

    def _feeds(self, t: Tensor) -> Iterator[tuple[IterDomain, bool]]:
        """Broadcast logical axes that feed a loop which another tensor runs over what they resolve to; True if
        transformed."""
        if not self._fed or t in self._kept:
            return
        for d in t.logical:
            if not d.is_broadcast or self.resolved(d) is None:
                continue
            reach, concrete = descendants(d, t.domain.loop_exprs), self._resolved.find(d)
            if any(x in reach and concrete in self._fed.get(self._classes.find(x), ()) for x in t.loop):
                yield d, any(d in e.inputs for e in t.domain.loop_exprs)

    def _check_scatter(self, t: Tensor) -> None:
        """A scatter acts at every step of its loops: none of them may be widened, as that of a broadcast is."""
        if t.definition is None or t.definition.op not in SCATTERS:
            return
        for p in t.definition.inputs:
            for d in t.root if self.shared(p) else ():
                target = self.resolved(d)
                if target is None or not descendants(d, t.domain.loop_exprs) & {*t.loop[: self.shared(p)]}:
                    continue
                raise ScheduleError(
                    f"{p.name} is inlined at {p.inline_position} into the scatter {t.definition!r}, whose loop of one "
                    f"element would run over the {target.extent} of {target.label}",
                    where=p.source_line,
                    because=["each element would be written, or added, that many times"],
                    subject=(p.name, t.name),
                )

    def _check_reduction(self, t: Tensor, made: PromotedDomain) -> None:
        """Each step of a reduced loop takes one more term: none may be repeated because another reader is wider."""
        wide = next((d for d in t.loop if d.kind == "reduction" and made.of(d) is not d), None)
        if wide is None or t.definition is None:
            return
        p = next((p for p in t.definition.inputs if self.shared(p)), t)
        raise ScheduleError(
            f"{p.name} is inlined at {p.inline_position} into {t.definition!r}, whose reduced loop of {wide.extent} "
            f"would run {made.of(wide).extent} steps, as that of another reader does",
            where=p.source_line,
            because=["each term would be taken more than once"],
            subject=(p.name, t.name),
        )

    def _all_shadows(self) -> Shadows:
        return Shadows({t: made for t in self.tensors if (made := self._shadow(t)) is not None})

    def _shadow(self, t: Tensor) -> PromotedDomain | None:
        self._check_scatter(t)
        feeding = list(self._feeds(t))
        if not feeding and (self._forwards is None or t not in self._forwards.of):
            return None
        for d, _ in feeding:
            self._check_conflict(t, d)
        made = PromotedDomain(t.loop)
        merged: Collection[IterDomain] = self._forwards.of.get(t, {}) if self._forwards is not None else ()
        for d, transformed in feeding:
            target = self.resolved(d)
            if target is None:
                continue
            if transformed or d in merged:
                made.axis[d] = made.resolved[d] = self._new(target.extent, t)
            else:
                made.direct[t.loop.index(d)] = target
        for d in t.logical:
            if d in merged:
                self._forward(made, t, d)
        if made.axis or merged:
            for e in t.domain.loop_exprs:
                if any(x in made.axis for x in e.inputs):
                    self._replay(e, made, t)
                for d in e.outputs:
                    if d in merged:
                        self._forward(made, t, d)
            made.loop = tuple(made.of(d) for d in t.loop)
            self._check_reduction(t, made)
        return made

    def _forward(self, made: PromotedDomain, t: Tensor, d: IterDomain) -> None:
        """Merge the stand-in of an axis with those that the tensor lacks."""
        for i, f in enumerate(self._forwards.at(t, d) if self._forwards is not None else ()):
            made.lacking[d, i] = lacking = self._new(f.extent, t)
            outer, inner = (made.of(d), lacking) if f.is_outer else (lacking, made.of(d))
            out = self._new(outer.extent * inner.extent, t)
            made.exprs.append(Merge(outer, inner, out, None))
            out.definitions = (made.exprs[-1],)
            made.axis[d] = out

    def _new(self, extent: Expr, t: Tensor) -> IterDomain:
        fresh = IterDomain(self._fresh, simplify(extent), "iteration", None)
        fresh.name = f"{t.name}.p{self._fresh}"
        self._fresh += 1
        return fresh

    def _replay(self, e: DomainExpr, made: PromotedDomain, t: Tensor) -> None:
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


def _positions(t: Tensor, d: IterDomain, count: int) -> set[int]:
    """The positions of those of the first ``count`` loops that an axis leads to."""
    reach = descendants(d, t.domain.loop_exprs)
    return {j for j, x in enumerate(t.loop[:count]) if x in reach}


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
        case RowPartition():
            flat, component, ragged = (*outs, *ins) if e.combines else (*ins, *outs)
            return RowPartition(flat, component, ragged, e.start, e.length, e.offsets, e.combines, e.line)
