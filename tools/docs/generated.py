"""Pages that the docs build writes itself: the command line, words that arguments take, benchmarks, notebooks.

`tools/docs/conf.py` calls `write` before Sphinx looks for pages; nothing of it is kept in the repository.
"""

from __future__ import annotations

import base64
import html
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click

from idgraph import check
from idgraph.cli.commands import cli
from tools.docs import series
from tools.docs.pictures import CAPTIONS, PICTURES

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "_generated"
NOTEBOOKS = HERE.parent.parent / "notebooks"
EXAMPLES = HERE / "examples"
SCHEMAS = HERE / "schemas"
RESULTS = HERE.parent / "bench" / "results"
FUNCTIONS = {
    "gpu_classes": "71 functions of fifteen kinds",
    "gpu_other_classes": "91 more",
    "gpu_third_classes": "43 more",
}

WORDS = (  # (module, name, where it is an argument or a field)
    ("idgraph.ir.dtypes", "DType", "the type of a tensor's elements: `f.input(dtype=...)`, `ig.cast`"),
    ("idgraph.ir.iter_domain", "Kind", "the kind of an axis: `IterDomain.kind`"),
    ("idgraph.ir.iter_domain", "Parallel", "how a loop runs: `t.parallelize(axis, ...)`"),
    ("idgraph.ir.iter_domain", "SwizzleKind", "`t.swizzle(kind, x, y)`"),
    ("idgraph.ir.schedule_log", "Memory", "`t.set_memory(...)`"),
    ("idgraph.runtime", "Target", "`ig.emit`, `ig.compile`, `ig.validate`: target"),
    (
        "idgraph.runtime.fusion_call",
        "Layout",
        "`ig.compile(layout=...)`: an array with other strides is copied, or refused",
    ),
    (
        "idgraph.runtime.fusion_call",
        "Checks",
        "`ig.compile(checked=...)`: failures are raised later, at once, or not checked",
    ),
    ("idgraph.graphs.cycle_kind", "CycleKind", "`Cycle.kind`"),
    ("idgraph.graphs.proof", "Because", "`Reason.because`: the fact behind a union of two axes"),
    ("idgraph.index.allocation", "Place", "`Buffer.place`: the memory in which a tensor lives"),
    ("idgraph.index.vector_width", "Limit", "`VectorWidth.limit`: the obstacle to a wider access"),
    ("idgraph.rewrite.gather_strategy", "Strategy", "`ig.schedule.gather_plan`: the strategy of a gather"),
    ("idgraph.fuse.mismatch", "Cause", "`Obstacle.cause`"),
    ("idgraph.check.report", "Verdict", "`idgraph.check` rows: the verdict"),
    ("idgraph.cost.report", "Bound", "`KernelCost.bound`: the largest part of the time"),
    ("idgraph.reports.model", "Pattern", "`AccessFacts.pattern`"),
    ("idgraph.sweeps.results", "Status", "`Row.status` of a sweep"),
    ("idgraph.validate.index_map_check", "Engine", "`ig.validate(engine=...)`: what enumerates the addresses"),
    ("idgraph.arith.source", "Dialect", "`idgraph.arith.to_source`"),
)

COMPLETION = [  # of the shell: click's own
    "## Completion of commands and options", "", "| shell | line in its start-up file |", "|---|---|",
    *(f"| {shell} | `{line}` |" for shell, line in (
        ("bash", 'eval "$(_IDGRAPH_COMPLETE=bash_source idgraph)"'),
        ("zsh", 'eval "$(_IDGRAPH_COMPLETE=zsh_source idgraph)"'),
        ("fish", "_IDGRAPH_COMPLETE=fish_source idgraph | source"),
    )), "",
]  # fmt: skip


def command_line() -> str:
    """One section for each command of ``idgraph``, with its help and all of its options, read from click."""
    # With the settings, since click keeps the names of --help that a command was first asked with.
    context = click.Context(cli, info_name="idgraph", **cli.context_settings)
    parts = ["# The command line", "", *_paragraphs(cli), *_options(cli, context), ""]
    parts += COMPLETION
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        if command is not None:
            inner = click.Context(command, info_name=name, parent=context)
            usage = " ".join(command.collect_usage_pieces(inner))
            parts += [f"## idgraph {name}", "", f"`idgraph {name} {usage}`", "", *_paragraphs(command)]
            parts += [*_options(command, inner), ""]
    return "\n".join(parts)


def _paragraphs(command: click.Command) -> Iterator[str]:
    for text in (command.help or "").replace("\b", "").split("\n\n"):
        yield from (re.sub(r"(--[a-z]+)", r"`\1`", " ".join(text.split())), "")


def _options(command: click.Command, context: click.Context) -> list[str]:
    lines = ["| option | effect |", "|---|---|"]
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and record[1]:
            names, text = (part.replace("|", r"\|") for part in record)
            lines.append(f"| `{names}` | {text} |")
    return lines


def words() -> str:
    """Every closed set of strings that an argument takes or a result has."""
    parts = ["# String options: what arguments and results take", "", "Sizes are in elements unless bytes are stated."]
    parts += ["", "| type | words | where |", "|---|---|---|"]
    for module, name, where in WORDS:
        held = getattr(importlib.import_module(module), name)
        parts.append(f"| `{module}.{name}` | {', '.join(_values(held))} | {where} |")
    return "\n".join([*parts, ""])


def _values(held: Any) -> list[str]:
    return [text for arg in get_args(held) for text in (_values(arg) or [_word(arg)])]


def _word(arg: object) -> str:
    return f"`{arg.__name__}`" if isinstance(arg, type) else f"`{arg!r}`"


def benchmarks() -> str:
    """The series of `tools/bench/results/series.jsonl`, drawn."""
    head = (
        "# Benchmarks over time\n\nEach run of a table in `tools/bench/results` is one point, with its date, commit and"
        " machine\n(`python -m tools.docs.series add TABLE` adds the present one). Point at a dot to read it.\n\n"
    )
    return head + series.page(series.read())


def functions() -> str:
    """Each function of the tables of PyTorch functions on a GPU, as its JSON has it."""
    parts = [
        "# Speed of each PyTorch function",
        "",
        "The rows behind [the summary](../pages/classes.md); times in microseconds.",
    ]
    head = "| function | kernels (torch.compile's) | idgraph | default | max-autotune | copy of its bytes | ratio |"
    for name, title in FUNCTIONS.items():
        found = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        parts += [
            "",
            f"## {title}",
            "",
            f"{found['device']}, torch {found['torch']}.",
            "",
            head,
            "|---|---|---|---|---|---|---|",
        ]
        for r in found["rows"]:
            times = " | ".join(f"{r[x]:.1f}" for x in ("us", "compile_us", "autotune_us", "copy_us"))
            parts.append(f"| `{r['key']}` | {r['kernels']} ({r['their_kernels']}) | {times} | {r['ratio']:.2f} |")
    return "\n".join([*parts, ""])


def notebook(path: Path) -> str:
    """A stored notebook as a page: text, sources, and the outputs that its last run left."""
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts: list[str] = []
    for cell in cells:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            parts += [source, ""]
        elif cell["cell_type"] == "code" and source:
            parts += ["```python", source, "```", ""]
            parts += [line for output in cell["outputs"] for line in _output(output)]
    return "\n".join(parts)


def _output(output: dict[str, Any]) -> list[str]:
    data = output.get("data", {})
    for kind in ("text/html", "image/svg+xml"):
        if kind in data:
            return ["````{raw} html", '<div class="notebook-output">', "".join(data[kind]), "</div>", "````", ""]
    if "image/png" in data:
        png = "".join(data["image/png"]).replace("\n", "")
        return ["````{raw} html", f'<img alt="" src="data:image/png;base64,{png}">', "````", ""]
    text = "".join(output.get("text", data.get("text/plain", "")))
    return ["````text", text.rstrip(), "````", ""] if text.strip() else []


def gallery() -> str:
    """Every picture, drawn now by the code."""
    parts = [
        "# Gallery",
        "",
        "Drawn by the library when these pages were built (`tools/docs/pictures.py` has the code).",
    ]
    for name, draw in PICTURES.items():
        shown = base64.b64encode(draw().encode()).decode()
        about = CAPTIONS[name]
        parts += ["", f"## {about.partition(':')[0]}", "", "```{raw} html", '<figure class="drawn">']
        parts += [f'<img alt="{html.escape(about)}" src="data:image/svg+xml;base64,{shown}">']
        parts += [f"<figcaption>{html.escape(about)}.</figcaption></figure>", "```"]
    return "\n".join([*parts, ""])


def examples() -> str:
    """The example scripts with what they print now."""
    parts = ["# Examples", "", "Scripts of at most twenty lines, from `tools/docs/examples`, with what they print."]
    for path in sorted(EXAMPLES.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        about, _, code = source.removeprefix('"""').partition('"""\n')
        parts += ["", f"## {path.stem.replace('_', ' ').capitalize()}", "", about, "", "```python", code.strip(), "```"]
        if all(importlib.util.find_spec(name) for name in re.findall(r"^import (torch)$", code, re.MULTILINE)):
            parts += ["", "````text", printed(path), "````"]
    return "\n".join([*parts, ""])


def printed(path: Path, most: int = 60) -> str:
    """The first lines that a script prints, in a process of its own."""
    done = subprocess.run([sys.executable, str(path)], cwd=HERE.parent.parent, env=os.environ | {"PYTHONPATH": "."},
                          capture_output=True, text=True, check=True)  # fmt: skip
    lines = done.stdout.rstrip().splitlines()
    return "\n".join([*lines[:most], *([f"... {len(lines) - most} more lines"] if len(lines) > most else [])])


def schemas() -> str:
    """The JSON Schema of each kind of JSON that is read or written."""
    parts = [
        "# JSON Schemas",
        "",
        "What the library reads and writes as JSON (draft 2020-12); a test holds real files to them.",
    ]
    texts = [path.read_text(encoding="utf-8").rstrip() for path in sorted(SCHEMAS.glob("*.schema.json"))]
    read = {"title": "Program to check", "description": "What `ig.check.program` reads; `ig.check.schema()` gives it."}
    texts.append(json.dumps({**check.schema(), **read}, indent=1))
    for text in texts:
        about = json.loads(text)
        parts += ["", f"## {about['title']}", "", about["description"], "", "```json", text, "```"]
    return "\n".join([*parts, ""])


def pages() -> dict[str, str]:
    """All generated pages by file name."""
    made = {
        "command_line.md": command_line(), "words.md": words(), "benchmarks.md": benchmarks(), "gallery.md": gallery(),
        "examples.md": examples(), "schemas.md": schemas(), "functions.md": functions(),
    }  # fmt: skip
    return made | {f"{path.stem}.md": notebook(path) for path in sorted(NOTEBOOKS.glob("*.ipynb"))}


def write(folder: Path = FOLDER) -> None:
    """Write the pages that changed, and remove those that are gone."""
    folder.mkdir(exist_ok=True)
    made = pages()
    for path in folder.glob("*.md"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
