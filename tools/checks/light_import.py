"""`import idgraph` is quick and loads none of the heavy packages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tools.checks.common import Finding, command

SECONDS = 0.2
TRIES = 7  # the best of them: a busy machine makes one slow, never one quick
HEAVY = (
    "numba",
    "llvmlite",
    "torch",
    "graphviz",
    "hypothesis",
    "IPython",
    "sympy",
    "mpmath",
    "networkx",
    "rich",
    "click",
)

_PROBE = """
import json, sys, time
began = time.perf_counter()
__import__(sys.argv[1])
print(json.dumps([time.perf_counter() - began, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def rule(root: Path) -> list[Finding]:
    """What is slow or heavy about importing the package."""
    return heavy_import("idgraph", root)


def heavy_import(module: str, root: Path) -> list[Finding]:
    """What is slow or heavy about importing `module` with `root` as the current directory."""
    seconds: list[float] = []
    loaded: list[str] = []
    for _ in range(TRIES):
        probe = subprocess.run(
            [sys.executable, "-c", _PROBE, module], cwd=root, capture_output=True, text=True, check=False
        )
        if probe.returncode:
            return [Finding(module, 0, f"cannot be imported: {probe.stderr.strip().splitlines()[-1]}")]
        taken, loaded = json.loads(probe.stdout)
        seconds.append(taken)
        if taken < SECONDS:
            break
    findings = [Finding(module, 0, f"importing it loads {name}") for name in HEAVY if name in loaded]
    if min(seconds) >= SECONDS:
        findings.append(Finding(module, 0, f"importing it takes {min(seconds):.2f} s (limit {SECONDS} s)"))
    return findings


if __name__ == "__main__":
    command(rule)
