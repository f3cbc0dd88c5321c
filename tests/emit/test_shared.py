"""Kernels that differ in the names of their variables only are compiled once; constants of another type differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import idgraph as ig


def layers(*factors: float) -> ig.Fusion:
    f = ig.Fusion("layers")
    t = f.input("x", shape=(4, 6))
    for factor in factors:
        t = t * factor + 1.0
    f.output(t)
    return f


def test_equal_layers_share_a_kernel() -> None:
    program = ig.emit(layers(2.0, 2.0, 3.0), target="cpu")
    kernels: Any = program.functions(True)
    made = [k.entry({}) for k in kernels.values()]
    assert [made.index(k) for k in made] == [0, 1, 0, 1, 4, 1]


def test_values_are_those_of_each() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for factors in ((2.0, 2.0, 3.0), (-0.0, 1.0), (0.0, 1.0)):
        f = layers(*factors)
        found = ig.emit(f, target="cpu").run({"x": x})[f.outputs[0].name]
        wanted = ig.emit(f, target="numpy").run({"x": x})[f.outputs[0].name]
        assert np.array_equal(found, wanted)


def test_a_failed_check_names_its_own_tensors() -> None:
    f = ig.Fusion("rows")
    table, first, second = (
        f.input("table", shape=(3, 2)),
        f.input("first", (2,), "int64"),
        f.input("second", (2,), "int64"),
    )
    f.output(ig.embedding(first, table) + ig.embedding(second, table))
    program, good, bad = ig.emit(f, target="cpu"), np.array([0, 2]), np.array([1, 7])
    x = np.ones((3, 2), np.float32)
    for name in ("first", "second"):
        given = {"table": x, "first": good, "second": good} | {name: bad}
        with pytest.raises(ig.IndexingError, match=f"index 7 loaded from {name}"):
            program.run(given, checked=True)
