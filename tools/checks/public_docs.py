"""Every public name has a docstring with a runnable example, and so has every public method and property."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tools.checks.common import Finding, command

ROOMS = (
    "check", "cost", "frontends", "fuse", "kernel", "layout", "reports", "runtime", "schedule", "sweeps", "validate",
    "viz",
)  # fmt: skip

# Methods that builders, front ends and notebooks call; a user has no use for them.
INSIDE = {
    "Fusion": {
        "adopt", "again", "at_line", "axes_like", "axis_like", "building", "check_args", "emit", "equate", "extent",
        "free_strides", "in_symbols", "input_line", "line", "mark",
        "new_domain", "note_name", "remove", "replace", "replace_operand", "restore", "touch", "trying", "undo",
    },
    "Tensor": {
        "add_use", "drop_use", "forget", "keep_first", "keep_last", "note_step", "note_steps",
        "put_back", "read_by", "readers",
        "saved", "state",
    },
    "IdModel": {"solver"},
    "AlignedGraph": {"explain_difference"},
    "TensorExpr": {"operands_of"}, "Tuner": {"measure"}, "RayExecutor": {"submit"},
    "Cycle": {"mark"}, "Program": {"asks_for_sizes", "mold"},
}  # fmt: skip
PROTOCOL = {"sheet"}  # every object that shows itself has it: `idgraph.display.Sheet`


def rule(root: Path) -> list[Finding]:
    """Every public name of the package, and every method of its packages' classes, that lacks one."""
    del root  # the installed package is asked
    package = importlib.import_module("idgraph")
    rooms = [package, *(importlib.import_module(f"idgraph.{room}") for room in ROOMS)]
    return undocumented(package) + [finding for c in classes(rooms) for finding in bare_methods(c)]


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


def classes(modules: list[ModuleType]) -> list[type]:
    """The classes that modules export, errors left out: their examples are those of what raises them."""
    found: list[type] = []
    for module in modules:
        for name in getattr(module, "__all__", ()):
            value: object = getattr(module, name)
            if inspect.isclass(value) and value not in found and not issubclass(value, BaseException):
                found.append(value)
    return found


def bare_methods(c: type) -> list[Finding]:
    """Public methods and properties of a class without a docstring, or that no example of the class uses."""
    found = dict(_members(c))
    examples = "".join(_examples(base.__doc__ or "") for base in c.__mro__[:-1])
    examples += "".join(map(_examples, found.values()))
    findings: list[Finding] = []
    for name, text in found.items():
        if not text.strip():
            findings.append(Finding(f"{c.__module__}.{c.__name__}.{name}", 0, "has no docstring"))
        elif ">>>" not in text and not re.search(rf"\.{name}\b", examples):
            what = "has no example (>>>) in its docstring, nor in its class's"
            findings.append(Finding(f"{c.__module__}.{c.__name__}.{name}", 0, what))
    return findings


def _members(c: type) -> Iterator[tuple[str, str]]:
    """(name, docstring) of the public methods and properties that the package defines, those of its bases too."""
    seen = PROTOCOL | INSIDE.get(c.__name__, set())
    for base in c.__mro__:
        if base.__module__.partition(".")[0] != c.__module__.partition(".")[0]:
            continue
        for name, member in vars(base).items():
            held = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if not name.startswith("_") and name not in seen and inspect.isfunction(held):
                seen = seen | {name}
                yield name, held.__doc__ or ""


def _examples(text: str) -> str:
    return "".join(f"{line}\n" for line in text.splitlines() if line.strip().startswith((">>>", "...")))


if __name__ == "__main__":
    command(rule)
