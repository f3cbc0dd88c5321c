"""Kernels of random fusions on random blocks and threads, with random memories: no race, and the oracle's values.

The plan is judged by `tests.emit.thread_oracle` (who touches what between barriers), the source by running it thread by
thread in random order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, note, reject, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir import Fusion
from idgraph.kernel.ir import Barrier, BlockReduce, BoundsCheck, If, Loop, SingleThread, Stmt, walk
from idgraph.runtime import Program, emit
from idgraph.validate import random_inputs
from tests.emit.cases import Case, arrays_of, difference
from tests.emit.shared_cases import SHARED
from tests.emit.thread_oracle import faults
from tests.emit.thread_runner import bound, run_threads
from tests.property.launches import threaded_fusions

PROFILE = settings().max_examples  # 100; 2000 in the nightly profile


def threaded(f: Fusion) -> Program:
    """The kernels; a schedule that is refused leaves the example out."""
    note(str(f))
    try:
        return emit(f, "cuda")
    except (ig.ScheduleError, ig.EmitError):
        reject()


@settings(max_examples=PROFILE // 2)
@given(threaded_fusions(), st.integers(0, 1 << 16))
def test_no_race_and_the_right_values(f: Fusion, seed: int) -> None:
    program = threaded(f)
    waits = sum(isinstance(s, Barrier) for k in program.plan.kernels for s in walk(k.body))
    event(
        "combines"
        if any(isinstance(s, BlockReduce) for k in program.plan.kernels for s in walk(k.body))
        else "no combine"
    )
    event(f"barriers {min(waits, 3)}")
    event("shared" if any(t.memory == "shared" for t in f.tensors) else "not shared")
    made = Case(f)
    inputs: dict[str, Any] = random_inputs(f, seed, {})
    flat, symbols = bound(program, inputs)
    assert faults(program.plan, symbols, flat) == []
    with np.errstate(all="ignore"):
        assert difference(made, inputs, run_threads(program, inputs, seed)) == ""
        for target in ("python", "numpy"):
            assert difference(made, inputs, emit(f, target).run(inputs, poison=True)) == "", target


@pytest.mark.parametrize("name", SHARED)
def test_cases_in_any_order_of_threads(name: str) -> None:
    made = Case(SHARED[name]())
    inputs, program = arrays_of(made), emit(made.fusion, "cuda")
    for seed in range(2):
        assert difference(made, inputs, run_threads(program, inputs, seed)) == ""


def rows_in_vectors(outer: bool) -> Fusion:
    """Rows of 16-bit floats that a reduction loads, two at a time."""
    f = Fusion("rows")
    t1 = ig.add(f.input("x", (4, 4), "bfloat16"), 1, name="t1")
    t2 = ig.add(t1, 1, name="t2")
    f.output(ig.amax(t2, 1, name="t3"))
    for t in (t1, t2):
        if outer:
            t.parallelize(0, "blockIdx.x")
        t.inline(1).set_memory("shared")
    if outer:
        f["t3"].parallelize(0, "blockIdx.x")
    return f


@pytest.mark.parametrize("outer", [False, True])
def test_pairs_of_short_floats(outer: bool) -> None:
    made = Case(rows_in_vectors(outer))
    inputs = arrays_of(made)
    assert difference(made, inputs, run_threads(emit(made.fusion, "cuda"), inputs)) == ""


def test_a_missing_barrier_shows_in_the_values() -> None:
    """The runner can fail: kernels without their barriers give wrong values."""
    made = Case(SHARED["tile_in_a_loop"]())
    inputs, program = arrays_of(made), emit(made.fusion, "cuda")

    class Without(Program):
        def kernel_source(self, kernel: object, checked: bool = False) -> str:
            return super().kernel_source(kernel, checked).replace("cuda.syncthreads()", "pass")  # type: ignore[arg-type]

    broken = Without(program.fusion, program.target, program.plan)
    found = Counter(difference(made, inputs, run_threads(broken, inputs, seed)) == "" for seed in range(5))
    assert found[False]


def rows(n: int, m: int, dtype: str) -> Fusion:
    """A softmax whose rows the threads of a block reduce together."""
    f = Fusion("rows")
    f.output(ig.softmax(f.input("x", (n, m), dtype), 1))  # type: ignore[arg-type]
    ig.schedule.auto(f)
    return f


@pytest.mark.parametrize("shape", [(3, 40, "float32"), (5, 7, "float32"), (2, 300, "bfloat16")])
def test_rows_that_threads_combine(shape: tuple[int, int, str]) -> None:
    made = Case(rows(*shape))
    inputs, program = arrays_of(made), emit(made.fusion, "cuda")
    assert any(isinstance(s, BlockReduce) for k in program.plan.kernels for s in walk(k.body))
    flat, symbols = bound(program, inputs)
    assert faults(program.plan, symbols, flat) == []
    for seed in range(2):
        assert difference(made, inputs, run_threads(program, inputs, seed)) == ""


def test_a_combination_that_some_threads_miss_is_found() -> None:
    """The oracle can fail: threads that combine under a condition of theirs."""
    program = emit(rows(3, 40, "float32"), "cuda")
    (kernel,) = program.plan.kernels

    def hidden(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(
            SingleThread(("threadIdx.x",), (s,))
            if isinstance(s, BlockReduce)
            else replace(s, body=hidden(s.body))
            if isinstance(s, (Loop, If, SingleThread, BoundsCheck))
            else s
            for s in body
        )

    broken = replace(program.plan, kernels=(replace(kernel, body=hidden(kernel.body)),))
    assert any("different barriers" in f for f in faults(broken))
