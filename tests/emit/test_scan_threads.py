"""Scans on the threads of a block: every address and value, on targets that run the loops in order and on threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig

ROOT = Path(__file__).resolve().parents[2]
OPS = ("cumsum", "cumprod", "cummax", "cummin")


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


SIMULATED = """
import idgraph as ig
from tests.emit.test_scan_threads import OPS, scan
for op in OPS:
    for shape, dim in (((3, 300), 1), ((70, 5), 0), ((2, 40, 9), 1), ((5, 33), 1), ((600,), 0)):
        f = scan(op, shape, dim, op == "cumsum")
        ig.schedule.auto(f)
        report = ig.validate(f, target="cuda")
        assert report.ok, (op, shape, dim, str(report))
print("all right")
"""


@pytest.mark.slow
def test_threads_of_the_simulator() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIMULATED], cwd=ROOT, env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "all right", done.stderr[-2000:]
