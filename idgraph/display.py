"""Where pictures and tables plug in: `idgraph.viz` registers its renderers here, so that nothing shown imports it.

The package root says how it is loaded, once, when the first picture or table is asked for.

A class that derives from `Shown` displays itself in notebooks; its text form is everybody else's.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from idgraph.errors import IdGraphError
from idgraph.loading import LOADING


class Printer(Protocol):
    """IPython's pretty printer, as far as it is used here."""

    def text(self, text: str, /) -> None: ...


_RENDERERS: dict[str, Callable[..., str]] = {}
_DISPLAYS: dict[str, Callable[[object], str | None]] = {}
_LOADERS: list[Callable[[], object]] = []


def load_with(loader: Callable[[], object]) -> None:
    """Name a function that registers renderers and displays; it is called when one that is missing is asked for."""
    _LOADERS.append(loader)


def _load_displays() -> None:
    with LOADING:  # a thread that finds the list empty waits until what was in it is loaded
        while _LOADERS:
            _LOADERS.pop()()


def register_renderer(kind: str, renderer: Callable[..., str]) -> None:
    """Name a function that draws an object as text of ``kind`` ("dot", "svg", "html")."""
    _RENDERERS[kind] = renderer


def register_display(kind: str, display: Callable[[object], str | None]) -> None:
    """Name the function that notebooks show an object with, as "svg" or "html"; None where it has no such form."""
    _DISPLAYS[kind] = display


def render(kind: str, what: object, **options: object) -> str:
    """Draw ``what``; raises where no renderer is loaded."""
    if kind not in _RENDERERS:
        _load_displays()
    renderer = _RENDERERS.get(kind)
    if renderer is None:
        raise IdGraphError(f"no {kind} renderer is loaded", hint="import idgraph.viz")
    return renderer(what, **options)


def show(text: str, language: str = "python") -> None:
    """Print text, in the colours of ``language`` where standard output is a terminal."""
    sys.stdout.write(render("terminal", text, language=language) + "\n")


def write_atomically(place: Path, text: str) -> None:
    """Write a file as a whole: where that fails (a full disk, an interrupt) what stood there still does.

    What is not a plain file (a pipe, /dev/stdout) is written as it is; a pipe that nobody reads is an error. Raises
    OSError.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "a.svg", "<svg/>")
    ...     [(p.name, p.read_text()) for p in Path(folder).iterdir()]
    [('a.svg', '<svg/>')]
    """
    data, real = text.encode("utf-8", "replace"), Path(os.path.realpath(place))
    if real.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(place))
    if real.exists() and not real.is_file():
        with open(real, "wb", opener=_open_nonblocking_pipe) as stream:
            os.set_blocking(stream.fileno(), True)
            stream.write(data)
        return
    beside = real.with_name(f".{real.name[:40]}.{os.urandom(6).hex()}")
    try:
        with beside.open("xb") as stream:
            if real.exists():
                beside.chmod(real.stat().st_mode & 0o7777)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(real)
    except BaseException as failure:
        with suppress(OSError):  # a missing folder, or a file for one
            beside.unlink(missing_ok=True)
        if isinstance(failure, OSError) and failure.filename == str(beside):
            failure.filename = str(place)  # a missing folder: the caller knows no name but this one
        raise


def _open_nonblocking_pipe(place: str, flags: int) -> int:
    """Open without waiting for the reader of a pipe."""
    return os.open(place, flags | os.O_NONBLOCK)


class Shown:
    """A base for objects that show themselves in a notebook, as a picture or a table; as text where that cannot be.

    The two methods are the ones that IPython, and every front end that follows it, asks for.

    >>> class Thing(Shown):
    ...     pass
    >>> Thing()._repr_svg_() is None, Thing()._repr_html_() is None
    (True, True)
    """

    __slots__ = ()

    def _repr_svg_(self) -> str | None:
        return _render("svg", self)

    def _repr_html_(self) -> str | None:
        return _render("html", self)


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table for a notebook: ``good`` colours its title, ``notes`` are lines below. Cells are text, never markup."""

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    good: bool | None = None


class Printed(Shown):
    """A base for objects whose printed text says more than their repr: notebooks show it where there is no table."""

    __slots__ = ()

    def sheet(self) -> Sheet:
        """The notebook form: the printed text, its first line as the title."""
        title, _, rest = str(self).partition("\n")
        return Sheet(title, notes=tuple(rest.splitlines()))

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:
        printer.text("..." if cycle else str(self))


def _render(kind: str, what: object) -> str | None:
    if kind not in _DISPLAYS:
        _load_displays()
    display = _DISPLAYS.get(kind)
    if display is None:
        return None
    try:
        return display(what)
    except IdGraphError:
        return None  # the text form is shown
