"""The quick start, done as it says: its files are saved, its commands run, its pages are there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tools.env import ROOT

PAGE = (ROOT / "tools" / "docs" / "pages" / "quickstart.md").read_text(encoding="utf-8")
FILES = [x for x in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if ">>>" not in x]
COMMANDS = re.findall(r"^idgraph .*$", PAGE, re.MULTILINE)


def _done(folder: Path, text: str, commands: list[str]) -> None:
    (folder / "my_rope.py").write_text(text)
    for command in commands:
        words = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
    page = (folder / "rope.html").read_text(encoding="utf-8")
    assert "idgraphExplorer" in page and "my_rope.py" in page


@pytest.mark.thorough
@pytest.mark.slow
def test_the_commands_do_what_it_says(tmp_path: Path) -> None:
    assert len(FILES) == 2 and len(COMMANDS) == 3
    _done(tmp_path, FILES[0], COMMANDS)
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.thorough
@pytest.mark.slow
def test_the_function_of_torch_is_one_of_its_files(tmp_path: Path) -> None:
    """Of the same operations: what a command does to a fusion is tested above, how it reads the file here."""
    _done(tmp_path, FILES[1], COMMANDS[:1])
