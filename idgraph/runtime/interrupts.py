"""Work of another library that must not stop half-way: an interrupt of the caller leaves it to a thread of its own.

Names of devices, as torch writes them: "cpu", "cuda:1".
"""

from __future__ import annotations

import _imp
import contextlib
import sys
from _thread import start_new_thread
from collections.abc import Callable, Generator
from contextvars import copy_context
from threading import Lock, Thread
from typing import Any, Final, TypeVar, cast

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


COMPILING: Final = "idgraph compiles"  # the name of the threads that do so


def run_uninterruptible(make: Callable[[], T]) -> T:
    """Return what ``make`` gives, or raise what it raises; Ctrl-C ends the waiting, and ``make`` goes on to its end.

    numba counts what it has registered in generators of the process; an exception inside one ends it, and nothing is
    compiled any more. Python raises what a signal or another thread sends in the caller's thread only. The caller
    waits for a plain lock: an interrupt inside a method of `threading.Condition` can leave its lock held, and the
    thread that would say "done" waits for that lock until the process ends.

    >>> run_uninterruptible(lambda: 3)
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

    thread = Thread(target=work, name=COMPILING, daemon=False)  # Python's end waits for it

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


Device = object  # "cuda:1", 1, torch.device("cuda", 1), or None


def device_text(device: Device) -> str | None:
    """A device by its name, its number among the CUDA devices, or as torch has it; None stays None.

    A CUDA device without a number is the current one. Raises `EmitError` for anything else.

    >>> device_text("cuda:1"), device_text(1), device_text("cpu"), device_text(None)
    ('cuda:1', 'cuda:1', 'cpu', None)
    """
    if device is None:
        return None
    if isinstance(device, int) and not isinstance(device, bool) and device >= 0:
        return f"cuda:{device}"
    text = str(device) if isinstance(device, str) or type(device).__module__ == "torch" else ""
    kind, colon, number = text.partition(":")
    if kind == "cpu" and number in ("", "0"):
        return "cpu"
    if kind == "cuda" and (number.isascii() and number.isdecimal() if colon else True):
        return f"cuda:{int(number) if colon else _current()}"
    raise EmitError(f"{device!r} is not a device", hint='"cuda:1", its number 1, or torch.device("cuda", 1)')


def number_of(device: str) -> int:
    """The number of a CUDA device.

    >>> number_of("cuda:1")
    1
    """
    return int(device.partition(":")[2] or 0)


def _current() -> int:
    """The number of the device that torch works on, where that is loaded and has begun to."""
    torch: Any = cast("Any", sys.modules.get("torch"))
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else 0
