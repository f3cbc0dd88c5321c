"""Scans on the threads of a block: every address and value, on targets that run the loops in order and on threads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from tests.emit.turns import simulated

OPS = ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")


def scan(op: str, shape: tuple[int, ...], dim: int, around: bool) -> ig.Fusion:
    """A scan, alone or between pointwise operations."""
    f = ig.Fusion("scan")
    x = f.input("x", shape)
    t = getattr(ig, op)(x * 0.5 if around else x, dim)
    f.output(ig.maximum(t, -3.0) + x if around else t)
    return f


@given(
    st.sampled_from(OPS),
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from(["python", "numpy"]),
)
@settings(deadline=None, max_examples=15)
def test_auto_is_right_along_any_axis(op: str, shape: list[int], dim: int, around: bool, target: str) -> None:
    f = scan(op, tuple(shape), dim % len(shape), around)
    ig.schedule.auto(f)
    assert len(ig.emit(f, "cuda").kernels) == 1
    report = ig.validate(f, target=target)  # type: ignore[arg-type]
    assert report.ok, str(report)


@pytest.mark.parametrize(("n", "threads", "lanes"), [(100, 8, 4), (64, 16, 4), (7, 4, 1), (33, 32, 1)])
def test_steps_threads_lanes(n: int, threads: int, lanes: int) -> None:
    f = scan("cumsum", (3, n), 1, False)
    t = f.outputs[0]
    t.split(1, lanes).split(1, threads).parallelize(2, "threadIdx.x").parallelize(3, "vectorize")
    (kernel,) = ig.emit(f, "cuda").kernels
    assert "scan" in kernel.passes
    kernel.verify()
    for target in ("python", "numpy", "cpu"):
        assert ig.validate(f, target=target).ok  # type: ignore[arg-type]


def expanded() -> ig.Fusion:
    """A scan of an axis merged of an expanded one, beside an axis of one element: `auto` puts that one innermost."""
    f = ig.Fusion("scan")
    x, index = f.input("x", (1, 1, 5)), f.input("index", (1, 3, 5), dtype="int32")
    t = ig.expand(ig.unsqueeze(ig.take_along_dim(x, index, 1), 3), (1, 3, 5, 3))
    f.output(ig.cumsum(ig.reshape(t, 1, 3, 15), 2))
    ig.schedule.auto(f)
    return f


def beside_one(way: str) -> ig.Fusion:
    """A scan on threads around a loop of one step."""
    f = scan("cumsum", (8, 1), 0, False)
    f.outputs[0].parallelize(0, "threadIdx.y").parallelize(1, way)
    return f


@pytest.mark.parametrize("make", [expanded, lambda: beside_one("threadIdx.x"), lambda: beside_one("serial")])
def test_a_loop_of_one_step_inside_is_none(make: Callable[[], ig.Fusion]) -> None:
    f = make()
    kernel = ig.emit(f, "cuda").kernels[-1]
    assert "scan" in kernel.passes
    kernel.verify()
    for target in ("python", "numpy", "cpu"):
        report = ig.validate(f, target=target)  # type: ignore[arg-type]
        assert report.ok, str(report)


SIMULATED = """
import idgraph as ig
from tests.emit.test_scan_threads import OPS, beside_one, expanded, scan
for f in (expanded(), beside_one("threadIdx.x")):
    assert ig.validate(f, target="cuda").ok
SHAPES = (((3, 300), 1), ((70, 5), 0), ((2, 40, 9), 1), ((5, 33), 1), ((600,), 0))
for n, op in enumerate(OPS):
    for k, (shape, dim) in enumerate(SHAPES):
        if EVERY or n == 0 or k == n:  # an operation differs in how two values are combined, a shape in the loops
            f = scan(op, shape, dim, op == "cumsum")
            ig.schedule.auto(f)
            report = ig.validate(f, target="cuda")
            assert report.ok, (op, shape, dim, str(report))
print("all right")
"""


@pytest.mark.slow
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_threads_of_the_simulator(every: bool) -> None:
    """Each operation and each shape; at night each with each."""
    done = simulated("-c", f"EVERY = {every}\n{SIMULATED}")
    assert done.stdout.strip() == "all right", done.stderr[-2000:]
