"""The benchmark of the planner: what was measured is in its file, whatever happens to the rows after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.bench import planning


def test_rows_are_written_as_they_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "planning.json"
    calls: list[int] = []

    def measured(family: str, n: int, limit: float) -> dict[str, Any]:
        if n == 400:
            raise KeyboardInterrupt
        calls.append(n)
        return {"family": family, "operations": n, "auto_s": n * 1e-3, "plan_s": n * 2e-3, "before": n, "after": 1}

    monkeypatch.setattr(planning, "measured", measured)
    monkeypatch.setattr(
        "sys.argv", ["planning", "--sizes", "100", "200", "400", "--family", "chain", "--json", str(out)]
    )
    with pytest.raises(KeyboardInterrupt):
        planning.main()
    told = json.loads(out.read_text(encoding="utf-8"))
    assert calls == [100, 200] == [r["operations"] for r in told["rows"]]
    assert told["growth"] == {"chain": {"auto_s": 1.0, "plan_s": 1.0}}
    assert told["machine"] and told["load"] and told["day"]
    assert not list(tmp_path.glob("*.part"))
