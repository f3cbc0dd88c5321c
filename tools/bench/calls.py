"""The cost of a call on the host, in microseconds: idgraph's callable beside torch's eager call and torch.compile's.

    python -m tools.bench.calls --device cpu
    python -m tools.bench.calls --device cuda --json calls.json

The work is small, so that the call is what is measured. Each figure is the shortest of several windows of calls; on a
GPU the calls of a window are queued, and a window ends when they are done. Dynamic rows call with another size each
time, of sizes seen before; torch.compile is asked for dynamic sizes there. "made" is a size that was never seen.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.table import Table

import idgraph as ig

SIZES = tuple(range(1024, 1024 + 64 * 16, 64))


@dataclass(slots=True)
class Row:
    """One kind of call: microseconds by who is called."""

    name: str
    us: dict[str, float] = field(default_factory=dict[str, float])
    ok: bool = True


def shortest(work: Callable[[], object], wait: Callable[[], object], calls: int, windows: int = 15) -> float:
    """Microseconds of one call, in the shortest window."""
    best = float("inf")
    for _ in range(calls):  # caches, clocks and allocators are warm
        work()
    for _ in range(windows):
        wait()
        began = time.perf_counter_ns()
        for _ in range(calls):
            work()
        wait()
        best = min(best, (time.perf_counter_ns() - began) / 1000 / calls)
    return best


def three(n: Any) -> ig.Fusion:
    """One kernel of four arrays."""
    f = ig.Fusion("three")
    size = f.symbol("n", min=1) if n is None else n
    x, y, z = (f.input(name, (size,)) for name in "xyz")
    f.output(x * 2.0 + y - z)
    return f


def norm() -> ig.Fusion:
    """A row of sums and one of values."""
    f = ig.Fusion("norm")
    x = f.input("x", (64, 256))
    f.output(x - ig.mean(x, 1, keepdim=True))
    return f


def rows_of() -> ig.Fusion:
    """Gathered rows: a checked call looks at what failed."""
    f = ig.Fusion("embedding")
    i, w = f.input("i", (64,), "int64"), f.input("w", (1000, 64))
    f.output(ig.embedding(i, w))
    return f


def _three(x: Any, y: Any, z: Any) -> Any:
    return x * 2.0 + y - z


def _norm(x: Any) -> Any:
    return x - x.mean(1, keepdim=True)


def rows(torch: Any, device: str, calls: int, compiled: bool) -> list[Row]:
    """All kinds of calls."""
    wait: Callable[[], object] = torch.cuda.synchronize if device != "cpu" else lambda: None
    target: Any = "cpu" if device == "cpu" else "cuda"

    def time_of(work: Callable[[], object]) -> float:
        return shortest(work, wait, calls)

    def fixed(name: str, f: ig.Fusion, eager: Callable[..., Any], *args: Any) -> list[Row]:
        made: list[Row] = []
        for checked in (True, False):
            k = ig.compile(f, target, checked=checked)
            row = Row(name if checked else f"{name}, checked=False")
            row.ok = bool(torch.allclose(k(*args), eager(*args), rtol=1e-4, atol=1e-4))
            row.us["idgraph"] = time_of(lambda k=k: k(*args))
            row.us["eager"] = time_of(lambda: eager(*args))
            if compiled:
                fast: Any = torch.compile(eager)
                row.us["compile"] = time_of(lambda fast=fast: fast(*args))
            made.append(row)
        return made

    def rand(*shape: int) -> Any:
        return torch.rand(*shape, device=device)

    found: list[Row] = []
    xyz = [rand(1024) for _ in range(3)]
    found += fixed("one kernel, four arrays", three(1024), _three, *xyz)[:1]
    found += fixed("norm 64 x 256", norm(), _norm, rand(64, 256))[:1]
    at = torch.randint(0, 1000, (64,), device=device)
    found += fixed("embedding 64 of 1000 x 64", rows_of(), torch.nn.functional.embedding, at, rand(1000, 64))
    found += dynamic(torch, target, rand, time_of, compiled)
    return found + imports(torch, target, rand, time_of, compiled)


def imports(
    torch: Any, target: Any, rand: Callable[..., Any], time_of: Callable[[Callable[[], object]], float], compiled: bool
) -> list[Row]:
    """Functions of torch's as `from_torch` captures them: the user's way."""
    found: list[Row] = []

    def row(name: str, call: Callable[..., Any], eager: Callable[..., Any], *args: Any) -> None:
        made = Row(name)
        made.ok = all(
            bool(torch.allclose(a, b, rtol=1e-4, atol=1e-4))
            for a, b in zip(_tuple(call(*args)), _tuple(eager(*args)), strict=True)
        )
        made.us = {"idgraph": time_of(lambda: call(*args)), "eager": time_of(lambda: eager(*args))}
        if compiled:
            fast: Any = torch.compile(eager)
            made.us["compile"] = time_of(lambda: fast(*args))
        found.append(made)

    xyz = [rand(1024) for _ in range(3)]
    made = ig.from_torch(_three, xyz)
    k = ig.compile(made, target)
    out = rand(1024)
    row("import: four arrays", k, _three, *xyz)
    row("import: four arrays, out=", lambda *args: k(*args, out=out), _three, *xyz)
    row("import: four arrays, imp.run", lambda *args: made.run(*args, target=target), _three, *xyz)
    both = [rand(64, 256), rand(64, 256)]
    row("import: two kernels", ig.compile(ig.from_torch(_two, both), target), _two, *both)
    looked = [rand(1000, 64), torch.randint(0, 1000, (64,), device=xyz[0].device)]
    row("import: embedding", ig.compile(ig.from_torch(_rows, looked), target), _rows, *looked)
    part = [rand(64, 256)]
    row("import: views of the argument", ig.compile(ig.from_torch(_views, part), target), _views, *part)
    k, sets = _dynamic_import(torch, target, rand)
    moving = Row("import: dynamic sizes, four arrays")
    moving.ok = all(bool(torch.allclose(k(*one), _three(*one))) for one in sets)
    moving.us = {"idgraph": time_of(_turns(k, sets)), "eager": time_of(_turns(_three, sets))}
    if compiled:
        moving.us["compile"] = time_of(_turns(torch.compile(_three, dynamic=True), sets))
    return [*found, moving, _fresh("import: dynamic sizes, each made for the first time", k, rand)]


def _dynamic_import(torch: Any, target: Any, rand: Callable[..., Any]) -> tuple[Any, list[list[Any]]]:
    size = torch.export.Dim("n", min=2, max=1 << 20)
    sets = [[rand(n) for _ in range(3)] for n in SIZES]
    return ig.compile(ig.from_torch(_three, sets[0], dynamic_shapes=({0: size},) * 3), target), sets


def _tuple(value: Any) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)


def _two(x: Any, y: Any) -> Any:
    s = (x * y).sum(0)
    return x - s, y + s.sum()


def _rows(w: Any, i: Any) -> Any:
    return w[i] * 2.0


def _views(x: Any) -> Any:
    return x[:, :128], x[:, 128:].t(), x * 2.0


def _turns(call: Callable[..., Any], sets: list[list[Any]]) -> Callable[[], object]:
    """Calls with another size each time, of sizes seen before."""
    state = [0]

    def work() -> object:
        state[0] = (state[0] + 1) % len(sets)
        return call(*sets[state[0]])

    for one in sets:
        call(*one)
    return work


def _fresh(name: str, k: Callable[..., Any], rand: Callable[..., Any]) -> Row:
    """Calls with sizes that were never seen."""
    row = Row(name)
    new = [[rand(n) for _ in range(3)] for n in range(3000, 3200)]
    began = time.perf_counter_ns()
    for one in new:
        k(*one)
    row.us["idgraph"] = (time.perf_counter_ns() - began) / 1000 / len(new)
    return row


def dynamic(
    torch: Any, target: Any, rand: Callable[..., Any], time_of: Callable[[Callable[[], object]], float], compiled: bool
) -> list[Row]:
    """Another size at each call; and sizes that were never seen."""
    f = three(None)
    k = ig.compile(f, target)
    sets = [[rand(n) for _ in range(3)] for n in SIZES]

    row = Row("dynamic sizes, four arrays")
    row.ok = all(bool(torch.allclose(k(*one), _three(*one))) for one in sets)
    row.us = {"idgraph": time_of(_turns(k, sets)), "eager": time_of(_turns(_three, sets))}
    if compiled:
        row.us["compile"] = time_of(_turns(torch.compile(_three, dynamic=True), sets))
    return [row, _fresh("dynamic sizes, each made for the first time", k, rand)]


def main() -> None:
    """One table, JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--no-compile", action="store_true", help="no torch.compile (it needs a C++ compiler)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch: Any = import_module("torch")
    found = rows(torch, options.device, options.calls, not options.no_compile)
    what = torch.cuda.get_device_name(options.device) if options.device != "cpu" else f"CPU, {os.cpu_count()} cores"
    table = Table(title=f"microseconds of a call; {what}, load {os.getloadavg()[0]:.1f}", title_justify="left")
    for column in ("call", "values", "idgraph", "eager", "compile"):
        table.add_column(column, justify="left" if column == "call" else "right")
    for r in found:
        shown = [f"{r.us[w]:.1f}" if w in r.us else "-" for w in ("idgraph", "eager", "compile")]
        table.add_row(r.name, "ok" if r.ok else "WRONG", *shown)
    Console(width=120).print(table)
    if options.json is not None:
        facts = {"device": what, "load": os.getloadavg()[0], "torch": str(torch.__version__)}
        options.json.write_text(json.dumps({**facts, "rows": [asdict(r) for r in found]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
