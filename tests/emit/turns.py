"""Programs in numba's simulator, a process each, where the threads of a block take turns.

The simulator's own blocks start all threads at once and ask each in a busy loop whether it waits, so that most of their
time goes into handing Python's lock around. Here one thread runs to its barrier or its end, then another, in a random
order; a further thread of the system starts only where one waits, so a kernel without barriers needs one for a block.
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


class Turn(threading.Thread):
    """Runs threads of a block, one after the other until one waits; then other turns run the rest."""

    def __init__(self, block: Block) -> None:
        super().__init__(daemon=True)
        self.block = block
        self.mine = threading.Lock()  # free when it is this one's turn
        self.mine.acquire()
        self.threadIdx = self.blockIdx = block.at  # the simulator asks the thread that runs for both

    def run(self) -> None:
        """Threads of the block to their ends."""
        try:
            while self.block.places and not self.block.fault:
                self.threadIdx = self.block.places.pop()
                self.block.work()
        except BaseException as fault:  # told to whoever started the kernel
            self.block.fault = self.block.fault or fault
        self.block.pass_on()

    def syncthreads(self) -> None:
        """Wait until each thread of the block waits or has ended."""
        self.block.waiting.append(self)
        self.block.pass_on()
        self.mine.acquire()
        if self.block.fault:
            raise SystemExit


class Block:
    """One block of a launch, in the place of numba's `BlockManager`."""

    def __init__(self, kernel: Callable[..., None], grid_dim: Any, block_dim: tuple[int, ...], debug: bool) -> None:
        del grid_dim, debug
        self.kernel, self.sizes = kernel, block_dim
        self.waiting: list[Turn] = []  # at the barrier
        self.ready: list[Turn] = []  # may go on behind it
        self.fault: BaseException | None = None
        self.over = threading.Lock()

    def run(self, grid_point: tuple[int, ...], *args: Any) -> None:
        """Every thread to its end, or the first fault of one."""
        dim3 = import_module("numba.cuda.simulator.kernel").Dim3
        self.at, self.work = dim3(*grid_point), lambda: self.kernel(*args)
        self.places = [dim3(*p) for p in itertools.product(*map(range, self.sizes))]
        ORDER.shuffle(self.places)
        self.over.acquire()
        self.pass_on()
        self.over.acquire()
        if self.fault:
            raise self.fault

    def pass_on(self) -> None:
        """Give the turn to a thread that has not started, else to one behind the barrier, else open the barrier."""
        if self.places and not self.fault:
            Turn(self).start()
            return
        if not self.ready:
            self.ready, self.waiting = self.waiting, self.ready
            ORDER.shuffle(self.ready)
        if self.ready:
            self.ready.pop().mine.release()
        else:
            self.over.release()


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
