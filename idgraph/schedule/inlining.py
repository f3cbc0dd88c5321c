"""Inlining as far as it is legal, and private copies where one value is needed at two places of one loop nest.

Inlining taken back where it leaves loops that no order of threads or steps makes right.

The index graph says which positions share one coordinate. Whether kernels can be made of them is a question of the
whole nest: a value may be read by another thread than the one that wrote it, a scan may be visited out of order because
a loop that it shares visits more, and a tensor that shares more loops through its neighbours than by its own position
would be read before it is complete.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from idgraph.errors import ScheduleError, arguments, user_line
from idgraph.graphs import NestMembers, canonical_operand, common_loops
from idgraph.graphs.broadcast_forwarding import lacking_axes
from idgraph.graphs.index_graph import Legal, legal_nests
from idgraph.graphs.loop_nest import LoopNests
from idgraph.graphs.loop_promotion import Promotion
from idgraph.graphs.nest_order import structural_key
from idgraph.index import IdModel
from idgraph.index.allocation import is_placed, is_thread, live_exprs
from idgraph.index.predicate import check_written
from idgraph.index.races import race_conflicts
from idgraph.ir import SCANS, SCATTERS, Fusion, IterDomain, Mapped, Resize, Tensor, TensorExpr, check_fusion
from idgraph.ir import loop_transforms as loop_steps
from idgraph.ir.clone import rewriting
from idgraph.ir.iter_domain import is_one
from idgraph.ir.ragged_axes import row_axes
from idgraph.ir.reader_loops import loop_plan
from idgraph.schedule.legality import InlineStop, drop_inlining, inline_stops, nest_error, sharing

Conflicts = list[tuple[tuple[Tensor, ...], ScheduleError]]


def undo_conflicting_inlines(fusion: Fusion, inlined: Sequence[Tensor]) -> None:
    """Take back positions of these tensors until no conflict is left that they have a part in.

    The position that goes back least is taken, of the tensors nearest to the conflict first. Conflicts of the
    user's own loops, which are there without any inlining, stay.
    """
    among = _doubtful(fusion, inlined)
    open_ = _conflicts(fusion, among)
    while open_ and (left := _one_less(fusion, inlined, among, open_)) is not None:
        open_ = left


def _doubtful(fusion: Fusion, inlined: Sequence[Tensor]) -> tuple[TensorExpr, ...]:
    """The operations in nests with threads, with loops of several depths, or whose order of steps counts."""
    found: set[TensorExpr] = set()
    seen: set[TensorExpr] = set()
    for t in inlined:
        if t.inline_position and t.definition is not None and t.definition not in seen:
            nest = sharing(t)
            seen.update(nest)
            depths = {u.inline_position for e in nest for u in e.outputs if u.uses}
            threads = any(is_thread(d.parallel) for e in nest for d in e.output.loop)
            if len(depths) > 1 or threads or any(e.op in SCANS or e.op in SCATTERS for e in nest):
                found.update(nest)
    return tuple(e for e in live_exprs(fusion) if e in found)


def _conflicts(fusion: Fusion, among: Sequence[TensorExpr]) -> Conflicts:
    return race_conflicts(IdModel(fusion), among) if among else []


def _one_less(
    fusion: Fusion, inlined: Sequence[Tensor], among: Sequence[TensorExpr], before: Conflicts
) -> Conflicts | None:
    """Conflicts that are left when one position is taken back, or all of the nest's; None where that does not help."""
    tried = list(dict.fromkeys(t for tensors, _ in before for t in _near(tensors, inlined)))
    for t in tried:
        kept = t.inline_position
        for p in range(kept - 1, -1, -1):
            left = _conflicts_at(fusion, {t: p}, among)
            if left is not None and len(left) < len(before):
                return left
        t.inline_position = kept
    positions = {t: t.inline_position for t in tried}
    left = _conflicts_at(fusion, dict.fromkeys(tried, 0), among)
    if tried and left is not None and len(left) < len(before):
        return left
    for t, p in positions.items():
        t.inline_position = p
    return None


def _conflicts_at(fusion: Fusion, positions: dict[Tensor, int], among: Sequence[TensorExpr]) -> Conflicts | None:
    """Conflicts with these positions; None where the index graph does not allow them."""
    for t, p in positions.items():
        t.inline_position = p
    return None if nest_error(fusion, among) is not None else _conflicts(fusion, among)


def _near(tensors: Sequence[Tensor], inlined: Sequence[Tensor]) -> Iterator[Tensor]:
    """The inlined tensors of the nests of some tensors, these first, then what they read, then all others."""
    allowed = {t for t in inlined if t.inline_position}
    yield from (t for t in tensors if t in allowed)
    yield from (p for t in tensors for p in (t.definition.inputs if t.definition is not None else ()) if p in allowed)
    yield from (e.output for t in tensors for e in sharing(t)[::-1] if e.output in allowed)


@arguments(ScheduleError, first=True, keep=rewriting)
def inline_most(fusion: Fusion, tensors: Sequence[Tensor] | None = None) -> tuple[InlineStop, ...]:
    """Inline every intermediate (or those named) as far right as the index graph allows.

    Consumers first, each from its largest position down; a position that would need one value at two coordinates, or
    that no loop nest can do, is not taken; nor one whose loop is longer or shorter than its reader's, which `inline`
    takes where the coordinates are one. What would race, or be read before it is complete, is inlined less deep.
    Returns the tensors left outside some of their loops, each with the refusal of one loop more.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t0 = f.input("t0", shape=(4, 8))
    >>> t1 = ig.exp(t0)
    >>> t2 = f.output(t1 / ig.sum(t1, 1, keepdim=True))
    >>> for stop in ig.schedule.inline_most(f):
    ...     print(f"{stop.tensor.name} at {stop.position}: {stop.refusal.what}")
    t1 at 1: t2 is not finished where t3 reads it: both stand inside one loop 1, but t2 is inlined at 1 only
    >>> [(t.name, t.inline_position) for t in f.tensors]
    [('t0', 0), ('t1', 1), ('t2', 1), ('t3', 0)]
    """
    check_fusion(fusion, "inline_most", ScheduleError)
    chosen, _ = _positioned(fusion, fusion.tensors if tensors is None else _named(fusion, tensors), {})
    undo_conflicting_inlines(fusion, chosen)
    _record(chosen)
    for t in chosen:
        _inline_with_new_loops(fusion, t)
    return inline_stops(fusion, chosen[::-1])


def _inline_with_new_loops(fusion: Fusion, t: Tensor) -> None:
    """Inline ``t`` deeper where its readers have loops of one element outside of loops that it has: it gets such loops,
    and so does what is inlined into it. In longer ones it would be computed again at each step."""
    for p in range(_own_limit(t), t.inline_position, -1):
        plan = loop_plan(t, p)
        beside = [n for n, own in enumerate(plan.shared) if own is None] if plan is not None else []
        if not beside or not all(_has_one_step(e.output, n) for e in t.uses for n in beside):
            continue
        kept, known = [u.state() for u in fusion.tensors], len(_conflicts(fusion, _doubtful(fusion, [t])))
        drop_inlining(t)
        loop_steps.inline(t, p, beside=True)
        legal = _legal_loops(fusion, (t,), (), _Refusal()) is not None and _is_written(fusion, t)
        if legal and len(_conflicts(fusion, _doubtful(fusion, [t]))) <= known:
            return
        for restore in kept:
            restore()


def _has_one_step(t: Tensor, n: int) -> bool:
    """Whether loop ``n`` of ``t`` runs once, also as the loop of its readers that it is."""
    inside = n < t.inline_position
    return is_one(t.loop[n].extent) and not (inside and any(not _has_one_step(e.output, n) for e in t.uses))


def inline_far(
    fusion: Fusion, tensors: Sequence[Tensor], later: Mapping[Tensor, int] | None = None,
    known: set[frozenset[str]] | None = None,
) -> Legal | None:  # fmt: skip
    """The same for a scheduler that sees to threads and the order of steps itself.

    ``later`` are tensors that will be inlined at these positions; ``known`` are names of tensors that an earlier round
    found in each other's way, and gets those of this one. Returns the loops of the fusion then, where one graph has
    proved them legal.
    """
    chosen, proved = _positioned(fusion, tensors, later or {}, known)
    _record(chosen)
    return proved


def _record(tensors: Sequence[Tensor]) -> None:
    for t in tensors:
        if t.inline_position:
            loop_steps.inline(t, t.inline_position)


def _positioned(
    fusion: Fusion, chosen: Sequence[Tensor], later: Mapping[Tensor, int], known: set[frozenset[str]] | None = None
) -> tuple[Sequence[Tensor], Legal | None]:
    """Tensors with the position that the index graph allows them, not yet in their logs; and the loops of all of them
    and of those of ``later``, where the last graph looked at them together, which one graph does if all is legal."""
    order = {e.output: n for n, e in enumerate(fusion.exprs)}
    rest = sorted((t for t in chosen if t in order and t.uses), key=lambda t: -order[t])
    for t in rest:
        drop_inlining(t)
    common = common_loops(fusion, rest, later)
    limits = {t: min(_limit(t), common[t]) for t in rest}
    alike = _InlineLimits(fusion, rest, limits)
    joined: NestMembers = NestMembers(fusion)
    conflicts = _Conflicts({t.name for t in rest}, set[frozenset[str]]() if known is None else known)
    done, step, settled = 0, len(rest), 0
    named: list[int] = []  # places of tensors that the last refusal names, in order
    refused: int | None = None  # no inlining of all up to here is legal
    proved: Legal | None = None
    while done < len(rest):
        # A legal inlining stays legal when fewer tensors are inlined, so all can be tried at once, then those before
        # each of the tensors that a refusal names, or half of them where that is refused too.
        batch = rest[done : done + step]
        batch = batch[: conflicts.first(batch)]
        after: NestMembers = joined.copy()
        positions: dict[Tensor, int] = {}
        for t in batch:
            after.join(t, positions.setdefault(t, after.limit(t, limits[t])))
        end, refusal = done + len(batch), _Refusal()
        if later and not done and end == len(rest):
            if (proved := _try(fusion, batch, positions, later, refusal)) is not None:
                return rest, proved
            if conflicts.add(refusal.subjects) and conflicts.first(batch) < len(batch):
                continue  # as below: which of them is tried alone
            refusal = _Refusal()
        loops = proved if not any(positions.values()) else None  # where nothing is inlined, nothing is judged anew
        if end != refused and (not any(positions.values()) or (loops := _try(fusion, batch, positions, None, refusal))):
            proved = loops
            joined, done, step = after, end, 2 * step
            conflicts.inlined(batch)
        elif len(batch) > 1 and conflicts.add(refusal.subjects) and conflicts.first(batch) < len(batch):
            refused, named, step = end, [], len(batch)
            continue
        elif len(batch) > 1:
            before, step = bool(named), len(batch) // 2
            first = refusal.subjects[0] if refusal.subjects else ()
            named = [done + n for n, t in enumerate(batch) if t.name in first and (n <= step or not before)]
            refused = end
        else:
            (t,) = batch
            _inline_deepest(fusion, t, min(alike.limit(t), refusal.shared(t, positions[t])))
            joined.join(t, t.inline_position)
            conflicts.inlined(batch)
            step, done, settled, refused, proved, named = 2 * (end - settled), end, end, None, None, []
        if refused is not None:
            near = next((n for n in named if n >= done), None)
            step = max(1, min(step, (refused - done) // 2) if near is None else near - done)
    return rest, None if later else proved


@dataclass(slots=True)
class _Conflicts:
    """Tensors that refusals have named together, by which a batch is cut before one that would be refused again.

    It says only what is tried next: each inlining is proved, and one that is legal after all is made. ``known`` is
    there in a later round, whose copies have other names.
    """

    names: Collection[str]
    known: set[frozenset[str]]
    _inlined: set[str] = field(default_factory=set[str])

    def add(self, refusal: Iterable[Collection[str]]) -> bool:
        """A refusal has named these together; False where each is about a single one."""
        found = {frozenset(some) & frozenset(self.names) for some in refusal}
        found = {some for some in found if len(some) > 1}
        self.known |= found
        return bool(found)

    def inlined(self, batch: Sequence[Tensor]) -> None:
        """These are settled; a conflict all of whose tensors are inlined was none, and its tensors are in the way of no
        others that are known: these are tried together again."""
        self._inlined.update(t.name for t in batch if t.inline_position)
        free = {n for c in self.known if c <= self._inlined for n in c}
        self.known -= {c for c in self.known if c & free}

    def first(self, batch: Sequence[Tensor]) -> int:
        """The number of tensors of the batch before one that completes a conflict; one that does so comes by itself."""
        seen, of = set(self._inlined), {n: c for c in self.known for n in c}
        if not of:
            return len(batch)
        for n, t in enumerate(batch):
            if t.name in of and any(t.name in c and c - {t.name} <= seen for c in self.known):
                return max(1, n)
            seen.add(t.name)
        return len(batch)


@dataclass(slots=True)
class _InlineLimits:
    """How far a tensor that was refused could be inlined if no other were, which limits all that are like it.

    Where its readers run only over axes of their own, whatever else is inlined, a tensor that is not legal by itself
    is not legal beside others either. What was tried once is known of each tensor that is made, scheduled and read in
    the same way: a model of many equal parts asks once.
    """

    fusion: Fusion
    rest: Sequence[Tensor]
    limits: dict[Tensor, int]
    _kinds: dict[Tensor, Hashable] = field(default_factory=dict[Tensor, Hashable])
    _known: set[Hashable] = field(default_factory=set[Hashable])

    def limit(self, t: Tensor) -> int:
        """The limit of ``t``, which is not inlined now; those of ``limits`` that are like it get the same."""
        if not _is_fixed(t):
            return self.limits[t]
        kept = [(u, u.inline_position) for u in self.rest if u.inline_position]
        for u, _ in kept:
            u.inline_position = 0
        if not self._kinds:
            self._describe()
        kind = self._kinds.get(t)
        if kind is not None and kind not in self._known:
            self._known.add(kind)
            found = _inline_deepest(self.fusion, t, self.limits[t])
            t.inline_position = 0
            for u in self.rest:
                if self._kinds.get(u) == kind:
                    self.limits[u] = min(self.limits[u], found)
        for u, p in kept:
            u.inline_position = p
        return self.limits[t]

    def _describe(self) -> None:
        """The kinds of all that can be asked about, by what makes and reads them."""
        nests = LoopNests(self.fusion)
        promotion = Promotion(nests)
        for t in self.rest:
            near = [e for e in (t.definition, *t.uses) if e is not None]
            if _is_fixed(t) and not any(p.inline_position for e in near for p in e.inputs):
                self._kinds[t] = structural_key(near, nests, promotion)


def _is_fixed(t: Tensor) -> bool:
    """Whether the loops of a tensor's readers are what they are whatever is inlined: no axis or loop of theirs may run
    over another's, nor a loop of any of them be made longer or shorter; and it is not an output."""
    if t.fusion.is_output(t):
        return False
    readers = [u for e in t.uses for u in e.outputs]
    if any(isinstance(x, Resize) for u in (t, *readers) for x in u.domain.loop_exprs):
        return False
    return not any(map(lacking_axes, t.uses)) and not any(is_one(d.extent) for u in readers for d in u.loop)


@dataclass(slots=True)
class _Refusal:
    """Why an inlining is not legal: the names of the tensors that are in each other's way, and the first loop that the
    first of them does not share."""

    subjects: tuple[tuple[str, ...], ...] = ()
    loop: int | None = None

    def shared(self, t: Tensor, position: int) -> int:
        """The largest position that may be legal for ``t``, which was refused at ``position``: a loop that it does not
        share there it does not share at any position behind that loop."""
        if self.loop is None or self.subjects[0][0] != t.name:
            return position - 1
        return min(position - 1, self.loop)


def _inline_deepest(fusion: Fusion, t: Tensor, most: int) -> int:
    """Inline ``t`` at the largest position up to ``most`` that is legal, which is returned; at 0 where none is."""
    p = most
    while p > 0:
        refusal = _Refusal()
        if _try(fusion, (t,), {t: p}, None, refusal):
            return p
        p = refusal.shared(t, p)
    return 0


def _try(
    fusion: Fusion,
    batch: Sequence[Tensor],
    positions: Mapping[Tensor, int],
    later: Mapping[Tensor, int] | None = None,
    refusal: _Refusal | None = None,
) -> Legal | None:
    """Inline these tensors there if that is legal (with those of ``later`` too, which stay at 0), else at 0: returns
    the loops, or None where it is not; ``refusal`` then gets the reason."""
    for t in batch:
        t.inline_position = positions[t]
    for t, p in (later or {}).items():
        t.inline_position = p
    loops = _legal_loops(fusion, batch, later or (), _Refusal() if refusal is None else refusal)
    if loops is not None and not all(_is_written(fusion, t) for t in batch):
        loops = None
    for t in (*(later or ()), *(() if loops is not None else batch)):
        t.inline_position = 0
    return loops


def _legal_loops(
    fusion: Fusion, batch: Sequence[Tensor], beside: Collection[Tensor], refusal: _Refusal
) -> Legal | None:
    """The loops, where the inlining is legal, of those ``beside`` too, and no tensor of ``batch`` runs a loop that is
    longer or shorter than its own."""
    try:
        loops = legal_nests(fusion, sharing(*batch, *beside))
    except ScheduleError as error:
        refusal.subjects, refusal.loop = error.subjects, error.loop
        return None
    longer = next((t for t in batch if loops.longer(t)), None)
    if longer is not None:
        refusal.subjects = ((longer.name,),)
    return None if longer is not None else loops


def _named(fusion: Fusion, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    listed = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    for t in listed:
        if t not in fusion:
            named = t.name if isinstance(t, Tensor) else repr(t)
            what = f"inline_most: {named} is not a tensor of fusion {fusion.name}"
            raise ScheduleError(what, where=user_line(), hint="a list of its tensors, or nothing for all of them")
    return cast("Sequence[Tensor]", listed)


def scan_loops(t: Tensor) -> tuple[IterDomain, ...]:
    """The loops of a scan that come of its scanned axis: what follows it waits until they have ended."""
    e = t.definition
    dim = e.attrs.get("dim") if e is not None and e.op in SCANS else None
    if not isinstance(dim, int):
        return ()
    return _loops_of(t, {t.axes[dim % t.ndim]})


def _row_loops(t: Tensor) -> tuple[IterDomain, ...]:
    """The loops over rows that are put one behind the other: readers of the result know places, not rows."""
    rows = row_axes(t.definition) if t.definition is not None and is_placed(t) else None
    return () if rows is None else _loops_of(t, {*rows})


def _loops_of(t: Tensor, axes: set[IterDomain]) -> tuple[IterDomain, ...]:
    """The loops that some axes, among them root axes, were split and merged into."""
    found = {*axes}
    for x in t.domain.loop_exprs:
        if found & {*x.inputs}:
            found |= {*x.outputs}
    return tuple(d for d in t.loop if d in found)


def _goes_along(t: Tensor) -> bool:
    """True of a scan whose readers take each running value as it is made: along all of the axis, in its order."""
    if t.definition is None or t.definition.op not in SCANS:
        return False
    reads = [(use, use.reads[k]) for use in t.uses for k in use.operands_of(t)]
    return all(isinstance(r, Mapped) and r.domain in use.output.logical for use, row in reads for r in row)


def _limit(t: Tensor) -> int:
    return min([_own_limit(t), *(len(e.output.loop) for e in t.uses)])


def _own_limit(t: Tensor) -> int:
    """How many loops of a tensor readers may share: those left of a reduction, and of what waits for a scan or rows."""
    waiting = () if _goes_along(t) else scan_loops(t) or _row_loops(t)
    return next((p for p, d in enumerate(t.loop) if d.kind == "reduction" or d in waiting), len(t.loop))


def _is_written(fusion: Fusion, t: Tensor) -> bool:
    """Whether an output is always written: it must not follow a loop that may be empty."""
    if not fusion.is_output(t):
        return True
    try:
        check_written(IdModel(fusion))
    except ScheduleError:
        return False
    return True


@arguments(ScheduleError, first=True, keep=rewriting)
def recompute(t: Tensor, use: TensorExpr, *, operand: int | None = None, name: str | None = None) -> Tensor:
    """Give ``use`` a private copy of ``t``, computed by the same operation; returns the copy.

    The copy has loops of its own, so both may be inlined where one tensor could not be. An operation that reads ``t``
    at several places (``cat([t, t])``) reads the copy at all of them, or with ``operand`` only where it reads ``t`` as
    it does with that operand. Raises `ScheduleError` where ``use`` does not read ``t`` so.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = ig.copy(f.input("a", shape=(64,)), name="x")
    >>> t1 = x[:32]
    >>> ig.schedule.recompute(x, t1.definition, name="x1").uses == (t1.definition,)
    True
    """
    if not isinstance(t, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ScheduleError(f"recompute: {t!r} is not a tensor", where=user_line(), hint="recompute(t, u.definition)")
    e = t.definition
    if e is None or use not in t.uses:
        why = "is an input, every use reads it for itself" if e is None else f"is not read by {use!r}"
        raise ScheduleError(f"recompute: {t.name} {why}", where=user_line(), hint="name a computed tensor and its use")
    if operand is not None and operand not in use.operands_of(t):
        why = f"{use!r} does not read {t.name} as operand {operand!r}"
        raise ScheduleError(f"recompute: {why}", where=user_line(), hint=f"one of {list(use.operands_of(t))}, or none")
    return private_copy(t, use, operand=operand, name=name)


def private_copy(t: Tensor, use: TensorExpr, *, operand: int | None = None, name: str | None = None) -> Tensor:
    """`recompute` for a scheduler, whose own call guards the fusion: of a computed tensor that ``use`` reads."""
    fusion, e = t.fusion, t.definition
    if e is None:
        raise ScheduleError(f"{t.name} is an input")
    made = fusion.again(e, name)
    same = None
    if operand is not None:
        same = [k for k in use.operands_of(t) if canonical_operand(use, k) == canonical_operand(use, operand)]
    fusion.replace_operand(use, t, made, same)
    return made
