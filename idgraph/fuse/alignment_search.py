"""Alignments, tried: the two operations on their own, scheduled, emitted and validated.

The trial is a small fusion of the two and of what lies between; each way is taken on a copy of it, and is given out
only where its kernels put both operations together and pass the checks against the oracle.

Long: all ways stand in one table, which each question goes through in order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from threading import RLock
from weakref import ReferenceType, ref

from idgraph.arith import Expr, simplify, symbol
from idgraph.errors import IdGraphError, IndexingError
from idgraph.fuse.access_relation import StridedForm
from idgraph.fuse.common_loops import (
    Alignment,
    AlignmentStep,
    common_loops,
    reorder,
    reverse_loops,
    rows_in_front,
    widen,
)
from idgraph.fuse.footprint import elements_met
from idgraph.index import IdModel
from idgraph.ir import Fusion, LoadedCoordinate, Tensor, TensorExpr
from idgraph.ir.hooks import search
from idgraph.ir.op_table import GATHERS, ROWS, apply
from idgraph.ir.ops_ragged import combine, ragged_dim
from idgraph.ir.parser import copy_fusion, declare_input, snapshot
from idgraph.ir.printer import input_arguments
from idgraph.ir.walks import upstream
from idgraph.kernel.ir import Accumulate, Kernel, Store, VectorAdd, VectorStore, walk
from idgraph.runtime import emit
from idgraph.schedule import auto, inline_most, like, recompute
from idgraph.schedule.transform_replay import like_consumer
from idgraph.validate import Report, validate
from idgraph.validate.index_map_check import check_addresses
from idgraph.validate.value_check import random_inputs

BLOCK = 128
RUN = 1 << 18  # loop points up to which values are compared too, and every address
LISTED = 1 << 23  # loop points up to which the oracle holds the tables of a trial
REMEMBERED = 4096
ONCE = (
    "the producer's loops in front of its reader's others",
    "the loops of a private copy in front of its reader's others",
    "the loops of both in front, and what each makes of them one after the other",
)  # ways in which each element is computed once
_KNOWN: OrderedDict[tuple[str, ...], _Trials] = OrderedDict()
_REFUSALS: OrderedDict[tuple[str, ...], str] = OrderedDict()


@dataclass(frozen=True, slots=True)
class AlignmentQuery:
    """A small fusion with the operations that make ``a`` and ``b`` (names), which share ``buffer``.

    ``shared`` are tensors that others need too, ``forms`` the digits of both accesses where they have such, ``rows``
    whether ``a`` must have ended a reduction first, ``shifts`` the (loop, distance) by which ``b`` runs ahead, ``both``
    how many elements of the buffer both touch, where that is known exactly. ``whole`` is the text of the fusion that
    was asked about, with the other readers of what the two make, and ``copy`` makes one like it.
    """

    fusion: Fusion
    a: str
    b: str
    buffer: str
    shared: tuple[str, ...] = ()
    forms: tuple[StridedForm | None, StridedForm | None] = (None, None)
    rows: bool = False
    shifts: tuple[tuple[int, int], ...] = ()
    both: int | None = None
    whole: str = ""
    copy: Callable[[], Fusion] | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The cache key: equal questions have one answer."""
        return str(self.fusion), self.a, self.b, self.buffer, *self.shared


@dataclass(frozen=True, slots=True)
class AlignmentResult:
    """The alignment, or the ways that were tried and why each failed; ``others``: whether other readers stood in the
    way of one that aligns the two on their own."""

    alignment: Alignment | None
    tried: tuple[str, ...] = ()
    others: bool = False


def question(
    fusion: Fusion,
    a: TensorExpr,
    b: TensorExpr,
    buffer: Tensor,
    between: Sequence[TensorExpr],
    forms: tuple[StridedForm | None, StridedForm | None],
    shifts: tuple[tuple[int, int], ...] = (),
    both: int | None = None,
) -> AlignmentQuery:
    """The two operations and those ``between`` as a fusion of their own."""
    wanted = {a, b, *between, *_making_rows((a, b, *between))}
    chosen = sorted(wanted, key={e: n for n, e in enumerate(fusion.exprs)}.__getitem__)
    made = Fusion("trial")
    for name, s in fusion.symbols.items():
        low, high, step, _ = s.symbol_bounds
        made.symbol(name, min=0 if low is None else low, max=high, multiple_of=step)
    for e in chosen:
        for t in e.inputs:
            if t.name not in {x.name for x in made.tensors}:
                given = input_arguments(t)
                if t.definition is not None:
                    given = {"shape": tuple(int(d.extent) if d.extent.is_const else d.extent for d in t.axes),
                             "dtype": t.dtype}  # fmt: skip
                declare_input(made, t.name, given)
        args = tuple(made[x.name] if isinstance(x, Tensor) else x for x in e.args)
        with made.at_line(e.source_line):
            apply(made, e.op, args, e.attrs, e.output.name)
    inside = {e.output for e in chosen}
    shared = tuple(t.name for t in inside if t is not b.output and (t in fusion.outputs or set(t.uses) - wanted))
    alone = {t for t in (a.output, b.output) if t not in _input_tensors(chosen)}
    needed = [t for t in inside if t in alone or t.name in shared]
    for t in sorted(needed, key=lambda t: t.name):
        made.output(made[t.name] if ragged_dim(t) is None else combine(made[t.name], name=f"{t.name}_rows"))
    return AlignmentQuery(
        made,
        a.output.name,
        b.output.name,
        buffer.name,
        shared,
        forms,
        buffer is a.output and a.is_reduction,
        shifts,
        both,
        *_as_it_is(fusion),
    )


_LAST: list[tuple[ReferenceType[Fusion], int, tuple[str, Callable[[], Fusion]]]] = []


def _as_it_is(fusion: Fusion) -> tuple[str, Callable[[], Fusion]]:
    """The text of a fusion and what copies it, made once for all questions about it."""
    for of, version, known in _LAST:
        if of() is fusion and version == fusion.version:
            return known
    made = str(fusion), snapshot(fusion)
    _LAST[:] = [(ref(fusion), fusion.version, made)]
    return made


def _making_rows(exprs: Sequence[TensorExpr]) -> set[TensorExpr]:
    """The operations that make the rows these read: no input has a ragged axis, or is the ends of rows."""
    parts = [t for e in exprs for t in (e.inputs[1:] if e.op in ROWS else ())]
    return upstream(parts + [t for e in exprs for t in e.inputs if ragged_dim(t) is not None])


def _input_tensors(exprs: Sequence[TensorExpr]) -> set[Tensor]:
    return {t for e in exprs for t in e.inputs}


@search()
def answer(q: AlignmentQuery) -> AlignmentResult:
    """The first way that aligns the two operations, and does so in the whole fusion, where others read what they make;
    earlier answers are remembered."""
    tried: list[str] = []
    others = False
    apart: Alignment | None = None  # one that launches no fewer kernels: one is added, as for a composed index
    for name, found, best in _trials(q):
        why = found if isinstance(found, str) else _refusal(q, found)
        if isinstance(found, str) or why:
            others = others or not isinstance(found, str)
            tried.append(f"{name}: {why}")
            continue
        if best:
            return AlignmentResult(found, tuple(tried), others)
        apart = apart or found
    return AlignmentResult(apart, tuple(tried), others)


Trial = tuple[str, "Alignment | str", bool]
"""The name of a way, the alignment or why there is none, and whether no other can be better."""


class _Trials:
    """The trials of one question: each is made when those before it did not do, and then remembered."""

    def __init__(self, q: AlignmentQuery) -> None:
        self._made: list[Trial] = []
        self._rest = _tried(q)
        self._lock = RLock()

    def at(self, n: int) -> Trial | None:
        """Trial ``n``, None where there are fewer."""
        with self._lock:
            while len(self._made) <= n:
                trial = next(self._rest, None)
                if trial is None:
                    return None
                self._made.append(trial)
            return self._made[n]


def _trials(q: AlignmentQuery) -> Generator[Trial]:
    key = q.key
    known = _KNOWN.get(key)
    if known is None:
        known = _KNOWN[key] = _Trials(q)
        if len(_KNOWN) > REMEMBERED:
            _KNOWN.popitem(last=False)
    n = 0
    while True:
        try:
            trial = known.at(n)
        except BaseException:  # an interrupt: what is left is not known
            _KNOWN.pop(key, None)
            raise
        if trial is None:
            return
        yield trial
        n += 1


def _tried(q: AlignmentQuery) -> Generator[Trial]:
    for name, way in _strategies(q):
        try:
            made = copy_fusion(q.fusion)
            before = len(emit(made, target="cuda").kernels)
            first = tuple(way(made, q))
            steps = first or _logged_steps(made, q)
            after = emit(made, target="cuda").kernels if way is not _same_loops else emit(made, "python").kernels
        except IdGraphError as error:
            yield name, error.what, False
            continue
        joined = _together(after, q, _twins(made, q))
        if not joined and (way is not _same_loops or q.buffer == q.a):
            yield name, "they stay in kernels of their own", False
            continue
        if q.buffer != q.a and not _same_place(made, q):
            yield name, f"they touch other elements of {q.buffer} at the same point", False
            continue
        try:
            points, wrong = _check_addresses(made)
        except IdGraphError as error:  # an index that is computed of the trial's numbers is nowhere in range
            yield name, error.what, False
            continue
        if wrong:
            yield name, wrong, False
            continue
        fewer = len(after) < before + (q.a in q.shared)  # what others need has its own kernel beside a copy's
        found = Alignment(steps, before, len(after), points, joined and fewer, name in ONCE)
        yield name, found, fewer or not joined


def _refusal(q: AlignmentQuery, found: Alignment) -> str:
    """Why the steps cannot be taken on the whole fusion, as `Alignment.apply` takes them; empty where they can."""
    if q.copy is None:
        return ""
    key = (q.whole, *map(str, found.steps))
    known = _REFUSALS.get(key)
    if known is None:
        known = ""
        try:
            found.apply(q.copy())
        except IdGraphError as error:
            known = error.because[0] if error.because else error.what
        _REFUSALS[key] = known
        if len(_REFUSALS) > REMEMBERED:
            _REFUSALS.popitem(last=False)
    return known


def _check_addresses(f: Fusion) -> tuple[int, str]:
    """The number of addresses checked, and the fault found."""
    points = [prod(int(d.extent) if d.extent.is_const else 64 for d in e.output.loop) for e in f.exprs]
    sizes = {name: _span_of(s.symbol_bounds) for name, s in f.symbols.items()}
    if sum(points) <= RUN:
        report = _compared(f, sizes)
        return report.points, "" if report.ok else str(report.counterexample)
    if sum(points) > LISTED:
        IdModel(f).verify()
        return 0, ""
    found = check_addresses(f, symbols=sizes or None, exhaustive=False)
    return found.points, "" if found.ok else "an address is wrong"


def _compared(f: Fusion, sizes: Mapping[str, int]) -> Report:
    """Values and addresses: on random numbers, else where an index that is computed of these lies nowhere in range, on
    zeros and true conditions."""
    try:
        return validate(f, target="numpy", symbols=sizes or None)
    except IndexingError:
        given = random_inputs(f, 0, sizes or None)
        zeros = {name: x | True if x.dtype == bool else x * 0 for name, x in given.items()}
        return validate(f, target="numpy", symbols=sizes or None, inputs=zeros)


def _span_of(bounds: tuple[object, object, int, int]) -> int:
    low, high, step, first = bounds
    n = max(first + step, first + step * 3)
    n = max(n, low) if isinstance(low, int) else n
    return min(n, high) if isinstance(high, int) else n


def _twins(made: Fusion, q: AlignmentQuery) -> set[str]:
    """``a`` and its copies."""
    names = {t.name for t in q.fusion.tensors}
    a = q.fusion[q.a].definition
    return {q.a} | {t.name for t in made.tensors if t.name not in names and _same_operation(a, t.definition)}


def _together(kernels: Sequence[Kernel], q: AlignmentQuery, twins: set[str]) -> bool:
    """Whether the kernel that makes ``b`` makes ``a`` too, or computes it, or the ``twins`` of it, for itself: each of
    them where it takes several, as a scatter does, which begins with a copy."""
    made = [
        {s.buffer.title for s in walk(k.body)
         if isinstance(s, (Store, VectorStore, VectorAdd, Accumulate)) and s.buffer is not None}
        for k in kernels
    ]  # fmt: skip
    mine = [(k, names) for k, names in zip(kernels, made, strict=True) if q.b in names]
    if len(kernels) == 1 or not mine:
        return bool(mine)
    if q.buffer == q.a:
        return not any(twins & ({x.title for x in k.buffers} - names) for k, names in mine)
    return any(q.a in names for _, names in mine)


def _same_place(made: Fusion, q: AlignmentQuery) -> bool:
    """Whether an operation of each side reads one element of the buffer at each point of the loops, or one of them at
    each point of loops around those of the other."""
    m = IdModel(made)
    sides: list[list[_Visit]] = []
    for root in (q.a, q.b):
        mine: list[_Visit] = []
        for e in upstream([made[root]]):
            loops = [x for x in m.loops(e) if simplify(x.extent) != 1]
            names: dict[Expr, Expr] = {
                x.symbol: symbol(f"i{n}", 0, simplify(x.extent - 1)) for n, x in enumerate(loops)
            }
            for k in e.operands_of(made[q.buffer]):
                read = m.read(e, k)
                at = tuple(x.substitute(names) for x in read.coordinates)
                when = tuple(x.substitute(names) for x in read.conditions)
                mine.append(_Visit(tuple(x.extent for x in loops), at, when))
        sides.append(mine)
    near = [(x, y) for x in sides[0] for y in sides[1]]
    return any(_at_one(x, y) for x, y in near) or any(_meet(made[q.buffer], x, y, q.both) for x, y in near)


@dataclass(frozen=True, slots=True)
class _Visit:
    """The element that an operation reads at each point of its loops, where all of the conditions hold."""

    loops: tuple[Expr, ...]
    at: tuple[Expr, ...]
    when: tuple[Expr, ...]


def _at_one(x: _Visit, y: _Visit) -> bool:
    """Whether both read one element at each point of the loops that they have in common: what reads at fewer loops
    reads what the other does at each step of the rest, and so do two whose other loops do not move them."""
    common = next((n for n, (a, b) in enumerate(zip(x.loops, y.loops)) if a != b), min(len(x.loops), len(y.loops)))
    if common < min(len(x.loops), len(y.loops)):
        inner = {f"i{n}" for n in range(common, max(len(x.loops), len(y.loops)))}
        if any(not inner.isdisjoint(c.names) for c in (*x.at, *y.at)):
            return False
    return x.at == y.at


def _meet(buffer: Tensor, x: _Visit, y: _Visit, both: int | None) -> bool:
    """Whether, by enumeration, both read one element wherever both read, and so every element that both need."""
    if x.loops[: len(y.loops)] != y.loops and y.loops[: len(x.loops)] != x.loops:
        return False
    wide = x if len(x.loops) >= len(y.loops) else y
    sizes = [*wide.loops, *(d.extent for d in buffer.axes)]
    if not both or not all(n.is_const for n in sizes):
        return False
    return elements_met([int(n) for n in wide.loops], buffer, (x.at, y.at), (*x.when, *y.when)) == both


def _logged_steps(made: Fusion, q: AlignmentQuery) -> tuple[AlignmentStep, ...]:
    """The steps that were done, from the logs: private copies first, then the steps of each tensor in their order. A
    way that rewrote operations is the automatic schedule.
    """
    before = q.fusion
    names = {t.name for t in before.tensors}
    copies = [t for t in made.tensors if t.name not in names and t.definition is not None]
    out: list[AlignmentStep] = []
    for t in copies:
        twin = next((u for u in before.tensors if _same_operation(u.definition, t.definition)), None)
        if twin is None or not t.uses:
            return (AlignmentStep("", "auto"),)
        out.append(AlignmentStep(twin.name, "recompute", (t.uses[0].output.name,), copy=t.name))
    out += [
        AlignmentStep(t.name, "reset") for t in made.tensors if t.definition is not None and t.log and t not in copies
    ]
    logged = sorted(((s.at, n, t, s) for n, t in enumerate(made.tensors) for s in t.log), key=lambda x: x[:2])
    out += [AlignmentStep(t.name, s.name, s.args, named=tuple(s.kwargs.items())) for _, _, t, s in logged]
    return tuple(out)


def _same_operation(a: TensorExpr | None, b: TensorExpr | None) -> bool:
    if a is None or b is None:
        return False
    return (
        a.op == b.op
        and a.attrs == b.attrs
        and [getattr(x, "name", x) for x in a.args] == [getattr(x, "name", x) for x in b.args]
    )


# ways -----------------------------------------------------------------------------------------------------------------

Way = Callable[[Fusion, AlignmentQuery], Sequence[AlignmentStep]]


def _strategies(q: AlignmentQuery) -> list[tuple[str, Way]]:
    gathers = _gathers(q.fusion)
    found: list[tuple[str, Way]] = []
    if q.buffer == q.a and q.fusion[q.a].definition is not None and q.rows and not gathers:
        found.append(("rows of one kernel", _auto))
    if q.buffer == q.a:
        found.append(("the producer follows its reader's loops", _follow))
        if q.shared:
            found.append(("a private copy follows its reader's loops", _private))
    else:
        found.append(("one flat loop in one order", _flatten_both))
        found += [(f"the loop carries a shift of {n}", partial(_rotate_loop, k, n)) for k, n in q.shifts]
        found.append(("the loops of both in front", _in_front))
        found.append(("the same loops in the same order", _same_loops))
    if not gathers and not q.rows:
        found.append(("the automatic schedule of both", _auto))
        if q.buffer == q.a and q.shared:
            found.append(("a private copy, and the automatic schedule", _private_auto))
    for way in ("recompute", "predicate", "one-hot") if gathers else ():
        found.append((f"the gather by {way}", partial(_gather, way)))
    if q.buffer == q.a and not q.rows:
        in_front, copied, in_turn = ONCE
        found.append((in_front, partial(_ahead, False)))
        if q.shared:
            found.append((copied, partial(_ahead, True)))
        found.append((in_turn, _one_after_other))
    return found


def _gathers(f: Fusion) -> list[TensorExpr]:
    """The gathers of what the trial computes."""
    found = [e for e in f.exprs if e.op in GATHERS]
    return [e for e in found if any(x.definition is not None and _is_looked_up(row) for x, row in _operand_reads(e))]


def _is_looked_up(row: Sequence[object]) -> bool:
    return any(isinstance(r, LoadedCoordinate) for r in row)


def _operand_reads(e: TensorExpr) -> zip[tuple[Tensor, Sequence[object]]]:
    return zip(e.inputs, e.reads, strict=True)


def _follow(f: Fusion, q: AlignmentQuery) -> Sequence[AlignmentStep]:
    b = f[q.b]
    count = next((n for n, d in enumerate(b.loop) if d.kind == "reduction"), len(b.loop))
    for _ in range(count - 1):
        b.merge(0)
    if count:
        b.split(0, BLOCK)
        b.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    like(f, b)
    inline_most(f)
    return ()


def _private(f: Fusion, q: AlignmentQuery) -> Sequence[AlignmentStep]:
    """Each operation on the way from ``a`` to ``b`` gets copies of what others read too."""
    _copy_steps(f, q)
    return _follow(f, q)


def _ahead(copied: bool, f: Fusion, q: AlignmentQuery) -> Sequence[AlignmentStep]:
    """The loops of the producer, or of a private copy, on blocks and threads, with all others of its reader inside:
    each element is computed once."""
    made = _copy_steps(f, q) if copied else []
    e = f[q.b].definition
    names = {q.a, *(s.copy for s in made)}
    a = next((t for t in e.inputs if t.name in names), None) if e is not None else None
    fa, fb = q.forms
    if a is None or fa is None or fb is None or fa.merged or fb.merged:
        raise IdGraphError("its reader goes through what it makes in no regular steps", hint="another way")
    count = common_loops(a, f[q.b], fa, fb)
    if not count or any(d.extent != 1 for d in a.loop[count:]):
        raise IdGraphError("not all of its loops can stand in front", hint="another way")
    _on_blocks((a, f[q.b]), count)
    inline_most(f, [a])
    return ()


def _one_after_other(f: Fusion, q: AlignmentQuery) -> Sequence[AlignmentStep]:
    """The loops that both go through alike on blocks and threads: in each step the producer makes all that it makes
    there, each element once, and its reader reads it then."""
    a, b = f[q.a], f[q.b]
    fa, fb = q.forms
    if fa is None or fb is None or fa.merged or fb.merged:
        raise IdGraphError("its reader goes through what it makes in no regular steps", hint="another way")
    count = rows_in_front(a, b, fa, fb)
    if not count:
        raise IdGraphError("no loop of both goes through it alike", hint="another way")
    _on_blocks((a, b), count)
    between = upstream([f[q.b]]) - upstream([f[q.a]]) - {b.definition}
    chain = [e.output for e in reversed(f.exprs) if e in between]
    for t in chain:
        like_consumer(t, t.uses[0], t.uses[0].operands_of(t)[0])
    inline_most(f, [*chain, a])
    return ()


def _on_blocks(tensors: Sequence[Tensor], count: int) -> None:
    """The first loops of each as one loop, cut into blocks and threads."""
    for t in tensors:
        for _ in range(count - 1):
            t.merge(0)
        t.split(0, BLOCK)
        t.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")


def _private_auto(f: Fusion, q: AlignmentQuery) -> Sequence[AlignmentStep]:
    made = _copy_steps(f, q)
    auto(f)
    return (*made, AlignmentStep("", "auto"))


def _copy_steps(f: Fusion, q: AlignmentQuery) -> list[AlignmentStep]:
    made: list[AlignmentStep] = []
    for name in dict.fromkeys((*q.shared, q.a)):
        t = f[name]
        for use in list(t.uses):
            if t.definition is not None and use in upstream([f[q.b]]):
                copy = f"{name}_for_{use.output.name}"
                recompute(t, use, name=copy)
                made.append(AlignmentStep(name, "recompute", (use.output.name,), copy=copy))
    return made


def _auto(f: Fusion, _: AlignmentQuery) -> Sequence[AlignmentStep]:
    auto(f)
    return ()


def _gather(way: str, f: Fusion, _: AlignmentQuery) -> Sequence[AlignmentStep]:
    names = [e.output.name for e in _gathers(f)]
    auto(f, gathers=dict.fromkeys(names, way))  # type: ignore[arg-type]
    return (AlignmentStep("", "auto", tuple((name, way) for name in names)),)


def _flatten_both(f: Fusion, q: AlignmentQuery) -> Sequence[AlignmentStep]:
    """Both loop over the elements in the order of ``b``, as one loop cut into blocks and threads."""
    a, b = f[q.a], f[q.b]
    fa, fb = q.forms
    if fa is not None and fb is not None and not fa.merged and not fb.merged:
        widen(a, b, fa, fb)
        if [x.stride for x in fa.digits] != [x.stride for x in fb.digits] and reverse_loops(a, b, fa, fb) is None:
            reorder(a, fa, fb)
    for t in (a, b):
        for _ in range(len(t.loop) - 1):
            t.merge(0)
        if t.loop:
            t.split(0, BLOCK)
            t.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    inside = [t for t in f.tensors if t.definition is not None and t.uses and t not in f.outputs]
    for root in (a, b):
        chain = [t for t in inside if t not in (a, b)]
        if chain:
            like(f, root)
    inline_most(f)
    return ()


def _in_front(f: Fusion, q: AlignmentQuery) -> Sequence[AlignmentStep]:
    """The loops in which both go through the buffer in front of all others, on blocks and threads."""
    count = _in_common(f, q)
    if not count:
        raise IdGraphError("no loop that both keep goes through the buffer alike", hint="another way")
    _on_blocks((f[q.a], f[q.b]), count)
    _inlined(f, q)
    return ()


def _same_loops(f: Fusion, q: AlignmentQuery) -> Sequence[AlignmentStep]:
    """Loops of both cut where either jumps, in the order of ``b``; reduced ones stay what they are."""
    _in_common(f, q)
    _inlined(f, q)
    return ()


def _in_common(f: Fusion, q: AlignmentQuery) -> int:
    fa, fb = q.forms
    if fa is None or fb is None or fa.merged or fb.merged:
        raise IdGraphError("an access goes through the buffer in no regular steps", hint="another way")
    return common_loops(f[q.a], f[q.b], fa, fb)


def _inlined(f: Fusion, q: AlignmentQuery) -> None:
    """Let the operations between follow ``a`` or ``b``, and inline them."""
    inside = [t for t in f.tensors if t.definition is not None and t.uses and t not in f.outputs]
    if inside:
        for root in (q.a, q.b):
            like(f, f[root])
        inline_most(f, inside)


def _rotate_loop(loop: int, by: int, f: Fusion, q: AlignmentQuery) -> Sequence[AlignmentStep]:
    """The loop of ``a`` begins where ``b`` does, and wraps around."""
    f[q.a].roll(loop, by)
    return _flatten_both(f, q)
