"""The common part of the house rules: a finding, the tracked files, and how a rule runs as a command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class Finding:
    """One place that breaks a rule; `line` is 0 where the rule is about the whole file."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}" if self.line else f"{self.path}: {self.what}"


def tracked(root: Path) -> list[str]:
    """Paths of the files git tracks or would track, relative to `root`, that still exist."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    )
    return sorted(name for name in set(listed.stdout.split("\0")) if name and (root / name).is_file())


def text_lines(root: Path, names: list[str]) -> Iterator[tuple[str, int, str]]:
    """(path, line number, line) of every text file among `names`."""
    for name in names:
        try:
            text = (root / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            yield name, number, line


def command(rule: Callable[[Path], list[Finding]]) -> None:
    """Run a rule on this checkout: its findings on the terminal, exit 1 if there are any."""
    findings = rule(ROOT)
    for finding in findings:
        print(finding)
    sys.exit(1 if findings else 0)
