"""Kernels on a GPU beside a matched copy, torch eager and torch.compile; every address and value checked first.

    python -m tools.bench.gpu [--table layout] [--rows rope] [--quick] [--small] [--no-compile] [--tune] [--json FILE]
        [--without realign]

Each row (`tools.programs.gpu_rows`; with ``--table layout`` those of `tools.programs.layout_rows`; ``--table
classes`` is described in `tools.bench.classes`): a fusion at the size of a real model, scheduled by
``ig.schedule.auto``. Addresses are checked exhaustively on the device. Values: outputs filled with NaN first, then
every element compared on the device with the PyTorch function in float64 (cases that only move elements: bit for
bit). Then the kernels are launched many times between two events, beside a device copy that moves as many bytes (each
input once, each output once), and PyTorch eager, compiled (default) and compiled (max-autotune, no CUDA graphs), all
in this run.
``--quick`` times
without the checks and without torch.compile; ``--tune`` lets `ig.tune` choose each row's config; ``--small`` takes
tiny shapes, which the simulator can run (untimed). ``--without`` leaves passes out, so that two runs time both ways;
without ``realign`` the schedule does not count on it either. Of classes, ``--whole-steps`` has a thread take all
channels of a picture (`KernelConfig`).
"""

from __future__ import annotations

import argparse
import platform
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.console import Console

import idgraph as ig
from idgraph.index import strides
from idgraph.ir import is_float, item_size
from idgraph.passes import pipeline as passes
from idgraph.runtime import Program, compile_ptx, emit
from idgraph.runtime.cuda.numba_cuda import load_cuda, simulated
from idgraph.runtime.tuning.trial import prepare_launch as held
from idgraph.validate import check_addresses, tolerance
from idgraph.validate.value_check import index_limits
from tools.bench import classes, report
from tools.programs import gpu_rows, layout_rows
from tools.programs.gpu_rows import Case

TABLES = {"models": gpu_rows.CASES, "layout": layout_rows.CASES}


@dataclass(slots=True)
class Row:
    """One measured case; times in microseconds, ``bytes`` counted once for each input and output.

    ``us`` is one launch of many in a stream, where the blocks of one are placed while the last ones of the launch
    before still run; ``alone_us`` the same with each launch after the end of the one before, as PyTorch's are.
    """

    name: str
    key: str
    bar: float
    checks: int = 0
    checks_per_second: float = float("nan")
    check_seconds: float = float("nan")
    ok: bool = False
    error: float = float("nan")
    bytes: int = 0
    us: float = float("nan")
    alone_us: float = float("nan")
    copy_us: float = float("nan")
    eager_us: float = float("nan")
    compile_us: float = float("nan")
    autotune_us: float = float("nan")
    of_copy: float = float("nan")
    kernels: int = 0
    ptx: list[dict[str, int]] = field(default_factory=list[dict[str, int]])
    note: str = ""
    config: str = "rule"


def moved_bytes(f: ig.Fusion, gathered: tuple[str, ...], twice: tuple[str, ...] = ()) -> int:
    """Bytes of each input and output once (of those in ``twice`` twice); of a gathered tensor what is gathered."""
    total = 0
    for t in (*f.inputs, *f.outputs, *(f[n] for n in twice)):
        shape = f.outputs[0].shape if t.name in gathered else t.shape
        total += int(np.prod([int(n) for n in shape], dtype=np.int64)) * item_size(t.dtype)
    return total


def timed(work: Callable[[], object], least: float = 60_000.0) -> float:
    """Microseconds of one call: the median of five windows of about ``least`` / 5, each between two events."""
    cuda = load_cuda()
    for _ in range(3):
        work()
    cuda.synchronize()

    def window(repeat: int) -> float:
        begin, end = cuda.event(), cuda.event()
        begin.record()
        for _ in range(repeat):
            work()
        end.record()
        end.synchronize()
        return float(cuda.event_elapsed_time(begin, end)) * 1000 / repeat

    repeat = max(5, min(200, int(least / 5 / max(window(3), 1.0))))
    return sorted(window(repeat) for _ in range(5))[2]


def placed(make: Callable[[], Callable[[], object]]) -> float:
    """The median time of three calls from ``make``, each in memory of its own: times depend on where arrays lie."""
    works = [make() for _ in range(3)]  # all at once, or the next one would get the same memory
    return sorted(timed(work) for work in works)[1]


def device_copy(torch: Any, count: int) -> Callable[[], object]:
    """A device copy that reads and writes ``count`` bytes together, by torch."""
    source, target = (torch.empty(count // 2, dtype=torch.uint8, device="cuda") for _ in range(2))
    return lambda: target.copy_(source)


def device_inputs(torch: Any, f: ig.Fusion) -> dict[str, Any]:
    """Random tensors on the device: away from zero, both signs; indices inside the axes they point into."""
    torch.manual_seed(0)
    limits = index_limits(f, {})
    made: dict[str, Any] = {}
    for t in f.inputs:
        shape, kind = tuple(int(n) for n in t.shape), getattr(torch, t.dtype)
        if is_float(t.dtype):
            x = torch.rand(shape, device="cuda") + 0.25
            made[t.name] = (x * (torch.randint(0, 2, shape, device="cuda", dtype=torch.int8) * 2 - 1)).to(kind)
        else:
            made[t.name] = torch.randint(0, limits.get(t.name, 10), shape, device="cuda").to(kind)
        wanted = element_strides(t)
        if wanted != made[t.name].stride():
            made[t.name] = torch.empty_strided(shape, wanted, dtype=kind, device="cuda").copy_(made[t.name])
    return made


def element_strides(t: ig.Tensor) -> tuple[int, ...]:
    """Elements between neighbours of each axis, in the memory that is declared."""
    by_axis = dict(zip(t.allocation, strides(t), strict=True))
    return tuple(int(by_axis[d]) for d in t.axes)


def prepared(torch: Any, program: Program, inputs: Mapping[str, Any], overlap: bool = True) -> tuple[Any, list[Any]]:
    """The program as `idgraph.compile` would call it, with buffers that stay, and its outputs, filled with NaN."""
    ready = held(program, {t.name: inputs[t.name] for t in program.fusion.inputs}, poison=True, overlap=overlap)
    found = ready.results()
    return ready, [found[t.name] for t in program.fusion.outputs]


def compare(torch: Any, case: Case, f: ig.Fusion, inputs: Mapping[str, Any], found: list[Any]) -> tuple[bool, float]:
    """Every element against float64 (or bit for bit); the largest error, relative to what is allowed."""
    wide = {n: x.double() if x.is_floating_point() and not case.exact else x for n, x in inputs.items()}
    worst = 0.0
    for t, x, want in zip(f.outputs, found, case.torch(torch, wide), strict=True):
        if case.exact or not is_float(t.dtype):
            if not bool(torch.equal(x, want)):
                return False, float("inf")
            continue
        allowed = tolerance(t.dtype) * (want.abs() + want.abs().max())
        ratio = ((x.double() - want).abs() / allowed).max()
        worst = max(worst, float(torch.nan_to_num(ratio, nan=float("inf"))))
    return worst <= 1.0, worst


def ptx_facts(program: Program) -> list[dict[str, int]]:
    """The facts of each kernel's PTX that matter for speed."""
    made: list[dict[str, int]] = []
    for ptx in compile_ptx(program):
        body = ptx[ptx.index("{") :]
        ops = [m.group(1) for m in re.finditer(r"^\t(?:@!?%p\d+ )?([a-z][a-z0-9_.]*)", body, re.MULTILINE)]
        ops += re.findall(r"@p (ld\.global\S*)", body)  # those that may be left out
        wide = [o for o in ops if re.match(r"(ld|st)\.global.*\.v4\.[a-z]32|(ld|st)\.global.*\.v2\.[a-z]64", o)]
        made.append(
            {
                "instructions": len(ops),
                "global": sum(o.startswith(("ld.global", "st.global")) for o in ops),
                "global16": len(wide),
                "div64": sum(bool(re.match(r"(div|rem)\.[su]64", o)) for o in ops),
                "div32": sum(bool(re.match(r"(div|rem)\.[su]32", o)) for o in ops),
                "local": sum(".local" in o for o in ops),
            }
        )
    return made


def compiled_times(torch: Any, case: Case, inputs: Mapping[str, Any], row: Row) -> None:
    """torch.compile, default and max-autotune, as the fusion's PyTorch function."""

    def work(x: Mapping[str, Any]) -> tuple[Any, ...]:
        return case.torch(torch, x)

    for mode in ("default", "max-autotune-no-cudagraphs"):
        torch.compiler.reset()
        try:
            fast = torch.compile(work, mode=None if mode == "default" else mode)
            us = timed(lambda fast=fast: fast(inputs))
        except Exception as error:  # whatever a compiler raises is its result
            row.note += f"{mode}: {type(error).__name__} "
            continue
        if mode == "default":
            row.compile_us = us
        else:
            row.autotune_us = us


def check(f: ig.Fusion, row: Row, inputs: Mapping[str, Any]) -> str:
    """Every address, on the device."""
    zeros = {t.name: np.broadcast_to(np.zeros((), np.float32), tuple(int(n) for n in t.shape)) for t in f.inputs}
    given = {t.name: zeros[t.name] if is_float(t.dtype) else inputs[t.name].cpu().numpy() for t in f.inputs}
    report = check_addresses(f, inputs=given, engine="cuda")
    row.checks, row.checks_per_second, row.ok = report.points, report.points / max(report.looking, 1e-9), report.ok
    row.check_seconds = report.seconds
    return "" if report.ok and report.exhaustive else str(report.mismatch or f"sampled {report.sampled}")


def leave_out(names: str) -> ig.schedule.KernelConfig:
    """Take passes out of this process's table; the config that a schedule needs without them."""
    left = frozenset(names.split(","))
    rest = tuple(p for p in passes.TABLE["cuda"] if p.name not in left)
    cast("dict[str, tuple[passes.Pass, ...]]", passes.TABLE)["cuda"] = rest
    return ig.schedule.KernelConfig(realigned=False if "realign" in left else None)


def built(case: Case, options: argparse.Namespace) -> tuple[ig.Fusion, Program, Row]:
    """The fusion, scheduled; its program; and its row, still empty."""
    f = case.build(options.small)
    size = moved_bytes(f, case.gathered, case.twice)
    config = "rule"
    if options.tune and case.schedule is None:
        inputs = None if simulated() else device_inputs(import_module("torch"), f)
        tuned = ig.tune(f, "cuda", inputs, cache=options.cache)
        program, config = tuned.program, str(tuned.config)
    else:
        if case.schedule is not None:
            case.schedule(f)
        else:
            ig.schedule.auto(f, config=leave_out(options.without))
        program = emit(f, target="cuda", cache=options.cache)
    return f, program, Row(f.name, case.key, case.bar, bytes=size, kernels=len(program.kernels), config=config)


def checked(case: Case, options: argparse.Namespace) -> Row:
    """The steps that need the host more than the device: every address, the PTX, and compilation."""
    torch: Any = import_module("torch")
    f, program, row = built(case, options)
    row.ptx = ptx_facts(program)
    inputs = device_inputs(torch, f)
    if not options.quick:
        row.note = check(f, row, inputs)
    ready, _ = prepared(torch, program, inputs)  # into the cache
    ready.launch()
    if not (options.quick or options.no_compile):
        compiled_times(torch, case, inputs, Row("", "", 0.0))  # into torch's cache
    return row


def checked_by_key(key: str, options: argparse.Namespace) -> Row:
    """`checked` in a process of its own."""
    return checked(next(c for c in TABLES[options.table] if c.key == key), options)


def measure(case: Case, options: argparse.Namespace, before: Row | None) -> Row:
    """Compare every value, then time; ``before`` holds what was checked."""
    torch: Any = import_module("torch")
    if simulated():
        f, _, row = built(case, options)
        report = ig.validate(f, target="cuda")
        row.ok, row.checks = report.ok, report.points
        return row
    row = before if before is not None else checked(case, options)
    f, program, _ = built(case, options)
    inputs = device_inputs(torch, f)
    ready, found = prepared(torch, program, inputs)
    ready.launch()
    load_cuda().synchronize()
    same, row.error = compare(torch, case, f, inputs, found)
    row.ok = same and (options.quick or row.ok)
    row.us = placed(lambda: prepared(torch, program, inputs)[0].launch)
    row.copy_us = placed(lambda: device_copy(torch, row.bytes))
    row.of_copy = row.copy_us / row.us
    row.alone_us = placed(lambda: prepared(torch, program, inputs, overlap=False)[0].launch)
    row.eager_us = timed(lambda: case.torch(torch, inputs))
    if not (options.quick or options.no_compile):
        compiled_times(torch, case, inputs, row)
    return row


def checks_ahead(keys: list[str], options: argparse.Namespace, out: Console) -> dict[str, Row]:
    """`checked` for several cases side by side, before anything is timed; the largest first."""
    if simulated() or options.workers < 2 or len(keys) < 2:
        return {}
    order = sorted(keys, key=lambda k: ("grad" not in k, not k.startswith(("ce_", "transpose")), k))
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        asked = {k: pool.submit(checked_by_key, k, options) for k in order}
        done = {k: future.result() for k, future in asked.items()}
    out.print(
        f"addresses of {len(done)} rows: {'ok' if all(r.ok or options.quick for r in done.values()) else 'WRONG'}"
    )
    return done


def show(rows: list[Row]) -> None:
    """The figures that a reader wants first: the share of a matched copy, ours and theirs."""
    ours = ("row", "checked", "G checks/s", "us", "idgraph", "no overlap", "bar")
    lines: list[list[object]] = []
    for r in rows:
        peers = [f"{r.copy_us / us:.3f}" for us in (r.eager_us, r.compile_us, r.autotune_us)]
        checks = [f"ok {r.checks:.3g}" if r.ok else "WRONG", f"{r.checks_per_second / 1e9:.2f}"]
        shares = [f"{r.us:.1f}", f"{r.of_copy:.3f}", f"{r.copy_us / r.alone_us:.3f}", f"{r.bar:.2f}"]
        lines.append([r.name, *checks, *shares, *peers, r.kernels])
    report.show("share of a device copy of the same bytes", (*ours, "eager", "compile", "autotune", "kernels"), lines)


def main() -> None:
    """All cases, one table, JSON with the machine named."""
    parser = report.arguments(__doc__)
    parser.add_argument("--table", choices=(*TABLES, "classes"), default="models", help="which rows there are")
    parser.add_argument("--rows", default="", help="keys of rows, comma separated; all without it")
    parser.add_argument("--quick", action="store_true", help="no address check, no torch.compile")
    parser.add_argument("--no-compile", action="store_true", help="no torch.compile")
    parser.add_argument("--small", action="store_true", help="tiny shapes, for the simulator")
    parser.add_argument("--workers", type=int, default=4, help="processes that check side by side before the timing")
    parser.add_argument(
        "--tune", action="store_true", help="configs of kernels chosen by measurement, one row at a time"
    )
    parser.add_argument("--without", default="", help="passes left out, comma-separated")
    parser.add_argument("--whole-steps", action="store_true", help="of classes: a thread takes all channels")
    parser.add_argument("--cases", default="tools.programs.class_cases", help="of classes: MODULE[:NAME]")
    parser.add_argument("--plan", action="store_true", help="of classes: what would run; needs no device")
    parser.add_argument("--default-only", action="store_true", help="of classes: torch.compile without max-autotune")
    parser.add_argument("--cost", action="store_true", help="with --plan: estimates, too")
    parser.add_argument("--cache", type=Path, help="folder of compiled kernels; they are started through the driver")
    options = parser.parse_args()
    if left := {*filter(None, options.without.split(","))} - passes.PASSES.keys():
        parser.error(f"no pass is called {', '.join(sorted(left))}")
    if options.without and options.tune:
        parser.error("--without is of the rows of one rule, not of --tune")
    if options.table == "classes":
        classes.run(options, [k for k in options.rows.split(",") if k])
        return
    options.workers = 1 if options.tune else options.workers
    out, began = Console(width=160), time.perf_counter()
    cases = TABLES[options.table]
    wanted = report.chosen(parser, options.rows, (c.key for c in cases))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as private:
        options.cache = options.cache or Path(private)
        before = checks_ahead(wanted, options, out)
        for case in (c for c in cases if c.key in wanted):
            started = time.perf_counter()
            rows.append(measure(case, options, before.get(case.key)))
            r = rows[-1]
            took = f"{time.perf_counter() - started:.1f} s"
            text = f"{r.key}: of copy {r.of_copy:.3f}, ok {r.ok}, error {r.error:.2g} of what is allowed, {took}"
            out.print(f"{text} {r.ptx} {r.note}", highlight=False, markup=False)
            if not simulated():
                import_module("torch").cuda.empty_cache()
            report.write(options.json, facts_of(rows))
    show(rows)
    out.print(f"{time.perf_counter() - began:.0f} s in all")


def facts_of(rows: list[Row]) -> dict[str, Any]:
    """The rows, with the machine named."""
    device = "simulator" if simulated() else load_cuda().get_current_device().name
    return {
        "device": device.decode() if isinstance(device, bytes) else str(device), "machine": platform.machine(),
        "numpy": np.__version__, "torch": str(import_module("torch").__version__), "rows": [asdict(r) for r in rows],
    }  # fmt: skip


if __name__ == "__main__":
    main()
