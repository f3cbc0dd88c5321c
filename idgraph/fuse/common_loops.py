"""Schedule steps that put two operations into one kernel, as data that can be taken on the user's fusion.

Loops that two operations have in common: cut where either jumps, in one order, over all that either touches.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from idgraph.errors import IdGraphError, ParseError, ScheduleError, arguments
from idgraph.fuse.access_relation import StridedForm, StridedLoop, split_loop
from idgraph.ir import Fusion, Tensor
from idgraph.ir.axis_read import Attr
from idgraph.ir.clone import rewriting
from idgraph.ir.loop_transforms import reset
from idgraph.ir.op_table import apply as build
from idgraph.ir.parser import replay_step
from idgraph.runtime.program import emit
from idgraph.schedule import auto
from idgraph.schedule.inlining import scan_loops


@dataclass(frozen=True, slots=True)
class AlignmentStep:
    """One schedule step: ``name`` of a `Tensor` method with its arguments, or "recompute" of ``tensor`` for a reader.

    >>> str(AlignmentStep("t3", "split", (0, 8)))
    't3.split(0, 8)'
    """

    tensor: str
    name: str
    args: tuple[Attr, ...] = ()
    copy: str = ""  # the name of a private copy
    named: tuple[tuple[str, Attr], ...] = ()  # arguments by name

    def __str__(self) -> str:
        named = (f"{k}={v!r}" for k, v in self.named)
        given = ", ".join([*(repr(a) if isinstance(a, str) else str(a) for a in self.args), *named])
        if self.name == "recompute":
            return f"ig.schedule.recompute({self.tensor}, {self.args[0]}.definition, name={self.copy!r})"
        if self.name == "auto":
            return "ig.schedule.auto(f" + (f", gathers={dict(self.args)}" if self.args else "") + ")"  # type: ignore[arg-type]
        if self.name == "reset":
            return f"{self.tensor}: loops as its axes are"
        return f"{self.tensor}.{self.name}({given})"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class Alignment:
    """``steps`` after which both operations access the same element of the buffer in the same iteration of the same
    loops.

    They were taken on a copy whose kernels were emitted and validated: ``kernels_before`` and ``kernels_after`` are
    those of the two operations and what lies between, ``points`` the addresses that were checked (0 where the sizes are
    too large for the oracle's tables: then the index graph is proved free of conflicts and races, no more).
    ``one_kernel`` says whether the emitted CUDA program then has both in one kernel; sums beside each other have one
    each so far. ``once``: the producer's loops stand in front of its reader's others, so each element is computed once,
    whatever `Obstacle.recompute_factor` says.
    """

    steps: tuple[AlignmentStep, ...]
    kernels_before: int
    kernels_after: int
    points: int
    one_kernel: bool = True
    once: bool = False

    @arguments(ScheduleError, keep=rewriting)
    def apply(self, fusion: Fusion) -> None:
        """Take the steps on ``fusion``, whose tensors have the names they had; earlier schedules of those tensors are
        dropped. A private copy gets another name where its own is taken. Raises `ScheduleError` where a step is not
        legal there, or `emit` would refuse what they make, and leaves the fusion as it was.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> x = ig.exp(f.input("x", shape=(32, 64)))
        >>> y = f.output(ig.transpose(x, 0, 1) * 2.0)
        >>> ig.fuse.explain(f, x, y).alignment.apply(f)
        >>> len(ig.emit(f, target="cuda").kernels)
        1
        """
        replay(fusion, self.steps)
        try:
            emit(fusion, target="cuda" if self.one_kernel else "python")
        except IdGraphError as error:
            raise ScheduleError(
                f"the steps cannot be taken on fusion {fusion.name}: it could not be emitted",
                because=(error.what, *error.because),
                hint="ask again: ig.fuse.explain(f, a, b) tries them on the fusion as it is",
            ) from None

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    __repr__ = __str__


def replay(fusion: Fusion, steps: Sequence[AlignmentStep]) -> None:
    """Take the steps."""
    by_name = {t.name: t for t in fusion.tensors}
    for step in steps:
        if step.name == "auto":
            auto(fusion, gathers=dict(step.args) or None)  # type: ignore[arg-type]
            continue
        t = by_name.get(step.tensor)
        if t is None:
            raise ScheduleError(
                f"{step}: fusion {fusion.name} has no tensor {step.tensor!r}",
                hint="apply the alignment to the fusion that was asked about, or to a copy of it",
            )
        if step.name == "recompute":
            by_name[step.copy] = _copy(fusion, t, by_name[str(step.args[0])], step.copy)
        elif step.name == "reset":
            reset(t)
        else:
            try:
                replay_step(t, step.name, step.args, dict(step.named))
            except ParseError as error:
                why = f"{step}: {error.what}"
                raise ScheduleError(why, where=t.source_line, hint="as when it was asked") from None


def _copy(fusion: Fusion, t: Tensor, reader: Tensor, name: str) -> Tensor:
    e, use = t.definition, reader.definition
    if e is None or use is None or t not in use.inputs:
        raise ScheduleError(f"{reader.name} does not read {t.name}", where=t.source_line, hint="as when it was asked")
    taken = any(t.name == name for t in fusion.tensors)
    with fusion.at_line(e.source_line):
        made = build(fusion, e.op, e.args, e.attrs, None if taken else name)
    fusion.replace_operand(use, t, made, None)
    return made


def common_loops(a: Tensor, b: Tensor, fa: StridedForm, fb: StridedForm) -> int:
    """Give both the loops in which they go through the buffer, in one order, those that go over one element behind.

    ``fa`` and ``fb`` are the digits of their accesses, loop by loop. Returns the number of leading loops that both have
    and neither reduces or scans.

    >>> from idgraph.fuse.access_relation import StridedLoop
    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, y = f.input("x", shape=(1, 8)), f.input("y", shape=(4, 8))
    >>> t, u = ig.exp(x), x * y
    >>> _ = f.output(t, u)
    >>> rows, columns = StridedLoop(4, (0, 0)), StridedLoop(8, (0, 1))
    >>> common_loops(t, u, StridedForm((0, 0), ((), (columns,))), StridedForm((0, 0), ((rows,), (columns,))))
    1
    >>> [str(d.extent) for d in u.loop]
    ['8', '4']
    """
    for t in (a, b):  # as the forms count loops: kept ones, then reduced ones
        _reorder_loops(t, sorted(range(len(t.loop)), key=lambda n: t.loop[n].kind == "reduction"))
    units = {d.stride for d in (*fa.digits, *fb.digits)}
    fa, fb = reverse_loops(a, b, fa, fb) or (fa, fb)
    mine, theirs = _split_loops(a, fa, units), _split_loops(b, fb, units)
    offsets = {
        axis: later for axis, later in enumerate(_offsets(fa, fb))
        if not _completed(a, b, mine, theirs, axis, -later) and not _completed(b, a, theirs, mine, axis, later)
    }  # fmt: skip
    _widen_digits(a, b, mine, theirs, offsets)
    reduced = {d.stride for t, digits in ((a, mine), (b, theirs)) for k, d in enumerate(digits)
               if d.moves and _waits(t, k)}  # fmt: skip
    order = [d.stride for d in theirs if d.moves]
    order = [x for x in dict.fromkeys(order) if x not in reduced] + [x for x in dict.fromkeys(order) if x in reduced]
    for t, digits in ((a, mine), (b, theirs)):
        places = [order.index(d.stride) if d.moves and d.stride in order else len(order) for d in digits]
        ranked = sorted(range(len(digits)), key=lambda n: (places[n], n))
        _reorder_loops(t, ranked)
        digits[:] = [digits[n] for n in ranked]
    count = 0
    for k, (x, y) in enumerate(zip(mine, theirs)):
        if x.stride != y.stride or not x.moves or x.stride in reduced or str(a.loop[k].extent) != str(b.loop[k].extent):
            break
        count = k + 1
    return count


def _reorder_loops(t: Tensor, order: Sequence[int]) -> None:
    """The loops in this order, outermost first."""
    if list(order) != sorted(order):
        t.reorder({n: k for k, n in enumerate(order)})


def _offsets(fa: StridedForm, fb: StridedForm) -> tuple[int, ...]:
    """How much later ``b`` begins, axis by axis."""
    return tuple(y - x for x, y in zip(fa.first, fb.first, strict=True))


def _completed(
    t: Tensor, u: Tensor, own: list[StridedLoop], other: Sequence[StridedLoop], axis: int, later: int
) -> bool:
    """Give ``t``, which begins ``later`` elements behind ``u`` along an axis, a loop for each step along it that only
    ``u`` takes: of one element, extended to all places at one of which ``t`` stands.

    True where that is done. It is not where neither or both lack a loop, where ``t`` would have to stand in several of
    those places, or where a step leads along another axis too.
    """
    mine, theirs = ([k for k, d in enumerate(x) if d.extent > 1 and d.moves and d.stride[axis]] for x in (own, other))
    if any(d.stride[axis] != sum(map(abs, d.stride)) for d in (*(own[k] for k in mine), *(other[n] for n in theirs))):
        return False
    place = {own[k].stride: k for k in mine}
    steps = sorted(theirs, key=lambda n: -other[n].stride[axis])
    lacking = [n for n in steps if other[n].stride not in place]
    room = next((k for k in reversed(range(len(own))) if t.loop[k].kind == "iteration"), None)
    if not lacking or room is None or any(own[k].stride not in {other[n].stride for n in theirs} for k in mine):
        return False
    at: dict[int, int] = {}
    for n in steps:
        at[n], later = divmod(later, other[n].stride[axis])
        size = 1 if n in lacking else own[place[other[n].stride]].extent
        if (n in lacking or n != steps[0]) and not 0 <= at[n] <= other[n].extent - size:
            return False
    if later:
        return False
    for n in steps:
        if n in lacking:
            continue
        k = place[other[n].stride]
        for x, p, (left, right) in zip((u, t), (n, k), _ends(other[n].extent, own[k].extent, at[n]), strict=True):
            if left or right:
                x.resize(p, left, right)
    for n in lacking:
        t.split(room, 1)
        t.resize(room + 1, at[n], other[n].extent - 1 - at[n])
        own.insert(room + 1, other[n])
    return True


def _widen_digits(
    a: Tensor, b: Tensor, mine: Sequence[StridedLoop], theirs: Sequence[StridedLoop], offsets: Mapping[int, int]
) -> None:
    """The loops along an axis that both sides go through by the same digits, but for the number of the largest steps:
    over all coordinates that either touches."""
    for axis, later in offsets.items():
        one, other = ([k for k, d in enumerate(x) if d.stride[axis : axis + 1] != (0,) and d.moves and d.extent > 1]
                      for x in (mine, theirs))  # fmt: skip
        one.sort(key=lambda k: -mine[k].stride[axis])
        other.sort(key=lambda n: -theirs[n].stride[axis])
        if not one or [mine[k].stride for k in one] != [theirs[n].stride for n in other]:
            continue
        if [mine[k].extent for k in one[1:]] != [theirs[n].extent for n in other[1:]]:
            continue
        k, n = one[0], other[0]
        x, y = mine[k], theirs[n]
        step = x.stride[axis]
        alone = all(sum(map(abs, mine[p].stride)) == mine[p].stride[axis] > 0 for p in one)
        if not alone or later % step:
            continue
        for t, at, (left, right) in zip((a, b), (k, n), _ends(x.extent, y.extent, later // step), strict=True):
            if left or right:
                t.resize(at, left, right)


def _ends(mine: int, theirs: int, later: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """How far two loops, the second of which begins ``later`` steps behind the first, are extended at both ends to run
    over all steps of either.

    >>> _ends(4, 4, 1)
    ((0, 1), (1, 0))
    """
    start, stop = min(0, later), max(mine, later + theirs)
    return (-start, stop - mine), (later - start, stop - later - theirs)


def widen(a: Tensor, b: Tensor, fa: StridedForm, fb: StridedForm) -> None:
    """Loops of both over all coordinates that either touches, where each loop runs along one axis, in steps of one
    size; nothing is done where one of them meets no step of the other."""
    if len(fa.loops) != len(fb.loops) or any(len(x) > 1 for x in (*fa.loops, *fb.loops)):
        return
    plan: list[tuple[int, tuple[tuple[int, int], tuple[int, int]]]] = []
    for n, (x, y) in enumerate(zip(fa.loops, fb.loops)):
        if not x or not y:
            if [d.extent for d in x] != [d.extent for d in y]:
                return
            continue
        along = [axis for axis, step in enumerate(x[0].stride) if step]
        if x[0].stride != y[0].stride or len(along) != 1 or x[0].stride[along[0]] < 0:
            return
        later, beside = divmod(fb.first[along[0]] - fa.first[along[0]], x[0].stride[along[0]])
        if beside:
            return
        plan.append((n, _ends(x[0].extent, y[0].extent, later)))
    for n, ends in plan:
        for t, (left, right) in zip((a, b), ends, strict=True):
            if left or right:
                t.resize(n, left, right)


def reverse_loops(a: Tensor, b: Tensor, fa: StridedForm, fb: StridedForm) -> tuple[StridedForm, StridedForm] | None:
    """Loops of ``a`` that run in the opposite direction to those of ``b`` are reversed, or those of ``b`` where ``a``
    scans along them. Returns the forms then; None where they differ in more than directions."""
    back = [[tuple(-s for s in d.stride) for d in loop] for loop in fa.loops]
    same = [[d.stride for d in loop] for loop in fa.loops]
    theirs = [[d.stride for d in loop] for loop in fb.loops]
    if len(same) != len(theirs) or any(len(x) > 1 or y not in (x, z) for x, y, z in zip(same, theirs, back)):
        return None
    against = [k for k, loop in enumerate(fa.loops) if loop and theirs[k] != same[k]]
    scanned = {*scan_loops(a)}
    t, form, like = (b, fb, fa) if any(a.loop[k] in scanned for k in against) else (a, fa, fb)
    for k in against:
        extent = form.loops[k][0].extent
        t.stride(k, extent - 1, -1, extent)
    return like, like


def _waits(t: Tensor, k: int) -> bool:
    """Whether a loop combines values: what follows waits until it has ended."""
    return t.loop[k].kind == "reduction" or t.loop[k] in scan_loops(t)


def rows_in_front(a: Tensor, b: Tensor, fa: StridedForm, fb: StridedForm) -> int:
    """Put the loops that ``a`` and ``b`` go through alike, each along axes that no other loop goes along, in front of
    all others; neither reduces or scans along them. Returns their number.

    >>> import idgraph as ig
    >>> from idgraph.fuse.access_relation import StridedLoop
    >>> f = ig.Fusion("f")
    >>> t = ig.cumsum(f.input("x", shape=(4, 8)), 0)
    >>> u = f.output(ig.flip(t, 0))
    >>> rows, up, down = ((StridedLoop(n, at),) for n, at in ((8, (0, 1)), (4, (1, 0)), (4, (-1, 0))))
    >>> rows_in_front(t, u, StridedForm((0, 0), (up, rows)), StridedForm((3, 0), (down, rows)))
    1
    >>> [str(d.extent) for d in t.loop]
    ['8', '4']
    """
    pairs = [
        (n, m) for m, y in enumerate(fb.loops) for n, x in enumerate(fa.loops)
        if x == y and len(x) == 1 and x[0].moves and not _waits(a, n) and not _waits(b, m) and _is_alone(fa, fb, n, m)
    ]  # fmt: skip
    for t, first in ((a, [n for n, _ in pairs]), (b, [m for _, m in pairs])):
        _reorder_loops(t, [*first, *(k for k in range(len(t.loop)) if k not in first)])
    return len(pairs)


def _is_alone(fa: StridedForm, fb: StridedForm, n: int, m: int) -> bool:
    """Whether no other loop goes along the axes of these two, which begin at one axis."""
    axes = [p for p, step in enumerate(fa.loops[n][0].stride) if step]
    others = [d for form, own in ((fa, n), (fb, m)) for k, loop in enumerate(form.loops) if k != own for d in loop]
    return all(fa.first[p] == fb.first[p] and not any(d.stride[p] for d in others) for p in axes)


def reorder(a: Tensor, fa: StridedForm, fb: StridedForm) -> None:
    """Loops of ``a`` cut into digits and put into the order in which ``b`` has them."""
    units = {d.stride for d in (*fa.digits, *fb.digits)}
    mine = _split_loops(a, fa, units)
    theirs = [x for d in fb.digits for x in split_loop(d, units)]
    rank = {n: next((k for k, x in enumerate(theirs) if x == d), len(theirs)) for n, d in enumerate(mine)}
    order = sorted(rank, key=lambda n: (rank[n], n))
    a.reorder({n: k for k, n in enumerate(order)})


def _split_loops(t: Tensor, form: StridedForm, units: Collection[tuple[int, ...]]) -> list[StridedLoop]:
    """Loops of ``t`` split into digits, and the digits of each loop."""
    found: list[StridedLoop] = []
    at = 0
    for loop in form.loops:
        parts = [x for d in loop for x in split_loop(d, units)] or [StridedLoop(1, ())]
        for k in range(1, len(parts)):
            t.split(at + k - 1, prod(x.extent for x in parts[k:]))
        found += parts
        at += len(parts)
    return found
