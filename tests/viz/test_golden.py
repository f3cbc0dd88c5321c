"""Pictures as DOT text, compared as a whole; the same on every run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.viz.cases import CASES, GOLDEN


@pytest.mark.parametrize("name", CASES)
def test_as_stored(name: str) -> None:
    stored = GOLDEN / f"{name}.dot"
    assert stored.exists(), f"{stored.name} is missing: python -m tests.viz.cases"
    assert CASES[name]() == stored.read_text(encoding="utf-8"), "if that is right: python -m tests.viz.cases"


def test_no_stored_picture_without_a_case() -> None:
    assert {p.stem for p in GOLDEN.glob("*.dot")} == CASES.keys()


def test_other_process_other_hashes() -> None:
    code = "from tests.viz.cases import CASES; print(CASES['rotation_index'](), CASES['deep_exact_collapsed']())"
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(texts) == 1


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
@pytest.mark.parametrize("name", CASES)
def test_graphviz_reads_it(name: str) -> None:
    done = subprocess.run(["dot", "-Tsvg"], input=CASES[name](), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr.replace("Fontconfig", "").strip() or "Error" not in done.stderr
