"""Random fusions on blocks and threads, whose threads read what others wrote, with memory types for what is inlined.

Random fusions whose operations share launches: several chains, of which some read each other, and their outputs.
"""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from idgraph.errors import ScheduleError
from idgraph.ir import Fusion, Tensor
from idgraph.ir import ops_index as indexed
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as rows
from idgraph.ir import ops_view as moves
from idgraph.ir.dtypes import DType, is_float

Draw = st.DrawFn

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
