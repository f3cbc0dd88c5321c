"""`ig.cost` against the emitted source, run thread by thread by an oracle that sees nothing else."""

from __future__ import annotations

import random
from collections import Counter
from math import prod
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.runtime import Program
from idgraph.validate.value_check import random_inputs
from tests.cost.source_counts import ITEM, counted
from tests.schedule.gather_programs import consumer, producer


def launches(program: Program) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Blocks and threads of each kernel; a CPU has one number of blocks."""
    made: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    for k in program.kernels:
        sides = {d: max(int(e.evaluate({})) for e in es) for d, es in k.launch.items()}
        blocks, threads = (tuple(sides.get(f"{n}Idx.{a}", 1) for a in "xyz") for n in ("block", "thread"))
        made[k.name] = (blocks, threads) if program.target == "cuda" else ((prod(blocks),), ())
    return made


def differences(f: ig.Fusion, target: Any) -> list[object]:
    """Where the cost of a scheduled fusion and the oracle differ. Sectors are compared where all indices are known;
    threads that all do the same count once in what is asked for."""
    inputs = random_inputs(f)
    program = ig.emit(f, target=target)
    cost = ig.cost(program, "H200" if target == "cuda" else "cpu", inputs=inputs)
    seen, _ = counted(program.source, launches(program), {t.name: inputs[t.name] for t in f.inputs})
    dtypes = {b.title: b.dtype for b in program.plan.buffers}
    made: list[object] = []
    for k in cost.kernels:
        own, asked = seen[k.name], Counter[tuple[str, str]]()
        outside = [a for a in k.accesses if a.place not in ("shared", "private")]
        atomic = {a.tensor for a in outside if a.kind == "atomic"}
        for a in outside:
            asked[a.tensor, a.kind] += a.points * a.width
        for key in {*asked, *own.touched}:
            many = sum(own.touched[key].values())
            if key[0] not in atomic and (asked[key] > many or (target == "cpu" and asked[key] != many)):
                made.append((k.name, "asked", key, asked[key], many))
        for t in k.tensors:
            item = ITEM.get(dtypes[t.tensor], 4)
            told = {"read": t.bytes_read, "write": t.bytes_written}
            for kind, size in told.items():
                if t.exact and t.tensor not in atomic and size != len(own.touched[t.tensor, kind]) * item:
                    made.append((k.name, kind, t.tensor, size, len(own.touched[t.tensor, kind]) * item))
        told_sectors, many = sum(a.sectors for a in outside), sum(map(len, own.warps.values()))
        if target == "cuda" and k.exact and not atomic and told_sectors != many:
            made.append((k.name, "sectors", told_sectors, many))
    return made


def drawn(seed: int) -> ig.Fusion:
    """A random fusion of a few hundred elements: rows, scans, movements, gathers, scatters, transposes."""
    r = random.Random(f"costs {seed}")
    f = ig.Fusion(f"drawn{seed}")
    axes, size = r.choice((1, 2, 2, 2, 3)), r.uniform(5, 9)
    parts = [r.uniform(0.2, 1) for _ in range(axes)]
    shape = tuple(max(6, int(2 ** (size * p / sum(parts)))) for p in parts)
    x = f.input("x", shape, r.choice(("float32", "float32", "float64", "bfloat16", "float16")))
    if r.random() < 0.3:
        f.output(ig.sum(x, r.randrange(axes)))
    y, at = producer(r, f, x), r.randrange(axes)
    match r.choice(("none", "gather", "select", "transpose", "scatter", "two")):
        case "gather":
            y = ig.take_along_dim(y, f.input("i", (*shape[:at], r.randint(1, 5), *shape[at + 1 :]), "int64"), at)
        case "select":
            y = ig.index_select(y, at, f.input("i", (r.randint(1, 9),), "int32"))
        case "transpose" if axes > 1:
            y = ig.transpose(y, 0, axes - 1)
        case "scatter":
            y = ig.scatter(y, at, f.input("i", (*shape[:at], 1, *shape[at + 1 :]), "int64"), r.choice((1.0, -2.5)))
        case "two":
            f.output(y)
            y = y * 0.5
        case _:
            pass
    f.output(consumer(r, f, y))
    return f


@pytest.mark.sampled
@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("first", range(0, 24, 6))
def test_random_programs_touch_what_the_cost_tells(target: Any, first: int) -> None:
    for seed in range(first, first + 6):
        f = drawn(seed)
        ig.schedule.auto(f, device="H200" if target == "cuda" else "cpu")
        assert differences(f, target) == [], seed


def test_threads_that_stand_aside_are_lanes_of_their_warp() -> None:
    """Eight threads share each of ten rows, and the first one of each stores: rows lie in three warps, not in one."""
    f = ig.Fusion("rows")
    f.output(ig.sum(f.input("x", (10, 22)), 1))
    ig.schedule.auto(f)
    assert differences(f, "cuda") == []
    (k,) = ig.cost(ig.emit(f, "cuda")).kernels
    assert k.threads > 32
    assert sum(a.sectors for a in k.accesses if a.kind == "write") == 3


def test_the_oracle_counts() -> None:
    """By hand: two warps that read 256 bytes in vectors of four, and write one element each."""
    source = (
        'def k(buf0, buf1):\n    # buf0: float32[256] input "x"\n    # buf1: float32[64] output "y"\n'
        "    i = u32(cuda.threadIdx.x)\n    t = cuda.local.array(4, np.float32)\n    vload4(t, 0, buf0, i * 4)\n"
        "    if i % 2 == 0:\n        buf1[i] = t[0]\n"
    )
    seen, strange = counted(source, {"k": ((1, 1, 1), (64, 1, 1))}, {"x": np.arange(256.0)})
    own = seen["k"]
    assert sum(own.touched["x", "read"].values()) == len(own.touched["x", "read"]) == 256
    assert len(own.touched["y", "write"]) == 32
    assert sorted(map(len, own.warps.values())) == [4, 4, 16, 16]
    assert strange <= {"local", "array", "threadIdx", "x", "float32"}
