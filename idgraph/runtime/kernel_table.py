"""The kernels of a program as a tuple that prints as a table."""

from __future__ import annotations

import json

from idgraph.display import Printed, Sheet
from idgraph.kernel.ir import Kernel, walk

_COLUMNS = ("kernel", "launch", "reads", "writes", "statements", "passes")


class KernelTable(Printed, tuple[Kernel, ...]):
    """Kernels in launch order. Printed they are a table, `to_json` gives it as data.

    >>> import idgraph as ig
    >>> f = ig.Fusion("half")
    >>> t = f.output(f.input("x", shape=(8,))[4:])
    >>> print(ig.emit(f).kernels)
    kernel   launch  reads       writes      statements  passes
    kernel0          x: float32  t1: float32          5
    """

    __slots__ = ()

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for k in self:
            launch = ", ".join(f"{d} {' x '.join(map(str, e))}" for d, e in sorted(k.launch.items()))
            reads = ", ".join(f"{b.title}: {b.dtype}" for b in k.buffers if b.place == "input")
            writes = ", ".join(f"{b.title}: {b.dtype}" for b in k.buffers if b.place != "input")
            rows.append((k.name, launch, reads, writes, str(sum(1 for _ in walk(k.body))), ", ".join(k.passes)))
        return rows

    def sheet(self) -> Sheet:
        """One row a kernel."""
        return Sheet(f"{len(self)} kernels", _COLUMNS, tuple(self._rows()))

    def to_json(self) -> str:
        """The table as a JSON list of objects, with the kernels' text under "ir"."""
        rows = [
            {**dict(zip(_COLUMNS, row, strict=True)), "statements": int(row[4]), "passes": list(k.passes), "ir": str(k)}
            for k, row in zip(self, self._rows(), strict=True)
        ]
        return json.dumps(rows, indent=1)

    def __str__(self) -> str:
        rows = [_COLUMNS, *self._rows()]
        widths = [max(len(r[n]) for r in rows) for n in range(len(_COLUMNS))]
        return "\n".join(
            "  ".join(
                c.rjust(w) if n == 4 else c.ljust(w) for n, (c, w) in enumerate(zip(r, widths, strict=True))
            ).rstrip()
            for r in rows
        )
