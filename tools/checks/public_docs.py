"""Every public name has a docstring with a runnable example."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType

from tools.checks.common import Finding, command


def rule(root: Path) -> list[Finding]:
    """Every name of `idgraph.__all__` that lacks one; `root` is not needed, the installed package is asked."""
    del root
    return undocumented(importlib.import_module("idgraph"))


def undocumented(package: ModuleType) -> list[Finding]:
    """The public names of `package` without a docstring, or (for classes and functions) without an example in it."""
    findings: list[Finding] = []
    public: list[str] = [*getattr(package, "__all__", []), *getattr(package, "BUILTIN_NAMES", ())]
    if not public:
        return [Finding(package.__name__, 0, "has no __all__")]
    for name in public:
        if not hasattr(package, name):
            findings.append(Finding(f"{package.__name__}.{name}", 0, "is in __all__ but does not exist"))
            continue
        value: object = getattr(package, name)
        if not (inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)):
            continue  # a constant or a union of types carries no docstring
        text = value.__doc__ or ""
        if not text.strip():
            findings.append(Finding(f"{package.__name__}.{name}", 0, "has no docstring"))
        elif ">>>" not in text and not inspect.ismodule(value):
            findings.append(Finding(f"{package.__name__}.{name}", 0, "has no example (>>>) in its docstring"))
    return findings


if __name__ == "__main__":
    command(rule)
