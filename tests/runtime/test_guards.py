"""No kernel reads or writes outside of its buffers, on any target; and the guards would see one that did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.runtime.cuda.simulator import Guarded
from tests.emit.turns import simulated
from tests.runtime import guards

torch: Any = pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]
BESIDE = [(True, 4), (True, -4), (False, 4), (False, -4)]
NAMES: Any = pytest.mark.parametrize("case", guards.CASES, ids=lambda c: c.__name__)
SEEN = {True: "writes outside", False: "reads outside"}


def run(*asked: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.runtime.guards", *asked]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.sampled
@NAMES
def test_cpu_kernels_leave_zones_alone(case: Any) -> None:
    assert guards.found(torch, guards.program(case, "cpu")) == ""


@pytest.mark.parametrize(("written", "by"), BESIDE)
def test_zones_see_an_access_beside(written: bool, by: int) -> None:
    assert guards.found(torch, guards.program(guards.turned, "cpu", (written, by))) == SEEN[written]


def test_cpu_kernels_touch_no_page_beside_their_buffers() -> None:
    done = run()
    assert done.returncode == 0, done.stdout[-100:] + done.stderr[-500:]
    assert done.stdout.endswith(f"all {len(guards.CASES)}\n")


@pytest.mark.sampled
@pytest.mark.parametrize(("written", "by"), BESIDE)
def test_pages_see_an_access_beside(written: bool, by: int) -> None:
    done = run("write" if written else "read", str(by))
    assert done.returncode < 0 and "nothing seen" not in done.stdout  # killed by the access


@NAMES
@pytest.mark.parametrize("target", ["python", "numpy"])
def test_interpreted_kernels_stay_inside(case: Any, target: Any) -> None:
    p = guards.program(case, target)
    given = dict(zip((t.name for t in p.fusion.inputs), guards.arrays(p.fusion), strict=True))
    given = {n: guards.as_declared(p.fusion[n].dtype, a) for n, a in given.items()}
    p.run(given, poison=True)  # each address is tested, see below


@pytest.mark.parametrize("target", ["python", "numpy"])
@pytest.mark.parametrize(("written", "by"), BESIDE)
def test_interpreted_kernels_are_told_of_an_access_beside(target: Any, written: bool, by: int) -> None:
    p = guards.program(guards.turned, target, (written, by))
    with pytest.raises(ig.IndexingError, match="is outside its 2145 elements"):
        p.run({"x": np.zeros((33, 65), np.float32)})


def test_the_simulator_refuses_addresses_beside_a_buffer() -> None:
    """NumPy counts negative ones from the end."""
    buffer = np.arange(4.0).view(Guarded)
    for at in (-1, -4, 4, np.int64(-1), 2**40):
        with pytest.raises(IndexError, match="outside a buffer of 4 elements"):
            buffer[at] = buffer[at]
    buffer[3] = buffer[0]
    assert buffer.tolist() == [0.0, 1.0, 2.0, 0.0]


def test_simulated_kernels_stay_inside_and_are_told_of_an_access_beside() -> None:
    done = simulated("-m", "tests.runtime.guards", "simulated")
    assert done.returncode == 0, done.stderr[-500:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told.pop("inside") == ["rotation", "wide_rotation", "rows", "padded", "narrow", "every_third"]
    assert told == {f"{written} {by}": "outside a buffer" for written, by in BESIDE}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@NAMES
def test_device_kernels_leave_zones_alone(case: Any) -> None:
    assert guards.found(torch, guards.program(case, "cuda"), "cuda:0") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("written", "by"), BESIDE)
def test_zones_on_a_device_see_an_access_beside(written: bool, by: int) -> None:
    """In a process of its own: an address below zero may be one far outside, and the device then does no more work."""
    done = run("write" if written else "read", str(by), "cuda:0")
    assert SEEN[written] in done.stdout or "illegal memory access" in done.stderr, done.stdout + done.stderr[-500:]
