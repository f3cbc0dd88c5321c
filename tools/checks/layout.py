"""The top of the checkout holds what README says it holds, and nothing else."""

from __future__ import annotations

from pathlib import Path

from tools.checks.common import Finding, command, tracked

# A new folder is a decision: it is added here with the reason it exists.
TOP = {
    "idgraph": "the library",
    "tests": "its tests",
    "notebooks": "tutorials, executed by tools/check",
    "tools": "a developer's commands",
    ".ci": "the CI's command",
    ".github": "the hosted CI, which calls the same command",
    ".gitignore": "files that the tools make",
    "pyproject.toml": "packaging, contracts, lint, types, tests",
    "README.md": "where to begin",
    "CONTRIBUTING.md": "how to change it",
    "CHANGELOG.md": "changes, release by release",
    "LICENSE": "Apache-2.0",
    "CITATION.cff": "how to cite it",
    "SECURITY.md": "what is promised, and where a fault is reported",
}
REQUIRED = ("idgraph", "tests", "notebooks", "tools", ".ci", "pyproject.toml", "README.md", "LICENSE")


def rule(root: Path) -> list[Finding]:
    """Every unknown entry at the top, and every required one that is missing."""
    present = {name.split("/")[0] for name in tracked(root)}
    unknown = [Finding(name, 0, "no such folder in tools/checks/layout.py") for name in sorted(present - TOP.keys())]
    return unknown + [Finding(name, 0, f"missing: {TOP[name]}") for name in REQUIRED if name not in present]


if __name__ == "__main__":
    command(rule)
