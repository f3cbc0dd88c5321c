"""Whole models behind torch.compile, beside eager mode and Inductor: ``python -m tools.bench.models --device cpu``.

Each model is made from a configuration with random weights, never downloaded, and runs in a process of its own with a
limit of time. A row has milliseconds a call (the median, and the least), seconds of the first call, the largest error
against eager mode, and for CUDA the most memory that a step takes, of ``eager``, ``inductor`` and ``idgraph``.

``--device cpu``: two narrow layers in float32; ``cuda``: the sizes of the table in the docs in bfloat16. The models
are those of ``models.toml``; ``--models`` selects by a part of the name. The JSON names the machine; it is written anew
after each row, so that a run that is cut short leaves what it has.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from tools.programs.model_families import TIMED, called_with, families, library, model_of

Modes = tuple[str, ...]
MODES: Modes = ("eager", "inductor", "idgraph")
PARTS: Modes = ("forward", "step")
# Batch and length, by device and whether the model reads pictures.
SIZES = {("cpu", False): (2, 16), ("cpu", True): (2, 0), ("cuda", False): (8, 1024), ("cuda", True): (32, 0)}


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
        if part == "forward":
            with torch.no_grad():
                return [called_with(call, given)[0]]
        model.zero_grad(set_to_none=True)
        loss = called_with(call, given)[1]
        loss.backward()
        return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    wanted = [x.clone() for x in run(model)]
    called = model if mode == "eager" else torch.compile(model, backend=mode)
    began = time.perf_counter()
    found = run(called)
    wait()
    row = Row(name, part, mode, first_s=round(time.perf_counter() - began, 3))
    row.error = max((_error(x, y) for x, y in zip(found, wanted, strict=True)), default=0.0)
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


def _error(x: Any, y: Any) -> float:
    size = float(y.double().abs().max()) or 1.0
    return float((x.double() - y.double()).abs().max()) / size


def _machine(device: str) -> dict[str, str]:
    torch: Any = import_module("torch")
    found = {"processor": platform.processor() or platform.machine(), "python": platform.python_version()}
    found |= {"torch": torch.__version__, "threads": str(torch.get_num_threads())}
    found |= {"transformers": library("transformers").__version__}
    return found | ({"gpu": torch.cuda.get_device_name()} if device == "cuda" else {})


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


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--models", default="", help="parts of names, with commas between them; none: the docs' table")
    parser.add_argument("--list", action="store_true", help="print the models, and stop")
    parser.add_argument("--parts", default="forward,step")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--seconds", type=float, default=2.0, help="of steady calls for each row")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each process")
    parser.add_argument("--total", type=float, default=math.inf, help="seconds after which no process is started")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=3, metavar=("MODEL", "PART", "MODE"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.one is not None:
        name, part, mode = cast("tuple[str, str, str]", args.one)
        print(json.dumps(asdict(measured(name, part, mode, args.device, args.seconds))))
        return 0
    words = [w for w in args.models.split(",") if w]
    names = [n for n in families() if any(w in n for w in words)] if words else list(TIMED)
    if args.list:
        print("\n".join(names if words else families()))
        return 0
    jobs = [(n, p, m) for n in names for p in PARTS if p in args.parts.split(",") for m in args.modes.split(",")]
    table, began = Table(_machine(args.device)), time.perf_counter()
    for number, (name, part, mode) in enumerate(jobs, 1):
        if time.perf_counter() - began > args.total:
            print(f"{len(jobs) - number + 1} rows are left: the time is over", file=sys.stderr)
            break
        row = _in_process(name, part, mode, args.device, args.seconds, args.limit)
        table.rows.append(row)
        spent = time.perf_counter() - began
        print(f"[{number}/{len(jobs)}] {spent:5.0f} s  {name} {part} {mode}: {row.failed or f'{row.ms} ms'}",
              file=sys.stderr, flush=True)  # fmt: skip
        if args.json is not None:
            args.json.write_text(json.dumps(asdict(table), indent=1) + "\n", encoding="utf-8")
    print(json.dumps(table.machine))
    print(table.text())
    return int(any(r.failed for r in table.rows if r.mode == "idgraph"))


if __name__ == "__main__":
    raise SystemExit(main())
