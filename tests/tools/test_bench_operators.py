"""The run over PyTorch's operator database: a few operators in every run, every one nightly."""

# torch gives lambdas of its tensors no types:
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import itertools
import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import idgraph as ig
from tools.bench import operators
from tools.bench.operators import torch

SLICES = 14


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


def test_calls_that_differ_in_values_share_a_capture() -> None:
    captured = list[int]()

    def shifted(x: Any, by: Any) -> Any:
        captured.append(1)
        return x + by

    def tried(x: Any, by: Any) -> tuple[str, str]:
        return operators.tried(lambda x: shifted(x, by), (x,), ["numpy"], 60, operators.likeness([x, by]), programs)

    programs: dict[Any, Any] = {}
    assert tried(torch.ones(3), 1) == tried(torch.zeros(3), 1) == ("equal", "")
    assert len(captured) == 3 and len(programs) == 1  # eager twice, captured once
    others = (torch.ones(4), 1), (torch.ones(6)[::2], 1), (torch.ones(3), 1.0), (torch.ones(3).int(), 1)
    assert [tried(*o)[0] for o in others] == ["equal"] * 4 and len(programs) == 5
    assert len({operators.likeness(v) for v in (0.0, -0.0, False, 0, None, "0")}) == 6


def test_threads_of_others_are_not_waited_for() -> None:
    """Pools of torch's Inductor have threads that end with the process."""
    end = threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()
    try:
        assert operators.tried(lambda x: x + 1, (torch.ones(3),), ["numpy"]) == ("equal", "")
        assert other.is_alive()
    finally:
        end.set()
        other.join()


def test_a_shared_program_of_other_values_is_captured_again() -> None:
    programs: dict[Any, Any] = {"like": ig.from_torch(lambda x: x + 1, (torch.ones(3),))}
    assert operators.tried(lambda x: x + 2, (torch.ones(3),), ["numpy"], 60, "like", programs) == ("equal", "")
    assert operators.tried(lambda x: x.reshape(2, 2), (torch.ones(4),), ["numpy"], 60, "like", programs)[0] == "equal"


def test_a_refusal_is_no_difference() -> None:
    def by_value(x: Any) -> Any:
        return x if bool(x.sum() > 0) else -x

    def of_seven(x: Any) -> Any:
        return x.reshape(7)

    assert operators.tried(by_value, (torch.ones(3),), ["numpy"])[0] == "refused"
    assert operators.tried(of_seven, (torch.ones(3),), ["numpy"])[0] == "torch refuses"


def test_a_limit_is_processor_time() -> None:
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, operators.stop)
    try:
        operators.limit(0.2)
        time.sleep(0.5)  # a busy machine
        with pytest.raises(operators.Slow):
            sum(1 for _ in itertools.count())
        operators.limit(0.02)
        with pytest.raises(operators.Slow):
            time.sleep(60)
    finally:
        operators.limit(0)


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
    joined = ("--join", str(tmp_path / "old.rows"), str(tmp_path / "new.rows"), "--recorded", "torch=2.1", "commit=old")
    assert totals(monkeypatch, tmp_path / "all.json", *joined) == known
    found = json.loads((tmp_path / "all.json").read_text())
    assert [(r["dtype"], r["commit"]) for r in found["rows"]] == [("int64", "old"), ("bool", "new")]
    assert found["torch"] == {"2.1": 1, torch.__version__: 1} and found["samples"] == {"not recorded": 1, "2": 1}


@pytest.mark.thorough
def test_processes_share_the_samples_of_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    of_rolls = ("--only", "roll", "--dtypes", "int64", "--samples", "5", "--targets", "numpy")
    alone = totals(monkeypatch, tmp_path / "alone.json", *of_rolls)
    shared = (*of_rolls, "--claims", str(tmp_path / "claims"))
    monkeypatch.setattr(operators, "PART", 2)
    assert totals(monkeypatch, tmp_path / "a.json", *shared, "--seconds", "0") == {}
    assert totals(monkeypatch, tmp_path / "b.json", *shared, "--seconds", "1e-9") == {}
    (tmp_path / "claims" / "roll int64 1 3").touch()  # another process has it
    assert totals(monkeypatch, tmp_path / "c.json", *shared) == {"equal": 3}
    assert json.loads((tmp_path / "c.json").read_text())["samples"] == "3 of 5, spread evenly"
    parts = [json.loads(x)["part"] for x in (tmp_path / "c.rows").read_text().splitlines()]
    assert parts == [[0, 3], [2, 3]]
    known = (*of_rolls, "--claims", str(tmp_path / "later"), "--known", str(tmp_path / "c.rows"))
    totals(monkeypatch, tmp_path / "d.json", *known)
    both = ("--join", str(tmp_path / "c.rows"), str(tmp_path / "d.rows"))
    assert totals(monkeypatch, tmp_path / "all.json", *both) == alone
    assert totals(monkeypatch, tmp_path / "e.json", *of_rolls, "--known", str(tmp_path / "all.rows")) == {}
    again = (*of_rolls, "--known", str(tmp_path / "all.rows"), "--again", "slow,equal")
    assert totals(monkeypatch, tmp_path / "f.json", *again) == alone


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(SLICES))
def test_every_operator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: int) -> None:
    """A sample of every operator and type on three targets: some 13 minutes of processor time for all slices."""
    sliced = ("--every", str(SLICES), "--first", str(first), "--samples", "1", "--case-seconds", "20")
    assert totals(monkeypatch, tmp_path / "out.json", *sliced)["equal"] > 60
