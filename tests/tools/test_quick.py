"""A quick run: a part of the modules, each of them early, an end in time, one bar, one line for what was left out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.quick import SHARE, arranged, bar, chosen, groups

ROOT = Path(__file__).resolve().parents[2]


def test_a_test_of_every_module_comes_first() -> None:
    names = ["a::f[1]", "a::f[2]", "a::g", "a::h", "b::f", "c::f", "c::g"]
    items: list[Any] = [SimpleNamespace(nodeid=n) for n in names]
    found = [x.nodeid for x in arranged(items)]
    assert found == ["a::f[1]", "a::f[2]", "b::f", "c::f", "a::g", "c::g", "a::h"]


def test_the_bar() -> None:
    assert bar(0, 0, 0.0).startswith("[ ") and bar(10, 10, 1.0).count("#") == 40


def test_a_run_takes_a_part_of_each_folder_and_seeds_take_all() -> None:
    modules = groups((ROOT / "tests").rglob("test_*.py"))
    runs = [chosen(modules, seed) for seed in range(200)]
    assert {len(run) for run in runs} == {len(runs[0])} and 3 * len(runs[0]) < sum(map(len, modules.values()))
    assert all(run & set(group) for run in runs for group in modules.values())
    assert chosen(groups(modules["ir"][::-1]), 1) == chosen({"ir": modules["ir"]}, 1)
    assert runs[1] != runs[2] and set.union(*runs) == {x for group in modules.values() for x in group}


def test_tests_for_a_gpu_are_a_group() -> None:
    modules = groups((ROOT / "tests").rglob("test_*.py"))
    device = ROOT / "tests" / "emit" / "test_gpu.py"
    assert device in modules["emit on a GPU"] and device not in modules["emit"]


CONFTEST = """import tests.quick
tests.quick.SECONDS = {seconds}
def pytest_configure(config):
    config.pluginmanager.register(tests.quick.Quick(config))
"""


def run(folder: Path, seconds: float, *arguments: str) -> str:
    """What a quick run in a folder prints; it passes, without a traceback."""
    (folder / "conftest.py").write_text(CONFTEST.format(seconds=seconds))
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = inner\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:randomly", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-o", "console_output_style=classic", f"--rootdir={folder}", *arguments],
        cwd=folder, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout


def test_modules_of_other_runs_are_not_imported(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    for n in range(2 * SHARE):
        (inner / f"test_{n}.py").write_text(f"open('imported{n}', 'w').close()\ndef test(): pass\n")
    assert "2 passed" in run(tmp_path, 60)
    assert len(list(tmp_path.glob("imported*"))) == 2
    assert f"{2 * SHARE} passed" in run(tmp_path, 60, "inner")  # named


def test_no_test_begins_when_the_time_is_up(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("import time\ndef test_first(): time.sleep(1.2)\ndef test_second(): 1 / 0\n")
    shown = run(tmp_path, 1, str(tmp_path))
    assert "1 not begun within 1 s" in shown and "1 passed" in shown
