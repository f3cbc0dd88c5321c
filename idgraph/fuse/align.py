"""Alignments, tried: the two operations on their own, scheduled, emitted and validated.

The trial is a small fusion of the two and of what lies between; each way is taken on a copy of it, and is given out
only where its kernels put both operations together and pass the checks against the oracle.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from idgraph.errors import IdGraphError
from idgraph.fuse.access_digits import Digit, Form, refined
from idgraph.fuse.steps import Alignment, Step
from idgraph.index import IdModel
from idgraph.ir import Fusion, Tensor, TensorExpr
from idgraph.ir.parsing import copy_fusion, declare_input
from idgraph.ir.printing import input_arguments
from idgraph.ir.registry import apply
from idgraph.kernel.ir import Accumulate, Kernel, Store, VectorAdd, VectorStore, walk
from idgraph.rewrite.gathers import GATHERS
from idgraph.runtime import emit
from idgraph.schedule import auto, inline_most, like, recompute
from idgraph.validate import validate
from idgraph.validate.addresses import check_addresses

BLOCK = 128
RUN = 1 << 18  # loop points up to which values are compared too, and every address
LISTED = 1 << 23  # loop points up to which the oracle holds the tables of a trial
REMEMBERED = 4096
_KNOWN: OrderedDict[tuple[str, ...], Answer] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Question:
    """A small fusion with the operations that make ``a`` and ``b`` (names), which share ``buffer``.

    ``shared`` are tensors that others need too, ``forms`` the digits of both accesses where they have such, ``rows``
    whether ``a`` must have ended a reduction first, ``shifts`` the (loop, distance) by which ``b`` runs ahead.
    """

    fusion: Fusion
    a: str
    b: str
    buffer: str
    shared: tuple[str, ...] = ()
    forms: tuple[Form | None, Form | None] = (None, None)
    rows: bool = False
    shifts: tuple[tuple[int, int], ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """The cache key: equal questions have one answer."""
        return str(self.fusion), self.a, self.b, self.buffer, *self.shared


@dataclass(frozen=True, slots=True)
class Answer:
    """The alignment, or the ways that were tried and why each failed."""

    alignment: Alignment | None
    tried: tuple[str, ...] = ()


def question(
    fusion: Fusion,
    a: TensorExpr,
    b: TensorExpr,
    buffer: Tensor,
    between: Sequence[TensorExpr],
    forms: tuple[Form | None, Form | None],
    shifts: tuple[tuple[int, int], ...] = (),
) -> Question:
    """The two operations and those ``between`` as a fusion of their own."""
    wanted = {a, b, *between}
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
    alone = {t for t in (a.output, b.output) if t not in _read(chosen)}
    needed = [t for t in inside if t in alone or t.name in shared]
    for t in sorted(needed, key=lambda t: t.name):
        made.output(made[t.name])
    return Question(
        made, a.output.name, b.output.name, buffer.name, shared, forms, buffer is a.output and a.is_reduction, shifts
    )


def _read(exprs: Sequence[TensorExpr]) -> set[Tensor]:
    return {t for e in exprs for t in e.inputs}


def answer(q: Question) -> Answer:
    """Try each way on a copy; earlier answers are remembered."""
    key = q.key
    known = _KNOWN.get(key)
    if known is None:
        known = _KNOWN[key] = _answer(q)
        if len(_KNOWN) > REMEMBERED:
            _KNOWN.popitem(last=False)
    return known


def _answer(q: Question) -> Answer:
    tried: list[str] = []
    for name, way in _ways(q):
        try:
            made = copy_fusion(q.fusion)
            before = len(emit(made, target="cuda").kernels)
            first = tuple(way(made, q))
            steps = first or _steps(made, q)
            after = emit(made, target="cuda").kernels if way is not _same_loops else emit(made, "python").kernels
        except IdGraphError as error:
            tried.append(f"{name}: {error.what}")
            continue
        joined = _together(after, q, _twins(made, q))
        if not joined and (way is not _same_loops or q.buffer == q.a):
            tried.append(f"{name}: they stay in kernels of their own")
            continue
        if q.buffer != q.a and not _same_place(made, q):
            tried.append(f"{name}: they touch other elements of {q.buffer} at the same point")
            continue
        points, wrong = _checked(made)
        if wrong:
            tried.append(f"{name}: {wrong}")
            continue
        return Answer(Alignment(steps, before, len(after), points, joined), tuple(tried))
    return Answer(None, tuple(tried))


def _checked(f: Fusion) -> tuple[int, str]:
    """The number of addresses checked, and the fault found."""
    points = [prod(int(d.extent) if d.extent.is_const else 64 for d in e.output.loop) for e in f.exprs]
    sizes = {name: _size(s.symbol_bounds) for name, s in f.symbols.items()}
    if sum(points) <= RUN:
        report = validate(f, target="numpy", symbols=sizes or None)
        return report.points, "" if report.ok else str(report.counterexample)
    if sum(points) > LISTED:
        IdModel(f).verify()
        return 0, ""
    found = check_addresses(f, symbols=sizes or None, exhaustive=False)
    return found.points, "" if found.ok else "an address is wrong"


def _size(bounds: tuple[object, object, int, int]) -> int:
    low, high, step, first = bounds
    n = max(first + step, first + step * 3)
    n = max(n, low) if isinstance(low, int) else n
    return min(n, high) if isinstance(high, int) else n


def _twins(made: Fusion, q: Question) -> set[str]:
    """``a`` and its copies."""
    names = {t.name for t in q.fusion.tensors}
    a = q.fusion[q.a].definition
    return {q.a} | {t.name for t in made.tensors if t.name not in names and _alike(a, t.definition, names)}


def _together(kernels: Sequence[Kernel], q: Question, twins: set[str]) -> bool:
    """Whether the kernel that makes ``b`` makes ``a`` too, or computes it, or the ``twins`` of it, for itself."""
    for k in kernels:
        made = {s.buffer.title for s in walk(k.body)
                if isinstance(s, (Store, VectorStore, VectorAdd, Accumulate)) and s.buffer is not None}  # fmt: skip
        read = {x.title for x in k.buffers} - made
        if q.b in made:
            if len(kernels) == 1:
                return True
            is_producer = q.buffer == q.a
            return not twins & read if is_producer else q.a in made
    return False


def _same_place(made: Fusion, q: Question) -> bool:
    """Whether an operation of each side reads one element of the buffer at each point of the loops."""
    m = IdModel(made)
    sides: list[set[tuple[str, ...]]] = []
    for root in (q.a, q.b):
        mine: set[tuple[str, ...]] = set()
        for e in _toward(made, root):
            loops = tuple(str(x.extent) for x in m.loops(e))
            for k in e.operands_of(made[q.buffer]):
                mine.add((*loops, *map(str, m.read(e, k).coordinates)))
        sides.append(mine)
    return bool(sides[0] & sides[1])


def _steps(made: Fusion, q: Question) -> tuple[Step, ...]:
    """The steps that were done, from the logs: private copies first, then the steps of each tensor in their order. A
    way that rewrote operations is the automatic schedule.
    """
    before = q.fusion
    names = {t.name for t in before.tensors}
    copies = [t for t in made.tensors if t.name not in names and t.definition is not None]
    out: list[Step] = []
    for t in copies:
        twin = next((u for u in before.tensors if _alike(u.definition, t.definition, names)), None)
        if twin is None or not t.uses:
            return (Step("", "auto"),)
        out.append(Step(twin.name, "recompute", (t.uses[0].output.name,), copy=t.name))
    out += [Step(t.name, "reset") for t in made.tensors if t.definition is not None and t.log and t not in copies]
    logged = sorted(((s.at, n, t, s) for n, t in enumerate(made.tensors) for s in t.log), key=lambda x: x[:2])
    out += [Step(t.name, s.name, s.args, named=tuple(s.kwargs.items())) for _, _, t, s in logged]
    return tuple(out)


def _alike(a: TensorExpr | None, b: TensorExpr | None, names: set[str]) -> bool:
    if a is None or b is None:
        return False
    return (
        a.op == b.op
        and a.attrs == b.attrs
        and [getattr(x, "name", x) for x in a.args] == [getattr(x, "name", x) for x in b.args]
    )


# ways -----------------------------------------------------------------------------------------------------------------

Way = Callable[[Fusion, Question], Sequence[Step]]


def _ways(q: Question) -> list[tuple[str, Way]]:
    gathers = [x for x in q.fusion.exprs if x.op in GATHERS and x.inputs[0].definition is not None]
    found: list[tuple[str, Way]] = []
    if q.buffer == q.a and q.fusion[q.a].definition is not None and q.rows and not gathers:
        found.append(("rows of one kernel", _auto))
    if q.buffer == q.a:
        found.append(("the producer follows its reader's loops", _follow))
        if q.shared:
            found.append(("a private copy follows its reader's loops", _private))
    else:
        found.append(("one flat loop in one order", _flat))
        found += [(f"the loop carries a shift of {n}", partial(_shifted, k, n)) for k, n in q.shifts]
        found.append(("the same loops in the same order", _same_loops))
    if not gathers and not q.rows:
        found.append(("the automatic schedule of both", _auto))
    for way in ("recompute", "predicate", "one-hot") if gathers else ():
        found.append((f"the gather by {way}", partial(_gather, way)))
    return found


def _follow(f: Fusion, q: Question) -> Sequence[Step]:
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


def _private(f: Fusion, q: Question) -> Sequence[Step]:
    """Each operation on the way from ``a`` to ``b`` gets copies of what others read too."""
    for name in (*q.shared, q.a):
        t = f[name]
        for use in list(t.uses):
            if t.definition is not None and use in _toward(f, q.b):
                recompute(t, use, name=f"{name}_for_{use.output.name}")
    return _follow(f, q)


def _toward(f: Fusion, root: str) -> set[TensorExpr]:
    """The operations that a tensor is computed by."""
    found: set[TensorExpr] = set()
    work = [f[root].definition]
    while work:
        e = work.pop()
        if e is not None and e not in found:
            found.add(e)
            work += [t.definition for t in e.inputs]
    return found


def _auto(f: Fusion, _: Question) -> Sequence[Step]:
    auto(f)
    return ()


def _gather(way: str, f: Fusion, _: Question) -> Sequence[Step]:
    names = [e.output.name for e in f.exprs if e.op in GATHERS and e.inputs[0].definition is not None]
    auto(f, gathers=dict.fromkeys(names, way))  # type: ignore[arg-type]
    return (Step("", "auto", tuple((name, way) for name in names)),)


def _flat(f: Fusion, q: Question) -> Sequence[Step]:
    """Both loop over the elements in the order of ``b``, as one loop cut into blocks and threads."""
    a, b = f[q.a], f[q.b]
    fa, fb = q.forms
    if fa is not None and fb is not None and not fa.merged and not fb.merged:
        _widen(a, b, fa, fb)
        if [x.stride for x in fa.digits] != [x.stride for x in fb.digits] and not _reversed(a, fa, fb):
            _reorder(a, fa, fb)
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


def _same_loops(f: Fusion, q: Question) -> Sequence[Step]:
    """Loops of both cut where either jumps, in the order of ``b``; reduced ones stay what they are."""
    a, b = f[q.a], f[q.b]
    fa, fb = q.forms
    if fa is None or fb is None or fa.merged or fb.merged:
        raise IdGraphError("an access goes through the buffer in no regular steps", hint="another way")
    for t in (a, b):  # as the forms count loops: kept ones, then reduced ones
        t.reorder({n: k for k, n in enumerate(sorted(range(len(t.loop)), key=lambda n: t.loop[n].kind == "reduction"))})
    _widen(a, b, fa, fb)
    if not _reversed(a, fa, fb):
        units = {d.stride for d in (*fa.digits, *fb.digits)}
        mine, theirs = _cut(a, fa, units), _cut(b, fb, units)
        rank = {n: next((k for k, x in enumerate(theirs) if x == d), len(theirs)) for n, d in enumerate(mine)}
        a.reorder({n: k for k, n in enumerate(sorted(rank, key=lambda n: (rank[n], n)))})
    inside = [t for t in f.tensors if t.definition is not None and t.uses and t not in f.outputs]
    if inside:
        for root in (a, b):
            like(f, root)
        inline_most(f, inside)
    return ()


def _shifted(loop: int, by: int, f: Fusion, q: Question) -> Sequence[Step]:
    """The loop of ``a`` begins where ``b`` does, and wraps around."""
    f[q.a].roll(loop, by)
    return _flat(f, q)


def _widen(a: Tensor, b: Tensor, fa: Form, fb: Form) -> None:
    """Loops of both over all coordinates that either touches, where each loop runs along one axis."""
    if len(fa.loops) != len(fb.loops) or any(len(x) > 1 for x in (*fa.loops, *fb.loops)):
        return
    plan: list[tuple[int, int, int, int]] = []
    for n, (x, y) in enumerate(zip(fa.loops, fb.loops)):
        if not x or not y:
            if [d.extent for d in x] != [d.extent for d in y]:
                return
            continue
        if x[0].stride != y[0].stride or sum(map(abs, x[0].stride)) != 1 or min(x[0].stride) < 0:
            return
        axis = x[0].stride.index(1)
        low, high = fa.first[axis], fa.first[axis] + x[0].extent
        other, end = fb.first[axis], fb.first[axis] + y[0].extent
        start, stop = min(low, other), max(high, end)
        plan.append((n, low - start, stop - high, n))
        plan.append((n, other - start, stop - end, -1))
    for n, left, right, whose in plan:
        if left or right:
            (b if whose < 0 else a).resize(n, left, right)


def _reversed(a: Tensor, fa: Form, fb: Form) -> bool:
    """Loops of ``a`` that run in the opposite direction to those of ``b`` are reversed."""
    back = [[tuple(-s for s in d.stride) for d in loop] for loop in fa.loops]
    same = [[d.stride for d in loop] for loop in fa.loops]
    theirs = [[d.stride for d in loop] for loop in fb.loops]
    if len(same) != len(theirs) or any(len(x) > 1 or y not in (x, z) for x, y, z in zip(same, theirs, back)):
        return False
    for k, loop in enumerate(fa.loops):
        if loop and theirs[k] != same[k]:
            a.stride(k, loop[0].extent - 1, -1, loop[0].extent)
    return True


def _reorder(a: Tensor, fa: Form, fb: Form) -> None:
    """Loops of ``a`` cut into digits and put into the order in which ``b`` has them."""
    units = {d.stride for d in (*fa.digits, *fb.digits)}
    mine = _cut(a, fa, units)
    theirs = [x for d in fb.digits for x in refined(d, units)]
    rank = {n: next((k for k, x in enumerate(theirs) if x == d), len(theirs)) for n, d in enumerate(mine)}
    order = sorted(rank, key=lambda n: (rank[n], n))
    a.reorder({n: k for k, n in enumerate(order)})


def _cut(t: Tensor, form: Form, units: Collection[tuple[int, ...]]) -> list[Digit]:
    """Loops of ``t`` split into digits, and the digits of each loop."""
    found: list[Digit] = []
    at = 0
    for loop in form.loops:
        parts = [x for d in loop for x in refined(d, units)] or [Digit(1, ())]
        for k in range(1, len(parts)):
            t.split(at + k - 1, prod(x.extent for x in parts[k:]))
        found += parts
        at += len(parts)
    return found
