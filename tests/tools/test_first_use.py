"""Names and methods in a fresh interpreter, each as the first thing that is asked for: nothing waits for an import."""

from __future__ import annotations

import subprocess
import sys

import pytest

FIRST_USES = """
import os, sys
import idgraph as ig

early = [m for m in sys.modules if m.startswith(tuple(f"idgraph.{room}" for room in ig._ROOMS))]
assert not early, early
USES = [
    *(f"ig.{room}" for room in ig._ROOMS),
    *(f"ig.{name}" for name in ("IdModel", "Access", "Cycle", "Report", "from_torch", "report", "sweep")),
    "f.to_dot()", "f._repr_svg_()", "ig.IdModel(f).exact.to_svg()",
    "ig.IdModel(f).index_map(t.definition)._repr_html_()",
    "ig.report(f).to_html()", "ig.validate(f, target='numpy')._repr_html_()", "ig.schedule.inline_most(f) or 1",
    "ig.frontends.fx", "t.split(0, 2)",
]
for use in USES:
    child = os.fork()
    if child == 0:
        f = ig.Fusion("f")
        t = f.output(f.input("a", shape=(4,)) + 1.0)
        found = eval(use, {"ig": ig, "f": f, "t": t})
        sys.exit(0 if found is not None else use + " gives None")
    if os.waitpid(child, 0)[1]:
        sys.exit(1)
for name in (*ig.__all__, *ig.BUILTIN_NAMES, *dir(ig)):
    getattr(ig, name)
"""


@pytest.mark.thorough
def test_each_name_as_the_first() -> None:
    shown = subprocess.run([sys.executable, "-c", FIRST_USES], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr[-2000:]
