"""Committed text names no path of one machine and no host of a package registry."""

from __future__ import annotations

import re
from pathlib import Path

from tools.checks.common import Finding, command, text_lines, tracked

# Written in pieces, so that this file does not name them either.
_PATHS = ["/" + word + "/" for word in ("work", "farm")] + ["/tmp" + "/ref", r"\." + "library" + r"\b"]
_HOMES = "/(?:home|Users)" + "/[a-z]" + "|" + "/root" + r"/(?:\.|[a-z])"
_HOSTS = [
    "pypi" + r"\.org",
    "pythonhosted" + r"\.org",
    "registry" + r"\.npmjs",
    "download" + r"\.pytorch",
    "pypi" + r"\.nvidia",
]
FOREIGN = {
    "a path of one machine": re.compile(r"(?<![\w.])(?:" + "|".join([*_PATHS, _HOMES]) + ")"),
    "the host of a package registry": re.compile("|".join(_HOSTS), re.IGNORECASE),
}


def rule(root: Path) -> list[Finding]:
    """Every line that names one."""
    return [
        Finding(name, number, f"names {what}: {line.strip()[:80]}")
        for name, number, line in text_lines(root, tracked(root))
        for what, pattern in FOREIGN.items()
        if pattern.search(line)
    ]


if __name__ == "__main__":
    command(rule)
