"""Views of inputs: the strides and the offset, against NumPy's own views."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import idgraph as ig

torch: Any = pytest.importorskip("torch")


def _moved(r: random.Random, a: Any, t: ig.Tensor) -> tuple[Any, ig.Tensor]:
    n = a.ndim
    k = r.randrange(n)
    match r.choice(("permute", "slice", "flip", "unsqueeze", "select", "reshape")):
        case "permute":
            order = r.sample(range(n), n)
            return a.transpose(order), ig.permute(t, *order)
        case "slice":
            index = (*[slice(None)] * k, slice(a.shape[k] // 3, None, r.choice((1, 2))))
            return a[index], t[index]
        case "flip":
            return np.flip(a, k), ig.flip(t, k)
        case "unsqueeze" if n < 5:
            return np.expand_dims(a, k), ig.unsqueeze(t, k)
        case "select" if n > 1:
            return a[(*[slice(None)] * k, a.shape[k] - 1)], ig.select(t, k, a.shape[k] - 1)
        case _ if k + 1 < n:
            shape = (*a.shape[:k], a.shape[k] * a.shape[k + 1], *a.shape[k + 2 :])
            return a.reshape(shape), ig.reshape(t, *shape)
        case _:
            return a, t


@pytest.mark.parametrize("seed", range(60))
def test_views_are_numpys(seed: int) -> None:
    r = random.Random(seed)
    f = ig.Fusion("f")
    shape = tuple(r.choice((2, 3, 4, 6)) for _ in range(r.randrange(1, 4)))
    base = np.arange(float(np.prod(shape)), dtype=np.float32).reshape(shape)
    a, t = base, f.input("x", shape=shape)
    for _ in range(r.randrange(1, 5)):
        a, t = _moved(r, a, t)
    found = ig.layout.alias(f, t)
    if np.shares_memory(a, base):
        assert isinstance(found, ig.layout.Alias), found
        assert found.offset == (a.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // 4
        assert [s for s, n in zip(found.strides, a.shape) if n != 1] == [
            s // 4 for s, n in zip(a.strides, a.shape) if n != 1
        ]
    else:
        assert isinstance(found, ig.layout.NoAlias) and not found and "copies" in str(found)


def test_what_makes_values_is_named() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 6), offset=5)
    t = f.output(ig.exp(x[1:]))
    found = ig.layout.alias(f, t)
    assert isinstance(found, ig.layout.NoAlias) and "exp" in found.because and "makes new values" in found.because
    assert ig.layout.alias(f, x[2]) == ig.layout.Alias(x, (1,), 17)
    with pytest.raises(ig.OperationError, match="not a tensor"):
        ig.layout.alias(ig.Fusion("g"), t)


def test_symbolic_shapes() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(f.symbol("n", min=4), 8))
    assert str(ig.layout.alias(f, x.T[2:])) == "a view of x: strides (1, 8), offset 2"


def test_expanded_axes_stand_still() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 1))
    assert ig.layout.alias(f, ig.expand(x, 2, 4, 3)) == ig.layout.Alias(x, (0, 1, 0), 0)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_views_take_no_kernel(kind: str) -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(6, 8), strides=(10, 1))
    a, b, c = x.T[2:5], ig.relu(x), ig.flip(x, 0)
    f.output(a, b, c)
    p = ig.emit(f, "cpu", views=True)
    assert set(p.views) == {a.name} and len(p.kernels) == 1  # the others share their loops
    whole = np.arange(60, dtype=np.float32).reshape(6, 10)
    given = whole[:, :8] if kind == "numpy" else torch.from_numpy(whole)[:, :8]
    found = p.run({"x": given})
    assert list(found) == [a.name, b.name, c.name]
    assert np.array_equal(found[a.name], whole[:, :8].T[2:5]) and np.array_equal(found[c.name], whole[::-1, :8])
    whole[0, 2] = -1.0
    assert found[a.name][0, 0] == -1.0  # the same memory


def test_views_alone_and_of_other_memory() -> None:
    f = ig.Fusion("f")
    t = f.output(ig.permute(f.input("x", shape=(2, 3)), 1, 0))
    p = ig.emit(f, "numpy", views=True)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert not p.kernels and np.shares_memory(p.run({"x": x})[t.name], x)
    with pytest.raises(ig.EmitError, match="strides"):
        p.run({"x": np.asfortranarray(x)})
    assert np.array_equal(ig.emit(f, "numpy").run({"x": np.asfortranarray(x)})[t.name], x.T)


def _parts(r: random.Random, a: Any, t: ig.Tensor, k: int) -> tuple[list[Any], list[ig.Tensor]]:
    """Slices along an axis, most of the time each beginning where the one before ends."""
    at, cuts = r.randrange(3), [0]
    while len(cuts) < 2 or (cuts[-1] < a.shape[k] and r.random() < 0.7):
        cuts.append(min(cuts[-1] + r.randrange(0, 4), a.shape[k]))
    found: list[tuple[Any, ig.Tensor]] = []
    for low, high in pairwise(cuts):
        low, high = (min(n + (at == 0 and len(found) == 1), a.shape[k]) for n in (low, high))
        index = (*[slice(None)] * k, slice(low, high))
        found.append((a[index], t[index]))
    if at == 1:
        r.shuffle(found)
    return [x for x, _ in found], [x for _, x in found]


@pytest.mark.parametrize("seed", range(80))
def test_joined_slices_are_views_where_they_lie_one_behind_the_other(seed: int) -> None:
    r = random.Random(seed)
    f = ig.Fusion("f")
    shape = tuple(r.randrange(1, 6) for _ in range(r.randrange(1, 4)))
    a = np.arange(float(np.prod(shape)), dtype=np.float32).reshape(shape)
    t = f.input("x", shape=shape)
    for _ in range(r.randrange(3)):
        a, t = _moved(r, a, t)
    k = r.randrange(a.ndim)
    parts, tensors = _parts(r, a, t, k)
    joined, u = np.concatenate(parts, k), ig.cat(tensors, k)
    if joined.size == 0 or not isinstance(ig.layout.alias(f, t), ig.layout.Alias):
        return
    found = ig.layout.alias(f, f.output(u))
    # The numbers are their own addresses: a view has them in arithmetic order along each axis, whatever the parts were.
    steps = [int(np.diff(joined, axis=n).flat[0]) if joined.shape[n] > 1 else 0 for n in range(joined.ndim)]
    places: Any = np.indices(joined.shape)
    flat = joined.flat[0] + sum(at * step for at, step in zip(places, steps, strict=True))
    if np.array_equal(flat, joined):
        assert isinstance(found, ig.layout.Alias), found
        assert found.offset == joined.flat[0]
        several = [p for p, n in enumerate(joined.shape) if n > 1]
        assert [found.strides[p] for p in several] == [steps[p] for p in several]
    else:
        assert isinstance(found, ig.layout.NoAlias), found


def test_pads_that_add_nothing_are_views() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(8, 4))
    whole, cut, grown = ig.pad(x, (0, 0)), ig.pad(x, (0, -1, -2, -1)), ig.pad(x, (-1, 1))
    a, b, c = (ig.layout.alias(f, f.output(t)) for t in (whole, cut, grown))
    assert isinstance(a, ig.layout.Alias) and (a.of, a.strides, a.offset) == (x, (4, 1), 0)
    assert isinstance(b, ig.layout.Alias) and (b.of, b.strides, b.offset) == (x, (4, 1), 8)
    assert isinstance(c, ig.layout.NoAlias) and "pad" in str(c)


def test_views_of_computed_results() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(8, 4))
    t = ig.exp(x)
    u = f.output(t[1:].T)
    found = ig.layout.alias(f, u)
    assert isinstance(found, ig.layout.Alias) and (found.of, found.strides, found.offset) == (t, (1, 4), 4)
    t.set_allocation([t.logical[1], t.logical[0]])
    found = ig.layout.alias(f, u)
    assert isinstance(found, ig.layout.Alias) and (found.of, found.strides, found.offset) == (t, (8, 1), 1)
    joined = ig.cat([ig.cat([x[:2], x[2:3]]), x[3:4], t[:3]])
    missing = ig.layout.alias(f, joined)
    assert isinstance(missing, ig.layout.NoAlias) and "cat" in str(missing)
    made = ig.cat([x[:2], x[4:5]])
    behind = ig.layout.alias(f, made.T)
    assert isinstance(behind, ig.layout.Alias) and behind.of is made and behind.strides == (1, 4)


def test_only_views_of_inputs_need_no_kernel() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(8, 4))
    t = ig.exp(x)
    f.output(t[1:], ig.cat([x[:2], x[2:]]))
    value = np.arange(32, dtype=np.float32).reshape(8, 4) / 32
    made, joined = ig.emit(f, "cpu", views=True).run({"x": value}).values()
    assert np.allclose(made, np.exp(value)[1:]) and np.shares_memory(joined, value) and np.array_equal(joined, value)


@pytest.mark.parametrize("target", ["numpy", "cpu"])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("turned", [False, True])
def test_views_of_computed_outputs_take_no_kernel(target: Any, kind: str, turned: bool) -> None:
    """A transpose, a part and a reshape of what is an output anyway; also where that lies by columns."""
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(8, 4)))
    a, b, c = t.T[1:], t[::3, 1:], ig.reshape(t, 32)
    f.output(a, t, b, c)
    if turned:
        t.set_allocation([t.logical[1], t.logical[0]])
    p = ig.emit(f, target, views=True)
    assert set(p.views) == {a.name, b.name} | (set() if turned else {c.name})
    value = np.arange(32, dtype=np.float32).reshape(8, 4) / 32
    found = p.run({"x": value if kind == "numpy" else torch.from_numpy(value)})
    assert list(found) == [a.name, t.name, b.name, c.name]
    want = np.exp(value)
    for name, x in ((a.name, want.T[1:]), (t.name, want), (b.name, want[::3, 1:]), (c.name, want.reshape(32))):
        np.testing.assert_allclose(np.asarray(found[name]), x, rtol=1e-6)
        if name in p.views:
            assert np.shares_memory(np.asarray(found[name]), np.asarray(found[t.name]))
