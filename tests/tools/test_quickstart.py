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


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_the_commands_do_what_it_says(number: int, tmp_path: Path) -> None:
    assert len(FILES) == 2 and len(COMMANDS) == 3
    (tmp_path / "my_rope.py").write_text(FILES[number])
    for command in COMMANDS:
        words = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
    page = (tmp_path / "rope.html").read_text(encoding="utf-8")
    assert "idgraphExplorer" in page and "my_rope.py" in page
    assert (tmp_path / "report.html").stat().st_size > 10_000
