"""A tensor in shared memory between two nests of one block that share no loop: one kernel with a barrier."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from tests.emit.turns import simulated


def chain(seed: int) -> tuple[ig.Fusion, Any, Any]:
    """Row operations of which each reads the one before at other places, one block of threads, in shared memory."""
    r = random.Random(seed)
    rows, columns = r.choice((1, 2, 3)), r.choice((4, 8, 15))
    f = ig.Fusion("f")
    value = np.linspace(-1, 1, rows * columns, dtype=np.float32).reshape(rows, columns)
    t, want = f.input("x", shape=(rows, columns)), value
    kinds = r.choices(("flip", "roll", "transpose", "slice"), k=r.randrange(1, 4))
    for kind in kinds:
        t, want = ig.sin(t), np.sin(want)
        _on_threads(t, r)
        t.set_memory("shared")
        match kind:
            case "flip":
                t, want = ig.flip(t, 1), np.flip(want, 1)
            case "roll":
                t, want = ig.roll(t, 1, 1), np.roll(want, 1, 1)
            case "transpose":
                t, want = t.T, want.T
            case _:
                t, want = t[:, 1:], want[:, 1:]
        moved = t
        t, want = t + 1.0, want + 1
        _on_threads(t, r)
        _like(moved, t)
    f.output(t)
    return f, value, want


def _on_threads(t: ig.Tensor, r: random.Random) -> None:
    at = r.randrange(len(t.loop))
    t.parallelize(at, "threadIdx.x")


def _like(moved: ig.Tensor, reader: ig.Tensor) -> None:
    for p, d in enumerate(reader.loop):
        if d.parallel != "serial":
            moved.parallelize(p, d.parallel)
    moved.inline(len(reader.loop))


@pytest.mark.parametrize("seed", range(12))
def test_one_kernel_with_barriers(seed: int) -> None:
    f, value, want = chain(seed)
    program = ig.emit(f, "cuda")
    stages = sum(t.memory == "shared" for t in f.tensors)
    assert len(program.kernels) == 1 and program.source.count("syncthreads()") >= stages
    for target in ("python", "numpy"):
        (got,) = ig.emit(f, target).run({"x": value}).values()  # pyright: ignore[reportArgumentType]
        assert np.allclose(got, want, atol=1e-6)
    assert ig.validate(f).ok


def test_values_in_the_simulator() -> None:
    found = simulated("-m", "tests.emit.test_shared_between_nests")
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("memory", ["shared", "local"])
def test_another_kernel_is_refused(memory: Any) -> None:
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(4, 8)))
    u = f.output(ig.exp(t))
    t.set_memory(memory)
    t.parallelize(1, "threadIdx.x")
    u.parallelize(1, "threadIdx.x")
    if memory == "shared":
        t.parallelize(0, "blockIdx.x")
        u.parallelize(0, "blockIdx.x")
    with pytest.raises(ig.ScheduleError, match="read in another kernel") as told:
        ig.emit(f, "cuda")
    assert "one block" in str(told.value)


def main() -> None:
    """Values of all seeds, in the simulator."""
    for seed in range(12):
        f, value, want = chain(seed)
        for _ in range(3):
            (got,) = ig.emit(f, "cuda").run({"x": value}).values()
            assert np.allclose(np.asarray(got), want, atol=1e-6), seed


if __name__ == "__main__":
    main()
