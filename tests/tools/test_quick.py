"""A quick run: every module first, an end in time, one bar, one line for what was left out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.quick import arranged, bar

ROOT = Path(__file__).resolve().parents[2]


def test_a_test_of_every_module_comes_first() -> None:
    names = ["a::f[1]", "a::f[2]", "a::g", "a::h", "b::f", "c::f", "c::g"]
    items: list[Any] = [SimpleNamespace(nodeid=n) for n in names]
    found = [x.nodeid for x in arranged(items)]
    assert found == ["a::f[1]", "a::f[2]", "b::f", "c::f", "a::g", "c::g", "a::h"]


def test_the_bar() -> None:
    assert bar(0, 0, 0.0).startswith("[ ") and bar(10, 10, 1.0).count("#") == 40


def test_no_test_begins_when_the_time_is_up(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import tests.quick\n"
        "tests.quick.SECONDS = 1\n"
        "def pytest_configure(config):\n"
        "    config.pluginmanager.register(tests.quick.Quick(config))\n"
    )
    (tmp_path / "test_a.py").write_text("import time\ndef test_first(): time.sleep(1.2)\ndef test_second(): 1 / 0\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:randomly", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-o", "console_output_style=classic", f"--rootdir={tmp_path}", "-c", "/dev/null", str(tmp_path)],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 left to the whole suite" in done.stdout and "1 passed" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
