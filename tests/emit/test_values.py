"""Values of every case on the targets that run in this process, against the oracle; and that a wrong one is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.index import Access, IdModel, LoopVariable
from idgraph.runtime import Program, emit
from idgraph.runtime.program import Target
from tests.emit.cases import CASES, arrays_of, difference, outcome

SLOW_TO_COMPILE = {"reductions_of_all_dtypes", "wrapping_integers", "arithmetic_bfloat16", "arithmetic_float16"}


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", ["python", "numpy"])
def test_value(name: str, target: str) -> None:
    assert outcome(name, target) == ""


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW_TO_COMPILE else []) for n in CASES]
)
def test_value_cpu(name: str) -> None:
    assert outcome(name, "cpu") == ""


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["gather", "embedding", "take_along_dim", "scatter", "gather_of_itself"])
@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
def test_checked_runs_agree(name: str, target: str) -> None:
    assert outcome(name, target, checked=True) == ""


class _Wrong:
    """Index maps with one fault planted in every read of ``tensor``."""

    def __init__(self, f: ig.Fusion, tensor: str, fault: str) -> None:
        self.model, self.tensor, self.fault = IdModel(f), tensor, fault

    def loops(self, e: ig.TensorExpr, /) -> Sequence[LoopVariable]:
        return self.model.loops(e)

    def write(self, e: ig.TensorExpr, /) -> Access:
        return self.model.write(e)

    def read(self, e: ig.TensorExpr, operand: int, /) -> Access:
        a = self.model.read(e, operand)
        if a.tensor.name != self.tensor:
            return a
        if self.fault == "shift":
            return replace(a, address=(a.address + 1) % 16)
        if self.fault == "stride":
            return replace(a, address=(a.address * 3) % 16)
        return replace(a, conditions=())


@pytest.mark.parametrize(("fault", "tensor"), [("shift", "x"), ("stride", "x"), ("predicate", "t1")])
@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
def test_a_planted_fault_is_seen(fault: str, tensor: str, target: Target) -> None:
    made = CASES["move_rotation"]()
    inputs = arrays_of(made)
    good = emit(made.fusion, target).run(inputs)
    assert difference(made, inputs, good) == ""
    bad: Program = emit(made.fusion, target, model=_Wrong(made.fusion, tensor, fault))
    try:
        got = bad.run(inputs, poison=True)
    except ig.IndexingError:
        return
    assert difference(made, inputs, got) != ""


def test_numpy_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from idgraph.codegen.runtime_lib import numpy_ops as arrays

    monkeypatch.setattr(arrays, "CHUNK", 7)
    for name in ("inlined_at_2", "reduce_sum_outer", "reduction_outside_loop", "move_rotation", "reduce_matmul"):
        assert outcome(name, "numpy") == ""


def test_float32_sums_stay_accurate() -> None:
    f = ig.Fusion("long")
    x = f.input("x", (1, 200_000))
    s = f.output(ig.sum(x, 1))
    data = np.random.default_rng(0).uniform(0, 1, (1, 200_000)).astype(np.float32)
    wanted = data.astype(np.float64).sum(1)
    for target in ("numpy", "cpu"):
        got = emit(f, target).run({"x": data})[s.name]
        assert abs(got[0] - wanted[0]) <= 1e-6 * wanted[0]


def test_outputs_are_new_arrays() -> None:
    f = ig.Fusion("same")
    x = f.output(f.input("x", (3,)))
    data = np.ones(3, np.float32)
    out: dict[str, Any] = emit(f).run({"x": data})
    out[x.name][0] = 5
    assert data[0] == 1


@pytest.mark.parametrize("scheduled", [False, True])
def test_a_scatter_into_a_constant(scheduled: bool) -> None:
    f = ig.Fusion("f")
    i, s = f.input("i", (4,), "int64"), f.input("s", (4,))
    f.output(ig.scatter_add(ig.full((8,), 1.0, "float32"), 0, i, s))
    if scheduled:
        ig.schedule.auto(f)
    assert ig.validate(f, target="numpy").ok


@pytest.mark.parametrize("target", ["python", "numpy"])
def test_a_sum_of_sizes_beside_another_operator(target: Target) -> None:
    """A number such as n + 4 stands in parentheses wherever an operator binds closer."""
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    x, y, z = f.input("x", (n,), "int64"), f.input("y", (n,)), f.input("z", (n,), "bfloat16")
    f.output(
        x * (n + 4), x - (n - 1), ig.where(x > n + 1, x, n - 2), x // (n + 4), x % (n + 4), ig.bitwise_xor(x, n + 1)
    )
    f.output(y * (n + 4), z * (n + 4), -(x + (n - 1)), ig.pow(y, n - 3))
    assert ig.validate(f, target=target, symbols={"n": 5}).ok
