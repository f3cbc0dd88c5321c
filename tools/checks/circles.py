"""Imports of the package make no circle of modules, counting those for type checkers and those inside functions."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tools.checks.common import Finding, command, tracked


def rule(root: Path) -> list[Finding]:
    """The first circle, as the list of its modules; nothing where there is none."""
    paths = {module_name(n): n for n in tracked(root) if n.startswith("idgraph/") and n.endswith(".py")}
    imports = {module: imported(module, root / path, paths) for module, path in paths.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return [Finding(paths[circle[0]], 0, f"modules import each other: {' <- '.join(circle)}")]
    return []


def module_name(path: str) -> str:
    """The dotted name of a file's module; of a package that of its folder."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported(module: str, path: Path, known: dict[str, str]) -> set[str]:
    """The modules among ``known`` that one imports, wherever in its text it does; not the packages around them."""
    found: set[str] = set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*around, *([node.module] if node.module else [])])
            for a in node.names:
                found.add(f"{source}.{a.name}" if f"{source}.{a.name}" in known else source)
    return {m for m in found if m in known and m != module}


if __name__ == "__main__":
    command(rule)
