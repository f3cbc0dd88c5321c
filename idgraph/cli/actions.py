"""``idgraph demo``: the main job, from a captured Llama-size graph to a checked kernel, said in plain words."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import textwrap
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal, cast

import click
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from idgraph.check import CheckError, CheckReport, DTensorReport, dtensor, halide, inductor, mlir, program
from idgraph.display import write_atomically
from idgraph.errors import visible
from idgraph.frontends.import_ import Import, from_json, names_of, read_file
from idgraph.graphs import Cycle
from idgraph.index import IdModel
from idgraph.index.access import access_cells
from idgraph.ir import Fusion, IterDomain, TensorExpr
from idgraph.ir.limits import read_within
from idgraph.reports.metric_tables import metrics
from idgraph.reports.program_report import IndexReport, Part, report_parts
from idgraph.reports.to_text import tables
from idgraph.runtime import Program, Target, cuda_available, emit
from idgraph.schedule import auto
from idgraph.sweeps import cluster
from idgraph.sweeps import sweep as sweep_graphs
from idgraph.sweeps.results import Status, SweepRow
from idgraph.sweeps.worker import ExaminationOptions
from idgraph.validate import Report, validate
from idgraph.validate.report import busy
from idgraph.viz import draw, explore, loop_nest


class _Output(Console):
    """rich ends the process with status 1, which here means that a check failed, when a pipe is closed."""

    def on_broken_pipe(self) -> None:
        """Leave the error to `idgraph.cli.main`."""
        raise BrokenPipeError


def console() -> Console:
    """Standard output; where it is not a terminal, plain text 140 columns wide."""
    wide = None if sys.stdout.isatty() else 140
    return _Output(highlight=False, soft_wrap=True, width=wide)


def say(text: str) -> None:
    """Print a line. click, too, would end the process with status 1 where a pipe is closed (by the error number)."""
    try:
        click.echo(visible(text, lines=True))
    except BrokenPipeError:
        raise BrokenPipeError from None


def tensor_table(fusion: Fusion) -> Table:
    """One row for each tensor: what makes it, its shape, where it was written."""
    table = Table(title=f"fusion {escape(fusion.name)}", title_justify="left")
    for column in ("tensor", "made by", "shape", "dtype", "line"):
        table.add_column(column)
    for t in fusion.tensors:
        made = t.definition.op if t.definition is not None else "input"
        mark = " (output)" if t in fusion.outputs else ""
        shape = "(" + ", ".join(map(str, t.shape)) + ")"
        line = t.source_line
        where = f"{line.file}:{line.line}" if line is not None else ""
        table.add_row(escape(t.name) + mark, made, shape, t.dtype, escape(where))
    return table


def index_table(model: IdModel, exprs: Iterable[TensorExpr]) -> Table:
    """Index maps of operations: coordinates, address and predicate of each access, in its loop variables."""
    table = Table(title="index maps", title_justify="left")
    for column in ("operation", "access", "tensor", "coordinates", "address", "when"):
        table.add_column(column, overflow="fold")
    for e in exprs:
        found = model.index_map(e)
        loops = ", ".join(map(str, found.loops)) or "once"
        for n, a in enumerate(found.accesses):
            name = f"{e.op} -> {escape(e.output.name)}\nfor {loops}" if n == 0 else ""
            table.add_row(name, *(escape(x) for x in access_cells(a)), end_section=n == len(found.accesses) - 1)
    return table


def print_cycles(out: Console, cycles: Sequence[Cycle[object]]) -> None:
    """Every cycle with its witness, or that there is none."""
    if not cycles:
        out.print("no cycle")
    for c in cycles:
        out.print(escape(str(c)))


GRAPH = "rope_half_residual_real.core.json"
SMALL_GRAPH = "rope_half_residual.core.json"


def load_rope(small: bool) -> Fusion:
    """A captured graph that travels with the package: q, k of [2, 32, 4096, 128] bfloat16 ([2, 4, 16, 8] float32)."""
    with as_file(files("idgraph.cli") / "data" / (SMALL_GRAPH if small else GRAPH)) as path:
        return from_json(path).fusion


def run_demo(
    target: Target | None, folder: Path, *, small: bool = False, verbose: bool = False, as_json: bool = False
) -> bool:
    """Print what was found on one screen, ``verbose`` in full, as JSON its facts only; True when every check held."""
    out = Console(file=io.StringIO()) if as_json else console()
    fusion = load_rope(small)
    if target is None:
        target = "cuda" if cuda_available() else "cpu"
    step = _DemoSteps(out, verbose)
    step("the fusion, as captured from PyTorch", tensor_table(fusion) if verbose else _signature_line(fusion))
    cycles = IdModel(fusion).exact.cycles()
    about = "the cycle that makes a search over the exact graph return wrong indices"
    step(about, *([str(c) for c in cycles] if verbose else _first_cycle(cycles)))
    auto(fusion)
    model = IdModel(fusion)
    model.verify()
    shifts = [c for c in model.index.cycles() if c.changes_index]
    moved = [e for e in fusion.exprs if e.op in ("slice", "cat", "add")]
    about = "a schedule: blocks and threads over the output, everything else inlined"
    step(about, *([index_table(model, moved)] if verbose else _nest_lines(fusion)))
    began = time.perf_counter()
    report = validate(fusion, target=target)
    seconds = time.perf_counter() - began
    told = str(report).splitlines()
    about = "every address against the operations themselves, every value against float64"
    step(about, *(told if verbose or not report.ok else [x for x in told if not x.startswith("    ")]))
    pictures = write_pictures(fusion, model, folder)
    page = explore(fusion, target=target).save(folder / "explorer.html")
    names = [f"  {p}" for p in pictures]
    step(f"pictures: {folder}/*.svg, *.dot", *(names if verbose else ()))
    _say(out, step.width, cycles, len(shifts), report, target, seconds)
    program = emit(fusion, target=target)
    address = [f"  {a}" for e in moved[:1] for a in model.index_map(e).accesses if not a.is_write]
    about = f"the kernel, for {target}: its first lines, and one address"
    step(about, *(_source_head(program) if verbose else _first_statements(program)), *address[:1])
    out.print(f"[bold]open {escape(str(page))}[/bold]")
    if as_json:
        counterexample = None if report.counterexample is None else str(report.counterexample)
        facts = {
            "ok": report.ok and not shifts, "target": target, "points": report.points, "seconds": round(seconds, 3),
            "cycles": [{"kind": c.kind, "shift": None if c.shift is None else str(c.shift)} for c in cycles],
            "index_cycles": len(shifts), "counterexample": counterexample, "pictures": [str(p) for p in pictures],
            "explorer": str(page),
        }  # fmt: skip
        say(json.dumps(facts))
    return report.ok and not shifts


class _DemoSteps:
    """Numbered steps of the demo, each with its lines and tables; lines end between words, at ``width``."""

    def __init__(self, out: Console, verbose: bool) -> None:
        self.out, self.verbose, self.number = out, verbose, 0
        self.width = out.width if out.is_terminal else 80

    def __call__(self, about: str, *what: str | Table) -> None:
        self.number += 1
        first, *rest = self._wrapped(f"{self.number}/6 {about}")
        number, _, text = first.partition(" ")
        self.out.print(f"{chr(10) if self.verbose else ''}[bold]{number}[/bold] {escape(text)}")
        for x in (*rest, *what):
            for line in self._wrapped(x) if isinstance(x, str) else (x,):
                self.out.print(escape(line) if isinstance(line, str) else line)

    def _wrapped(self, line: str) -> list[str]:
        indent = line[: len(line) - len(line.lstrip())]
        return textwrap.wrap(
            line, self.width, subsequent_indent=indent + "    ", break_long_words=False, break_on_hyphens=False
        )


def _signature_line(fusion: Fusion) -> str:
    """Inputs and outputs on one line."""
    shown = [f"{t.name} ({', '.join(map(str, t.shape))})" for t in fusion.inputs]
    made = ", ".join(t.name for t in fusion.outputs)
    return f"  {len(fusion.exprs)} operations make {made} of {', '.join(shown)} {fusion.inputs[0].dtype}"


def _first_cycle(cycles: Sequence[Cycle[IterDomain]]) -> list[str]:
    """The first cycle without its steps."""
    told = [x for c in cycles[:1] for x in str(c).splitlines()]
    lines = [f"  {x}" for n, x in enumerate(told) if n == 0 or "closed by" in x]
    return lines + ([f"  and {len(cycles) - 1} more"] if len(cycles) > 1 else [])


def _nest_lines(fusion: Fusion) -> list[str]:
    """The loops."""
    heads = ("for ", "vectorize ", "unroll ", "allocate ")
    nest = [f"  {x}" for x in loop_nest(fusion).splitlines() if x.strip().startswith(heads)]
    return nest[:6]


def _first_statements(program: Program) -> list[str]:
    """Eight lines of the first kernel, from its outermost loop on, without the notes behind them."""
    lines = [x for k in program.kernels[:1] for x in str(k).splitlines() if not x.strip().startswith("#")]
    first = next((n for n, x in enumerate(lines) if x.strip().startswith("for ")), 0)
    shown = [x.partition("  #")[0].partition("  @ ")[0] for x in lines[first : first + 8]]
    rest = len(program.source.splitlines())
    return [*shown, f"  ... {rest} lines of source: idgraph demo --verbose"]


def _source_head(program: Program) -> list[str]:
    """The first lines of the source."""
    lines = program.source.splitlines()
    rest = len(lines) - 60
    return [*lines[:60], *([f"  ... {rest} more lines: idgraph emit FILE"] if rest > 0 else [])]


def write_pictures(fusion: Fusion, model: IdModel, folder: Path) -> list[Path]:
    """Fusion, exact graph (cycle marked) and index graph (operations), each as SVG and DOT."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    # The index graph with a box for each operation: with one for each coordinate it is as large as a wall.
    for name, what, collapse in (
        ("fusion", fusion, False),
        ("exact", model.exact, False),
        ("index", model.index, True),
    ):
        for form in ("svg", "dot"):
            path = folder / f"{name}.{form}"
            write_atomically(path, draw(what, form, collapse=collapse))
            written.append(path)
    return written


def _say(
    out: Console,
    width: int,
    cycles: tuple[Cycle[IterDomain], ...],
    left: int,
    report: Report,
    target: str,
    seconds: float,
) -> None:
    kinds = ", ".join(sorted({f"{c.kind} by {c.shift}" if c.kind == "shift" else c.kind for c in cycles}))
    verdict = (
        "every address and every value is right" if report.ok else "NOT all are right, see the counterexample above"
    )
    text = (
        f"The exact graph has {len(cycles)} cycles ({kinds}): an axis is, in some steps, itself at another index. A "
        "search for an index over that graph may go round and return the wrong one. The index graph keeps one node for "
        f"each axis and operation; {left or 'none'} of its cycles changes an index.\n"
        f"{report.points:,} accesses were checked on target {target} in {seconds:.1f} s: {verdict}."
    )
    out.print(Panel(escape(text), title="what was found", title_align="left", width=width), soft_wrap=False)


@contextlib.contextmanager
def bar(title: str, total: int) -> Generator[Callable[[int], None]]:
    """A progress bar on stderr; nothing where that is not a terminal."""
    out = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=out, transient=True, disable=not out.is_terminal) as shown:
        task = shown.add_task(Text(title).markup, total=total)
        yield lambda n: shown.advance(task, n)


def schedule_if(asked: bool, fusion: Fusion) -> None:
    """Schedule by rules where ``--auto`` asks for it."""
    if asked:
        with busy(f"schedule of {fusion.name}"):
            auto(fusion)


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
    with busy(f"metric tables of {visible(file)}"):
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


CompilerKind = Literal["inductor", "dtensor", "program"]
LARGEST_TEXT = 8 << 20  # bytes of another compiler's text


def run_compiler(file: str, kind: CompilerKind, as_json: bool) -> bool:
    """Check what TorchInductor or DTensor makes of a Python file's ``fn(*args)``, or a program in the neutral form;
    print it."""
    path = Path(file)
    if kind == "program":
        with busy(f"check of {visible(file)}"):
            found = program(path)
        return _print_report(found, as_json)
    return _print_report(_inductor(path) if kind == "inductor" else _dtensor(path), as_json)


def run_text(file: str, fusion: Fusion, as_json: bool) -> bool:
    """Check MLIR's text or Halide's lowered statement against a fusion; print it."""
    try:
        text = read_within(file, LARGEST_TEXT).decode("utf-8")
    except (OSError, ValueError):
        raise CheckError(f"{file!r} cannot be read as text") from None
    with busy(f"check of {visible(file)}"):
        found = (mlir if file.endswith(".mlir") else halide)(text, fusion)
    return _print_report(found, as_json)


def _print_report(report: CheckReport | DTensorReport, as_json: bool) -> bool:
    if as_json:
        say(report.to_json())
    else:
        console().print(escape(str(report)))
    return report.ok


def _fn_and_args(file: Path, names: Mapping[str, object]) -> tuple[Callable[..., object], Sequence[object]]:
    fn, args = names.get("fn"), names.get("args", ())
    if not callable(fn) or not isinstance(args, (tuple, list)):
        raise CheckError(
            f"{str(file)!r} leaves no function ``fn`` and no tuple ``args`` in its globals",
            hint="fn = torch.nn.functional.cross_entropy; args = (x, target)",
        )
    return fn, tuple(cast("Sequence[object]", args))


def _inductor(file: Path) -> CheckReport:
    names = names_of(file)
    fn, args = _fn_and_args(file, names)
    dynamic = names.get("dynamic")
    with busy(f"check of {visible(str(file))} by TorchInductor"):
        return inductor(fn, args, dynamic=dynamic if isinstance(dynamic, bool) else None, name=file.stem)


def _dtensor(file: Path) -> DTensorReport:
    names = names_of(file)
    fn, args = _fn_and_args(file, names)
    placements = names.get("placements")
    if "mesh" not in names or not isinstance(placements, dict):
        raise CheckError(
            f"{str(file)!r} leaves no ``mesh`` and no dict ``placements`` in its globals",
            hint='mesh = ig.Mesh(x=2, y=2); placements = {"x": [Shard(0), Replicate()]}',
        )
    given = cast("Mapping[str, Sequence[object]]", placements)
    with busy(f"check of {visible(str(file))} by DTensor"):
        return dtensor(fn, args, mesh=names["mesh"], placements=given, name=file.stem)
