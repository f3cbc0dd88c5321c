"""An interrupt while numba compiles: the caller stops at once, and later programs compile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from idgraph.runtime.interrupts import run_uninterruptible

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

run(1.0)  # so that the signal comes while a program compiles, not while the rooms are imported
signal.signal(signal.SIGALRM, interrupted)
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


def told(program: str) -> str:
    """Printed by a process of its own, which has to end well."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.sampled
@pytest.mark.parametrize("interrupt", [INSIDE, BY_A_SIGNAL], ids=["inside", "by a signal"])
def test_programs_compile_after_an_interrupt(interrupt: str) -> None:
    told(PROGRAMS + interrupt + LATER)


IMPORT_LOCK_HELD = """
import _imp
from idgraph.runtime.interrupts import run_uninterruptible

def compiles():
    import colorsys  # nobody has imported it yet
    return colorsys.__name__

_imp.acquire_lock()  # an interrupt inside importlib leaves it so
_imp.acquire_lock()
assert "colorsys" not in sys.modules
assert run_uninterruptible(compiles) == "colorsys"
"""


def test_an_import_that_was_interrupted_keeps_no_lock_from_the_compiling_thread() -> None:
    told(PROGRAMS + IMPORT_LOCK_HELD)


@pytest.mark.parametrize("error", [KeyError("k"), KeyboardInterrupt(), SystemExit(3)])
def test_errors_of_the_work_are_the_callers(error: BaseException) -> None:
    def make() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        run_uninterruptible(make)
    assert caught.value is error


def test_python_ends_when_the_work_has_ended() -> None:
    slow = """
import signal, time
from idgraph.runtime.interrupts import run_uninterruptible

def interrupted(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupted)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    run_uninterruptible(lambda: (time.sleep(1.5), print("worked", flush=True)))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    assert told(slow).split() == ["interrupted", "worked"]
