"""The steps of `tools/check`: each a command with a name; a table at the end says how each ended and in what time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
CORES = str(len(os.sched_getaffinity(0)))
PYTHON = (sys.executable, "-m")


@dataclass(frozen=True, slots=True)
class Check:
    """One step; `live` steps print as they go, the others only when they fail; `--fast` leaves `long` ones out."""

    name: str
    what: str
    command: tuple[str, ...]
    live: bool = False
    long: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one step."""

    check: Check
    passed: bool
    seconds: float


def _rule(name: str, what: str) -> Check:
    return Check(name, what, (*PYTHON, f"tools.checks.{name.replace('-', '_')}"))


CHECKS = (
    Check("format", "ruff format", (*PYTHON, "ruff", "format", "--check", ".")),
    Check("lint", "ruff check", (*PYTHON, "ruff", "check", ".")),
    Check("types", "pyright, strict", (*PYTHON, "pyright", "--pythonpath", sys.executable, "--warnings"), long=True),
    Check("layers", "import contracts", (str(Path(sys.executable).with_name("lint-imports")), "--no-cache")),
    _rule("circles", "no two modules need each other"),
    _rule("names", "one word, one meaning: names of classes, functions and files"),
    _rule("foreign-names", "no machine path, no registry host"),
    _rule("layout", "the folders are those in tools/checks/layout.py"),
    _rule("length", "long modules and functions say why"),
    _rule("public-docs", "every public name has an example"),
    _rule("prose", "sentences that readers stumbled over"),
    _rule("light-import", "import idgraph is quick and light"),
    Check(
        "doctests",
        "the examples in docstrings and guides",
        (
            *PYTHON,
            "pytest",
            "-q",
            "-n",
            CORES,
            "--doctest-modules",
            "--doctest-glob=*.md",
            "idgraph",
            "tools/docs/pages",
        ),
        long=True,
    ),
    Check("docs", "guides and reference build without a warning", (*PYTHON, "tools.docs"), long=True),
    Check("notebooks", "notebooks run and show what is stored", (*PYTHON, "tools.notebooks")),
    Check("package", "wheel and sdist install and run in clean environments", (*PYTHON, "tools.package"), long=True),
    Check("tests", "the test suite", (*PYTHON, "pytest", "-n", CORES), live=True, long=True),
)


def run(check: Check, title: str, console: Console) -> Outcome:
    """Run one step, showing that it runs, and its output if it fails."""
    began = time.monotonic()
    if check.live:
        console.print(f"{title} ...")
        code, output = subprocess.run(check.command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode, ""
    else:
        with console.status(title):
            finished = subprocess.run(
                check.command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        code, output = finished.returncode, finished.stdout
    outcome = Outcome(check, code == 0, time.monotonic() - began)
    verdict = "[green]ok[/]" if outcome.passed else f"[red]failed[/] (exit {code})"
    console.print(f"{title}: {verdict} {outcome.seconds:.1f} s")
    if not outcome.passed and output:
        console.print(output.rstrip(), markup=False, highlight=False, soft_wrap=True)
    return outcome


def summary(outcomes: Sequence[Outcome]) -> Table:
    """The closing table."""
    table = Table("step", "what", "result", "seconds")
    for outcome in outcomes:
        verdict = "[green]ok[/]" if outcome.passed else "[red]failed[/]"
        table.add_row(outcome.check.name, outcome.check.what, verdict, f"{outcome.seconds:.1f}")
    return table


def chosen(names: Sequence[str], checks: Sequence[Check] = CHECKS) -> tuple[Check, ...]:
    """The steps named, in their own order; all of them when none is named, and those that are not long for `--fast`.

    Raises ValueError for an unknown name.
    """
    if list(names) == ["--fast"]:
        return tuple(check for check in checks if not check.long)
    known = {check.name for check in checks}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no step {', '.join(unknown)}; there are {', '.join(check.name for check in checks)}")
    return tuple(check for check in checks if not names or check.name in names)


def main(arguments: Sequence[str], checks: Sequence[Check] = CHECKS) -> int:
    """Run the named steps and return the exit status: 0 all passed, 1 some failed, 2 bad arguments."""
    console = Console(soft_wrap=True)
    if arguments and arguments[0] in ("--list", "-l", "--help", "-h"):
        for check in checks:
            console.print(f"{check.name:14} {check.what}", highlight=False)
        return 0
    try:
        selected = chosen(arguments, checks)
    except ValueError as error:
        console.print(f"tools/check: {error}", highlight=False)
        return 2
    outcomes = [run(check, f"[{n}/{len(selected)}] {check.name}", console) for n, check in enumerate(selected, 1)]
    if len(outcomes) > 1:
        console.print(summary(outcomes))
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
