"""Random schedules: steps on the loops of a fusion's tensors, with loops of their own or shared by inlining.

Random fusions on blocks and threads, whose threads read what others wrote, with memory types for what is inlined.

Random fusions whose operations share launches: several chains, of which some read each other, and their outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hypothesis import strategies as st

from idgraph.errors import ScheduleError
from idgraph.ir import Fusion, Mapped, Resize, Tensor
from idgraph.ir import ops_index as indexed
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as rows
from idgraph.ir import ops_view as moves
from idgraph.ir.dtypes import DType, is_float
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


_THREADS: Final = ("threadIdx.x", "threadIdx.y")
_BLOCKS: Final = ("blockIdx.x", "blockIdx.y")
_DTYPES: Final = ("float32", "int32", "bfloat16", "int8")


def _draw_inner_operation(draw: Draw, x: Tensor) -> Tensor:
    """An operation along any axis but the first."""
    axis = draw(st.integers(1, x.ndim - 1))
    n = int(x.shape[axis])
    match draw(st.sampled_from(("flip", "pointwise", "roll", "permute", "slice", "pad", "sum", "cat", "reshape"))):
        case "flip":
            return moves.flip(x, axis)
        case "roll":
            return moves.roll(x, draw(st.integers(1, 3)), axis)
        case "permute" if x.ndim > 2:
            return moves.permute(x, (0, *draw(st.permutations(range(1, x.ndim)))))
        case "slice" if n > 1:
            start = draw(st.integers(0, n - 1))
            return moves.slice(x, axis, start, None, draw(st.integers(1, 2)))
        case "pad" if n < 5:
            return moves.pad(x, (draw(st.integers(0, 1)), draw(st.integers(0, 1))))
        case "sum" if n > 1:
            return rows.amax(x, axis, keepdim=True) + x if draw(st.booleans()) else rows.amax(x, axis, keepdim=True)
        case "cat" if n < 4:
            return moves.cat([x, moves.flip(x, axis)], axis)
        case "reshape" if x.ndim > 2:
            return moves.flatten(x, 1)
        case _:
            return x + 1


def _draw_parallel_types(draw: Draw, count: int, dims: tuple[str, ...]) -> list[str]:
    """How ``count`` loops run: each of ``dims`` once at most, serial any number of times."""
    order = draw(st.permutations(dims))
    return [order[p] if p < len(order) and draw(st.integers(0, 2)) else "serial" for p in range(count)]


def _inner(draw: Draw, t: Tensor, k: int) -> None:
    """Steps on the loops right of ``k``."""
    for _ in range(draw(st.integers(0, 2))):
        kept = [p for p in range(k, len(t.loop)) if t.loop[p].kind != "reduction"]
        if not kept:
            return
        p = draw(st.sampled_from(kept))
        match draw(st.sampled_from(("split", "merge", "swap", "outer"))):
            case "split" | "outer" if len(t.loop) < 6:
                t.split(p, draw(st.integers(1, 4)), inner=draw(st.booleans()))
            case "merge" if p + 1 in kept:
                t.merge(p)
            case "swap" if p + 1 in kept:
                t.reorder({p: p + 1})
            case _:
                pass


def _lay_out(draw: Draw, t: Tensor) -> None:
    """The array of an inlined tensor in an order of its own, padded or swizzled."""
    loops, count = t.loop, len(t.loop)
    if any(d.kind == "reduction" for d in loops):
        return
    match draw(st.sampled_from(("plain", "order", "pad", "swizzle"))):
        case "pad":
            t.resize(count - 1, draw(st.integers(0, 1)), draw(st.integers(0, 2)))
        case "swizzle" if count > 1:
            t.swizzle("cyclic", draw(st.integers(0, count - 2)), count - 1)
        case "order":
            pass
        case _:
            return
    t.set_allocation(draw(st.permutations(t.loop)))
    t.set_loop(loops)


@st.composite
def threaded_fusions(draw: Draw, *, max_steps: int = 4) -> Fusion:
    """A chain of operations that move elements along all axes but the first, inlined in the loops of the first.

    Right of these each tensor has loops, threads, a memory and a layout of its own, so that threads read what others
    wrote. Whether they may is known when a kernel is emitted, which refuses races: catch `ScheduleError` there and
    reject the example.

    >>> from hypothesis import find, settings
    >>> same = settings(derandomize=True, database=None)  # the same examples in every run
    >>> f = find(threaded_fusions(), lambda f: any(t.memory == "shared" for t in f.tensors), settings=same)
    >>> any(t.inline_position for t in f.tensors)
    True
    """
    f = Fusion("f")
    shape = (draw(st.integers(1, 5)), *(draw(st.integers(1, 5)) for _ in range(draw(st.integers(1, 2)))))
    x = f.input("x", shape, draw(st.sampled_from(_DTYPES)))
    for _ in range(draw(st.integers(2, max_steps + 1))):
        x = _draw_inner_operation(draw, x)
    f.output(x)
    factor = draw(st.sampled_from((0, 0, 2, 3)))
    k = 2 if factor else 1
    common = _draw_parallel_types(draw, k, (*_BLOCKS, *_THREADS))
    # Block loops inside the inline position of tensors are rarely legal together.
    free = tuple(w for w in (*_THREADS, *(_BLOCKS if not draw(st.integers(0, 9)) else ())) if w not in common)
    for t in reversed([t for t in f.tensors if t.definition is not None]):
        if factor:
            t.split(0, factor)
        _inner(draw, t, k)
        own = _draw_parallel_types(draw, len(t.loop) - k, free)
        for p, way in enumerate([*common, *own]):
            if way != "serial" and t.loop[p].kind != "reduction":
                t.parallelize(p, way)
        if not t.uses:
            continue
        t.inline(draw(st.sampled_from((k, k, k, k - 1))))
        if t.inline_position:
            t.set_memory(draw(st.sampled_from(("shared", "shared", "shared", "auto", "local", "global"))))
            try:
                _lay_out(draw, t)
            except ScheduleError:
                continue  # not every array allows the layout drawn
    return f


KINDS: Final = (
    "scan", "softmax", "sum", "norm", "pointwise", "binary", "gather", "select", "scatter", "move", "maximum",
)  # fmt: skip
"""Kinds of operations that `joined_launches` takes."""
_SCANS: Final = ("cumsum", "cummax", "cummin", "cumprod", "logcumsumexp")
_LAUNCH_DTYPES: Final[tuple[DType, ...]] = ("float32", "float32", "float16", "float64", "int64", "bfloat16", "int32")


def _axis(draw: Draw, t: Tensor) -> int:
    """The last axis more often than others: rows lie in memory that way."""
    return draw(st.sampled_from((t.ndim - 1, *range(t.ndim))))


def _draw_index(draw: Draw, t: Tensor, shape: list[int]) -> Tensor:
    return t.fusion.input(f"index{len(t.fusion.inputs)}", shape=shape, dtype=draw(st.sampled_from(("int64", "int32"))))


def _next(draw: Draw, kind: str, t: Tensor) -> Tensor:
    axis, floats = _axis(draw, t), is_float(t.dtype)
    sizes = [int(n) for n in t.shape]
    match kind:
        case "scan":
            op = draw(st.sampled_from(_SCANS[: 5 if floats else 3]))
            t = ops.tanh(t) if op == "cumprod" else t  # products stay small
            return getattr(rows, op)(t, axis)
        case "softmax" if floats:
            return rows.softmax(t, axis)
        case "norm" if floats:
            return t - rows.mean(t, axis, keepdim=True)
        case "sum" | "norm" | "softmax":
            return rows.sum(t, axis, keepdim=draw(st.booleans()), dtype=t.dtype)
        case "maximum":
            return t - rows.amax(t, axis, keepdim=True)
        case "binary":
            same = [u for u in t.fusion.tensors if u.dtype == t.dtype and u.shape == t.shape]
            return t + draw(st.sampled_from(same))
        case "gather":
            shape = [draw(st.integers(1, 6)) if p == axis else n for p, n in enumerate(sizes)]
            return rows.gather(t, axis, _draw_index(draw, t, shape))
        case "select":
            return rows.index_select(t, axis, _draw_index(draw, t, [draw(st.integers(1, 9))]))
        case "scatter":
            shape = [draw(st.integers(1, 5)) if p == axis else n for p, n in enumerate(sizes)]
            source = t.fusion.input(f"source{len(t.fusion.inputs)}", shape=shape, dtype=t.dtype)
            return indexed.scatter_add(t, axis, _draw_index(draw, t, shape), source)
        case "move" if t.ndim > 1:
            return (
                moves.permute(t, draw(st.permutations(range(t.ndim))))
                if draw(st.booleans())
                else moves.flip(t, (axis,))
            )
        case _:
            return draw(st.sampled_from((ops.neg, ops.abs)))(t)


@st.composite
def joined_launches(
    draw: Draw, *, max_steps: int = 25, max_columns: int = 160, dtypes: tuple[DType, ...] = _LAUNCH_DTYPES
) -> Fusion:
    """Fusions of 2 to ``max_steps`` operations, each on an input or on what one before made, all of whose results that
    nobody reads are outputs: scans, sums, norms, gathers and scatters that need nothing of each other share a launch.

    Inputs have 1 to 5 rows of up to ``max_columns`` elements; integer inputs called index are index tensors (see
    `idgraph.validate.random_inputs`). Shrinks to two operations on one input.

    >>> from hypothesis import find, settings
    >>> same = settings(derandomize=True, database=None)  # the same examples in every run
    >>> f = find(joined_launches(), lambda f: len(f.exprs) > 1, settings=same)
    >>> len(f.outputs) >= 1
    True
    """
    f = Fusion("joined")
    for n in range(draw(st.integers(1, 3))):
        shape = (draw(st.integers(1, 5)), draw(st.integers(1, max_columns)))
        f.input(f"x{n}", shape=shape, dtype=draw(st.sampled_from(dtypes)))
    for _ in range(draw(st.integers(2, max_steps))):
        sources = [t for t in f.tensors if t.ndim and not t.name.startswith(("index", "source"))]
        first = [t for t in sources if t.definition is None]
        t = draw(st.sampled_from(first if draw(st.booleans()) else sources))
        _next(draw, draw(st.sampled_from(KINDS)), t)
    f.output(*(t for t in f.tensors if not t.uses and t.definition is not None))
    f.verify()
    return f
