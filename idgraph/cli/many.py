"""``idgraph report`` and ``idgraph sweep``: long work, with bars on stderr where that is a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from idgraph.cli.show import console, say
from idgraph.errors import visible
from idgraph.frontends.files import read_file
from idgraph.frontends.fx import Import
from idgraph.reports.metric_tables import metrics
from idgraph.reports.program_report import IndexReport, Part, report_parts
from idgraph.reports.rich_tables import tables
from idgraph.runtime import Target
from idgraph.sweeps import cluster
from idgraph.sweeps import sweep as sweep_graphs
from idgraph.sweeps.examination import ExaminationOptions
from idgraph.sweeps.result_lines import Status, SweepRow


@contextlib.contextmanager
def bar(title: str, total: int) -> Generator[Callable[[int], None]]:
    """A progress bar on stderr; nothing where that is not a terminal."""
    out = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=out, transient=True, disable=not out.is_terminal) as shown:
        task = shown.add_task(Text(title).markup, total=total)
        yield lambda n: shown.advance(task, n)


def run_report(file: str, auto: bool) -> IndexReport:
    """The report of a file, whatever kind it is of."""
    found = read_file(file)
    if isinstance(found, Import):
        operations = sum(len(s.fusion.exprs) for s in found.segments if s.fusion is not None)
        with bar("operations", operations) as advance:
            return found.report(auto=auto, advance=advance)
    found.verify()
    with bar("operations", len(found.exprs)) as advance:
        return report_parts(found.name, [Part(found)], auto=auto, advance=advance)


def print_report(report: IndexReport, rows: int) -> None:
    """Tables, on a terminal in colour."""
    console().print(tables(report, rows))


@dataclass(frozen=True, slots=True)
class SweepLimits:
    """How a sweep runs: seconds and bytes for each graph, processes, cluster; ``again`` retries what did not end."""

    timeout: float
    memory: int
    workers: int | None
    address: str | None
    again: bool


RETRIED: tuple[Status, ...] = ("timeout", "memory", "crashed")


def print_metrics(file: str, folder: Path, measure: bool, as_json: bool) -> None:
    """Add the metric tables of a file to a folder; measured ones are of CPU kernels, others of CUDA kernels."""
    found = read_file(file)
    target: Target = "cpu" if measure else "cuda"
    if isinstance(found, Import):
        made = found.metrics(target=target, measure=measure)
    else:
        made = metrics(found, target=target, measure=measure)
    made.to_csv(folder)
    if as_json:
        say(made.to_json())
    else:
        console().print(Text(visible(str(made), lines=True)))
        console().print(Text(visible(f"rows are in {folder}")))


def run_sweep(
    graphs: str, out: Path, options: ExaminationOptions, limits: SweepLimits, folder: Path | None, as_json: bool
) -> bool:
    """Sweep and print; True when nothing went wrong with any graph."""
    with contextlib.ExitStack() as stack:
        executor = None
        if limits.address is not None:
            executor = stack.enter_context(cluster(limits.address, limits.workers))
        advance: Callable[[int], None] | None = None

        def seen(done: int, total: int, row: SweepRow | None) -> None:
            nonlocal advance
            if row is None:
                advance = stack.enter_context(bar("graphs", total))
                advance(done)
                return
            if advance is not None:
                advance(1)
            if as_json:
                say(row.to_json())

        found = sweep_graphs(
            graphs, out, executor=executor, workers=limits.workers, timeout=limits.timeout, memory=limits.memory,
            target=options.target, auto=options.auto, seed=options.seed, points=options.points,
            again=RETRIED if limits.again else (), progress=seen, metrics=options.metrics,
        )  # fmt: skip
    if folder is not None:
        found.to_csv(folder)
    if not as_json:
        console().print(Text(str(found)))
        tables_in = "" if folder is None else f", metric tables in {folder}"
        console().print(Text(visible(f"rows are in {out}{tables_in}")))
    return found.ok
