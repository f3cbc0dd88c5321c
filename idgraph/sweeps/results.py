"""Rows of a sweep: one graph each, as one JSON line; the file they are kept in survives a kill at any moment."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from io import BufferedReader, FileIO
from pathlib import Path
from typing import BinaryIO, Literal, cast, get_args

from idgraph.display import Printed, Sheet
from idgraph.errors import IdGraphError, arguments, visible
from idgraph.ir.limits import open_plain
from idgraph.reports.metric_tables import MetricRow, add_rows

Status = Literal["ok", "unchecked", "failed", "refused", "timeout", "memory", "crashed"]
MEANING: dict[Status, str] = {
    "ok": "imported, reported, every address and value right",
    "unchecked": "imported and reported; too large to check, or of symbolic size",
    "failed": "a check found a wrong address or value",
    "refused": "not imported, or not expressible: an error with a reason",
    "timeout": "took longer than the time limit",
    "memory": "needed more than the memory limit",
    "crashed": "the process ended without an answer",
}
GOOD: frozenset[Status] = frozenset(("ok", "unchecked"))
Settings = Mapping[str, str | int | float | bool]
LONGEST = 2**28  # bytes of a line
_BEGIN = b'{"graph": '


@dataclass(frozen=True, slots=True)
class SweepRow:
    """The fate of one graph.

    ``graph`` is its name in the sweep, ``digest`` the SHA-256 of its file, ``reason`` what went wrong or why it was not
    checked, ``totals`` those of `IndexReport.to_dict`, ``opaque`` ATen name -> why, ``cycles`` kind -> count,
    ``checks`` the number of points and values checked; ``settings`` what it was run with. ``metrics`` are its rows of
    the metric tables, where they were asked for. ``seconds`` and ``peak_bytes`` are the process's.

    >>> SweepRow("rope.json", "0" * 64, "ok").good, SweepRow("rope.json", "0" * 64, "failed").good
    (True, False)
    """

    graph: str
    digest: str
    status: Status
    reason: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0
    totals: Mapping[str, object] = field(default_factory=dict[str, object])
    cycles: Mapping[str, int] = field(default_factory=dict[str, int])
    opaque: Mapping[str, str] = field(default_factory=dict[str, str])
    checks: Mapping[str, int] = field(default_factory=dict[str, int])
    settings: Settings = field(default_factory=dict[str, str | int | float | bool])
    metrics: Mapping[str, Sequence[MetricRow]] = field(default_factory=dict[str, Sequence[MetricRow]])

    @property
    def good(self) -> bool:
        """Nothing went wrong."""
        return self.status in GOOD

    def to_json(self) -> str:
        """One line.

        >>> SweepRow.from_json(SweepRow("a.json", "00", "ok").to_json()) == SweepRow("a.json", "00", "ok")
        True
        """
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> SweepRow:
        """Read a line; raises ValueError where it is not a row."""
        try:
            found: object = json.loads(line)
        except RecursionError:
            raise ValueError("nested too deep") from None
        if not isinstance(found, dict):
            raise ValueError("not an object")
        given = cast("dict[str, object]", found)
        known = {f.name for f in fields(SweepRow)}
        if not {"graph", "digest", "status"} <= given.keys() <= known:
            raise ValueError("not a row: its keys are others")
        if given["status"] not in get_args(Status) or not isinstance(given["graph"], str):
            raise ValueError("not a row: its status or name is missing")
        mappings = ("totals", "cycles", "opaque", "checks", "settings", "metrics")
        if any(not isinstance(given.get(k, {}), dict) for k in mappings):
            raise ValueError("not a row: totals, cycles, opaque, checks, settings and metrics are objects")
        return SweepRow(**given)  # pyright: ignore[reportArgumentType] - checked as far as it is read


@dataclass(frozen=True, slots=True)
class Sweep(Printed):
    """The rows of a sweep, in the order of its graphs. True when nothing went wrong; prints as a table.

    >>> s = Sweep((SweepRow("rope.json", "0" * 64, "ok"),))
    >>> s.ok, s.counts, len(s)
    (True, {'ok': 1}, 1)
    """

    rows: tuple[SweepRow, ...]
    fresh: int = 0

    @property
    def ok(self) -> bool:
        """No graph failed, was refused, or ran into a limit."""
        return all(r.good for r in self.rows)

    def __bool__(self) -> bool:
        return self.ok

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def counts(self) -> dict[Status, int]:
        """Graphs by status."""
        found = Counter(r.status for r in self.rows)
        return {s: found[s] for s in MEANING if found[s]}

    @arguments(IdGraphError, first=True)
    def to_csv(self, folder: str | Path) -> tuple[Path, ...]:
        """Write the metric tables of all graphs into ``folder``, each graph a model; rows that it has of them are
        replaced. Raises `IdGraphError` where the sweep ran without ``metrics``, or the folder cannot be written.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print([path.name for path in Sweep(()).to_csv(folder)][:2])
        ['models.csv', 'graph_stats.csv']
        """
        if self.rows and not any(r.metrics for r in self.rows):
            raise IdGraphError("the sweep has no metric tables", hint="sweep(..., metrics=True)")
        return add_rows(Path(folder), {visible(r.graph): r.metrics for r in self.rows})

    def sheet(self) -> Sheet:
        """Counts, then every graph that something went wrong with."""
        rows = [(str(n), status, MEANING[status]) for status, n in self.counts.items()]
        # A name is a file's and may hold any character; a reason is whatever a program has raised.
        notes = tuple(visible(f"{r.graph}: {r.status}: {r.reason}") for r in self.rows if not r.good)
        return Sheet(f"{len(self.rows)} graphs", ("graphs", "status", "which means"), tuple(rows), notes, self.ok)

    def __str__(self) -> str:
        found = self.sheet()
        lines = [f"{found.title}, {self.fresh} of them examined now"]
        lines += [f"  {n:>5}  {status:<10} {text}" for n, status, text in found.rows]
        return "\n".join([*lines, *found.notes])

    __repr__ = __str__


def read_rows(path: Path) -> dict[str, SweepRow]:
    """The rows of a file by graph, the last one of each; a last line that was cut off by a kill is left out.

    Raises `IdGraphError` for a file that holds other things.
    """
    found: dict[str, SweepRow] = {}
    try:
        with open_plain(path, "rb") as stream:
            for number, line in enumerate(_bounded_lines(stream), 1):
                row = _row(line, f"line {number} of {str(path)!r}")
                if row is not None:
                    found[row.graph] = row
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise IdGraphError(f"cannot read {str(path)!r}: {error.strerror}") from None
    return found


def _bounded_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines with their ends; one that is longer than a row can be is cut."""
    with BufferedReader(cast("FileIO", stream)) as lines:
        yield from iter(lambda: lines.readline(LONGEST + 1), b"")


def _row(line: bytes, where: str) -> SweepRow | None:
    """The row of a line; None for one that a kill has cut off."""
    wrong = f"it is longer than {LONGEST} bytes"
    if len(line) <= LONGEST:
        if not line.endswith(b"\n") and (line.startswith(_BEGIN) or _BEGIN.startswith(line)):
            return None
        try:
            return SweepRow.from_json(line.decode("utf-8"))
        except ValueError as error:
            wrong = str(error)[:80]
    raise IdGraphError(f"{where} is not a row of a sweep: {wrong}", hint="write to another file, or remove this one")


class RowFile:
    """A file of rows that only one sweep writes; every row is on the disk before the next one comes.

    ``rows`` are those that it held when it was opened, which no other sweep has changed since.
    """

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.rows: Mapping[str, SweepRow] = {}
        self._path = path
        self._stream = stream

    def keep(self, kept: Iterable[SweepRow]) -> None:
        """Let the file hold these rows and no others. A kill at any moment leaves the old file or the new one."""
        wanted = b"".join(r.to_json().encode() + b"\n" for r in kept)
        with _report_errors(self._path):
            if self._path.stat().st_size == len(wanted) and self._path.read_bytes() == wanted:
                return
            copy = self._path.with_name(f"{self._path.name}.new")
            copy.unlink(missing_ok=True)  # of a sweep that was killed; a link would be followed
            stream = copy.open("xb", buffering=0)
            try:
                lock(stream, self._path)
                _write(stream, wanted)
                copy.replace(self._path)
            except BaseException:
                stream.close()
                copy.unlink(missing_ok=True)
                raise
            self._stream.close()
            self._stream = stream

    def add(self, row: SweepRow) -> None:
        """Append one row."""
        with _report_errors(self._path):
            _write(self._stream, row.to_json().encode() + b"\n")

    def close(self) -> None:
        """Let other sweeps write the file."""
        self._stream.close()


@contextlib.contextmanager
def row_file(path: Path) -> Generator[RowFile]:
    """The file, open for this sweep only, and a link to it stays one. Raises `IdGraphError` where another sweep is
    writing it."""
    path = Path(os.path.realpath(path))
    with _report_errors(path):
        stream = _opened(path)
        while not os.path.samestat(os.fstat(stream.fileno()), path.stat()):  # a sweep that has just ended put it there
            stream.close()
            stream = _opened(path)
    file = RowFile(path, stream)
    try:
        file.rows = read_rows(path)
        yield file
    finally:
        file.close()


def _opened(path: Path) -> BinaryIO:
    stream = open_plain(path, "ab")
    try:
        lock(stream, path)
    except BaseException:
        stream.close()
        raise
    return stream


@contextlib.contextmanager
def _report_errors(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise IdGraphError(
            f"cannot write {str(path)!r}: {error.strerror or error}",
            hint="rows made so far are in it; once there is space again, the same sweep goes on",
        ) from None


def _write(stream: BinaryIO, data: bytes) -> None:
    """Write all of it to the disk, or nothing where no space is left."""
    before, left = os.fstat(stream.fileno()).st_size, memoryview(data)
    try:
        while left:
            left = left[stream.write(left) :]
        os.fsync(stream.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            stream.truncate(before)
        raise


def lock(stream: BinaryIO, path: Path) -> None:
    """Hold the file for this process; raises `IdGraphError` where another holds it."""
    try:
        import fcntl  # noqa: PLC0415 - not on every system; where there is none, nothing is locked
    except ImportError:
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise IdGraphError(
            f"{str(path)!r} is being written by another sweep", hint="wait for it, or write to another file"
        ) from None
