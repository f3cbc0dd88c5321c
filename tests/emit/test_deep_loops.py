"""More loops within each other than Python compiles: programs are made of fewer loops, with every value right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.codegen.printers import scalar
from idgraph.errors import EmitError
from idgraph.runtime.program import Target
from idgraph.validate import validate
from tests.emit.cases import CASES, outcome
from tests.emit.cuda_interpreter import interpret


@pytest.mark.parametrize("target", ["python", "numpy", "cpu", "cuda"])
@pytest.mark.parametrize("loops", [20, 21, 33])
def test_one_nest(loops: int, target: Target) -> None:
    f = ig.Fusion("f")
    y = f.output(ig.exp(f.input("x", (3, 5, 2))))
    while len(y.loop) < loops:
        y.split(len(y.loop) % 3, 2 if len(y.loop) < 6 else 1)
    x = np.linspace(-1, 1, 30, dtype=np.float32).reshape(3, 5, 2)
    inputs: dict[str, Any] = {"x": x}
    if target == "numpy" and loops > 32:
        with pytest.raises(EmitError, match="33 loops lie within each other"):
            ig.emit(f, target).run(inputs)
        return
    program = ig.emit(f, target)
    got = interpret(program, inputs, 3) if target == "cuda" else program.run(inputs)
    np.testing.assert_allclose(got[y.name], np.exp(x), rtol=1e-6)


def test_one_nest_is_checked() -> None:
    """The check of kernels has loops too; of those with one step it makes none."""
    f = ig.Fusion("f")
    y = f.output(ig.exp(f.input("x", (3, 5))))
    while len(y.loop) < 25:
        y.split(0, 1)
    r = validate(f, "python")
    assert r.ok and r.kernels is not None and r.kernels.exhaustive, str(r)


@pytest.mark.sampled
@pytest.mark.parametrize("target", ["python", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_every_case_in_two_loops(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums, scans, tiles, rows and gathers with statements between their loops, as if Python took two loops."""
    monkeypatch.setattr(scalar, "PYTHON_BLOCKS", 2)
    try:
        found = outcome(name, target)
    except EmitError as error:  # variables with types, set between loops; steps that the loop around them decides
        if target != "cpu" or "loops lie within each other" not in str(error):
            raise
        return
    assert found == ""


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["gather", "embedding", "take_along_dim", "scatter", "gather_of_itself"])
def test_checked_runs_in_two_loops(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalar, "PYTHON_BLOCKS", 2)
    assert outcome(name, "python", checked=True) == ""
