"""The README's programs run and print what the README says; it is short, and its install lines are the package's."""

import contextlib
import io
import linecache
import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MOST_WORDS = 700


def test_the_programs_of_the_readme() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    refuted, cycle = re.findall(r"```\n((?:refuted|shift cycle).*?)```", README, re.DOTALL)
    names: dict[str, Any] = {}
    printed: list[list[str]] = []
    named = re.findall(r"[Ii]n `(\w+\.py)`", README)
    for block, file in zip(blocks, [*named, named[-1]], strict=True):  # the last one continues the second
        linecache.cache[file] = (1, None, block.splitlines(keepends=True), file)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(block, file, "exec"), names)
        printed.append(out.getvalue().splitlines())
    assert printed[0][: len(refuted.splitlines())] == refuted.splitlines()
    # The lines of the report without the program's text behind them.
    assert [x.split(": t")[0] for x in printed[1]] == [x.split(": t")[0] for x in cycle.splitlines()]
    assert printed[2] == re.findall(r"print\(m\.access.*?\)\)  # (.*)", blocks[2])


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= MOST_WORDS


def test_the_install_lines_name_this_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"`{project['name']}`" in README
    extras = re.findall(r'"\.\[(\w+)\]"', README)
    assert extras and set(extras) <= set(project["optional-dependencies"])
    # No page and no hint sends a reader to the other project on the public index.
    sent = re.compile(r"pip install [\"']?idgraph(?![\w-])")
    pages = [ROOT / "README.md", *(ROOT / "tools/docs/pages").glob("*.md"), *(ROOT / "idgraph").rglob("*.py")]
    assert [p.name for p in pages if sent.search(p.read_text(encoding="utf-8"))] == []
