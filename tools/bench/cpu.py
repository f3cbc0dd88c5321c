"""Kernels on the CPU beside NumPy, torch eager and torch.compile: one table, JSON with the machine and its load.

    python -m tools.bench.cpu [--rows rope,total] [--rounds 9] [--no-compile] [--json FILE]
    python -m tools.bench.cpu --table functions [--rows "sin;roll"] [--size 1003] [--threads 1] [--seconds 1.0]
    python -m tools.bench.cpu --table other [--rows "x.T + y;gather"]

A row of ``models`` (`tools.programs.cpu_rows`) is a fusion scheduled by ``ig.schedule.auto``; its values are compared
with the PyTorch function in float64 first. Then all that take part are timed in turns, ``--rounds`` times, on the same
arrays: a share is the median over the rounds of peer time / own time, so that other load on the machine affects all
alike. Over 1.00 idgraph is faster. A row of the other tables (`tools.programs.cpu_functions`) is a function of torch by
`ig.compile`, the user's way, beside eager: its share is of the tenth percentiles of windows taken in turns. Names of
these have semicolons between them. The status is 1 where a value is wrong.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
from rich.progress import track

import idgraph as ig
from idgraph.ir import is_float
from idgraph.runtime.tuning.trial import prepare_launch
from idgraph.validate import tolerance
from idgraph.validate.value_check import index_limits
from tools.bench import report
from tools.programs import cpu_rows
from tools.programs.cpu_rows import CpuCase

WINDOW = 5e-4  # seconds of one reading of a function, at least


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


def window(work: Callable[[], object], least: float = 5e-3, most: int = 200) -> float:
    """Seconds of one call, of as many as fill a few milliseconds."""
    began = time.perf_counter()
    work()
    once = time.perf_counter() - began
    repeat = max(1, min(most, int(least / max(once, 1e-7))))
    began = time.perf_counter()
    for _ in range(repeat):
        work()
    return (time.perf_counter() - began) / repeat


def measure(torch: Any, case: CpuCase, options: argparse.Namespace) -> Row:
    """A fusion: values, then times in turns."""
    f = case.build()
    row = Row(f.name, case.key, load=os.getloadavg()[0])
    arrays = inputs(f)
    given = tensors(torch, arrays)
    ig.schedule.auto(f, device="cpu")
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


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """Microseconds of a call; ``share``: eager's time over idgraph's."""

    name: str
    rows: int
    threads: int
    right: bool
    eager_us: float
    us: float
    share: float


def measure_function(name: str, size: int, threads: int, seconds: float) -> FunctionRow:
    """A function of torch: values, then times in turns."""
    functions: Any = import_module("tools.programs.cpu_functions")
    eager, given = functions.arguments_of(name, size)
    times: dict[Callable[..., Any], list[float]] = {}
    with _on(threads):
        own = ig.compile(ig.from_torch(eager, given), "cpu")
        pairs = zip(_all(eager(*given)), _all(own(*given)), strict=True)
        right = all(_is_right(functions.torch, w, x) for w, x in pairs)
        began = time.perf_counter()
        while time.perf_counter() - began < seconds or len(times.get(own, ())) < 3:
            for f in (eager, own):
                times.setdefault(f, []).append(window(lambda f=f: f(*given), WINDOW, 100))
    eager_us, us = (float(np.percentile(times[f], 10)) * 1e6 for f in (eager, own))
    shown = len(given[0]) if name in functions.OTHER else size
    return FunctionRow(name, shown, threads, right, round(eager_us, 1), round(us, 1), round(eager_us / us, 3))


@contextmanager
def _on(threads: int) -> Generator[None]:
    """torch and numba with so many threads, and with as many as before afterwards."""
    torch, numba = import_module("torch"), import_module("numba")
    before = torch.get_num_threads(), numba.get_num_threads()
    try:
        torch.set_num_threads(threads)
        numba.set_num_threads(threads)
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])


def _all(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def _is_right(torch: Any, want: Any, found: Any) -> bool:
    short = want.dtype in (torch.float16, torch.bfloat16)  # eager rounds between the steps of a formula, too
    close = torch.allclose(found.double(), want.double(), rtol=1e-2 if short else 1e-3, atol=1e-2 if short else 1e-4)
    return want.dtype == found.dtype and close


def facts_of(torch: Any, rows: Sequence[Row], rounds: int) -> dict[str, Any]:
    """The rows, with the machine and its load named."""
    return {
        "machine": report.machine(), "load": max((r.load for r in rows), default=0.0), "rounds": rounds,
        "threads": torch.get_num_threads(), "numba": import_module("numba").__version__,
        "numpy": np.__version__, "torch": str(torch.__version__), "rows": [asdict(r) for r in rows],
    }  # fmt: skip


def show(rows: Sequence[Row]) -> None:
    """Peers' time over idgraph's."""
    peers = ("numpy", "eager", "compile")
    lines = (
        (
            r.name,
            "ok" if r.ok else "WRONG",
            f"{r.us['idgraph']:.0f}",
            *(f"{r.of[p]:.2f}" if p in r.of else "-" for p in peers),
        )
        for r in rows
    )
    report.show(
        "time of the peer / time of idgraph (over 1: idgraph is faster)", ("row", "values", "idgraph us", *peers), lines
    )


def show_functions(rows: Sequence[FunctionRow]) -> None:
    """One line for each function, the slowest beside eager first."""
    mean, below = statistics.geometric_mean(r.share for r in rows), sum(r.share < 0.9 for r in rows)
    title = f"eager's time over idgraph's: {mean:.2f} in the geometric mean, {below} of {len(rows)} below 0.9"
    columns = ("function", "rows", "threads", "values", "eager us", "idgraph us", "share")
    lines = (
        (
            r.name,
            r.rows,
            r.threads,
            "right" if r.right else "WRONG",
            f"{r.eager_us:.1f}",
            f"{r.us:.1f}",
            f"{r.share:.2f}",
        )
        for r in sorted(rows, key=lambda r: r.share)
    )
    report.show(title, columns, lines, 100)


def main() -> int:
    """All rows, one table, JSON."""
    parser = report.arguments(__doc__)
    parser.add_argument("--table", choices=["models", "functions", "other"], default="models")
    parser.add_argument("--rows", default="", help="names of rows, with commas (functions: semicolons) between them")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-compile", action="store_true", help="no torch.compile (it needs a C++ compiler)")
    parser.add_argument("--size", type=int, default=1003, help="rows of the arrays of a function")
    parser.add_argument("--threads", type=int, default=1, help="of a function")
    parser.add_argument("--seconds", type=float, default=1.0, help="of timing for each function")
    options = parser.parse_args()
    torch: Any = import_module("torch")
    if options.table != "models":
        functions: Any = import_module("tools.programs.cpu_functions")
        every = functions.OTHER if options.table == "other" else (*functions.OF_ONE, *functions.OF_TWO)
        names = report.chosen(parser, options.rows, every, ";")
        found = [measure_function(n, options.size, options.threads, options.seconds) for n in track(names, "functions")]
        show_functions(found)
        head = {"machine": report.machine(), "load": os.getloadavg()[0], "torch": torch.__version__}
        report.write(options.json, {**head, "rows": [asdict(r) for r in found]})
        return 0 if all(r.right for r in found) else 1
    wanted, rows = report.chosen(parser, options.rows, (c.key for c in cpu_rows.CASES)), list[Row]()
    for case in (c for c in cpu_rows.CASES if c.key in wanted):
        r = measure(torch, case, options)
        rows.append(r)
        shares = ", ".join(f"{k} {v:.2f}" for k, v in r.of.items() if k != "idgraph")
        print(f"{case.key}: ok {r.ok}, {r.us['idgraph']:.0f} us; {shares} {r.note}", flush=True)
        report.write(options.json, facts_of(torch, rows, options.rounds))
    show(rows)
    return 0 if all(r.ok for r in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
