"""Lanes around loops over columns: neighbouring rows reduced side by side, with wide loads and the right values."""

from __future__ import annotations

import re

import numpy as np
import pytest

import idgraph as ig
from idgraph.ir import DType
from idgraph.kernel.ir import (
    BlockReduce,
    BoundsCheck,
    Compute,
    Kernel,
    Let,
    Load,
    Loop,
    SingleThread,
    StraightLineBlock,
    VectorLoad,
    walk,
)
from idgraph.passes.unroll_and_jam import sink_behind_columns, sink_into_loop, unroll_and_jam
from idgraph.runtime import compile_ptx
from idgraph.validate import random_inputs
from idgraph.validate.index_map_check import index_values
from idgraph.validate.kernel_check import check_kernel_addresses
from idgraph.validate.oracle import evaluate
from tests.emit.thread_runner import run_threads

NEST = """
kernel k():
  buffer x: float32[4096] input "x"
  buffer y: float32[64] output "y"
  launch threadIdx.x: 16
  launch threadIdx.y: 4
  for i < 16, threadIdx.x:
    for w < 4, unroll:
      acc s: float64 = 0.0
      for c < 16:
        for t < 4, threadIdx.y:
          v: float32 = x[c*256 + t*64 + i*4 + w]
          s <- sum v, to float32
      s <- sum over threadIdx.y
      r: float32 = cast(s)
      single threadIdx.y:
        y[i*4 + w] = r
"""


def _kernel(text: str) -> Kernel:
    return ig.kernel.parse(text)


def _across(rows: int, columns: int, dtype: DType = "float32") -> ig.Fusion:
    f = ig.Fusion("across")
    x = f.input("x", shape=(columns, rows), dtype=dtype)
    f.output(ig.cast(ig.sum(ig.cast(x, "float32"), 0), dtype))
    ig.schedule.auto(f)
    return f


def test_each_lane_has_its_sum_and_its_exchange() -> None:
    k = unroll_and_jam(_kernel(NEST))
    k.verify()
    assert [s.acc.name for s in walk(k.body) if isinstance(s, BlockReduce)] == ["s_0", "s_1", "s_2", "s_3"]
    assert not any(isinstance(s, Loop) and s.parallel == "unroll" for s in walk(k.body))
    (columns,) = [s for s in walk(k.body) if isinstance(s, Loop) and s.var == "c"]
    assert sum(isinstance(s, StraightLineBlock) for s in walk((columns,))) == 1


def test_nothing_moves_where_a_step_reads_what_another_wrote() -> None:
    scan = NEST.replace("s <- sum v, to float32", "q: float64 = s <- sum v, to float32 along c")
    for text in (
        NEST.replace("for c < 16:", "for c < 16 - w:"),  # as many columns as the lane says
        NEST.replace("s: float64 = 0.0", 's: float64 = 0.0\n      alloc a: float32[4] private "a"'),
    ):
        k = _kernel(text)
        assert unroll_and_jam(k) is k
    assert "scan" not in scan  # the text above has none: scans are refused in test_scan


SELECTED = """
kernel k():
  where ld in _, _
  buffer n: int64[8] input "n"
  buffer x: float32[1024] input "x"
  buffer y: float32[8] output "y"
  for i < 4:
    for w < 2, vectorize:
      r: int64 = n[i*2 + w]
      let ld = r
      check (ld >= 0) & (ld < 64), of ld, site "x", axis 0, extent 64, index "n", in "t", at "f", loop i, loop w:
        acc s: float64 = 0.0
        for c < 16:
          v: float32 = x[ld*16 + c]
          s <- sum v, to float32
        q: float32 = cast(s)
        y[i*2 + w] = q
"""


def test_each_lane_keeps_its_own_check() -> None:
    k = unroll_and_jam(_kernel(SELECTED))
    k.verify()
    checks = [s for s in walk(k.body) if isinstance(s, BoundsCheck)]
    assert sorted(str(s.condition) for s in checks) == [f"(ld_{n} >= 0) & (ld_{n} < 64)" for n in range(2)]
    assert sorted(s.value for s in checks) == ["ld_0", "ld_1"]


def test_computations_of_one_thread_stand_inside_it() -> None:
    k = _kernel(NEST)
    (nest,) = k.body
    assert isinstance(nest, Loop) and isinstance(nest.body[0], Loop)
    before = nest.body[0].body
    after = sink_into_loop(before, frozenset("x"), frozenset())
    assert len(after) == len(before) - 1 and str(after[-1]).count("cast") == 1


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("rows", [64, 72, 77, 1024])
def test_sums_over_a_leading_axis(rows: int, dtype: DType) -> None:
    f = _across(rows, 300 if rows < 100 else 44, dtype)  # no more elements than the address check walks in Python
    p = ig.emit(f, target="cuda")
    bits = {"float32": 4, "bfloat16": 2, "float64": 8}[dtype]
    wide = [s for k in p.kernels for s in walk(k.ir.body) if isinstance(s, VectorLoad)]
    side = 16 // bits
    while rows % side:
        side //= 2
    assert all(len(s.locals) * (2 if s.pairs else 1) == side for s in wide) and bool(wide) == (side > 1)
    for target in ("python", "cpu"):
        ig.validate(f, target=target)


def test_a_total_that_is_written_and_read_is_every_threads() -> None:
    """The largest of each column is an output and is read again, in columns that do not fill a block."""
    f = ig.Fusion("away")
    x = f.input("x", shape=(64, 34), dtype="float32")
    top = ig.amax(x, 0, keepdim=True)
    f.output(top)
    f.output(x - top)
    ig.schedule.auto(f)
    p = ig.emit(f, target="cuda")
    assert any(isinstance(s, SingleThread) for k in p.kernels for s in walk(k.ir.body))
    inputs = random_inputs(f, 0, {})
    for name, wanted in evaluate(f, inputs).items():
        np.testing.assert_array_equal(run_threads(p, inputs)[name], wanted)


def test_loads_are_wide_and_divisions_short() -> None:
    (text,) = compile_ptx(ig.emit(_across(4096, 16384), target="cuda"))
    assert len(re.findall(r"ld\.global\S*\.v4", text)) == 8 and ".local" not in text
    assert not re.findall(r"(div|rem)\.[su]64", text)


def test_rows_that_loaded_indices_select_are_in_flight_together() -> None:
    f = ig.Fusion("bags")
    ids = f.input("ids", shape=(64, 12), dtype="int64")
    table = f.input("table", shape=(4000, 32), dtype="bfloat16")
    f.output(ig.sum(ig.cast(ig.embedding(ids, table), "float32"), 1))
    ig.schedule.auto(f)
    (k,) = ig.emit(f, target="cuda").kernels
    lets = [s for s in walk(k.ir.body) if isinstance(s, Let)]
    (columns,) = [s for s in walk(k.ir.body) if isinstance(s, Loop) and s.parallel == "serial"]
    assert len(lets) == 4 and columns.extent == 3
    assert [len(s.locals) for s in walk(k.ir.body) if isinstance(s, VectorLoad) and s.buffer.title == "table"] == [
        8
    ] * 4
    for target in ("python", "cpu"):
        ig.validate(f, target=target)


@pytest.mark.parametrize("columns", [2, 7, 13])
def test_columns_that_no_step_divides(columns: int) -> None:
    f = ig.Fusion("bags")
    ids = f.input("ids", shape=(64, columns), dtype="int64")
    table = f.input("table", shape=(4000, 32))
    f.output(ig.sum(ig.embedding(ids, table) * ig.unsqueeze(f.input("w", shape=(64, columns)), 2), 1))
    ig.schedule.auto(f)
    for target in ("python", "cpu"):
        ig.validate(f, target=target)
    p = ig.emit(f, target="cuda")
    report = check_kernel_addresses(p, {}, index_values(f, {}, random_inputs(f, 0, {}), 0))
    assert report.ok, report.mismatch  # each column is read
    k = p.kernels[0]
    k.ir.verify()
    assert sum(isinstance(s, Let) for s in walk(k.ir.body)) >= min(columns, 4)


def test_a_value_that_one_loop_makes_for_the_next_stays_outside_of_lanes() -> None:
    """Sums of one column, with the loops of one step left in."""
    k = _kernel(
        """
kernel k():
  buffer x: float32[2] input "x"
  buffer y: float32[2] output "y"
  for w < 2, unroll:
    acc s: float32 = -inf
    for c < 1:
      v: float32 = x[c*2 + w]
      s <- amax v
    acc t: float32 = 0
    for c < 1:
      t: float32 = cast(s)
    for c < 1:
      u: float32 = neg(t)
      y[c*2 + w] = u
""".replace("sub(x0, t)", "neg(t)")
    )
    made = [s for s in unroll_and_jam(k).body if isinstance(s, Loop)]
    assert len(made) == 3 and not any(isinstance(s, StraightLineBlock) for s in walk((made[1],)))


def _weighted() -> ig.Fusion:
    """Rows that a few parts are added up to, each by the weight of its number: a mixture of experts."""
    f = ig.Fusion("combine")
    y, g, r = f.input("y", (64, 2, 1024), "bfloat16"), f.input("g", (64, 2)), f.input("r", (64, 1024), "bfloat16")
    w = ig.unsqueeze(g / ig.exp(f.input("s", (64, 1))), 2)
    f.output(ig.sum(ig.cast(y, "float32") * w, 1) + ig.cast(r, "float32"))
    ig.schedule.auto(f)
    return f


def test_rows_of_one_thread_load_what_they_share_once_and_the_rest_in_vectors() -> None:
    f = _weighted()
    k = ig.emit(f, "cuda").kernels[-1]
    loads = [s for s in walk(k.body) if isinstance(s, (Load, VectorLoad))]
    wide = {s.buffer.title for s in loads if isinstance(s, VectorLoad) and len(s.locals) * (1 + s.pairs) == 8}
    assert {"y", "r"} <= wide
    assert all(isinstance(s, VectorLoad) or not s.address.names & {"q", "r"} for s in loads), k
    # one reciprocal of the sum, and one weight for each part: not for each of the eight rows of a thread
    assert sum(isinstance(s, Compute) and s.op in ("reciprocal", "short_reciprocal") for s in walk(k.body)) == 1
    inside = [s for s in walk(k.body) if isinstance(s, Loop) and s.parallel == "unroll"]
    divided = [int(s.extent) for s in inside if any(isinstance(x, Compute) and x.op == "div_by" for x in s.body)]
    assert divided == [2]


@pytest.mark.parametrize("seed", range(2))
def test_what_rows_share_has_the_right_values(seed: int) -> None:
    f = _weighted()
    inputs = random_inputs(f, seed)
    wanted = evaluate(f, inputs)
    for name, found in run_threads(ig.emit(f, "cuda"), inputs, seed=seed).items():
        np.testing.assert_allclose(np.asarray(found, np.float64), wanted[name], rtol=1e-5, atol=1e-5)


def test_a_value_that_the_columns_change_stays_in_front_of_them() -> None:
    """``a`` is read behind the loop only, but of a sum that the loop goes on adding to; ``b`` moves."""
    k = _kernel("""
kernel k():
  buffer x: float32[8] input "x"
  buffer y: float32[1] output "y"
  acc s: float32 = 0.0
  a: float32 = neg(s)
  b: float32 = x[0]
  for c < 8:
    t: float32 = x[c]
    s <- sum t
  d: float32 = add(a, b)
  y[0] = d
""")
    made = sink_behind_columns(k.body, frozenset({"x"}))
    places = {s.local.name: n for n, s in enumerate(made) if isinstance(s, (Compute, Load))}
    loop = next(n for n, s in enumerate(made) if isinstance(s, Loop))
    assert places["a"] < loop < places["b"] < places["d"]


@pytest.mark.parametrize(("first", "width", "rows"), [(5, 85, 1), (5, 88, 1), (4, 84, 4)])
def test_rows_that_begin_inside_of_a_vector_are_not_taken_in_turn(first: int, width: int, rows: int) -> None:
    """Scores behind five numbers of a box: no thread waits for four rows, one after the other."""
    f = ig.Fusion("scores")
    f.output(ig.amax(f.input("x", (1 << 16, width))[:, first:], 1))
    ig.schedule.auto(f, device="H200")
    (k,) = ig.emit(f, "cuda").kernels
    steps = [s for s in walk(k.body) if isinstance(s, Loop) and s.parallel in ("serial", "unroll")]
    assert not any(isinstance(x, BlockReduce) for s in steps for x in walk(s.body)), k
    assert sum(isinstance(x, BlockReduce) for x in walk(k.body)) == rows
