"""Fusions from files: a Python program that builds one, the text form, or a captured graph."""

from __future__ import annotations

import runpy
from pathlib import Path

from idgraph.errors import IdGraphError, ParseError
from idgraph.frontends.fx import from_json
from idgraph.ir import Fusion, parse_fusion

MAX_BYTES = 64_000_000


def load(path: str) -> Fusion:
    """The fusion of a file: ``.py`` is run and must leave one Fusion in its globals, ``.json`` is a captured graph.

    Everything else is read as text. Raises `IdGraphError` with one clear line; only a ``.py`` file is ever executed.
    """
    file = Path(path)
    try:
        size = file.stat().st_size
    except OSError as error:
        raise ParseError(f"cannot read {path}: {error.strerror}") from error
    if size > MAX_BYTES:
        raise ParseError(f"{path} has {size} bytes", hint=f"at most {MAX_BYTES}")
    if file.suffix == ".json":
        return from_json(file).fusion
    if file.suffix == ".py":
        return _run(file)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ParseError(f"cannot read {path}: it is no UTF-8 text file") from error
    return parse_fusion(text)


def _run(file: Path) -> Fusion:
    try:
        names = runpy.run_path(str(file))
    except IdGraphError:
        raise
    except Exception as error:
        raise ParseError(f"{file} failed: {type(error).__name__}: {error}") from error
    found = {id(v): v for v in names.values() if isinstance(v, Fusion)}
    if len(found) != 1:
        raise ParseError(
            f"{file} leaves {len(found)} fusions in its globals", hint="build exactly one ig.Fusion at the top level"
        )
    return next(iter(found.values()))
