"""The owner of a gathered element stores it alone: values, addresses at every point, and nothing is combined."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

import idgraph as ig
from idgraph.kernel.ir import BlockReduce, If, Kernel, Store, VectorLoad, walk
from idgraph.passes.owner_computes import owner_computes
from idgraph.runtime.program import Program
from idgraph.validate import random_inputs
from idgraph.validate.kernel_check import check_kernel_addresses
from tests.emit.owner_cases import CASES, OWNED, loss, outcome
from tests.emit.turns import simulated


def scheduled(name: str) -> tuple[ig.Fusion, Program]:
    """A case with its gathers by predicate, for CUDA."""
    f = CASES[name]()
    ig.schedule.auto(f, gathers="predicate")
    return f, ig.emit(f, "cuda")


@pytest.mark.parametrize("name", OWNED)
def test_the_owner_stores_and_nothing_is_combined_for_it(name: str) -> None:
    """The kernel of the gather combines what the row itself needs, and no value more."""
    f, p = scheduled(name)
    assert any("owner" in k.passes for k in p.kernels)
    gathers = len(f.decisions)
    reductions = sum(e.is_reduction for e in f.exprs) - gathers
    combined = sum(
        isinstance(s, BlockReduce) for k in p.kernels for s in walk(k.body) if getattr(s, "before", None) is None
    )
    assert combined == reductions


def test_an_element_that_all_threads_need_is_combined() -> None:
    _, p = scheduled("needed")
    assert not any("owner" in k.passes for k in p.kernels)
    assert sum(isinstance(s, BlockReduce) for k in p.kernels for s in walk(k.body)) == 3


@pytest.mark.parametrize("name", [n for n in OWNED if n != "entries"])
def test_every_point_is_served_once(name: str) -> None:
    """Each access of the kernel at each step, with the indices as they are: no element is stored by two threads."""
    f, p = scheduled(name)
    for k in p.kernels:
        k.verify()
    given = random_inputs(f, 3)
    report = check_kernel_addresses(p, {}, given)
    assert report.ok, report.mismatch
    assert not report.untraced


def test_two_indices_a_row_at_every_point() -> None:
    """The index is reshaped on its way: its values are told by name."""
    f, p = scheduled("entries")
    given = random_inputs(f, 3)
    made = next(t.name for t in f.tensors if t.definition is not None and t.definition.op == "unsqueeze" and t.ndim == 3
                and t.dtype == "int64")  # fmt: skip
    report = check_kernel_addresses(p, {}, {**given, made: given["i"][:, :, None]})
    assert report.ok, report.mismatch
    assert not report.untraced


@pytest.mark.sampled
@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, target: Literal["python", "numpy", "cpu"]) -> None:
    if target == "python" and name in ("columns", "beside"):
        pytest.skip("as slow as the others together")
    assert outcome(name, target) == ""


@pytest.mark.slow
def test_values_on_the_simulator() -> None:
    run = simulated("-m", "tests.emit.owner_cases")
    assert run.returncode == 0, run.stderr[-2000:]
    assert json.loads(run.stdout) == dict.fromkeys(CASES, "")


def test_a_row_in_registers_stays_there() -> None:
    """The owner's part is one more pass over a row that is read once."""
    f = loss(4096, 8)
    ig.schedule.auto(f, gathers="predicate")
    p = ig.emit(f, "cuda")
    (k,) = p.kernels
    assert [b.name for s in walk(k.body) if (b := getattr(s, "buffer", None)) is not None and b.place == "private"]
    reads = sum(t.bytes_read for t in ig.cost(p).kernels[0].tensors if t.tensor == "x")
    assert reads == 8 * 4096 * 4


def parsed(column: str = "t", width: int = 32, after: str = "y[b] = r") -> Kernel:
    """A masked reduction over 32 threads, whose column is ``column``."""
    return ig.kernel.parse(f"""
kernel k():
  where ld0 in _, _
  buffer i: int64[4] input "i"
  buffer x: float32[{4 * width}] input "x"
  buffer y: float32[{4 * width}] output "y"
  launch blockIdx.x: 4
  launch threadIdx.x: 32
  for b < 4, blockIdx.x:
    n: int64 = i[b]
    let ld0 = n
    check (ld0 >= 0) & (ld0 < 32), of ld0, site "x", axis 0, extent 32, index "i", in "y", at "f.py:1":
      acc s: float32 = -inf
      for t < 32, threadIdx.x:
        for q < {width // 32}:
          v: float32 = x[b*{width} + t*{width // 32} + q]
          c: int64 = cast({{{column}}})
          hit: bool = eq(n, c) in int64
          w: float32 = where(hit, v, -inf)
          s <- amax w, to float32
      s <- amax over threadIdx.x
      r: float32 = exp(s)
      single threadIdx.x:
        {after}
""")


@pytest.mark.parametrize(
    ("column", "width"), [("t*2 + q", 64), ("t + q*32", 64), ("t*3 + q + 1", 96), ("t", 32)]
)  # fmt: skip
def test_a_column_is_hit_once(column: str, width: int) -> None:
    """The values of an index that some step has are enumerated: exactly one step has each."""
    k = owner_computes(parsed(column, width))
    (test,) = [s for s in walk(k.body) if isinstance(s, If) and "ld0" in s.condition.names and "t" in s.condition.names]
    for n in range(width):
        steps = [(t, q) for t in range(32) for q in range(width // 32)
                 if bool(test.condition.evaluate({"ld0": n, "t": t, "q": q}))]  # fmt: skip
        assert len(steps) <= 1
    assert not any(isinstance(s, BlockReduce) for s in walk(k.body))


@pytest.mark.parametrize(("column", "width"), [("t + q", 64), ("t", 64), ("t*2 + q*2", 64), ("t//2", 32)])
def test_a_column_that_two_steps_have_is_combined(column: str, width: int) -> None:
    k = parsed(column, width)
    assert owner_computes(k) is k


def test_what_every_thread_does_is_not_the_owners() -> None:
    """A store by all threads beside the one that is left to the first."""
    text = str(parsed()).replace(
        "      single threadIdx.x:\n        y[b] = r", "      for u < 32, threadIdx.x:\n        y[b*32 + u] = r"
    )
    k = ig.kernel.parse(text)
    assert any(isinstance(s, Store) for s in walk(k.body))
    assert owner_computes(k) is k


def test_an_index_out_of_range_leaves_no_element_unwritten() -> None:
    """An unchecked run writes what the reduction gives: nothing is left as it was in memory."""
    k = owner_computes(parsed())
    tests = [s for s in walk(k.body) if isinstance(s, If)]
    assert len(tests) == 2
    for n in (-5, -1, 0, 7, 31, 32, 100):
        env: dict[str, Any] = {"ld0": n, "q": 0}
        by_owner = sum(bool(tests[0].condition.evaluate({**env, "t": t})) for t in range(32))
        assert by_owner + bool(tests[1].condition.evaluate(env)) == 1


def test_a_name_that_is_set_again_behind_a_row_is_not_the_rows() -> None:
    """An element loaded behind the sums, under the name that the row has: the row is read once, in vectors."""
    f = loss(8192, 8)
    ig.schedule.auto(f)
    assert f.decisions[0].chosen == "recompute"
    (k,) = ig.emit(f, "cuda").kernels
    assert any(isinstance(s, VectorLoad) for s in walk(k.body))
    row = [a for a in ig.cost(ig.emit(f, "cuda")).accesses if a.tensor == "x" and a.points > 8]
    assert sum(a.bytes_asked for a in row) == 8 * 8192 * 4


def test_a_value_that_is_read_outside_is_combined() -> None:
    """Behind the check another statement reads what all threads had."""
    k = ig.kernel.parse(f"{parsed()}\n    single threadIdx.x:\n      y[b + 4] = r\n")
    assert owner_computes(k) is k
