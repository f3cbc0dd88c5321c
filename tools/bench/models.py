"""Whole models behind torch.compile, beside eager mode and Inductor: ``python -m tools.bench.models --device cpu``.

Each model is made from a configuration of ``tools/programs/models.toml`` with random weights, never downloaded, and
runs in a process of its own with a limit of time. A row has milliseconds a call (the median, and the least), seconds of
the first call, the largest error against eager mode, and for CUDA the most memory that a step takes, of ``eager``,
``inductor`` and ``idgraph``. ``--device cpu``: two narrow layers in float32; ``cuda``: the sizes of the table in the
docs in bfloat16. ``--models`` selects by a part of the name.

``--values`` compares the values of all models with eager mode instead, a row a model and part: ``forward`` without
gradients, a training ``step`` (loss and gradients), ``sizes`` (forward with ``dynamic=True``: a batch and length, then
two others), ``cuda`` (the kernels of a step are emitted for a GPU, which need not be there, and nothing is compared).
Each graph that torch captures is judged by itself, on the arguments that it gets: a row has the largest error of the
results relative to the largest value, that of eager mode itself where arguments are moved by one rounding, seconds of
the processor, the number of graphs, and what failed: an error, a graph left to eager mode, a value off by more than the
judgement of tests allows. Its process is a copy of one that has loaded the libraries.

The JSON names the machine; it is written anew after each row, so that a run that is cut short leaves what it has. With
``--rest``, rows of ``--values`` that it has already are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from idgraph.frontends.callable_import import Runner
from idgraph.frontends.session import CompileOptions
from tools.bench import report
from tools.programs.model_families import TIMED, called_with, families, library, model_of

Modes = tuple[str, ...]
MODES: Modes = ("eager", "inductor", "idgraph")
PARTS: Modes = ("forward", "step")
# Batch and length, by device and whether the model reads pictures.
SIZES = {("cpu", False): (2, 16), ("cpu", True): (2, 0), ("cuda", False): (8, 1024), ("cuda", True): (32, 0)}
STEPS = ("step", "cuda")
VALUE_PARTS = ("step", "sizes", "forward", "cuda")
VALUE_SIZES = ((2, 16), (3, 24), (4, 20))
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth")
WAITING = 6  # seconds of the clock for one of the processor, on a machine that others use
FIRST_LINES = 300  # characters of what failed
ROUNDING = 1e-3
MOST = 1e-3  # an error that rounding may make at all
FLOOR = 2e-5  # relative: float32 sums in another order


def results(torch: Any, model: Any, of: Any, given: dict[str, Any], step: bool) -> list[Any]:
    """What a call of the model or of its compiled form gives: the logits, or the loss and the gradients of a step."""
    if not step:
        with torch.no_grad():
            return [called_with(of, given)[0]]
    model.zero_grad(set_to_none=True)
    loss = called_with(of, given)[1]
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def _error(x: Any, y: Any, most: float) -> float:
    """Relative to the largest value; of a result that is zero but for rounding (the gradient of a key's bias), to a
    small part of the largest of all."""
    if not x.numel():
        return 0.0
    if not y.is_floating_point():
        return float((x != y).double().mean())  # the part that differs
    if bool((x.isnan() != y.isnan()).any()):
        return math.inf  # no comparison of a NaN says that it is wrong
    x, y = x.nan_to_num(), y.nan_to_num()
    size = max(float(y.double().abs().max()), ROUNDING * most) or 1.0
    return float((x.double() - y.double()).abs().max()) / size


# times ----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Row:
    """A model in one mode: ``ms`` and ``least_ms`` a call, ``first_s`` of the first one, ``error`` relative to the
    largest value of eager mode, ``peak_mib``; or what ``failed``."""

    model: str
    part: str
    mode: str
    ms: float = math.nan
    least_ms: float = math.nan
    first_s: float = math.nan
    error: float = math.nan
    peak_mib: float = math.nan
    failed: str = ""


@dataclass(slots=True)
class Table:
    """All rows, with the machine that made them."""

    machine: dict[str, str]
    rows: list[Row] = field(default_factory=list[Row])

    def text(self) -> str:
        """A row a model and part: eager / inductor / idgraph."""
        head = f"{'model':12} {'part':8} {'ms: eager':>9} {'inductor':>9} {'idgraph':>9}"
        lines = [f"{head} {'first s':>17} {'error':>10}"]
        found = {(r.model, r.part, r.mode): r for r in self.rows}
        for model, part in dict.fromkeys((r.model, r.part) for r in self.rows):
            of = [found.get((model, part, m), Row(model, part, m, failed="not run")) for m in MODES]
            times = " ".join(f"{r.ms:9.3f}" for r in of)
            firsts = " / ".join(f"{r.first_s:6.1f}" for r in of[1:])
            why = "; ".join(f"{r.mode}: {r.failed}" for r in of if r.failed)
            lines.append(f"{model:12} {part:8} {times} {firsts:>17} {of[2].error:10.2g}  {why}".rstrip())
        for part in PARTS:
            pairs = [
                (found.get((m, part, "inductor")), found.get((m, part, "idgraph")))
                for m in dict.fromkeys(r.model for r in self.rows)
            ]
            ratios = [a.ms / b.ms for a, b in pairs if a is not None and b is not None and a.ms > 0 and b.ms > 0]
            if ratios:
                lines.append(f"{part}: Inductor over idgraph, geometric mean {statistics.geometric_mean(ratios):.2f}, "
                             f"least {min(ratios):.2f}")  # fmt: skip
        return "\n".join(lines)


def measured(name: str, part: str, mode: str, device: str, seconds: float) -> Row:
    """One model in one mode, in this process."""
    torch: Any = import_module("torch")
    torch.manual_seed(0)
    model, arguments = model_of(name, device)
    model.train(part == "step")
    given = arguments(*SIZES[device, families()[name].kind == "pictures"])
    if mode == "idgraph":
        import_module("idgraph.frontends.torch_compile")

    def run(call: Any) -> list[Any]:
        return results(torch, model, call, given, part == "step")

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    wanted = [x.clone() for x in run(model)]
    called = model if mode == "eager" else torch.compile(model, backend=mode)
    began = time.perf_counter()
    found = run(called)
    wait()
    row = Row(name, part, mode, first_s=round(time.perf_counter() - began, 3))
    row.error = max((_error(x, y, 0.0) for x, y in zip(found, wanted, strict=True)), default=0.0)
    for _ in range(3):
        run(called)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < 5 or (time.perf_counter() < until and len(times) < 300):
        wait()
        began = time.perf_counter()
        run(called)
        wait()
        times.append(time.perf_counter() - began)
    row.ms, row.least_ms = round(statistics.median(times) * 1e3, 4), round(min(times) * 1e3, 4)
    if device == "cuda":
        row.peak_mib = round(torch.cuda.max_memory_allocated() / 2**20, 1)
    return row


def _in_process(name: str, part: str, mode: str, device: str, seconds: float, limit: float) -> Row:
    command = [sys.executable, "-m", "tools.bench.models", "--device", device, "--seconds", str(seconds), "--one", name,
               part, mode]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return Row(name, part, mode, failed=f"not finished in {limit:.0f} s")
    lines = done.stdout.strip().splitlines()
    left = [x for x in done.stderr.splitlines() if "left to eager mode" in x]
    if done.returncode or not lines:
        why = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return Row(name, part, mode, failed=why[:200])
    row = Row(**json.loads(lines[-1]))
    row.failed = left[0].strip()[:200] if left else ""
    return row


def times(args: argparse.Namespace, names: Sequence[str]) -> int:
    """The table of times; 1 where a model failed behind idgraph."""
    jobs = [(n, p, m) for n in names for p in PARTS if p in args.parts.split(",") for m in args.modes.split(",")]
    torch: Any = import_module("torch")
    machine = _machine(("transformers",)) | {"threads": str(torch.get_num_threads())}
    machine |= {"gpu": torch.cuda.get_device_name()} if args.device == "cuda" else {}
    table, began = Table(machine), time.perf_counter()
    for number, job in enumerate(jobs, 1):
        if time.perf_counter() - began > args.total:
            print(f"{len(jobs) - number + 1} rows are left: the time is over", file=sys.stderr)
            break
        row = _in_process(*job, args.device, args.seconds, args.limit)
        table.rows.append(row)
        _say(number, len(jobs), " ".join(job), row.failed or f"{row.ms} ms, {time.perf_counter() - began:.0f} s in all")
        report.write(args.json, asdict(table))
    print(json.dumps(table.machine))
    print(table.text())
    return int(any(r.failed for r in table.rows if r.mode == "idgraph"))


# values ---------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Found:
    """A model and part. ``error`` and ``eager``: relative, of all ``results`` of graphs (see the module)."""

    model: str
    part: str
    error: float = -1.0
    eager: float = -1.0
    seconds: float = 0.0
    graphs: int = 0
    results: int = 0
    failed: str = ""


def compared(name: str, part: str) -> Found:
    """The comparison, in this process."""
    torch: Any = import_module("torch")
    ours: Any = import_module("idgraph.frontends.torch_compile")
    torch.manual_seed(0)
    model, arguments = model_of(name, "cpu")
    torch._dynamo.reset()
    model.train(part in STEPS)
    row, began, plain = Found(name, part), time.process_time(), ours._graph
    backend: Any = "idgraph"
    if part == "cuda":
        backend = emitting()
    else:
        ours._graph = partial(judged, torch, row, plain)
    compiled = torch.compile(model, backend=backend, dynamic=True if part == "sizes" else None)
    try:
        for batch, length in VALUE_SIZES if part == "sizes" else VALUE_SIZES[:1]:
            results(torch, model, compiled, arguments(batch, length), part in STEPS)
    finally:
        ours._graph = plain
    row.graphs = int(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    if part != "cuda" and not row.results:
        row.failed = row.failed or "no graph was compared"
    row.seconds = round(time.process_time() - began, 1)
    return row


def judged(
    torch: Any, row: Found, make: Any, options: Any, graphs: Any, part: str, graph: Any, examples: Sequence[Any]
) -> Any:
    """The backend's function of a graph, whose calls are judged beside the graph in eager mode on the same arguments:
    a rounding that turns a ReLU over is then an argument of what follows, and no error of that."""
    call = make(options, graphs, part, graph, examples)
    ends = [str(x) for x in torch.utils._pytree.tree_leaves(graph.graph.output_node().args)]

    def compare(args: list[Any]) -> Any:
        given, same = list(args), [_copied(torch, x) for x in args]
        moved = [_copied(torch, x, 1 + 2.0**-23) for x in args]
        state = torch.get_rng_state()
        found = call(args)
        after = torch.get_rng_state()
        with torch.no_grad():
            torch.set_rng_state(state)
            wanted = [*graph(*same), *same]
            torch.set_rng_state(state)
            other = [*graph(*moved), *moved]
        torch.set_rng_state(after)
        names = [*ends, *(f"argument {n}" for n in range(len(same)))]
        rows = [x for x in zip(names, [*found, *given], wanted, other, strict=True) if isinstance(x[2], torch.Tensor)]
        # A mask has the least number of a type: the largest value of all says nothing of the others.
        sizes = [float(w.double().abs().max()) for _, _, w, _ in rows if w.numel() and w.is_floating_point()]
        most = statistics.median(sizes) if sizes else 0.0
        for title, x, w, o in rows:
            error, eager = _error(x, w, most), _error(o, w, most)
            row.results += 1
            row.error, row.eager = max(row.error, error), max(row.eager, eager)
            near = 1 / w.numel() if w.numel() and not w.is_floating_point() else 0.0  # one element beside a limit
            if not (x.shape == w.shape and error <= max(min(4 * eager, MOST) + FLOOR, near)) and not row.failed:
                row.failed = f"{part}: {title} is off by {error:.2g}, eager mode of moved arguments by {eager:.2g}"
        return found

    boxed: Any = compare
    boxed._boxed_call = True
    return boxed


def _copied(torch: Any, value: Any, by: float = 1.0) -> Any:
    """A copy that lies as the tensor does, with each float ``by`` as much: one rounding of float32."""
    if not isinstance(value, torch.Tensor):
        return value
    plain = value.detach()
    if 0 in value.stride():
        made = plain.clone()
    else:
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(plain)
    return made.mul_(by) if by != 1.0 and made.dtype == torch.float32 else made


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


def values(args: argparse.Namespace, names: Sequence[str]) -> int:
    """The table of values; 1 where a row failed."""
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
    jobs = [(n, p) for p in VALUE_PARTS if p in args.parts.split(",") for n in names]
    jobs = [j for j in jobs if not args.rest or j not in rows or rows[j].failed]
    for number, job in enumerate(jobs, 1):
        row = rows[job] = _in_copy(*job, args.limit)
        _say(number, len(jobs), " ".join(job), f"{row.failed or f'{row.error:.1e}'}, {row.seconds} s")
        machine = _machine(("transformers", "timm", "torchvision")) if args.json is not None else {}
        report.write(args.json, {"machine": machine, "rows": [asdict(r) for r in rows.values()]})
    failed = [r for r in rows.values() if r.failed]
    print(f"{len(rows)} rows of {len({r.model for r in rows.values()})} models, {len(failed)} failed")
    for r in failed:
        print(f"  {r.model} {r.part}: {r.failed}")
    return int(bool(failed))


def _say(number: int, count: int, job: str, what: str) -> None:
    print(f"[{number}/{count}] {job}: {what}", file=sys.stderr, flush=True)


def _machine(libraries: Sequence[str]) -> dict[str, str]:
    torch: Any = import_module("torch")
    found = {"processor": platform.processor() or platform.machine(), "python": platform.python_version()}
    return found | {"torch": torch.__version__} | {n: library(n).__version__ for n in libraries}


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = report.arguments(__doc__)
    parser.add_argument("--values", action="store_true", help="compare the values of all models, on the CPU")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--models", default="", help="parts of names, with commas between them; none: the docs' table")
    parser.add_argument("--list", action="store_true", help="print the models, and stop")
    parser.add_argument("--parts", default=",".join((*PARTS, "sizes", "cuda")))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--seconds", type=float, default=2.0, help="of steady calls for each row")
    parser.add_argument(
        "--limit", type=float, default=300.0, help="seconds for each process (values: of the processor)"
    )
    parser.add_argument("--total", type=float, default=math.inf, help="seconds after which no process is started")
    parser.add_argument("--rest", action="store_true", help="only rows that the JSON lacks, or that failed there")
    parser.add_argument("--kernels", type=Path, help="a folder of compiled kernels, so that another run is faster")
    parser.add_argument("--short", action="store_true", help="one layer, where a model has a number of equal ones")
    parser.add_argument("--one", nargs=3, metavar=("MODEL", "PART", "MODE"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.one is not None:
        name, part, mode = cast("tuple[str, str, str]", args.one)
        print(json.dumps(asdict(measured(name, part, mode, args.device, args.seconds))))
        return 0
    words = [w for w in args.models.split(",") if w]
    every = list(families()) if args.values or args.list else list(TIMED)
    names = [n for n in families() if any(w in n for w in words)] if words else every
    if args.list:
        print("\n".join(f"{n:22} {families()[n].package:13} {families()[n].model}" for n in names))
        return 0
    return values(args, names) if args.values else times(args, names)


if __name__ == "__main__":
    raise SystemExit(main())
