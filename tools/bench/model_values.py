"""All models of ``models.toml`` behind torch.compile, compared with eager mode: ``python -m tools.bench.model_values``.

A row a model and part: ``forward`` without gradients, a training ``step`` (loss and gradients), ``sizes`` (forward with
``dynamic=True``: a batch and length, then two others), ``cuda`` (the kernels of a step are emitted for a GPU, which
need not be there, and nothing is compared). A row has the largest error of the results relative to the
largest value of eager mode in float64, that of eager mode itself, seconds of the processor, the number of graphs, and
what failed: an error, a graph left to eager mode, a value off by more than the judgement of tests allows. Each model
runs in a process of its own, a copy of one that has loaded the libraries; ``--json`` is written anew after each row,
and rows that it has already are left out with ``--rest``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from idgraph.frontends.callable_import import Runner
from idgraph.frontends.session import CompileOptions
from tools.programs.model_families import called_with, families, library, model_of

STEPS = ("step", "cuda")
PARTS = ("step", "sizes", "forward", "cuda")
SIZES = ((2, 16), (3, 24), (4, 20))
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth")
WAITING = 6  # seconds of the clock for one of the processor, on a machine that others use
FIRST_LINES = 300  # characters of what failed
ROUNDING = 1e-3
MOST = 1e-3  # an error that rounding may make at all
FLOOR = 2e-5  # relative: float32 sums in another order


@dataclass(slots=True)
class Found:
    """A model and part. ``error`` and ``eager``: relative, against float64 (see the module)."""

    model: str
    part: str
    error: float = -1.0
    eager: float = -1.0
    seconds: float = 0.0
    graphs: int = 0
    failed: str = ""


def compared(name: str, part: str) -> Found:
    """The comparison, in this process."""
    torch: Any = import_module("torch")
    import_module("idgraph.frontends.torch_compile")
    torch.manual_seed(0)
    model, arguments = model_of(name, "cpu")
    torch._dynamo.reset()
    model.train(part in STEPS)
    row, began = Found(name, part), time.process_time()

    def results(of: Any, given: dict[str, Any]) -> list[Any]:
        if part not in STEPS:
            with torch.no_grad():
                found = called_with(of, given)
            return [found[0]]
        model.zero_grad(set_to_none=True)
        loss = called_with(of, given)[1]
        loss.backward()
        return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]

    sizes = SIZES if part == "sizes" else SIZES[:1]
    given = [arguments(*s) for s in sizes]
    state = {k: v.clone() for k, v in model.state_dict().items()}
    wanted = [[x.clone() for x in results(model, g)] for g in given]
    model.double()
    try:
        exact = [[x.clone() for x in results(model, _doubled(torch, g))] for g in given]
    except RuntimeError:  # torch has no such operation in float64
        exact = wanted
    model.float()
    model.load_state_dict(state)
    backend = emitting() if part == "cuda" else "idgraph"
    compiled = torch.compile(model, backend=backend, dynamic=True if part == "sizes" else None)
    for g, plain, true in zip(given, wanted, exact, strict=True):
        found = results(compiled, g)
        if len(found) != len(true):
            row.failed = f"{len(found)} results, eager mode has {len(true)}"
            break
        most = max(float(z.double().abs().max()) for z in true if z.numel())
        for x, y, z in zip(found, plain, true, strict=True):
            # In float64 a model may do other things (masks by the least number of a type): eager mode's value counts.
            row.error = max(row.error, min(_error(x, z, most), _error(x, y, most)))
            row.eager = max(row.eager, _error(y, z, most))
    if not row.failed and not row.error <= min(4 * row.eager, MOST) + FLOOR:
        row.failed = f"values are off by {row.error:.2g} of the largest, eager mode's by {row.eager:.2g}"
    row.graphs = int(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    row.seconds = round(time.process_time() - began, 1)
    return row


def emitting() -> Any:
    """A backend that emits the kernels of each graph for a GPU, and runs the graph in eager mode."""
    backends: Any = import_module("torch._dynamo.backends.common")
    ours: Any = import_module("idgraph.frontends.torch_compile")

    def of(part: str) -> Any:
        def make(graph: Any, examples: Any) -> Any:
            imported = ours._imported(ours.BackendOptions(), graph, part)
            runner = Runner(imported, CompileOptions("cuda"))
            for number, segment in enumerate(imported.segments):
                if segment.scheduled is not None and segment.outputs:
                    runner.kernels(number, segment.scheduled, segment, {}, {})
            return graph

        return make

    return backends.aot_autograd(
        fw_compiler=of("forward"), bw_compiler=of("backward"), inference_compiler=of("inference")
    )


def _doubled(torch: Any, given: dict[str, Any]) -> dict[str, Any]:
    return {k: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in given.items()}


def _error(x: Any, y: Any, most: float) -> float:
    """Relative to the largest value; of a result that is zero but for rounding (the gradient of a key's bias), to a
    small part of the largest of all."""
    if not x.numel():
        return 0.0
    size = max(float(y.double().abs().max()), ROUNDING * most) or 1.0
    return float((x.double() - y.double()).abs().max()) / size


def _in_copy(name: str, part: str, limit: float) -> Found:
    """`compared` in a copy of this process, which is stopped after ``limit`` seconds."""
    reader, writer = os.pipe()
    began = time.perf_counter()
    child = os.fork()
    if not child:
        os.close(reader)
        row = Found(name, part)
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit)))
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                row = compared(name, part)
            left = [str(w.message) for w in said if "left to eager mode" in str(w.message)]
            row.failed = (left[0] if left else row.failed)[:FIRST_LINES]
        except BaseException as error:
            row.failed = f"{type(error).__name__}: {error}".strip()[:FIRST_LINES].replace("\n", " | ")
            traceback.print_exc()
        os.write(writer, json.dumps(asdict(row)).encode())
        os._exit(0)
    os.close(writer)

    def stop(number: int, frame: object) -> None:
        os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, WAITING * limit)
    with os.fdopen(reader, "rb") as stream:
        text = stream.read()
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.waitpid(child, 0)
    spent = round(time.perf_counter() - began, 1)
    return Found(**json.loads(text)) if text else Found(name, part, seconds=spent, failed=f"ended after {spent} s")


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help="names, with commas between them; none: all")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of the processor for each row")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rest", action="store_true", help="only rows that the JSON lacks, or that failed there")
    parser.add_argument("--kernels", type=Path, help="a folder of compiled kernels, so that another run is faster")
    parser.add_argument("--short", action="store_true", help="one layer, where a model has a number of equal ones")
    parser.add_argument("--list", action="store_true", help="print the models, and stop")
    args = parser.parse_args(argv)
    names = [n for n in args.models.split(",") if n] or list(families())
    if args.list:
        for name in names:
            family = families()[name]
            print(f"{name:22} {family.package:13} {family.model}")
        return 0
    rows: dict[tuple[str, str], Found] = {}
    if args.json is not None and args.json.exists():
        old = [Found(**r) for r in json.loads(args.json.read_text(encoding="utf-8"))["rows"]]
        rows = {(r.model, r.part): r for r in old}
    if args.short:
        for family in families().values():
            family.cpu.update({k: 1 for k in LAYERS if k in family.cpu})
    for needed in sorted({families()[n].package for n in names}):
        library(needed)
    import_module("idgraph.frontends.torch_compile")
    import_module("idgraph.runtime.kernel_cache").keep_in(args.kernels)
    jobs = [(n, p) for p in PARTS if p in args.parts.split(",") for n in names]
    jobs = [j for j in jobs if not args.rest or j not in rows or rows[j].failed]
    for number, job in enumerate(jobs, 1):
        row = rows[job] = _in_copy(*job, args.limit)
        print(f"[{number}/{len(jobs)}] {row.model} {row.part}: {row.failed or f'{row.error:.1e}'}, {row.seconds} s",
              file=sys.stderr, flush=True)  # fmt: skip
        if args.json is not None:
            torch: Any = import_module("torch")
            machine = {"processor": platform.processor() or platform.machine(), "torch": torch.__version__}
            machine |= {n: library(n).__version__ for n in ("transformers", "timm", "torchvision")}
            text = json.dumps({"machine": machine, "rows": [asdict(r) for r in rows.values()]}, indent=1)
            args.json.write_text(text + "\n", encoding="utf-8")
    failed = [r for r in rows.values() if r.failed]
    print(f"{len(rows)} rows of {len({r.model for r in rows.values()})} models, {len(failed)} failed")
    for r in failed:
        print(f"  {r.model} {r.part}: {r.failed}")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
