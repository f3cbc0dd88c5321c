"""Work of another library that must not stop half-way: an interrupt of the caller leaves it to a thread of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

from idgraph.errors import EmitError

T = TypeVar("T")


@contextlib.contextmanager
def told() -> Generator[None]:
    """An error of the system while numba compiles, which asks for the working directory, is one of ours."""
    try:
        yield
    except OSError as error:
        raise EmitError(
            "numba cannot compile the kernel",
            because=[str(error)],
            hint="the working directory has to exist: os.chdir(...)",
        ) from error


def undisturbed(make: Callable[[], T]) -> T:
    """Return what ``make`` gives, or raise what it raises; Ctrl-C ends the waiting, and ``make`` goes on to its end.

    numba counts what it has registered in generators of the process; an exception inside one ends it, and nothing is
    compiled any more. Python raises what a signal or another thread sends in the caller's thread only.

    >>> undisturbed(lambda: 3)
    3
    """
    done: Future[T] = Future()
    context = copy_context()

    def work() -> None:
        try:
            done.set_result(context.run(make))
        except BaseException as error:  # whatever it is, the caller raises it
            done.set_exception(error)

    try:
        Thread(target=work, name="idgraph compiles").start()
    except RuntimeError:  # no thread begins while Python ends
        return make()
    return done.result()
