"""Scheduling one tensor like another: its loop axes replayed across the operations between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence, Set
from typing import assert_never

from idgraph.arith import Expr, is_true, simplify
from idgraph.errors import ScheduleError, arguments, user_line
from idgraph.graphs.broadcast_forwarding import descendants
from idgraph.index import IdModel
from idgraph.index.predicate import is_partial
from idgraph.ir import (  # fmt: skip
    SCANS,
    SCATTERS,
    DomainExpr,
    Fixed,
    Fusion,
    IterDomain,
    LoadedCoordinate,
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
    check_fusion,
)
from idgraph.ir import loop_transforms as loop_steps  # fmt: skip
from idgraph.ir.clone import rewriting
from idgraph.ir.op_builders import same_extent
from idgraph.schedule.legality import drop_inlining, loop_conflict, nest_error, runs_inside
from idgraph.schedule.replay_cache import ReplayRecipe, described_replay, patterned_replay, recipe_of
from idgraph.schedule.view_inversion import LoopStop, rebuild_axes


def _producer_axes(e: TensorExpr, k: int) -> dict[IterDomain, IterDomain]:
    """Root axes of the output that operand ``k`` is read at, with the operand's axes; resolved broadcasts too."""
    found: dict[IterDomain, IterDomain] = {}
    for axis, read in zip(e.inputs[k].axes, e.reads[k], strict=True):
        if isinstance(read, Mapped):
            found.setdefault(read.domain, axis)
        elif isinstance(read, Fixed) and read.resolves is not None:
            found.setdefault(read.resolves, axis)
    return found


class _Replay:
    """Grows a tensor's loops, by schedule steps, so that they correspond to given axes of another tensor.

    The steps are not guarded one by one: the call that replays thousands of them keeps the state of the fusion.

    Where ``cut`` is False its loops keep reaching every element: an axis that the other tensor cuts stays whole, and is
    split and merged as if nothing had been cut.
    """

    def __init__(
        self, tensor: Tensor, known: dict[IterDomain, IterDomain], cut: bool, lost: Set[IterDomain] = frozenset()
    ) -> None:
        self.tensor = tensor
        self._lost = set(lost)  # axes of the other tensor that the tensor has, but no loop runs over
        self.mixed: dict[IterDomain, DomainExpr] = {}  # loops that would join a reduced and a kept one, by what
        self.image = dict(known)
        self._cut = cut
        self._whole: set[IterDomain] = set()  # axes of the other tensor whose image is wider than they are
        # And those whose image is a part of them: a broadcast that is resolved, one of two axes that are merged.
        self._narrow = {d for d, mine in known.items() if not same_extent(d.extent, mine.extent)}
        self._inner = {d for d in self._narrow if known[d].extent == 1}  # those of which it is the inner part

    def through(self, exprs: Sequence[DomainExpr], wanted: set[IterDomain]) -> None:
        """Replay those of ``exprs`` that lead to ``wanted``; a merge with an axis unknown here keeps the other one."""
        needed, image = set(wanted), self.image
        for e in reversed(exprs):
            if not needed.isdisjoint(e.outputs):
                needed.update(e.inputs)
        for e in exprs:
            if isinstance(e, Stride) and e.source in needed and e.source not in image:
                self._spread(e)
            sources, made = e.inputs, e.outputs
            if needed.isdisjoint(made) or all(d in image for d in made):
                continue
            if not self._lost.isdisjoint(sources):
                self._lost.update(made)
                continue
            have = [image[d] for d in sources if d in image]
            if self._narrow or len(have) < len(sources):
                self._narrowed(e)
            if have and self._is_skipped(e):
                continue
            if len(have) == len(sources):
                loop = self.tensor.loop
                if all(d in loop for d in have):
                    self._step(e, [loop.index(d) for d in have])
            elif have and isinstance(e, Merge):
                self.image[e.out] = have[0]

    def _narrowed(self, e: DomainExpr) -> None:
        """Note of which outputs of ``e`` there is a part only."""
        missing = {d for d in e.inputs if d not in self.image}
        narrow = missing | (self._narrow & {*e.inputs})
        if not narrow:
            return
        self._narrow.update(e.outputs)
        match e:
            case Merge() if e.inner not in narrow and e.outer in missing | self._inner:
                self._inner.add(e.out)
            case Split() if e.source in self._inner and e.source in self.image and e.inner_split:
                self._inner.add(e.outer)
                if is_true((self.image[e.source].extent % e.factor).eq(0)):  # its pieces are whole ones
                    self._narrow.discard(e.inner)
            case _:
                pass

    def _spread(self, e: Stride) -> None:
        """Loops over all of ``e.source`` for an axis that is as ``e.out``: its elements land on every step-th of them.

        Each element becomes a group of ``step`` places of which the first holds it: an axis of one element beside it,
        grown to the step. A bound keeps loops from the other places.
        """
        t, mine = self.tensor, self.image.get(e.out)
        alike = mine is not None and e.out not in self._narrow and same_extent(mine.extent, e.out.extent)
        if mine not in t.loop or mine.kind == "reduction" or not alike:
            return
        behind = simplify(e.source.extent - e.start - mine.extent * e.step)
        if not self._cut and not is_true(behind >= 0):
            return
        at = t.loop.index(mine)
        loop_steps.split(t, at, 1, inner=True)
        loop_steps.resize(t, at + 1, 0, int(e.step) - 1)
        loop_steps.merge(t, at, at + 1)
        if not (e.start == 0 and behind == 0):
            loop_steps.resize(t, at, e.start, behind)
        self.image[e.source] = t.loop[at]

    def _is_skipped(self, e: DomainExpr) -> bool:
        """Whether ``e`` is left out, as the axis it moves or cuts stays whole; its outputs get its inputs' images."""
        if self._cut:
            return False
        wide = any(d in self._whole for d in e.inputs)
        if wide:
            self._whole.update(e.outputs)
        match e:
            case Split() | Merge() | RowPartition():
                return False
            case Resize() | Stride() | Roll() | Swizzle():
                if not wide and not is_partial(e):
                    return False
        self._whole.update(e.outputs)
        self.image.update({out: self.image[d] for d, out in zip(e.inputs, e.outputs, strict=True) if d in self.image})
        return True

    def _step(self, e: DomainExpr, at: list[int]) -> None:
        t = self.tensor
        match e:
            case Split():
                loop_steps.split_like(t, at[0], e)
            case Merge():
                if self._mixed(at):
                    self.mixed.update({t.loop[p]: e for p in at})
                    return
                loop_steps.merge(t, at[0], at[1])
            case Resize():
                source = t.loop[at[0]].extent
                if is_partial(e) and e.source in self._narrow:  # other elements are cut off than those of the part
                    self.image[e.out] = t.loop[at[0]]
                    return
                if not all(is_true(x >= 0) for x in (source + e.left, source + e.right, source + e.left + e.right)):
                    return
                loop_steps.resize(t, at[0], e.left, e.right)
            case Stride():
                if e.source in self._narrow:
                    return  # a broadcast axis that the reader resolves has none of the elements in question
                loop_steps.stride(t, at[0], e.start, int(e.step), e.out.extent)
            case Roll():
                loop_steps.roll(t, at[0], e.shift)
            case Swizzle():
                if self._mixed(at) or (
                    e.kind == "xor" and not loop_steps.xor_stays_inside(t.loop[at[0]], t.loop[at[1]])
                ):
                    return  # as of a broadcast axis that the reader resolves
                loop_steps.swizzle(t, e.kind, at[0], at[1])
            case RowPartition():
                return  # no schedule step makes rows: the loops over them are the operation's own
            case _:
                assert_never(e)
        self.image.update(zip(e.outputs, t.domain.loop_exprs[-1].outputs, strict=True))

    def _mixed(self, at: Sequence[int]) -> bool:
        """Whether reduced and kept loops stand at ``at``: they cannot become one."""
        return len({self.tensor.loop[p].kind == "reduction" for p in at}) > 1


def replay_loops(
    target: Tensor,
    image: dict[IterDomain, IterDomain],
    exprs: Sequence[DomainExpr],
    reference: Tensor,
    cut: bool,
    selected: Mapping[IterDomain, Expr] | None = None,
    recipes: dict[Hashable, ReplayRecipe] | None = None,
) -> dict[IterDomain, DomainExpr]:
    """Give ``target`` the loops of ``reference``: ``image`` says which axes correspond, ``exprs`` what to replay, up to
    all that the reference's schedule added.

    Loops that correspond come first, in the reference's order and with its parallel types; then the target's other
    axes, reduced ones last. Without ``cut`` the target's loops reach all of its elements. ``selected`` are axes of
    which one element is read, at that place: loops visit no other. ``recipes`` are replays of the same call, which
    gets those that are new. Axes that the target reads, and that its operation reshapes, become loops of it first;
    returned are those for which that is not possible, each with the expression that stands in the way.
    """
    loop_steps.reset(target)
    own, key = target.loop, None
    if recipes is not None and not selected:
        pattern = reference.domain.made_after()
        if pattern is not None and len(exprs) == len(reference.domain.loop_exprs):
            key = patterned_replay(own, image, pattern, loop_steps.iterated(reference), reference.loop, cut)
        if key is None:
            key = described_replay(own, image, exprs, reference.loop, cut)
        if (known := recipes.get(key)) is not None:
            known.give(target)
            return {}
    steps = len(target.log)
    stops = _replay(target, image, exprs, reference, cut, selected or {})
    if recipes is not None and key is not None and (made := recipe_of(target, own, steps)) is not None:
        recipes[key] = made
    return stops


def _replay(
    target: Tensor,
    image: dict[IterDomain, IterDomain],
    exprs: Sequence[DomainExpr],
    reference: Tensor,
    cut: bool,
    selected: Mapping[IterDomain, Expr],
) -> dict[IterDomain, DomainExpr]:
    """The same, step by step, of loops that are the target's own axes."""
    for d, at in selected.items():
        loop_steps.resize(target, target.loop.index(d), -at, simplify(at + 1 - d.extent))
    own, stops = rebuild_axes(target, {d for d in image.values() if d not in target.logical})
    lost = {d for d, mine in image.items() if mine in stops}
    image = {d: own.get(mine, mine) for d, mine in image.items() if d not in lost}
    replay = _Replay(target, image, cut, lost)
    replay.through(exprs, set(reference.loop))
    order: list[int] = []
    place = {mine: p for p, mine in enumerate(target.loop)}
    for d in reference.loop:
        mine = replay.image.get(d)
        at = None if mine is None else place.get(mine)
        if mine is not None and at is not None and at not in order:
            order.append(at)
            if d.parallel != "serial" and mine.kind != "reduction":
                loop_steps.parallelize_like(target, at, d)
    rest = [p for p in range(len(target.loop)) if p not in order]
    rest.sort(key=lambda p: target.loop[p].kind == "reduction")
    if [*order, *rest] != sorted([*order, *rest]):
        loop_steps.reorder(target, [*order, *rest])
    for p, d in enumerate(target.loop):
        if d.parallel == "vectorize" and runs_inside(target, p) is not None:  # an axis that the reference has not
            loop_steps.parallelize(target, p, "serial")
    return {**stops, **replay.mixed}


def like_consumer(
    producer: Tensor, e: TensorExpr, k: int, *, cut: bool = True, recipes: dict[Hashable, ReplayRecipe] | None = None
) -> None:
    """Loops of a producer as its consumer ``e.output`` has them: e's own resizes and reshapes replayed first.

    Without ``cut`` a slice or a select on the way leaves the producer's axis whole. ``recipes``: see `replay_loops`.
    """
    selected = _selected(e, k) if cut else {}
    replay_loops(producer, _producer_axes(e, k), _path(e, k), e.output, cut, selected, recipes)


def _selected(e: TensorExpr, k: int) -> dict[IterDomain, Expr]:
    """Axes of operand ``k`` of which ``e`` provably reads one element, and which."""
    found: dict[IterDomain, Expr] = {}
    made = e.inputs[k].definition
    if made is None or made.op in SCATTERS or made.op in SCANS:
        return found  # those loops visit an index, or all elements in order
    for axis, read in zip(e.inputs[k].axes, e.reads[k], strict=True):
        if not isinstance(read, Fixed) or read.why != "select" or axis.is_broadcast:
            continue
        if is_true(read.index >= 0) and is_true(read.index < axis.extent):
            found[axis] = read.index
    return found


def _path(e: TensorExpr, k: int) -> list[DomainExpr]:
    """The expressions from operand ``k`` to the loops of the output."""
    consumer = e.output
    path = consumer.domain.exprs
    if any(isinstance(x, Resize) for x in path):
        own = {*_producer_axes(e, k), *(d for x in consumer.domain.exprs for d in x.outputs)}
        # Of several definitions of one axis (cat) only the operand's own leads to its axes.
        path = [x for x in path if not isinstance(x, Resize) or x.source in own]
    return [*path, *consumer.domain.loop_exprs]


def _is_resized_on_path(e: TensorExpr, k: int) -> bool:
    """Whether an expression on the way from operand ``k`` to the loops of the output reaches a part only."""
    needed = set(e.output.loop)
    for x in reversed(_path(e, k)):
        if any(d in needed for d in x.outputs):
            if is_partial(x):
                return True
            needed.update(x.inputs)
    return False


def like_producer(consumer: Tensor, e: TensorExpr, k: int) -> dict[IterDomain, DomainExpr]:
    """Loops of a consumer as operand ``k`` of its definition has them, through its reshapes and rolls; returns the axes
    of the consumer's root that it cannot have loops over and loops that it cannot join, each with what stands in the
    way."""
    producer = e.inputs[k]
    image = {axis: root for root, axis in _producer_axes(e, k).items()}
    return replay_loops(consumer, image, producer.domain.loop_exprs, producer, cut=False)


def _may_be_cut(p: Tensor) -> bool:
    """Whether every reader of ``p`` takes the same part of it: loops over that part compute all that is needed."""
    if p.fusion.is_output(p) or (p.definition is not None and p.definition.op in (*SCATTERS, *SCANS)):
        return False
    if len(p.uses) > 1 and any(is_partial(x) for e in p.uses for x in e.output.domain.loop_exprs):
        return False
    return len({_part(e, k) for e in p.uses for k in e.operands_of(p)}) == 1


def _part(e: TensorExpr, k: int) -> tuple[object, ...]:
    """The resizes and strides through which ``e`` reads each axis of operand ``k``."""
    taken: list[object] = []
    for read in e.reads[k]:
        if not isinstance(read, Mapped):
            taken.append(read)
            continue
        at, steps = read.domain, list[object]()
        for x in e.output.domain.exprs:
            if isinstance(x, (Resize, Stride)) and x.source is at and at not in e.output.logical:
                steps.append(x.attributes)
                at = x.out
        taken.append(tuple(steps))
    return tuple(taken)


@arguments(ScheduleError, first=True, keep=rewriting)
def like(fusion: Fusion, reference: Tensor) -> tuple[LoopStop, ...]:
    """Schedule every computed tensor as ``reference``: its loop axes are replayed through every operation on the way.

    Producers come first through the consumers that read them (slices, pads, cats and reshapes on the way are replayed,
    so that all loops are exactly mapped); tensors of other branches follow their producers, whose axes before a reshape
    or a roll become loops again (a merge is undone by a split, a split by a merge). Parallel types go along.
    Returns where the loops do not follow: past a slice, a pad or a cat of an axis on the way to a reader, or at tensors
    that nothing joins with the reference.

    A tensor that is an output, or of which another reader takes another part, is computed whole: a slice on the way to
    it is not replayed, and a way without slices comes first. `recompute` before gives each reader its own part. Loops
    that no kernel could run (a scan's axis out of order) are not replayed either: that tensor keeps loops of its own.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t0 = f.input("t0", shape=(64,))
    >>> t1, t2 = t0[:32], t0[32:]
    >>> t4 = f.output(t0 + ig.cat([t2, t1], dim=0))
    >>> _ = t4.split(0, 8)
    >>> ig.schedule.like(f, t4)
    ()
    >>> t1.domain.loop_exprs
    [Resize(I2[32] -> I17[64]; 32, 0), Split(I17[64] -> I18[8], I19[8]; 8)]
    """
    check_fusion(fusion, "like", ScheduleError)
    if reference not in fusion or reference.definition is None:
        named = reference.name if isinstance(reference, Tensor) else repr(reference)  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ScheduleError(
            f"like: {named} is not a computed tensor of fusion {fusion.name}",
            where=user_line(),
            hint="take an output, or another tensor that an operation makes",
        )
    followers, stops = _replay_all(reference)
    left = _settle(fusion, reference, followers)
    return _stops(fusion, reference, followers, stops, left)


Follower = tuple[TensorExpr, int | None]  # the reader and its operand whose loops a producer has; a consumer's own


def _replay_all(reference: Tensor) -> tuple[dict[Tensor, Follower], dict[Tensor, dict[IterDomain, DomainExpr]]]:
    """Replay the loops of ``reference`` on every tensor that operations join with it; says through which each, and
    which axes could not follow."""
    stops: dict[Tensor, dict[IterDomain, DomainExpr]] = {}
    done: dict[Tensor, Follower | None] = {reference: None}
    queue = deque([reference])
    readers: deque[TensorExpr] = deque()  # of what is scheduled: they follow when no producer is left
    later: deque[tuple[TensorExpr, int]] = deque()  # operands of which a part is read

    def follow(p: Tensor, e: TensorExpr, k: int, cut: bool) -> None:
        like_consumer(p, e, k, cut=cut)
        done[p] = e, k
        queue.append(p)

    while queue or readers or later:
        if not queue:
            if readers:
                use = readers.popleft()
                if use.output not in done:
                    stops[use.output] = like_producer(
                        use.output, use, next(k for k, p in enumerate(use.inputs) if p in done)
                    )
                    done[use.output] = use, None
                    queue.append(use.output)
                continue
            e, k = later.popleft()
            p = e.inputs[k]
            if p not in done:
                follow(p, e, k, _may_be_cut(p))
            continue
        t = queue.popleft()
        e = t.definition
        if e is not None:
            for k, p in enumerate(e.inputs):
                if p in done or p.definition is None or any(isinstance(r, LoadedCoordinate) for r in e.reads[k]):
                    continue
                if _selected(e, k) or _is_resized_on_path(e, k):
                    later.append((e, k))
                else:
                    follow(p, e, k, cut=True)
        readers.extend(use for use in t.uses if use.output not in done)
    return {t: through for t, through in done.items() if through is not None}, stops


def _stops(
    fusion: Fusion,
    reference: Tensor,
    followers: Mapping[Tensor, Follower],
    stops: Mapping[Tensor, Mapping[IterDomain, DomainExpr]],
    left: Mapping[Tensor, str],
) -> tuple[LoopStop, ...]:
    """The tensors whose loops are not the reference's, with the reason."""
    found: list[LoopStop] = []
    for t in fusion.tensors:
        if t.definition is None or t is reference:
            continue
        if t not in followers:
            found.append(LoopStop(t, (), f"no operation joins it with {reference.name} axis by axis"))
        elif t in left:
            found.append(LoopStop(t, (), left[t]))
        for x in dict.fromkeys(stops.get(t, {}).values()):
            loops = [d for d, by in stops[t].items() if by is x]
            behind = {d for known in loops for d in descendants(known, [*t.domain.exprs, *t.domain.loop_exprs])}
            around = {d for d in t.axes if not behind.isdisjoint(descendants(d, t.domain.loop_exprs))}
            axes = tuple(p for p, d in enumerate(t.axes) if d in around)
            word = type(x).__name__.lower()
            why = f"the {word} that its {t.definition.op} does to it cannot be undone"
            if x not in t.domain.exprs:
                why = f"a {word} would join an axis that its {t.definition.op} reduces with one that it keeps"
            found.append(LoopStop(t, axes, why))
    return tuple(found)


def _settle(fusion: Fusion, reference: Tensor, followers: Mapping[Tensor, Follower]) -> dict[Tensor, str]:
    """Leave behind the tensors that cannot follow. Loops that would not compute what is read, or not in the order that
    a scan or a scatter asks for, stay whole where they were cut. Where that is not enough, they stay as the operation
    made them: those are returned, with the reason.
    """
    left: dict[Tensor, str] = {}
    if reference.inline_position and nest_error(fusion) is not None:
        drop_inlining(reference)
    doubtful = [t for t in followers if _is_doubtful(t)]
    if not doubtful or nest_error(fusion) is not None:  # not by these loops, which are shared with none
        return left
    while True:
        model = IdModel(fusion)
        wrong = {t: why for t in doubtful if (why := loop_conflict(model, t)) is not None}
        if not wrong:
            return left
        for t, why in wrong.items():
            e, k = followers[t]
            if k is not None and any(is_partial(x) for x in t.domain.loop_exprs):
                like_consumer(t, e, k, cut=False)
            else:
                loop_steps.reset(t)
                doubtful.remove(t)
                left[t] = str(why).partition("\n")[0]


def _is_doubtful(t: Tensor) -> bool:
    """Whether loops of ``t`` may be illegal though no other tensor shares them."""
    ordered = t.definition is not None and t.definition.op in (*SCATTERS, *SCANS)
    return ordered or any(is_partial(x) for x in t.domain.loop_exprs)
