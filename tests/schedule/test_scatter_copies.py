"""Additions of many entries to few elements: parts of the entries add to tables of their own, which are summed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import idgraph as ig
from idgraph.cost import devices, use_device
from idgraph.ir.device import Device
from idgraph.validate.oracle import evaluate

SLOW = replace(devices["H200"], line_atomics=1e5)  # an update of one line takes ten microseconds
KINDS = ("rows", "columns", "two axes", "two index axes", "number", "scatter_add", "one index of two")


def scatter(kind: str, entries: int, few: int, width: int) -> ig.Fusion:
    f = ig.Fusion("f")

    def index(name: str, *shape: int) -> ig.Tensor:
        return f.input(name, shape=shape, dtype="int64")

    x = f.input("x", shape=(few, width))
    match kind:
        case "rows":
            t = ig.index_put(x, [index("i", entries)], f.input("y", shape=(entries, width)), accumulate=True)
        case "columns":
            t = ig.index_put(x, [None, index("i", entries)], f.input("y", shape=(few, entries)), accumulate=True)
        case "two axes":
            pair: list[ig.Tensor | None] = [index("i", entries), index("j", entries)]
            t = ig.index_put(x, pair, f.input("y", shape=(entries,)), accumulate=True)
        case "two index axes":
            t = ig.index_put(x, [index("i", entries, 3)], f.input("y", shape=(3, width)), accumulate=True)
        case "one index of two":
            pair = [index("i", entries, 1), index("j", 1, 3)]
            t = ig.index_put(x, pair, f.input("y", shape=(entries, 3)), accumulate=True)
        case "number":
            t = ig.index_put(x, [index("i", entries)], 1.5, accumulate=True)
        case _:
            t = ig.scatter_add(x, 0, index("i", entries, width), f.input("y", shape=(entries, width)))
    f.output(t * 1.0)
    return f


@pytest.mark.parametrize("kind", KINDS)
@given(entries=st.sampled_from([1, 7, 16, 60]), few=st.integers(60, 70), width=st.integers(1, 9), data=st.data())
def test_the_sum_is_the_same(kind: str, entries: int, few: int, width: int, data: st.DataObject) -> None:
    f = scatter(kind, entries, few, width)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    inputs: dict[str, Any] = {}
    for t in f.inputs:
        shape, most = tuple(map(int, t.shape)), min(few, width) if t.name == "j" or kind == "columns" else few
        values = rng.integers(0, most, shape) if t.dtype == "int64" else rng.standard_normal(shape).astype(np.float32)
        inputs[t.name] = values
    (name,) = (t.name for t in f.outputs)
    want = np.asarray(evaluate(f, inputs)[name])
    with use_device(SLOW):
        (decision,) = ig.schedule.scatter_plan(f)
        ig.schedule.apply_scatter_plan(f, [replace(decision, chosen="copies")])
        ig.schedule.auto(f)
    assert any(e.op == "sum" for e in f.exprs)
    got = np.asarray(ig.emit(f, target="numpy").run(inputs)[name])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def chosen(kind: str, entries: int, few: int, width: int, device: Device) -> str:
    with use_device(device):
        return ig.schedule.scatter_plan(scatter(kind, entries, few, width))[0].chosen


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "columns"])  # of those a thread adds up a row each
def test_collisions_decide(kind: str) -> None:
    assert chosen(kind, 60, 64, 9, SLOW) == "copies"
    assert chosen(kind, 60, 64, 9, replace(SLOW, line_atomics=0.0)) == "atomic"  # updates wait for nothing


def test_entries_are_cut_once() -> None:
    f = scatter("rows", 60, 64, 9)
    ig.schedule.auto(f, device=SLOW)
    assert [d.chosen for d in f.decisions if d.kind == "scatter"] == ["copies"]
    with use_device(SLOW):
        assert "copies" not in [d.chosen for d in ig.schedule.scatter_plan(f)]
    given = {
        "x": np.zeros((64, 9), np.float32), "i": np.arange(60) % 3, "y": np.ones((60, 9), np.float32)
    }  # fmt: skip
    (name,) = (t.name for t in f.outputs)
    want = np.zeros((64, 9), np.float32)
    want[:3] = 20
    np.testing.assert_array_equal(np.asarray(ig.emit(f, target="cpu").run(given)[name]), want)


def test_a_table_of_relative_positions_has_copies_and_an_embedding_has_none() -> None:
    for name in ("A100", "H100", "H200"):
        assert chosen("rows", 1 << 20, 32, 8, devices[name]) == "copies"
        assert chosen("rows", 1 << 13, 32000, 2048, devices[name]) == "atomic"


def test_the_estimate_counts_updates_that_wait() -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(32, 8)), f.input("i", shape=(1 << 20,), dtype="int64")
    t = f.output(ig.index_put(x, [i], f.input("y", shape=(1 << 20, 8)), accumulate=True))
    ig.schedule.inline_most(f)
    t.parallelize(0, "blockIdx.x")
    cost = ig.cost(ig.emit(f, target="cuda"), device="H100")
    assert cost.total.time_us > 1e6 * (1 << 20) / 8 / devices["H100"].line_atomics  # eight lines of memory
