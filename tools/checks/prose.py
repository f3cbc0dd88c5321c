"""Forms of sentences that readers stumbled over do not come back: in docstrings, and in the messages of errors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tools.checks.common import Finding, command, tracked

FIRST = re.compile(r"\s*(?:What|Whatever|Whoever|Who)\b")
SPARED = "longer|more|less|such|one|other|better|obstacle"
NOT_A = re.compile(rf"(?<!here )\b(?:is|are|was|were) no (?!(?:{SPARED})\b)[a-z]")
NOUNS = "array|condition|integer|number|tensor|axis|name|string|text|list|mapping|callable|operation|fusion"
TAIL = re.compile(rf", no (?:{NOUNS})\b")


def rule(root: Path) -> list[Finding]:
    """Every docstring of the package that begins with "What", every "is no ..." and every ", no integer" in it."""
    names = [name for name in tracked(root) if name.startswith("idgraph/") and name.endswith(".py")]
    return [f for name in names for f in stumbles(name, (root / name).read_text(encoding="utf-8"))]


def stumbles(name: str, source: str) -> Iterator[Finding]:
    """The findings of one module."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            line = node.body[0].lineno if text else 0
            if FIRST.match(text):
                yield Finding(name, line, "a docstring begins with a noun or a verb, not with what or who")
            if NOT_A.search(text):
                yield Finding(name, line, f"say `is not a`: {_found(NOT_A, text)}")
        elif isinstance(node, ast.Raise):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    for form in (NOT_A, TAIL):
                        if form.search(part.value):
                            yield Finding(name, part.lineno, f"say `not a`: {_found(form, part.value)}")


def _found(form: re.Pattern[str], text: str) -> str:
    at = form.search(text)
    return "" if at is None else " ".join(text[max(0, at.start() - 20) : at.end() + 12].split())


if __name__ == "__main__":
    command(rule)
