"""Programs in numba's simulator, a process each, where the threads of a block take turns.

The simulator's own blocks start all threads at once and ask each in a busy loop whether it waits, so that most of their
time goes into handing Python's lock around. Here one thread runs to its barrier or its end, then another, in a random
order, all of them in one thread of the system.
"""

from __future__ import annotations

import itertools
import os
import random
import runpy
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ORDER = random.Random(0)


def simulated(*asked: str) -> subprocess.CompletedProcess[str]:
    """``python -m MODULE ARGUMENTS``, or ``python -c TEXT``, in the simulator, with what it printed."""
    return subprocess.run(command(*asked), cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)


def command(*asked: str) -> list[str]:
    """The command that `simulated` runs."""
    return [sys.executable, "-m", "tests.emit.turns", *asked]


def environment() -> dict[str, str]:
    """The variables that it needs: numba reads the switch when it is imported."""
    return {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(ROOT)}


class Block:
    """One block of a launch, in the place of numba's `BlockManager`.

    Its threads are greenlets of the thread of the system that launches; the simulator asks that one for the numbers of
    the thread that runs.
    """

    def __init__(self, kernel: Callable[..., None], grid_dim: Any, block_dim: tuple[int, ...], debug: bool) -> None:
        del grid_dim, debug
        self.kernel, self.sizes = kernel, block_dim

    def run(self, grid_point: tuple[int, ...], *args: Any) -> None:
        """Every thread to its end, or the first fault of one."""
        greenlet, dim3 = import_module("greenlet"), import_module("numba.cuda.simulator.kernel").Dim3
        host: Any = threading.current_thread()
        block = greenlet.getcurrent()
        host.blockIdx, host.syncthreads = dim3(*grid_point), block.switch
        waiting = [
            (greenlet.greenlet(lambda: self.kernel(*args)), dim3(*p))
            for p in itertools.product(*map(range, self.sizes))
        ]
        while waiting:  # each thread to its barrier or its end, in a random order
            ORDER.shuffle(waiting)
            for thread, host.threadIdx in waiting:
                thread.switch()  # a fault of the thread is raised here
            waiting = [turn for turn in waiting if not turn[0].dead]


def take_turns() -> None:
    """Use these blocks in this process, which has chosen the simulator."""
    simulator: Any = import_module("numba.cuda.simulator.kernel")
    simulator.BlockManager = Block


if __name__ == "__main__":
    take_turns()
    kind, what, *rest = sys.argv[1:]
    sys.argv = [what, *rest]
    if kind == "-c":
        exec(compile(what, "<asked>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_module(what, run_name="__main__", alter_sys=True)
