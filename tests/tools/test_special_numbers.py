"""The run of random programs at special numbers: some in every run, 2 000 nightly, also compiled."""

from __future__ import annotations

import sys

import pytest

from tools.judges import special_numbers as numbers
from tools.judges.special_numbers import Case, torch


@pytest.mark.parametrize("count", [20, pytest.param(60, marks=pytest.mark.nightly)])
def test_random_programs_are_torchs(count: int) -> None:
    made = numbers.programs(count, seed=7)
    assert set(numbers.tried(made, ["python", "numpy"])) == {"equal"}


def test_a_difference_and_a_refusal_are_told() -> None:
    x = torch.tensor([1.0, -0.0])
    assert numbers.judged(Case("x[0] * 2", (x,)), x * 2, x * 3)
    assert not numbers.judged(Case("x[0] * 2", (x,)), x * 2, x * 2)
    (told,) = numbers.tried([Case("x[0] if x[0].sum() > 0 else -x[0]", (x,))], ["numpy"])
    assert told.startswith("refused: ")


@pytest.mark.nightly
@pytest.mark.parametrize("targets", ["python,numpy", "cpu"])
def test_two_thousand(monkeypatch: pytest.MonkeyPatch, targets: str) -> None:
    monkeypatch.setattr(sys, "argv", ["numbers", "--programs", "2000", "--seed", "1", "--targets", targets])
    assert numbers.main() == 0
