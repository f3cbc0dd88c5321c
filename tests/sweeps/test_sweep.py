"""Sweeps: every graph has its row, whatever it does; a killed sweep goes on; any executor will do."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import idgraph as ig
from idgraph.sweeps import Sweep, SweepRow, cluster, read_rows, sweep
from idgraph.sweeps.worker import Task, examine, guarded

GRAPHS = Path(__file__).parents[1] / "frontends" / "graphs"
HEAD = "import idgraph as ig\nf = ig.Fusion('p')\nt = f.output(f.input('x', (4,)) + 1.0)\n"
PROGRAMS = {
    "good.py": HEAD,
    "hangs.py": "import time\ntime.sleep(600)\n",
    "hog.py": "x = bytearray(1 << 40)\n",
    "eats.py": "x = []\nwhile True: x.append(bytes(1 << 24))\n",
    "aborts.py": "import os\nos.abort()\n",
    "exits.py": "import os\nos._exit(0)\n",
    "stops.py": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "raises.py": "raise ValueError('no')\n",
    "prints.py": "import os\nos.write(1, b'{}')\nprint('x' * 100_000)\n" + HEAD,
    "wrong.py": HEAD + (
        "import idgraph.sweeps.worker as e\nfrom idgraph.validate import Report, ValueMismatch, ValueReport\n"
        "bad = ValueReport(ValueMismatch('t1', (0,), 1.0, 2.0, 0.0, 1, 4), 'numpy', (), 0.0)\n"
        "e.validate = lambda *a, **k: Report('p', 'numpy', 0, None, bad)\n"
    ),
}  # fmt: skip
EXPECTED = {
    "good.py": ("ok", ""), "hog.py": ("memory", ""),
    "eats.py": ("memory", ""), "aborts.py": ("crashed", "signal 6"), "exits.py": ("crashed", "status 0"),
    "stops.py": ("crashed", "signal 9"), "raises.py": ("refused", "ValueError: no"), "prints.py": ("ok", ""),
    "wrong.py": ("failed", "wrong value: t1[0]"), "missing.py": ("refused", "no such file"),
    "folder.json": ("refused", "not a plain file"),
}  # fmt: skip


def text_graph(extent: int = 8) -> str:
    f = ig.Fusion("turn")
    f.output(f.input("x", (extent, 16)).T + 1.0)
    return str(f)


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """A folder of three quick graphs and a bad one."""
    folder = tmp_path / "zoo"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text(text_graph())
    (folder / "deep" / "b.txt").write_text(text_graph(4))
    (folder / "half.json").write_text('{"nodes": [')
    (folder / "rope.json").write_bytes((GRAPHS / "rope_half.core.json").read_bytes())
    (folder / "notes.md").write_text("no graph")
    (folder / ".hidden.json").write_text("no graph")
    return folder


ZOO = {"a.txt": "ok", "deep/b.txt": "ok", "half.json": "refused", "rope.json": "ok"}


class Here(Executor):
    """Examines in this process, without a guard: for what does not depend on processes."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        assert fn is guarded
        task: Task = args[0]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / task.name
            path.write_bytes(task.data)
            row = examine(path, task.graph, task.digest, task.options)
        future.set_result(replace(row, settings=task.settings))
        return future


def statuses(found: Sweep) -> dict[str, str]:
    return {r.graph: r.status for r in found.rows}


@pytest.mark.thorough
@pytest.mark.slow
def test_whatever_a_graph_does_it_has_its_row(tmp_path: Path) -> None:
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "list.txt").write_text("# programs\n" + "\n".join(EXPECTED) + "\n\n")
    out = tmp_path / "rows.jsonl"
    # The one that hangs first, so that a busy machine gives the others all the time they need.
    assert sweep([tmp_path / "hangs.py"], timeout=3).rows[0].status == "timeout"
    found = sweep(tmp_path / "list.txt", out, timeout=600, memory=1 << 30, workers=2)
    for row in found.rows:
        status, reason = EXPECTED[row.graph]
        assert (row.status, reason in row.reason) == (status, True), row
    assert [r.graph for r in found.rows] == list(EXPECTED)
    assert not found and len(found) == len(EXPECTED)
    assert "raises.py: refused: ParseError" in str(found)
    assert {r.graph for r in read_rows(out).values()} == set(EXPECTED)
    assert len(out.read_bytes().splitlines()) == len(EXPECTED)


def test_rows_say_what_was_found(zoo: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = sweep(
        zoo, tmp_path / "rows.jsonl", executor=Here(), progress=lambda done, total, _: seen.append((done, total))
    )
    assert statuses(found) == ZOO
    assert seen == [(n, 4) for n in range(5)]
    rope = next(r for r in found.rows if r.graph == "rope.json")
    imported = ig.frontends.fx.from_json(GRAPHS / "rope_half.core.json")
    report = imported.report()
    assert rope.totals == report.to_dict()["totals"]
    assert sum(rope.cycles.values()) == len(report.cycles)
    checked = ig.validate(imported.fusion, target="numpy")
    assert checked.values is not None
    assert rope.checks == {"points": checked.points, "values": checked.values.elements}
    assert rope.settings["target"] == "numpy" and rope.seconds > 0 and rope.peak_bytes > 1 << 20
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert {json.loads(x)["graph"] for x in lines} == set(ZOO)


def test_only_what_is_new_is_done(zoo: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    here = Here()
    (zoo / "rope.json").unlink()
    assert sweep(zoo, out, executor=here).fresh == 3
    before = out.read_bytes()
    assert sweep(zoo, out, executor=here).fresh == 0
    assert out.read_bytes() == before
    (zoo / "a.txt").write_text(text_graph(6))
    (zoo / "half.json").unlink()
    again = sweep(zoo, out, executor=here)
    assert (again.fresh, [r.graph for r in again.rows]) == (1, ["a.txt", "deep/b.txt"])
    assert len(out.read_bytes().splitlines()) == 3  # the row of a graph that is gone stays
    assert sweep([zoo / "deep" / "b.txt"], out, seed=1, executor=here).fresh == 1
    assert sweep(zoo, out, again=("ok",), executor=here).fresh == 2
    (zoo / "half.json").write_text("{")
    assert sweep(zoo, out, points=100, executor=here).counts == {"unchecked": 2, "refused": 1}


def test_a_torn_line_is_done_again(zoo: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    (zoo / "rope.json").unlink()
    sweep(zoo, out, executor=Here())
    whole = out.read_bytes().splitlines(keepends=True)
    for cut in (1, len(whole[-1]) // 2, len(whole[-1]) - 1):
        out.write_bytes(b"".join(whole[:-1]) + whole[-1][:cut])
        assert sweep(zoo, out, executor=Here()).fresh == 1
        assert sorted(read_rows(out)) == sorted(json.loads(x)["graph"] for x in whole)


@pytest.mark.slow
def test_killed_and_gone_on(tmp_path: Path) -> None:
    folder, out = tmp_path / "zoo", tmp_path / "rows.jsonl"
    folder.mkdir()
    names = ["g0.txt", "g1.txt", "g2.py", "g3.txt"]  # one after the other; the third waits until it is killed
    for n, name in enumerate(names):
        (folder / name).write_text(text_graph(n + 2))
    (folder / "g2.py").write_text("import time\ntime.sleep(600)\n")
    (folder / "list.txt").write_text("\n".join(names))
    command = [sys.executable, "-m", "idgraph", "sweep", str(folder / "list.txt"), "--out", str(out), "--workers", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300  # a busy machine takes its time; a sweep that stands still ends here
    while (not out.exists() or out.read_bytes().count(b"\n") < 2) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = out.read_bytes()
    done = kept.count(b"\n")
    assert done == 2
    (folder / "g2.py").write_text("import idgraph as ig\nf = ig.Fusion('f')\nf.output(f.input('x', (4,)) + 1.0)\n")
    gone = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert gone.returncode == 0, gone.stderr
    assert f"{len(names)} graphs, {len(names) - done} of them examined now" in gone.stdout
    assert out.read_bytes().startswith(kept[: kept.rindex(b"\n") + 1])  # nothing is done twice
    assert sorted(read_rows(out)) == names


@pytest.mark.nightly
def test_killed_at_thirty_random_moments(tmp_path: Path) -> None:
    """The group of processes gets SIGKILL again and again; every graph has one row in the end."""
    folder, out = tmp_path / "zoo", tmp_path / "rows.jsonl"
    folder.mkdir()
    names = [f"g{n:02}.txt" for n in range(24)]
    for n, name in enumerate(names):
        (folder / name).write_text(text_graph(n + 2))
    command = [sys.executable, "-m", "idgraph", "sweep", str(folder), "--out", str(out), "--workers", "2"]
    r, kills = random.Random(7), 0
    while kills < 30:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            process.wait(r.uniform(0.3, 3.0))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
        else:
            out.unlink()  # all done: from the beginning
        kept = out.read_bytes().split(b"\n")[:-1] if out.exists() else []
        graphs = [json.loads(row)["graph"] for row in kept]
        assert len(graphs) == len(set(graphs))
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert sorted(read_rows(out)) == names and out.read_bytes().count(b"\n") == len(names)


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(
        f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    code = f"from idgraph.sweeps import sweep; sweep([{str(tmp_path / 'hangs.py')!r}])"
    process = subprocess.Popen([sys.executable, "-c", code])
    pid = tmp_path / "pid"
    deadline = time.monotonic() + 300
    while (not pid.exists() or not pid.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    child = int(pid.read_text())
    process.kill()
    process.wait()
    while time.monotonic() < deadline:
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return  # a zombie: ended, not yet waited for
        time.sleep(0.05)
    raise AssertionError("the child outlives its parent")


@pytest.mark.slow
def test_on_a_pool_of_processes(zoo: Path) -> None:
    with ProcessPoolExecutor(1) as executor:
        assert statuses(sweep(zoo, executor=executor)) == ZOO


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="dask.distributed is not installed")
def test_on_a_dask_cluster_by_its_address(zoo: Path, tmp_path: Path) -> None:
    code = (
        "import sys, distributed\nif __name__ == '__main__':\n"
        "    c = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)\n"
        "    print(c.scheduler_address, flush=True)\n    sys.stdin.read()\n    c.close()\n"
    )
    (tmp_path / "scheduler.py").write_text(code)
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "scheduler.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as scheduler:  # fmt: skip
        assert scheduler.stdout is not None
        address = scheduler.stdout.readline().strip()
        command = [sys.executable, "-m", "idgraph", "sweep", str(zoo), "--out", str(tmp_path / "rows.jsonl")]
        shown = subprocess.run(
            [*command, "--cluster", address, "--json"], capture_output=True, text=True, check=False, timeout=600
        )
    assert shown.returncode == 1, shown.stderr  # half.json
    found = [SweepRow.from_json(x) for x in shown.stdout.splitlines()]
    assert {r.graph: r.status for r in found} == ZOO


@pytest.mark.nightly  # starting ray takes half a minute
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_on_a_ray_cluster(zoo: Path, tmp_path: Path) -> None:
    # In a process of its own: ray warns on import, and a warning is an error here.
    command = [sys.executable, "-m", "idgraph", "sweep", str(zoo), "--out", str(tmp_path / "rows.jsonl")]
    shown = subprocess.run(
        [*command, "--cluster", "ray", "--workers", "2"], capture_output=True, text=True, check=False, timeout=240
    )
    assert shown.returncode == 1, shown.stderr
    assert {r.graph: r.status for r in read_rows(tmp_path / "rows.jsonl").values()} == ZOO


class Lossy(Here):
    """Loses every second task, as a cluster whose machines go away; or breaks at the second one."""

    def __init__(self, breaks: bool) -> None:
        self.breaks = breaks
        self.calls = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.calls += 1
        if self.calls % 2 == 0:
            future.set_exception(BrokenExecutor("gone") if self.breaks else OSError("the machine is gone"))
        else:
            return super().submit(fn, *args, **kwargs)
        return future


def test_a_lost_worker_loses_no_graph(zoo: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    found = sweep(zoo, out, executor=Lossy(breaks=False))
    assert sorted(statuses(found)) == sorted(ZOO)
    lost = [r for r in found.rows if r.status == "crashed"]
    assert len(lost) == 2 and all("the machine is gone" in r.reason for r in lost)
    assert statuses(sweep(zoo, out, again=("crashed",), executor=Here())) == ZOO


def test_a_broken_executor_keeps_what_is_done(zoo: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    with pytest.raises(ig.IdGraphError, match="takes no more work") as error:
        sweep(zoo, out, executor=Lossy(breaks=True))
    assert "run the sweep again" in error.value.hint
    assert statuses(sweep(zoo, out, executor=Here())) == ZOO


def test_bad_requests(tmp_path: Path, zoo: Path) -> None:
    with pytest.raises(ig.IdGraphError, match="no graph in"):
        sweep(_empty(tmp_path))
    with pytest.raises(ig.IdGraphError, match="No such file"):
        sweep(tmp_path / "nothing")
    with pytest.raises(ig.IdGraphError, match="one graph, not a list"):
        sweep(zoo / "half.json")
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(ig.IdGraphError, match=r"line 1 of .* is not a row"):
        sweep(zoo, tmp_path / "other.jsonl")
    assert (tmp_path / "other.jsonl").read_text() == '{"a": 1}\n'  # untouched
    with pytest.raises(ig.IdGraphError, match="cannot write"):
        sweep(zoo, tmp_path / "no" / "rows.jsonl")
    for wrong in ({"timeout": 0}, {"timeout": float("nan")}, {"workers": 0}, {"memory": -1}, {"points": -1}):
        with pytest.raises(ig.IdGraphError, match="a sweep needs"):
            sweep(zoo, **wrong)  # pyright: ignore[reportArgumentType]
    for address in ("", "http://x", "file:///x"):
        with pytest.raises(ig.IdGraphError, match="not an address of a cluster"), cluster(address):
            pass


def _empty(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


def test_two_sweeps_do_not_write_one_file(zoo: Path, tmp_path: Path) -> None:
    from idgraph.sweeps.results import row_file

    with row_file(tmp_path / "rows.jsonl"), pytest.raises(ig.IdGraphError, match="another sweep"):
        sweep(zoo, tmp_path / "rows.jsonl")


def test_rows_of_a_sweep_that_ends_just_now_are_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another sweep has the file when this one opens it, adds a row, puts a new file there and ends."""
    from idgraph.sweeps import results as result_lines

    path, lock = tmp_path / "rows.jsonl", result_lines.lock
    kept = [SweepRow(f"{n}.json", "0" * 64, "ok") for n in range(3)]

    def late(stream: Any, of: Path) -> None:
        monkeypatch.setattr(result_lines, "lock", lock)
        with result_lines.row_file(path) as other:
            other.add(kept[0])
            other.keep(kept[1:])
            other.add(kept[0])
        lock(stream, of)

    monkeypatch.setattr(result_lines, "lock", late)
    with result_lines.row_file(path) as file:
        assert list(file.rows) == ["1.json", "2.json", "0.json"]
        file.add(SweepRow("own.json", "0" * 64, "ok"))
    assert list(read_rows(path)) == ["1.json", "2.json", "0.json", "own.json"]


FULL = """
import resource, sys
from pathlib import Path
from idgraph import IdGraphError
from idgraph.sweeps.results import SweepRow, row_file
room = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
with row_file(Path(sys.argv[1])) as file:
    try:
        if sys.argv[3] == "keep":
            file.keep([*file.rows.values(), *(SweepRow(f"kept{n}.json", "0" * 64, "ok") for n in range(1000))])
        for n in range(len(file.rows), 1000):
            file.add(SweepRow(f"{n}.json", "0" * 64, "ok"))
    except IdGraphError as error:
        assert "cannot write" in error.what and "goes on" in error.hint
    else:
        raise AssertionError("there was room")
"""


def test_where_there_is_no_room_no_row_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for room, how in ((5000, "add"), (5100, "add"), (5100, "keep"), (20_001, "add")):
        before = path.read_bytes() if path.exists() else b""
        command = [sys.executable, "-c", FULL, str(path), str(room), how]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=600,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        after = path.read_bytes()
        assert after.startswith(before) and after.endswith(b"\n") and len(after) > room - 400
        assert list(read_rows(path)) == [f"{n}.json" for n in range(after.count(b"\n"))]
        assert list(tmp_path.iterdir()) == [path]


def test_a_link_beside_the_rows_is_not_followed(zoo: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "rows.jsonl.new").symlink_to(tmp_path / "precious")
    sweep([zoo / "half.json"], tmp_path / "rows.jsonl", executor=Here())
    (zoo / "half.json").write_text("{")
    sweep([zoo / "half.json"], tmp_path / "rows.jsonl", executor=Here())
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.thorough
@pytest.mark.slow
def test_what_a_graph_has_started_holds_nothing_up(tmp_path: Path) -> None:
    """A process that outlives the graph's, with its pipes open; one that prints without end; one that forges a row."""
    (tmp_path / "leaves.py").write_text(
        f"import os, time\nif os.fork() == 0:\n    open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "    time.sleep(600)\ntime.sleep(1)\nos._exit(7)\n"
    )
    (tmp_path / "prints.py").write_text("import os\nwhile True: os.write(2, b'x' * 1_000_000)\n")
    forged = SweepRow("leaves.py", "0" * 64, "ok").to_json()
    (tmp_path / "forges.py").write_text(
        f"import os\nfor n in range(3, 20):\n    try: os.write(n, {forged!r}.encode())\n    except OSError: pass\n"
        "os._exit(0)\n"
    )
    code = (
        "import sys\nfrom idgraph.sweeps import sweep\n"
        # A busy machine gives those that end all the time they need.
        "found = (*sweep(sys.argv[1:3], timeout=240, workers=2).rows, *sweep(sys.argv[3:], timeout=6).rows)\n"
        "print([(r.status, r.reason) for r in found])\n"
        # Not ru_maxrss, which keeps the size of the process that started this one.
        "print(next(int(x.split()[1]) for x in open('/proc/self/status') if x.startswith('VmHWM')) >> 10)\n"
    )
    names = ("leaves.py", "forges.py", "prints.py")
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, *(str(tmp_path / n) for n in names)],
        capture_output=True, text=True, check=False, timeout=600,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 0 and time.monotonic() - began < 200, done.stderr
    shown, mib = done.stdout.splitlines()
    assert "('crashed', 'ended with status 7')" in shown and "answered for another graph" in shown
    assert "still running after 6 s" in shown and int(mib) < 1000
    left = int((tmp_path / "pid").read_text())
    stat = Path(f"/proc/{left}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_module_beside_the_graphs_is_never_imported(zoo: Path, tmp_path: Path) -> None:
    (zoo / "json.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')\n")
    for name in ("rope.json", "half.json"):
        (zoo / name).unlink()
    subprocess.run(
        [sys.executable, "-P", "-m", "idgraph", "sweep", ".", "--out", str(tmp_path / "rows.jsonl")],
        cwd=zoo, capture_output=True, check=True, timeout=600,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert not (tmp_path / "owned").exists()
