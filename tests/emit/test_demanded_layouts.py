"""Layouts that the user demands are obeyed: strides of shared and local memory, outputs that could be views."""

from __future__ import annotations

from itertools import product
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from tests.property.budget import examples


def tiled(
    shape: tuple[int, ...], at: int, gaps: tuple[int, ...], memory: Literal["shared", "local"]
) -> tuple[ig.Tensor, ig.Tensor, list[int]]:
    """``t``, inlined at ``at``, whose axes have a gap behind each; its reader, and the strides asked for."""
    f = ig.Fusion("tiled")
    t = ig.exp(f.input("x", shape=shape), name="t")
    y = f.output(t * 2.0)
    strides: list[int] = []
    inner = 1
    for n, gap in zip(reversed(shape), reversed(gaps), strict=True):
        strides.insert(0, inner)
        inner = inner * n + gap
    t.inline(at).set_memory(memory)
    t.set_allocation(list(t.logical), strides=strides)
    return t, y, strides


@settings(max_examples=examples(60))
@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=3).flatmap(
        lambda s: st.tuples(st.just(tuple(s)), st.integers(1, len(s) - 1), st.tuples(*[st.integers(0, 3)] * len(s)))
    ),
    st.sampled_from(("shared", "local")),
)
def test_strides_of_arrays_are_those_asked_for(
    case: tuple[tuple[int, ...], int, tuple[int, ...]], memory: Literal["shared", "local"]
) -> None:
    shape, at, gaps = case
    note(str(case))
    t, y, strides = tiled(shape, at, gaps, memory)
    m = ig.IdModel(t.fusion)
    assert t.definition is not None and y.definition is not None
    inside = [k for k in range(at, len(shape)) if shape[k] > 1]
    for a in (m.write(t.definition), m.access(y.definition, t)):
        if a.buffer.place == "register":
            assert not inside
            continue
        for point in product(*map(range, shape)):
            env = {v.name: p for v, p in zip(a.loops, point, strict=True)}
            assert a.address.evaluate(env) == sum(point[k] * strides[k] for k in inside)
        assert int(a.buffer.size) == 1 + sum((shape[k] - 1) * strides[k] for k in inside)
    assert ig.validate(t.fusion, target="python").ok


def test_a_padded_tile_has_no_conflicts() -> None:
    f = ig.Fusion("tile")
    t = ig.copy(f.input("a", shape=(4, 32, 32)), name="t")
    y = f.output(ig.transpose(t, 1, 2))
    for x in (t, y):
        x.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.y").parallelize(2, "threadIdx.x")
    t.inline(1).set_memory("shared")
    assert y.definition is not None
    assert ig.IdModel(f).access(y.definition, t).bank_conflicts().ways == 32
    t.set_allocation(strides=[1056, 33, 1])
    read = ig.IdModel(f).access(y.definition, t)
    assert str(read.address) in ("i1 + i2*33", "i2*33 + i1") and int(read.buffer.size) == 31 * 33 + 32
    assert read.bank_conflicts().ways == 1
    assert "shared.array(1055" in ig.emit(f, target="cuda").source
    assert ig.validate(f, target="numpy").ok


@pytest.mark.parametrize("turned", [False, True])
def test_a_view_does_not_override_a_demand(turned: bool) -> None:
    f = ig.Fusion("f")
    y = f.output(ig.reshape(f.input("x", shape=(2, 3, 4)), 2, 12))
    y.set_allocation([y.logical[1], y.logical[0]] if turned else list(y.logical))
    given = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    p = ig.emit(f, target="numpy", views=True)
    out = p.run({"x": given})[y.name]
    assert out.strides == ((4, 8) if turned else (48, 4)) and np.shares_memory(out, given) == (not turned)
    assert (out == given.reshape(2, 12)).all() and bool(p.kernels) == turned


def test_padded_rows_are_no_view() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 6))
    y = f.output(ig.transpose(x, 0, 1))
    y.set_allocation(list(y.logical), strides=[8, 1])
    given = np.arange(24, dtype=np.float32).reshape(4, 6)
    out = ig.emit(f, target="numpy", views=True).run({"x": given})[y.name]
    assert out.strides == (32, 4) and (out == given.T).all()
