"""Reductions of rows that lie side by side in memory, on the CPU: rows together, column by column."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import idgraph as ig
from idgraph.passes.loop_interchange import interchange_loops

Build = Callable[[ig.Fusion], ig.Tensor]


def _by_columns(f: ig.Fusion, rows: int, columns: int) -> ig.Tensor:
    return f.input("x", shape=(rows, columns), strides=(1, rows))


CASES: dict[str, Build] = {
    "sum": lambda f: ig.sum(_by_columns(f, 256, 40), 1),
    "sum of 1000 rows": lambda f: ig.sum(_by_columns(f, 1000, 33), 1),
    "sum of 97 rows": lambda f: ig.sum(_by_columns(f, 97, 64), 1) * 2.0,
    "largest": lambda f: ig.amax(_by_columns(f, 300, 17) - 5.0, 1),
    "smallest": lambda f: ig.amin(_by_columns(f, 130, 9), 1, keepdim=True),
    "mean of two": lambda f: ig.mean(
        _by_columns(f, 515, 20) * f.input("y", shape=(515, 20), strides=(1, 520)), 1
    ),
    "channels": lambda f: ig.sum(f.input("x", shape=(5, 64, 9), strides=(576, 1, 64)), 2),
    "few columns": lambda f: ig.sum(f.input("x", shape=(5, 203)), 0),
    "leading axis": lambda f: ig.sum(f.input("x", shape=(31, 203)), 0),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    f = ig.Fusion("f")
    t = f.output(CASES[name](f))
    rng = np.random.default_rng(0)
    arrays = {x.name: -rng.random([int(n) for n in x.shape], np.float32) - 1.0 for x in f.inputs}
    want = ig.emit(f, "numpy").run(arrays)[t.name]
    ig.schedule.auto(f)
    p = ig.emit(f, "cpu")
    assert np.allclose(p.run(arrays)[t.name], want, rtol=1e-5)
    assert "interchange" in p.kernels[0].passes and "_all[" in p.source
    assert ig.validate(f, target="cpu").ok


SEVERAL: dict[str, Build] = {
    "softmax of columns": lambda f: ig.softmax(f.input("x", (77, 203)), 0),
    "softmax of a middle axis": lambda f: ig.softmax(f.input("x", (5, 33, 64)), 1),
    "softmax of float64": lambda f: ig.softmax(f.input("x", (40, 130), "float64"), 0),
    "log_softmax": lambda f: ig.log_softmax(f.input("x", (50, 97)), 0),
    "few columns": lambda f: ig.softmax(f.input("x", (6, 203)), 0),
    "less the mean": lambda f: (lambda x: x - ig.mean(x, 0, keepdim=True))(f.input("x", (61, 190))),
    "variance": lambda f: (lambda x: ig.mean((x - ig.mean(x, 0, keepdim=True)) ** 2, 0))(f.input("x", (90, 100))),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", SEVERAL)
def test_several_loops_over_columns(name: str) -> None:
    """What a row hands on to its next loop, and the row that it keeps, are arrays of the rows beside it, too."""
    f = ig.Fusion("f")
    t = f.output(SEVERAL[name](f))
    rng = np.random.default_rng(0)
    arrays = {x.name: rng.standard_normal([int(n) for n in x.shape]).astype(x.dtype) * 9 for x in f.inputs}
    want = ig.emit(f, "numpy").run(arrays)[t.name]
    ig.schedule.auto(f)
    p = ig.emit(f, "cpu")
    assert np.allclose(p.run(arrays)[t.name], want, rtol=2e-5, atol=1e-6)
    assert "interchange" in p.kernels[0].passes and len(p.kernels) == 1
    assert ig.validate(f, target="cpu").ok


def test_a_kept_row_has_its_columns_apart() -> None:
    f = ig.Fusion("f")
    f.output(ig.softmax(f.input("x", (100, 640)), 0))
    ig.schedule.auto(f)
    (kernel,) = ig.emit(f, "cpu").kernels
    assert "alloc kept0: float32[9600] private" in str(kernel) and "= kept0[c*96 + " in str(kernel)


def test_rows_that_read_what_others_write_stay() -> None:
    k = ig.kernel.parse(NEIGHBOURS)
    assert interchange_loops(k) == k
    apart = ig.kernel.parse(NEIGHBOURS.replace("z: float32 = y[a + 1]", "z: float32 = x[a]"))
    assert interchange_loops(apart) != apart


NEIGHBOURS = """
kernel k():
  buffer x: float32[65536] input "x"
  buffer y: float32[65792] output "y"
  launch blockIdx.x: 1; threadIdx.x: 256
  for b < 1, blockIdx.x:
    for a < 256, threadIdx.x:
      z: float32 = y[a + 1]
      acc s: float32 = 0.0
      for c < 256:
        t: float32 = x[c*256 + a]
        s <- sum t
      r: float32 = mul(s, z)
      for c < 256:
        u: float32 = x[c*256 + a]
        v: float32 = mul(u, r)
        y[c*256 + a] = v
"""


def test_rows_that_lie_one_behind_the_other_stay() -> None:
    f = ig.Fusion("f")
    f.output(ig.sum(f.input("x", shape=(256, 40)), 1))
    ig.schedule.auto(f)
    assert "interchange" not in ig.emit(f, "cpu").kernels[0].passes
