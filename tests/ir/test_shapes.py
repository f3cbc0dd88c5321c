"""Shapes of every movement operation against NumPy, over random arguments."""

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import idgraph as ig

extents = st.lists(st.integers(0, 6), min_size=1, max_size=3)
bound = st.one_of(st.none(), st.integers(-9, 9))


@given(extents, st.data())
def test_slices(shape: list[int], data: st.DataObject) -> None:
    step = st.one_of(st.none(), st.integers(-4, 4).filter(bool))
    index = tuple(slice(data.draw(bound), data.draw(bound), data.draw(step)) for _ in shape)
    t = ig.Fusion("f").input("t", shape=shape)
    assert t[index].shape == np.zeros(shape)[index].shape


@given(extents, st.data())
def test_mixed_index(shape: list[int], data: st.DataObject) -> None:
    items: list[object] = [
        data.draw(st.one_of(st.integers(-n, n - 1), st.just(slice(None)))) if n else slice(None) for n in shape
    ]
    for _ in range(data.draw(st.integers(0, 2))):
        items.insert(data.draw(st.integers(0, len(items))), None)
    t = ig.Fusion("f").input("t", shape=shape)
    assert t[tuple(items)].shape == np.zeros(shape)[cast(Any, tuple(items))].shape


@given(extents, st.data())
def test_reshape_maps_and_counts(shape: list[int], data: st.DataObject) -> None:
    size = int(np.prod(shape))
    target: list[int] = []
    rest = size
    while rest > 1 and len(target) < 4:
        part = data.draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
        target.append(part)
        rest //= part
    target.append(rest)
    t = ig.Fusion("f").input("t", shape=shape)
    assert ig.reshape(t, target).shape == tuple(target)


@pytest.mark.parametrize(
    ("a", "b"), [((3, 1), (4,)), ((1,), (5, 1)), ((2, 1, 3), (1, 4, 1)), ((), (2, 3)), ((0, 1), (1, 5))]
)
def test_broadcasting(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    f = ig.Fusion("f")
    assert (f.input("a", shape=a) + f.input("b", shape=b)).shape == np.broadcast_shapes(a, b)


@given(extents, st.integers(-7, 7), st.integers(-7, 7))
def test_pad(shape: list[int], left: int, right: int) -> None:
    t = ig.Fusion("f").input("t", shape=shape)
    n = shape[-1]
    if n + left < 0 or n + right < 0 or n + left + right < 0:
        with pytest.raises(ig.OperationError):
            ig.pad(t, (left, right))
    else:
        assert ig.pad(t, (left, right)).shape == (*shape[:-1], n + left + right)
