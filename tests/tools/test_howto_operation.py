"""The pages on operations, element types and passes, done word by word on a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import idgraph

PACKAGE = Path(idgraph.__file__).parent
ROOT = PACKAGE.parent
PAGES = ROOT / "tools" / "docs" / "pages"
PATH = re.compile(r"`((?:idgraph|tools|tests)/[\w/.]*\w/?)`")
EDIT = re.compile(r"In `(idgraph/[\w/]+\.py)`, (before|after|instead of) `([^`]+)`:\n\n```text\n(.*?\n)```", re.DOTALL)

USE = """
import numpy as np
import idgraph as ig
from idgraph.ir.ops_pointwise import cube

assert ig.__file__.startswith({where!r}), ig.__file__
for dtype in ("float32", "bfloat16", "int32"):
    f = ig.Fusion("cubes")
    f.output(cube(f.input("x", (6,), dtype)))
    for target in ("python", "numpy", "cpu"):
        assert ig.validate(f, target=target), (dtype, target)
    assert "* t0" in ig.emit(f, "cuda").source
x = np.arange(7, dtype=np.float32) - 3
f = ig.Fusion("cubes")
f.output(cube(f.input("x", (7,))))
np.testing.assert_array_equal(ig.emit(f, "numpy").run({{"x": x}})["t1"], x**3)

a = np.array([0, 1, 300, 65535], np.uint16)
f = ig.Fusion("words")
x = f.input("x", (4,), "uint16")
f.output(x + x), f.output(ig.cast(x, "float32")), f.output(ig.cast(x * 2 - 1, "int32"))
assert f.outputs[0].dtype == "uint16"
for target in ("python", "numpy", "cpu"):
    out = list(ig.emit(f, target).run({{"x": a}}).values())
    np.testing.assert_array_equal(out[0], a + a)
    np.testing.assert_array_equal(out[1], a.astype(np.float32))
    np.testing.assert_array_equal(out[2], (a * np.uint16(2) - np.uint16(1)).astype(np.int32))
assert "u16(" in ig.emit(f, "cuda").source
assert ig.parse(str(f)).outputs[0].dtype == "uint16"
"""

RUN = """
import os

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
import idgraph as ig
from idgraph.ir import device

assert ig.__file__.startswith({where!r}), ig.__file__
f = ig.Fusion("rows")
x = f.input("x", (64, 3))
f.output(ig.sum(ig.exp(x), 1))
p = ig.emit(f, "cuda")
assert device.TARGETS["cuda"].passes[-1] == "unroll_short"
assert ", unroll:" in str(p.kernels[0]), p.kernels[0]
assert ig.validate(f, target="cuda")
"""


def edits(page: str = "howto_operation") -> list[tuple[str, str, str, str]]:
    return EDIT.findall((PAGES / f"{page}.md").read_text(encoding="utf-8"))


def test_the_page_has_its_steps() -> None:
    """Three for an operation, five for a type: a step more is a place more that a maintainer has to know."""
    files = [file for file, *_ in edits()]
    assert len(files) == 8
    assert files[:3] == [
        "idgraph/ir/op_table.py", "idgraph/ir/ops_pointwise.py", "idgraph/validate/oracle/evaluate.py",
    ]  # fmt: skip


@pytest.mark.slow
def test_what_the_page_says_is_enough(tmp_path: Path) -> None:
    edited(tmp_path, "howto_operation")
    check(tmp_path, USE)


@pytest.mark.slow
def test_a_pass_of_the_page_runs_in_every_program(tmp_path: Path) -> None:
    """The function of the page as a module, and the three edits; the device and the predicate are doctests there."""
    edited(tmp_path, "howto_compiler")
    page = (PAGES / "howto_compiler.md").read_text(encoding="utf-8")
    block = page[page.index(">>> from dataclasses") : page.index(">>> k = ")]
    lines = [line[4:] for line in block.splitlines() if "import idgraph as ig" not in line]
    (tmp_path / "idgraph" / "passes" / "short_loops.py").write_text("\n".join(lines), encoding="utf-8")
    check(tmp_path, RUN)


def test_files_that_the_pages_name_are_there() -> None:
    pages = [*PAGES.rglob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "README.md", ROOT / "tests" / "README.md"]
    named = {(page.name, name) for page in pages for name in PATH.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 20
    assert not [x for x in sorted(named) if not (ROOT / x[1]).exists()]


def edited(to: Path, page: str) -> None:
    """A copy of the package with the edits of a page."""
    shutil.copytree(PACKAGE, to / "idgraph", ignore=shutil.ignore_patterns("__pycache__"))
    for file, where, anchor, text in edits(page):
        path = to / file
        source = path.read_text(encoding="utf-8")
        assert source.count(anchor) == 1, (file, anchor)
        if where == "instead of":
            made = source.replace(anchor, text.rstrip("\n"))
        elif where == "before":
            made = source.replace(anchor, text + anchor)
        else:
            made = source.replace(anchor, f"{anchor}\n{text.rstrip()}")
        path.write_text(made, encoding="utf-8")


def check(where: Path, program: str) -> None:
    """Runs a program on the copy."""
    done = subprocess.run(
        [sys.executable, "-c", program.format(where=str(where))],
        env={**os.environ, "PYTHONPATH": str(where)},
        cwd=where,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
