"""The findings of a check: one row for each loop nest and buffer, and counterexamples that a person can follow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from idgraph.display import Printed, Sheet
from idgraph.errors import SourceLine

Verdict = Literal["proved", "enumerated", "tested", "refuted", "unknown"]
VERDICTS: tuple[Verdict, ...] = ("proved", "enumerated", "tested", "refuted", "unknown")


@dataclass(frozen=True, slots=True)
class Difference(Printed):
    """A point of the loops at which the nest touches another element than the program means.

    ``point``: loop variables; ``written``, ``read`` and ``meant``: elements as ``buffer[address]`` and, where the
    buffer holds a tensor, its coordinates (None: nothing is read, nothing is meant); ``formula``: the nest's own.
    """

    point: Mapping[str, int]
    written: str
    read: str | None
    meant: str | None
    formula: str
    operation: str = ""
    line: SourceLine | None = None

    def __str__(self) -> str:
        at = ", ".join(f"{k}={v}" for k, v in self.point.items()) or "its one point"
        text = [f"at {at} it writes {self.written}" if self.written else f"at {at}"]
        formula = f"   ({self.formula})" if self.formula else ""
        if self.read is not None:
            text.append(f"  reads {self.read}{formula}" + (", which is not meant" if self.meant is None else ""))
        if self.meant is not None:
            text.append(f"  meant {self.meant}" + ("" if self.read is not None else formula))
        if self.operation:
            text.append(f"  of {self.operation}" + (f" at {self.line}" if self.line else ""))
        return "\n".join(text)


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One nest and one buffer that it writes or reads.

    ``node``: the nest's name; ``stage``: "before" or "after" the compiler's own merging, reordering and fusion of
    loops, "source" for generated text, "graph" for what happened before there were loops ("tested" there: values are
    the same at random inputs); ``role``: "read" or "write"; ``because``: how it was decided, or why it was not;
    ``points``: loop points looked at; ``seconds``: processor time of the whole nest, reported in its first row.
    """

    node: str
    buffer: str
    verdict: Verdict
    role: Literal["read", "write"] = "read"
    because: str = ""
    counterexample: Difference | None = None
    stage: str = ""
    graph: str = ""
    operation: str = ""
    line: SourceLine | None = None
    points: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        head = f"{self.verdict}: {self.node} {self.role}s {self.buffer}"
        where = ", ".join(x for x in (self.graph, self.stage) if x)
        text = head + (f" ({where})" if where else "") + (f": {self.because}" if self.because else "")
        found = self.counterexample
        return text if found is None else "\n".join([text, *("  " + s for s in str(found).splitlines())])

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class CheckReport(Printed):
    """All rows of a check. ``ok``: there are rows, none refuted; ``decided``: nothing is unknown either.

    ``calls`` are library kernels and other nodes without index formulas: they have no rows.

    >>> row = CheckRow("op0", "x", "proved")
    >>> r = CheckReport("f", (row,))
    >>> r.ok, r.decided, str(r)
    (True, True, 'f: 1 proved, 0 enumerated, 0 refuted, 0 unknown in 1 nest')
    >>> r.counts, r.refuted, r.unknown
    ({'proved': 1, 'enumerated': 0, 'tested': 0, 'refuted': 0, 'unknown': 0}, (), ())
    """

    name: str
    rows: tuple[CheckRow, ...]
    calls: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True when no row is refuted, and there is one: a program without nests is not right."""
        return bool(self.rows) and not self.refuted

    @property
    def decided(self) -> bool:
        """True when every row of a loop nest is proved or enumerated, and every graph tested."""
        return bool(self.rows) and all(r.verdict in ("proved", "enumerated", "tested") for r in self.rows)

    @property
    def refuted(self) -> tuple[CheckRow, ...]:
        """The rows with a counterexample."""
        return tuple(r for r in self.rows if r.verdict == "refuted")

    @property
    def unknown(self) -> tuple[CheckRow, ...]:
        """The rows that could not be decided."""
        return tuple(r for r in self.rows if r.verdict == "unknown")

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """Rows by verdict."""
        found = Counter(r.verdict for r in self.rows)
        return {v: found[v] for v in VERDICTS}

    def __bool__(self) -> bool:
        return self.ok

    def to_json(self) -> str:
        """The rows as JSON.

        >>> CheckReport("f", (CheckRow("op0", "x", "proved"),)).to_json()[:60]
        '{"name": "f", "counts": {"proved": 1, "enumerated": 0, "test'
        """
        rows = [
            asdict(r) | {"line": str(r.line) if r.line else "", "counterexample": _finding_text(r)} for r in self.rows
        ]
        return json.dumps({"name": self.name, "counts": self.counts, "calls": self.calls, "rows": rows})

    def sheet(self) -> Sheet:
        """The rows as a table, refuted ones first."""
        order = {"refuted": 0, "unknown": 1, "tested": 2, "enumerated": 3, "proved": 4}
        rows = sorted(self.rows, key=lambda r: order[r.verdict])
        cells = tuple((r.graph, r.stage, r.node, r.role, r.buffer, r.verdict, _cell(r)) for r in rows)
        columns = ("graph", "stage", "nest", "", "buffer", "verdict", "because")
        return Sheet(self._head(), columns, cells, good=self.ok)

    def _head(self) -> str:
        nests = len({(r.graph, r.stage, r.node) for r in self.rows if r.stage != "graph"})
        counts = ", ".join(f"{n} {v}" for v, n in self.counts.items() if n or v != "tested")
        return f"{self.name}: {counts} in {nests} nest{'s' * (nests != 1)}"

    def __str__(self) -> str:
        return "\n".join([self._head(), *(str(r) for r in (*self.refuted, *self.unknown))])

    __repr__ = __str__


def _finding_text(r: CheckRow) -> object:
    found = r.counterexample
    return None if found is None else asdict(found) | {"line": str(found.line) if found.line else ""}


def _cell(r: CheckRow) -> str:
    return r.because if r.counterexample is None else str(r.counterexample)
