"""Gathers by predicate of values that a row's loop computes: values on all targets, and the row read once."""

from __future__ import annotations

import json
from typing import Literal

import pytest

import idgraph as ig
from idgraph.kernel.ir import VectorLoad, walk
from tests.emit.predicate_cases import CASES, loss, outcome
from tests.emit.turns import simulated


@pytest.mark.sampled
@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, target: Literal["python", "numpy", "cpu"]) -> None:
    if target == "python" and name in ("columns", "beside"):
        pytest.skip("as slow as the others together")
    assert outcome(name, target) == ""


@pytest.mark.slow
def test_values_on_the_simulator() -> None:
    run = simulated("-m", "tests.emit.predicate_cases")
    assert run.returncode == 0, run.stderr[-2000:]
    assert json.loads(run.stdout) == dict.fromkeys(CASES, "")


def test_a_name_that_is_set_again_behind_a_row_is_not_the_rows() -> None:
    """An element loaded behind the sums, under the name that the row has: the row is read once, in vectors."""
    f = loss(8192, 8)
    ig.schedule.auto(f)
    assert f.decisions[0].chosen == "recompute"
    (k,) = ig.emit(f, "cuda").kernels
    assert any(isinstance(s, VectorLoad) for s in walk(k.body))
    row = [a for a in ig.cost(ig.emit(f, "cuda")).accesses if a.tensor == "x" and a.points > 8]
    assert sum(a.bytes_asked for a in row) == 8 * 8192 * 4
