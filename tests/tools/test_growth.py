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


def test_rows_are_written_as_they_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured is in the file, whatever happens to the rows after it; a row that was stopped says so."""
    file, asked = tmp_path / "growth.json", list[tuple[str, int]]()

    def alone(family: str, size: int, limit: float) -> float | str:
        asked.append((family, size))
        if family == "plan of chain":
            raise KeyboardInterrupt
        return size * 2e-3 if size < 12 or "product" in family else f"over {limit:.0f} s"

    monkeypatch.setattr(growth, "alone", alone)
    families = ("product of k different sums", "(i+1) to the k", "plan of chain")
    with pytest.raises(KeyboardInterrupt):
        growth.main(["--quick", *(x for f in families for x in ("--family", f)), "--json", str(file)])
    first, second = (told := json.loads(file.read_text()))["rows"]
    assert first["sizes"] == [3, 6, 12] and first["seconds"] == [0.006, 0.012, 0.024] and first["exponent"] == 1.0
    assert second["seconds"][2] is None and second["exponent"] is None and "over 60 s at 12" in second["why"]
    assert told["machine"] and told["load"] and told["day"] and not list(tmp_path.glob("*.part"))
