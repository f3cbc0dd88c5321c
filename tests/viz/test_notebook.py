"""Display in notebooks: registered from outside, only where IPython runs; text for everybody else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from idgraph import viz
from tests.viz.cases import rotation


def test_importing_loads_no_ipython() -> None:
    code = (
        "import sys, idgraph.viz; "
        "print(sorted({m.partition('.')[0] for m in sys.modules} & {'IPython', 'graphviz', 'networkx', 'sympy'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_inside_ipython_objects_are_shown_as_svg() -> None:
    pytest.importorskip("IPython")
    code = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
from tests.viz.cases import rotation
import idgraph as ig
from idgraph import viz
m = ig.IdModel(rotation())
for what in (m.fusion, m.exact, m.index, m.exact.cycles()[0], m.exact.explain(*m.exact.groups[0].keys[:2])):
    data, _ = shell.display_formatter.format(what)
    print(sorted(data), data["image/svg+xml"] == viz.to_svg(what))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["['image/svg+xml', 'text/plain'] True"] * 5


def test_outside_ipython_nothing_is_registered() -> None:
    assert viz.notebook.shown(rotation()) == viz.to_svg(rotation())
    assert viz.notebook.shown(3) is None
