"""Locks of the whole process: one around every import that waits for its first use, one around syntax trees.

Python locks one module at a time: two threads that load two packages, each of which needs the other's half, may see
one that is half made. A function that imports a package when it is first called does so under `LOADING`, and so does
what loads a large package behind it (numba).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from threading import Lock, RLock
from types import ModuleType
from typing import Final, TypeVar

LOADING: Final = RLock()
TRIES: Final = 16
_TREES: Final = Lock()
T = TypeVar("T")


def load(module: str) -> ModuleType:
    """The module of that name, loaded by one thread while others wait.

    >>> load("idgraph.errors").__name__
    'idgraph.errors'
    """
    with LOADING:
        return importlib.import_module(module)


def with_trees(make: Callable[[], T]) -> T:
    """The value of ``make``, which makes or compiles syntax trees of Python: here one thread does so at a time.

    CPython before 3.13 counts the depth of all threads' syntax trees in one number and raises `SystemError` where two
    are made at once: ``make`` is called again, `TRIES` times in all, where a thread of others made one meanwhile.

    >>> import ast
    >>> with_trees(lambda: ast.unparse(ast.parse("x  +  1")))
    'x + 1'
    """
    for _ in range(TRIES - 1):
        try:
            with _TREES:
                return make()
        except SystemError as e:
            if "recursion depth" not in str(e):
                raise
    with _TREES:
        return make()
