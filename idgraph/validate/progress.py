"""Progress of long checks, on stderr and only where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager

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
def busy(title: str) -> Generator[None]:
    """A moving sign on stderr for work of unknown length; nothing where stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415

    with Console(stderr=True).status(title):
        yield
