"""Pieces side by side, gathers through reshapes and scattered rows: the emitted CUDA text against the oracle.

Ends of pieces fall on vectors and between them, some pieces are read from memory and some computed, and indices are
loaded in front of axes that a reshape keeps, joins and cuts. Everything is scheduled by `auto`.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir import DType, is_float
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from idgraph.validate.value_check import compare, rounding_error
from tests.emit.cuda_interpreter import interpret
from tests.property.budget import examples

WIDTHS = st.sampled_from((1, 2, 3, 4, 7, 8, 12, 16, 24))
TYPES = st.sampled_from(("float32", "bfloat16", "float16", "int8", "int32"))


@st.composite
def pieces(draw: st.DrawFn) -> ig.Fusion:
    """Pieces of a row, some computed, some padded, transposed or summed over rows afterwards."""
    f, dtype = ig.Fusion("pieces"), draw(TYPES)
    rows, heads = draw(st.sampled_from(((4, 2), (3, 4), (8, 1))))
    parts: list[ig.Tensor] = []
    for n in range(draw(st.integers(2, 4))):
        width = draw(WIDTHS)
        x = f.input(f"x{n}", shape=(rows, heads, width), dtype=dtype)
        match draw(st.sampled_from(("raw", "computed", "padded", "cut"))):
            case "computed":
                x = x + x
            case "padded":
                x = ig.pad(x, (draw(st.integers(0, 9)), draw(st.integers(0, 8))), 0)
            case "cut" if width > 1:
                first = draw(st.integers(1, width - 1))
                x = ig.pad(x[..., :first] * 2, (0, width - first), 0) + ig.pad(x[..., first:], (first, 0), 0)
            case _:
                pass
        parts.append(x)
    t = ig.cat(parts, dim=2)
    t = ig.permute(t, (1, 0, 2)) if draw(st.booleans()) else t
    t = f.output(ig.reshape(t, (t.axes[0].extent, t.axes[1].extent * t.axes[2].extent)) if draw(st.booleans()) else t)
    if is_float(dtype) and draw(st.booleans()):
        f.output(ig.sum(t, 0))
    return f


def right(f: ig.Fusion, seed: int) -> None:
    """Scheduled, emitted, interpreted, and compared with the definition of the fusion as it was."""
    note(str(f))
    inputs = random_inputs(f, seed)
    want, exact = evaluate(f, inputs, {}), evaluate(f, inputs, {}, rounded=False)
    ig.schedule.auto(f)
    program = ig.emit(f, "cuda")
    got = interpret(program, inputs, seed)
    for t in f.outputs:
        slack = rounding_error(want[t.name], exact[t.name]) if is_float(t.dtype) else 0.0
        found = compare(t.name, t.dtype, got[t.name], want[t.name], slack)
        assert found.mismatch is None, str(found.mismatch)


@settings(max_examples=examples(40), deadline=None)
@given(pieces(), st.integers(0, 2**20))
def test_pieces_side_by_side(f: ig.Fusion, seed: int) -> None:
    right(f, seed)


@settings(max_examples=examples(40), deadline=None)
@given(st.sampled_from(((2, 3, 4, 6), (1, 3, 8, 2), (4, 1, 5, 8), (2, 2, 1, 12))),
       st.sampled_from(((), (1,), (2,), (3,), (2, 3))), st.integers(0, 3), st.integers(0, 2**20))  # fmt: skip
def test_gathers_through_reshapes(shape: tuple[int, ...], joined: tuple[int, ...], along: int, seed: int) -> None:
    """Some axes are one with the axis in front, and an index is loaded along one axis of the result."""
    made: list[int] = []
    for p, n in enumerate(shape):
        if p in joined:
            made[-1] *= n
        else:
            made.append(n)
    dim = along % len(made)
    f = ig.Fusion("gather")
    t = ig.reshape(f.input("x", shape=shape), tuple(made))
    at = f.input("at", shape=tuple(5 if p == dim else n for p, n in enumerate(made)), dtype="int64")
    f.output(ig.gather(t, dim, at))
    right(f, seed)


@settings(max_examples=examples(40), deadline=None)
@given(st.sampled_from((1, 2, 3, 4, 8, 12)), TYPES, st.booleans(), st.integers(0, 2**20))
def test_scattered_rows(width: int, dtype: DType, same: bool, seed: int) -> None:
    """Rows written at loaded places: entries of one place have the same values, or the last one wins."""
    f = ig.Fusion("put")
    x, at = f.input("x", shape=(9, width), dtype=dtype), f.input("at", shape=(7,), dtype="int64")
    rows = ig.index_select(f.input("v", shape=(9, width), dtype=dtype), 0, at)
    values = rows if same else f.input("w", shape=(7, width), dtype=dtype)
    f.output(ig.index_put(x, (at,), values))
    right(f, seed)


@pytest.mark.parametrize(("shape", "made", "dim"), [((3, 4), (1, 12), 0), ((3, 4), (12, 1), 1), ((2, 6), (2, 2, 3), 1)])
def test_an_index_behind_the_end_reads_nothing(shape: tuple[int, ...], made: tuple[int, ...], dim: int) -> None:
    """Also where the axis has one element, and the reshape's operand no axis for it."""
    f = ig.Fusion("gather")
    t = ig.reshape(f.input("x", shape=shape), made)
    entries = tuple(2 if p == dim else 1 for p in range(len(made)))
    picked = f.output(ig.gather(t, dim, f.input("at", shape=entries, dtype="int64")))
    ig.schedule.auto(f)
    program = ig.emit(f, "cuda")
    x = np.arange(1, 13, dtype=np.float32).reshape(shape)
    for index, want in ((0, 1.0), (made[dim] - 1, x.reshape(made).take(made[dim] - 1, dim).flat[0]), (made[dim], 0.0)):
        at = np.full(entries, index)
        assert interpret(program, {"x": x, "at": at}, 0)[picked.name].flat[0] == want
