"""Generated source as functions."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

from idgraph.errors import EmitError


def function_of(source: str, name: str, names: dict[str, Any], target: str) -> Callable[..., Any]:
    """Run generated source, made of this package's own tokens only, and return its function.

    The text stands in `linecache`, so that tracebacks and numba show its lines.
    """
    file = f"<idgraph {target} {name} {abs(hash(source)):x}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)  # noqa: S102  # no user text: names are numbered, comments are quoted
    found = names[name]
    if not callable(found):
        raise EmitError(f"{name} is not a function")
    return found
