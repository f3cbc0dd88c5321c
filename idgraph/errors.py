"""The one family of errors: what went wrong, where the user wrote it, because of which facts, and a way out."""

from __future__ import annotations

import contextlib
import linecache
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = str(Path(__file__).resolve().parent)
_OURS = (_PACKAGE, "<frozen", contextlib.__file__)  # a context manager's exit runs between our frames


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's program: the place where an operation or a schedule step was written.

    >>> str(SourceLine("rope.py", 12, "t1 = t0[:32]"))
    'rope.py:12: t1 = t0[:32]'
    """

    file: str
    line: int
    code: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}"
        return f"{place}: {self.code}" if self.code else place


def user_line() -> SourceLine | None:
    """The innermost frame of the call stack that lies outside this package (no frame is kept alive)."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - inspect costs an import of 10 ms
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_OURS):
            # linecache reads a file once; a doctest or a prompt has no file and gives an empty line.
            code = linecache.getline(file, frame.f_lineno).strip()
            return SourceLine(_shown(file), frame.f_lineno, code)
        frame = frame.f_back
    return None


def _shown(file: str) -> str:
    """A file by its name; a notebook's cell, which runs from a file with a number for a name, as ``cell``."""
    if file.startswith("<"):
        return file
    path = Path(file)
    return "cell" if path.parent.name.startswith("ipykernel_") else path.name


class IdGraphError(Exception):
    """Root of every error of the library.

    ``what`` is one sentence; ``where`` the user's line; ``because`` the chain of facts; ``hint`` a way out.

    >>> print(IdGraphError("axis 2 does not exist", where="a.py:3: t.split(2, 8)", hint="t has 2 axes: 0 and 1"))
    axis 2 does not exist
      at a.py:3: t.split(2, 8)
      hint: t has 2 axes: 0 and 1
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | SourceLine | None = None,
        because: Sequence[str] = (),
        hint: str = "",
    ) -> None:
        self.what = what
        self.where = "" if where is None else str(where)
        self.because = tuple(because)
        self.hint = hint
        super().__init__(what)

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  at {self.where}")
        lines += [f"  because {fact}" for fact in self.because]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class OperationError(IdGraphError, ValueError):
    """An operation was built with shapes, types or bounds that have no meaning.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("t", shape=(4, 6))
    >>> ig.reshape(t, 5, 5)
    Traceback (most recent call last):
    idgraph.errors.OperationError: reshape: t has shape (4, 6), 24 elements; (5, 5) has 25
      ...
    """


class FusionError(IdGraphError):
    """A fusion is not well formed; ``violations`` holds every finding, each with its line.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.input("t", shape=(4,)) + 1
    >>> f.verify()
    Traceback (most recent call last):
    idgraph.errors.FusionError: fusion f is not well formed: 1 violation(s)
      because fusion f has no output: f.output(tensor)
    """

    def __init__(self, what: str, violations: Sequence[str] = (), *, hint: str = "") -> None:
        self.violations = tuple(violations)
        super().__init__(what, because=violations, hint=hint)


class ScheduleError(IdGraphError):
    """A schedule that is not legal: a wrong axis, an inlining past a consumer, a race between parallel axes.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("a", shape=(4,)) + 1
    >>> t.inline(2)
    Traceback (most recent call last):
    idgraph.errors.ScheduleError: inline: tensor t1 has 1 loop axes, position 2 is past them
      ...
    """


class IndexingError(IdGraphError):
    """A question about indices that has no answer (an access that does not exist, an axis no loop reaches).

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> a, b = f.input("a", shape=(4,)), f.input("b", shape=(4,))
    >>> ig.IdModel(f).access((a + 1).definition, b)
    Traceback (most recent call last):
    idgraph.errors.IndexingError: t2[I2] = add(a[I0], 1) neither reads nor writes b
      ...
    """


class ParseError(IdGraphError, ValueError):
    """Text or JSON that does not say a fusion or an index expression.

    >>> import idgraph as ig
    >>> ig.parse("fusion f {")
    Traceback (most recent call last):
    idgraph.errors.ParseError: line 1: expected a name, found the end of the text
      ...
    """


class EmitError(IdGraphError):
    """A fusion that a target cannot express, or arrays that do not fit its inputs.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("a", shape=(4,)) + 1)
    >>> ig.emit(f, target="fpga")
    Traceback (most recent call last):
    idgraph.errors.EmitError: unknown target 'fpga'
      hint: one of python, numpy, cpu, cuda
    """


class FrontendError(IdGraphError):
    """A program of another system that could not be imported.

    >>> import idgraph as ig
    >>> ig.frontends.fx.from_json("no_such_file.json")
    Traceback (most recent call last):
    idgraph.errors.FrontendError: 'no_such_file.json' cannot be read: No such file or directory
    """
