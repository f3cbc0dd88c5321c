"""One lock around every import that waits for its first use.

Python locks one module at a time: two threads that load two packages, each of which needs the other's half, may see
one that is half made. A function that imports a room when it is first called does so under `LOADING`, and so does what
loads a large package behind it (numba).
"""

from __future__ import annotations

import importlib
from threading import RLock
from types import ModuleType
from typing import Final

LOADING: Final = RLock()


def load(module: str) -> ModuleType:
    """The module of that name, loaded by one thread while others wait.

    >>> load("idgraph.errors").__name__
    'idgraph.errors'
    """
    with LOADING:
        return importlib.import_module(module)
