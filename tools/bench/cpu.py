"""Kernels on the CPU beside NumPy, torch eager and torch.compile: one table, JSON with the machine and its load.

    python -m tools.bench.cpu [--rows rope,total] [--rounds 9] [--no-compile] [--json FILE]

Each row: a fusion scheduled by ``ig.schedule.auto``; its values are compared with the PyTorch function in float64
first. Then all that take part are timed in turns, ``--rounds`` times, on the same arrays: a share is the median over
the rounds of peer time / own time, so that other load on the machine affects all alike. Over 1.00 idgraph is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from rich.console import Console
from rich.table import Table

import idgraph as ig
from idgraph.ir import is_float
from idgraph.runtime.prepared_launch import prepare_launch
from idgraph.validate import tolerance
from idgraph.validate.input_values import index_limits
from tools.bench import cpu_rows
from tools.bench.cpu_rows import CpuCase


@dataclass(slots=True)
class Row:
    """Microseconds of the fastest round; ``of`` peer -> median of its time over idgraph's."""

    name: str
    key: str
    ok: bool = False
    us: dict[str, float] = field(default_factory=dict[str, float])
    of: dict[str, float] = field(default_factory=dict[str, float])
    load: float = 0.0
    note: str = ""


def inputs(f: ig.Fusion) -> dict[str, Any]:
    """Random arrays: floats of both signs away from zero, indices inside the axes they point into."""
    rng, limits = np.random.default_rng(0), index_limits(f, {})
    made: dict[str, Any] = {}
    for t in f.inputs:
        shape = tuple(int(n) for n in t.shape)
        if is_float(t.dtype):
            x = rng.random(shape, dtype=np.float32) + np.float32(0.25)
            x *= rng.integers(0, 2, shape, dtype=np.int8) * np.float32(2) - np.float32(1)
            made[t.name] = x.astype(ml_dtypes.bfloat16 if t.dtype == "bfloat16" else t.dtype)
        else:
            made[t.name] = rng.integers(0, limits.get(t.name, 10), shape).astype(t.dtype)
    return made


def tensors(torch: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The same memory as torch tensors."""
    made: dict[str, Any] = {}
    for name, a in arrays.items():
        bf16 = a.dtype == ml_dtypes.bfloat16
        made[name] = torch.from_numpy(a.view(np.int16)).view(torch.bfloat16) if bf16 else torch.from_numpy(a)
    return made


def same(torch: Any, case: CpuCase, f: ig.Fusion, found: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Every element against float64."""
    wide = {n: x.double() if x.is_floating_point() else x for n, x in given.items()}
    for t, want in zip(f.outputs, case.torch(torch, wide), strict=True):
        x, y = np.asarray(found[t.name], np.float64), want.double().numpy()
        if not np.all(np.abs(x - y) <= tolerance(t.dtype) * (np.abs(y) + np.abs(y).max())):
            return False
    return True


def window(work: Callable[[], object], least: float = 5e-3) -> float:
    """Seconds of one call, of as many as fill a few milliseconds."""
    began = time.perf_counter()
    work()
    once = time.perf_counter() - began
    repeat = max(1, min(200, int(least / max(once, 1e-7))))
    if repeat == 1:
        return once
    began = time.perf_counter()
    for _ in range(repeat):
        work()
    return (time.perf_counter() - began) / repeat


def measure(torch: Any, case: CpuCase, options: argparse.Namespace) -> Row:
    """Values, then times in turns."""
    f = case.build()
    row = Row(f.name, case.key, load=os.getloadavg()[0])
    arrays = inputs(f)
    given = tensors(torch, arrays)
    ig.schedule.auto(f)
    ready = prepare_launch(ig.emit(f, target="cpu"), arrays, poison=True)
    ready.launch()
    row.ok = same(torch, case, f, ready.results(), given)
    work: dict[str, Callable[[], object]] = {"idgraph": ready.launch, "eager": lambda: case.torch(torch, given)}
    numpy = case.numpy
    if numpy is not None:
        work["numpy"] = lambda: numpy(arrays)
    if not options.no_compile:

        def plain(x: Mapping[str, Any]) -> object:
            return case.torch(torch, x)

        fast: Any = torch.compile(plain)
        try:
            fast(given)
            work["compile"] = lambda: fast(given)
        except Exception as error:  # whatever a compiler raises is its result
            row.note = f"compile: {type(error).__name__}"
    rounds: dict[str, list[float]] = {name: [] for name in work}
    for w in work.values():
        w()
    for _ in range(options.rounds):
        for name, w in work.items():
            rounds[name].append(window(w))
    own = rounds["idgraph"]
    row.us = {name: min(times) * 1e6 for name, times in rounds.items()}
    for name, times in rounds.items():
        row.of[name] = statistics.median(t / o for t, o in zip(times, own, strict=True))
    return row


def table_of(rows: list[Row]) -> Table:
    """Peers' time over idgraph's."""
    table = Table(title="time of the peer / time of idgraph (over 1: idgraph is faster)", title_justify="left")
    for column in ("row", "values", "idgraph us", "numpy", "eager", "compile"):
        table.add_column(column, justify="left" if column == "row" else "right")
    for r in rows:
        shares = [f"{r.of[p]:.2f}" if p in r.of else "-" for p in ("numpy", "eager", "compile")]
        table.add_row(r.name, "ok" if r.ok else "WRONG", f"{r.us['idgraph']:.0f}", *shares)
    return table


def machine() -> str:
    """The processor, as the system names it."""
    found = [x.split(":", 1)[1].strip() for x in _cpuinfo() if x.startswith("model name")]
    return f"{found[0] if found else platform.machine()}, {os.cpu_count()} cores"


def _cpuinfo() -> list[str]:
    place = Path("/proc/cpuinfo")
    return place.read_text(encoding="utf-8").splitlines() if place.exists() else []


def facts_of(torch: Any, rows: list[Row], rounds: int) -> dict[str, Any]:
    """The rows, with the machine and its load named."""
    return {
        "machine": machine(), "load": max((r.load for r in rows), default=0.0), "rounds": rounds,
        "threads": torch.get_num_threads(), "numba": import_module("numba").__version__,
        "numpy": np.__version__, "torch": str(torch.__version__), "rows": [asdict(r) for r in rows],
    }  # fmt: skip


def main() -> None:
    """All rows, one table, JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="keys of rows, comma separated; all without it")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-compile", action="store_true", help="no torch.compile (it needs a C++ compiler)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    wanted = [k for k in options.rows.split(",") if k] or [c.key for c in cpu_rows.CASES]
    unknown = [k for k in wanted if k not in {c.key for c in cpu_rows.CASES}]
    if unknown:
        parser.error(f"no row {unknown[0]}; rows: {', '.join(c.key for c in cpu_rows.CASES)}")
    torch: Any = import_module("torch")
    out, rows = Console(width=120), list[Row]()
    for case in (c for c in cpu_rows.CASES if c.key in wanted):
        rows.append(measure(torch, case, options))
        shares = ", ".join(f"{k} {v:.2f}" for k, v in rows[-1].of.items() if k != "idgraph")
        out.print(f"{case.key}: ok {rows[-1].ok}, {rows[-1].us['idgraph']:.0f} us; {shares} {rows[-1].note}")
        if options.json is not None:
            options.json.write_text(
                json.dumps(facts_of(torch, rows, options.rounds), indent=1) + "\n", encoding="utf-8"
            )
    out.print(table_of(rows))


if __name__ == "__main__":
    main()
