"""Checks of several loaded indices of a lane together: what is loaded, what is reported, what unchecked runs read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import idgraph as ig
from idgraph.errors import IndexingError

ROOT = Path(__file__).resolve().parents[2]


def edges() -> ig.Fusion:
    """The difference of two gathered rows."""
    f = ig.Fusion("edges")
    a, b = (f.input(n, (6,), dtype="int64") for n in "ab")
    x = f.input("x", (5, 16))
    f.output(ig.index_select(x, 0, a) * 2.0 - ig.index_select(x, 0, b))
    ig.schedule.auto(f)
    return f


def chained() -> ig.Fusion:
    """A row at an index that is itself gathered: its check cannot move in front."""
    f = ig.Fusion("chained")
    a, b = f.input("a", (6,), dtype="int64"), f.input("b", (5,), dtype="int64")
    x = f.input("x", (5, 16))
    f.output(ig.index_select(x, 0, ig.index_select(b, 0, a)) + ig.index_select(x, 0, a))
    ig.schedule.auto(f)
    return f


def test_rows_of_both_are_loaded_in_one_place() -> None:
    (kernel,) = ig.emit(edges(), "cuda").kernels
    kernel.verify()
    assert "join_checks" in kernel.passes
    source = ig.emit(edges(), "cuda").kernel_source(kernel, checked=True)
    at = [n for n, line in enumerate(source.splitlines()) if "vload" in line]
    fault = [n for n, line in enumerate(source.splitlines()) if "atomic" in line]
    assert len(at) >= 2 and not any(at[0] < n < at[-1] for n in fault), source


def test_an_index_that_is_gathered_is_checked_first() -> None:
    for kernel in ig.emit(chained(), "cuda").kernels:
        kernel.verify()
    for target in ("python", "numpy"):
        assert ig.validate(chained(), target=target).ok  # type: ignore[arg-type]


def run() -> None:
    """In the simulator: values, the first index that is out of range, zero for it in an unchecked run."""
    x = np.arange(80, dtype=np.float32).reshape(5, 16) + 1
    a, b = np.array([0, 4, 2, 2, 1, 3]), np.array([4, 4, 0, 1, 3, 2])
    for make in (edges, chained):
        assert ig.validate(make(), target="cuda").ok
    f = edges()
    np.testing.assert_array_equal(ig.compile(f, "cuda")(a=a, b=b, x=x), x[a] * 2 - x[b])
    for name, given in (("b", {"a": a, "b": np.where(b == 3, 7, b)}), ("a", {"a": np.where(a == 3, -9, a), "b": b})):
        with pytest.raises(IndexingError, match=name):
            ig.compile(f, "cuda", checked="now")(x=x, **given)
        found = ig.compile(f, "cuda", checked=False)(x=x, **given)
        rows = [np.where((i < 0) | (i > 4), 0, 1)[:, None] * x[np.clip(i, 0, 4)] for i in given.values()]
        np.testing.assert_array_equal(found, rows[0] * 2 - rows[1])


def test_in_the_simulator() -> None:
    env = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", "from tests.emit.test_join_checks import run; run()"],
        env=env, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
