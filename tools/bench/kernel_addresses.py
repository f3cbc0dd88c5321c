"""Every address that the kernels of the H200 table touch, checked on the device: the last IR as kernels of comparisons.

    python -m tools.bench.kernel_addresses [--rows rope,softmax_f32] [--small] [--json FILE]

Each row is scheduled by `ig.schedule.auto` at its real size. Floats are not needed; indices are random.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import idgraph as ig
from idgraph.ir import is_float
from idgraph.runtime import emit
from idgraph.validate.index_map_check import index_values
from idgraph.validate.input_values import index_limits
from idgraph.validate.kernel_check import check_kernel_addresses
from tools.bench.gpu_rows import CASES, Case


@dataclass(frozen=True, slots=True)
class Row:
    """``points`` are accesses at steps of their loops; ``seconds`` of the whole check, tables and compilation too."""

    key: str
    ok: bool
    exhaustive: bool
    engine: str
    points: int
    served: int
    seconds: float
    note: str


def checked(case: Case, small: bool) -> Row:
    """One row of the table."""
    f = case.build(small)
    (case.schedule or ig.schedule.auto)(f)
    rng, limits = np.random.default_rng(0), index_limits(f, {})
    given: dict[str, Any] = {}
    for t in f.inputs:
        shape = tuple(int(n) for n in t.shape)
        below = int(limits.get(t.name, 2))
        given[t.name] = (
            np.broadcast_to(np.zeros((), np.float32), shape) if is_float(t.dtype) else rng.integers(0, below, shape)
        )
    program = emit(f, target="cuda")
    began = time.perf_counter()
    r = check_kernel_addresses(program, {}, index_values(f, {}, given, 0), engine="cuda", table_limit=1 << 36)
    note = "" if r.ok and r.exhaustive else str(r.mismatch or r.sampled or r.untraced)
    seconds = round(time.perf_counter() - began, 2)
    return Row(case.key, r.ok, r.exhaustive, r.engine, r.points, sum(r.served.values()), seconds, note)


def main() -> None:
    """Check, print, store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", default="")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    wanted = {key for key in str(chosen.rows).split(",") if key}
    rows: list[Row] = []
    for case in CASES:
        if not wanted or case.key in wanted:
            rows.append(checked(case, bool(chosen.small)))
            print(json.dumps(asdict(rows[-1])), flush=True)
    table = Table("kernels of", "ok", "all", "engine", "accesses", "points served", "s")
    for r in rows:
        table.add_row(
            r.key, str(r.ok), str(r.exhaustive), r.engine, f"{r.points:,}", f"{r.served:,}", f"{r.seconds:.1f}"
        )
    Console().print(table)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
