"""The hook for ways out of an illegal inlining: `idgraph.schedule` tries them on a copy before one is offered.

The hook for estimated times: `idgraph.cost` emits and counts a fusion before `auto` chooses among its ways.

The package root says how it is loaded, once, when the first way is to be chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from idgraph.errors import IdGraphError, ScheduleError
from idgraph.ir.device import Device
from idgraph.ir.fusion import Fusion
from idgraph.loading import LOADING

# The error with the step that causes it, and with its ways out as a hint.
Adviser = Callable[[Fusion, ScheduleError], ScheduleError]

_ADVISERS: list[Adviser] = []
_ADVISER_LOADERS: list[Callable[[], object]] = []


def load_adviser_with(loader: Callable[[], object]) -> None:
    """Name a function that registers an adviser; it is called when one is first needed."""
    _ADVISER_LOADERS.append(loader)


def advise_with(adviser: Adviser) -> None:
    """Name the function that tries ways out."""
    _ADVISERS[:] = [adviser]


_IN_SEARCH: ContextVar[bool] = ContextVar("in_search", default=False)


@contextmanager
def search() -> Generator[None]:
    """Errors within are read by a search that tries schedules, not by a user: no ways out are tried for them."""
    token = _IN_SEARCH.set(True)
    try:
        yield
    finally:
        _IN_SEARCH.reset(token)


def advised(fusion: Fusion, error: ScheduleError) -> ScheduleError:
    """The same error at the line of the step that causes it, with the ways out that were tried as its hint.

    An error that names no tensor stays as it is, and so does one within a `search`.
    """
    if not error.subject or _IN_SEARCH.get():
        return error
    with LOADING:
        while _ADVISER_LOADERS:
            _ADVISER_LOADERS.pop()()
    return _ADVISERS[0](fusion, error) if _ADVISERS else error


@dataclass(frozen=True, slots=True)
class Estimate:
    """A fusion as it is emitted: its ``kernels``, ``bytes`` read and written, ``operations`` (of floats, and atomics),
    and its time in microseconds.
    """

    kernels: int
    bytes: int
    operations: int
    time_us: float

    @property
    def moved(self) -> str:
        """The kernels and bytes in words."""
        return f"{self.kernels} kernel{'s' * (self.kernels != 1)}, {self.bytes:,} bytes"

    def __str__(self) -> str:
        return f"{self.time_us:.2f} us, {self.moved}"


# A fusion to schedule, the ways of its gathers by name, a device, and numbers for symbols.
Estimator = Callable[[Fusion, Mapping[str, str] | str, Device, Mapping[str, int]], Estimate]

_ESTIMATORS: list[Estimator] = []
_ESTIMATOR_LOADERS: list[Callable[[], object]] = []


def load_estimator_with(loader: Callable[[], object]) -> None:
    """Name a function that registers an estimator; it is called when one is first needed."""
    _ESTIMATOR_LOADERS.append(loader)


def estimate_with(estimator: Estimator) -> None:
    """Name the function that estimates."""
    _ESTIMATORS[:] = [estimator]


def estimated(fusion: Fusion, ways: Mapping[str, str] | str, device: Device, symbols: Mapping[str, int]) -> Estimate:
    """The cost of ``fusion`` with its gathers taken these ways; its schedule and operations change.

    Raises what scheduling and emitting raise.
    """
    with LOADING:
        while _ESTIMATOR_LOADERS:
            _ESTIMATOR_LOADERS.pop()()
    if not _ESTIMATORS:
        raise IdGraphError("nothing estimates times", hint="import idgraph, which names `idgraph.cost`")
    return _ESTIMATORS[0](fusion, ways, device, symbols)
