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
from importlib import import_module
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


def qkv_rope(small: bool) -> ig.Fusion:
    """A joined QKV projection (32, 8 and 8 heads) split, q and k rotated, all made contiguous; bfloat16."""
    f = ig.Fusion("QKV split + RoPE bf16")
    batch, length, width, heads, groups = (2, 16, 8, 4, 2) if small else (2, 4096, 128, 32, 8)
    qkv = f.input("qkv", shape=(batch, length, (heads + 2 * groups) * width), dtype="bfloat16")
    cos, sin = (f.input(n, shape=(batch, 1, length, width), dtype="bfloat16") for n in ("cos", "sin"))
    start, half = 0, width // 2
    for n, rotated in ((heads, True), (groups, True), (groups, False)):
        part = ig.reshape(qkv[..., start * width : (start + n) * width], batch, length, n, width)
        x = ig.transpose(part, 1, 2)
        start += n
        turned = ig.cat([-x[..., half:], x[..., :half]], dim=-1)
        f.output(x * cos + turned * sin if rotated else ig.copy(x))
    return f


def swin(small: bool) -> ig.Fusion:
    """Swin's cyclic shift and window partition, bfloat16."""
    f = ig.Fusion("Swin shift + windows bf16")
    batch, side, width, window = (1, 14, 8, 7) if small else (32, 112, 192, 7)
    x = f.input("x", shape=(batch, side, side, width), dtype="bfloat16")
    moved = ig.roll(x, (-3, -3), (1, 2))
    n = side // window
    windows = ig.permute(ig.reshape(moved, batch, n, window, n, window, width), 0, 1, 3, 2, 4, 5)
    f.output(ig.reshape(windows, batch * n * n, window, window, width))
    return f


def pixel_shuffle(small: bool) -> ig.Fusion:
    """Depth to space by 2, bfloat16."""
    f = ig.Fusion("pixel shuffle bf16")
    batch, depth, side = (1, 8, 8) if small else (16, 256, 256)
    x = f.input("x", shape=(batch, depth, side, side), dtype="bfloat16")
    parts = ig.permute(ig.reshape(x, batch, depth // 4, 2, 2, side, side), 0, 1, 4, 2, 5, 3)
    f.output(ig.reshape(parts, batch, depth // 4, 2 * side, 2 * side))
    return f


def embedding(small: bool) -> ig.Fusion:
    """Rows of a table, bfloat16, int64 ids."""
    f = ig.Fusion("embedding bf16")
    count, rows, width = (16, 50, 8) if small else (16384, 32000, 4096)
    ids = f.input("ids", shape=(count,), dtype="int64")
    f.output(ig.embedding(ids, f.input("table", shape=(rows, width), dtype="bfloat16")))
    return f


def gather(small: bool) -> ig.Fusion:
    """gather along the last axis, float32, int64 index of the same shape."""
    f = ig.Fusion("gather f32")
    n = 32 if small else 8192
    x, index = f.input("x", shape=(n, n)), f.input("index", shape=(n, n), dtype="int64")
    f.output(ig.gather(x, 1, index))
    return f


CASES: tuple[Callable[[bool], ig.Fusion], ...] = (
    rotation, rope, rope_residual, rope_interleaved, take_along, qkv_rope, swin, pixel_shuffle, embedding, gather,
)  # fmt: skip


def moved_bytes(f: ig.Fusion) -> int:
    """Bytes of each input and output once; of a gathered tensor only what is gathered."""
    total = 0
    gathered = {e.inputs[0].name: e.output for e in f.exprs if e.op == "take_along_dim"}
    gathered |= {e.inputs[1].name: e.output for e in f.exprs if e.op == "embedding"}
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


def device_copy(count: int) -> Callable[[], None]:
    """A device copy that reads and writes ``count`` bytes together, by torch.

    numba's own ``copy_to_device`` spends 85 us of host time a call, more than the copy of most rows takes.
    """
    torch: Any = import_module("torch")
    source, target = (torch.empty(count // 2, dtype=torch.uint8, device="cuda") for _ in range(2))
    return lambda: target.copy_(source)


def measure(f: ig.Fusion, small: bool) -> tuple[Row, str]:
    """Validate, then time."""
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
        theirs = timed(device_copy(count), 3 if small else 30)
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
