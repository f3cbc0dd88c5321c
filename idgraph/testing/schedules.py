"""Random schedules: steps on the loops of a fusion's tensors, with loops of their own or shared by inlining."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hypothesis import strategies as st

from idgraph.ir import Fusion, Mapped, Resize, Tensor
from idgraph.ir.op_table import POINTWISE
from idgraph.schedule import inline_most, like
from idgraph.testing.fusions import fusions

Draw = st.DrawFn
Change = Callable[[Tensor], object]

_LOOPS: Final = 6  # loops of one tensor, at most


def _mergeable(t: Tensor) -> list[int]:
    kinds = [d.kind == "reduction" for d in t.loop]
    return [p for p in range(len(kinds) - 1) if kinds[p] == kinds[p + 1]]


def _change(draw: Draw, t: Tensor, others: Sequence[Tensor] = ()) -> Change:
    """One legal step for ``t`` now, as something that can be repeated on ``others``, which have like loops."""
    count = len(t.loop)
    mergeable = [p for p in _mergeable(t) if all(p in _mergeable(u) for u in others)]
    axis = draw(st.integers(0, count - 1))
    kinds = ["reorder", "parallelize"] + ["split"] * 3 * (count < _LOOPS) + ["merge"] * 2 * bool(mergeable)
    match draw(st.sampled_from(sorted(kinds, reverse=True))):
        case "split":
            factor, inner = draw(st.integers(1, 5)), draw(st.booleans())
            return lambda u: u.split(axis, factor, inner=not inner)
        case "merge":
            first = draw(st.sampled_from(mergeable))
            return lambda u: u.merge(first)
        case "parallelize":
            parallel = draw(st.sampled_from(("serial", "unroll")))
            return lambda u: u.parallelize(axis, parallel)
        case _:
            order = draw(st.permutations(range(count)))
            return lambda u: u.reorder(order)


def _own_change(draw: Draw, t: Tensor) -> None:
    """A step that only a tensor with loops of its own may take: wider or permuted loops."""
    count = len(t.loop)
    axis, other = draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))
    if (
        draw(st.booleans())
        or axis == other
        or (t.loop[axis].kind == "reduction") != (t.loop[other].kind == "reduction")
    ):
        t.resize(axis, draw(st.integers(0, 2)), draw(st.integers(0, 2)))
    else:
        t.swizzle("cyclic", axis, other)


def _grows(x: Resize) -> bool:
    """True where the resize adds elements: loops over its source would not reach all of the result."""
    return int(x.left) > 0 or int(x.right) > 0


def _start(draw: Draw, t: Tensor) -> None:
    """Leave ``t``, permute its allocation, or loop over its root axes instead of its logical ones."""
    match draw(st.sampled_from(("plain", "plain", "memory", "upstream"))):
        case "memory":
            t.set_allocation(draw(st.permutations(t.axes)))
        case "upstream" if t.domain.exprs and not any(isinstance(x, Resize) and _grows(x) for x in t.domain.exprs):
            t.set_loop(t.root)
        case _:
            return


def _free(draw: Draw, f: Fusion, max_steps: int) -> None:
    """Schedule every tensor by itself; nothing is inlined."""
    for e in f.exprs:
        for t in e.outputs:
            _start(draw, t)
            if not t.loop:
                continue
            for _ in range(draw(st.integers(0, max_steps))):
                if draw(st.integers(0, 4)) == 4:
                    _own_change(draw, t)
                else:
                    _change(draw, t)(t)


def _can_follow(t: Tensor, together: set[Tensor]) -> bool:
    """Whether ``t`` can have the loops of all its consumers, after a resize where its only one cuts or pads it."""
    if t.definition is None or t.log or not t.uses or not all(e.output in together for e in t.uses):
        return False
    if not all(len(e.output.logical) == len(t.loop) for e in t.uses):
        return False
    if all(e.op in POINTWISE for e in t.uses):
        return all(e.output.log == t.uses[0].output.log for e in t.uses)
    e = t.uses[0]
    alone = len(t.uses) == 1 and e.inputs.count(t) == 1 and t not in t.fusion.outputs
    return alone and e.op in ("cat", "pad", "slice") and all(isinstance(x, Resize) for x in e.output.domain.exprs)


def _follow(t: Tensor) -> None:
    """Resize ``t``'s loops to those of its consumers, where these cut, pad or join it, or were themselves resized."""
    e = t.uses[0]
    if e.op not in POINTWISE:
        operand = e.reads[e.inputs.index(t)]
        read = {r.domain: p for p, r in enumerate(operand) if isinstance(r, Mapped)}
        for x in e.output.domain.exprs:
            if isinstance(x, Resize) and x.source in read:
                _resize(t, read[x.source], int(x.left), int(x.right))
    for step in e.output.log:
        axis, left, right = (int(str(a)) for a in step.args)  # the log holds resizes only
        _resize(t, axis, left, right)


def _resize(t: Tensor, axis: int, left: int, right: int) -> None:
    """Resize an axis, unless that would cut more than its extent (of a broadcast axis that the consumer resolves)."""
    extent = int(t.loop[axis].extent)
    if min(extent + left, extent + right, extent + left + right) >= 0:
        t.resize(axis, left, right)


def _shared(draw: Draw, f: Fusion, max_steps: int) -> None:
    """The tensors that can take one tensor's loops take them; some are inlined."""
    made = [t for t in f.tensors if t.definition is not None]
    choices = [t for t in made if t.loop and any(_can_follow(u, {t}) for u in t.definition.inputs)]  # type: ignore[union-attr]
    if not choices:
        return
    reference = draw(st.sampled_from(list(reversed(choices))))
    together = {reference}
    for t in reversed(made):
        if _can_follow(t, together):
            together.add(t)
            _follow(t)
    ordered = [t for t in made if t in together]
    for _ in range(draw(st.integers(0, max_steps))):
        change = _change(draw, reference, ordered)
        for t in ordered:
            change(t)
    for t in reversed(ordered):
        if t is not reference:
            kept = next((p for p, d in enumerate(t.loop) if d.kind == "reduction"), len(t.loop))
            t.inline(draw(st.integers(0, kept)))


def _schedule_as_one(draw: Draw, f: Fusion, max_steps: int) -> None:
    """Every tensor scheduled as one of them, through reshapes, slices and reductions; then inlined, some less deep."""
    made = [t for t in f.tensors if t.definition is not None and t.loop]
    if not made:
        return
    reference = draw(st.sampled_from(list(reversed(made))))
    for _ in range(draw(st.integers(0, max_steps))):
        _change(draw, reference)(reference)
    like(f, reference)
    inline_most(f)
    for t in f.tensors:
        if t.inline_position and draw(st.integers(0, 3)) == 3:
            t.inline(draw(st.integers(0, t.inline_position)))


@st.composite
def schedules(draw: Draw, f: Fusion, *, max_steps: int = 4) -> Fusion:
    """``f`` itself, scheduled in place: splits, merges, reorders, resizes, swizzles, memory order, inlining.

    Either every tensor gets loops of its own (some wider than the tensor, some over the axes its producer sees), or one
    tensor is chosen and those of its producers that can have its loops get the same steps, and inline positions; or all
    tensors are scheduled like it and inlined as far as that is legal. Each step is legal by itself. Whether all inlined
    loops agree, and whether loops cover what is read, is known only when an `IdModel` verifies, which refuses some:
    catch `ScheduleError` there and reject the example. Shrinks to no step.

    >>> from hypothesis import find, settings
    >>> from idgraph.testing import fusions
    >>> same = settings(derandomize=True, database=None)  # the same examples in every run
    >>> f = find(fusions().flatmap(schedules), lambda f: any(t.log for t in f.tensors), settings=same)
    >>> sum(len(t.log) for t in f.tensors)
    1
    """
    match draw(st.integers(0, 4)):
        case 1 | 2:
            _shared(draw, f, max_steps)
        case 3 | 4:
            _schedule_as_one(draw, f, max_steps)
        case _:
            _free(draw, f, max_steps)
    return f


@st.composite
def scheduled_fusions(draw: Draw, *, max_inputs: int = 2, max_steps: int = 6, max_changes: int = 4) -> Fusion:
    """`fusions` with `schedules` applied.

    >>> from hypothesis import Phase, find, settings
    >>> same = settings(derandomize=True, database=None, phases=[Phase.generate])  # not shrunk
    >>> f = find(scheduled_fusions(), lambda f: any(t.inline_position for t in f.tensors), settings=same)
    >>> f.outputs != ()
    True
    """
    return draw(schedules(draw(fusions(max_inputs=max_inputs, max_steps=max_steps)), max_steps=max_changes))
