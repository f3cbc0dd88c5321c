"""Commands and exit codes: 0 holds, 1 a check failed, 2 bad input (one clear line)."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.markup import escape

from idgraph.cli.actions import (
    CompilerKind,
    SweepLimits,
    console,
    index_table,
    print_cycles,
    print_metrics,
    print_report,
    run_compiler,
    run_demo,
    run_report,
    run_sweep,
    run_text,
    say,
    schedule_if,
    tensor_table,
)
from idgraph.display import write_atomically
from idgraph.errors import VERSION, IdGraphError, IndexingError, visible
from idgraph.frontends.import_ import from_json, load
from idgraph.index import IdModel
from idgraph.index.access import access_cells
from idgraph.ir import Fusion, IterDomain, Tensor
from idgraph.ir.device import TARGETS
from idgraph.kernel.ir import walk
from idgraph.runtime import Target
from idgraph.runtime import emit as emit_program
from idgraph.runtime.program import stages
from idgraph.sweeps.worker import ExaminationOptions
from idgraph.validate import validate
from idgraph.validate.report import busy
from idgraph.viz import draw, loop_nest
from idgraph.viz import explore as explore_fusion

GRAPHS = ("exact", "aligned", "extents", "index")

file_argument = click.argument("file", type=click.Path())
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
target_option = click.option(
    "--target", type=click.Choice(tuple(TARGETS)), default="cpu", show_default=True, help="The target of the kernels."
)
auto_option = click.option("--auto/--as-scheduled", "automatic", default=False, help="Schedule automatically first.")


@click.group(
    context_settings={"max_content_width": 110, "help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 it holds, 1 a check failed, 2 bad input (one line on stderr says what).",
)
@click.version_option(version=VERSION, prog_name="idgraph")
def cli() -> None:
    """Index analysis for tensor compilers.

    FILE is a Python program that builds one fusion, a fusion's text form, or a captured PyTorch graph (.json).
    """


@cli.command()
@file_argument
@auto_option
@click.option(
    "--html", "page", type=click.Path(path_type=Path), help="Write one self-contained page with pictures (.html)."
)
@click.option("--rows", type=click.IntRange(min=1), default=40, show_default=True, help="Rows of each table.")
@click.option("--csv", "folder", type=click.Path(path_type=Path), help="Add metric tables (CSV) to this folder.")
@click.option("--measure", is_flag=True, help="With --csv: run the kernels on the CPU and time them.")
@json_option
def report(
    file: str, automatic: bool, page: Path | None, rows: int, folder: Path | None, measure: bool, as_json: bool
) -> None:
    """Report a whole program, as tables, JSON or a page.

    Every cycle with its lines; every access with coordinates, address, predicate, vector width and what stops a wider
    one; data-dependent accesses; bytes read and written; opaque calls and why. --html writes one page with pictures
    that needs nothing else. --csv writes rows of the model, its graphs, kernels and pairs of operations, and no report.
    """
    if folder is not None:
        print_metrics(file, folder, measure, as_json)
        return
    if measure:
        raise click.BadParameter("times are in the metric tables", param_hint="--measure without --csv")
    found = run_report(file, automatic)
    if page is not None:
        with busy(f"page of {visible(file)}"):
            found.save(page)
    if as_json:
        say(json.dumps({"file": file, **found.to_dict()}))
    elif page is None:
        print_report(found, rows)
    else:
        console().print(f"wrote {escape(visible(str(page)))}")


@cli.command()
@click.argument("graphs", type=click.Path())
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("sweep.jsonl"),
    show_default=True,
    help="One JSON line for each graph; an interrupted sweep resumes from it.",
)
@click.option(
    "--target",
    type=click.Choice(tuple(TARGETS)),
    default="numpy",
    show_default=True,
    help="The target that values run on.",
)
@auto_option
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random inputs.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes at a time.  [default: one for each core]")
@click.option("--cluster", "address", help="tcp://host:8786 (dask), ray://host:10001, or dask or ray for one here.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=300.0, show_default=True, help="Seconds a graph."
)
@click.option(
    "--memory",
    type=click.FloatRange(min=0, max=2**20),
    default=4.0,
    show_default=True,
    help="GiB a graph; 0: no limit.",
)
@click.option(
    "--points",
    type=click.IntRange(min=0),
    default=30_000_000,
    show_default=True,
    help="Graphs with more (access, loop point) pairs are reported and not checked.",
)
@click.option("--again", is_flag=True, help="Try graphs again that ran into a limit or crashed.")
@click.option("--csv", "folder", type=click.Path(path_type=Path), help="Add metric tables (CSV) to this folder.")
@json_option
def sweep(
    graphs: str, output: Path, target: Target, automatic: bool, seed: int, workers: int | None, address: str | None,
    timeout: float, memory: float, points: int, again: bool, folder: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Import, report and check many graphs.

    GRAPHS is a folder of .json and .txt files, or a text file with a path in each line. Each graph runs in a process
    of its own, with a time and a memory limit. What fails, hangs or crashes is recorded and skipped. With --json every
    row is printed as a JSON line when it is there.
    """
    options = ExaminationOptions(target, automatic, seed, points, metrics=folder is not None)
    if not math.isfinite(memory):
        raise click.BadParameter(f"{memory} GiB is not a limit; 0 is none", param_hint="--memory")
    limits = SweepLimits(timeout, int(memory * 2**30), workers, address, again)
    sys.exit(0 if run_sweep(graphs, output, options, limits, folder, as_json) else 1)


@cli.command()
@click.argument("name", type=click.Choice(["rope"]), default="rope")
@click.option("--target", type=click.Choice(tuple(TARGETS)), help="Default: cuda where there is a device, else cpu.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("out"),
    show_default=True,
    help="Folder for the explorer page and the pictures.",
)
@click.option("--small", is_flag=True, help="A small attention instead of a Llama-size one.")
@click.option("--verbose", is_flag=True, help="Print all tensors, cycles, index maps and the source.")
@json_option
def demo(name: str, target: Target | None, output: Path, small: bool, verbose: bool, as_json: bool) -> None:
    """Run the demonstration: RoPE, from graph to checked kernel.

    RoPE with a residual of a Llama-size attention, captured from PyTorch: its cycles, a schedule, the index maps, the
    kernel, every address and value checked, pictures.
    """
    sys.exit(0 if run_demo(target, output, small=small, verbose=verbose, as_json=as_json) else 1)


@cli.command()
@file_argument
@target_option
@auto_option
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random inputs.")
@click.option("--sample/--exhaustive", default=False, help="Check a sample of the points (for very large spaces).")
@click.option(
    "--symbol", "symbols", multiple=True, metavar="NAME=VALUE", help="The value of a symbol; may be repeated."
)
@click.option("--inductor", is_flag=True, help="Check what TorchInductor makes of fn(*args) of the .py file.")
@click.option("--dtensor", is_flag=True, help="Check DTensor's operations of fn(*args) on simulated devices.")
@click.option("--program", "neutral", is_flag=True, help="Check another compiler's loop nests, in the neutral form.")
@click.option("--means", metavar="FILE", help="The fusion that a .mlir or .stmt file should compute.")
@json_option
def check(
    file: str,
    target: Target,
    automatic: bool,
    seed: int,
    sample: bool,
    symbols: tuple[str, ...],
    inductor: bool,
    dtensor: bool,
    neutral: bool,
    means: str | None,
    as_json: bool,
) -> None:
    """Check every address and every value.

    The fusion's form, its schedule, every address its kernels would touch (against the operations themselves), every
    value (against float64). A failure is shown with the smallest point at which it happens.

    --inductor and --program check another compiler instead: does each of its loop nests read and write the elements
    that the program means? --dtensor: does each device have the elements that the placements of the file's mesh say?
    A .mlir file (affine, scf, memref) or .stmt file (Halide's lowered statement) needs --means FILE, a fusion. Rows
    that are unknown are printed and no failure: the status is 1 where one is refuted, or where there are no rows.
    """
    kinds: list[CompilerKind] = [
        *(["inductor"] if inductor else []), *(["dtensor"] if dtensor else []), *(["program"] if neutral else [])
    ]  # fmt: skip
    if len(kinds) > 1:
        raise click.UsageError(f"--{kinds[0]} and --{kinds[1]} are two kinds of files: give one of them")
    if kinds:
        sys.exit(0 if run_compiler(file, kinds[0], as_json) else 1)
    if file.endswith((".mlir", ".stmt")):
        if means is None:
            raise click.UsageError(f"{file}: give the fusion that it should compute with --means FILE")
        sys.exit(0 if run_text(file, load(means), as_json) else 1)
    if means is not None:
        raise click.UsageError(f"{file}: --means is of .mlir and .stmt files; a fusion says itself what it computes")
    fusion = load(file)
    fusion.verify()
    schedule_if(automatic, fusion)
    report = validate(fusion, target=target, exhaustive=not sample, seed=seed, symbols=_symbols(symbols))
    if as_json:
        facts: dict[str, Any] = {"file": file, "ok": report.ok, "points": report.points, "target": target, "seed": seed}
        facts["counterexample"] = None if report.counterexample is None else str(report.counterexample)
        say(json.dumps(facts))
    else:
        console().print(escape(str(report)))
    sys.exit(0 if report.ok else 1)


def _symbols(given: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in given:
        name, _, value = text.rpartition("=")
        if not name or not value.isascii() or not value.isdigit():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE with a whole number", param_hint="--symbol")
        if found.setdefault(name, int(value)) != int(value):
            raise click.BadParameter(f"{name} is given twice", param_hint="--symbol")
    return found


@cli.command()
@file_argument
@click.option(
    "--graph", type=click.Choice(("fusion", *GRAPHS)), default="fusion", show_default=True, help="The graph to show."
)
@click.option(
    "--form", type=click.Choice(("text", "table", "loops", "dot", "svg")), default="table", show_default=True,
    help="The form to show it in.",
)  # fmt: skip
@click.option("--output", type=click.Path(path_type=Path), help="Write to a file instead of standard output.")
@json_option
def show(file: str, graph: str, form: str, output: Path | None, as_json: bool) -> None:
    """Show a fusion or a graph: text, table, loop nest (of a fusion), DOT, SVG."""
    if form == "loops" and graph != "fusion":
        raise click.BadParameter("a graph has no loops; a fusion has", param_hint="--form")
    fusion = load(file)
    if form == "table" and graph == "fusion" and output is None and not as_json:
        console().print(tensor_table(fusion))
        return
    with busy(f"{form} of {fusion.name}"):
        what = fusion if graph == "fusion" else getattr(IdModel(fusion), graph)
        text = str(what) if form in ("text", "table") else loop_nest(what) if form == "loops" else draw(what, form)
    if as_json:
        text = json.dumps({"file": file, "graph": graph, "tensors": [_facts(t) for t in fusion.tensors], "text": text})
    if output is None:
        say(text)
    else:
        write_atomically(output, text)


@cli.command()
@file_argument
@click.option(
    "--output", type=click.Path(path_type=Path), default=Path("explorer.html"), show_default=True, help="The page."
)
@target_option
@auto_option
def explore(file: str, output: Path, target: Target, automatic: bool) -> None:
    """Write a page to walk through a fusion: search, fold, click from a box to its accesses, kernel and your line."""
    path = explore_fusion(load(file), target=target, auto=automatic).save(output)
    console().print(f"wrote {escape(visible(str(path)))}")


def _facts(t: Tensor) -> dict[str, Any]:
    made = t.definition.op if t.definition is not None else "input"
    return {"name": t.name, "op": made, "shape": [str(n) for n in t.shape], "dtype": t.dtype}


@cli.command()
@file_argument
@click.option("--tensor", help="Only the operation that makes this tensor.")
@auto_option
@json_option
def index(file: str, tensor: str | None, automatic: bool, as_json: bool) -> None:
    """Print coordinates and address of every access.

    One row for each access: coordinates, address (elements) and predicate, in the loop variables of its operation.
    """
    fusion = load(file)
    schedule_if(automatic, fusion)
    model = IdModel(fusion)
    with busy(f"index maps of {fusion.name}"):
        model.verify()
    chosen = [e for e in fusion.exprs if tensor is None or e.output.name == tensor]
    if not chosen:
        raise IndexingError(
            f"no operation makes a tensor {tensor!r}", hint=", ".join(e.output.name for e in fusion.exprs)
        )
    if not as_json:
        console().print(index_table(model, chosen))
        return
    rows: list[dict[str, Any]] = []
    for e in chosen:
        found = model.index_map(e)
        keys = ("access", "tensor", "coordinates", "address", "predicate")
        accesses = [dict(zip(keys, access_cells(a), strict=True)) for a in found.accesses]
        loops = {x.name: str(x.extent) for x in found.loops}
        rows.append({"operation": e.name, "op": e.op, "loops": loops, "accesses": accesses})
    say(json.dumps({"file": file, "operations": rows}))


@cli.command()
@file_argument
@click.option("--graph", type=click.Choice(GRAPHS), default="exact", show_default=True, help="The graph to look at.")
@json_option
def cycles(file: str, graph: str, as_json: bool) -> None:
    """Report the cycles of a graph and their causes.

    Each with its kind (identity, shift, reorder), its shift, the operations on it and the user's lines.
    """
    fusion = load(file)
    with busy(f"cycles of {fusion.name}"):
        found = getattr(IdModel(fusion), graph).cycles()
    if not as_json:
        print_cycles(console(), found)
        return
    rows: list[dict[str, Any]] = []
    for c in found:
        closing = None if c.closing is None else c.closing.name
        facts = {"kind": c.kind, "shift": None if c.shift is None else str(c.shift), "closed_by": closing}
        rows.append({**facts, "exprs": [str(e) for e in c.exprs], "tensors": [t.name for t in c.tensors]})
    say(json.dumps({"file": file, "graph": graph, "cycles": rows}))


def _parse_axis(fusion: Fusion, text: str) -> IterDomain:
    """``t1:0``: logical axis 0 of tensor t1 (a name may hold colons)."""
    name, colon, axis = text.rpartition(":")
    if not colon:
        raise IndexingError(f"{text!r} names no axis", hint="TENSOR:AXIS, such as t1:0")
    tensor = fusion[name]
    if not axis.isdigit() or int(axis) >= len(tensor.logical):
        raise IndexingError(f"{text!r} names no axis", hint=f"{name}:0 to {name}:{len(tensor.logical) - 1}")
    return tensor.logical[int(axis)]


@cli.command()
@file_argument
@click.argument("first", required=False)
@click.argument("second", required=False)
@json_option
def explain(file: str, first: str | None, second: str | None, as_json: bool) -> None:
    """Say why two axes are the same, or what separates them; or print what a call of a captured graph runs.

    FIRST and SECOND are axes, TENSOR:AXIS, like t1:0; the graph is the exact one. Exit status 1: they are not the same.
    Without them FILE is a captured graph (JSON): allocations, launches and operations of torch's, as Python text.
    """
    if first is None:
        if Path(file).suffix == ".py":
            raise IndexingError("explain: two axes are missing", hint=f"explain {file} TENSOR:AXIS TENSOR:AXIS")
        with busy(f"{visible(file)}: schedule and kernels"):
            source = from_json(file).call_source()
        say(json.dumps({"file": file, "source": source}) if as_json else source)
        return
    if second is None:
        raise IndexingError(
            f"{first} is one axis", hint="explain FILE FIRST SECOND, or explain FILE for a captured graph"
        )
    fusion = load(file)
    with busy(f"exact graph of {fusion.name}"):
        found = IdModel(fusion).exact.explain(_parse_axis(fusion, first), _parse_axis(fusion, second))
    if as_json:
        say(json.dumps({"file": file, "first": first, "second": second, "same": bool(found), "why": str(found)}))
    else:
        console().print(escape(str(found)))
    sys.exit(0 if found else 1)


@cli.command()
@file_argument
@target_option
@auto_option
@json_option
@click.option("--passes", is_flag=True, help="Print the kernels after each pass that changed one, not the source.")
def emit(file: str, target: Target, automatic: bool, as_json: bool, passes: bool) -> None:
    """Print the source of the kernels."""
    fusion = load(file)
    schedule_if(automatic, fusion)
    if passes:
        _print_passes(file, fusion, target, as_json)
        return
    with busy(f"kernels of {fusion.name} for {target}"):
        program = emit_program(fusion, target=target)
    if as_json:
        kernels = [k.name for k in program.plan.kernels]
        say(json.dumps({"file": file, "target": target, "kernels": kernels, "source": program.source}))
    else:
        say(program.source)


def _print_passes(file: str, fusion: Fusion, target: Target, as_json: bool) -> None:
    """The kernels after each pass, where it changed them."""
    made: list[dict[str, object]] = []
    before: dict[str, str] = {}
    with busy(f"kernels of {fusion.name} for {target}"):
        found = list(stages(fusion, target))
    for name, plan in found:
        for k in plan.kernels:
            text, count = str(k), sum(1 for _ in walk(k.body))
            if before.get(k.name) == text:
                continue
            before[k.name] = text
            made.append({"pass": name, "kernel": k.name, "statements": count, "ir": text})
            if not as_json:
                say(f"# after {name}: {k.name}, {count} statements\n{text}\n")
    if as_json:
        say(json.dumps({"file": file, "target": target, "passes": made}))


_CALLED = "return callback(*args, **kwargs)"  # click's own frame: the error then comes from no line of the user's


def main() -> NoReturn:
    """Entry point: 0 holds, 1 a check failed, 2 bad input, with one line on stderr that says what is wrong."""
    if sys.stdout is None:  # closed by the shell (`>&-`)  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    elif (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
        reconfigure(errors="backslashreplace")  # a file's name may hold what no encoding can write
    try:
        status = _run_command()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough; the interpreter would complain when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    sys.exit(status)


def _run_command() -> int:
    try:
        status = cli(standalone_mode=False)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        said = error.format_message()
        lists = "; hint: idgraph --help, idgraph COMMAND --help"
        return _bad(said + lists * (said.startswith("No such ") and "Did you mean" not in said))
    except (click.Abort, KeyboardInterrupt):
        return 130  # as a shell reports an interrupt
    except IdGraphError as error:
        because = [f"because {fact}" for fact in error.because]
        at = [f"at {error.where}"] if error.where and _CALLED not in error.where else []
        at += [f"{name} is made at {line}" for name, line in error.origins.items()]
        return _bad("; ".join([error.what, *at, *because, *([f"hint: {error.hint}"] if error.hint else [])]))
    except MemoryError:
        return _bad("this needs more memory than there is; hint: smaller extents")
    except BrokenPipeError:
        raise
    except OSError as error:
        return _bad(f"{error.filename or 'output'}: {error.strerror or error}")
    return status if isinstance(status, int) else 0


def _bad(text: str) -> int:
    """One line, whatever the text holds."""
    click.echo(f"error: {visible(' '.join(text.split()))}", err=True)
    return 2
