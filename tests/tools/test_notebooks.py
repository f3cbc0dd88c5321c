"""The notebook runner: stores what a source shows, and fails where that changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools import notebooks

SOURCE = """# %% [markdown]
# # A lesson

# %%
print("took 3.2 s at", object())
1 + 1
"""


def cell(text: str, shown: str) -> dict[str, Any]:
    """A notebook of one cell that printed `shown`."""
    output = {"output_type": "stream", "name": "stdout", "text": shown}
    return {"cells": [{"cell_type": "code", "source": text, "outputs": [output]}]}


def test_unstable_bits_do_not_count() -> None:
    assert (
        notebooks.difference(cell("f()", "<f at 0x7f12ab34cd> 1.25 ms"), cell("f()", "<f at 0x7e00000000> 9 ms")) == []
    )


@pytest.mark.parametrize(("source", "shown"), [("g()", "8"), ("f()", "9")])
def test_another_source_or_output_counts(source: str, shown: str) -> None:
    assert notebooks.difference(cell("f()", "8"), cell(source, shown))


@pytest.mark.thorough
@pytest.mark.slow
def test_update_check_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "lesson.py"
    source.write_text(SOURCE)
    assert notebooks.main([], tmp_path) == 1
    assert "is missing" in capsys.readouterr().out
    assert notebooks.main(["--update"], tmp_path) == 0
    stored = (tmp_path / "lesson.ipynb").read_text()
    assert json.loads(stored)["cells"][1]["outputs"][1]["data"]["text/plain"] == ["2"]
    assert notebooks.main(["--update"], tmp_path) == 0
    assert (tmp_path / "lesson.ipynb").read_text() == stored
    assert notebooks.main(["lesson"], tmp_path) == 0
    (tmp_path / "lesson.ipynb").write_text(stored.replace('"2"', '"3"'))
    assert notebooks.main([], tmp_path) == 1
    assert "+2" in capsys.readouterr().out


@pytest.mark.slow
def test_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "no" / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("IPYTHONDIR", raising=False)
    (tmp_path / "lesson.py").write_text(SOURCE)
    shown = notebooks.executed(tmp_path / "lesson.py", cwd=tmp_path)
    assert [o["output_type"] for o in shown["cells"][1]["outputs"]] == ["stream", "execute_result"]
    assert shown["cells"][1]["outputs"][0]["name"] == "stdout"
    assert not home.exists()


@pytest.mark.slow
def test_a_failing_cell_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lesson.py").write_text("# %%\n1 // 0\n")
    assert notebooks.main([], tmp_path) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_an_orphan_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old.ipynb").write_text("{}")
    assert notebooks.main([], tmp_path) == 1
    assert "old.ipynb has no source" in capsys.readouterr().out


def test_an_unknown_name_is_bad_input(tmp_path: Path) -> None:
    assert notebooks.main(["nothing"], tmp_path) == 2
