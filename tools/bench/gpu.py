"""Kernels on a GPU: every address and value checked at real sizes, then timed beside a device copy of the same bytes.

    python -m tools.bench.gpu [--small] [--only NAME] [--json FILE]

Each row: a fusion at the size of a real model, scheduled by ``ig.schedule.auto``, validated exhaustively on the device
(addresses) and against float64 (values, NaN-poisoned outputs), then launched many times between two events. ``copy`` is
a device copy that moves the same number of bytes (each input once, each output once), timed in the same run.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import idgraph as ig
from idgraph.emit.cuda import Prepared, load_cuda, simulated
from idgraph.emit.program import emit
from idgraph.ir import item_size
from idgraph.validate import random_inputs


@dataclass(frozen=True, slots=True)
class Row:
    """One measured case; times in microseconds, bytes counted once for each input and output."""

    name: str
    points: int
    ok: bool
    address_checks_per_second: float
    largest_error: float
    bytes: int
    microseconds: float
    copy_microseconds: float
    of_copy: float


def rotation(small: bool) -> ig.Fusion:
    """t0 + cat(t0[n/2:], t0[:n/2]), float32."""
    f = ig.Fusion("rotation + residual")
    n = 1 << (12 if small else 28)
    t0 = f.input("t0", shape=(n,))
    f.output(t0 + ig.cat([t0[n // 2 :], t0[: n // 2]]))
    return f


def _rope(name: str, small: bool, dtype: str, residual: bool) -> ig.Fusion:
    f = ig.Fusion(name)
    batch, heads, length, width = (2, 4, 16, 8) if small else (2, 32, 4096, 128)
    cos, sin = (f.input(n, shape=(batch, 1, length, width), dtype=dtype) for n in ("cos", "sin"))
    for n in ("q", "k"):
        x = f.input(n, shape=(batch, heads, length, width), dtype=dtype)
        half = width // 2
        out = x * cos + ig.cat([-x[..., half:], x[..., :half]], dim=-1) * sin
        f.output(out + x if residual else out)
    return f


def rope(small: bool) -> ig.Fusion:
    """Rotate-half RoPE of q and k, bfloat16."""
    return _rope("RoPE q,k bf16", small, "bfloat16", residual=False)


def rope_residual(small: bool) -> ig.Fusion:
    """The same with residual."""
    return _rope("RoPE + residual bf16", small, "bfloat16", residual=True)


def rope_interleaved(small: bool) -> ig.Fusion:
    """GPT-J's convention: pairs (2i, 2i + 1), float32."""
    f = ig.Fusion("RoPE interleaved f32")
    batch, length, heads, width = (2, 16, 4, 8) if small else (2, 4096, 32, 128)
    x = f.input("q", shape=(batch, length, heads, width))
    cos, sin = (f.input(n, shape=(batch, length, 1, width // 2)) for n in ("cos", "sin"))
    even, odd = x[..., ::2], x[..., 1::2]
    f.output(ig.flatten(ig.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1), 3))
    return f


def take_along(small: bool) -> ig.Fusion:
    """One element of each row, by an int64 index."""
    f = ig.Fusion("take_along_dim, extent 1")
    rows, columns = (64, 40) if small else (16384, 32768)
    x = f.input("x", shape=(rows, columns))
    f.output(ig.take_along_dim(x, f.input("index", shape=(rows, 1), dtype="int64"), 1) * 2.0)
    return f


CASES: tuple[Callable[[bool], ig.Fusion], ...] = (rotation, rope, rope_residual, rope_interleaved, take_along)


def moved_bytes(f: ig.Fusion) -> int:
    """Bytes of each input and output once; of a gathered tensor only what is gathered."""
    total = 0
    gathered = {e.inputs[0].name: e.output for e in f.exprs if e.op == "take_along_dim"}
    for t in (*f.inputs, *f.outputs):
        shape = gathered[t.name].shape if t.name in gathered else t.shape
        total += int(np.prod([int(n) for n in shape])) * item_size(t.dtype)
    return total


def timed(work: Callable[[], None], repeat: int) -> float:
    """Microseconds of one call: the median of five windows of ``repeat`` calls, each between two events."""
    cuda = load_cuda()
    for _ in range(3):
        work()
    cuda.synchronize()
    windows: list[float] = []
    for _ in range(5):
        begin, end = cuda.event(), cuda.event()
        begin.record()
        for _ in range(repeat):
            work()
        end.record()
        end.synchronize()
        windows.append(float(cuda.event_elapsed_time(begin, end)) * 1000 / repeat)
    return sorted(windows)[2]


def measure(f: ig.Fusion, small: bool) -> tuple[Row, str]:
    """Validate, then time."""
    cuda = load_cuda()
    ig.schedule.auto(f)
    began = time.perf_counter()
    report = ig.validate(f, target="cuda")
    if report.values is None or report.addresses is None:
        raise SystemExit(f"{f.name}: not checked\n{report}")
    text = f"{report}\n  validated in {time.perf_counter() - began:.1f} s"
    inputs: dict[str, Any] = random_inputs(f, 0, {})
    prepared = Prepared(emit(f, target="cuda"), inputs)
    count = moved_bytes(f)
    if simulated():
        mine = theirs = float("nan")
    else:
        mine = timed(prepared.launch, 3 if small else 30)
        source, target = (cuda.device_array(count // 2, np.uint8) for _ in range(2))
        theirs = timed(lambda: target.copy_to_device(source), 3 if small else 30)
    errors = [e.largest for e in report.values.errors]
    row = Row(
        f.name, report.points, report.ok, report.points / max(report.addresses.seconds, 1e-9),
        max(errors, default=0.0), count, mine, theirs, theirs / mine,
    )  # fmt: skip
    return row, text


def main() -> None:
    """All cases, one table, JSON with the machine named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="tiny shapes, for the simulator")
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    out = Console(width=140)
    rows: list[Row] = []
    for case in CASES:
        if options.only in case.__name__:
            row, text = measure(case(options.small), options.small)
            out.print(text, highlight=False, markup=False)
            rows.append(row)
    table = Table(title="kernels on the device", title_justify="left")
    for column in asdict(rows[0]):
        table.add_column(column)
    for row in rows:
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in asdict(row).values()))
    out.print(table)
    if options.json is not None:
        device = "simulator" if simulated() else load_cuda().get_current_device().name
        name = device.decode() if isinstance(device, bytes) else str(device)
        facts = {
            "device": name,
            "machine": platform.machine(),
            "numpy": np.__version__,
            "rows": [asdict(r) for r in rows],
        }
        options.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
