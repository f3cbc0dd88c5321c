"""Files about the repository say what is there: versions, folders, rooms, lint exceptions, pictures, benchmarks."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

import idgraph as ig
from idgraph.cli.commands import cli
from tools.checks.common import tracked
from tools.docs import generated, series
from tools.docs.pictures import PICTURES
from tools.env import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = {c["id"]: c for c in PROJECT["tool"]["importlinter"]["contracts"]}
ROOMS = {room for line in CONTRACTS["layers"]["layers"] for room in line.split(" | ")} - {"__main__"}


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_one_version_in_three_places() -> None:
    newest = re.search(r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)$", text("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == ig.__version__ == PROJECT["project"]["version"]


def test_each_lint_exception_is_of_a_file_that_is_there() -> None:
    names = tracked(ROOT)
    for pattern in PROJECT["tool"]["ruff"]["lint"]["per-file-ignores"]:
        for form in unfolded(pattern):
            assert any(matches(name, form) for name in names), form


def unfolded(pattern: str) -> Iterator[str]:
    """The patterns that one with braces stands for."""
    braces = re.search(r"\{([^{}]*)\}", pattern)
    if braces is None:
        yield pattern
        return
    for word in braces[1].split(","):
        yield from unfolded(pattern[: braces.start()] + word + pattern[braces.end() :])


def matches(name: str, form: str) -> bool:
    """Whether a glob of a lint exception fits a path; ``**`` spans folders."""
    parts = [".*" if part == "**" else re.escape(part).replace(r"\*", "[^/]*") for part in form.split("/")]
    return re.fullmatch("/".join(parts), name) is not None


def test_the_readme_of_the_tests_names_every_folder_and_no_other() -> None:
    there = {name.split("/")[1] for name in tracked(ROOT) if name.count("/") > 1 and name.startswith("tests/")}
    there -= {"data"}
    table = [row.split("|")[1] for row in text("tests/README.md").splitlines() if row.startswith("| `")]
    named = {folder.rstrip("/") for cell in table for folder in re.findall(r"[\w-]+/", cell)}
    assert named == there


@pytest.mark.parametrize(
    ("contract", "key", "spared"),
    [
        ("oracle", "forbidden_modules", {"loading", "errors", "display", "arith", "ir", "validate"}),
        ("one-door-to-sympy", "source_modules", {"arith"}),
        (
            "testing", "forbidden_modules",
            {"loading", "errors", "display", "arith", "ir", "layout", "rewrite", "schedule", "testing"},
        ),
    ],
)  # fmt: skip
def test_each_contract_names_every_room(contract: str, key: str, spared: set[str]) -> None:
    assert {name.removeprefix("idgraph.") for name in CONTRACTS[contract][key]} == ROOMS - spared


def test_the_order_of_rooms_is_told_alike() -> None:
    layers = [set(line.split(" | ")) for line in reversed(CONTRACTS["layers"]["layers"]) if line != "__main__"]
    for name in ("CONTRIBUTING.md", "tools/docs/pages/architecture.md"):
        told = re.search(r"loading < errors[^`]*?< cli\b", text(name))
        assert told is not None
        assert [set(re.findall(r"\w+", part)) for part in told[0].split(" < ")] == layers, name
    assert {path.name.removesuffix(".py") for path in (ROOT / "idgraph").iterdir()} - {"__pycache__", "py"} >= ROOMS


def test_each_picture_of_the_readme_is_drawn_by_the_code() -> None:
    shown = re.findall(r"!\[[^]]*\]\(((?!https:)[^)]*)\)", text("README.md"))
    assert shown
    assert set(shown) <= {f"tools/docs/pictures/{name}.svg" for name in PICTURES}


def test_the_series_ends_with_the_tables_as_they_are() -> None:
    """``python -m tools.docs.series add TABLE`` where this fails: the figures of a table are kept with their day."""
    runs = series.read()
    for table in series.TABLES:
        now = series.run_of(table, (series.RESULTS / f"{table}.json").read_text(), "", "")
        assert now is not None
        last = next(run for run in reversed(runs) if run.table == table)
        assert last.figures == now.figures, table


def test_a_series_draws_every_figure_of_every_run() -> None:
    runs = [
        series.Run("2026-01-01", "a" * 10, "m", "cpu", "x", {"one": 1.0, "two <b>": 2.0}),
        series.Run("2026-02-01", "b" * 10, "m", "cpu", "x", {"one": 1.5}),
    ]
    assert series.added(runs, [runs[-1]]) == runs  # the same figures are not news
    drawn = series.page(runs)
    assert drawn.count("<circle") == 3
    assert "two <b>" not in series.svg(runs)
    assert "| one | 1 | 1.5 | 1.5 |" in drawn


def test_generated_pages_have_every_command_and_notebook() -> None:
    made = generated.pages()
    assert {f"{name}.md" for name in (path.stem for path in generated.NOTEBOOKS.glob("*.ipynb"))} < made.keys()
    line = made["command_line.md"]
    assert "| `--measure` | With --csv" in line
    assert not re.findall(r"^\| `--[^`]*` \|  ?\|$", line, re.MULTILINE), "an option without a word about it"
    shown = CliRunner().invoke(cli, ["show", "-h"])  # click keeps what a command was first asked with
    assert shown.exit_code == 0, shown.output
    assert "`'vectorize'`" in made["words.md"]


def test_one_tensor_goes_through_every_package() -> None:
    """The table of CONTRIBUTING.md names each package once, and files that are there."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| ((?:`\w+`(?:, )?)+) \| ((?:`[\w/.]+`(?:, )?)+) \|", text.partition("### One tensor")[2], re.M
    )
    pairs = [(room, file) for a, b in rows for room, file in zip(a.split(", "), b.split(", "), strict=True)]
    assert sorted(room.strip("`") for room, _ in pairs) == sorted(
        p.parent.name for p in ROOT.glob("idgraph/*/__init__.py")
    )
    missing = [
        f"{room}/{file}" for room, file in pairs if not (ROOT / "idgraph" / room.strip("`") / file.strip("`")).exists()
    ]
    assert not missing
