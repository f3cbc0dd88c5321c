"""What pages tell a reader to type exists and runs: commands with options, modules, blocks of code, install."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from idgraph.cli.commands import cli
from tools.docs.generated import EXAMPLES, NOTEBOOKS
from tools.env import ROOT

DOCS = ROOT / "tools" / "docs"
PAGES = [
    p
    for p in (
        *sorted((DOCS / "pages").glob("*.md")), DOCS / "index.md", DOCS / "rules.md", ROOT / "README.md",
        ROOT / "CONTRIBUTING.md", NOTEBOOKS / "README.md",
    )
    if p.is_file()
]  # fmt: skip
STARTS = re.compile(r"(?:idgraph|tools/(?:test|demo|check)|python3? -m|pip install)(?: |$)")
EXAMPLE_LINES = 20


def commands() -> Iterator[tuple[str, str]]:
    """(page, command) of blocks and of code in a sentence."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = [b for language, b in re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL) if language in ("", "sh")]
        lines = [line for b in blocks for line in b.splitlines()]
        inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        for line in (*lines, *inline):
            for part in line.partition("  #")[0].split("&&"):
                if STARTS.match(part.strip()):
                    yield page.name, part.strip()


COMMANDS = sorted(set(commands()))


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 30 and {c.split()[0] for _, c in COMMANDS} >= {"idgraph", "python", "pip", "tools/test"}


@pytest.mark.parametrize(("page", "command"), [c for c in COMMANDS if c[1].startswith("idgraph ")])
def test_a_command_takes_its_options(page: str, command: str) -> None:
    """Parsed by click with all options and values; what runs them is tested in `tests/cli` and `test_quickstart.py`."""
    name, *words = shlex.split(command)[1:]
    found = cli.get_command(click.Context(cli), name)
    assert found is not None, (page, command)
    if not words and any(isinstance(p, click.Argument) and p.required for p in found.params):
        return  # the command is only named
    found.make_context(name, words)


@pytest.mark.parametrize(("page", "command"), [c for c in COMMANDS if c[1].startswith("python")])
def test_a_module_is_there(page: str, command: str) -> None:
    module = shlex.split(command)[2]
    assert importlib.util.find_spec(module) is not None, (page, command)


@pytest.mark.parametrize(("page", "command"), [c for c in COMMANDS if c[1].startswith("pip install")])
def test_an_install_line_is_this_project_s(page: str, command: str) -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {*project["optional-dependencies"], "all"}
    for word in shlex.split(command)[2:]:
        named = re.fullmatch(r"([^\[]*)(?:\[([\w,]+)\])?", word)
        assert named is not None and named[1] != "idgraph", (page, command)
        if named[1] in (".", project["name"]) and named[2]:
            assert set(named[2].split(",")) <= extras, (page, command)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.stem)
def test_an_example_runs_and_prints(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= EXAMPLE_LINES and source.startswith('"""')
    env = {"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(path.parent)}
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() and not done.stderr


def test_there_are_eight_examples() -> None:
    assert len(list(EXAMPLES.glob("*.py"))) == 8


def test_every_block_of_python_is_run_somewhere() -> None:
    """Blocks with prompts are doctests (`tools/check doctests`); others are those of tests that name their page."""
    run = {"README.md", "quickstart.md", "check.md"}
    for page in PAGES:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        if any(">>>" not in b for b in blocks):
            assert page.name in run, page.name


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_the_programs_of_the_page_on_checking(tmp_path: Path) -> None:
    text = (DOCS / "pages" / "check.md").read_text(encoding="utf-8")
    first, *rest = [b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if ">>>" not in b]
    (tmp_path / "page.py").write_text(first, encoding="utf-8")
    env = os.environ | {"PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, check=True, env=env
    )
    assert "refuted" in done.stdout
    for block in rest:
        compile(block, "check.md", "exec")  # of TVM, which is not installed everywhere: its names are there
        for module, name in re.findall(r"^from (idgraph[\w.]*) import (\w+)", block, re.MULTILINE):
            assert hasattr(importlib.import_module(module), name)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("source", ["checkout", "wheel", "git"])
def test_each_documented_way_to_install_gives_this_library(source: str, tmp_path: Path) -> None:
    """A checkout, a wheel, a git URL; the packages that it needs are those of the tests."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    what = {"checkout": str(ROOT), "git": f"git+file://{ROOT}"}.get(source)
    if source == "wheel":
        subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)], check=True)
        (wheel,) = tmp_path.glob("*.whl")
        what = str(wheel)
    assert what is not None
    folder = tmp_path / "installed"
    subprocess.run([*pip, "install", "-q", "--no-deps", "--target", str(folder), what], check=True)
    path = os.pathsep.join([str(folder), *(p for p in sys.path if p.endswith("site-packages"))])
    program = (
        "import idgraph as ig, importlib.metadata as m; print(ig.IdModel, ig.__file__, m.version('idgraph-analysis'))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=tmp_path, env={"PYTHONPATH": path}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert "IdModel" in done.stdout and str(folder) in done.stdout
