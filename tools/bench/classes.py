"""Functions of `tools.programs.class_cases` the user's way, beside torch eager and both modes of torch.compile.

    python -m tools.bench.gpu --table classes [--rows cumsum_last] [--workers 14] [--json FILE]
    python -m tools.bench.gpu --table classes --plan      # needs no device

A function is captured by `from_torch`, compiled by `ig.compile` and called with CUDA tensors; torch.compile gets the
same function (default, and max-autotune without CUDA graphs). Results are compared with the function in float64, every
element. Processes capture, compile and compare side by side; what torch tunes by timing, and what is timed here, has
only the device. Kernels are timed as a CUDA graph of one call, replayed, so that no host's work counts; ``call_us``
are whole calls. ``ratio`` is the time of the better mode of torch.compile over ours: more than 1 is faster than it.

``--plan`` says for each function what would run: kernels, threads, lines of source, wide accesses, and what
`ig.cost` estimates, beside the least bytes that the function has to move.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, cast

from rich.console import Console

import idgraph as ig
from idgraph.errors import IdGraphError
from idgraph.runtime import Program
from idgraph.runtime.fusion_call import scheduled
from idgraph.schedule import KernelConfig
from idgraph.validate import tolerance
from tools.bench import report

MODES = ("default", "max-autotune-no-cudagraphs")
WINDOW = 30_000.0  # microseconds of launches that are timed, in five windows
ROUNDED = 1e-3  # share of rounded integers that may be one beside the reference


@dataclass(slots=True)
class ClassRow:
    """One function; times in microseconds. ``ratio``: torch.compile's better mode over ours."""

    key: str
    kind: str
    ok: bool = False
    error: float = float("nan")
    opaque: list[str] = field(default_factory=list[str])
    kernels: int = 0
    their_kernels: int = 0
    bytes: int = 0
    us: float = float("nan")
    call_us: float = float("nan")
    their_call_us: float = float("nan")
    copy_us: float = float("nan")
    eager_us: float = float("nan")
    compile_us: float = float("nan")
    autotune_us: float = float("nan")
    ratio: float = float("nan")
    of_copy: float = float("nan")
    note: str = ""


def cases_of(options: argparse.Namespace) -> Sequence[Any]:
    """The functions that ``--cases MODULE[:NAME]`` names."""
    module, _, name = options.cases.partition(":")
    return getattr(import_module(module), name or "CASES")


def tensors_of(value: Any) -> tuple[Any, ...]:
    """Results as a tuple."""
    return cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)


def moved_bytes(args: Sequence[Any], results: Sequence[Any]) -> int:
    """Each argument and each result once."""
    return sum(t.numel() * t.element_size() for t in (*args, *results))


def compared(torch: Any, case: Any, args: Sequence[Any], found: Sequence[Any]) -> tuple[bool, float]:
    """Every element against float64; the largest error, relative to what is allowed: our tolerance, or torch's error.

    Where float32 itself is too coarse (large arguments of an exp), the bar is the error of torch's eager result.
    """
    wide = [x.double() if x.is_floating_point() else x for x in args]
    worst = 0.0
    for x, want, eager in zip(found, tensors_of(case.fn(*wide)), tensors_of(case.fn(*args)), strict=True):
        if x.shape != want.shape:
            return False, float("inf")
        if case.exact:
            if not bool(torch.equal(x, want.to(x.dtype))):
                return False, float("inf")
        elif not x.is_floating_point():
            worst = max(worst, float((x != want).double().mean()) / ROUNDED)
        else:
            want = want.double()
            kind: Any = str(x.dtype).removeprefix("torch.")
            allowed = tolerance(kind) * (want.abs() + want.abs().max())
            ratios = [((y.double() - want).abs() / allowed.clamp(min=1e-300)).max() for y in (x, eager)]
            mine, theirs = (float(torch.nan_to_num(r, nan=float("inf"))) for r in ratios)
            worst = max(worst, mine / max(1.0, theirs))
    return worst <= 1.0, worst


# on a device ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Ready:
    """One function, compiled in all ways, with its arguments."""

    row: ClassRow
    calls: dict[str, Callable[[], object]]


def prepare(torch: Any, case: Any, options: argparse.Namespace) -> Ready:
    """Capture, compile, compare."""
    row = ClassRow(case.key, case.kind)
    torch.manual_seed(0)
    args = case.arguments("cuda")
    calls: dict[str, Callable[[], object]] = {"eager": lambda: case.fn(*args)}
    row.bytes = moved_bytes(args, tensors_of(case.fn(*args)))
    try:
        imported = ig.from_torch(case.fn, args)
        ours = ig.compile(imported, "cuda")
        found = tensors_of(ours(*args))
        torch.cuda.synchronize()
        row.opaque = list(imported.coverage.opaque)
        row.kernels = sum(len(k.kernels) for k in imported.kernels.values() if isinstance(k, Program))
        row.ok, row.error = compared(torch, case, args, found)
        calls["ours"] = lambda: ours(*args)
    except Exception as error:  # a row that fails is a result
        row.note += f"{type(error).__name__}: {str(error)[:300]} "
    torch.cuda.empty_cache()
    metrics: Any = import_module("torch._inductor.metrics")
    for mode in modes_of(options):
        try:
            fast = torch.compile(case.fn, mode=None if mode == "default" else mode)
            metrics.reset()
            fast(*args)
            torch.cuda.synchronize()
            if mode == "default":
                row.their_kernels = int(metrics.generated_kernel_count)
            calls[mode] = lambda fast=fast: fast(*args)
        except Exception as error:  # whatever a compiler raises is its result
            row.note += f"{mode}: {type(error).__name__} "
    return Ready(row, calls)


def modes_of(options: argparse.Namespace) -> tuple[str, ...]:
    """Modes of torch.compile that are asked for."""
    return () if options.no_compile else MODES[:1] if options.default_only else MODES


def replayed(torch: Any, call: Callable[[], object]) -> Callable[[], object]:
    """A call as a CUDA graph; the call itself where it cannot be captured."""
    graph = torch.cuda.CUDAGraph()
    try:
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            call()
    except Exception:  # a call that waits for the device
        torch.cuda.synchronize()
        return call
    return graph.replay


def alone(lock: AbstractContextManager[Any]) -> None:
    """Give nothing but the device to what torch tunes by timing."""
    kind: Any = import_module("torch._inductor.runtime.benchmarking").benchmarker.__class__
    before: Any = kind.benchmark_gpu

    def locked(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return before(*args, **kwargs)

    kind.benchmark_gpu = locked


def worker(
    keys: Sequence[str], options: argparse.Namespace, pipe: Connection, lock: AbstractContextManager[Any]
) -> None:
    """A process: prepares its functions, then times each when it is asked to."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    torch: Any = import_module("torch")
    timed: Any = import_module("tools.bench.gpu").timed
    device_copy: Any = import_module("tools.bench.gpu").device_copy
    alone(lock)
    take_options(options)
    cases = {c.key: c for c in cases_of(options)}
    ready: dict[str, Ready] = {}
    for key in keys:
        ready[key] = prepare(torch, cases[key], options)
        pipe.send(key)
    while (key := pipe.recv()) is not None:
        one = ready.pop(key)
        row = one.row
        calls = {name: timed(call, WINDOW / 2) for name, call in one.calls.items()}
        us = {name: timed(replayed(torch, call), WINDOW) for name, call in one.calls.items()}
        row.call_us, row.their_call_us = (
            calls.get("ours", math.nan),
            min([calls[m] for m in MODES if m in calls] or [math.nan]),
        )
        row.us, row.eager_us = us.get("ours", math.nan), us.get("eager", math.nan)
        row.compile_us, row.autotune_us = (us.get(m, math.nan) for m in MODES)
        row.copy_us = timed(device_copy(torch, row.bytes), WINDOW)
        row.of_copy = row.copy_us / row.us
        theirs = [us[m] for m in MODES if m in us]
        row.ratio = min(theirs) / row.us if theirs else math.nan
        del one
        pipe.send(row)


def take_options(options: argparse.Namespace) -> None:
    """Kernels of this process without the passes that are left out, and with the config that is asked for."""
    if options.without or options.whole_steps:
        compiler: Any = import_module("idgraph.runtime.fusion_call")
        config: KernelConfig = import_module("tools.bench.gpu").leave_out(options.without)
        compiler.auto = partial(ig.schedule.auto, config=config.but(whole_steps=options.whole_steps or None))


def measured(keys: Sequence[str], options: argparse.Namespace, out: Console) -> list[ClassRow]:
    """All functions: prepared side by side, timed one after the other."""
    context = get_context("spawn")
    lock = context.RLock()
    count = min(options.workers, len(keys))
    shares = [list(keys[n::count]) for n in range(count)]
    pipes: list[Connection] = []
    for share in shares:
        mine, theirs = context.Pipe()
        context.Process(target=worker, args=(share, options, theirs, lock)).start()
        theirs.close()
        pipes.append(mine)
    began = time.perf_counter()
    alive = [pipe for pipe, share in zip(pipes, shares, strict=True) if all(_heard(pipe) for _ in share)]
    out.print(f"{len(keys)} functions prepared in {time.perf_counter() - began:.0f} s")
    rows: list[ClassRow] = []
    for pipe, share in zip(pipes, shares, strict=True):
        if pipe not in alive:
            out.print(f"a process died, with {', '.join(share)}")
            continue
        for key in share:
            pipe.send(key)
            if (r := _heard(pipe)) is None:
                out.print(f"a process died at {key}")
                break
            rows.append(r)
            text = f"{r.key}: ratio {r.ratio:.3f}, kernels {r.kernels}/{r.their_kernels}, ok {r.ok} {r.error:.2g}"
            shown = (r.us, r.copy_us, r.eager_us, r.compile_us, r.autotune_us, r.call_us, r.their_call_us)
            times = ", ".join(f"{x:.1f}" for x in shown)
            out.print(f"{text}; ours, copy, eager, compile, autotune, calls us: {times} {r.note}", highlight=False)
        else:
            pipe.send(None)
    return sorted(rows, key=lambda r: list(keys).index(r.key))


def _heard(pipe: Connection) -> Any:
    """The answer of a process; None where it has died."""
    try:
        return pipe.recv()
    except EOFError:
        return None


def mean_ratio(rows: Sequence[ClassRow]) -> float:
    """The geometric mean of the ratios that there are."""
    found = [r.ratio for r in rows if math.isfinite(r.ratio)]
    return statistics.geometric_mean(found) if found else math.nan


def show(rows: Sequence[ClassRow]) -> None:
    """The rows, and the geometric mean of the ratios."""
    columns = ("function", "class", "values", "kernels", "theirs", "us", "eager", "compile", "autotune", "call")
    lines: list[list[object]] = []
    for r in rows:
        times = (f"{x:.1f}" for x in (r.us, r.eager_us, r.compile_us, r.autotune_us, r.call_us, r.their_call_us))
        share = (f"{r.of_copy:.2f}", f"{r.ratio:.2f}")
        lines.append([r.key, r.kind, "ok" if r.ok else "WRONG", r.kernels, r.their_kernels, *times, *share])
    report.show("functions of models", (*columns, "their call", "of copy", "ratio"), lines, 200, left=2)
    print(f"geometric mean of the ratios {mean_ratio(rows):.3f}")


# without one ----------------------------------------------------------------------------------------------------------


def planned(case: Any, options: argparse.Namespace) -> dict[str, Any]:
    """The kernels that would run, and their estimated cost."""
    torch: Any = import_module("torch")
    began = time.process_time()
    args = case.arguments("cpu", small=True)
    found: dict[str, Any] = {"key": case.key, "kind": case.kind}
    try:
        imported = ig.from_torch(case.fn, args)
        programs = [scheduled(s.fusion, "cuda") for s in imported.segments if s.fusion is not None]
    except IdGraphError as error:
        return {**found, "note": str(error)[:200]}
    found["opaque"] = list(imported.coverage.opaque)
    found["kernels"] = sum(len(p.kernels) for p in programs)
    sources = [p.kernel_source(k) for p in programs for k in p.kernels]
    found["lines"] = [sum(bool(s.strip()) and not s.strip().startswith("#") for s in t.splitlines()) for t in sources]
    with torch.device("meta"):
        results = tensors_of(case.fn(*(x.to("meta") for x in args)))
    found["least"] = moved_bytes(args, results)
    costs = [ig.cost(p) for p in programs] if options.cost else []
    kernels = [k for c in costs for k in c.kernels]
    found["launch"] = [f"{k.blocks}x{k.threads}" for k in kernels]
    found["moved"] = sum(k.bytes_moved for k in kernels)
    found["sector_bytes"] = 32 * sum(k.sectors for k in kernels)
    found["estimate_us"] = sum(k.time_us for k in kernels)
    found["widths"] = sorted({(a.width, a.dtype) for c in costs for a in c.accesses if a.place != "private"})
    found["seconds"] = time.process_time() - began
    return found


def show_plans(rows: Sequence[Mapping[str, Any]]) -> None:
    """The plans; estimates below 0.9 of what the least bytes take are the rows to look at."""
    columns = ("function", "class", "kernels", "launch", "lines", "widths", "moved / least", "sectors", "of least")
    lines: list[list[object]] = []
    for r in rows:
        least, us = r.get("least", 0), r.get("estimate_us", 0.0)
        share = least / 4255e3 / us if us else math.nan
        more = [f"{r.get(n, 0) / least:.2f}" if least else "-" for n in ("moved", "sector_bytes")]
        opaque = f" + {', '.join(r['opaque'])}" if r.get("opaque") else ""
        counts = [" ".join(map(str, r.get(k, ()))) for k in ("launch", "lines")]
        widths = " ".join(f"{w}x{d}" for w, d in r.get("widths", ()))
        kernels = f"{r.get('kernels', r.get('note', '?'))}{opaque}"
        lines.append([r["key"], r["kind"], kernels, *counts, widths, *more, f"{share:.2f}"])
    report.show("what would run", columns, lines, 200, left=6)


def run(options: argparse.Namespace, wanted: Sequence[str]) -> None:
    """The table, by the options of `tools.bench.gpu`."""
    out = Console(width=200)
    cases = [c for c in cases_of(options) if not wanted or c.key in wanted]
    if options.plan:
        take_options(options)
        plans = [planned(c, options) for c in cases]
        show_plans(plans)
        made: dict[str, Any] = {"rows": plans}
    else:
        began = time.perf_counter()
        rows = measured([c.key for c in cases], options, out)
        show(rows)
        out.print(f"{time.perf_counter() - began:.0f} s in all")
        torch: Any = import_module("torch")
        facts = {"device": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
        made = {**facts, "geometric_mean": mean_ratio(rows), "rows": [asdict(r) for r in rows]}
    report.write(options.json, made)
