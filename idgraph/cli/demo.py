"""``idgraph demo rope``: the main job, from a captured Llama-size graph to a checked kernel, said in plain words."""

from __future__ import annotations

import io
import json
import time
from importlib.resources import as_file, files
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.text import Text

from idgraph.cli.show import console, index_table, say, tensor_table
from idgraph.frontends.fx import from_json
from idgraph.graphs import Cycle
from idgraph.index import IdModel
from idgraph.ir import Fusion, IterDomain
from idgraph.runtime import Program, Target, cuda_available, emit
from idgraph.schedule import auto
from idgraph.validate import Report, validate
from idgraph.viz import draw

GRAPH = "rope_half_residual_real.core.json"
SMALL_GRAPH = "rope_half_residual.core.json"


def load_rope(small: bool) -> Fusion:
    """A captured graph that travels with the package: q, k of [2, 32, 4096, 128] bfloat16 ([2, 4, 16, 8] float32)."""
    with as_file(files("idgraph.cli") / "data" / (SMALL_GRAPH if small else GRAPH)) as path:
        return from_json(path).fusion


def run_demo(target: Target | None, folder: Path, *, small: bool = False, as_json: bool = False) -> bool:
    """Print what was found, as JSON its facts only; True when every check held."""
    out = Console(file=io.StringIO()) if as_json else console()
    fusion = load_rope(small)
    if target is None:
        target = "cuda" if cuda_available() else "cpu"
    _step(out, 1, "the fusion, as captured from PyTorch")
    out.print(tensor_table(fusion))
    _step(out, 2, "which axes are the same, and the cycle that makes a search over that graph return wrong indices")
    cycles = IdModel(fusion).exact.cycles()
    for c in cycles:
        out.print(escape(str(c)))
    _step(out, 3, "a schedule (blocks and threads over the flattened output, everything else inlined), its index maps")
    auto(fusion)
    model = IdModel(fusion)
    model.verify()
    shifts = [c for c in model.index.cycles() if c.changes_index]
    out.print(index_table(model, [e for e in fusion.exprs if e.op in ("slice", "cat", "add")]))
    _step(out, 4, f"the kernel, for {target}")
    program = emit(fusion, target=target)
    _print_source(out, program)
    _step(out, 5, "every address against the operations themselves, every value against float64")
    began = time.perf_counter()
    report = validate(fusion, target=target)
    seconds = time.perf_counter() - began
    out.print(escape(str(report)))
    _step(out, 6, "pictures")
    pictures = write_pictures(fusion, model, folder)
    for path in pictures:
        out.print(Text(f"  {path}"))
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


def _step(out: Console, number: int, text: str) -> None:
    out.print(f"\n[bold]{number}/6[/bold] {escape(text)}")


def _print_source(out: Console, program: Program) -> None:
    lines = program.source.splitlines()
    shown = lines[:60]
    out.print(escape("\n".join(shown)))
    if len(lines) > len(shown):
        out.print(f"  ... {len(lines) - len(shown)} more lines: idgraph emit FILE")


def write_pictures(fusion: Fusion, model: IdModel, folder: Path) -> list[Path]:
    """Fusion, exact graph (cycle marked) and index graph, each as SVG and DOT."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, what in (("fusion", fusion), ("exact", model.exact), ("index", model.index)):
        for form in ("svg", "dot"):
            path = folder / f"{name}.{form}"
            path.write_text(draw(what, form), encoding="utf-8")
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
