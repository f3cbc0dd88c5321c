"""``idgraph demo rope``: the main job, from a captured Llama-size graph to a checked kernel, said in plain words."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from idgraph.cli.show import console, index_table, say, tensor_table
from idgraph.display import write_whole
from idgraph.frontends.fx import from_json
from idgraph.graphs import Cycle
from idgraph.index import IdModel
from idgraph.ir import Fusion, IterDomain, TensorExpr
from idgraph.runtime import Program, Target, cuda_available, emit
from idgraph.schedule import auto
from idgraph.validate import Report, validate
from idgraph.viz import draw, loop_nest

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
    step("the fusion, as captured from PyTorch", tensor_table(fusion) if verbose else _operands(fusion))
    cycles = IdModel(fusion).exact.cycles()
    about = "which axes are the same, and the cycle that makes a search over that graph return wrong indices"
    step(about, *([str(c) for c in cycles] if verbose else _first_cycle(cycles)))
    auto(fusion)
    model = IdModel(fusion)
    model.verify()
    shifts = [c for c in model.index.cycles() if c.changes_index]
    moved = [e for e in fusion.exprs if e.op in ("slice", "cat", "add")]
    about = "a schedule (blocks and threads over the flattened output, everything else inlined), its index maps"
    step(about, *([index_table(model, moved)] if verbose else _nest(fusion, model, moved)))
    program = emit(fusion, target=target)
    step(f"the kernel, for {target}", *(_source(program) if verbose else _plan(program)))
    began = time.perf_counter()
    report = validate(fusion, target=target)
    seconds = time.perf_counter() - began
    told = str(report).splitlines()
    about = "every address against the operations themselves, every value against float64"
    step(about, *(told if verbose or not report.ok else [x for x in told if not x.startswith("    ")]))
    pictures = write_pictures(fusion, model, folder)
    names = [f"  {p}" for p in pictures]
    step(
        "pictures",
        *(names if verbose else [f"  {len(names)} files: {folder}/*.svg, *.dot; --verbose tells all of this"]),
    )
    _say(out, cycles, len(shifts), report, target, seconds)
    if as_json:
        counterexample = None if report.counterexample is None else str(report.counterexample)
        facts = {
            "ok": report.ok and not shifts, "target": target, "points": report.points, "seconds": round(seconds, 3),
            "cycles": [{"kind": c.kind, "shift": None if c.shift is None else str(c.shift)} for c in cycles],
            "index_cycles": len(shifts), "counterexample": counterexample, "pictures": [str(p) for p in pictures],
        }  # fmt: skip
        say(json.dumps(facts))
    return report.ok and not shifts


class _DemoSteps:
    """Numbered steps of the demo, each with its lines and tables."""

    def __init__(self, out: Console, verbose: bool) -> None:
        self.out, self.verbose, self.number = out, verbose, 0

    def __call__(self, about: str, *what: str | Table) -> None:
        self.number += 1
        self.out.print(f"{chr(10) if self.verbose else ''}[bold]{self.number}/6[/bold] {escape(about)}")
        for x in what:
            self.out.print(escape(x) if isinstance(x, str) else x)


def _operands(fusion: Fusion) -> str:
    """Inputs and outputs on one line."""
    shown = [f"{t.name} ({', '.join(map(str, t.shape))})" for t in fusion.inputs]
    made = ", ".join(t.name for t in fusion.outputs)
    return f"  {len(fusion.exprs)} operations make {made} of {', '.join(shown)} {fusion.inputs[0].dtype}"


def _first_cycle(cycles: Sequence[Cycle[IterDomain]]) -> list[str]:
    """The first cycle without its steps."""
    told = [x for c in cycles[:1] for x in str(c).splitlines()]
    lines = [f"  {x}" for n, x in enumerate(told) if n == 0 or "closed by" in x]
    return lines + ([f"  and {len(cycles) - 1} more"] if len(cycles) > 1 else [])


def _nest(fusion: Fusion, model: IdModel, moved: Sequence[TensorExpr]) -> list[str]:
    """The loops, and the index map of the first operation that moves elements."""
    heads = ("for ", "vectorize ", "unroll ", "allocate ")
    nest = [f"  {x}" for x in loop_nest(fusion).splitlines() if x.strip().startswith(heads)]
    return [*nest[:6], *(f"  {a}" for e in moved[:1] for a in model.index_map(e).accesses)]


def _plan(program: Program) -> list[str]:
    """The first statements of the first kernel."""
    told = [x for k in program.kernels[:1] for x in str(k).splitlines() if not x.strip().startswith("#")]
    shown = [x.partition("  #")[0] for x in told if " registers" not in x]
    rest = len(program.source.splitlines())
    return [*(f"  {x[:116]}" for x in shown[:8]), f"  ... {rest} lines of source: idgraph demo rope --verbose"]


def _source(program: Program) -> list[str]:
    """The first lines of the source."""
    lines = program.source.splitlines()
    rest = len(lines) - 60
    return [*lines[:60], *([f"  ... {rest} more lines: idgraph emit FILE"] if rest > 0 else [])]


def write_pictures(fusion: Fusion, model: IdModel, folder: Path) -> list[Path]:
    """Fusion, exact graph (cycle marked) and index graph, each as SVG and DOT."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, what in (("fusion", fusion), ("exact", model.exact), ("index", model.index)):
        for form in ("svg", "dot"):
            path = folder / f"{name}.{form}"
            write_whole(path, draw(what, form))
            written.append(path)
    return written


def _say(
    out: Console, cycles: tuple[Cycle[IterDomain], ...], left: int, report: Report, target: str, seconds: float
) -> None:
    kinds = ", ".join(sorted({f"{c.kind} by {c.shift}" if c.kind == "shift" else c.kind for c in cycles}))
    verdict = (
        "every address and every value is right" if report.ok else "NOT all are right, see the counterexample above"
    )
    text = (
        f"The exact graph has {len(cycles)} cycles ({kinds}): an axis is, in some steps, itself at another place. A "
        "search for an index over that graph may go round and return the wrong one. The index graph keeps one node for "
        f"each axis and operation; {left or 'none'} of its cycles changes an index.\n"
        f"{report.points:,} accesses were checked on target {target} in {seconds:.1f} s: {verdict}."
    )
    out.print(Panel(escape(text), title="what was found", title_align="left"), soft_wrap=False)
