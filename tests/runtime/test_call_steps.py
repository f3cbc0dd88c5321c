"""The short way of calls: what it hands on to the long one, and where NumPy's arrays lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.runtime.array_backends import NUMPY
from idgraph.runtime.call_signature import FastCallTemplate, compile_fast_call
from tests.runtime.test_strange_arrays import A, T, doubling, freed

torch: Any = pytest.importorskip("torch")


def test_buffers_that_a_call_does_not_know_have_no_address() -> None:
    seen: list[tuple[int, ...]] = []
    steps = FastCallTemplate(((1, 2, 8, 8),), (0,), 4, (0, 0))

    def launch(addresses: tuple[int, ...], wait: bool) -> None:
        seen.append(addresses)

    def hand_on(values: Any, tell: Any, wait: bool) -> list[Any]:
        return []

    whole = compile_fast_call(steps, int, launch, hand_on, [lambda: 1 << 20])
    assert whole(("unread", 1 << 21), None, True) == [1 << 20, 1 << 20]
    assert seen == [(1 << 20, 0, (1 << 21) - 8, 0)]
    assert whole(("unread", (1 << 21) + 4), None, True) == whole(("unread", 80), None, True) == []


def test_a_call_after_a_good_one_looks_at_each_array() -> None:
    """Arrays of the same shape, type and strides, whose address the kernels cannot take."""
    k = doubling("cpu")
    for _ in range(2):
        assert torch.equal(k(T), T * 2)
    apart = torch.randn(T.numel() + 1)[1:].view(T.shape)
    with pytest.warns(UserWarning, match="it starts at an address that 16 bytes do not divide"):
        assert torch.equal(k(apart), apart * 2)
    with pytest.raises(ig.EmitError, match="input x has no memory of its own"):
        k(freed())
    with pytest.raises(ig.EmitError, match="input x has no memory of its own"):
        torch.vmap(k)(torch.stack([T, T]))
    assert torch.equal(k(T), T * 2)


def test_results_are_new_arrays_in_the_fusions_order() -> None:
    f = ig.Fusion("three")
    x = f.input("x", (4, 6))
    total = ig.sum(x, 1)
    f.output(x - 1.0, total)
    f.output(total * 2.0)
    k: Any = ig.compile(f)
    for given in (A[:4, :6], A[4:, :6]):
        first = k(np.ascontiguousarray(given))
        second = k(np.ascontiguousarray(given))
        for mine, again, wanted in zip(first, second, (given - 1, given.sum(1), given.sum(1) * 2), strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=1e-5)
            assert not np.shares_memory(mine, again)


def test_where_numpys_arrays_lie(tmp_path: Path) -> None:
    class Own(np.ndarray[Any, Any]):
        """A subclass."""

    stored = np.memmap(tmp_path / "x", np.float32, "w+", shape=(4, 4))
    fixed = np.arange(8)
    fixed.flags.writeable = False
    some: list[Any] = [
        np.zeros((3, 4)), np.zeros((3, 4))[1:], np.zeros((3, 4))[::-1, ::-1], np.zeros(0), np.zeros((2, 0, 3))[1:],
        np.array(3, np.int8), np.zeros(5, "f2")[2:3], np.zeros(4).view(Own), stored[2:], fixed[3:],
        np.ma.masked_array(np.arange(4), mask=[False, True, False, True]), np.broadcast_to(np.zeros(3), (5, 3)),
    ]  # fmt: skip
    for x in some:
        assert NUMPY.pointer(x) == NUMPY.address(x) == x.__array_interface__["data"][0]
