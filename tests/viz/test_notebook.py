"""Display in notebooks: registered from outside, only where IPython runs; text for everybody else."""

from __future__ import annotations

import subprocess
import sys

import pytest

import idgraph as ig
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


def test_a_cell_is_called_a_cell() -> None:
    # The kernel runs a cell from a file of its own, whose number says nothing to a reader.
    names: dict[str, ig.Fusion] = {}
    source = "import idgraph as ig\nf = ig.Fusion('f')\nf.input('t', (4,))"
    exec(compile(source, "/tmp/ipykernel_7/1234.py", "exec"), names)
    t = names["f"].tensors[0]
    assert t.source_line is not None
    assert (t.source_line.file, t.source_line.line) == ("cell", 3)


def test_outside_ipython_nothing_is_registered() -> None:
    assert viz.notebook.shown(rotation()) == viz.to_svg(rotation())
    assert viz.notebook.shown(3) is None
