"""The cost of a program: rows for its accesses and kernels, and their sum."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from io import StringIO
from pathlib import Path
from typing import Any, Literal

from idgraph.display import Printed, Sheet, write_atomically
from idgraph.errors import IdGraphError, arguments
from idgraph.ir.device import Device

Bound = Literal[
    "memory", "cache", "arithmetic", "special functions", "indices", "exchanges", "loads", "steps", "atomics", "launch"
]


@dataclass(frozen=True, slots=True)
class AccessCost:
    """One statement of a kernel that touches memory.

    ``points``: how often it happens. ``bytes_asked``: points times width times item size. ``sectors``: of 32 bytes, the
    different ones of each warp at each step, added up; ``lines``: of the cache, in the same way. ``again``: how often
    its elements come from memory. ``exact``: the counts were made point by point or in closed form, with no loaded
    index guessed.
    """

    kernel: str
    tensor: str
    kind: Literal["read", "write", "atomic"]
    place: Literal["input", "output", "global", "shared", "private"]
    dtype: str
    address: str
    width: int
    points: int
    bytes_asked: int
    sectors: int
    lines: int
    again: int
    operation: str
    exact: bool


@dataclass(frozen=True, slots=True)
class TensorCost:
    """One tensor in global memory, as one kernel uses it: bytes of different elements, and of the sectors they lie in.

    ``passes`` are the times that the kernel goes over it and the cache does not keep it.
    """

    kernel: str
    tensor: str
    place: Literal["input", "output", "global"]
    bytes_read: int
    bytes_written: int
    bytes_asked: int
    bytes_moved: int
    passes: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Assembled:
    """The assembler's numbers for a thread: ``registers``, and bytes of ``spills``: what is stored and loaded of
    registers, or the arrays that found none."""

    registers: int
    spills: int


class Assembly:
    """Registers and spills of a program's kernels, asked for at most once."""

    __slots__ = ("_ask", "_found")

    def __init__(self, ask: Callable[[], Mapping[str, Assembled]]) -> None:
        self._ask = ask
        self._found: Mapping[str, Assembled] | None = None

    @property
    def known(self) -> Mapping[str, Assembled]:
        """The answers so far."""
        return self._found if self._found is not None else {}

    def of(self, kernel: str) -> Assembled | None:
        """The kernel's; None where there is no assembler."""
        if self._found is None:
            self._found = self._ask()
        return self._found.get(kernel)


@dataclass(frozen=True, slots=True)
class KernelCost:
    """The cost of one kernel. Bytes are of global memory if nothing else is said.

    ``bytes_asked``: accesses times points times width. ``bytes_read``, ``bytes_written``: of different elements, again
    for each pass that the cache does not keep; ``bytes_cached`` is the rest of what is asked for. ``bytes_moved``: of
    the sectors of memory, read and written. ``sectors``: those that warps ask for. ``bytes_shared``, ``bytes_private``:
    asked of shared memory and of a thread's own arrays, which cost no memory traffic. ``flops``: float operations
    (``flops_by_type``; ``special`` are those of them that are exp, log, division and the like). ``atomics``: elements
    updated in one step each; ``collisions``: how many of them meet one already updated, known if the indices are given.
    ``time_us`` is estimated, ``bound`` names its largest part.

    >>> import idgraph as ig
    >>> f = ig.Fusion("double")
    >>> t = f.output(f.input("x", shape=(64,)) * 2.0)
    >>> k = ig.cost(ig.emit(f, "python"), device="cpu").kernels[0]
    >>> k.bytes_read, k.bytes_written, k.flops, k.registers, k.spills, k.occupancy
    (256, 256, 64, None, None, None)
    """

    name: str
    blocks: int
    threads: int
    bytes_asked: int
    bytes_read: int
    bytes_written: int
    bytes_cached: int
    bytes_moved: int
    sectors: int
    bytes_shared: int
    bytes_private: int
    shared: int
    flops: int
    flops_by_type: Mapping[str, int]
    special: int
    atomics: int
    collisions: int | None
    time_us: float
    bound: Bound
    exact: bool
    accesses: tuple[AccessCost, ...]
    tensors: tuple[TensorCost, ...]
    device: Device = field(repr=False)
    assembly: Assembly = field(repr=False, compare=False)

    def __repr__(self) -> str:
        moved = f"{self.bytes_moved:,} bytes moved"
        return f"KernelCost({self.name!r}, {moved}, {self.time_us:.4g} us, bound by {self.bound})"

    @property
    def registers(self) -> int | None:
        """Registers of a thread, from the assembler (asked at the first use); None where there is none."""
        found = self.assembly.of(self.name)
        return None if found is None else found.registers

    @property
    def spills(self) -> int | None:
        """Bytes that a thread keeps in memory for lack of registers; None where there is no assembler."""
        found = self.assembly.of(self.name)
        return None if found is None else found.spills

    @property
    def occupancy(self) -> float | None:
        """Resident threads of a multiprocessor as a share of its limit; None where the device has no such limit.

        Registers count if the assembler has reported them.
        """
        found = self.assembly.known.get(self.name)
        return occupancy(self.device, self.threads, self.shared, 0 if found is None else found.registers)


def occupancy(device: Device, threads: int, shared: int, registers: int) -> float | None:
    """The share of a multiprocessor's threads that blocks of ``threads`` threads fill.

    >>> import idgraph as ig
    >>> occupancy(ig.cost.devices["H200"], 1024, 0, 40), occupancy(ig.cost.devices["H200"], 256, 100 << 10, 32)
    (0.5, 0.25)
    """
    if not device.threads:
        return None
    warps = -(-threads // device.warp)
    fits = [device.blocks, device.threads // (warps * device.warp)]
    if shared:
        fits.append(device.shared // (shared + 1024))
    if registers:
        each = -(-registers // 8) * 8 * device.warp  # handed out to warps in steps of 256
        fits.append(device.registers // each // warps)
    return min(fits) * warps * device.warp / device.threads


SUMMED = (
    "bytes_asked", "bytes_read", "bytes_written", "bytes_cached", "bytes_moved", "sectors", "bytes_shared",
    "bytes_private", "flops", "special", "atomics", "time_us",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TotalCost:
    """The sum over all kernels; ``launches`` is their number."""

    launches: int
    bytes_asked: int
    bytes_read: int
    bytes_written: int
    bytes_cached: int
    bytes_moved: int
    sectors: int
    bytes_shared: int
    bytes_private: int
    flops: int
    special: int
    atomics: int
    time_us: float
    exact: bool


def total_of(kernels: Sequence[KernelCost]) -> TotalCost:
    """The sum of kernels."""
    made: dict[str, Any] = {n: sum(getattr(k, n) for k in kernels) for n in SUMMED}
    return TotalCost(launches=len(kernels), exact=all(k.exact for k in kernels), **made)


@dataclass(frozen=True, slots=True)
class Cost(Printed):
    """The cost of a program on a device: rows for kernels and accesses, and their sum.

    >>> import idgraph as ig
    >>> f = ig.Fusion("double")
    >>> t = f.output(f.input("x", shape=(64,)) * 2.0)
    >>> c = ig.cost(ig.emit(f, "python"), device="cpu")
    >>> c.total.bytes_read, len(c.accesses), c.rows()[0]["flops"], c.to_json()[:1]
    (256, 2, 64, '{')
    """

    name: str
    target: str
    device: Device
    kernels: tuple[KernelCost, ...]

    @property
    def total(self) -> TotalCost:
        """The sum over all kernels."""
        return total_of(self.kernels)

    @property
    def accesses(self) -> tuple[AccessCost, ...]:
        """The accesses of all kernels."""
        return tuple(a for k in self.kernels for a in k.accesses)

    def rows(self) -> list[dict[str, object]]:
        """One flat row for each kernel: its numbers, and those that the assembler has reported."""
        return [kernel_row(k) for k in self.kernels]

    def to_json(self) -> str:
        """The total, kernels with their accesses and tensors, and the device, as one JSON object."""
        made = {
            "schema": "idgraph-cost/1", "name": self.name, "target": self.target, "device": asdict(self.device),
            "total": asdict(self.total),
            "kernels": [
                {**kernel_row(k), "flops_by_type": dict(k.flops_by_type), "accesses": [asdict(a) for a in k.accesses],
                 "tensors": [asdict(t) for t in k.tensors]}
                for k in self.kernels
            ],
        }  # fmt: skip
        return json.dumps(made, indent=1)

    @arguments(IdGraphError)
    def to_csv(self, folder: str | Path) -> tuple[Path, ...]:
        """Write ``kernels.csv``, ``accesses.csv`` and ``tensors.csv`` into ``folder``; returns their paths.

        Raises `IdGraphError` where the folder cannot be written.

        >>> import tempfile
        >>> import idgraph as ig
        >>> f = ig.Fusion("double")
        >>> t = f.output(f.input("x", shape=(64,)) * 2.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print([path.name for path in ig.cost(ig.emit(f, "python"), device="cpu").to_csv(folder)])
        ['kernels.csv', 'accesses.csv', 'tensors.csv']
        """
        tables: dict[str, tuple[list[str], list[Mapping[str, object]]]] = {
            "kernels": (list(_COLUMNS), [*self.rows()]),
            "accesses": ([f.name for f in fields(AccessCost)], [asdict(a) for a in self.accesses]),
            "tensors": ([f.name for f in fields(TensorCost)], [asdict(t) for k in self.kernels for t in k.tensors]),
        }
        made: list[Path] = []
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            for name, (columns, rows) in tables.items():
                made.append(Path(folder) / f"{name}.csv")
                write_atomically(made[-1], csv_text(["program", *columns], [{"program": self.name, **r} for r in rows]))
        except OSError as error:
            raise IdGraphError(f"to_csv: {error}", hint="a folder that can be written") from None
        return tuple(made)

    def sheet(self) -> Sheet:
        """The kernels as a table."""
        rows = [(*_table_row(k.name, k, k.bound),) for k in self.kernels]
        t = self.total
        if len(rows) != 1:
            rows.append(_table_row("total", t, "", "", ""))
        return Sheet(f"{self.name}: estimated on {self.device.name}", HEAD, tuple(rows), _notes(self))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        s = self.sheet()
        lines = [s.columns, *s.rows]
        widths = [max(len(r[k]) for r in lines) for k in range(len(HEAD))]
        text = [
            "  ".join(c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in enumerate(zip(r, widths, strict=True)))
            for r in lines
        ]
        return "\n".join([s.title, *(t.rstrip() for t in text), *s.notes])


HEAD = ("kernel", "read", "written", "moved", "asked", "sectors", "flops", "atomics", "us", "bound by")


def _table_row(name: str, k: KernelCost | TotalCost, *rest: str) -> tuple[str, ...]:
    numbers = (k.bytes_read, k.bytes_written, k.bytes_moved, k.bytes_asked, k.sectors, k.flops, k.atomics)
    return (name, *(f"{n:,}" for n in numbers), f"{k.time_us:.2f}", rest[0])


def _notes(c: Cost) -> tuple[str, ...]:
    made: list[str] = []
    rough = [k.name for k in c.kernels if not k.exact]
    if rough:
        made.append(f"counted from a sample, or with loaded indices all different: {', '.join(rough)}")
    return tuple(made)


FORMULA = frozenset("=+-@'\uff1d\uff0b\uff0d\uff20")  # what begins a formula, and the mark before one
NUMBER = re.compile(r"[-+]?[0-9.]+(?:e[-+]?[0-9]+)?|-inf", re.ASCII)
_COLUMNS = (
    "name", "blocks", "threads", *SUMMED, "shared", "bound", "exact", "collisions", "registers", "spills", "occupancy",
)  # fmt: skip


def kernel_row(k: KernelCost) -> dict[str, object]:
    """The numbers of a kernel by column; those of the assembler are None where it was not asked."""
    known = k.assembly.known.get(k.name)
    told = {
        "registers": None if known is None else known.registers, "spills": None if known is None else known.spills,
        "occupancy": k.occupancy,
    }  # fmt: skip
    return {n: told[n] if n in told else getattr(k, n) for n in _COLUMNS}


def csv_text(columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> str:
    """Rows as CSV with a header; None is an empty cell. A text that a spreadsheet would run is quoted by a '."""
    out = StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({c: _cell(r.get(c)) for c in columns} for r in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    """A name such as ``=1+1`` is a formula to a spreadsheet, in full width too; numbers may begin with a sign."""
    if not isinstance(value, str):
        return "" if value is None else value
    return f"'{value}" if value[:1] in FORMULA and not NUMBER.fullmatch(value) else value


def csv_value(cell: str) -> str:
    """The text that `csv_text` wrote as ``cell``."""
    return cell[1:] if cell[:1] == "'" and cell[1:2] in FORMULA else cell
