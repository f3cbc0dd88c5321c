"""Metric tables: rows of a program at the level of the model, its graphs, their kernels, and pairs of operations.

`TABLES` has the columns of each table, always the same and in this order; every row names its model. Numbers that are
not known (registers without an assembler, times of what was not run) are None, in CSV an empty cell.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast

from idgraph.cost import Device, cost
from idgraph.cost.report import Cost, KernelCost, csv_text, csv_value, kernel_row
from idgraph.display import Printed, Sheet, write_atomically
from idgraph.errors import IdGraphError, arguments
from idgraph.fuse import Obstacle, obstacles
from idgraph.ir import Fusion, check_fusion
from idgraph.ir.clone import clone_fusion
from idgraph.ir.device import current_device, device_of
from idgraph.ir.limits import open_plain
from idgraph.reports.collect import (
    Where,
    autotuned,
    kernel_times,
    persistent_times,
    program_time,
    same_kernel,
    slow_pairs,
)
from idgraph.reports.program_report import Part
from idgraph.runtime import Target, emit
from idgraph.runtime.program import Program
from idgraph.schedule import auto as schedule_automatically

LOCK = ".lock"
MOST_BYTES = 2**30  # of a table that is read again
Value = str | int | float | bool | None
MetricRow = Mapping[str, Value]
TABLES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({
    "models": (
        "model", "target", "device", "graphs", "operations", "opaque_calls", "kernels", "bytes_read", "bytes_written",
        "bytes_moved", "flops", "failures", "bytes_saved_by_fusing", "estimated_us", "measured_us", "refused",
    ),
    "graph_stats": (
        "model", "graph", "fusion", "operations", "inputs", "outputs", "opaque_calls", "kernels", "bytes_asked",
        "bytes_read", "bytes_written", "bytes_moved", "bytes_stored_between", "flops", "atomics", "failures",
        "bytes_saved_by_fusing", "estimated_us", "measured_us", "exact", "refused",
    ),
    "kernel_metadata": (
        "model", "graph", "kernel", "target", "device", "blocks", "threads", "tensors", "bytes_asked", "bytes_read",
        "bytes_written", "bytes_cached", "bytes_moved", "sectors", "bytes_shared", "bytes_private", "shared", "flops",
        "special", "atomics", "registers", "spills", "occupancy", "estimated_us", "measured_us", "bandwidth_share",
        "bound", "exact",
    ),
    "fusion_failures": (
        "model", "graph", "a", "b", "buffer", "cause", "bytes_saved", "recompute_factor", "access_a", "access_b",
        "alignment", "proof", "because", "same_kernel", "line_a", "line_b",
    ),
    "slow_fusion": ("model", "graph", "a", "b", "buffer", "cause", "target", "apart_us", "together_us", "slower"),
    "persistent": ("model", "graph", "target", "kernels", "persistent_us", "looped_us", "chosen", "note"),
    "autotune": ("model", "graph", "target", "config", "us", "chosen", "note"),
})  # fmt: skip
Tables = Mapping[str, Sequence[MetricRow]]


def add_rows(folder: Path, models: Mapping[str, Tables]) -> tuple[Path, ...]:
    """Replace the folder's rows of these models; returns the paths of its tables.

    One process at a time changes a folder, others wait; a file is replaced as a whole.
    """
    made: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            for name, columns in TABLES.items():
                path = folder / f"{name}.csv"
                kept = [r for r in _rows(path, columns) if r["model"] not in models]
                fresh = [r for tables in models.values() for r in tables.get(name, ())]
                write_atomically(path, csv_text(columns, [*kept, *fresh]))
                made.append(path)
    except (OSError, ValueError, csv.Error) as error:  # a path with a NUL is a wrong value
        raise IdGraphError(f"metric tables in {str(folder)!r}: {error}", hint="another folder") from None
    return tuple(made)


def _rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a table as they stand; none where there is no file."""
    try:
        with open_plain(path, "rb") as stream:
            if os.fstat(stream.fileno()).st_size > MOST_BYTES:
                raise IdGraphError(f"{str(path)!r} has more than {MOST_BYTES} bytes", hint="write to another folder")
            text = stream.read().decode("utf-8")
    except FileNotFoundError:
        return []
    reader = csv.DictReader(StringIO(text, newline=""))
    if tuple(reader.fieldnames or ()) != tuple(columns):
        raise IdGraphError(
            f"{str(path)!r} has other columns than a table of this version", hint="write to another folder"
        )
    rows = list(reader)
    if any(set(row) != set(columns) or None in row.values() for row in rows):
        raise IdGraphError(f"{str(path)!r} has rows of another length than its head", hint="write to another folder")
    return [{column: csv_value(cell) for column, cell in row.items()} for row in rows]


@contextlib.contextmanager
def _locked(folder: Path) -> Generator[None]:
    with open_plain(folder / LOCK, "ab") as stream:
        with contextlib.suppress(ImportError):
            import fcntl  # noqa: PLC0415 - not on every system; where there is none, nothing is locked

            fcntl.flock(stream, fcntl.LOCK_EX)  # released when the process that holds it ends
        yield


@dataclass(frozen=True, slots=True)
class Metrics(Printed):
    """The metric tables of one model: ``tables`` by name, in the order of `TABLES`.

    >>> import idgraph as ig
    >>> f = ig.Fusion("double")
    >>> y = f.output(f.input("x", (64, 64)) * 2.0)
    >>> m = ig.reports.metrics(f, target="python")
    >>> [(r["kernel"], r["bytes_read"]) for r in m.tables["kernel_metadata"]]
    [('kernel0', 16384)]
    """

    model: str
    tables: Mapping[str, tuple[MetricRow, ...]] = field(default_factory=dict[str, tuple[MetricRow, ...]])

    def to_json(self) -> str:
        """The tables as one JSON object: table -> list of rows.

        >>> import idgraph as ig
        >>> f = ig.Fusion("double")
        >>> y = f.output(f.input("x", (64, 64)) * 2.0)
        >>> ig.reports.metrics(f, target="python").to_json().splitlines()[1]
        ' "model": "double",'
        """
        return json.dumps(
            {"model": self.model, **{n: [dict(r) for r in rows] for n, rows in self.tables.items()}}, indent=1
        )

    @arguments(IdGraphError, first=True)
    def to_csv(self, folder: str | Path) -> tuple[Path, ...]:
        """Add the rows to the CSV files of ``folder``, one a table; rows of the same model are replaced.

        Several processes may write to one folder at once, and one that is killed loses or doubles no row. Raises
        `IdGraphError` where the folder cannot be written, or holds tables with other columns.

        >>> import tempfile
        >>> import idgraph as ig
        >>> f = ig.Fusion("double")
        >>> y = f.output(f.input("x", (64, 64)) * 2.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(len(ig.reports.metrics(f, target="python").to_csv(folder)))
        7
        """
        return add_rows(Path(folder), {self.model: self.tables})

    def sheet(self) -> Sheet:
        """How many rows each table has."""
        rows = [(name, str(len(found))) for name, found in self.tables.items()]
        return Sheet(f"metrics of {self.model}", ("table", "rows"), tuple(rows))

    def __str__(self) -> str:
        s = self.sheet()
        return "\n".join([s.title, *(f"  {n:>5}  {name}" for name, n in s.rows)])

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class _How:
    """The options of the tables."""

    model: str
    target: Target
    device: Device
    auto: bool
    align: bool
    measure: bool
    symbols: Mapping[str, int]


@arguments(IdGraphError, first=True)
def metrics(
    f: Fusion,
    *,
    model: str | None = None,
    target: Target = "cuda",
    device: Device | str | None = None,
    auto: bool = True,
    align: bool = False,
    measure: bool = False,
    symbols: Mapping[str, int] | None = None,
) -> Metrics:
    """The metric tables of a fusion: bytes, time and limits of its kernels, and why operations do not share one.

    ``model`` tags every row (the fusion's name without it). ``auto`` schedules a copy first. ``align`` also tries, for
    each pair, the steps that would align it, on the whole fusion: minutes where it has hundreds of operations; without
    it ``bytes_saved`` is `idgraph.fuse.Obstacle.estimate`. ``measure`` runs the program ("cpu", or "cuda" on a machine
    that has it) and fills ``slow_fusion``, ``persistent`` and ``autotune``. ``device`` is that of `ig.cost`. For an
    imported model there is ``imp.metrics()``. A graph that cannot be emitted or costed has a row in ``graph_stats``
    that says why.
    """
    check_fusion(f, "metrics", IdGraphError)
    return metric_parts(
        model or f.name, [Part(f)], target=target, device=device, auto=auto, align=align, measure=measure,
        symbols=symbols,
    )  # fmt: skip


@arguments(IdGraphError, first=True)
def metric_parts(
    model: str,
    parts: Sequence[Part],
    *,
    target: Target = "cuda",
    device: Device | str | None = None,
    auto: bool = True,
    align: bool = False,
    measure: bool = False,
    symbols: Mapping[str, int] | None = None,
) -> Metrics:
    """The metric tables of a program in segments."""
    if measure and target not in ("cpu", "cuda"):
        raise IdGraphError(f"metrics: programs for {target} are not timed", hint='target="cpu" or "cuda"')
    chosen = device_of(device) if device is not None else current_device("cuda" if target == "cuda" else "cpu")
    how = _How(model, target, chosen, auto, align or measure, measure, dict(symbols or {}))
    found: dict[str, list[dict[str, Value]]] = {name: [] for name in TABLES}
    for number, part in enumerate(parts):
        if part.fusion is not None:
            _graph(found, how, number, part.fusion, len(part.calls))
    _model(found, how, sum(len(p.calls) for p in parts))
    tables = {n: tuple(MappingProxyType({c: r.get(c) for c in TABLES[n]}) for r in rows) for n, rows in found.items()}
    return Metrics(model, tables)


def _graph(found: dict[str, list[dict[str, Value]]], how: _How, number: int, given: Fusion, calls: int) -> None:
    """All rows of one graph."""
    f = clone_fusion(given)
    tag: dict[str, Value] = {"model": how.model, "graph": number}
    stats: dict[str, Value] = {
        **tag, "fusion": f.name, "operations": len(f.exprs), "inputs": len(f.inputs), "outputs": len(f.outputs),
        "opaque_calls": calls,
    }  # fmt: skip
    found["graph_stats"].append(stats)
    try:
        if how.auto:
            schedule_automatically(f)
        program = emit(f, how.target)
        told = cost(program, how.device, symbols=how.symbols)
        pairs = obstacles(f)
    except IdGraphError as error:
        stats["refused"] = f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]
        return
    times = kernel_times(program, how.symbols) if how.measure else {}
    measured = program_time(program, how.symbols) if how.measure else None
    found["kernel_metadata"] += [{**tag, **_kernel_metrics(k, told, times)} for k in told.kernels]
    homes = same_kernel(program)
    failures = [{**tag, **failure_row(o, how.align), "same_kernel": _together(o, homes)} for o in pairs]
    found["fusion_failures"] += failures
    saved = sum(x for o in failures if isinstance(x := o["bytes_saved"], int) and not o["same_kernel"])
    t = told.total
    between = {b.title for b in program.plan.buffers if b.place == "global"}
    stored = sum(x.bytes_written for k in told.kernels for x in k.tensors if x.tensor in between)
    stats |= {
        "kernels": t.launches, "bytes_asked": t.bytes_asked, "bytes_read": t.bytes_read,
        "bytes_written": t.bytes_written, "bytes_moved": t.bytes_moved, "bytes_stored_between": stored,
        "flops": t.flops, "atomics": t.atomics, "failures": sum(not o["same_kernel"] for o in failures),
        "bytes_saved_by_fusing": saved,
        "estimated_us": t.time_us, "measured_us": measured, "exact": t.exact,
    }  # fmt: skip
    if how.measure:
        _measured(found, how, tag, given, f, program, pairs)


def _measured(
    found: dict[str, list[dict[str, Value]]],
    how: _How,
    tag: Mapping[str, Value],
    given: Fusion,
    scheduled: Fusion,
    program: Program,
    pairs: Iterable[Obstacle],
) -> None:
    where: Where = "cuda" if program.target == "cuda" else "cpu"
    for o, apart, together in slow_pairs(scheduled, pairs, where, how.symbols):
        found["slow_fusion"].append({
            **tag, "a": o.a.output.name, "b": o.b.output.name, "buffer": o.buffer.name, "cause": o.cause,
            "target": where, "apart_us": apart, "together_us": together, "slower": together > apart,
        })  # fmt: skip
    found["persistent"] += [{**tag, "target": where, **row} for row in persistent_times(given, where, how.symbols)]
    if not how.symbols:
        found["autotune"] += [{**tag, "target": where, **row} for row in autotuned(given, where)]


def _together(o: Obstacle, homes: Mapping[str, set[str]]) -> bool:
    """True when one kernel of the program holds both operations, each in loops of its own."""
    a, b = (homes.get(e.output.name, set[str]()) for e in (o.a, o.b))
    return bool(a & b)


def failure_row(o: Obstacle, align: bool = True) -> dict[str, Value]:
    """One pair as a row of ``fusion_failures``; without ``align`` no steps are tried and the bytes are estimated."""
    steps = "; ".join(map(str, o.alignment.steps)) if align and o.alignment is not None else None
    return {
        "a": o.a.output.name, "b": o.b.output.name, "buffer": o.buffer.name, "cause": o.cause,
        "bytes_saved": o.bytes_saved if align else o.estimate, "recompute_factor": o.recompute_factor,
        "access_a": str(o.accesses[0].map), "access_b": str(o.accesses[1].map),
        "alignment": steps, "proof": o.proof or None, "because": "; ".join(o.because),
        "line_a": str(o.a.source_line or ""), "line_b": str(o.b.source_line or ""),
    }  # fmt: skip


def _kernel_metrics(k: KernelCost, told: Cost, times: Mapping[str, float]) -> dict[str, Value]:
    us = times.get(k.name)
    return cast("dict[str, Value]", kernel_row(k)) | {
        "kernel": k.name, "target": told.target, "device": told.device.name, "tensors": len(k.tensors),
        "estimated_us": k.time_us, "measured_us": us,
        "bandwidth_share": k.bytes_moved / ((us or k.time_us) * 1e-6) / told.device.bandwidth,
    }  # fmt: skip


def _model(found: dict[str, list[dict[str, Value]]], how: _How, calls: int) -> None:
    """The row of the model: sums over its graphs."""
    graphs = found["graph_stats"]

    def added(name: str) -> int | float | None:
        numbers = [v for g in graphs if isinstance(v := g.get(name), (int, float))]
        return sum(numbers) if numbers else None

    summed = (
        "operations", "kernels", "bytes_read", "bytes_written", "bytes_moved", "flops", "failures",
        "bytes_saved_by_fusing", "estimated_us", "measured_us",
    )  # fmt: skip
    found["models"].append({
        "model": how.model, "target": how.target, "device": how.device.name, "graphs": len(graphs),
        "opaque_calls": calls, **{n: added(n) for n in summed}, "refused": sum("refused" in g for g in graphs),
    })  # fmt: skip
