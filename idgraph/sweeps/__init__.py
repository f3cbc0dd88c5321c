"""Sweeps: many graphs imported, reported and checked, each in a process of its own, on any executor.

rows (the file) < examine (one graph) < child, guard (its process) < run (`sweep`, and executors by address)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from idgraph.errors import IdGraphError, arguments, no_attribute
from idgraph.loading import LOADING, load
from idgraph.runtime import Target

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from idgraph.sweeps.results import Status, Sweep, SweepRow, read_rows
    from idgraph.sweeps.run import RayExecutor, Seen, cluster

__all__ = ["RayExecutor", "SweepRow", "Sweep", "cluster", "read_rows", "sweep"]

_LATER = {"RayExecutor": "run", "SweepRow": "results", "Sweep": "results", "cluster": "run", "read_rows": "results"}


@arguments(IdGraphError)
def sweep(
    graphs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    timeout: float = 300.0,
    memory: int = 4 << 30,
    target: Target = "numpy",
    auto: bool = False,
    seed: int = 0,
    points: int = 30_000_000,
    again: Collection[Status] = (),
    progress: Seen | None = None,
    metrics: bool = False,
) -> Sweep:
    """Import, report and check every graph of a folder or a list; one row each, whatever becomes of it.

    ``graphs``: a folder (its .json and .txt files), a text file with one path in each line, or paths. Each graph runs
    in a process of its own that is ended after ``timeout`` seconds and may have ``memory`` bytes (0: no limit): a
    graph that hangs, crashes or fails has a row that says so. ``executor``: any `concurrent.futures.Executor`, for a
    cluster that of `cluster`; default: ``workers`` processes on this machine, one for each core.

    ``output``: a file of JSON lines, one for each graph, each on the disk before the next is waited for. Graphs in
    it are not done again, unless the graph, ``target``, ``auto``, ``seed`` or ``points`` changed or its status is one
    of ``again``: a sweep that was killed goes on where it was. A graph with more than ``points`` (access, loop point)
    pairs is reported and not checked. ``progress`` hears (done, total, row or None). ``metrics`` adds rows of the
    metric tables (`idgraph.reports.metrics`), which `Sweep.to_csv` writes.

    Raises `IdGraphError` for a folder without graphs, an output that holds other things, an executor that broke.

    >>> import tempfile, pathlib, idgraph as ig
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> f = ig.Fusion("turn")
    >>> t = f.output(f.input("x", shape=(8, 16)).T + 1.0)
    >>> _ = (folder / "turn.txt").write_text(str(f))
    >>> _ = (folder / "bad.json").write_text("{")
    >>> found = sweep(folder, folder / "rows.jsonl")
    >>> [(r.graph, r.status, dict(r.checks)) for r in found.rows]
    [('bad.json', 'refused', {}), ('turn.txt', 'ok', {'points': 512, 'values': 128})]
    >>> sweep(folder, folder / "rows.jsonl").fresh  # nothing is done twice
    0
    """
    with LOADING:
        from idgraph.sweeps.run import run_sweep  # noqa: PLC0415 - as above
        from idgraph.sweeps.worker import ExaminationOptions  # noqa: PLC0415 - loads every room

    if not timeout > 0 or memory < 0 or points < 0 or (workers is not None and workers < 1):
        raise IdGraphError("a sweep needs a timeout above 0, workers of at least 1, memory and points of at least 0")
    options = ExaminationOptions(target, auto, seed, points, metrics)
    file = None if output is None else Path(output)
    return run_sweep(graphs, file, executor, workers, timeout, memory, options, again, progress)


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise no_attribute(sys.modules[__name__], name)
    return getattr(load(f"{__name__}.{_LATER[name]}"), name)
