"""TorchInductor's index math, proved or refuted: programs x nests x verdicts, as a table and JSON.

    python -m tools.bench.check_inductor [--device cpu|cuda] [--triton] [--corpus FOLDER] [--only TEXT] [--json FILE]

Each program is captured forward and backward; each scheduler node is decided as lowered ("before") and after
Inductor's loops were merged, reordered and fused ("after"). With ``--triton``, or on ``--device cuda``, Triton source
is generated too, with loop ordering after fusion and coalescing on, and what its text addresses is decided ("source");
nothing is compiled or run. ``--corpus`` takes the captured graphs of a folder instead (sizes of real models too: their
inputs are fake).
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from idgraph.check.decide import decide
from idgraph.check.inductor_capture import Capture, Lowered
from idgraph.check.report import VERDICTS, CheckReport
from idgraph.check.run import of_source
from tools.programs.inductor_programs import captured, programs


def capture(args: argparse.Namespace) -> Iterator[tuple[str, Capture, str]]:
    """(program, its capture, why it failed or "")."""
    cuda = args.device == "cuda"
    options: dict[str, Any] = {} if cuda else {"fallback_random": True}
    source = cuda or args.triton
    if args.corpus:
        for path in sorted(Path(args.corpus).glob("*.aot.*.json")):
            if args.only in path.name:
                found = Capture(options=options, name=path.stem, source=source)
                yield path.stem, found, _tried(partial(_graph, found, path))
        return
    for name, (fn, given) in programs(args.device).items():
        if args.only in name:
            found = Capture(options=options, name=name, source=source)
            yield name, found, _tried(partial(found.run, fn, given))


def _graph(found: Capture, path: Path) -> None:
    module, inputs = captured(path)
    found.graph(module, inputs, path.stem, backward=".bw" in path.name)


def _tried(run: Any) -> str:
    try:
        run()
    except Exception as error:  # torch raises many kinds; one program that it cannot compile does not end the table
        return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:300]}"
    return ""


def reports(found: Lowered) -> Iterator[tuple[CheckReport, list[str]]]:
    """The rows of each stage of one graph, and kernels whose source could not be read."""
    yield decide(found.before, stage="before", calls=found.calls), []
    yield decide(found.after, stage="after", calls=found.calls), []
    if found.outside:
        yield CheckReport(found.name, found.outside), []
    if found.source:
        made, unread = of_source(found.after, found.source, found.dtypes)
        yield decide(made, stage="source"), unread


def main() -> int:
    """The table on the terminal, JSON in a file; 1 where something is refuted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--triton", action="store_true", help="read Triton source too; it is written without a GPU")
    parser.add_argument("--corpus", default="", help="a folder of captured graphs")
    parser.add_argument("--only", default="", help="programs whose name holds this text")
    parser.add_argument("--json", default="", help="where to write all rows")
    parser.add_argument("--source", default="", help="a folder for the generated sources")
    args = parser.parse_args()
    start = time.perf_counter()
    table: list[dict[str, Any]] = []
    for name, watched, failed in capture(args):
        row = _program(name, watched, failed, args.source)
        table.append(row)
        counts = "  ".join(f"{v} {row['counts'][v]}" for v in VERDICTS)
        print(f"{name:<36} nests {row['nests']:>4}  {counts}  {failed}", flush=True)
        for text in (*row["refuted"], *row["unknown"], *row["unread"], *row["failed"]):
            print("    " + text.replace("\n", "\n    "), flush=True)
    result = _summary(table, args, time.perf_counter() - start)
    print(json.dumps({k: v for k, v in result.items() if k != "programs"}))
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1))
    return 1 if result["counts"]["refuted"] else 0


def _program(name: str, watched: Capture, failed: str, folder: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "program": name, "graphs": len(watched.lowered), "nests": 0, "kernels_unread": 0, "stages": {},
        "counts": dict.fromkeys(VERDICTS, 0), "seconds": [], "refuted": [], "unknown": [], "unread": [],
        "failed": [failed, *watched.failed] if failed else list(watched.failed),
    }  # fmt: skip
    _add(row, CheckReport(name, tuple(watched.values)), "graph")
    for k, lowered in enumerate(watched.lowered):
        if folder and lowered.source:
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / f"{name.replace(' ', '_')}.{k}.py.txt").write_text(lowered.source)
        try:
            for report, unread in reports(lowered):
                _add(row, report, report.rows[0].stage if report.rows else "source")
                row["nests"] += len({r.node for r in report.rows})
                row["seconds"] += [r.seconds for r in report.rows if r.seconds]
                row["unread"] += [f"{lowered.name}: {x}" for x in unread]
                row["kernels_unread"] += len(unread)
        except Exception as error:  # one program does not end the table
            row["failed"].append(f"{lowered.name}: {type(error).__name__}: {str(error)[:300]}")
    return row


def _add(row: dict[str, Any], report: CheckReport, stage: str) -> None:
    counts = row["stages"].setdefault(stage, dict.fromkeys(VERDICTS, 0))
    for v, n in report.counts.items():
        row["counts"][v] += n
        counts[v] += n
    row["refuted"] += [str(r) for r in report.refuted]
    row["unknown"] += [str(r) for r in report.unknown]


def _summary(table: list[dict[str, Any]], args: argparse.Namespace, seconds: float) -> dict[str, Any]:
    spent = [s for row in table for s in row["seconds"]]
    stages: dict[str, dict[str, int]] = {}
    for row in table:
        for stage, counts in row["stages"].items():
            into = stages.setdefault(stage, dict.fromkeys(VERDICTS, 0))
            for v, n in counts.items():
                into[v] += n
    version: Any = getattr(torch, "__version__", "")
    return {
        "torch": str(version), "device": args.device, "python": platform.python_version(),
        "programs_count": len(table), "graphs": sum(r["graphs"] for r in table),
        "nests": sum(r["nests"] for r in table),
        "counts": {v: sum(r["counts"][v] for r in table) for v in VERDICTS}, "stages": stages,
        "kernels_unread": sum(r["kernels_unread"] for r in table),
        "not_captured": [r["program"] for r in table if r["failed"]],
        "median_ms_per_nest": round(1000 * statistics.median(spent), 2) if spent else None,
        "largest_ms_per_nest": round(1000 * max(spent), 1) if spent else None,
        "seconds": round(seconds, 1), "programs": table,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
