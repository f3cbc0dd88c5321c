"""`import idgraph` is quick and loads none of the heavy packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.checks.common import Finding, command

SECONDS = 0.2
TRIES = 7  # the best of them, in processor time: a busy machine makes one slow, never one quick
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
began = time.process_time()
__import__(sys.argv[1])
print(json.dumps([time.process_time() - began, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def rule(root: Path) -> list[Finding]:
    """The slow or heavy parts of importing the package."""
    return heavy_import("idgraph", root)


def heavy_import(module: str, root: Path) -> list[Finding]:
    """The slow or heavy parts of importing `module` with `root` as the current directory."""
    seconds: list[float] = []
    loaded: list[str] = []
    with tempfile.TemporaryDirectory() as bytecode:  # compiled once, as for a user, also where none is to be written
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for attempt in range(TRIES):
            probe = subprocess.run(
                [sys.executable, "-c", _PROBE, module],
                cwd=root, env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if probe.returncode:
                return [Finding(module, 0, f"cannot be imported: {probe.stderr.strip().splitlines()[-1]}")]
            taken, loaded = json.loads(probe.stdout)
            seconds.append(taken)
            if attempt and taken < SECONDS:
                break
    findings = [Finding(module, 0, f"importing it loads {name}") for name in HEAVY if name in loaded]
    if min(seconds) >= SECONDS:
        findings.append(Finding(module, 0, f"importing it takes {min(seconds):.2f} s (limit {SECONDS} s)"))
    return findings


if __name__ == "__main__":
    command(rule)
