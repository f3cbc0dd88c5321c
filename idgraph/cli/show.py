"""Tables for people: index maps, cycles, tensors."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from idgraph.errors import visible
from idgraph.graphs import Cycle
from idgraph.index import Access, IdModel
from idgraph.ir import Fusion, TensorExpr


class _Output(Console):
    """rich ends the process with status 1, which here means that a check failed, when a pipe is closed."""

    def on_broken_pipe(self) -> None:
        """Leave the error to `idgraph.cli.main`."""
        raise BrokenPipeError


def console() -> Console:
    """Standard output; where it is not a terminal, plain text 140 columns wide."""
    wide = None if sys.stdout.isatty() else 140
    return _Output(highlight=False, soft_wrap=True, width=wide)


def say(text: str) -> None:
    """Print a line. click, too, would end the process with status 1 where a pipe is closed (by the error number)."""
    try:
        click.echo(visible(text, lines=True))
    except BrokenPipeError:
        raise BrokenPipeError from None


def tensor_table(fusion: Fusion) -> Table:
    """One row for each tensor: what makes it, its shape, where it was written."""
    table = Table(title=f"fusion {escape(fusion.name)}", title_justify="left")
    for column in ("tensor", "made by", "shape", "dtype", "line"):
        table.add_column(column)
    for t in fusion.tensors:
        made = t.definition.op if t.definition is not None else "input"
        mark = " (output)" if t in fusion.outputs else ""
        shape = "(" + ", ".join(map(str, t.shape)) + ")"
        line = t.source_line
        where = f"{line.file}:{line.line}" if line is not None else ""
        table.add_row(escape(t.name) + mark, made, shape, t.dtype, escape(where))
    return table


def access_row(a: Access) -> tuple[str, ...]:
    """verb, tensor, coordinates, address, predicate as text."""
    where = "(" + ", ".join(map(str, a.coordinates)) + ")"
    return ("write" if a.is_write else "read", a.tensor.name, where, a.place, str(a.predicate))


def index_table(model: IdModel, exprs: Iterable[TensorExpr]) -> Table:
    """Index maps of operations: coordinates, address and predicate of each access, in its loop variables."""
    table = Table(title="index maps", title_justify="left")
    for column in ("operation", "access", "tensor", "coordinates", "address", "when"):
        table.add_column(column, overflow="fold")
    for e in exprs:
        found = model.index_map(e)
        loops = ", ".join(map(str, found.loops)) or "once"
        for n, a in enumerate(found.accesses):
            name = f"{e.op} -> {escape(e.output.name)}\nfor {loops}" if n == 0 else ""
            table.add_row(name, *(escape(x) for x in access_row(a)), end_section=n == len(found.accesses) - 1)
    return table


def print_cycles(out: Console, cycles: Sequence[Cycle[object]]) -> None:
    """Every cycle with its witness, or that there is none."""
    if not cycles:
        out.print("no cycle")
    for c in cycles:
        out.print(escape(str(c)))
