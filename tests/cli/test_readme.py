"""The README's program runs and prints what the README says."""

import contextlib
import io
import linecache
import re
from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_program_of_the_readme() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    shown = re.findall(r"```\n(shift cycle.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[0]
    names: dict[str, Any] = {}
    printed = io.StringIO()
    linecache.cache["rope.py"] = (1, None, blocks[0].splitlines(keepends=True), "rope.py")
    with contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(compile(block, "rope.py", "exec"), names)
    lines = printed.getvalue().splitlines()
    # The lines of the report without the program's text behind them.
    assert [x.split(": t")[0] for x in lines[:5]] == [x.split(": t")[0] for x in shown.splitlines()]
    comments = re.findall(r"print\(m\.access.*?\)\)  # (.*)", blocks[1])
    apart = re.findall(r"```\n(t0\.I0 and.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[0].splitlines()
    assert lines[5 : 5 + len(comments)] == comments
    assert [x.split(": t")[0] for x in lines[5 + len(comments) :]] == [x.split(": t")[0] for x in apart]
