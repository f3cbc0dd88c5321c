"""Fusions and graphs are many small objects that all live: looking for garbage among them finds nothing, and costs."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


def age() -> None:
    """What was made lately counts as old, so only full collections look at it; no object is visited for that.

    What the program itself has frozen stays frozen, so then nothing is done.
    """
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()


@contextmanager
def no_collection() -> Generator[None, None, None]:
    """Hold the cyclic garbage collector off, where it was on; what was made meanwhile counts as old afterwards.

    Else the very next allocation would walk through all of it as the youngest generation, a fifth of a graph's cost.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            age()
            gc.enable()
