"""Rows of random widths, paddings, offsets and slices, of small elements: every element served once, values right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir import DType
from idgraph.kernel.ir import VectorLoad, walk
from idgraph.validate import check_addresses
from tests.emit.thread_runner import run_threads
from tests.property.budget import examples


def memory(
    draw: Callable[..., Any], f: ig.Fusion, name: str, shape: tuple[int, ...], dtype: DType
) -> tuple[ig.Tensor, Any]:
    """An input whose rows are padded and begin behind an offset, and the array of it."""
    strides = [0] * len(shape)
    step = 1
    for k in reversed(range(len(shape))):
        strides[k] = step
        step *= shape[k] + (draw(st.integers(0, 9)) if k else 0)
    offset = draw(st.sampled_from((0, 0, 1, 3, 8)))
    t = f.input(name, shape=shape, strides=tuple(strides), offset=offset, dtype=dtype)
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    room = np.zeros(offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1, kind)
    array = np.lib.stride_tricks.as_strided(room[offset:], shape, [kind.itemsize * s for s in strides])
    array[...] = np.random.default_rng(step).integers(-20, 20, shape)
    return t, array


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_rows_at_random_alignments(data: st.DataObject) -> None:
    """A slice of one input, another one, and a bias, each with memory of its own."""
    draw = data.draw
    dtype: DType = draw(st.sampled_from(("bfloat16", "float16", "int16", "int8", "uint8")))
    rows = draw(st.lists(st.integers(1, 5), min_size=1, max_size=2))
    columns = draw(st.one_of(st.integers(64, 300), st.sampled_from((128, 256, 1024))))
    start, more = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    f = ig.Fusion("f")
    arrays: dict[str, Any] = {}
    x, arrays["x"] = memory(draw, f, "x", (*rows, start + columns + more), dtype)
    t = x[(*(slice(None) for _ in rows), slice(start, start + columns))]
    if draw(st.booleans()):
        y, arrays["y"] = memory(draw, f, "y", (*rows, columns), dtype)
        t = t + y
    if draw(st.booleans()):
        b, arrays["b"] = memory(draw, f, "b", (columns,), dtype)
        t = t + b
    f.output(t + t)
    want = ig.emit(f, "numpy").run(arrays)
    ig.schedule.auto(f)
    p = ig.emit(f, "cuda")
    for k in p.kernels:
        k.verify()
    accesses = [s for k in p.kernels for s in walk(k.body) if isinstance(s, VectorLoad) and s.realigned]
    event(f"{min(len(accesses), 3)} realigned loads")
    assert check_addresses(f).ok
    found = run_threads(p, arrays, seed=1)
    assert all(np.array_equal(found[n], v) for n, v in want.items())
