"""Processes that schedule fusions and compile kernels beside this one: Python and numba hold locks, threads would wait.

Fusions are submitted when those of a graph are known, a kernel as soon as it is emitted. Whoever needs it takes what a
process has made, waits for one that is at it, or makes it itself where none has begun. A process gets a fusion, or
source and types, as a line of JSON and answers with a line: a program as `idgraph.runtime.program_cache` keeps it,
machine code as `idgraph.runtime.kernel_cache` does, or PTX. It ends when nothing has been asked of it for a while, and
with this process. What it cannot make is made here, which raises the error.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Event, Thread
from typing import IO, Any, cast

from idgraph.errors import EmitError

STARTING = 3  # a process takes as long to start as so many kernels take to compile, or one fusion with its kernels
IDLE_SECONDS = 20.0  # after which a process ends
MOST = 32  # processes
_ROOT = str(Path(__file__).resolve().parents[2])


@dataclass(slots=True)
class CompileJob:
    """A fusion or kernel that was submitted, which takes as long as ``kernels`` do; ``text`` once ``done``, None where
    the process could not make it."""

    key: Hashable
    request: str
    kernels: int = 1
    started: bool = False
    done: Event = field(default_factory=Event)
    text: str | None = None


class WorkerPool:
    """Jobs and the threads that give each to a process. ``limit``: the most processes; None: a core each, beside
    one for this process."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.compiled = 0  # texts that processes have made
        self._jobs: dict[Hashable, CompileJob] = {}
        self._changed = Condition()
        self._threads = 0

    @property
    def most(self) -> int:
        """The most processes."""
        cores = len(os.sched_getaffinity(0))
        return min(MOST, cores - 1 if self.limit is None else self.limit)

    def submit(self, key: Hashable, request: Mapping[str, object], kernels: int = 1) -> None:
        """Have a fusion or kernel made, where that is worth a process: what waits takes as long as ``kernels``."""
        if not self.most:
            return
        with self._changed:
            if key in self._jobs:
                return
            self._jobs[key] = CompileJob(key, json.dumps(request), kernels)
            waiting = sum(j.kernels for j in self._jobs.values() if not j.started)
            if self._threads < min(self.most, waiting // STARTING):
                self._threads += 1
                kind = request.get("of", request["target"])
                Thread(target=self._serve, args=(kind,), name="idgraph compile process", daemon=True).start()
            self._changed.notify()

    def take(self, key: Hashable) -> str | None:
        """The text that a process has made of the kernel, or makes now; None where it is to be compiled here."""
        with self._changed:
            job = self._jobs.pop(key, None)
        if job is None or not job.started:
            return None
        job.done.wait()
        return job.text

    def is_waiting(self, key: Hashable) -> bool:
        """Whether a kernel was submitted that no process has begun with."""
        with self._changed:
            job = self._jobs.get(key)
            return job is not None and not job.started

    def _next(self) -> CompileJob | None:
        """The next job, which counts as started; None after a while without one."""
        with self._changed:
            while True:
                job = next((j for j in self._jobs.values() if not j.started), None)
                if job is not None:
                    job.started = True
                    return job
                if not self._changed.wait(IDLE_SECONDS):
                    self._threads -= 1
                    return None

    def _serve(self, kind: object) -> None:
        """The life of a process. It begins with a job when it can: until then others may."""
        job = None
        try:
            with _process(kind) as process:
                stdin, stdout = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)
                _answer(stdout)
                while (job := self._next()) is not None:
                    stdin.write(job.request + "\n")
                    stdin.flush()
                    job.text = _answer(stdout).get("text")
                    self.compiled += job.text is not None
                    job.done.set()
        except (OSError, ValueError):  # it ended, or could not be started: what waits is compiled here
            with self._changed:
                self._threads -= 1
                self.limit = 0
        finally:
            if job is not None:
                job.done.set()


def _answer(stdout: IO[str]) -> dict[str, Any]:
    line = stdout.readline()
    if not line:
        raise OSError("the process has ended")
    return json.loads(line)


@contextlib.contextmanager
def _process(kind: object) -> Any:
    """A process that compiles for a target. -P: a module that stands in the working directory is never imported."""
    paths = [_ROOT, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "idgraph.runtime.compile_child", str(kind)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, start_new_session=True, text=True,
        encoding="utf-8",
    )  # fmt: skip
    try:
        yield process
    finally:
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                cast("IO[str]", stream).close()
        process.wait()


POOL = WorkerPool()


def limit_workers(count: int | None) -> None:
    """The most processes that compile kernels; None: a core each, beside one for this process; 0: all is compiled here.

    Raises `EmitError` for anything else.

    >>> limit_workers(0)
    >>> limit_workers(-1)
    Traceback (most recent call last):
    idgraph.errors.EmitError: -1 processes that compile: a whole number from 0, or None
    """
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise EmitError(f"{count!r} processes that compile: a whole number from 0, or None")
    POOL.limit = count


def _forget() -> None:
    """A copy of a process has none of its threads."""
    POOL.__init__(POOL.limit)


os.register_at_fork(after_in_child=_forget)
