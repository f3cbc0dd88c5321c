"""What a user of another compiler's scheduler tries first: references beyond reshapes, merged broadcasts, padded tiles,
sizes that are terms, and views of what is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.arith import Expr
from idgraph.validate.oracle import evaluate
from idgraph.validate.value_check import random_inputs


def compare(f: ig.Fusion, inputs: Mapping[str, Any] | None = None) -> None:
    """The values of the schedule are the oracle's."""
    given = random_inputs(f, seed=1) if inputs is None else inputs
    expected = evaluate(f, given)
    for target in ("python", "numpy"):
        found = ig.emit(f, target).run(given)
        for t in f.outputs:
            np.testing.assert_allclose(found[t.name], expected[t.name], rtol=1e-4, atol=1e-5, err_msg=target)


def extents(t: ig.Tensor) -> list[int]:
    return [int(d.extent) for d in t.loop]


Schedule = Callable[[ig.Tensor], object]
BEHIND: list[tuple[tuple[int, ...], tuple[int, ...], Schedule, list[int]]] = [
    ((6, 8), (48,), lambda t: t.split(0, 8), [6, 8]),  # a divisible split behind a merge
    ((6, 8), (48,), lambda t: t.split(0, 16), [3, 16]),  # another factor: of the merged axes
    ((48,), (6, 8), lambda t: t.merge(0), [48]),  # a merge behind a split
    ((48,), (6, 8), lambda t: t.merge(0).split(0, 16), [3, 16]),
    ((4, 6, 2), (8, 6), lambda t: t.merge(0).split(0, 12), [4, 12]),
    ((4, 6), (4, 2, 3), lambda t: t.merge(1).merge(0), [24]),
    ((4, 6), (4, 2, 3), lambda t: t.merge(0), [8, 3]),  # crosses the border of the old axes
]
FRONT: list[tuple[tuple[int, ...], tuple[int, ...], Schedule, list[int]]] = [
    ((6, 8), (48,), lambda t: t.merge(0).split(0, 4), [12, 4]),
    ((48,), (6, 8), lambda t: t.split(0, 8), [6, 8]),
    ((48,), (6, 8), lambda t: t.split(0, 32), [2, 32]),  # does not divide: of the merged axes
    ((6, 8), (12, 4), lambda t: t.split(1, 4), [6, 2, 4]),
]
SIZES: list[tuple[Callable[[Expr], Expr], int, int]] = [
    (lambda n: n * 4, 12, 13), (lambda n: 6 * n, 18, 15), (lambda n: n + 1, 4, 0), (lambda n: n * 2 + 1, 7, 6),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "to", "schedule", "above"), BEHIND)
def test_a_reference_behind_a_reshape(
    shape: tuple[int, ...], to: tuple[int, ...], schedule: Schedule, above: list[int]
) -> None:
    f = ig.Fusion("f")
    y = ig.exp(f.input("x", shape=shape))
    z = f.output(ig.reshape(y, to) * 2.0)
    schedule(z)
    ig.schedule.like(f, z)
    assert extents(y) == above
    compare(f)
    ig.schedule.inline_most(f)
    compare(f)


@pytest.mark.parametrize(("shape", "to", "schedule", "below"), FRONT)
def test_a_reference_in_front_of_a_reshape(
    shape: tuple[int, ...], to: tuple[int, ...], schedule: Schedule, below: list[int]
) -> None:
    f = ig.Fusion("f")
    y = ig.exp(f.input("x", shape=shape))
    z = f.output(ig.reshape(y, to))
    schedule(y)
    ig.schedule.like(f, y)
    assert extents(z) == below
    compare(f)


@pytest.mark.parametrize("at", [0, 1])
def test_two_broadcasts_merged_with_each_other(at: int) -> None:
    f = ig.Fusion("f")
    x, y = f.input("x", shape=(5,)), f.input("y", shape=(5, 3, 4) if at else (3, 4, 5))
    b = ig.exp(ig.unsqueeze(ig.unsqueeze(x, at), at))
    z = f.output(b + y)
    z.merge(at)
    ig.schedule.like(f, z)
    assert extents(b) == ([5, 1] if at else [1, 5])
    ig.schedule.inline_most(f)
    compare(f)


def test_a_broadcast_merged_with_a_plain_axis() -> None:
    f = ig.Fusion("f")
    b = ig.exp(ig.unsqueeze(f.input("x", shape=(5,)), 1))
    z = f.output(b + f.input("y", shape=(5, 4)))
    z.merge(0).split(0, 4)
    ig.schedule.like(f, z)
    ig.schedule.inline_most(f)
    compare(f)


def test_a_producer_under_a_broadcast_loop_of_its_reader() -> None:
    f = ig.Fusion("f")
    b = ig.unsqueeze(ig.exp(f.input("x", shape=(5,))), 0)
    f.output(b * f.input("y", shape=(4, 5)))
    b.inline(2)
    compare(f)


def test_an_implicit_broadcast_scheduled_by_hand() -> None:
    f = ig.Fusion("f")
    s = ig.exp(f.input("x", shape=(1, 6)))
    z = f.output(s + f.input("y", shape=(4, 6)))
    z.merge(0).split(0, 8).parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    ig.schedule.like(f, z)
    s.inline(2)
    compare(f)
    assert len(ig.emit(f, "cuda").kernels) == 1


def test_a_shared_tensor_between_two_nests_of_a_block() -> None:
    f = ig.Fusion("f")
    s = ig.exp(f.input("x", shape=(64,))).set_memory("shared")
    for t in (s, f.output(s * 2.0), f.output(ig.flip(s, (0,)))):
        t.parallelize(0, "threadIdx.x")
    compare(f)
    p = ig.emit(f, "cuda")
    assert len(p.kernels) == 1 and "syncthreads" in p.source


def test_a_padded_shared_tile_is_as_asked() -> None:
    f = ig.Fusion("f")
    s = ig.copy(f.input("x", shape=(64, 64)))
    z = f.output(s.T)
    z.split(0, 32).split(2, 32).reorder({0: 1, 1: 2, 2: 0})
    ig.schedule.like(f, z)
    s.inline(2).set_memory("shared").set_allocation(s.loop, strides=[2 * 33 * 32, 33 * 32, 33, 1])
    for t, inner in ((s, "xy"), (z, "yx")):
        for p, name in enumerate(("blockIdx.y", "blockIdx.x", f"threadIdx.{inner[0]}", f"threadIdx.{inner[1]}")):
            t.parallelize(p, name)
    compare(f)
    text = str(ig.emit(f, "cuda").kernels[0].ir)
    assert "tile1: float32[1055] shared" in text and "tile1[i2*33 + i3] = " in text


def test_strides_that_overlap_are_refused() -> None:
    f = ig.Fusion("f")
    s = ig.exp(f.input("x", shape=(4, 6))).set_memory("shared")
    f.output(ig.flip(s, (0,)))
    with pytest.raises(ig.ScheduleError, match=r"stride 3 of .* is less than the 6 elements inside"):
        s.set_allocation(s.loop, strides=[3, 1])


def test_symbols_are_united_by_an_elementwise_operation() -> None:
    f = ig.Fusion("f")
    x, y, z = (f.input(n, shape=(f.symbol(s, min=2), 4)) for n, s in zip("xyz", "nmk", strict=True))
    f.output(x * y + z)
    assert ig.IdModel(f).extents.mapped(x.logical[0], z.logical[0])
    given = {n: np.random.default_rng(0).random((3, 4), np.float32) for n in "xyz"}
    compare(f, given)
    with pytest.raises(ig.EmitError, match="input z of shape"):
        ig.emit(f, "numpy").run({**given, "z": np.zeros((2, 4), np.float32)})


@pytest.mark.parametrize(("extent", "size", "wrong"), SIZES)
def test_sizes_are_bound_from_terms(extent: Callable[[Expr], Expr], size: int, wrong: int) -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(extent(f.symbol("n", min=1)),))
    f.output(x * 2.0)
    f.output(ig.cat([x[1:], x[:1]], dim=0) + ig.sum(x, 0))
    compare(f, {"x": np.random.default_rng(0).random(size, np.float32)})
    with pytest.raises(ig.EmitError):
        ig.emit(f, "numpy").run({"x": np.zeros(wrong, np.float32)})


def test_views_of_a_computed_result() -> None:
    f = ig.Fusion("f")
    s = f.output(ig.exp(f.input("x", shape=(4, 6))))
    views = [f.output(t) for t in (s.T, s[1:, 2:4], ig.reshape(s, (24,)), s.T[2:])]
    p, given = ig.emit(f, "cpu", views=True), random_inputs(f)
    found, expected = p.run(given), evaluate(f, given)
    assert len(p.kernels) == 1
    for t in views:
        assert np.shares_memory(found[t.name], found[s.name])
        np.testing.assert_allclose(found[t.name], expected[t.name], rtol=1e-5)


@pytest.mark.parametrize(("cuts", "kernels"), [((0, 2, 9), 0), ((0, 3, 5, 9), 0), ((0, 2, 8), 0), ((1, 5, 9), 0)])
def test_a_cat_of_adjacent_slices_is_a_view(cuts: tuple[int, ...], kernels: int) -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 9))
    pairs = list(pairwise(cuts))
    y = f.output(ig.cat([x[:, a:b] for a, b in pairs], dim=1))
    p, given = ig.emit(f, "cpu", views=True), random_inputs(f)
    found = p.run(given)[y.name]
    assert len(p.kernels) == kernels and np.shares_memory(found, given["x"])
    np.testing.assert_array_equal(found, given["x"][:, cuts[0] : cuts[-1]])


def test_no_view_against_a_demanded_layout() -> None:
    f = ig.Fusion("f")
    s = f.output(ig.exp(f.input("x", shape=(4, 6))))
    y = f.output(s.T)
    y.set_allocation(y.logical)
    given = random_inputs(f)
    found = ig.emit(f, "cpu", views=True).run(given)
    assert found[y.name].flags.c_contiguous and not np.shares_memory(found[y.name], found[s.name])
    np.testing.assert_allclose(found[y.name], np.exp(given["x"]).T, rtol=1e-5)
