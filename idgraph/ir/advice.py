"""The hook for ways out of an illegal inlining: `idgraph.schedule` tries them on a copy before one is offered.

The package root says how it is loaded, once, when the first such error is shown.
"""

from __future__ import annotations

from collections.abc import Callable

from idgraph.errors import ScheduleError
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


def advised(fusion: Fusion, error: ScheduleError) -> ScheduleError:
    """The same error at the line of the step that causes it, with the ways out that were tried as its hint.

    An error that names no tensor stays as it is.
    """
    if not error.subject:
        return error
    with LOADING:
        while _ADVISER_LOADERS:
            _ADVISER_LOADERS.pop()()
    return _ADVISERS[0](fusion, error) if _ADVISERS else error
