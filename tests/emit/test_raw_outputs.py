"""Outputs whose memory no strides describe: the memory with its map when asked, and never a copy without a word."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.runtime.raw_output import RawOutput
from tests.property.budget import examples

Layout = Callable[[ig.Tensor], object]
Place = Callable[[tuple[int, int]], int]

# How 5 x 6 elements lie, and where element (i, j) is then, by hand.
LAYOUTS: dict[str, tuple[Layout, Place, int]] = {
    "blocks": (
        lambda t: t.split(0, 4).split(2, 4).reorder({1: 2, 2: 1}).set_allocation(t.loop),
        lambda p: ((p[0] // 4 * 2 + p[1] // 4) * 4 + p[0] % 4) * 4 + p[1] % 4,
        64,
    ),
    "padded rows": (lambda t: t.split(0, 4).set_allocation(t.loop), lambda p: p[0] * 6 + p[1], 48),
    "cyclic columns": (
        lambda t: t.split(1, 4).reorder({1: 2, 2: 1}).set_allocation(t.loop),
        lambda p: (p[0] * 4 + p[1] % 4) * 2 + p[1] // 4,
        40,
    ),
    "one row": (lambda t: t.merge(0).split(0, 8).set_allocation(t.loop), lambda p: p[0] * 6 + p[1], 32),
    "gaps": (lambda t: t.set_allocation(list(t.logical), strides=[8, 1]), lambda p: p[0] * 8 + p[1], 38),
    "columns first": (lambda t: t.set_allocation([t.logical[1], t.logical[0]]), lambda p: p[1] * 5 + p[0], 30),
}
GIVEN = np.arange(30, dtype=np.float32).reshape(5, 6)


def laid_out(how: Layout, dtype: Any = "float32") -> tuple[ig.Fusion, ig.Tensor]:
    f = ig.Fusion("f")
    y = f.output(ig.copy(f.input("x", shape=(5, 6), dtype=dtype)))
    how(y)
    return f, y


def by_hand(place: Place, size: int, hole: float) -> list[float]:
    memory = [hole] * size
    for i, j in product(range(5), range(6)):
        memory[place((i, j))] = float(6 * i + j)
    return memory


@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_memory_is_that_of_the_kernels(name: str, target: Any) -> None:
    how, place, size = LAYOUTS[name]
    f, y = laid_out(how)
    raw = ig.emit(f, target).run({"x": GIVEN}, raw=True, fill=-3)[y.name]
    assert isinstance(raw, RawOutput) and raw.shape == (5, 6) and raw.map.shape == (size,)
    assert raw.buffer.tolist() == by_hand(place, size, -3.0)
    assert [int(raw.map(i, j)[0]) for i, j in product(range(5), range(6))] == [
        place((i, j)) for i, j in product(range(5), range(6))
    ]
    assert set(raw.holes.tolist()) == set(range(size)) - {place((i, j)) for i, j in product(range(5), range(6))}
    assert (raw.dense() == GIVEN).all()


def test_tensors_come_back_as_tensors() -> None:
    torch = pytest.importorskip("torch")
    how, place, size = LAYOUTS["blocks"]
    for dtype in ("float32", "bfloat16", "int64", "uint8"):
        f, y = laid_out(how, dtype)
        x = torch.from_numpy(GIVEN).to(getattr(torch, dtype))
        for target in ("cpu", "numpy"):
            raw = ig.emit(f, target).run({"x": x}, raw=True, fill=1)[y.name]
            made = raw.buffer
            assert isinstance(made, torch.Tensor) and made.dtype == x.dtype and made.shape == (size,)
            assert (raw.dense() == x).all() and (made[torch.from_numpy(raw.holes)] == 1).all()
            assert made[place((4, 5))] == x[4, 5]


def test_without_raw_the_copy_is_said_once_and_can_be_refused() -> None:
    f, y = laid_out(LAYOUTS["blocks"][0])
    p = ig.emit(f, "cpu")
    with pytest.warns(UserWarning, match=f"output {y.name} is copied at each call.*raw=True"):
        assert (p.run({"x": GIVEN})[y.name] == GIVEN).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p.run({"x": GIVEN})
        p.run({"x": GIVEN}, raw=True)
    k = ig.compile(f, "cpu", layout="refuse")
    with pytest.raises(ig.IdGraphError, match=f"output {y.name} would be copied"):
        k(GIVEN)
    out = np.empty((5, 6), np.float32)
    assert k(GIVEN, out=out) is out and (out == GIVEN).all()
    assert k(GIVEN, raw=True, fill=0).buffer.sum() == GIVEN.sum()
    with pytest.raises(ig.IdGraphError, match="raw=True gives its memory"):
        k(GIVEN, raw=True, out=out)
    with pytest.warns(UserWarning, match="is copied at each call"):
        ig.compile(f, "cpu")(GIVEN)


def test_layouts_that_strides_say_are_not_copied() -> None:
    f, y = laid_out(LAYOUTS["gaps"][0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = ig.emit(f, "cpu").run({"x": GIVEN}, fill=7)[y.name]
    assert out.strides == (32, 4) and (out == GIVEN).all()
    assert np.lib.stride_tricks.as_strided(out, (38,), (4,))[6:8].tolist() == [7.0, 7.0]


@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
def test_sizes_that_only_a_call_knows(target: Any) -> None:
    f = ig.Fusion("f")
    n = f.symbol("n")
    x = f.input("x", shape=(n, 3))
    y = f.output(x * 1.0)
    y.split(0, 4).reorder({1: 2, 2: 1}).set_allocation(y.loop)
    p = ig.emit(f, target)
    for rows in (1, 4, 9, 5):
        given = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        raw = p.run({"x": given}, raw=True, fill=-1)[y.name]
        assert raw.buffer.shape == (-(-rows // 4) * 12,) and (raw.dense() == given).all()
        assert (raw.buffer[raw.holes] == -1).all() and len(raw.holes) == raw.buffer.size - given.size


def test_an_input_that_is_an_output() -> None:
    for target in ("cpu", "numpy"):
        f = ig.Fusion("f")
        x = f.input("x", shape=(2, 3), strides=(1, 2))
        f.output(x)
        given = np.arange(6, dtype=np.float32).reshape(3, 2).T
        raw = ig.emit(f, target).run({"x": given}, raw=True)["x"]
        assert raw.buffer.tolist() == list(range(6)) and (raw.dense() == given).all()
        assert not np.shares_memory(raw.buffer, given)


@pytest.mark.parametrize(
    ("dtype", "fill"), [("int8", 300), ("bool", 2), ("int32", 0.5), ("uint8", -1), ("int64", float("nan"))]
)
def test_a_fill_that_the_type_does_not_have(dtype: str, fill: float) -> None:
    f, _ = laid_out(LAYOUTS["blocks"][0], dtype)
    with pytest.raises(ig.IdGraphError, match=f"is no {dtype}"):
        ig.emit(f, "numpy").run({"x": GIVEN.astype(dtype)}, raw=True, fill=fill)


def test_views_have_no_memory_of_their_own() -> None:
    f = ig.Fusion("f")
    f.output(f.input("x", shape=(5, 6)).T)
    with pytest.raises(ig.IdGraphError, match="is a view: it has no memory"):
        ig.emit(f, "numpy", views=True).run({"x": GIVEN}, raw=True)


@settings(max_examples=examples(40))
@given(st.data())
def test_random_layouts(data: st.DataObject) -> None:
    """Whatever splits, merges and orders lay the memory out: each element has a place of its own, and lies there."""
    f = ig.Fusion("f")
    y = f.output(f.input("x", shape=(5, 6)) * 1.0)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(y.loop) - 1))
        what = data.draw(st.sampled_from(("split", "merge", "reorder")))
        if what == "split":
            y.split(at, data.draw(st.integers(1, 5)))
        elif what == "merge" and at + 1 < len(y.loop):
            y.merge(at)
        elif at:
            y.reorder({at: 0})
    y.set_allocation(y.loop)
    raw = ig.emit(f, "numpy").run({"x": GIVEN}, raw=True, fill=-1)[y.name]
    places = [int(raw.map(i, j)[0]) for i, j in product(range(5), range(6))]
    assert len(set(places)) == 30 and raw.buffer[places].tolist() == list(range(30))
    assert sorted({*range(raw.buffer.size)} - {*places}) == raw.holes.tolist()
    assert (raw.buffer[raw.holes] == -1).all()
