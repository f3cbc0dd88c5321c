"""A module over 500 lines or a function over 60 says why in its docstring, in a line that begins with `Long:`.

Examples in docstrings do not count.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tools.checks.common import Finding, command, tracked

MODULE_LINES = 500
FUNCTION_LINES = 60

Documented = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


def rule(root: Path) -> list[Finding]:
    """Every module and function of the package and the tools that is long without a reason."""
    names = [name for name in tracked(root) if name.endswith(".py") and name.startswith(("idgraph/", "tools/"))]
    return [finding for name in names for finding in long_places(name, (root / name).read_text(encoding="utf-8"))]


def long_places(name: str, source: str) -> list[Finding]:
    """The long places of one module."""
    module = ast.parse(source)
    lines = len(source.splitlines()) - _example_lines(module)
    findings: list[Finding] = []
    if lines > MODULE_LINES and not _explained(module):
        findings.append(Finding(name, 0, f"{lines} lines (over {MODULE_LINES}): is it one concept?"))
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1 - _docstring_lines(node)
            if size > FUNCTION_LINES and not _explained(node):
                findings.append(Finding(name, node.lineno, f"{node.name} has {size} lines (over {FUNCTION_LINES})"))
    return findings


def _explained(node: Documented) -> bool:
    return any(line.strip().startswith("Long:") for line in (ast.get_docstring(node) or "").splitlines())


def _example_lines(module: ast.Module) -> int:
    """Lines of the examples in all docstrings: from the first `>>>` of each to its end or to an empty line."""
    documented = [node for node in ast.walk(module) if isinstance(node, Documented | ast.ClassDef)]
    return sum(_in_examples(ast.get_docstring(node) or "") for node in documented)


def _in_examples(text: str) -> int:
    count, inside = 0, False
    for line in text.splitlines():
        inside = line.startswith(">>>") or (inside and bool(line.strip()))
        count += inside
    return count


def _docstring_lines(node: Documented) -> int:
    """Lines of the docstring, which are not code."""
    if ast.get_docstring(node) is None:
        return 0
    return (node.body[0].end_lineno or 0) - node.body[0].lineno + 1


if __name__ == "__main__":
    command(rule)
