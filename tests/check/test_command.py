"""``idgraph check --inductor FILE.py`` and ``--program FILE.json``: exit codes, JSON, one line for bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import idgraph as ig
from tests.cli.test_commands import run

FLIP = 'fusion "f" {\n  x = input(shape=(4,), dtype="float32")\n  y = flip(x, dims=(0,))\n  output y\n}'


def written(folder: Path, index: str) -> Path:
    write = {"buffer": "y", "index": "i", "reads": [{"buffer": "x", "index": index}]}
    path = folder / "nests.json"
    path.write_text(json.dumps({"program": FLIP, "nests": [{"name": "k", "loops": [["i", 4]], "writes": [write]}]}))
    return path


def test_a_right_program_ends_with_0_and_a_wrong_one_with_1(tmp_path: Path) -> None:
    right = run("check", "--program", str(written(tmp_path, "3 - i")), cwd=tmp_path)
    assert right.returncode == 0 and "2 proved" in right.stdout
    wrong = run("check", "--program", str(written(tmp_path, "i")), cwd=tmp_path)
    assert wrong.returncode == 1 and "meant x[3]" in wrong.stdout


def test_json_has_every_row(tmp_path: Path) -> None:
    shown = run("check", "--program", "--json", str(written(tmp_path, "i")), cwd=tmp_path)
    found: dict[str, Any] = json.loads(shown.stdout)
    assert shown.returncode == 1
    assert {r["verdict"] for r in found["rows"]} == {"proved", "refuted"}


def test_a_function_through_inductor(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "model.py"
    file.write_text("import torch\nfn = lambda x: torch.roll(x, 2, 1) + 1\nargs = (torch.ones(3, 5),)\n")
    shown = run("check", "--inductor", "--json", str(file), cwd=tmp_path)
    rows = json.loads(shown.stdout)["rows"]
    assert shown.returncode == 0 and {r["stage"] for r in rows} == {"graph", "before", "after"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--inductor",), "x = 1\n"), (("--inductor",), "fn = 3\nargs = ()\n"), (("--program",), "{"),
        (("--program",), '{"program": "", "nests": []}'), (("--program", "--inductor"), "fn = abs\nargs = (1,)\n"),
    ],
)  # fmt: skip
def test_bad_files_end_in_one_error(options: tuple[str, ...], text: str, tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text(text)
    shown = run("check", *options, str(file), cwd=tmp_path)
    assert shown.returncode == 2 and shown.stderr.startswith("error: ") and shown.stderr.count("\n") == 1
    assert not shown.stdout


@pytest.mark.parametrize("budget", [0, -5, None, 2.5])
def test_a_budget_is_a_positive_number(budget: Any, tmp_path: Path) -> None:
    with pytest.raises(ig.check.CheckError, match="budget"):
        ig.check.program(written(tmp_path, "3 - i"), budget=budget)
