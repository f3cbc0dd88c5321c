"""Ways of gathers, chosen by estimate and timed: ``python -m tools.bench.gathers [--programs N] [--seed S]``.

Random programs with one gather of a computed tensor each (shape, type, axis, producer, index, consumer), none of them
used to set a number of the estimate. Every way is forced by the public option of `ig.schedule.auto`, compiled for the
CPU, its values compared with the oracle's, and timed: the least processor time of several rounds on one thread, the
ways taking turns. The estimate is that of one thread of this machine, as `ig.cost.measure_device` finds it. A choice is
judged by the measured time of its way over that of the fastest. ``--json FILE`` is written after every program, with
the machine and its load.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np

import idgraph as ig
from idgraph.cost import Device
from idgraph.rewrite.gather_lowering import Strategy
from idgraph.runtime.program import Program
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from tools.bench.planning import told

ROUNDS = 9
LEAST_S = 0.004  # of one round
STEPS: tuple[Callable[[ig.Tensor], ig.Tensor], ...] = (
    ig.exp, ig.sigmoid, ig.relu, lambda t: t * 0.5, lambda t: t + 1.0,
)  # fmt: skip


def producer(r: random.Random, f: ig.Fusion, x: ig.Tensor) -> ig.Tensor:
    """What is gathered from: a chain over ``x``, a row operation, a scan, a movement, or two of them."""
    for _ in range(r.choice((1, 1, 2))):
        match r.choice(("chain", "chain", "softmax", "bias", "scan", "roll", "scatter", "sum")):
            case "chain":
                for _ in range(r.randint(1, 5)):
                    x = r.choice(STEPS)(x)
            case "softmax":
                x = r.choice((ig.softmax, ig.log_softmax))(x, r.randrange(x.ndim))
            case "bias":
                x = x + f.input(f"b{len(f.inputs)}", x.shape[-1:], x.dtype)
            case "scan":
                x = ig.cumsum(x, r.randrange(x.ndim)) * 0.125
            case "roll":
                x = ig.roll(x, 3, r.randrange(x.ndim))
            case "scatter":
                x = ig.slice_scatter(x, x[:5] * 2.0, 0, 0, 5)
            case _:
                x = x - ig.mean(x, r.randrange(x.ndim), keepdim=True)
    return x


def consumer(r: random.Random, f: ig.Fusion, t: ig.Tensor) -> ig.Tensor:
    """What follows the gather."""
    match r.choice(("none", "scale", "sum", "add", "norm")):
        case "scale":
            return ig.tanh(t * 1.5)
        case "sum":
            return ig.sum(t, -1)
        case "add":
            return t + f.input("c", t.shape, t.dtype)
        case "norm":
            return t / (ig.sum(t * t, -1, keepdim=True) + 1.0)
        case _:
            return t


def program(seed: int) -> tuple[ig.Fusion, str]:
    """A random program, the same for the same seed, and the name of its gather."""
    r = random.Random(f"gathers {seed}")
    f = ig.Fusion(f"random{seed}")
    ndim = r.choice((2, 2, 2, 3))
    parts = [r.uniform(0.2, 1.0) for _ in range(ndim)]
    size = r.uniform(13, 20)  # the power of two of all elements
    shape = tuple(max(6, int(2 ** (size * p / sum(parts)))) for p in parts)
    kind = r.choice(("float32", "float32", "float64"))
    y = producer(r, f, f.input("x", shape, kind))
    axis = r.randrange(ndim)
    count = r.choice((1, 1, r.randint(2, 8), int(2 ** r.uniform(3, 11))))
    count = max(1, min(count, (1 << 25) // math.prod(shape)))  # all of the axis is looked at for each of the results
    way = r.choice(("gather", "take_along_dim", "index_select", "embedding"))
    integer = r.choice(("int64", "int32"))
    if way == "embedding" and ndim == 2:
        t = ig.embedding(f.input("i", (count, r.randint(1, 6)), integer), y)
    elif way == "index_select":
        t = ig.index_select(y, axis, f.input("i", (count,), integer))
    else:
        index = f.input("i", (*shape[:axis], count, *shape[axis + 1 :]), "int64")
        t = ig.gather(y, axis, index) if way == "gather" else ig.take_along_dim(y, index, axis)
    name = t.name
    f.output(consumer(r, f, t))
    if r.random() < 0.2:
        f.output(y)
    return f, name


def timed(programs: dict[str, Program], given: dict[str, Any]) -> dict[str, float]:
    """Microseconds of processor time of a call of each, the least of the rounds."""
    calls: dict[str, int] = {}
    for way, p in programs.items():
        start = time.process_time()
        p.run(given)
        calls[way] = max(1, int(LEAST_S / max(time.process_time() - start, 1e-6)))
    best: dict[str, float] = dict.fromkeys(programs, float("inf"))
    for _ in range(ROUNDS):
        for way, p in programs.items():
            start = time.process_time()
            for _ in range(calls[way]):
                p.run(given)
            best[way] = min(best[way], (time.process_time() - start) / calls[way])
    return {way: round(1e6 * s, 2) for way, s in best.items()}


def judged(seed: int, device: Device) -> dict[str, Any]:
    """One program: the choice, the estimate and the measured time of each way."""
    f, name = program(seed)
    text = str(f)
    given = random_inputs(f, seed)
    want = evaluate(f, given)
    start = time.process_time()
    decision = next(d for d in ig.schedule.gather_plan(f, device=device) if d.tensor == name)
    plan_s = time.process_time() - start
    programs: dict[str, Any] = {}
    for way in get_args(Strategy):
        copy = ig.parse(text)
        try:
            ig.schedule.auto(copy, gathers={name: way}, device=device)
        except ig.ScheduleError:
            continue
        p = ig.emit(copy, target="cpu")
        for out, value in p.run(given).items():
            np.testing.assert_allclose(value, want[out], rtol=2e-4, atol=2e-4, err_msg=f"seed {seed}, {way}, {out}")
        programs[way] = p
    measured = timed(programs, given)
    fastest = min(measured, key=lambda w: measured[w])
    estimates = {o.name: o.cost for o in decision.rejected if o.cost is not None}
    return {
        "seed": seed, "text": text, "gather": name, "chosen": decision.chosen, "reason": decision.reason,
        "estimates_us": estimates, "measured_us": measured, "fastest": fastest,
        "ratio": round(measured[decision.chosen] / measured[fastest], 3), "plan_s": round(plan_s, 3),
    }  # fmt: skip


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How often the choice is the fastest way, and how near it is otherwise."""
    ratios = sorted(r["ratio"] for r in rows)
    return {
        "programs": len(rows), "fastest": sum(r["chosen"] == r["fastest"] for r in rows),
        "within_10_percent": sum(x <= 1.1 for x in ratios), "within_25_percent": sum(x <= 1.25 for x in ratios),
        "median_ratio": ratios[len(ratios) // 2], "worst_ratio": ratios[-1],
        "always": {
            way: sum(r["measured_us"].get(way, float("inf")) <= 1.1 * r["measured_us"][r["fastest"]] for r in rows)
            for way in get_args(Strategy)
        },
    }  # fmt: skip


def main() -> int:
    """Judge the programs, print a line for each, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=48)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    os.environ["NUMBA_NUM_THREADS"] = "1"  # before numba is loaded: threads that wait for others take time of their own
    device = ig.cost.measure_device("cpu", name="one thread")
    print(device)
    rows: list[dict[str, Any]] = []
    for seed in range(args.seed, args.seed + args.programs):
        row = judged(seed, device)
        rows.append(row)
        line = f"{row['chosen']:<10} fastest {row['fastest']:<10} {row['ratio']:>6} {row['measured_us']}"
        print(f"{seed:>4} {line}", flush=True)
        if args.json:
            text = json.dumps({**told(), "device": asdict(device), **summary(rows), "rows": rows}, indent=1)
            args.json.write_text(text + "\n", encoding="utf-8")
    print(json.dumps(summary(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
