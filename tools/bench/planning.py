"""Time of the planner by operations: ``python -m tools.bench.planning [--sizes N ...] [--limit S] [--json FILE]``.

Chains of pointwise operations, residual blocks (with a reduction over rows, and without), fan-outs, norms with a gate,
branches that join, and rows gathered from a table, scheduled by `ig.schedule.auto` and planned by `ig.fuse.plan`, each
in a process of its own. The growth is reported as the power of the number of operations that the time of the last two
sizes grows by. FILE is written after every row, with the machine and its load; a row that was stopped says so.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable
from math import log
from pathlib import Path
from typing import Any

import idgraph as ig
from tools.bench.cpu import machine

SIZES = (1000, 3000, 10_000)
LIMIT_S = 600.0


def chain(n: int) -> ig.Fusion:
    """``n`` pointwise operations, each of the one before."""
    f = ig.Fusion("chain")
    t = f.input("x", shape=(64, 128))
    for k in range(n):
        t = t * 1.5 if k % 2 else ig.exp(t)
    f.output(t)
    return f


def residual(n: int) -> ig.Fusion:
    """Blocks of six operations: a mean of squares over each row goes back into the row."""
    f = ig.Fusion("residual")
    t = f.input("x", shape=(64, 128))
    while len(f.exprs) < n:
        t = t + ig.exp(t * ig.sum(t * t, 1, keepdim=True)) * 0.5
    f.output(t)
    return f


def skip(n: int) -> ig.Fusion:
    """Residual blocks of three pointwise operations, each weighted by one row: all of them are one nest."""
    f = ig.Fusion("skip")
    t, w = f.input("x", shape=(64, 128)), f.input("w", shape=(128,))
    while len(f.exprs) < n:
        t = t + ig.relu(t * w)
    f.output(t)
    return f


def fan(n: int) -> ig.Fusion:
    """``n`` - 1 outputs of one value."""
    f = ig.Fusion("fan")
    y = ig.exp(f.input("x", shape=(64, 128)))
    f.output(*(y * float(k + 2) for k in range(n - 1)))
    return f


def norm(n: int) -> ig.Fusion:
    """Blocks of thirteen operations: a row is centred, divided by its deviation, scaled, gated and added to itself."""
    f = ig.Fusion("norm")
    t, w = f.input("x", shape=(64, 128)), f.input("w", shape=(128,))
    while len(f.exprs) < n:
        c = t - ig.sum(t, 1, keepdim=True) * (1 / 128)
        y = c * ig.rsqrt(ig.sum(c * c, 1, keepdim=True) * (1 / 128) + 1e-6) * w
        t = t + y * ig.sigmoid(y)
    f.output(t)
    return f


def join(n: int) -> ig.Fusion:
    """Blocks of six pointwise operations: three branches of one value join in the next."""
    f = ig.Fusion("join")
    t = f.input("x", shape=(64, 128))
    while len(f.exprs) < n:
        a, b = ig.exp(t), ig.relu(t)
        t = a * b + ig.tanh(t) * 0.5
    f.output(t)
    return f


def gather(n: int) -> ig.Fusion:
    """Residual blocks of six operations, each with the rows of a table that an index picks."""
    f = ig.Fusion("gather")
    t, w = f.input("x", shape=(64, 128)), f.input("w", shape=(256, 128))
    i = f.input("i", shape=(64, 1), dtype="int64")
    while len(f.exprs) < n:
        t = t + ig.relu(t * ig.gather(w, 0, ig.expand(i, (64, 128)))) * 0.5
    f.output(t)
    return f


FAMILIES: dict[str, Callable[[int], ig.Fusion]] = {
    "chain": chain, "residual": residual, "skip": skip, "fan": fan, "norm": norm, "join": join, "gather": gather,
}  # fmt: skip


def planned(family: str, n: int, what: str) -> dict[str, Any]:
    """Seconds of processor time of one of both, and what the plan says, in this process."""
    ig.fuse.plan(FAMILIES[family](20))  # imports
    f = FAMILIES[family](n)
    start = time.process_time()
    p = ig.fuse.plan(f) if what == "plan" else ig.schedule.auto(f)
    found: dict[str, Any] = {f"{what}_s": round(time.process_time() - start, 2)}
    return {**found, "before": p.before, "after": p.after} if isinstance(p, ig.fuse.FusionPlan) else found


def _child(family: str, n: int, what: str, answer: multiprocessing.Queue[dict[str, Any]]) -> None:
    answer.put(planned(family, n, what))


def measured(family: str, n: int, limit: float) -> dict[str, Any]:
    """The same of both, each in a process of its own, stopped at ``limit`` seconds: nothing that one leaves is looked
    through for garbage in the other."""
    context = multiprocessing.get_context("spawn")
    row: dict[str, Any] = {"family": family, "operations": n}
    for what in ("auto", "plan"):
        answer: multiprocessing.Queue[dict[str, Any]] = context.Queue()
        child = context.Process(target=_child, args=(family, n, what, answer))
        child.start()
        try:
            row |= answer.get(timeout=limit)
        except Exception:  # the queue's own kind of timeout
            row["failed"] = f"{what}: over {limit:.0f} s"
            child.kill()
        child.join()
    return row


def grown(rows: list[dict[str, Any]], key: str) -> float | None:
    """The power of the size that a time grows by between the last two sizes."""
    known = [(r["operations"], r[key]) for r in rows if r.get(key)]
    if len(known) < 2:
        return None
    (n, a), (m, b) = known[-2:]
    return round(log(b / a) / log(m / n), 2)


def told() -> dict[str, Any]:
    """The machine, its load over the last minute, and the day."""
    return {
        "machine": machine(),
        "load": [round(x, 1) for x in os.getloadavg()],
        "day": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
    }


def write(path: Path | None, rows: list[dict[str, Any]]) -> None:
    """The rows so far, by a file that takes the place of the old one at once."""
    if path is None:
        return
    growth = {
        family: {key: grown([r for r in rows if r["family"] == family], key) for key in ("auto_s", "plan_s")}
        for family in dict.fromkeys(r["family"] for r in rows)
    }
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps({**told(), "rows": rows, "growth": growth}, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def main() -> int:
    """Measure, print a table, write JSON row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES))
    parser.add_argument("--limit", type=float, default=LIMIT_S)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    all_rows: list[dict[str, Any]] = []
    print(f"{'family':<10}{'operations':>11}{'auto s':>9}{'plan s':>9}{'kernels before':>16}{'after':>7}")
    for family in args.family or FAMILIES:
        rows: list[dict[str, Any]] = []
        for n in args.sizes:
            row = measured(family, n, args.limit)
            rows.append(row)
            all_rows.append(row)
            write(args.json, all_rows)
            text = row.get("failed") or f"{row['auto_s']:>9}{row['plan_s']:>9}{row['before']:>16}{row['after']:>7}"
            print(f"{family:<10}{n:>11}{text}", flush=True)
            if "failed" in row:
                break
        growth = {key: grown(rows, key) for key in ("auto_s", "plan_s")}
        print(f"{family}: grows as operations to the {growth}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
