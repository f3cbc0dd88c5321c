"""Files that the library writes are replaced as a whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from idgraph.display import write_atomically

WRITES = """
import resource, sys
from pathlib import Path
import idgraph as ig
from idgraph.reports import metrics
f = ig.Fusion("second" * 20)
f.output(f.input("x", shape=(4,)) + 1.0)
cost, found = ig.cost(ig.emit(f, "python"), device="cpu"), metrics(f, target="python", auto=False)
report, page, folder = ig.report(f), ig.viz.explore(f), Path(sys.argv[1])
report.to_html()
writes = (lambda: found.to_csv(folder), lambda: cost.to_csv(folder), lambda: report.save(folder / "r.html"),
          lambda: report.save(folder / "r.json"), lambda: page.save(folder / "e.html"),
          lambda: ig.viz.write(f, folder / "f.svg"))
if sys.argv[2] == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
for n, write in enumerate(writes):
    try:
        write()
    except (ig.IdGraphError, OSError):
        assert sys.argv[2] == "full"
    else:
        assert sys.argv[2] == "room", n
"""


def test_where_there_is_no_room_what_was_written_stays(tmp_path: Path) -> None:
    """Tables, pages and pictures; nothing is left beside them."""
    kept: dict[str, bytes] = {}
    for how in ("room", "full"):
        done = subprocess.run(
            [sys.executable, "-c", WRITES, str(tmp_path), how],
            capture_output=True, text=True, check=False, timeout=600,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
        kept = kept or found
        assert found == kept
    assert {"models.csv", "kernels.csv", "r.html", "r.json", "e.html", "f.svg"} <= kept.keys()


def test_a_link_stays_a_link_and_rights_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "real.svg").write_text("old")
    (tmp_path / "real.svg").chmod(0o640)
    (tmp_path / "link.svg").symlink_to("real.svg")
    write_atomically(tmp_path / "link.svg", "new")
    assert (tmp_path / "link.svg").is_symlink() and (tmp_path / "real.svg").read_text() == "new"
    assert (tmp_path / "real.svg").stat().st_mode & 0o777 == 0o640
    old = os.umask(0o027)
    try:
        write_atomically(tmp_path / "fresh.svg", "fresh")
    finally:
        os.umask(old)
    assert (tmp_path / "fresh.svg").stat().st_mode & 0o777 == 0o640
    assert len(list(tmp_path.iterdir())) == 3


def test_what_is_no_file_is_written_as_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(tmp_path / "pipe", "text\ud800")
    assert os.read(reader, 100) == b"text?"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
