"""Work grows no faster than what is asked: each family at small sizes, by processor time, with room for noise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.bench import growth

SMALL = {  # family -> size, most seconds of processor time on a machine that is three times as slow as the slowest seen
    "product of (n+1) in a text": (24, 2.0),
    "(i+1) to the k": (12, 1.0),
    "product of k different sums": (24, 1.0),
    "nested // and %, one inside": (28, 1.0),
    "nested // and %, shared": (14, 3.0),
    "splits that do not divide": (50, 3.0),
    "splits of a symbolic extent": (30, 5.0),
    "splits that divide": (100, 2.0),
    "merges of a rank": (64, 1.0),
    "tensors in a cat": (250, 4.0),
    "rank, transposed": (64, 2.0),
    "operations in a text": (2500, 3.0),
    "where inside where": (60, 5.0),
    "conditions of many symbols": (100, 5.0),
    "resizes of a loop": (160, 2.0),
    "pads of pads": (60, 8.0),
    "rolls of rolls, scheduled": (120, 5.0),
    "cats of cats, scheduled": (120, 6.0),
    "gathers of gathers, scheduled": (120, 15.0),
}


def test_every_family_is_tried() -> None:
    assert set(SMALL) == set(growth.FAMILIES)


@pytest.mark.sampled
@pytest.mark.parametrize("family", SMALL)
def test_a_family_stays_within_its_time(family: str) -> None:
    size, seconds = SMALL[family]
    told = growth.alone(family, size, 60.0)
    assert isinstance(told, float), told
    assert told < seconds


def test_a_row_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "growth.json"
    monkeypatch.setattr(
        "sys.argv", ["growth", "--quick", "--family", "product of k different sums", "--json", str(file)]
    )
    growth.main()
    (row,) = json.loads(file.read_text())["rows"]
    assert row["sizes"] == [3, 6, 12] and all(s is not None for s in row["seconds"])
    assert "product of k different sums" in capsys.readouterr().out
