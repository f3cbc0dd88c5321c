"""Random fusions of permuted, padded and sliced inputs: values as computed plainly, decisions that no name moves."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.ir import DType
from idgraph.ir.clone import clone_fusion
from tests.emit.thread_runner import run_threads

SIZES = (1, 3, 5, 7, 16, 31, 33, 45, 64, 101)
LONG = (101, 515, 1003, 1024)


@dataclass(slots=True)
class Spec:
    """The parts of a fusion: inputs as (shape, strides, offset), and how they are put together."""

    seed: int
    dtype: DType
    inputs: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = field(
        default_factory=dict[str, tuple[tuple[int, ...], tuple[int, ...], int]]
    )
    shape: tuple[int, ...] = ()
    slices: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])


def spec(seed: int) -> Spec:
    """Inputs of one shape in memory of their own, a slice of a wider one, a broadcast one."""
    r = random.Random(seed)
    made = Spec(seed, r.choice(("float32", "float16", "float64", "int32")))
    rank = r.choice((1, 2, 2, 3))
    made.shape = tuple(r.choice(LONG if rank == 1 else SIZES) for _ in range(rank))
    made.inputs["x"] = _memory(r, made.shape)
    if r.random() < 0.7:
        made.inputs["y"] = _memory(r, made.shape)
    if r.random() < 0.4:
        k = r.randrange(rank)
        more = r.choice((1, 2, 5))
        made.slices["z"] = (k, r.randrange(more + 1))
        made.inputs["z"] = _memory(r, tuple(n + more * (a == k) for a, n in enumerate(made.shape)))
    if r.random() < 0.5:
        made.inputs["b"] = _memory(r, tuple(n if r.random() < 0.5 else 1 for n in made.shape))
    return made


def _memory(r: random.Random, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    order = list(range(len(shape)))
    if r.random() < 0.5:
        r.shuffle(order)
    strides, step = [0] * len(shape), 1
    for k, a in reversed(list(enumerate(order))):
        strides[a] = step
        step *= shape[a] + (r.choice((0, 0, 1, 3, 8)) if k else 0)
    return shape, tuple(strides), r.choice((0, 0, 0, 1, 4))


def build(s: Spec, names: Mapping[str, str] | None = None, backwards: bool = False) -> ig.Fusion:
    """The fusion; inputs under other names, or declared in another order, where asked for."""
    r, f = random.Random(s.seed + 1), ig.Fusion("f")
    given: dict[str, ig.Tensor] = {}
    for name in reversed(s.inputs) if backwards else s.inputs:
        shape, strides, offset = s.inputs[name]
        given[name] = f.input((names or {}).get(name, name), shape=shape, dtype=s.dtype, strides=strides, offset=offset)
    t = given["x"] + given.get("y", given["x"]) * 2
    if "z" in given:
        k, start = s.slices["z"]
        t = t + given["z"][tuple(slice(start, start + n) if a == k else slice(None) for a, n in enumerate(s.shape))]
    if "b" in given:
        t = t * given["b"]
    outputs = [ig.permute(t, *r.sample(range(t.ndim), t.ndim)) if t.ndim > 1 and r.random() < 0.3 else t]
    if r.random() < 0.4:
        outputs.append(given["x"] > t)
    if r.random() < 0.3:
        outputs.append(ig.sum(t, r.randrange(t.ndim)))
    f.output(*outputs)
    return f


def check(seed: int) -> None:
    """Values on the threads of a block, and that decisions are those of the memory."""
    s = spec(seed)
    f = build(s)
    plain = clone_fusion(f)
    ig.schedule.auto(f)
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {
        t.name: rng.integers(-4, 5, size=[int(n) for n in t.shape]).astype(t.dtype) for t in f.inputs
    }
    want = ig.emit(plain, "numpy").run(arrays)
    found = run_threads(ig.emit(f, "cuda"), arrays, seed=seed)
    for name, x in want.items():
        assert np.allclose(np.asarray(found[name], np.float64), np.asarray(x, np.float64), rtol=1e-2), (seed, name)
    mine, loops = [d.strides for d in ig.layout.infer(plain).values()], _scheduled(f)
    for other in (build(s, {n: f"other_{n}" for n in s.inputs}), build(s, backwards=True)):
        assert [d.strides for d in ig.layout.infer(other).values()] == mine, seed
        ig.schedule.auto(other)
        assert _scheduled(other) == loops, seed


def _scheduled(f: ig.Fusion) -> list[list[tuple[str, str]]]:
    """The loops of each output, and the order in which its axes lie."""
    loops = [[(str(d.extent), d.parallel) for d in t.loop] for t in f.outputs]
    return [*loops, *([(str(t.axes.index(d)), "") for d in t.allocation if d in t.axes] for t in f.outputs)]


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(12))
def test_values_and_decisions(seed: int) -> None:
    check(seed)


@pytest.mark.nightly
def test_two_thousand() -> None:
    for seed in range(12, 2000):
        check(seed)


if __name__ == "__main__":  # on all cores: python -m tests.property.test_follow_memory FIRST LAST
    first, last = map(int, sys.argv[1:3])
    with ProcessPoolExecutor() as pool:
        print(sum(1 for _ in pool.map(check, range(first, last), chunksize=8)), "fusions agree")
