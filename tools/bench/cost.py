"""Estimated beside measured time of every row of the GPU table and of the CPU table.

    python -m tools.bench.cost [--rows rope,swin] [--json tools/bench/results/cost.json]

The measured times are those stored in ``tools/bench/results`` (`gpu_h200.json`, `cpu.json`); programs are made again as
`tools.bench.gpu` and `tools.bench.cpu` make them, and estimated by `ig.cost` with nothing but their kernels and the
device's data. Nothing is timed, so any machine will do. Rows outside 0.8 to 1.25 say why. Exit 1 if the median of a
table's ratios lies outside.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import idgraph as ig
from idgraph.runtime import Program, emit
from tools.bench import report
from tools.programs import cpu_rows, gpu_rows

RESULTS = Path(__file__).resolve().parent / "results"
LOW, HIGH = 0.8, 1.25
# The parts that the model leaves out, of the rows where that shows; "supposed": nothing was measured to prove it.
OUTLIERS = {
    ("H200", "gather"): "rows of 16 KiB stay in the multiprocessors' own caches, the model has only the device's",
    ("H200", "take_along"): "a copy of the same bytes took 8.7 us in that run: launches cost more than the model's 2.5",
    ("cpu", "rope_bf16"): "supposed: 16-bit floats are widened and rounded in instructions that the model has not",
    ("cpu", "ce"): "supposed: exp and memory do not wholly overlap, the model takes the larger of the two",
    ("cpu", "ce_bf16"): "supposed: as float32; 16-bit floats are widened in instructions of their own",
    ("cpu", "ce_grad"): "supposed: exp and memory do not wholly overlap, the model takes the larger of the two",
    ("cpu", "ce_grad_bf16"): "supposed: as float32; 16-bit floats are widened and rounded in instructions of their own",
    ("cpu", "embedding"): "supposed: 33.6 MB, of which a cache of 32 MiB keeps a part; in the model all of it leaves",
    ("cpu", "index_put"): "supposed: kept rows are found by a search, whose latency is not in the model",
}


@dataclass(slots=True)
class Row:
    """One case of one table; times in microseconds."""

    table: str
    key: str
    name: str
    measured_us: float
    estimated_us: float
    ratio: float
    bytes_read: int
    bytes_written: int
    bytes_moved: int
    bytes_asked: int
    flops: int
    atomics: int
    kernels: int
    bound: str
    exact: bool
    why: str


def row_of(table: str, key: str, program: Program, measured: float) -> Row:
    """The estimate of one program beside its measured time."""
    cost = ig.cost(program, table)
    t = cost.total
    ratio = t.time_us / measured
    slowest = max(cost.kernels, key=lambda k: k.time_us)
    inside = LOW <= ratio <= HIGH
    why = "" if inside else OUTLIERS.get((table, key), "not explained")
    return Row(
        table, key, cost.name, measured, t.time_us, ratio, t.bytes_read, t.bytes_written, t.bytes_moved, t.bytes_asked,
        t.flops, t.atomics, t.launches, slowest.bound, t.exact, why,
    )  # fmt: skip


def _stored(file: str) -> dict[str, Any]:
    return {r["key"]: r for r in json.loads((RESULTS / file).read_text("utf-8"))["rows"]}


def rows_of(wanted: Callable[[str], bool]) -> Iterator[Row]:
    """Every row of both tables."""
    gpu = _stored("gpu_h200.json")
    for case in gpu_rows.CASES:
        if case.key in gpu and wanted(case.key):
            f = case.build(False)
            (case.schedule or ig.schedule.auto)(f)
            yield row_of("H200", case.key, emit(f, target="cuda"), gpu[case.key]["us"])
    cpu = _stored("cpu.json")
    for case in cpu_rows.CASES:
        if case.key in cpu and wanted(case.key):
            f = case.build()
            ig.schedule.auto(f)
            yield row_of("cpu", case.key, emit(f, target="cpu"), cpu[case.key]["us"]["idgraph"])


def show(name: str, rows: list[Row]) -> None:
    """One table's rows."""
    columns = ("row", "what the model leaves out", "bound by", "estimated us", "measured us", "ratio")
    lines = ((r.name, r.why, r.bound, f"{r.estimated_us:.1f}", f"{r.measured_us:.1f}", f"{r.ratio:.3f}") for r in rows)
    report.show(f"{name}: estimated / measured", columns, lines, 170, left=3)


def summary(rows: list[Row]) -> dict[str, Any]:
    """The median ratio of the rows, the lowest, the highest, and how many lie inside."""
    ratios = sorted(r.ratio for r in rows)
    return {
        "rows": len(rows), "median": statistics.median(ratios), "lowest": ratios[0], "highest": ratios[-1],
        "inside": sum(LOW <= x <= HIGH for x in ratios), "unexplained": [r.key for r in rows if "not expl" in r.why],
    }  # fmt: skip


def main() -> int:
    """Both tables, and JSON."""
    parser = report.arguments(__doc__)
    parser.add_argument("--rows", default="", help="keys of rows, comma separated; all without it")
    options = parser.parse_args()
    keys = {k for k in options.rows.split(",") if k}
    rows = list(rows_of(lambda key: not keys or key in keys))
    good = True
    told: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(r.table for r in rows):
        own = [r for r in rows if r.table == name]
        told[name] = summary(own)
        show(name, own)
        s = told[name]
        print(
            f"{name}: median {s['median']:.3f}, {s['lowest']:.3f} to {s['highest']:.3f}, "
            f"{s['inside']} of {s['rows']} rows from {LOW} to {HIGH}"
        )
        good &= LOW <= s["median"] <= HIGH and not s["unexplained"]
    devices = {name: json.loads(ig.cost.devices[name].to_json()) for name in told}
    report.write(options.json, {"devices": devices, "summary": told, "rows": [asdict(r) for r in rows]})
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
