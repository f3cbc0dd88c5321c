"""The collector of garbage while a fusion is planned: thousands of objects that all stay are not looked through."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

_LOCK = Lock()
_PAUSES: list[bool] = []  # one for each call that pauses it now; the first says whether it ran before


@contextmanager
def paused() -> Generator[None]:
    """Within, no cyclic garbage is collected; calls may be nested, and made by several threads.

    >>> import gc
    >>> with paused():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    with _LOCK:
        _PAUSES.append(_PAUSES[0] if _PAUSES else gc.isenabled())
        gc.disable()
    try:
        yield
    finally:
        with _LOCK:
            ran = _PAUSES.pop()
            if ran and not _PAUSES:
                gc.enable()
