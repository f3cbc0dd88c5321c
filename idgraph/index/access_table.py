"""All accesses of an operation as a table, and those of a whole model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from idgraph.display import Printed, Sheet
from idgraph.index.access import Access
from idgraph.index.loop import LoopVariable
from idgraph.ir import Fusion, TensorExpr

_OPERATIONS = 30  # of a model that a notebook shows


@dataclass(frozen=True, slots=True)
class AccessTable(Printed):
    """All accesses of one operation; prints as a table.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("a", shape=(10,))[2:])
    >>> [str(a) for a in ig.IdModel(f).index_map(t.definition).accesses]
    ['slice writes t1[i0] at i0', 'slice reads a[i0 + 2] at i0 + 2']
    """

    expr: TensorExpr
    loops: tuple[LoopVariable, ...]
    accesses: tuple[Access, ...]

    def sheet(self) -> Sheet:
        """A row for each access."""
        loops = "for " + ", ".join(map(str, self.loops)) if self.loops else "once"
        columns = ("", "tensor", "coordinates", "address", "when")
        return Sheet(repr(self.expr), columns, tuple(map(_row, self.accesses)), (loops,))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        head = f"{self.expr!r}"
        loops = "  for " + ", ".join(map(str, self.loops)) if self.loops else "  once"
        rows = [("", "tensor", "coordinates", "address", "when"), *map(_row, self.accesses)]
        widths = [max(len(r[c]) for r in rows) for c in range(5)]
        table = ["  " + "  ".join(x.ljust(w) for x, w in zip(r, widths, strict=True)).rstrip() for r in rows]
        return "\n".join([head, loops, *table])


def _row(a: Access) -> tuple[str, str, str, str, str]:
    where = "(" + ", ".join(map(str, a.coordinates)) + ")"
    return ("write" if a.is_write else "read", a.tensor.name, where, a.place, str(a.predicate))


def model_sheet(fusion: Fusion, index_map: Callable[[TensorExpr], AccessTable]) -> Sheet:
    """The accesses of the first operations of a fusion."""
    shown = fusion.exprs[:_OPERATIONS]
    rows: list[tuple[str, ...]] = []
    for e in shown:
        found = index_map(e)
        loops = ", ".join(map(str, found.loops)) or "once"
        heads = [(f"{e.output.name} = {e.op}", loops), *[("", "")] * len(e.inputs)]
        rows += [(*head, *_row(a)) for head, a in zip(heads, found.accesses, strict=True)]
    more = len(fusion.exprs) - len(shown)
    columns = ("operation", "loops", "", "tensor", "coordinates", "address", "when")
    return Sheet(f"index maps of {fusion.name}", columns, tuple(rows), (f"{more} more operations",) if more else ())
