"""Lines and names of files are other people's text: nothing that is written of them steers a terminal or a reader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import idgraph as ig
from idgraph.errors import SourceLine, visible
from idgraph.frontends.import_ import from_json
from idgraph.reports import metrics
from idgraph.sweeps import Sweep, SweepRow

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m"  # the title of a window, an empty screen, a colour
HOSTILE = f"{ESCAPES}\u202e\u200b\u2066\x0c\u2028\x85\ufeff\t]]> --> \"\"\" '''"
PROGRAM = f"""import idgraph as ig
f = ig.Fusion("p")
x = f.input("x", (8,)) # {HOSTILE}
y = ig.cat([x[4:], x[:4]], 0) # {HOSTILE}
z = f.output(x + y) # {HOSTILE}
def wrong():
    return ig.reshape(x, 3) # {HOSTILE}
"""
GRAPHS = Path(__file__).parents[1] / "frontends" / "graphs"


def unfit(text: str) -> set[str]:
    return {c for c in text if not c.isprintable() and c != "\n"}


@pytest.fixture(scope="module", params=["p.py", f"p{ESCAPES}\u202e\n.py"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program leaves, run from a file of a plain name and of a hostile one."""
    path = tmp_path_factory.mktemp("program") / request.param
    path.write_text(PROGRAM, encoding="utf-8")
    made: dict[str, Any] = {}
    exec(compile(PROGRAM, str(path), "exec"), made)
    return made


def test_no_line_of_a_program_steers_what_is_written_of_it(program: dict[str, Any], tmp_path: Path) -> None:
    f: ig.Fusion = program["f"]
    line = f.exprs[-1].source_line
    assert line is not None and line.code.startswith("z = f.output") and "\\x1b" in line.code
    with pytest.raises(ig.IdGraphError) as caught:
        program["wrong"]()
    model = ig.IdModel(f)
    (first, *_) = model.exact.cycles()
    found = model.exact.explain(f["x"].logical[0], f.outputs[0].logical[0])
    pictures = [model.exact.to_svg(), ig.viz.draw(f, "svg"), model.access(f.exprs[-1], f["x"]).picture().to_svg()]
    report = ig.report(f)
    texts = [str(caught.value), str(f), str(first), str(found), f.to_dot(), *pictures, str(report)]
    texts += [json.dumps(report.to_dict(), ensure_ascii=False)]
    texts += [ig.emit(f, target=target).source for target in ("python", "numpy", "cpu", "cuda")]
    for text in texts:
        assert unfit(text) == set()
    for svg in pictures:
        ET.fromstring(svg)
    plain = ig.report(ig.parse(str(f))).to_html()
    assert unfit(report.to_html()) <= unfit(plain)  # those of the page's own script
    for table in metrics(f, target="python", auto=False).to_csv(tmp_path):
        assert unfit(table.read_text("utf-8")) == set()


def test_lines_of_a_captured_graph_are_shown_too(tmp_path: Path) -> None:
    graph = tmp_path / f"graph{ESCAPES}.json"
    graph.write_bytes((GRAPHS / "rope_half.core.json").read_bytes())
    f = from_json(graph).fusion
    line = f.exprs[-1].source_line
    assert line is not None and "\\x1b" in line.file and str(line).isprintable()


def test_errors_show_what_others_raised() -> None:
    error = ig.IdGraphError(f"failed: {ESCAPES}", where=SourceLine("a.py", 1, ESCAPES), because=["a\u202eb", "\ud800"])
    assert unfit(str(error)) == set() and str(error).encode()
    assert visible("plain: ' \" \\") == "plain: ' \" \\"


def test_rows_of_a_sweep_show_names_and_reasons() -> None:
    names = [f"{ESCAPES}a.json", "a\nb.json", "\udcff.json", "x\u202ey.json"]
    found = Sweep(tuple(SweepRow(n, "0" * 64, "refused", f"{n}\ud800") for n in names))
    assert unfit(str(found)) == set() and str(found).encode()
    assert len(str(found).splitlines()) == 2 + len(names)
    assert all(unfit(note) == set() for note in found.sheet().notes)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_sweep_of_files_with_hostile_names_reads_and_shows_them(tmp_path: Path) -> None:
    folder = tmp_path / "zoo"
    folder.mkdir()
    f = ig.Fusion("turn")
    f.output(f.input("x", (8, 16)).T + 1.0)
    names = [f"{ESCAPES}a", "a\nb", "x\u202ey", os.fsdecode(b"\xff\xfe"), "[bold red]x", "=1+1", "-x", "con"]
    for name in names:
        (folder / f"{name}.txt").write_text(str(f))
    (folder / "raises.py").write_text("raise ValueError('\\x1b[2J\\ud800')\n")
    listed = [str(p) for p in sorted(folder.glob("*.txt"))] + [str(folder / "raises.py")]
    (tmp_path / "list.txt").write_bytes(b"\n".join(os.fsencode(p) for p in listed if "\n" not in p and p.isprintable()))
    command = [sys.executable, "-m", "idgraph", "sweep", "--workers", "2", "--csv", str(tmp_path / "tables")]
    for what, status in ((folder, 0), (tmp_path / "list.txt", 1)):
        done = subprocess.run(
            [*command, str(what), "--out", str(tmp_path / f"{what.name}.jsonl")],
            cwd=tmp_path, capture_output=True, check=False, timeout=600,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        assert unfit(done.stdout.decode()) == unfit(done.stderr.decode()) == set()
    text = (tmp_path / "tables" / "models.csv").read_text("utf-8")
    assert unfit(text) == set() and "\\x1b]0;owned" in text and "\\udcff" in text
