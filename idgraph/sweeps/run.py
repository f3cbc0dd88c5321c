"""The sweep itself: which graphs, which of them are done, and the loop that submits the others and keeps rows.

Executors by address: a dask scheduler, a ray cluster, or one of either on this machine.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from idgraph.errors import IdGraphError
from idgraph.ir.limits import read_within
from idgraph.sweeps.results import RowFile, Settings, Status, Sweep, SweepRow, row_file
from idgraph.sweeps.worker import ExaminationOptions, Process, Task, end, guarded

P = ParamSpec("P")
T = TypeVar("T")
HINT = "tcp://host:8786 is a dask scheduler, ray://host:10001 a ray cluster; plain dask or ray starts one here"


class RayExecutor(Executor):
    """Each call is a ray task; its future is the task's own."""

    def __init__(self, ray: Any) -> None:
        self._remote = ray.remote

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """A future of ``fn(*args, **kwargs)`` on the cluster."""
        return self._remote(fn).remote(*args, **kwargs).future()


@contextlib.contextmanager
def cluster(address: str, workers: int | None = None) -> Generator[Executor]:
    """An executor on the cluster at ``address``; plain "dask" or "ray" starts one here with ``workers`` processes.

    idgraph must be installed on its machines. Raises `IdGraphError` where the package is missing or nobody answers.
    """
    kind = address.partition(":")[0]
    if kind == "ray":
        yield from _ray(address, workers)
    elif kind in ("dask", "tcp", "tls", "ucx"):
        yield from _dask(address, workers)
    else:
        raise IdGraphError(f"{address!r} is not an address of a cluster", hint=HINT)


def _dask(address: str, workers: int | None) -> Generator[Executor]:
    try:
        found: Any = import_module("distributed")
    except ImportError:
        raise IdGraphError("dask.distributed is not installed", hint="pip install distributed") from None
    with contextlib.ExitStack() as stack:
        try:
            where: Any = address
            if address == "dask":
                where = stack.enter_context(
                    found.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
                )
            client = stack.enter_context(found.Client(where, timeout=10, set_as_default=False))
        except (OSError, TimeoutError, ValueError) as error:
            raise IdGraphError(f"no dask scheduler answers at {address!r}: {error}", hint=HINT) from None
        yield client.get_executor(pure=False, retries=1)


def _ray(address: str, workers: int | None) -> Generator[Executor]:
    try:
        found: Any = import_module("ray")
    except ImportError:
        raise IdGraphError("ray is not installed", hint="pip install ray") from None
    options: dict[str, Any] = {"address": address} if address != "ray" else {"num_cpus": workers}
    try:
        found.init(**options, include_dashboard=False if address == "ray" else None, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise IdGraphError(f"no ray cluster answers at {address!r}: {first}", hint=HINT) from None
    try:
        yield RayExecutor(found)
    finally:
        found.shutdown()


MAX_BYTES = 64_000_000
SUFFIXES = (".json", ".txt")
Seen = Callable[[int, int, SweepRow | None], None]


@dataclass(frozen=True, slots=True)
class Source:
    """A file and its name in the sweep."""

    graph: str
    path: Path


def sources_of(graphs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Source]:
    """Files of a folder (``.json`` and ``.txt``, in every depth), or of a list: a file with a path in each line.

    Names of files in a folder are relative to it. Raises `IdGraphError` where there is none.
    """
    if isinstance(graphs, (str, os.PathLike)):
        if not os.fspath(graphs):
            raise IdGraphError("no folder and no list is named")
        top = Path(graphs)
        if top.is_dir():
            found = sorted(p for p in top.rglob("*") if p.suffix in SUFFIXES and p.is_file() and not _hidden(p, top))
            sources = [Source(p.relative_to(top).as_posix(), p) for p in found]
        else:
            sources = [Source(line, top.parent / line) for line in _file_lines(top)]
    else:
        sources = [Source(os.fspath(p), Path(p)) for p in graphs]
    unique = list({s.graph: s for s in sources}.values())
    if not unique:
        raise IdGraphError(
            f"there is no graph in {str(graphs)[:80]!r}", hint="a folder of .json or .txt files, or a list"
        )
    return unique


def _hidden(path: Path, top: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(top).parts)


def _file_lines(file: Path) -> list[str]:
    try:
        data = read_within(file, MAX_BYTES)
        text = data.decode("utf-8")
    except OSError as error:
        raise IdGraphError(f"cannot read {str(file)!r}: {error.strerror}") from None
    except ValueError:
        raise IdGraphError(f"{str(file)!r} is not a list of graphs: it is not UTF-8 text") from None
    if len(data) > MAX_BYTES or "\0" in text:
        raise IdGraphError(f"{str(file)!r} is not a list of graphs", hint="a text file with one path in each line")
    if file.suffix == ".json":
        raise IdGraphError(f"{str(file)!r} is one graph, not a list", hint="idgraph report FILE, or give its folder")
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


class _Children:
    """The processes of the default executor, so that an interrupt ends them."""

    def __init__(self) -> None:
        self._alive: set[Process] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def add(self, process: Process) -> None:
        with self._lock:
            self._alive = {p for p in self._alive if p.returncode is None} | {process}
            if self._stopped:
                end(process)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for p in self._alive:
                end(p)


@contextlib.contextmanager
def _hands(executor: Executor | None, workers: int) -> Generator[Callable[[Task], Future[SweepRow]]]:
    """How a task is submitted: to the executor given, or to threads that each watch over one process."""
    if executor is not None:
        yield functools.partial(executor.submit, guarded)
        return
    children = _Children()
    with ThreadPoolExecutor(workers, thread_name_prefix="idgraph-sweep") as threads:
        try:
            yield lambda task: threads.submit(guarded, task, children.add)
        except BaseException:
            children.stop()
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def run_sweep(
    graphs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    output: Path | None,
    executor: Executor | None,
    workers: int | None,
    timeout: float,
    memory: int,
    options: ExaminationOptions,
    again: Collection[Status],
    progress: Seen | None,
) -> Sweep:
    """See `idgraph.sweeps.sweep`."""
    sources = sources_of(graphs)
    hands = workers if workers is not None else os.cpu_count() or 1
    settings = options.settings(_version())
    seen = progress if progress is not None else _unseen
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(row_file(output)) if output is not None else None
        kept = _reusable_rows(sources, file.rows, settings, again) if file is not None else {}
        rows = dict(kept)
        if file is not None:
            file.keep(kept.values())
        todo = [s for s in sources if s.graph not in kept]
        done = len(sources) - len(todo)
        seen(done, len(sources), None)
        submit = stack.enter_context(_hands(executor, hands))
        window = 2 * hands if executor is None else max(64, 2 * hands)
        tasks = (_task(s, options, settings, timeout, memory) for s in todo)
        for row in _rows_as_completed(tasks, submit, window):
            rows[row.graph] = row
            _note(file, row)
            done += 1
            seen(done, len(sources), row)
    return Sweep(tuple(rows[s.graph] for s in sources), fresh=len(todo))


def _note(file: RowFile | None, row: SweepRow) -> None:
    if file is not None:
        file.add(row)


def _unseen(_done: int, _total: int, _row: SweepRow | None) -> None:
    return None


def _version() -> str:
    try:
        return version("idgraph-analysis")
    except PackageNotFoundError:
        return "source"


def _reusable_rows(
    sources: Iterable[Source], before: Mapping[str, SweepRow], settings: Settings, again: Collection[Status]
) -> dict[str, SweepRow]:
    """Rows that stand: of other graphs, and of graphs whose file and settings are the same."""
    kept = dict(before)
    for s in sources:
        row = before.get(s.graph)
        if row is None:
            continue
        same = dict(row.settings) == dict(settings) and row.status not in again
        if not same or row.digest != _digest(_read_source(s)[0]):
            del kept[s.graph]
    return kept


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read_source(source: Source) -> tuple[bytes, str]:
    """The content of a file; empty with the reason where it cannot be read."""
    try:
        if not source.path.is_file():
            return b"", "no such file" if not source.path.exists() else "not a plain file"
        data = read_within(source.path, MAX_BYTES)
    except (OSError, ValueError) as error:
        return b"", str(getattr(error, "strerror", None) or "is not a file name")
    return (b"", f"longer than {MAX_BYTES} bytes") if len(data) > MAX_BYTES else (data, "")


def _task(
    source: Source, options: ExaminationOptions, settings: Settings, timeout: float, memory: int
) -> Task | SweepRow:
    """The task to submit, or at once the row of a file that cannot be read."""
    data, wrong = _read_source(source)
    if wrong:
        return SweepRow(source.graph, _digest(data), "refused", f"cannot be read: {wrong}", settings=settings)
    program = str(source.path.resolve()) if source.path.suffix == ".py" else ""
    return Task(
        source.graph, source.path.name, _digest(data), data, program, options, settings, timeout, memory
    )  # fmt: skip


def _rows_as_completed(
    tasks: Iterator[Task | SweepRow], submit: Callable[[Task], Future[SweepRow]], window: int
) -> Generator[SweepRow]:
    """Rows as they come; at most ``window`` tasks are out, so that content waits on the disk, not in memory."""
    out: dict[Future[SweepRow], Task] = {}
    try:
        for task in tasks:
            if isinstance(task, SweepRow):
                yield task
                continue
            out[_handed(submit, task)] = task
            if len(out) >= window:
                yield from _finished(out)
        while out:
            yield from _finished(out)
    finally:
        for future in out:
            future.cancel()


def _handed(submit: Callable[[Task], Future[SweepRow]], task: Task) -> Future[SweepRow]:
    try:
        return submit(task)
    except (BrokenExecutor, RuntimeError) as error:
        raise _broken(error) from error


def _finished(out: dict[Future[SweepRow], Task]) -> Iterator[SweepRow]:
    ready, _ = wait(out, return_when=FIRST_COMPLETED)
    for future in ready:
        task = out.pop(future)
        try:
            yield future.result()
        except BrokenExecutor as error:
            raise _broken(error) from error
        except Exception as error:  # a worker that was lost: the graph keeps its row
            lost = SweepRow(task.graph, task.digest, "crashed", settings=task.settings)
            yield replace(lost, reason=f"the worker was lost: {type(error).__name__}: {str(error)[:200]}")


def _broken(error: BaseException) -> IdGraphError:
    return IdGraphError(
        f"the executor takes no more work: {type(error).__name__}: {str(error)[:200]}",
        hint="rows made so far are in the output; run the sweep again to go on",
    )
