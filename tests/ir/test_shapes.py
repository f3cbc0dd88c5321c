"""Shapes of every movement operation against NumPy, over random arguments."""

from collections.abc import Callable
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


@pytest.mark.parametrize(
    ("a", "b"), [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((5, 2, 3), (3,)), ((3,), (5, 3, 4)), ((1, 3), (3, 1))]
)
def test_matmul_takes_rows_and_columns(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    f = ig.Fusion("f")
    x, y = np.arange(np.prod(a), dtype=np.float32).reshape(a), np.arange(np.prod(b), dtype=np.float32).reshape(b)
    t = f.output(ig.matmul(f.input("a", shape=a), f.input("b", shape=b)))
    assert t.shape == np.matmul(x, y).shape
    assert np.array_equal(ig.emit(f, target="numpy").run({"a": x, "b": y})[t.name], np.matmul(x, y))


def test_an_axis_rolled_twice() -> None:
    f = ig.Fusion("f")
    t = f.output(ig.roll(f.input("x", shape=(3, 5)), (1, 1, 2), (1, 0, -1)))
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    want = np.roll(x, (3, 1), (1, 0))
    assert np.array_equal(ig.emit(f, target="numpy").run({"x": x})[t.name], want)


@pytest.mark.parametrize("reduce", [ig.sum, ig.mean, ig.amax, ig.amin])
def test_no_dim_named_reduces_all(reduce: Any) -> None:
    t = ig.Fusion("f").input("t", shape=(3, 5))
    assert reduce(t, ()).shape == () and reduce(t, [], keepdim=True).shape == (1, 1) and reduce(t, (0, -1)).shape == ()


def from_one(t: ig.Tensor) -> ig.Tensor:
    return 1.0 - t


@pytest.mark.parametrize("op", [ig.neg, ig.abs, ig.relu, ig.floor, from_one, ig.bitwise_not])
@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_types_without_meaning(op: Callable[[ig.Tensor], ig.Tensor], dtype: str) -> None:
    t = ig.Fusion("f").input("t", shape=(4,), dtype=dtype)
    if (op is ig.bitwise_not) == (dtype == "bool"):
        assert op(t).dtype == dtype
    else:
        with pytest.raises(ig.OperationError, match=dtype):
            op(t)
