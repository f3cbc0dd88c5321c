"""A graph in a process of its own, with a time and a memory limit: whatever it does, there is a row of it.

`guarded` runs in a worker of any executor; its task holds the file's content, so that the worker may be on a machine
that does not have the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, cast

from idgraph.errors import IdGraphError, visible
from idgraph.frontends.import_ import Import, read_file
from idgraph.ir import Fusion
from idgraph.reports.metric_tables import MetricRow, metrics
from idgraph.reports.program_report import IndexReport, report_fusion
from idgraph.reports.to_json import totals
from idgraph.runtime import Target
from idgraph.sweeps.results import Settings, SweepRow
from idgraph.validate import Report, validate


@dataclass(frozen=True, slots=True)
class ExaminationOptions:
    """How every graph is examined: kernels for ``target``, ``auto`` scheduled or as given; inputs from ``seed``.

    A graph with more than ``points`` (access, loop point) pairs is reported and not checked. ``metrics`` makes the rows
    of the metric tables too, of CUDA kernels scheduled by `ig.schedule.auto`.
    """

    target: Target = "numpy"
    auto: bool = False
    seed: int = 0
    points: int = 30_000_000
    metrics: bool = False

    def settings(self, version: str) -> Settings:
        """The settings that a row remembers: a row with others is made again."""
        return {
            "target": self.target, "auto": self.auto, "seed": self.seed, "points": self.points, "idgraph": version,
            **({"metrics": True} if self.metrics else {}),
        }  # fmt: skip


def examine(path: Path, graph: str, digest: str, options: ExaminationOptions) -> SweepRow:
    """The row of one file."""
    began = time.perf_counter()
    row = SweepRow(graph, digest, "ok")
    try:
        row = _examined(path, row, options)
    except IdGraphError as error:
        because = "; ".join([error.what, *(f"because {b}" for b in error.because)])
        row = replace(row, status="refused", reason=f"{type(error).__name__}: {because}")
    except MemoryError:
        row = replace(row, status="memory", reason="an allocation was refused")
    except RecursionError:
        row = replace(row, status="refused", reason="nested too deep")
    except Exception as error:  # a fault of this library's: the graph keeps its row, and the row says where it was
        row = replace(row, status="crashed", reason=_fault(error))
    return replace(row, seconds=round(time.perf_counter() - began, 3), peak_bytes=_peak())


def _fault(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}{where}"


def _peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _examined(path: Path, row: SweepRow, options: ExaminationOptions) -> SweepRow:
    found = read_file(str(path))
    fusions = [s.fusion for s in found.segments if s.fusion is not None] if isinstance(found, Import) else [found]
    report = _report(found, options.auto)
    row = replace(
        row,
        totals=totals(report),
        cycles=dict(sorted(Counter(c.kind for c in report.cycles).items())),
        opaque=dict(report.opaque),
        metrics=_metrics(found, visible(row.graph)) if options.metrics else {},
    )
    points = [a.points for a in report.accesses]
    if not all(isinstance(n, int) for n in points):
        return replace(row, status="unchecked", reason="extents are symbols")
    pairs = sum(n for n in points if isinstance(n, int))
    if pairs > options.points:
        return replace(row, status="unchecked", reason=f"{pairs:.1e} points, at most {options.points:.1e} are checked")
    scheduled = [s.fusion for s in report.segments if s.fusion is not None] if options.auto else fusions
    return _checked(row, scheduled, options)


def _metrics(found: Fusion | Import, model: str) -> Mapping[str, Sequence[MetricRow]]:
    """The rows of the metric tables, as plain data."""
    made = found.metrics(model=model) if isinstance(found, Import) else metrics(found, model=model)
    return {name: [dict(r) for r in rows] for name, rows in made.tables.items()}


def _report(found: Fusion | Import, auto: bool) -> IndexReport:
    if isinstance(found, Import):
        return found.report(auto=auto, suggestions=0)
    return report_fusion(found, None, auto, 0)


def _checked(row: SweepRow, fusions: list[Fusion], options: ExaminationOptions) -> SweepRow:
    checks: Counter[str] = Counter()
    for f in fusions:
        result: Report = validate(f, target=options.target, seed=options.seed)
        checks["points"] += result.points
        checks["values"] += result.values.elements if result.values is not None else 0
        if not result.ok:
            reason = " ".join(str(result.counterexample).split())
            return replace(row, status="failed", reason=f"{f.name}: {reason}", checks=dict(checks))
    return replace(row, checks=dict(checks))


_ROOT = str(Path(__file__).resolve().parents[2])
_TAIL = 2000  # characters of standard error that are looked at
_ANSWER = 256_000_000  # bytes of a row, at most

Process = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True)
class Task:
    """One graph to examine: ``name`` is its file's, ``path`` is set for a Python program, which runs where it stands.

    ``timeout`` is seconds, ``memory`` bytes (0: no limit).
    """

    graph: str
    name: str
    digest: str
    data: bytes
    path: str
    options: ExaminationOptions
    settings: Settings
    timeout: float
    memory: int


def guarded(task: Task, started: Callable[[Process], None] | None = None) -> SweepRow:
    """The row of a task; ``started`` hears of the process."""
    began = time.perf_counter()
    row = _run(task, started)
    seconds = row.seconds or round(time.perf_counter() - began, 3)
    return replace(row, settings=task.settings, seconds=seconds)


def _run(task: Task, started: Callable[[Process], None] | None) -> SweepRow:
    lost = SweepRow(task.graph, task.digest, "crashed")
    request = {
        "graph": task.graph, "digest": task.digest, "name": _file_name(task.name), "path": task.path,
        "size": len(task.data), "memory": task.memory, "options": asdict(task.options),
    }  # fmt: skip
    # -P: a module that stands beside the graphs is never imported.
    command = [sys.executable, "-P", "-m", "idgraph.sweeps.child"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment(),
        start_new_session=True,
    )  # fmt: skip
    if started is not None:
        started(process)
    ended, out, errors = _talk(process, json.dumps(request).encode() + b"\n" + task.data, task.timeout)
    if not ended:
        return replace(lost, status="timeout", reason=f"still running after {task.timeout:g} s")
    try:
        row = SweepRow.from_json(out.decode("utf-8"))
    except ValueError:
        return _death(lost, process.returncode, errors)
    if (row.graph, row.digest) != (task.graph, task.digest):
        return replace(lost, reason="the process has answered for another graph")
    return row


def end(process: Process) -> None:
    """End a process that has not been waited for, with all that it has started in its group."""
    if process.returncode is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


def _talk(process: Process, request: bytes, timeout: float) -> tuple[bool, bytes, str]:
    """Whether it ended in time, its answer, and the end of its standard error.

    Standard input stays open: it says that this process lives. A stream belongs to its thread, since what a graph has
    started may outlive the graph's process and hold a pipe open.
    """
    stdin, stdout, stderr = (cast("IO[bytes]", s) for s in (process.stdin, process.stdout, process.stderr))
    out, errors = bytearray(), bytearray()

    def drain(stream: IO[bytes], into: bytearray, keep: int) -> None:
        """Read to the end, and keep the last ``keep`` bytes: a graph may print without end."""
        with stream:
            while chunk := os.read(stream.fileno(), 1 << 16):
                into += chunk
                del into[:-keep]

    def send() -> None:
        with contextlib.suppress(OSError):  # it ended before it had read all: its standard error says why
            stdin.write(request)
            stdin.flush()

    threads = [
        threading.Thread(target=drain, args=(stdout, out, _ANSWER), daemon=True),
        threading.Thread(target=drain, args=(stderr, errors, 4 * _TAIL), daemon=True),
        threading.Thread(target=send, daemon=True),
    ]
    for t in threads:
        t.start()
    try:
        ended = _ended(process, timeout)
    finally:
        end(process)  # not waited for yet, so that its number still is its own
        process.wait()
    for t in threads:
        t.join(5)
    if not threads[-1].is_alive():
        with contextlib.suppress(OSError):
            stdin.close()
    return ended, bytes(out), bytes(errors).decode("utf-8", "replace")[-_TAIL:]


def _ended(process: Process, timeout: float) -> bool:
    """Whether the process ends within ``timeout`` seconds; it is not waited for."""
    until, pause = time.monotonic() + timeout, 0.001
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        left = until - time.monotonic()
        if left <= 0:
            return False
        pause = min(2 * pause, left, 0.05)
        time.sleep(pause)
    return True


def _death(lost: SweepRow, code: int, errors: str) -> SweepRow:
    """The row of a process that gave no answer, from its exit status and standard error."""
    last = next((line.strip() for line in reversed(errors.splitlines()) if line.strip()), "")
    if "MemoryError" in errors or "Cannot allocate memory" in errors or "bad_alloc" in errors:
        return replace(lost, status="memory", reason=last[:300] or "an allocation was refused")
    ended = f"ended by signal {-code}" if code < 0 else f"ended with status {code}"
    return replace(lost, reason=f"{ended}: {last[:300]}" if last else ended)


def _file_name(name: str) -> str:
    """A plain name for a copy of the file: its stem is the program's name, its suffix says the format."""
    plain = Path(name).name
    if plain.isprintable() and plain not in ("", ".", ".."):
        return plain
    return f"graph{suffix}" if (suffix := Path(name).suffix).isprintable() else "graph"


def _environment() -> dict[str, str]:
    """This package first; one thread for each process, since there is one process for each core."""
    paths = [_ROOT, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    return {**os.environ, **one, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
