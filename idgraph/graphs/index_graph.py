"""The index graph: which uses of axes have equal coordinates at every point of the loops.

Keys are (axis, operation); an operation that reads one tensor in two different ways (``cat([t, t])``) has a third
part, the operand number. Inside one operation, axes are joined by what it reads and by congruence; from one operation
to another only through loops that inlining shares. So slice + cat + residual leaves no way around.

Long: the graph, its keys and what it proves are built in one walk.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import takewhile
from typing import cast

from idgraph.arith import simplify
from idgraph.errors import IndexingError, ScheduleError, short_repr, shortened, user_line
from idgraph.graphs.broadcast_forwarding import descendants, merges_lacking
from idgraph.graphs.congruence_closure import CongruenceClosure
from idgraph.graphs.graph_view import GraphView
from idgraph.graphs.loop_nest import LoopNests, PromotedDomain
from idgraph.graphs.loop_promotion import Promotion, SharedLoopProver, SharedLoopResult
from idgraph.graphs.nest_order import isomorphic_exprs, order_nests, structural_key, unique_nests
from idgraph.graphs.proof import Explanation
from idgraph.graphs.signature import (
    Key,
    LocalExprs,
    TensorTemplate,
    TensorTemplates,
    Use,
    UseKeys,
    check_use,
    is_use,
    key_of,
    key_text,
    own_domains,
    own_exprs,
)
from idgraph.graphs.union_find import EquivalenceClasses
from idgraph.graphs.val_graph import Group, ValGraph
from idgraph.ir import Fixed, Fusion, IterDomain, Mapped, Tensor, TensorExpr, tensor_of
from idgraph.ir.argument_resolution import is_int
from idgraph.ir.iter_domain import Parallel, is_one
from idgraph.ir.op_builders import same_extent

# A tensor, an operation that it is inlined into, and the position of a loop that the two share.
SharedLoop = tuple[Tensor, TensorExpr, int]


class IndexGraph(GraphView[Key]):
    """Equal group = equal coordinate at every point of the loops. Ask with axis and operation.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> a = ig.copy(f.input("a", shape=(1, 8)))
    >>> b = f.output(a + f.input("b", shape=(4, 8)))
    >>> m = ig.IdModel(f)
    >>> row = a.logical[1]
    >>> m.index.mapped((row, a.definition), (row, b.definition))
    False
    >>> _ = a.inline(1)  # the loop over rows is shared, so the broadcast axis has one coordinate; the columns have two
    >>> [m.index.mapped((d, a.definition), (d, b.definition)) for d in a.logical]
    [True, False]
    >>> m.index.self_mappings
    ()
    """

    def __init__(
        self,
        fusion: Fusion,
        nests: LoopNests,
        promotion: Promotion,
        proved: tuple[SharedLoop, ...],
        graph: ValGraph[Key],
        local: LocalExprs,
    ) -> None:
        super().__init__("index", fusion, graph)
        self.nests = nests
        self.promotion = promotion
        self.proved = proved  # shared loops that are one by their coordinates only
        self.local = local

    @shortened
    def group(self, domain: IterDomain, expr: TensorExpr, operand: int | None = None) -> Group[Key]:
        """The group of an axis as ``expr`` uses it; raises `IndexingError` where it does not.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> a = ig.copy(f.input("a", shape=(8,)))
        >>> b = f.output(a + 1.0)
        >>> m = ig.IdModel(f)
        >>> m.index.group(a.logical[0], b.definition)
        {(t2.I2, add -> t2), (t1.I1, add -> t2)}
        """
        return self.graph.lookup(self._key((domain, expr) if operand is None else (domain, expr, operand)))

    @shortened
    def mapped(self, a: Key, b: Key) -> bool:
        """True when two uses have equal coordinates at every point of the loops."""
        return self.graph.same(self._key(a), self._key(b))

    @shortened
    def explain(self, a: Key, b: Key) -> Explanation:
        """Why two uses have equal coordinates, or the first point where they differ.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> a = ig.copy(f.input("a", shape=(8,)))
        >>> b = f.output(a + 1.0)
        >>> m, row = ig.IdModel(f), a.logical[0]
        >>> print(str(m.index.explain((row, a.definition), (row, b.definition))).partition(":")[0])
        (t1.I1, copy -> t1) and (t1.I1, add -> t2) are not the same
        """
        return self.graph.chain(self._key(a), self._key(b))

    def __contains__(self, key: object) -> bool:
        return is_use(key) and self.graph.holds(cast("Key", key))

    @property
    def self_mappings(self) -> tuple[()]:
        """Always empty: uses with different coordinates are never one group."""
        return ()

    def _key(self, key: Key) -> Key:
        """The canonical key; raises `IndexingError` for what is not a pair of an axis and an operation."""
        check_use(key)
        if len(key) == 3:
            d, e, k = key
            if not is_int(k) or not 0 <= k < len(e.inputs):
                raise IndexingError(
                    f"{e!r} has no operand {short_repr(k)}",
                    where=user_line(),
                    hint=f"it has {len(e.inputs)} operands, from 0",
                )
            return key_of(e, k)(d)
        return key

    def __str__(self) -> str:
        return "\n".join("{" + ", ".join(map(key_text, g)) + "}" for g in self.groups)


class _IndexGraphBuilder:
    def __init__(
        self, fusion: Fusion, exprs: Sequence[TensorExpr], plans: TensorTemplates, nests: LoopNests | None = None
    ) -> None:
        self.fusion = fusion
        self.exprs = exprs
        self.nests = nests or LoopNests(fusion)
        self.promotion = Promotion(self.nests)
        self._meetings = SharedLoopProver(self.nests, self.promotion)
        self._proved: dict[SharedLoop, None] = {}
        self._partly: set[tuple[TensorExpr, int, int]] = set()  # those that are one only where the operand is read
        self._plans = plans
        self._keys = UseKeys()
        self._with_shadows: dict[Tensor, TensorTemplate] = {}

    def build(self) -> IndexGraph:
        for e in self.exprs:
            self._keys.enter(e, self._plan)
        self.graph: CongruenceClosure[Key] = CongruenceClosure("index", self._keys, self._plans.forms)
        for e in self.exprs:
            self._enter_all(e)
        self.graph.rebuild()
        # Sharing is checked on each operation alone, before any loop joins two of them.
        inlined = [
            (e, use.operand)
            for e in self.exprs
            if any(t.inline_position for t in e.inputs)
            for use in self._keys.of(e)
            if use.operand is not None and use.tensor.inline_position and self.nests.shared(use.tensor)
        ]
        _raise_first(filter(None, [self._refusal(e, k) for e, k in inlined]))
        alone = {e: self._joined_loops(e) for e in self.exprs} if inlined else {}
        for e, k in inlined:
            self._share(e, k)
        made = IndexGraph(
            self.fusion, self.nests, self.promotion, tuple(self._proved), self.graph.build(), LocalExprs(self._keys)
        )
        if inlined:  # loops that are not shared can neither collide nor stand in a knot
            _raise_first(_shift_refusals(made, self.exprs))
            _raise_first(_collapse_refusals(made, alone))
            _raise_first(_length_refusals(self.promotion, inlined))
            order_nests(self.fusion)
        return made

    def common(self, e: TensorExpr) -> dict[int, int]:
        """For each operand (the first in each way of reading): the number of leading loops that are the output's."""
        self._keys = UseKeys()
        self._keys.enter(e, self._plan)
        self.graph = CongruenceClosure("index", self._keys, self._plans.forms)
        own, *uses = self._enter_all(e)
        self.graph.rebuild()
        found: dict[int, int] = {}
        for use in uses:
            k = use.operand or 0
            pairs = enumerate(zip(use.tensor.loop, e.output.loop, strict=False))
            same = (self.graph.same(use.key(a), own.key(b)) or self._meets(e, k, j) for j, (a, b) in pairs)
            found[k] = sum(1 for _ in takewhile(bool, same))
        return found

    def _enter_all(self, e: TensorExpr) -> list[Use]:
        """Enter the uses that an operation makes, and what it reads."""
        uses = self._keys.of(e)
        own = uses[0]
        self._enter(own, frozenset())
        for use in uses[1:]:
            self._enter(use, self._outside(own, use) if use.plan.transparent else frozenset())
            self._read(use, own)
        return uses

    def _joined_loops(self, e: TensorExpr) -> set[tuple[IterDomain, IterDomain]]:
        """Loops of one operation that are one wherever it acts, only by its own axes (both stay at 0)."""
        first: dict[int, IterDomain] = {}
        return {
            (first[n], d)
            for d in self.nests.shadows[e.output].loop
            if first.setdefault(n := self.graph.number((d, e)), d) is not d
        }

    def _plan(self, t: Tensor) -> TensorTemplate:
        """The plan of a tensor with its stand-ins."""
        shadow = self.nests.shadows.get(t)
        if shadow is None or not shadow.exprs:
            return self._plans.of(t)
        found = self._with_shadows.get(t)
        if found is None:
            stand_ins = (d for x in shadow.exprs for d in (*x.inputs, *x.outputs))
            domains = tuple(dict.fromkeys((*own_domains(t), *stand_ins)))
            found = self._with_shadows[t] = self._plans.plan(t, domains, (*own_exprs(t), *shadow.exprs))
        return found

    def _outside(self, own: Use, use: Use) -> frozenset[IterDomain]:
        """Axes of an operand, and what its schedule makes of them, that the operation may ask for out of range (under a
        false predicate): those read through a resize, and those that the output's loops run past."""
        e, loose, logical = use.expr, own.plan.loose, own.tensor.logical
        domains = use.plan.domains
        found = {
            domains[at]
            for at, read in zip(use.plan.axes, e.reads[use.operand or 0], strict=True)
            if isinstance(read, Mapped) and (read.domain in loose or read.domain not in logical)
        }
        for form, _, _ in use.plan.exprs:
            if any(d in found for d in form.expr.inputs):
                found.update(form.expr.outputs)
        return frozenset(found)

    def _enter(self, use: Use, outside: frozenset[IterDomain]) -> None:
        """Enter a use of a tensor: its expressions, and what a neighbour of one element makes the same."""
        plan, first, graph = use.plan, use.first, self.graph
        for form, ins, outs in plan.exprs:
            graph.nodes.add(form, ins, outs, first)
        for x, a, b, beside in plan.transparent:
            if beside not in outside:
                graph.join(first + a, first + b, ("size one", None, None, 0, (x,)))

    def _read(self, use: Use, own: Use) -> None:
        e, t, first, base, place = use.expr, use.tensor, use.first, own.first, own.plan.place
        join, reasons = self.graph.sets.union, self.graph.reasons  # nothing is settled yet
        why = reasons.access(e, t)
        for at, read in zip(use.plan.axes, e.reads[use.operand or 0], strict=True):
            if isinstance(read, Mapped):
                join(first + at, base + place(read.domain, at), why)
        if t not in self.nests.shadows:
            return
        for stand_in, met in self.nests.promoted_pairs(t, e, use.operand or 0):
            widened = descendants(stand_in, self.nests.shadows[t].exprs)
            loop = next((j for j, d in enumerate(self.nests.shadows[t].loop) if d in widened), 0)
            promoted = reasons.tell(("promotion", e, t, loop, ()))
            join(first + use.plan.place(stand_in), base + place(met), promoted)

    def _refusal(self, e: TensorExpr, k: int) -> ScheduleError | None:
        t, j = e.inputs[k], self._unshared(e, k)
        if j is None:
            return None
        met = self._meetings.prove_shared(e, k, j)
        return _not_shared(e, t, j, t.loop[j], e.output.loop[j], met, self.nests.widening_conflicts(t))

    def _meets(self, e: TensorExpr, k: int, j: int) -> bool:
        """Whether an operand is read at the coordinate of loop ``j``, though no axis of the two says so."""
        met = self._meetings.prove_shared(e, k, j)
        if not met.same or not self._meetings.extents_agree(e, k, j):
            return False
        self._proved[e.inputs[k], e, j] = None
        if not met.always:  # the two are one only where the operand is read
            self._partly.add((e, k, j))
        else:
            mine, theirs = self.nests.shadows[e.inputs[k]].loop[j], self.nests.shadows[e.output].loop[j]
            self.graph.map(key_of(e, k)(mine), key_of(e, None)(theirs), ("coordinate", e, e.inputs[k], j, ()))
        return True

    def _unshared(self, e: TensorExpr, k: int) -> int | None:
        """The first loop that an inlined operand does not share with its reader; None where it shares all it should."""
        t, key, own = e.inputs[k], key_of(e, k), key_of(e, None)
        mine, out = self.nests.shadows[t], self.nests.shadows[e.output]
        for j in range(self.nests.shared(t)):
            theirs = out.loop[j]
            axis = mine.loop[j]
            if j in out.direct and not same_extent(mine.direct.get(j, axis).extent, out.direct[j].extent):
                return j  # it runs more often than what it shares the loop with
            if j in mine.direct and axis in t.axes:
                read = e.reads[k][t.axes.index(axis)]
                met = read.domain if isinstance(read, Mapped) else read.resolves if isinstance(read, Fixed) else None
                same = met is not None and self.graph.same(own(out.of(met)), own(theirs))
                same = same or (axis.extent == 1 and self._runs_as(mine, out, j))
            elif j in mine.direct:  # one element at every step of the wide loop
                same = self.graph.same(key(axis), own(theirs)) or self._runs_as(mine, out, j)
            else:
                same = self.graph.same(key(axis), own(theirs)) or self._meets(e, k, j) or self._one_step(e, k, j)
            if not same:
                return j
            if j in mine.direct or (mine.lacking and axis is not t.loop[j]):  # no merge or broadcast says so by itself
                self._proved[t, e, j] = None
        return None

    def _one_step(self, e: TensorExpr, k: int, j: int) -> bool:
        """Whether loop ``j`` has one step in both, which is step 0 of either; no axes are one for that."""
        t = e.inputs[k]
        mine, theirs = self.nests.shadows[t].loop[j], self.nests.shadows[e.output].loop[j]
        if mine is not t.loop[j] or not is_one(mine.extent) or not is_one(theirs.extent):
            return False
        self._proved[t, e, j] = None
        self._partly.add((e, k, j))
        return True

    def _runs_as(self, mine: PromotedDomain, theirs: PromotedDomain, j: int) -> bool:
        """Whether a wide loop has the length of the reader's."""
        return same_extent(mine.direct[j].extent, theirs.direct.get(j, theirs.loop[j]).extent)

    def _share(self, e: TensorExpr, k: int) -> None:
        t, key = e.inputs[k], key_of(e, k)
        definition = t.definition
        if definition is None:
            return
        mine: PromotedDomain = self.nests.shadows[t]
        for j in range(self.nests.shared(t)):
            if (e, k, j) in self._partly:
                continue  # what follows from it would be said of the reader's axes at all points
            d = mine.loop[j]
            because = "inline" if d is t.loop[j] else "promotion"
            self.graph.map((d, definition), key(d), (because, e, t, j, ()))


def _raise_first(errors: Iterable[ScheduleError]) -> None:
    """Raise the first, which names what the others are about: who takes inlinings back meets them all at once."""
    found = list(errors)
    if found:
        found[0].subjects = tuple(error.subject for error in found)
        raise found[0]


def _operation_at_line(e: TensorExpr) -> str:
    return f"{e!r}" + (f" at {e.source_line}" if e.source_line else "")


def _not_shared(
    e: TensorExpr, t: Tensor, j: int, mine: IterDomain, theirs: IterDomain, met: SharedLoopResult, apart: Sequence[str]
) -> ScheduleError:
    others = [u for u in t.uses if u is not e]
    if met.same:  # it does not run as often
        lengths = f"{mine.extent} or {theirs.extent}"
        if same_extent(mine.extent, theirs.extent):
            lengths = f"{mine.extent}, or what another tensor that shares it has there"
        why = f"reads it at the coordinate of that loop, but a loop has one length: {lengths}"
    else:
        where = f": where that is at i{j}, it reads what {t.name} computes at {met.at}" if met.at is not None else ""
        why = f"does not read it at the coordinate of that loop{where}"
    return ScheduleError(
        f"tensor {t.name} is inlined at {t.inline_position}, but its loop {j}, {mine!r}, is not loop {j}, {theirs!r}, "
        f"of its consumer {e.output.name}",
        where=t.source_line,
        because=[
            f"{_operation_at_line(e)} {why}",
            *apart,
            *(f"it is also read by {_operation_at_line(u)}" for u in others),
        ],
        subject=(t.name, e.output.name),
        loop=j,
    )


def _shift_refusals(graph: IndexGraph, exprs: Sequence[TensorExpr]) -> Iterator[ScheduleError]:
    """A shift or reorder left in the index graph means one value is needed at two coordinates in one loop nest."""
    cycles = [c for c in graph.cycles() if c.changes_index]
    number = graph.graph.number
    loops = {number((d, e)) for e in exprs for d in graph.nests.shadows[e.output].loop} if cycles else set[int]()
    for cycle in cycles:
        # Coordinates follow from those of loops: an axis made of a loop takes no others than that loop gives it.
        given = [g for g in cycle.groups if number(g.first) in loops]
        if given and not any(cycle.at(g.first).changes_index for g in given):
            continue
        uses: dict[TensorExpr, Tensor] = {}
        for g in cycle.groups:
            for key in g:
                d, e = key[0], key[1]
                t = tensor_of(d)
                if t is not None and t in e.inputs and t.inline_position:
                    uses.setdefault(e, t)
        shared = [t for t in dict.fromkeys(uses.values()) if sum(u is t for u in uses.values()) > 1]
        t = shared[0] if shared else next(iter(uses.values()), None)
        at = [_operation_at_line(e) for e, u in uses.items() if u is t]
        name = t.name if t is not None else "a tensor"
        by = f"shifted by {cycle.shift}" if cycle.kind == "shift" else "in another order"
        yield ScheduleError(
            f"{name} is inlined into one loop nest that needs it at two coordinates at once: once {by}",
            where=t.source_line if t is not None else None,
            because=[f"it is read by {line}" for line in at] or [str(cycle)],
            subject=() if t is None else (t.name, *(e.output.name for e, u in uses.items() if u is t)),
        )


def _collapse_refusals(
    graph: IndexGraph, alone: Mapping[TensorExpr, set[tuple[IterDomain, IterDomain]]]
) -> Iterator[ScheduleError]:
    """Two loops of one operation in one group: inlining would give them one loop variable."""
    for e in alone:
        seen: dict[int, IterDomain] = {}
        for d in graph.nests.shadows[e.output].loop:
            number = graph.graph.number((d, e))
            if number in seen and not is_one(d.extent) and (seen[number], d) not in alone[e]:
                a, b = seen[number], d
                yield ScheduleError(
                    f"loops {a!r} and {b!r} of {e.output.name} would have to be one loop",
                    where=e.source_line,
                    because=[str(f) for f in graph.explain((a, e), (b, e)).facts],
                    subject=tuple(p.name for p in (*e.inputs, e.output) if p.inline_position),
                )
            seen.setdefault(number, d)


def _length_refusals(promotion: Promotion, inlined: Sequence[tuple[TensorExpr, int]]) -> Iterator[ScheduleError]:
    """A loop of one step that one reader makes longer, and another does not."""
    for e, k in inlined:
        t = e.inputs[k]
        for j, (mine, theirs) in enumerate(zip(t.loop[: t.inline_position], e.output.loop, strict=False)):
            a, b = promotion.of(mine).extent, promotion.of(theirs).extent
            if a != b and simplify(a - b) != 0:
                yield ScheduleError(
                    f"tensor {t.name} is inlined at {t.inline_position}, but its loop {j} has {a} steps, and that of "
                    f"its consumer {e.output.name} has {b}",
                    where=e.source_line,
                    hint=f"inline {t.name} at most at {j}",
                    subject=(t.name,),
                )


def common_loops(fusion: Fusion, tensors: Sequence[Tensor], later: Collection[Tensor] = ()) -> dict[Tensor, int]:
    """For each of ``tensors`` how many leading loops are those of its readers, by what each reads by itself: it cannot
    be inlined further. No limit is given for tensors that inlining (of these, and of ``later``) may give loops of
    another extent."""
    found = {t: len(t.loop) for t in tensors}
    shared = {t for t in fusion.tensors if t.inline_position or t in found or t in later}
    nests = EquivalenceClasses[TensorExpr]()  # operations that may come to share loops
    for t in shared:
        made = t.definition
        for e in t.uses if made is not None else ():
            nests.union(e, into=made or e)
    # Loops of these may have to run over what an operand lacks, and those of all that share them.
    longer = [e for e in fusion.exprs if e.output.domain.loop_exprs and merges_lacking(e, shared)]
    lengthened = {nests.find(e) for e in longer if not shared.isdisjoint(e.inputs)}
    plain = {t for t in found if _is_plain(t) and (t.definition is None or nests.find(t.definition) not in lengthened)}
    if not plain:
        return found
    alone = _IndexGraphBuilder(fusion, (), TensorTemplates())
    known: dict[Hashable, dict[int, int]] = {}  # what equal operations with equal schedules have in common is equal
    for e in dict.fromkeys([e for t in tensors if t in plain for e in t.uses]):
        like = structural_key([e], alone.nests, alone.promotion)
        if like not in known:
            known[like] = alone.common(e)
        for k, count in known[like].items():
            t = e.inputs[k]
            if t in plain:
                found[t] = min(found[t], count)
    return found


def _is_plain(t: Tensor) -> bool:
    """True where no loop can take another tensor's extent."""
    return "broadcast" not in [d.kind for d in t.logical] and not any(map(is_one, [d.extent for d in t.loop]))


def build_index_graph(
    fusion: Fusion,
    exprs: Sequence[TensorExpr] | None = None,
    *,
    plans: TensorTemplates | None = None,
    widen: bool = False,
) -> IndexGraph:
    """The index graph of a scheduled fusion; raises `ScheduleError` for an inlining that no loop nest can do.

    ``exprs`` leaves out the others; with everything that shares a loop with them they are judged as in the whole.
    ``plans`` may be shared with other graphs of the fusion as it is scheduled now.

    Axes of one element widen as those of readers do. Where that leads to no loop of theirs, those of the tensor stay as
    they are scheduled: a loop of one step runs at each step of any loop. If that is refused too, so is the first; with
    ``widen`` that is not tried.
    """
    made, plans = fusion.exprs if exprs is None else exprs, plans or TensorTemplates()
    kept: frozenset[Tensor] = frozenset()
    first: ScheduleError | None = None
    while True:
        try:
            return _IndexGraphBuilder(fusion, made, plans, LoopNests(fusion, None, kept)).build()
        except ScheduleError as error:
            first = first or error
            more = None if widen else _next_narrow(fusion, error, kept)
            if more is None:
                raise first from None
            kept |= {more}


def _next_narrow(fusion: Fusion, refusal: ScheduleError, kept: Set[Tensor]) -> Tensor | None:
    """The first tensor not ``kept`` yet that a refusal is about and that has a loop of one step: one that is inlined
    before those that read it."""
    named = (fusion[name] for name in refusal.subject)
    return next((t for t in named if t not in kept and any(is_one(d.extent) for d in t.loop)), None)


@dataclass(frozen=True, slots=True)
class Legal:
    """Loop nests that are legal: ``promotion`` says what the loops of one of each kind run over, ``twins`` which
    operation of those stands for each of the others."""

    promotion: Promotion
    twins: Mapping[TensorExpr, TensorExpr]

    def ways(self, exprs: Iterable[TensorExpr]) -> dict[TensorExpr, tuple[Parallel, ...]]:
        """For each operation how its loops run: a shared one as any of those in it."""
        known: dict[TensorExpr, tuple[Parallel, ...]] = {}
        found: dict[TensorExpr, tuple[Parallel, ...]] = {}
        for e in exprs:
            twin = self.twins.get(e, e)
            if twin not in known:
                known[twin] = tuple([self.promotion.parallel_type(d) for d in twin.output.loop])
            found[e] = known[twin]
        return found

    def longer(self, t: Tensor) -> bool:
        """Whether a shared loop of ``t`` runs longer, or shorter, than its own axis."""
        return bool(self.promotion.nests.lengths(t))


def legal_nests(fusion: Fusion, exprs: Sequence[TensorExpr]) -> Legal:
    """The loop nests of a scheduled fusion.

    Raises `ScheduleError` where `build_index_graph` of ``exprs`` does. Of nests that differ in names only, one is
    judged. They are distinguished before anything is resolved in them, and once more after, where that follows from
    more than the nest, or makes loops longer.
    """
    alike = isomorphic_exprs(exprs)
    judged = tuple([e for e in exprs if alike[e] is e])
    if len(judged) < len(exprs):
        builder = _IndexGraphBuilder(fusion, judged, TensorTemplates(), LoopNests(fusion, judged))
        if not builder.nests.beside and not builder.nests.lengthened:
            builder.build()
            return Legal(builder.promotion, alike)
    builder = _IndexGraphBuilder(fusion, exprs, TensorTemplates(), LoopNests(fusion, exprs))
    builder.exprs = unique_nests(exprs, builder.nests, builder.promotion)
    builder.build()
    return Legal(builder.promotion, {})
