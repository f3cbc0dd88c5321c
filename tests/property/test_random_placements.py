"""Random programs on random placements: what all devices together compute is what NumPy computes of the whole arrays,
and a step that is said to be local moves nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from tests.property.budget import examples

Array = npt.NDArray[Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]
MESHES = ({"x": 2}, {"x": 3}, {"x": 4}, {"x": 2, "y": 2}, {"x": 2, "y": 3})


@dataclass(frozen=True, slots=True)
class Step:
    """One operation on a tensor, and the same on its array."""

    name: str
    build: Callable[[ig.Tensor], ig.Tensor]
    compute: Callable[[Array], Array]


def steps_of(shape: tuple[int, ...], draw: Draw) -> Step:
    """An operation for a tensor of this shape."""
    axis: int = draw(st.integers(0, len(shape) - 1))
    n, kind = shape[axis], draw(st.integers(0, 11))
    order = tuple(draw(st.permutations(range(len(shape)))))
    shift, low = draw(st.integers(-3, 3)), draw(st.integers(0, n - 1))
    before = (slice(None),) * axis
    wide = [(1, 2) if k == axis else (0, 0) for k in range(len(shape))]
    torch_wide = [m for pair in reversed(wide) for m in pair]
    sizes = draw(st.sampled_from([s for s in ((int(np.prod(shape)),), shape[::-1], (shape[0], -1)) if s]))
    whole = tuple(int(np.prod(shape)) // shape[0] if s < 0 else s for s in sizes)
    reduces = len(shape) > 1
    match kind:
        case 0:
            return Step("relu", ig.relu, lambda a: np.maximum(a, 0))
        case 1:
            return Step("twice plus one", lambda t: t * 2.0 + 1.0, lambda a: a * 2 + 1)
        case 2:
            return Step("permute", lambda t: ig.permute(t, order), lambda a: a.transpose(order))
        case 3:
            return Step("reshape", lambda t: ig.reshape(t, whole), lambda a: a.reshape(whole))
        case 4:
            return Step("slice", lambda t: t[(*before, slice(low, n))], lambda a: a[(*before, slice(low, n))])
        case 5:
            return Step("pad", lambda t: ig.pad(t, torch_wide), lambda a: np.pad(a, wide))
        case 6:
            return Step("flip", lambda t: ig.flip(t, (axis,)), lambda a: np.flip(a, axis))
        case 7:
            return Step("roll", lambda t: ig.roll(t, shift, axis), lambda a: np.roll(a, shift, axis))
        case 8:
            return Step("cat", lambda t: ig.cat([t, t], dim=axis), lambda a: np.concatenate([a, a], axis))
        case 9 if reduces:
            return Step("sum", lambda t: ig.sum(t, axis), lambda a: a.sum(axis))
        case 10 if reduces:
            return Step("amax", lambda t: ig.amax(t, axis), lambda a: a.max(axis))
        case _:
            return Step("square", lambda t: t * t, lambda a: a * a)


def place(t: ig.Tensor, mesh: dict[str, int], draw: Draw) -> ig.Tensor:
    """A random placement, of shards alone."""
    t.replicate()
    for name in mesh:
        if draw(st.booleans()):
            t.shard(draw(st.integers(0, t.ndim - 1)), name, inner=draw(st.booleans()))
    return t


@settings(max_examples=examples(40))
@given(st.data())
def test_devices_compute_what_one_computes(data: st.DataObject) -> None:
    mesh = data.draw(st.sampled_from(MESHES))
    shape = data.draw(st.sampled_from([(6,), (5,), (4, 3), (2, 6), (3, 4, 2)]))
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(**mesh)
    t = place(f.input("x", shape=shape), mesh, data.draw)
    x = np.random.default_rng(0).integers(-8, 8, shape).astype(np.float32)  # sums of these are exact in any order
    want = x
    for _ in range(data.draw(st.integers(1, 3))):
        step = steps_of(tuple(int(n) for n in want.shape), data.draw)
        if want.size > 200:
            break
        t, want = step.build(t), step.compute(want)
        if data.draw(st.integers(0, 2)) == 0:
            place(t, mesh, data.draw)
    if t is f.inputs[0]:
        t = ig.copy(t)
    f.output(t)
    run = ig.shard.emit(f)
    np.testing.assert_array_equal(run.run({"x": x})[t.name], want)
    if all(ig.shard.explain(f, e).is_local for e in f.exprs):
        assert not any(len(s.source) for s in run.steps if isinstance(s, ig.shard.Exchange)), str(run)
