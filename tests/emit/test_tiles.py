"""Transposes on a core: blocks where the lines of a column have no room in the cache, every element once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.passes import cache_blocking as tiles

CASES: dict[str, tuple[tuple[int, ...], Callable[[ig.Tensor], ig.Tensor], str, bool]] = {
    "even": ((512, 4096), lambda x: ig.permute(x, (1, 0)) * 2.0, "float32", True),
    "odd": ((1003, 517), lambda x: ig.permute(x, (1, 0)), "float32", True),
    "long": ((9001, 33), lambda x: ig.permute(x, (1, 0)), "float32", True),
    "few rows": ((600, 16), lambda x: ig.permute(x, (1, 0)), "float32", False),
    "several": ((3, 700, 45), lambda x: ig.permute(x, (0, 2, 1)), "float64", True),
    "pictures": ((2, 19, 23, 70), lambda x: ig.permute(x, (0, 3, 1, 2)), "float32", True),
    "bytes": ((300, 400), lambda x: ig.permute(x, (1, 0)), "uint8", True),
    "powers of two": ((64, 1024), lambda x: ig.permute(x, (1, 0)), "float16", True),
    "lines have room": ((128, 257), lambda x: ig.permute(x, (1, 0)), "float32", False),
    "no transpose": ((600, 700), lambda x: x * 2.0, "float32", False),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_transposes(name: str) -> None:
    shape, made, dtype, blocked = CASES[name]
    f = ig.Fusion("f")
    given: Any = dtype
    f.output(made(f.input("x", shape, dtype=given)))
    t = f.outputs[0]
    t.set_allocation(t.logical)
    x = np.random.default_rng(0).integers(0, 200, shape).astype(dtype)
    want = ig.emit(f, "numpy").run({"x": x})[t.name]
    ig.schedule.auto(f, device="cpu")
    p = ig.emit(f, "cpu")
    assert np.array_equal(p.run({"x": x}, poison=True)[t.name], want)
    assert (tiles.AT in str(p.kernels[0])) is blocked
    assert "shared" not in str(p.kernels[0])
    report = ig.validate(f, target="cpu")
    assert report.ok
    assert report.kernels is not None
    assert report.kernels.exhaustive


def test_device_without_cores_has_tiles_in_shared_memory() -> None:
    f = ig.Fusion("f")
    t = f.output(ig.permute(f.input("x", (1024, 1024)), (1, 0)))
    t.set_allocation(t.logical)
    ig.schedule.auto(f)
    assert any(u.memory == "shared" for u in f.tensors)


def test_runs_of_rows() -> None:
    assert tiles.run_of([], 12) == 12
    assert tiles.run_of([6, 4], 12) == 2
