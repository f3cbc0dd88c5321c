"""Locks of the whole process: one around every import that waits for its first use, one around syntax trees, one for
the call that has Python's full collections wait.

Python locks one module at a time: two threads that load two packages, each of which needs the other's half, may see
one that is half made. A function that imports a room when it is first called does so under `LOADING`, and so does what
loads a large package behind it (numba).
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Lock, RLock
from types import ModuleType
from typing import Final, TypeVar

LOADING: Final = RLock()
TRIES: Final = 16
NEVER: Final = 1 << 30  # collections of the middle generation between two full ones
_TREES: Final = Lock()
_FULL: Final = Lock()
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


@contextmanager
def keeping(many: bool = True) -> Generator[None]:
    """Within, Python's collector looks for cycles among young objects only: for a call that makes ``many`` objects, all
    of which stay. A full collection goes through every object there is and would find none of them to free; it takes
    place afterwards. One call at a time does this, so that threads that overlap cannot put it off for ever.

    >>> with keeping():
    ...     gc.get_threshold()[2] == NEVER
    True
    >>> gc.get_threshold()[2] == NEVER
    False
    """
    if not many or not _FULL.acquire(blocking=False):
        yield
        return
    try:
        young, middle, full = gc.get_threshold()
        gc.set_threshold(young, middle, NEVER)
        try:
            yield
        finally:
            if gc.get_threshold() == (young, middle, NEVER):  # nobody has chosen others meanwhile
                gc.set_threshold(young, middle, full)
    finally:
        _FULL.release()
