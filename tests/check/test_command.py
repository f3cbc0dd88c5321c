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


MIRRORED = """func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  affine.for %i = 0 to 4 {
    %0 = affine.load %x[3 - %i] : memref<4xf32>
    affine.store %0, %y[%i] : memref<4xf32>
  }
  return
}"""
PRODUCED = "produce y {\n  for (i, 0, 4) {\n    y[i] = x[3 - i]\n  }\n}"


@pytest.mark.parametrize(("name", "text"), [("f.mlir", MIRRORED), ("f.stmt", PRODUCED)])
def test_text_of_a_compiler_with_its_meaning(name: str, text: str, tmp_path: Path) -> None:
    pytest.importorskip("lark")
    (tmp_path / "f.txt").write_text(FLIP)
    (tmp_path / name).write_text(text)
    right = run("check", name, "--means", "f.txt", cwd=tmp_path)
    assert right.returncode == 0 and "0 refuted, 0 unknown" in right.stdout, right.stderr
    (tmp_path / name).write_text(text.replace("3 - ", ""))
    wrong = run("check", name, "--means", "f.txt", cwd=tmp_path)
    assert wrong.returncode == 1 and "meant x[3]" in wrong.stdout
    (tmp_path / name).write_text(text[: len(text) // 2])
    for more in (("--means", "f.txt"), ()):
        bad = run("check", name, *more, cwd=tmp_path)
        assert bad.returncode == 2 and bad.stderr.strip() and not bad.stdout


def test_what_is_unknown_is_printed_and_no_failure(tmp_path: Path) -> None:
    path = written(tmp_path, "3 - i")
    data: dict[str, Any] = json.loads(path.read_text())
    data["nests"][0]["loads"] = {"v": {"text": "floor(x * 0.5)"}}
    data["nests"][0]["writes"][0]["reads"][0]["when"] = "v > 0"
    path.write_text(json.dumps(data))
    shown = run("check", "--program", str(path), cwd=tmp_path)
    assert shown.returncode == 0 and "unknown: k reads x" in shown.stdout


@pytest.mark.parametrize("budget", [0, -5, None, 2.5])
def test_a_budget_is_a_positive_number(budget: Any, tmp_path: Path) -> None:
    with pytest.raises(ig.check.CheckError, match="budget"):
        ig.check.program(written(tmp_path, "3 - i"), budget=budget)
