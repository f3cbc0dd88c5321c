"""No two files of one name in the library, unless they hold the same concept, and no file with the name of a function
or class in it, which a package would hide or be hidden by; each exception has its reason here."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path, PurePosixPath

from tools.checks.common import Finding, command, tracked

SAME = {
    "access": "accesses, and their picture",
    "advice": "the hook for ways out of an illegal inlining, and the ways that hang on it",
    "choices": "choices of a kernel beside its loops: of one tensor, and of all tensors of a kernel",
    "domains": "axes, and their picture",
    "fusion": "a fusion, and its picture",
    "launch": "launches, in this process and on a device",
    "layout": "the layout of tensors in memory, in expressions and in numbers",
    "losses": "losses: the operations, and torch's names of them",
    "machine": "integers of a machine: expressions for them, and which an access needs",
    "movement": "moves: the operations, and torch's names of them",
    "nest": "loop nests, and their text",
    "page": "pages of HTML",
    "peel": "vectors in the middle of a row: where they pay, and the pass",
    "pointwise": "pointwise operations: themselves, torch's names of them, and the oracle's",
    "purpose": "what an access is for: as lowered, and when accesses become one",
    "reading": "readers of untrusted text: of a graph, of a kernel, of the neutral form",
    "reduce": "reductions: the operations, and torch's names of them",
    "report": "what a check has found",
    "run": "where a room's work is started",
    "scan": "scans: the operation, its schedule, its statements, its pass",
    "scatter": "scatters: the operation, its schedule, its statements",
    "storage": "where tensors are stored, and the buffers of it",
    "text": "the text form of expressions, of kernels",
    "values": "values of tensors: the check of them, and the oracle's",
    "verify": "what must hold of a fusion, of a kernel",
}
INSIDE = {"idgraph/frontends/torch_compile.py": "torch finds the function by this name in installed packages"}


def rule(root: Path) -> list[Finding]:
    """Every file of a name that another file has, or that something in it has; and every reason that is not needed."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in tracked(root):
        path = PurePosixPath(name)
        if path.parts[0] == "idgraph" and path.suffix == ".py" and not path.stem.startswith("__"):
            found[path.stem].append(name)
    shared = {stem: names for stem, names in found.items() if len(names) > 1}
    wrong = [
        Finding(name, 0, f"{', '.join(n for n in names if n != name)} has this name too: say what each holds")
        for stem, names in sorted(shared.items())
        for name in names
        if stem not in SAME
    ]  # fmt: skip
    inside = {name for names in found.values() for name in names if _defines(root / name, PurePosixPath(name).stem)}
    wrong += [
        Finding(name, 0, "what it defines has its name: a file is called by the noun for what it holds")
        for name in sorted(inside - INSIDE.keys())
    ]
    wrong += [
        Finding("tools/checks/room_names.py", 0, f"nothing in {name} has its name: its reason goes")
        for name in sorted(INSIDE.keys() - inside)
        if (root / name).exists()
    ]
    return wrong + [
        Finding("tools/checks/room_names.py", 0, f"no two files are called {stem}: its reason goes")
        for stem in sorted(SAME)
        if stem not in shared and found
    ]


def _defines(path: Path, name: str) -> bool:
    """Whether a module defines a function or class of that name."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return any(isinstance(x, kinds) and x.name == name for x in ast.parse(path.read_text(encoding="utf-8")).body)


if __name__ == "__main__":
    command(rule)
