"""Blocks whose threads take turns: barriers hold, a missing one shows, a fault of one thread is told."""

from __future__ import annotations

import json

import pytest

from tests.emit.turns import simulated

pytest.importorskip("numba_cuda")

EXCHANGED = """
import json
import numpy as np
from numba import cuda

@cuda.jit
def turned(out, barrier, bad):
    kept = cuda.shared.array(64, "int32")
    t, b = cuda.threadIdx.x, cuda.blockIdx.x
    for k in range(3):
        kept[t] = 100 * b + t + k
        if barrier:
            cuda.syncthreads()
        out[b, k, t] = kept[63 - t]
        if barrier:
            cuda.syncthreads()
        if t < bad:
            raise ValueError("thread %d" % t)

def run(barrier, bad=0):
    out = np.zeros((2, 3, 64), np.int32)
    turned[2, 64](out, barrier, bad)
    return out

want = 100 * np.arange(2)[:, None, None] + np.arange(3)[:, None] + np.arange(63, -1, -1)
try:
    run(True, 1)
    told = ""
except ValueError as error:
    told = str(error)
print(json.dumps([bool((run(True) == want).all()), bool((run(False) == want).all()), told]))
"""


def test_barriers_hold_and_a_missing_one_shows() -> None:
    done = simulated("-c", EXCHANGED)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [True, False, "thread 0"]
