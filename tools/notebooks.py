"""Notebooks are code: `notebooks/*.py` (percent format) is the source, the `.ipynb` beside it is what it shows.

`python -m tools.notebooks` executes every source and compares cells and outputs with the stored `.ipynb`;
`--update` writes them instead; names of notebooks choose some. What differs from run to run is normalised first.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import jupytext
import nbclient
import nbformat
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from traitlets.config import Config

from tools.env import clean_environment

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "notebooks"
CELL_SECONDS = 120
# Text that may differ between two honest runs, and the text that it is compared as.
UNSTABLE = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"0x[0-9a-f]{6,}"), "0x..."),
    (re.compile(r"\b\d+(?:\.\d+)?\s?(?:ns|us|µs|ms|s)\b"), "<time>"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
)

Notebook = dict[str, Any]  # nbformat's own type is untyped; this is the JSON of format 4


class NotebookFailure(Exception):
    """A notebook that does not run, is not stored, or shows something else than what is stored."""


def executed(source: Path, *, cwd: Path) -> Notebook:
    """The notebook of a percent-format `source`, run in `cwd` from a fresh kernel, with its outputs.

    Raises NotebookFailure with the cell's error where a cell fails.
    """
    notebook = cast(Any, jupytext.read(source, fmt="py:percent"))  # pyright: ignore[reportUnknownMemberType]
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02}"  # a random id would make every update a change
    # Sockets on disk: no port is opened.
    with tempfile.TemporaryDirectory() as private, _own_folders(private):
        client = nbclient.NotebookClient(
            notebook, timeout=CELL_SECONDS, kernel_name="python3", record_timing=False,
            resources={"metadata": {"path": str(cwd)}},
            config=Config({"KernelManager": {"transport": "ipc", "ip": f"{private}/kernel"}}),
        )  # fmt: skip
        try:
            client.execute(env=clean_environment() | {"PYTHONPATH": str(ROOT)})
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            raise NotebookFailure(f"{source.name}: a cell failed\n{error}") from error
    notebook["metadata"] = {
        "jupytext": {"formats": "ipynb,py:percent"},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell["metadata"] = {}
    return cast(Notebook, json.loads(nbformat.writes(notebook)))  # pyright: ignore[reportUnknownMemberType]


@contextlib.contextmanager
def _own_folders(private: str) -> Generator[None]:
    """Keeps IPython and Jupyter, here and in the kernel, out of HOME: where it does not exist they would warn."""
    names = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update({name: f"{private}/{name.lower()}" for name in names})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def shown(notebook: Notebook) -> Iterator[str]:
    """The lines a reader sees, cell by cell, with what is unstable normalised; the lines two runs are compared by."""
    for number, cell in enumerate(notebook["cells"]):
        yield f"--- cell {number} ({cell['cell_type']})"
        yield from _text(cell["source"]).splitlines()
        for kind, text in _outputs(cell.get("outputs", [])):
            yield f"--- cell {number} shows {kind}"
            yield from normalised(text).splitlines()


def normalised(text: str) -> str:
    """`text` without what may differ between two honest runs."""
    for pattern, replacement in UNSTABLE:
        text = pattern.sub(replacement, text)
    return text


def difference(stored: Notebook, fresh: Notebook) -> list[str]:
    """A unified diff of what the two show; empty where they show the same."""
    return list(difflib.unified_diff(list(shown(stored)), list(shown(fresh)), "stored", "now", lineterm="", n=2))


def _outputs(outputs: Sequence[Notebook]) -> Iterator[tuple[str, str]]:
    """(kind, text) of each output; pieces of one stream are joined, and a bitmap counts only as being there."""
    streams: dict[str, str] = {}
    for output in outputs:
        if output["output_type"] == "stream":
            streams[output["name"]] = streams.get(output["name"], "") + _text(output["text"])
    yield from streams.items()
    for output in outputs:
        for mime, value in sorted(output.get("data", {}).items()):
            if mime.startswith("image/") and mime != "image/svg+xml":
                yield mime, "a picture"
            else:
                yield mime, json.dumps(value, sort_keys=True) if isinstance(value, dict) else _text(value)


def _text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "".join(value)


def check(source: Path, *, update: bool) -> str:
    """Run one notebook and compare it with, or with `update` store it as, the `.ipynb` beside it; returns what it did.

    Raises NotebookFailure where it does not run, is not stored, or shows something else.
    """
    stored = source.with_suffix(".ipynb")
    fresh = executed(source, cwd=source.parent)
    if update:
        if stored.exists() and not difference(json.loads(stored.read_text(encoding="utf-8")), fresh):
            return "unchanged"
        stored.write_text(json.dumps(fresh, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return "written"
    if not stored.exists():
        raise NotebookFailure(f"{stored.name} is missing: python -m tools.notebooks --update {source.stem}")
    if changed := difference(json.loads(stored.read_text(encoding="utf-8")), fresh):
        lines = "\n".join(changed[:60])
        raise NotebookFailure(
            f"{source.name} shows something else than {stored.name}:\n{lines}\n"
            f"  if that is right: python -m tools.notebooks --update {source.stem}"
        )
    return "shows what is stored"


def main(arguments: Sequence[str], folder: Path = FOLDER) -> int:
    """Check or update the notebooks of `folder`; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.notebooks", description=__doc__)
    parser.add_argument("names", nargs="*", help="notebooks (without suffix); all of them when none is named")
    parser.add_argument("--update", action="store_true", help="store what they show now")
    options = parser.parse_args(arguments)
    names: list[str] = options.names
    sources = [path for path in sorted(folder.glob("*.py")) if not names or path.stem in names]
    orphans = [path for path in sorted(folder.glob("*.ipynb")) if not path.with_suffix(".py").exists()]
    if names and len(sources) != len(set(names)):
        print(f"no such notebook among {', '.join(names)}", file=sys.stderr)
        return 2
    failures = len(orphans)
    for orphan in orphans:
        print(f"{orphan.name} has no source {orphan.stem}.py")
    for number, source in enumerate(sources, 1):
        began = time.monotonic()
        try:
            outcome = check(source, update=options.update)
        except NotebookFailure as failure:
            failures += 1
            outcome = f"failed\n{failure}"
        print(f"[{number}/{len(sources)}] {source.stem}: {outcome} ({time.monotonic() - began:.1f} s)", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
