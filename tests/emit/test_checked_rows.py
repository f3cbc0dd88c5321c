"""Rows at loaded indices that are checked: what is loaded, what is reported, what unchecked runs read."""

from __future__ import annotations

import numpy as np
import pytest

import idgraph as ig
from idgraph.codegen.printers.index32 import rows_of
from idgraph.errors import IndexingError
from idgraph.ir import DType
from idgraph.kernel.ir import BoundsCheck, walk
from idgraph.runtime import compile_ptx
from tests.emit.thread_runner import run_threads
from tests.emit.turns import simulated


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


def hoisted(second: bool) -> ig.Fusion:
    """Rows of a table, long enough that a thread has two of them and their indices stand in front."""
    f = ig.Fusion("hoisted")
    a, b = (f.input(n, (64,), dtype="int64") for n in "ab")
    x = f.input("x", (50, 256))
    rows = ig.index_select(x, 0, a)
    f.output(rows + ig.index_select(x, 0, b) if second else rows * 2.0)
    ig.schedule.auto(f)
    return f


@pytest.mark.parametrize("second", [False, True])
def test_indices_of_a_second_check_are_loaded_in_front_of_both(second: bool) -> None:
    program = ig.emit(hoisted(second), "cuda")
    (kernel,) = program.kernels
    source = program.kernel_source(kernel, checked=True)
    report = source.index("if not (((")
    assert source.count("if not (((") == 1 and source.count("_where(") == (4 if second else 2)
    assert all(f"buf{n}[" in source[:report] for n in range(2 if second else 1))
    x = np.arange(50 * 256, dtype=np.float32).reshape(50, 256)
    first, other = np.arange(64) % 50, np.arange(64)[::-1] % 50
    (found,) = run_threads(program, {"x": x, "a": first, "b": other}, seed=1).values()
    assert np.array_equal(np.asarray(found), x[first] + x[other] if second else x[first] * 2)


@pytest.mark.parametrize(("at", "together"), [("r", True), ("a", False)])
def test_an_index_behind_a_checked_one_stays_behind_its_check(at: str, together: bool) -> None:
    kernel = ig.kernel.parse(f"""
kernel k():
  where a in _, _
  where b in _, _
  buffer i: int64[4] input "i"
  buffer j: int64[7] input "j"
  buffer x: float32[64] input "x"
  buffer y: float32[16] output "y"
  for r < 4:
    t0: int64 = i[r]
    let a = t0
    check (a >= 0) & (a < 7), of a, site "j", axis 0, extent 7, index "i", in "y", at "f.py:1":
      t1: int64 = j[{at}]
      let b = t1
      check (b >= 0) & (b < 16), of b, site "x", axis 0, extent 16, index "j", in "y", at "f.py:2":
        (c: float32, d: float32, e: float32, f: float32) = x[b*4; 4]
        y[r*4; 4] = (c, d, e, f)
""")
    (check,) = (s for s in walk(kernel.body) if isinstance(s, BoundsCheck) and s.value == "a")
    rows = rows_of(check)
    assert (rows is not None) == together
    assert rows is None or (len(rows.checks), len(rows.early)) == (2, 2)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "int64", "bool"])
@pytest.mark.parametrize("checked", [True, False])
def test_ptx_leaves_loads_out_without_branches(dtype: DType, checked: bool) -> None:
    pytest.importorskip("numba_cuda")
    g = ig.Fusion("sum")
    a, b = (g.input(n, (64,), dtype="int64") for n in "ab")
    x = g.input("x", (50, 256), dtype=dtype)
    rows = ig.index_select(x, 0, a), ig.index_select(x, 0, b)
    g.output(rows[0] & rows[1] if dtype == "bool" else rows[0] + rows[1])
    ig.schedule.auto(g)
    (text,) = compile_ptx(ig.emit(g, "cuda"), checked=checked)
    assert ".local" not in text
    loads = text.count("@p ld.global")
    assert loads >= 2
    rest = text[text.index("@p ld.global") :]
    assert "bra" not in rest[: rest.rindex("@p ld.global")]


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
    done = simulated("-c", "from tests.emit.test_checked_rows import run; run()")
    assert done.returncode == 0, done.stderr
