"""Fusions from files: a Python program that builds one, the text form, or a captured graph."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
import traceback
from pathlib import Path

from idgraph.errors import IdGraphError, ParseError
from idgraph.frontends.graph_json import program_of
from idgraph.frontends.import_ import Import, import_program
from idgraph.ir import Fusion, parse_fusion
from idgraph.ir.limits import read_within

MAX_BYTES = 64_000_000


def load(path: str) -> Fusion:
    """The fusion of a file; of a captured graph with opaque calls, all that is mapped as one fusion."""
    found = read_file(path)
    return found.fusion if isinstance(found, Import) else found


def read_file(path: str) -> Fusion | Import:
    """The fusion or program of a file: ``.py`` is run and must leave one Fusion, ``.json`` is a captured graph.

    Everything else is read as text. A name that says another format than the file has is refused. Raises
    `IdGraphError`; only a ``.py`` file is ever executed, and what it prints goes to stderr.
    """
    file = Path(path)
    try:
        data = read_within(file, MAX_BYTES)  # once: what is read from a pipe is gone
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no file name"
        raise ParseError(f"cannot read {path!r}: {reason}") from error
    if len(data) > MAX_BYTES:
        raise ParseError(f"{path!r} is longer than {MAX_BYTES} bytes")
    _check_name(file, data)
    if file.suffix == ".json":
        return import_program(program_of(data, file.name))
    if file.suffix == ".py":
        if not file.is_file():
            raise ParseError(f"{path!r} is not a plain file, and a program is run from one")
        return _run_program(file)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ParseError(f"cannot read {path!r}: not UTF-8 text at byte {error.start}") from error
    try:
        return parse_fusion(text)
    except RecursionError:
        raise ParseError(f"{path!r}: nested too deep") from None


_FORMATS = {
    ".json": (re.compile(r"[\[{]"), "a captured graph (JSON)"),
    ".py": (re.compile(r"(?m)\A(?:\s*|#.*\n)*(?:import |from \S+ import )"), "a Python program"),
    "": (re.compile(r"fusion\s+\S+\s*\{"), "the text of a fusion"),
}


def _check_name(file: Path, data: bytes) -> None:
    """Raise `ParseError` where the beginning of a file is of another format than its name says."""
    begin = data[:4096].decode("utf-8-sig", "ignore").lstrip()
    said = file.suffix if file.suffix in _FORMATS else ""
    found = next((s for s, (pattern, _) in _FORMATS.items() if pattern.match(begin)), said)
    if found == said:
        return
    suffix = found or ".txt"
    raise ParseError(
        f"{str(file)!r} holds {_FORMATS[found][1]}, its name says {_FORMATS[said][1]}",
        hint=f"name it {str(file.with_suffix(suffix))!r}",
    )


def names_of(file: Path) -> dict[str, object]:
    """The globals that a program leaves, run as ``python FILE`` does: its own folder is searched for modules."""
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        with contextlib.redirect_stdout(_Aside()):
            return runpy.run_path(str(file))
    except (IdGraphError, MemoryError):
        raise
    except SystemExit as error:
        raise ParseError(f"{str(file)!r} ended itself with exit status {error.code}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a program may raise what it wants
        raise ParseError(f"{str(file)!r} failed{_line_in(file, error)}: {type(error).__name__}: {error}") from error
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _run_program(file: Path) -> Fusion:
    """The one fusion that a program leaves."""
    names = names_of(file)
    found = {id(v): v for v in names.values() if isinstance(v, Fusion)}
    if len(found) != 1:
        raise ParseError(
            f"{str(file)!r} leaves {len(found)} fusions in its globals",
            hint="build exactly one ig.Fusion at the top level",
        )
    return next(iter(found.values()))


class _Aside(io.TextIOBase):
    """Standard error by another name: a program that closes its output closes nothing of ours."""

    def write(self, text: str, /) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def _line_in(file: Path, error: BaseException) -> str:
    """The last line of ``file`` that led to the error."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if f.filename == str(file) and f.lineno is not None]
    return f" at line {lines[-1]}" if lines else ""
