"""The run over PyTorch's operator database: a few operators in every run, each twelfth one nightly."""

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


@pytest.mark.nightly
def test_each_twelfth_operator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = totals(monkeypatch, tmp_path / "out.json", "--every", "12", "--samples", "2", "--targets", "numpy,cpu")
    assert found["equal"] > 80
