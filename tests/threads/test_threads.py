"""Any number of threads: the first use of the library, and long use, give the answers of one thread."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from idgraph.loading import LOADING, load

ROOT = Path(__file__).parents[2]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.threads.jobs", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(2, 8))])
def test_first_use_from_eight_threads(seed: int) -> None:
    done = _run("first", str(seed))
    assert done.returncode == 0, done.stdout + done.stderr


def test_eight_threads_answer_as_one() -> None:
    done = _run("soak", "3", "7")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
def test_eight_threads_for_ten_minutes() -> None:
    done = _run("soak", "600", "11")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_room_that_is_loaded_late_is_loaded_by_one_thread() -> None:
    with LOADING:  # the lock is the loader's own: the thread that holds it may load
        assert load("idgraph.display").__name__ == "idgraph.display"


def test_a_load_waits_for_the_thread_that_loads() -> None:
    loaded: list[str] = []
    other = threading.Thread(target=lambda: loaded.append(load("idgraph.display").__name__))
    with LOADING:
        other.start()
        other.join(0.3)
        assert other.is_alive() and not loaded
    other.join(60)
    assert loaded == ["idgraph.display"]
