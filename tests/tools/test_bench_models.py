"""The table of whole models: its text says what failed, and compares what did not."""

from __future__ import annotations

import json
from pathlib import Path

from tools.bench.models import MODES, Row, Table
from tools.programs.model_families import TIMED, families

RESULTS = Path(__file__).parents[2] / "tools/bench/results/model_values.json"


def test_the_table_has_a_row_a_part_and_tells_what_failed() -> None:
    rows = [Row("llama", "forward", m, t, t, 1.0, 0.0) for m, t in zip(MODES, (3.0, 2.0, 1.0), strict=True)]
    rows += [Row("bert", "forward", m, failed="not finished in 9 s") for m in MODES]
    text = Table({"processor": "one"}, rows).text()
    lines = text.splitlines()
    assert lines[1].split()[:5] == ["llama", "forward", "3.000", "2.000", "1.000"]
    assert "idgraph: not finished in 9 s" in lines[2]
    assert lines[3] == "forward: Inductor over idgraph, geometric mean 2.00, least 2.00"


def test_each_model_names_what_it_is_made_of() -> None:
    found = families()
    assert set(TIMED) <= set(found)
    assert sum(f.package == "transformers" for f in found.values()) >= 40
    assert sum(f.package != "transformers" for f in found.values()) >= 20
    for name, f in found.items():
        assert f.model and (f.package != "transformers" or f.config.endswith("Config")), name
        assert f.kind in ("text", "pictures", "pairs", "sound"), name


def test_the_stored_table_of_values_is_of_these_models() -> None:
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    assert {r["model"] for r in rows} <= set(families())
