"""One graph: imported, reported, checked. Runs in the guarded process; returns a row whatever happens to the graph."""

from __future__ import annotations

import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from idgraph.errors import IdGraphError, visible
from idgraph.frontends.files import read_file
from idgraph.frontends.fx import Import
from idgraph.ir import Fusion
from idgraph.reports.metric_files import MetricRow
from idgraph.reports.metric_tables import metrics
from idgraph.reports.plain_data import totals
from idgraph.reports.program_report import IndexReport, report_fusion
from idgraph.runtime import Target
from idgraph.sweeps.result_lines import Settings, SweepRow
from idgraph.validate import Report, validate


@dataclass(frozen=True, slots=True)
class ExaminationOptions:
    """How every graph is examined: kernels for ``target``, ``auto`` scheduled or as given; inputs from ``seed``.

    A graph with more than ``points`` (access, loop point) pairs is reported and not checked. ``metrics`` makes the rows
    of the metric tables too, of CUDA kernels scheduled by `ig.schedule.auto`.
    """

    target: Target = "numpy"
    auto: bool = False
    seed: int = 0
    points: int = 30_000_000
    metrics: bool = False

    def settings(self, version: str) -> Settings:
        """The settings that a row remembers: a row with others is made again."""
        return {
            "target": self.target, "auto": self.auto, "seed": self.seed, "points": self.points, "idgraph": version,
            **({"metrics": True} if self.metrics else {}),
        }  # fmt: skip


def examine(path: Path, graph: str, digest: str, options: ExaminationOptions) -> SweepRow:
    """The row of one file."""
    began = time.perf_counter()
    row = SweepRow(graph, digest, "ok")
    try:
        row = _examined(path, row, options)
    except IdGraphError as error:
        because = "; ".join([error.what, *(f"because {b}" for b in error.because)])
        row = replace(row, status="refused", reason=f"{type(error).__name__}: {because}")
    except MemoryError:
        row = replace(row, status="memory", reason="an allocation was refused")
    except RecursionError:
        row = replace(row, status="refused", reason="nested too deep")
    except Exception as error:  # a fault of this library's: the graph keeps its row, and the row says where it was
        row = replace(row, status="crashed", reason=_fault(error))
    return replace(row, seconds=round(time.perf_counter() - began, 3), peak_bytes=_peak())


def _fault(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}{where}"


def _peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _examined(path: Path, row: SweepRow, options: ExaminationOptions) -> SweepRow:
    found = read_file(str(path))
    fusions = [s.fusion for s in found.segments if s.fusion is not None] if isinstance(found, Import) else [found]
    report = _report(found, options.auto)
    row = replace(
        row,
        totals=totals(report),
        cycles=dict(sorted(Counter(c.kind for c in report.cycles).items())),
        opaque=dict(report.opaque),
        metrics=_metrics(found, visible(row.graph)) if options.metrics else {},
    )
    points = [a.points for a in report.accesses]
    if not all(isinstance(n, int) for n in points):
        return replace(row, status="unchecked", reason="extents are symbols")
    pairs = sum(n for n in points if isinstance(n, int))
    if pairs > options.points:
        return replace(row, status="unchecked", reason=f"{pairs:.1e} points, at most {options.points:.1e} are checked")
    scheduled = [s.fusion for s in report.segments if s.fusion is not None] if options.auto else fusions
    return _checked(row, scheduled, options)


def _metrics(found: Fusion | Import, model: str) -> Mapping[str, Sequence[MetricRow]]:
    """The rows of the metric tables, as plain data."""
    made = found.metrics(model=model) if isinstance(found, Import) else metrics(found, model=model)
    return {name: [dict(r) for r in rows] for name, rows in made.tables.items()}


def _report(found: Fusion | Import, auto: bool) -> IndexReport:
    if isinstance(found, Import):
        return found.report(auto=auto, suggestions=0)
    return report_fusion(found, None, auto, 0)


def _checked(row: SweepRow, fusions: list[Fusion], options: ExaminationOptions) -> SweepRow:
    checks: Counter[str] = Counter()
    for f in fusions:
        result: Report = validate(f, target=options.target, seed=options.seed)
        checks["points"] += result.points
        checks["values"] += result.values.elements if result.values is not None else 0
        if not result.ok:
            reason = " ".join(str(result.counterexample).split())
            return replace(row, status="failed", reason=f"{f.name}: {reason}", checks=dict(checks))
    return replace(row, checks=dict(checks))
