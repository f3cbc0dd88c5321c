"""Folders of metric tables: one CSV file a table, rows by model, written whole or not at all."""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Generator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from typing import Final

from idgraph.cost.kernel_costs import csv_text, csv_value
from idgraph.display import write_whole
from idgraph.errors import IdGraphError
from idgraph.ir.limits import open_plain

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
                write_whole(path, csv_text(columns, [*kept, *fresh]))
                made.append(path)
    except (OSError, UnicodeError, csv.Error) as error:
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
