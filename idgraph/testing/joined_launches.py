"""Random fusions whose operations share launches: several chains, of which some read each other, and their outputs."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from idgraph.ir import Fusion, Tensor
from idgraph.ir import ops_index as indexed
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as rows
from idgraph.ir import ops_view as moves
from idgraph.ir.dtypes import DType, is_float

Draw = st.DrawFn

KINDS: Final = (
    "scan",
    "softmax",
    "sum",
    "norm",
    "pointwise",
    "binary",
    "gather",
    "select",
    "scatter",
    "move",
    "maximum",
)
"""Kinds of operations that `joined_launches` takes."""
_SCANS: Final = ("cumsum", "cummax", "cummin", "cumprod", "logcumsumexp")
_DTYPES: Final[tuple[DType, ...]] = ("float32", "float32", "float16", "float64", "int64", "bfloat16", "int32")


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
    draw: Draw, *, max_steps: int = 25, max_columns: int = 160, dtypes: tuple[DType, ...] = _DTYPES
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
