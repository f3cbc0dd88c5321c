"""The table of whole models: its text says what failed, and compares what did not."""

from __future__ import annotations

from tools.bench.models import FAMILIES, MODES, Row, Table


def test_the_table_has_a_row_a_part_and_tells_what_failed() -> None:
    rows = [Row("llama", "forward", m, t, t, 1.0, 0.0) for m, t in zip(MODES, (3.0, 2.0, 1.0), strict=True)]
    rows += [Row("bert", "forward", m, failed="not finished in 9 s") for m in MODES]
    text = Table({"processor": "one"}, rows).text()
    lines = text.splitlines()
    assert lines[1].split()[:5] == ["llama", "forward", "3.000", "2.000", "1.000"]
    assert "idgraph: not finished in 9 s" in lines[2]
    assert lines[3] == "forward: Inductor over idgraph, geometric mean 2.00, least 2.00"


def test_each_model_has_a_size_for_both_devices() -> None:
    assert len(FAMILIES) >= 18 and all(f.config.endswith("Config") and f.model for f in FAMILIES.values())
