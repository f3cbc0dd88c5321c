"""Faults of an access, by code; 0 where nothing is accessed, 1 for a right access.

The answer of an engine for one operation.

Progress of long checks, on stderr and only where that is a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

OUTSIDE_WRITE: Final = 2
ADDRESS: Final = 3
OUTSIDE_READ: Final = 4
ELEMENT: Final = 5
LOOSE: Final = 6
STRICT: Final = 7
UNWRITTEN: Final = 8
SLOT_RANGE: Final = 9
SLOT_ELEMENT: Final = 10
SLOT_EMPTY: Final = 11
LOAD_RANGE: Final = 12
LOAD_BOUNDS: Final = 13
SPREAD: Final = 14
TWICE: Final = 15
NEVER: Final = 16
REDUCED: Final = 17

TEXT: Final = {
    OUTSIDE_WRITE: "writes outside the tensor",
    ADDRESS: "wrong address",
    OUTSIDE_READ: "reads outside the tensor",
    ELEMENT: "reads the wrong element",
    LOOSE: "reads where the operation reads nothing (a missing predicate)",
    STRICT: "does not read what the operation reads (a predicate too strict)",
    UNWRITTEN: "reads where nothing is written",
    SLOT_RANGE: "reads a buffer slot outside the producer's loops",
    SLOT_ELEMENT: "reads a buffer slot that holds another element",
    SLOT_EMPTY: "reads a buffer slot that is never written",
    LOAD_RANGE: "loads an index outside the index tensor",
    LOAD_BOUNDS: "its own load bounds refuse an index that is in range",
    SPREAD: "one accumulator gets terms of several elements",
    TWICE: "writes an element more than once",
    NEVER: "never writes an element",
    REDUCED: "reduces an index more than once, or not at all",
}


@dataclass(frozen=True, slots=True)
class Scan:
    """The first faulty point (row-major over the loops), its fault code and access; ``writes`` counts right points.

    ``seconds`` is the time spent only on points, where an engine can separate it from compiling and copying.
    """

    writes: int
    bad: int | None
    code: int = 0
    place: int = 0
    seconds: float | None = None


Advance = Callable[[int], None]
Progress = Callable[[str, int], AbstractContextManager[Advance]]


def _nothing(_: int) -> None:
    return None


@contextmanager
def silent(_title: str, _total: int) -> Generator[Advance]:
    """No progress is shown."""
    yield _nothing


@contextmanager
def terminal(title: str, total: int) -> Generator[Advance]:
    """A bar on stderr for work that takes a while; nothing where stderr is not a terminal."""
    if total < 50_000_000 or not sys.stderr.isatty():
        yield _nothing
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)

        def advance(count: int) -> None:
            bar.advance(task, count)

        yield advance


@contextmanager
def busy(title: str) -> Generator[Callable[[str], None]]:
    """A moving sign on stderr for work of unknown length; nothing where stderr is not a terminal.

    What it gives takes the name of the step that begins.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415

    with Console(stderr=True).status(escape(title)) as status:
        yield lambda step: status.update(escape(f"{title}: {step}"))
