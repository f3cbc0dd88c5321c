"""Work of another library that must not stop half-way: an interrupt of the caller leaves it to a thread of its own."""

from __future__ import annotations

import _imp
import contextlib
from _thread import start_new_thread
from collections.abc import Callable, Generator
from contextvars import copy_context
from threading import Lock, Thread
from typing import TypeVar

from idgraph.errors import EmitError

T = TypeVar("T")


@contextlib.contextmanager
def signal_safe() -> Generator[None]:
    """An error of the system while numba compiles, which asks for the working directory, is one of ours."""
    try:
        yield
    except OSError as error:
        raise EmitError(
            "numba cannot compile the kernel",
            because=[str(error)],
            hint="the working directory has to exist: os.chdir(...)",
        ) from error


def mend_imports() -> None:
    """Release the interpreter's import lock where this thread kept it: an interrupt inside an import can leave it held,
    and another thread that imports then waits for ever. Code of ours never runs while it is held.

    >>> mend_imports()
    """
    with contextlib.suppress(RuntimeError):  # this thread does not hold it
        while True:
            _imp.release_lock()


def run_uninterruptible(make: Callable[[], T]) -> T:
    """Return what ``make`` gives, or raise what it raises; Ctrl-C ends the waiting, and ``make`` goes on to its end.

    numba counts what it has registered in generators of the process; an exception inside one ends it, and nothing is
    compiled any more. Python raises what a signal or another thread sends in the caller's thread only. The caller
    waits for a plain lock: an interrupt inside a method of `threading.Condition` can leave its lock held, and the
    thread that would say "done" waits for that lock until the process ends.

    >>> undisturbed(lambda: 3)
    3
    """
    context = copy_context()
    made: list[T] = []
    raised: list[BaseException] = []
    ended = Lock()
    ended.acquire()

    def work() -> None:
        try:
            made.append(context.run(make))
        except BaseException as error:  # whatever it is, the caller raises it
            raised.append(error)
        ended.release()

    thread = Thread(target=work, name="idgraph compiles", daemon=False)  # Python's end waits for it

    def begin() -> None:  # `Thread.start` waits for a condition
        try:
            thread.start()
        except RuntimeError:  # no thread begins while Python ends
            work()

    mend_imports()
    try:
        start_new_thread(begin, ())
    except RuntimeError:
        return make()
    ended.acquire()
    if raised:
        raise raised[0]
    return made[0]
