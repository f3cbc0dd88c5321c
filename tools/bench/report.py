"""What the commands of this folder share: options, the machine, tables, JSON files, and processes of their own."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def arguments(text: str | None) -> argparse.ArgumentParser:
    """A command's options: ``--json`` and those that it adds; ``text`` is its module's docstring."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the rows are written")
    return parser


def chosen(parser: argparse.ArgumentParser, text: str, known: Iterable[str], between: str = ",") -> list[str]:
    """The names in ``text``, all where there is none; an unknown one ends the command."""
    known = list(known)
    names = [n for n in text.split(between) if n] or known
    if unknown := [n for n in names if n not in known]:
        parser.error(f"no row {unknown[0]}; rows: {', '.join(known)}")
    return names


def machine() -> str:
    """The processor, as the system names it, and its cores."""
    place = Path("/proc/cpuinfo")
    lines = place.read_text(encoding="utf-8").splitlines() if place.exists() else []
    named = [x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")]
    return f"{named[0] if named else platform.machine()}, {os.cpu_count()} cores"


def facts() -> dict[str, Any]:
    """The machine, its load over the last minutes, the day, and Python."""
    return {
        "machine": machine(), "load": [round(x, 1) for x in os.getloadavg()], "day": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
    }  # fmt: skip


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], width: int = 160, left: int = 1) -> None:
    """Print a table; the first ``left`` columns are text, the others figures."""
    table = Table(title=title, title_justify="left")
    for k, column in enumerate(columns):
        table.add_column(column, justify="left" if k < left else "right")
    for row in rows:
        table.add_row(*map(str, row))
    Console(width=width).print(table)


def write(path: Path | None, content: dict[str, Any]) -> None:
    """A JSON file that takes the place of the old one at once; nothing where there is no path."""
    if path is not None:
        part = path.with_name(f"{path.name}.part")
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        part.replace(path)


def alone(work: Callable[..., Any], *given: object, limit: float, ready: str = "") -> Any:
    """What ``work`` gives in a process of its own, which is stopped after ``limit`` seconds; a text says why there is
    nothing. ``ready``: a module that is loaded once for all such processes."""
    context: Any = multiprocessing.get_context("forkserver" if ready else "spawn")
    if ready:
        context.set_forkserver_preload([ready])
    answer = context.Queue()
    child = context.Process(target=_answered, args=(answer, work, given))
    child.start()
    try:
        return answer.get(timeout=limit)
    except Exception:  # the queue's own kind of timeout
        child.kill()
        return f"over {limit:.0f} s"
    finally:
        child.join()


def _answered(answer: Any, work: Callable[..., Any], given: tuple[object, ...]) -> None:
    try:
        answer.put(work(*given))
    except BaseException as error:  # the row's reason
        answer.put(f"{type(error).__name__}: {str(error)[:200]}")
