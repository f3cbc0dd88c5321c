"""Inputs that a scatter may update in place: the memory is one, and where it is not, the result is a new array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import idgraph as ig

rng = np.random.default_rng(3)


def updated(also_read: bool) -> ig.Fusion:
    f = ig.Fusion("f")
    x, at, new = f.input("x", shape=(6, 8)), f.input("at", shape=(2,), dtype="int64"), f.input("new", shape=(2, 8))
    t = f.output(ig.index_put(x, [at], new * 2.0, in_place=True))
    f.output(ig.sum(t, dim=1))
    if also_read:
        f.output(x + 1.0)
    return f


@pytest.mark.parametrize("also_read", [False, True])
@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
def test_values_and_memory(target: Any, scheduled: bool, also_read: bool) -> None:
    f = updated(also_read)
    if scheduled:
        ig.schedule.auto(f)
    program = ig.emit(f, target=target)
    x, new, at = rng.random((6, 8), np.float32), rng.random((2, 8), np.float32), np.array([4, 1])
    wanted = x.copy()
    wanted[at] = 2 * new
    given = x.copy()
    found = [*program.run({"x": given, "at": at, "new": new}).values()]
    np.testing.assert_array_equal(found[0], wanted)
    np.testing.assert_allclose(found[1], wanted.sum(1), rtol=1e-6)
    if also_read:
        np.testing.assert_array_equal(found[2], x + 1)
        np.testing.assert_array_equal(given, x)
    elif target == "cpu":
        assert found[0] is given


def test_the_memory_is_one_and_no_kernel_copies() -> None:
    f = updated(False)
    model = ig.IdModel(f)
    e = next(e for e in f.exprs if e.op == "index_put")
    assert model.write(e).buffer.tensor is e.output
    texts = "\n".join(map(str, ig.emit(f, target="cuda").kernels))
    assert "starts as" not in texts and 'input "x"' not in texts
    assert "starts as" in "\n".join(map(str, ig.emit(updated(True), target="cuda").kernels))


@pytest.mark.parametrize("lying", ["columns", "misaligned"])
def test_an_array_that_lies_otherwise_has_the_new_values_too(lying: str) -> None:
    """Kernels write a copy of it, which goes back."""
    x, new, at = rng.random((6, 8), np.float32), rng.random((2, 8), np.float32), np.array([5, 0])
    given = np.asfortranarray(x) if lying == "columns" else np.frombuffer(bytearray(4 + x.nbytes), np.float32, 48, 4)
    given = given.reshape(6, 8)
    given[...] = x
    found = [*ig.emit(updated(False), target="cpu").run({"x": given, "at": at, "new": new}).values()]
    x[at] = 2 * new
    np.testing.assert_array_equal(given, x)
    np.testing.assert_array_equal(found[0], x)
