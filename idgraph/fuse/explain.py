"""Launches of a scheduled fusion: which operations share one, and what keeps the launches of two apart.

`explain` and `obstacles`: what keeps operations that share a buffer from sharing a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeAlias

from idgraph.errors import IdGraphError, ScheduleError, arguments, user_line
from idgraph.fuse.access_relation import AccessRelation, access_relations, delinearize_strides, needs_memory
from idgraph.fuse.alignment_search import question
from idgraph.fuse.footprint import Reads, bytes_saved_by_forwarding, elements_of_both, of_readers, points_that_touch
from idgraph.fuse.mismatch import CAUSES, Mismatch, agree, difference
from idgraph.fuse.obstacle import Obstacle, Obstacles
from idgraph.index.allocation import COUNTED, live_exprs
from idgraph.ir import SCATTERS, Fusion, LoadedCoordinate, Tensor, TensorExpr, check_fusion, item_size
from idgraph.ir.op_table import MOVES
from idgraph.ir.walks import upstream
from idgraph.kernel.def_use import stored_in
from idgraph.kernel.ir import Accumulate, Kernel, Store, VectorAdd, VectorStore, walk
from idgraph.passes.kernel_fusion import ARRAYS, LOOKED_AT
from idgraph.runtime.program import launches
from idgraph.schedule.legality import sharing


@dataclass(frozen=True, slots=True)
class Launched:
    """``kernels`` in launch order; ``homes``: numbers of those that compute a tensor, by its name; ``before``: those
    that each needs something of."""

    kernels: tuple[Kernel, ...]
    homes: Mapping[str, frozenset[int]]
    before: tuple[frozenset[int], ...] = field(repr=False)

    def share(self, a: TensorExpr, b: TensorExpr) -> bool:
        """Whether one launch computes both."""
        return bool(self.homes[a.output.name] & self.homes[b.output.name])

    def obstacle_between(self, a: TensorExpr, b: TensorExpr) -> tuple[Mismatch, str] | None:
        """The obstacle between the launches of ``a`` and ``b``, whose loops could be one, with its proof; None
        where they share one, or where no kernel computes one of them."""
        first, second = (min(self.homes[x.output.name], default=None) for x in (a, b))
        if first is None or second is None or self.share(a, b):
            return None
        low, high = sorted((first, second))
        one, other = self.kernels[low], self.kernels[high]
        why = self._between(low, high)
        if why:
            return Mismatch("synchronisation", (why,)), f"{why}; a launch ends before the next one reads"
        arrays = len({x.name for x in (*one.buffers, *other.buffers)})
        if arrays > ARRAYS:
            why = f"{one.name} and {other.name} take {arrays} arrays"
            return Mismatch("limits", (why,)), f"{why}, and a launch passes at most {ARRAYS}"
        shapes = tuple(_threads(k) for k in (one, other))
        if shapes[0] != shapes[1]:
            why = f"blocks of {one.name} have {shapes[0]} threads, those of {other.name} {shapes[1]}"
            return Mismatch("limits", (why,)), f"{why}, and what threads combine fixes which thread has which"
        why = f"{one.name} and {other.name} together ask for more than one launch has, or lie over {LOOKED_AT} apart"
        return Mismatch("limits", (why,)), why

    def _between(self, low: int, high: int) -> str:
        """Why the later launch waits for the earlier one; empty where it does not."""
        seen: set[int] = set()
        work = [(n, (n, high)) for n in self.before[high]]
        while work:
            n, way = work.pop()
            if n == low:
                names = [self.kernels[k].name for k in way]
                return " waits for ".join(reversed(names))
            if n > low and n not in seen:
                seen.add(n)
                work += [(m, (m, *way)) for m in self.before[n]]
        return ""


def _threads(k: Kernel) -> str:
    return " x ".join(str(k.launch[d][0]) for d in sorted(k.launch) if d.startswith("threadIdx")) or "1"


def launched(fusion: Fusion) -> Launched | None:
    """The CUDA launches of a fusion scheduled on blocks; None of another, or of one that cannot be emitted."""
    if not any(d.parallel.startswith("blockIdx") for t in fusion.tensors for d in t.loop):
        return None
    try:
        return of_kernels(fusion, launches(fusion))
    except IdGraphError:
        return None


def count(fusion: Fusion) -> int:
    """The number of `launches`. Where no step was taken, each operation that runs has a launch of its own: it is
    counted without emitting, but for what is read at an index or updated in place.
    """
    run = live_exprs(fusion)
    plain = not any(
        e.op in SCATTERS or any(isinstance(r, LoadedCoordinate) for row in e.reads for r in row)
        or any(t.log or t.memory != "auto" or t.inline_position for t in e.outputs)
        for e in run
    )  # fmt: skip
    return len(run) if plain else len(launches(fusion))


def of_kernels(fusion: Fusion, kernels: Sequence[Kernel]) -> Launched:
    """The same of kernels that were emitted."""
    homes: dict[str, set[int]] = {e.output.name: set() for e in fusion.exprs}
    for n, names in enumerate(operations(fusion, kernels)):
        for name in names:
            homes[name].add(n)
    last: dict[str, int] = {}
    before: list[frozenset[int]] = []
    for n, k in enumerate(kernels):
        before.append(frozenset(last[b.name] for b in k.buffers if b.name in last))
        last.update(dict.fromkeys(stored_in(k.body), n))
    return Launched(tuple(kernels), {name: frozenset(k) for name, k in homes.items()}, tuple(before))


def operations(f: Fusion, kernels: Sequence[Kernel]) -> tuple[tuple[str, ...], ...]:
    """The tensors that each kernel makes: those it stores, and those computed only for them."""
    order = {e: n for n, e in enumerate(f.exprs)}
    by_name: Mapping[str, Tensor] = {t.name: t for t in f.tensors}
    found: list[tuple[str, ...]] = []
    for k in kernels:
        stored = _stored_tensors(by_name, k)
        read = {b.title for b in k.buffers} - {t.name for t in stored}
        inside = upstream(stored, lambda e, read=read: e.output.name not in read)
        found.append(tuple(e.output.name for e in sorted(inside, key=order.__getitem__)))
    return tuple(found)


def _stored_tensors(by_name: Mapping[str, Tensor], k: Kernel) -> list[Tensor]:
    titles = dict.fromkeys(
        s.buffer.title
        for s in walk(k.body)
        if isinstance(s, (Store, VectorStore, VectorAdd, Accumulate)) and s.buffer is not None
    )
    return [by_name[t] for t in titles if t in by_name]


Pair: TypeAlias = "tuple[AccessRelation, AccessRelation, int]"


@arguments(ScheduleError, first=True)
def explain(
    fusion: Fusion,
    a: TensorExpr | Tensor,
    b: TensorExpr | Tensor,
    *,
    buffer: Tensor | None = None,
    stored: Sequence[Tensor] = (),
) -> Obstacle | None:
    """Why operations ``a`` and ``b`` do not access the same element of the buffer that they share in the same
    iteration of the same loops.

    None where they do: one loop nest can hold both as they are; and of a constant, which is computed where it is read.
    ``a`` and ``b`` are operations, or the tensors that they make, in any order. Loops are the axes of each result, then
    those that are reduced; the schedule does not matter, except that operations which share their loops already have no
    obstacle. The buffer is what one writes and the other reads, else what both read: directly, through views, or
    through arithmetic that is composed away.
    ``buffer`` chooses one; ``stored`` are tensors in memory, through which accesses are not composed. Raises
    `ScheduleError` where they touch no common buffer. (TorchInductor logs such causes as fusion failures; NVIDIA/Fuser
    #3455 asks which axes are aligned.)

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(32, 64))
    >>> y, z = ig.exp(x), ig.transpose(x, 0, 1) * 2.0
    >>> _ = f.output(y, z)
    >>> o = ig.fuse.explain(f, y, z)
    >>> o.cause, o.buffer.name, o.bytes_saved
    ('loop order', 'x', 8192)
    >>> print(o.accesses[1])
    mul of t3 reads x[i1, i0]  for i0 < 64, i1 < 32
    >>> [str(s) for s in o.alignment.steps][3:5]
    ['t1.reorder(((0, 1), (1, 0)))', 't1.merge(0, 1)']
    """
    check_fusion(fusion, "explain", ScheduleError)
    first, second = (_operation(fusion, x) for x in (a, b))
    if first is second:
        raise ScheduleError(
            f"explain: both are the operation of {first.output.name}", where=user_line(), hint="name two operations"
        )
    order = {e: n for n, e in enumerate(fusion.exprs)}
    if order[first] > order[second]:
        first, second = second, first
    if second in sharing(first.output):  # inlining has joined their loops already
        return None
    pairs = _pairs(first, second, buffer, frozenset(stored))
    if not pairs:
        what = "no common buffer" if buffer is None else f"{buffer.name} not both"
        raise ScheduleError(
            f"explain: {first.output.name} and {second.output.name} touch {what}",
            where=user_line(),
            because=[
                f"{e.output.name} reads {', '.join(t.name for t in e.inputs) or 'nothing'}" for e in (first, second)
            ],
            hint="ig.fuse.obstacles(f) lists the pairs that share one",
        )
    pairs = [p for p in pairs if not _is_constant(p[0].buffer)]
    return _judge(fusion, first, second, pairs, (_memory_reads(first), _memory_reads(second))) if pairs else None


@arguments(ScheduleError, first=True)
def obstacles(fusion: Fusion) -> Obstacles:
    """The obstacle between each two operations that touch a common buffer and do not share a kernel as scheduled.

    Operations that share their loops by inlining are one; what they read and write is looked at as a whole, from the
    operation whose result is stored. Of a fusion scheduled on blocks, pairs that one launch computes have no row, and
    pairs whose loops could be one have a row where their launches differ. Of another, a pair that could share its loops
    has no row.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> h = f.input("h", shape=(4, 16))
    >>> _ = f.output(ig.exp(h[:, :8]), ig.exp(h[:, 8:]))
    >>> [(o.a.output.name, o.b.output.name, o.cause) for o in ig.fuse.obstacles(f)]
    [('t1', 't3', 'offset')]
    """
    check_fusion(fusion, "obstacles", ScheduleError)
    found = list(_obstacles(fusion))
    return Obstacles(tuple(found))


def _obstacles(fusion: Fusion) -> Iterator[Obstacle]:
    nests, launches = _stored_nests(fusion), launched(fusion)
    by_buffer: dict[Tensor, dict[TensorExpr, list[AccessRelation]]] = {}
    reads: dict[TensorExpr, dict[Tensor, list[AccessRelation]]] = {}
    for root, inside in nests.items():
        mine = reads[root] = {}
        for t, found in access_relations(root, lambda e, inside=inside: e in inside).items():
            if _is_constant(t):
                continue
            if t.definition is None or t.definition not in inside or t is root.output:
                by_buffer.setdefault(t, {})[root] = mine[t] = found
    order = {e: n for n, e in enumerate(fusion.exprs)}
    pairs: dict[tuple[TensorExpr, TensorExpr], list[Pair]] = {}
    for users in by_buffer.values():
        roots = sorted(users, key=order.__getitem__)
        for n, a in enumerate(roots):
            for b in roots[n + 1 :]:
                pairs.setdefault((a, b), []).extend(
                    (x, y, len(users[b])) for x in users[a] for y in users[b] if not (y.is_write and not x.is_write)
                )
    for (a, b), found in pairs.items():
        if not found or (launches is not None and launches.share(a, b)):
            continue
        both = reads[a], reads[b]
        o = _judge(fusion, a, b, found, both)
        if o is None and launches is not None:
            o = _of_launches(fusion, a, b, found, both, launches)
        if o is not None:
            yield o


def _of_launches(
    fusion: Fusion, a: TensorExpr, b: TensorExpr, pairs: Sequence[Pair], reads: tuple[Reads, Reads], launches: Launched
) -> Obstacle | None:
    """The obstacle between the launches of a pair that touches its buffer alike."""
    known = launches.obstacle_between(a, b)
    if known is None:
        return None
    x, y, _ = pairs[0]
    return replace(_obstacle(fusion, a, b, x, y, known[0], pairs, reads), proof=known[1])


def _memory_reads(e: TensorExpr) -> Reads:
    """The touches of an operation in memory."""
    return {t: ways for t, ways in access_relations(e, _never).items() if not _is_constant(t)}


def _is_constant(t: Tensor) -> bool:
    """Whether ``t`` has no buffer: a constant that is not an output is computed where it is read."""
    return t.definition is not None and t.definition.op in COUNTED and not t.fusion.is_output(t)


def _stored_nests(fusion: Fusion) -> dict[TensorExpr, frozenset[TensorExpr]]:
    """The stored operations, each with those that are inlined into it."""
    made: dict[TensorExpr, frozenset[TensorExpr]] = {}
    for e in fusion.exprs:
        t = e.output
        if t.inline_position and t.uses and not fusion.is_output(t) and not needs_memory(e):
            continue
        inside = {e}
        work = list(e.inputs)
        while work:
            x = work.pop()
            d = x.definition
            if (
                d is not None
                and d not in inside
                and x.inline_position
                and x not in fusion.outputs
                and not needs_memory(d)
            ):
                inside.add(d)
                work += d.inputs
        made[e] = frozenset(inside)
    return made


def _operation(fusion: Fusion, x: TensorExpr | Tensor) -> TensorExpr:
    e = x.definition if isinstance(x, Tensor) else x
    if e is None or e.output not in fusion or e.output.definition is not e:
        name = x.name
        raise ScheduleError(
            f"explain: {name} is not an operation of fusion {fusion.name}",
            where=user_line(),
            hint="an operation of the fusion (t.definition), or a tensor that one makes",
        )
    return e


def _pairs(a: TensorExpr, b: TensorExpr, buffer: Tensor | None, stored: frozenset[Tensor]) -> list[Pair]:
    """Accesses of a common buffer by both: by the nearest that there is."""
    if buffer is not None:
        stop = {buffer, *stored}
        return _common(a, b, lambda e: e.output not in stop and not needs_memory(e), {buffer})
    for passes in (_never, _is_move, _arithmetic):
        found = _common(a, b, lambda e, passes=passes: e.output not in stored and passes(e), None)
        if found:
            return found
    return []


def _never(_: TensorExpr) -> bool:
    return False


def _is_move(e: TensorExpr) -> bool:
    return e.op in MOVES


def _arithmetic(e: TensorExpr) -> bool:
    return not needs_memory(e)


def _common(a: TensorExpr, b: TensorExpr, passes: Callable[[TensorExpr], bool], only: set[Tensor] | None) -> list[Pair]:
    def ends(e: TensorExpr) -> bool:  # what a writes is a buffer, not passed through
        return e is not a and passes(e)

    mine, theirs = access_relations(a, ends), access_relations(b, ends)
    both = [t for t in mine if t in theirs and (only is None or t in only)]
    if only is None and a.output in both:
        both = [a.output]
    elif only is None and both:  # what is passed through by both is not a buffer where what it is made of is there too
        deeper = {x for t in both if t.definition is not None and passes(t.definition) for x in t.definition.inputs}
        both = [t for t in both if not (t.definition is not None and passes(t.definition) and deeper & set(both))]
    return [(x, y, len(theirs[t])) for t in both for x in mine[t] for y in theirs[t]]


def _judge(
    fusion: Fusion, a: TensorExpr, b: TensorExpr, pairs: Sequence[Pair], reads: tuple[Reads, Reads]
) -> Obstacle | None:
    """The obstacle of the pair of most common bytes; of a producer and its consumer, ties go to the first cause."""
    flow = [p for p in pairs if p[0].is_write]
    if not flow and any(agree(x, y) for x, y, _ in pairs):
        return None
    found: list[tuple[int, int, Pair, Mismatch]] = []
    for n, (x, y, ways) in enumerate(flow or pairs):
        apart = difference(x, y, ways)
        if apart is not None:
            size = elements_of_both(x, y) or 0
            rank = CAUSES.index(apart.cause) if flow else 0
            found.append((-size * item_size(x.buffer.dtype), rank * len(pairs) + n, (x, y, ways), apart))
    if not found:
        return None
    _, _, (x, y, _), apart = min(found, key=lambda f: f[:2])
    return _obstacle(fusion, a, b, x, y, apart, pairs, reads)


def _obstacle(
    fusion: Fusion,
    a: TensorExpr,
    b: TensorExpr,
    x: AccessRelation,
    y: AccessRelation,
    apart: Mismatch,
    pairs: Sequence[Pair],
    reads: tuple[Reads, Reads],
) -> Obstacle:
    forms = delinearize_strides(x), delinearize_strides(y)
    ways = [t for u, v, _ in pairs if u.buffer is x.buffer and u.is_write is x.is_write for t in (u, v)]
    between = dict.fromkeys(e for t in ways for e in t.path if e not in (a, b))
    both = None if x.is_write or x.loads or y.loads else elements_of_both(x, y)
    asked = question(fusion, a, b, x.buffer, [*between], forms, _shifts(x, y), both)
    by_trial = False
    if x.is_write:
        mine = list({id(v): v for u, v, _ in pairs if u.is_write and u.buffer is x.buffer}.values())
        kept = _has_other_readers(x.buffer, {a, b, *between})
        saved, by_trial = (
            bytes_saved_by_forwarding(a, b, reads, mine, {*between}, kept),
            b.op in SCATTERS or (kept and any(t.loads for t in mine)),  # a scatter may have several kernels
        )
    else:
        saved = of_readers(_by_buffer(u for u, _, _ in pairs), _by_buffer(v for _, v, _ in pairs))
    proof = ""
    if apart.disjoint:
        proof = f"no element of {x.buffer.name} is touched by both: {apart.because[0]}"
    elif not x.is_write and (at := _chosen_by_value(x, y)):
        proof = at
    elif apart.cause == "synchronisation":
        proof = apart.because[0] + "; a grid-wide barrier or a new launch keeps that order, loops do not"
    factor = 1.0
    if x.is_write and not a.is_reduction:
        factor = _factor([t for u, t, _ in pairs if u.is_write and u.buffer is x.buffer], x)
    return Obstacle(a, b, x.buffer, apart.cause, (x, y), apart.because, saved, factor, asked, proof, by_trial)


def _by_buffer(ways: Iterable[AccessRelation]) -> dict[Tensor, list[AccessRelation]]:
    """Reads by what they read, each once."""
    found: dict[Tensor, dict[int, AccessRelation]] = {}
    for t in ways:
        if not t.is_write:
            found.setdefault(t.buffer, {})[id(t)] = t
    return {buffer: list(own.values()) for buffer, own in found.items()}


def _has_other_readers(t: Tensor, own: set[TensorExpr]) -> bool:
    """Whether others than the operations of the pair need the buffer too."""
    return t.fusion.is_output(t) or any(e not in own for e in t.uses)


def _factor(reads: Sequence[AccessRelation], write: AccessRelation) -> float:
    """How often each element is computed where the reader computes what it needs: points at which it reads one, by the
    elements that there are."""
    sizes = write.sizes
    counts = [points_that_touch(t) for t in reads]
    known = [n for n in counts if n is not None]
    if sizes is None or len(known) != len(counts) or not prod(sizes):
        return 1.0
    return max(1.0, sum(known) / prod(sizes))


def _chosen_by_value(x: AccessRelation, y: AccessRelation) -> str:
    """The proof that two readers meet at no point of any loops for every index: along one axis a loaded value chooses
    the place of one, and the other's is known beforehand. Empty where that is not so."""
    for one, other in ((x, y), (y, x)):
        for axis, mine, theirs in zip(x.buffer.axes, one.map.results, other.map.results, strict=True):
            index = next((one.loads[n][0] for n in mine.names if n in one.loads), None)
            if index is not None and axis.extent != 1 and not any(n in other.loads for n in theirs.names):
                a, b = one.expr.output.name, other.expr.output.name
                return (
                    f"whatever point of {a} stands beside one of {b}, the value of {index} there may name another "
                    f"element of {x.buffer.name} than {b} reads"
                )
    return ""


def _shifts(x: AccessRelation, y: AccessRelation) -> tuple[tuple[int, int], ...]:
    """Loops of ``x`` along an axis in which ``y`` begins elsewhere: (position, distance), both ways round."""
    found: list[tuple[int, int]] = []
    zero = {loop.symbol.name: 0 for loop in (*x.loops, *y.loops)}
    for mine, theirs in zip(x.map.results, y.map.results, strict=True):
        k = next((n for n, loop in enumerate(x.loops) if mine == loop.symbol), None)
        if k is None or theirs.loads or not theirs.divmods or theirs.names - zero.keys():
            continue
        by, size = int(theirs.evaluate(zero)), x.loops[k].size
        if by and size is not None:
            found += [(k, by), (k, size - by)]
    return tuple(found)
