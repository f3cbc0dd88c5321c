"""Whatever stands in the place of a file that is read or written: one clear error, in time and within memory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import idgraph as ig
from idgraph.check.program_json import read_any
from idgraph.cost.calibrate import assembled
from idgraph.display import write_atomically
from idgraph.frontends.import_ import read_file
from idgraph.reports.metric_tables import LOCK, add_rows
from idgraph.runtime.kernel_cache import KernelCache
from idgraph.sweeps import read_rows, sweep
from idgraph.sweeps.results import SweepRow, row_file

HUGE = 2**40  # a sparse file: it takes no room on the disk, and no memory holds it
GRAPH = '{"nodes": [{"name": "output", "op": "output", "target": "output", "args": [[]]}]}'


def socket_at(place: Path) -> None:
    here = os.getcwd()
    os.chdir(place.parent)  # the name of a socket is at most 107 characters
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(place.name)
    finally:
        os.chdir(here)


def sparse_at(place: Path) -> None:
    place.touch()
    os.truncate(place, HUGE)


def linked_pipe_at(place: Path) -> None:
    os.mkfifo(place.with_name("pipe"))
    place.symlink_to("pipe")


ODD: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "link to a pipe": linked_pipe_at,
    "endless": lambda p: p.symlink_to("/dev/zero"),
    "folder": lambda p: p.mkdir(),
    "link to itself": lambda p: p.symlink_to(p.name),
    "socket": socket_at,
    "huge": sparse_at,
    "deep": lambda p: p.write_bytes(b"[" * 200_000 + b"\n"),
    "a line that is cut off": lambda p: p.write_bytes(b"keep me"),
}
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "captured graph": ("a.json", ig.frontends.fx.from_json),
    "text": ("a.txt", lambda p: read_file(str(p))),
    "program": ("a.py", lambda p: read_file(str(p))),
    "program to check": ("a.json", read_any),
    "rows of a sweep": ("rows.jsonl", read_rows),
    "table": ("models.csv", lambda p: add_rows(p.parent, {"m": {}})),
}


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """No call of these waits for anybody."""

    def late(*_: object) -> None:
        raise AssertionError("it does not end")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(600)  # seconds, of a machine that may be busy with other work
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.sampled
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_what_is_not_a_file_of_its_kind_is_one_error(
    reader: tuple[str, Callable[[Path], object]], odd: Callable[[Path], object], tmp_path: Path
) -> None:
    name, read = reader
    odd(tmp_path / name)
    with pytest.raises(ig.IdGraphError):
        read(tmp_path / name)


@pytest.mark.sampled
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_sweep_writes_no_rows_to_what_is_not_a_file_of_rows(odd: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("no graph")
    odd(out := tmp_path / "rows.jsonl")
    with pytest.raises(ig.IdGraphError, match=r"cannot write|not a row"):
        sweep([tmp_path / "a.txt"], out, workers=1)
    if out.is_file() and out.stat().st_size < HUGE:
        assert out.read_bytes() in (b"keep me", b"[" * 200_000 + b"\n")  # what somebody else wrote still stands there


def test_a_row_that_was_cut_off_anywhere_is_left_out(tmp_path: Path) -> None:
    out, line = tmp_path / "rows.jsonl", SweepRow("b", "1" * 64, "ok").to_json().encode()
    whole = SweepRow("a", "0" * 64, "ok").to_json().encode() + b"\n"
    for at in range(len(line) + 1):
        out.write_bytes(whole + line[:at])
        assert list(read_rows(out)) == ["a"]


def test_a_list_of_graphs_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "list")
    with pytest.raises(ig.IdGraphError, match="no graph"):
        sweep(tmp_path / "list")


def test_a_lock_of_tables_is_a_plain_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK)
    with pytest.raises(ig.IdGraphError, match="metric tables"):
        add_rows(tmp_path, {"m": {}})


def test_a_page_is_not_written_into_a_pipe_that_nobody_reads(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe"):
        write_atomically(tmp_path / "pipe", "text")


def test_a_link_to_itself_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="symbolic links"):
        write_atomically(tmp_path / "round", "text")
    assert (tmp_path / "round").is_symlink() and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "name",
    ["missing/page.html", "file.txt/page.html", "file.txt/more/page.html", "x" * 300 + ".html", "loop/page.html"],
)
def test_an_error_names_the_file_that_was_asked_for(name: str, tmp_path: Path) -> None:
    (tmp_path / "file.txt").touch()
    (tmp_path / "loop").symlink_to("loop")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OSError) as raised:  # noqa: PT011 - whose file is compared below
        write_atomically(tmp_path / name, "text")
    assert raised.value.filename == str(tmp_path / name) and sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("name", "text"), [("a.txt", "fusion f {\n" + "# a\n" * 40_000 + "}"), ("a.json", GRAPH)])
def test_a_pipe_that_somebody_writes_is_read_whole(name: str, text: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    child = os.fork()
    if child == 0:
        (tmp_path / name).write_text(text)
        os._exit(0)
    while not _waits(child):
        pass
    assert not getattr(read_file(str(tmp_path / name)), "tensors", ())
    os.waitpid(child, 0)


def _waits(child: int) -> bool:
    """Whether the process waits for a reader of its pipe."""
    return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_a_folder_in_the_place_of_a_kernel_holds_no_descriptor(tmp_path: Path) -> None:
    kept = KernelCache(tmp_path)
    kept.put("key", "text")
    (place,) = tmp_path.iterdir()
    place.unlink()
    place.mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert kept.find("key") is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_rows_behind_a_link_go_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("no graph")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "rows.jsonl").symlink_to("elsewhere/real.jsonl")
    for fresh in (1, 0):
        assert sweep([tmp_path / "a.txt"], tmp_path / "rows.jsonl", workers=1).fresh == fresh
        with row_file(tmp_path / "rows.jsonl") as file:
            file.keep([r for r in file.rows.values() if fresh])
    assert (tmp_path / "rows.jsonl").is_symlink()
    assert [p.name for p in (tmp_path / "elsewhere").iterdir()] == ["real.jsonl"]
    assert (tmp_path / "elsewhere" / "real.jsonl").read_bytes() == b""


GONE = """
import os, sys
import numpy as np
import idgraph as ig
os.chdir(sys.argv[1])
os.rmdir(sys.argv[1])
f = ig.Fusion("f")
x = f.input("x", shape=(8,))
f.output(x * 2.0)
print(*ig.compile(f, "numpy")(np.ones(8, np.float32)))
try:
    ig.compile(f, "cpu")(np.ones(8, np.float32))
except ig.EmitError as error:
    print(error)
"""


def test_a_working_directory_that_is_gone_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    command = [sys.executable, "-c", GONE, str(tmp_path / "gone")]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=here, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "2.0 2.0" in done.stdout and "hint: the working directory has to exist" in done.stdout


def test_where_there_is_no_room_for_temporary_files_registers_are_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    assert assembled("/bin/true", "", (9, 0)) is None
