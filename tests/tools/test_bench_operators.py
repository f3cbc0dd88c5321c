"""The run over PyTorch's operator database: a few operators in every run, each twelfth one nightly."""

# torch gives lambdas of its tensors no types:
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.bench import operators
from tools.bench.operators import torch


def totals(monkeypatch: pytest.MonkeyPatch, out: Path, *arguments: str) -> dict[str, int]:
    monkeypatch.setattr(sys, "argv", ["operators", "--out", str(out), *arguments])
    assert operators.main() == 0
    return json.loads(out.read_text())["total"]


def test_rolls_are_equal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = totals(monkeypatch, tmp_path / "out.json", "--only", "roll", "--samples", "1", "--targets", "numpy")
    assert found == {"equal": 4}


def test_a_wrong_value_is_told() -> None:
    calls = iter((0.0, 1.0))  # eager first, then what is captured; the run in float64 is eager again

    def changing(x: Any) -> Any:
        return x + next(calls, 0.0)

    status, text = operators.tried(changing, (torch.ones(3),), ["numpy"])
    assert status == "differs" and "numpy" in text


def test_a_refusal_is_no_difference() -> None:
    def by_value(x: Any) -> Any:
        return x if bool(x.sum() > 0) else -x

    def of_seven(x: Any) -> Any:
        return x.reshape(7)

    assert operators.tried(by_value, (torch.ones(3),), ["numpy"])[0] == "refused"
    assert operators.tried(of_seven, (torch.ones(3),), ["numpy"])[0] == "torch refuses"


def test_where_eager_is_not_finite_float64_judges() -> None:
    """The remainder of a quotient that is too large is 0; torch on a CPU gives NaN for whole vectors of numbers."""
    a, b = torch.full((40,), 6.15625).bfloat16(), torch.full((40,), torch.finfo(torch.bfloat16).tiny).bfloat16()
    for f in (torch.fmod, torch.remainder):
        assert operators.no_farther(f, (a, b), a * 0, torch.where(torch.arange(40) < 32, torch.nan, 0.0).bfloat16())
        assert not operators.no_farther(f, (a, b), a * 0 + 1, a * torch.nan)
    inf = torch.full((3,), torch.inf)
    assert not operators.no_farther(lambda x: x * 2, (inf,), inf * 0, inf)  # float64 has no number there either
    assert not operators.no_farther(lambda x: x * 2, (torch.ones(3),), torch.ones(4), torch.ones(3))


def test_joined_rows_tell_their_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    row = {
        "operator": "roll",
        "dtype": "bool",
        "targets": ["numpy"],
        "counts": {"differs": 1},
        "first": {"differs": "0"},
    }
    (tmp_path / "old.rows").write_text(json.dumps(row) + "\n" + json.dumps(row | {"dtype": "int64", "counts": {}}))
    out = tmp_path / "new.json"
    known = totals(monkeypatch, out, "--only", "roll", "--dtypes", "bool", "--targets", "numpy", "--commit", "new")
    joined = ("--join", str(tmp_path / "old.rows"), str(tmp_path / "new.rows"), "--told", "torch=2.1", "commit=old")
    assert totals(monkeypatch, tmp_path / "all.json", *joined) == known
    found = json.loads((tmp_path / "all.json").read_text())
    assert [(r["dtype"], r["commit"]) for r in found["rows"]] == [("int64", "old"), ("bool", "new")]
    assert found["torch"] == {"2.1": 1, torch.__version__: 1} and found["samples"] == {"not told": 1, "2": 1}


@pytest.mark.nightly
def test_each_twelfth_operator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = totals(monkeypatch, tmp_path / "out.json", "--every", "12", "--samples", "2", "--targets", "numpy,cpu")
    assert found["equal"] > 80
