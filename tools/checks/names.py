"""One word, one meaning: no class name twice, no private function name in more than two modules, no participle as a
name.

Each exception has its reason here, and a reason that nothing needs goes.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tools.checks.common import Finding, command, tracked

PARTICIPLES = frozenset({
    "told", "held", "kept", "made", "found", "given", "taken", "wanted", "beside", "alike", "apart", "whole", "turned",
    "way",
})  # fmt: skip
MODULES_OF_ONE_NAME = 2
HERE = "tools/checks/names.py"
# (file, name): why the name stays.
REASONS = {("idgraph/fuse/plan.py", "apart"): "`Plan.apart` is public"}
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def rule(root: Path) -> list[Finding]:
    """Every name that breaks one of the three, and every reason that is not needed."""
    classes: dict[str, list[tuple[str, int]]] = defaultdict(list)
    private: dict[str, list[tuple[str, int]]] = defaultdict(list)
    wrong: list[Finding] = []
    excused: set[tuple[str, str]] = set()

    def report(name: str, word: str, line: int, what: str) -> None:
        if (name, word) in REASONS:
            excused.add((name, word))
        else:
            wrong.append(Finding(name, line, what))

    for name in tracked(root):
        path = PurePosixPath(name)
        if path.parts[0] != "idgraph" or path.suffix != ".py":
            continue
        tree = ast.parse((root / name).read_text(encoding="utf-8"))
        if _last_word(path.stem) in PARTICIPLES:
            report(name, path.stem, 0, f"{path.stem}: a module is called by a noun for what it holds")
        for node, is_outer in _definitions(tree, True):
            if _last_word(node.name) in PARTICIPLES:
                report(name, node.name, node.lineno, f"{node.name}: a participle says not what it is")
            if isinstance(node, ast.ClassDef):
                classes[node.name].append((name, node.lineno))
            elif is_outer and node.name.startswith("_") and not node.name.startswith("__"):
                private[node.name].append((name, node.lineno))
    for kind, table, most in (("class", classes, 1), ("private function", private, MODULES_OF_ONE_NAME)):
        wrong += [
            Finding(name, line, f"{kind} {word}: {len(places)} of this name, at most {most}")
            for word, places in sorted(table.items())
            if len(places) > most
            for name, line in places[most:]
        ]
    return wrong + [
        Finding(HERE, 0, f"nothing in {name} is called {word}: its reason goes")
        for name, word in sorted(REASONS.keys() - excused)
        if (root / name).exists()
    ]


def _definitions(node: ast.AST, is_outer: bool) -> Iterator[tuple[Definition, bool]]:
    """Functions and classes below a node, and whether they stand in no other."""
    for child in ast.iter_child_nodes(node):
        inside = isinstance(child, Definition)
        if inside:
            yield child, is_outer
        yield from _definitions(child, is_outer and not inside)


def _last_word(name: str) -> str:
    """``digits_kept`` and ``WhollyKept`` end in ``kept``."""
    word = name.strip("_").rpartition("_")[2]
    start = max((n for n, c in enumerate(word) if c.isupper()), default=0)
    return word[start:].lower()


if __name__ == "__main__":
    command(rule)
