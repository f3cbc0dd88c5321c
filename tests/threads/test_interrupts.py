"""An interrupt while numba compiles: the caller stops at once, and later programs compile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = """
import signal, sys, time
import numpy as np
import idgraph as ig

X = np.arange(1.0, 9.0, dtype=np.float32)

def run(factor):
    f = ig.Fusion("f")
    f.output(ig.softmax(f.input("x", shape=(8,)) * factor, 0))
    return ig.compile(f, "cpu")(X)
"""
INSIDE = """
def trace(frame, event, arg):
    if frame.f_code.co_name == "stream_list":  # a generator of numba's for the whole process
        raise KeyboardInterrupt
    return trace

sys.settrace(trace)
try:
    run(2.0)
except KeyboardInterrupt:
    pass
sys.settrace(None)
"""
BY_A_SIGNAL = """
def interrupted(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupted)
import numba  # so that the signal comes while it compiles
times = []
for k in range(8):
    signal.setitimer(signal.ITIMER_REAL, 0.03 * (k + 1))
    try:
        run(2.0 + k)
    except KeyboardInterrupt:
        times.append(k)
    signal.setitimer(signal.ITIMER_REAL, 0)
assert times
"""
LATER = """
wanted = np.exp(X * 20.0 - 160.0)
np.testing.assert_allclose(run(20.0), wanted / wanted.sum(), rtol=1e-5)
"""


@pytest.mark.parametrize("interrupt", [INSIDE, BY_A_SIGNAL], ids=["inside", "by a signal"])
def test_programs_compile_after_an_interrupt(interrupt: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAMS + interrupt + LATER],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
