"""The budget of one simplification: an expression that needs more stays as it is and says so.

Sums that share parts may grow with every level of // and % above them. The unit is a term that a rule looks at, so the
budget is the same on every machine.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

BUDGET: Final = 50_000  # terms of sums that one outermost call builds: about half a second; few take over 1 000


class BudgetExceeded(Exception):
    """The budget is exceeded; the call that began the work catches it."""


class _Meter(threading.local):
    """The budget left to the call that is under way in one thread; None between calls."""

    left: int | None = None


meter: Final = _Meter()


def charge(terms: int) -> None:
    """Count work; raises `BudgetExceeded` in a call whose budget it exceeds."""
    left = meter.left
    if left is not None:
        meter.left = left = left - terms
        if left < 0:
            raise BudgetExceeded


@contextmanager
def budget() -> Generator[bool]:
    """Yield True with a budget for the call; False inside of a call that has one, whose budget is then shared."""
    if meter.left is not None:
        yield False
        return
    meter.left = BUDGET
    try:
        yield True
    finally:
        meter.left = None


@contextmanager
def at_most() -> Generator[None]:
    """One budget for all that is asked inside; what exceeds it ends the block, and what was found so far stands."""
    with budget() as is_outermost:
        try:
            yield
        except BudgetExceeded:
            if not is_outermost:
                raise
