"""The findings of a check of DTensor: one row an operation, with the element that a device has wrongly or lacks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from idgraph.display import Printed, Sheet

DTensorVerdict = Literal["local", "communication", "wrong", "unknown"]
DTENSOR_VERDICTS: tuple[DTensorVerdict, ...] = ("local", "communication", "wrong", "unknown")


DTensorDevice = Literal["cuda", "cpu"]
DTENSOR_DEVICES: tuple[DTensorDevice, ...] = ("cuda", "cpu")


@dataclass(frozen=True, slots=True)
class DeviceElement:
    """An element of an operation's result, on one device.

    ``element`` are its coordinates in the whole result. Of a wrong one ``expected`` is the value that the operation
    gives there without devices, ``found`` what ``rank`` has at the address where the placement says that the element
    is; ``is_of`` are the coordinates of the element that has that value, where only one does; with ``sizes`` the part
    has another shape, and both are numbers of elements. Of one that needs communication ``reads`` are the coordinates
    of what it is made of, in operand ``operand``, which ``owners`` hold. Of a random one ``drawn`` says which random
    number it should not have: that of the element ``is_of`` of a device of ``owners`` ("element"), another one than a
    device of ``owners`` has for it ("replica"), or one of an earlier operation ("before").
    """

    rank: int
    element: tuple[int, ...]
    expected: float | None = None
    found: float | None = None
    is_of: tuple[int, ...] | None = None
    operand: int | None = None
    reads: tuple[int, ...] | None = None
    owners: tuple[int, ...] = ()
    sizes: bool = False
    drawn: Literal["element", "replica", "before"] | None = None

    def __str__(self) -> str:
        at = list(self.element)
        match self.drawn:
            case "element":
                other = f"rank {self.owners[0]} for element {list(self.is_of or ())}"
                return f"rank {self.rank} draws the random number for element {at} that {other} draws"
            case "replica":
                return f"ranks {self.owners[0]} and {self.rank} draw different random numbers for element {at}"
            case "before":
                return f"rank {self.rank} draws a random number for element {at} that an operation before drew"
            case None:
                pass
        if self.sizes:
            return f"rank {self.rank} has {self.found:g} elements, where the placement says {self.expected:g}"
        if self.reads is not None:
            ranks = ", ".join(map(str, self.owners))
            return f"rank {self.rank} makes element {at} of element {list(self.reads)}, which rank {ranks} holds"
        other = "" if self.is_of is None else f", which is element {list(self.is_of)}"
        return f"rank {self.rank} has {self.found:g}{other}, where element {at} = {self.expected:g} should be"


@dataclass(frozen=True, slots=True)
class DTensorRow:
    """One operation on DTensors.

    "local": no device reads what it does not hold, seen at every element; "communication": it moves elements, or
    cannot do without; "wrong": the result is not that of the operation without devices, or its random numbers are
    those of other elements; "unknown": it was not decided. ``collective`` names what DTensor did, ``bytes`` what one
    device receives for it. ``inputs`` and ``output`` are placements as DTensor has them; ``refused``: the first line of
    DTensor's error, if it raised one.
    """

    operation: str
    verdict: DTensorVerdict
    because: str = ""
    witness: DeviceElement | None = None
    collective: str | None = None
    bytes: int | None = 0
    inputs: tuple[str, ...] = ()
    output: str = ""
    refused: str = ""
    line: str = ""

    def __str__(self) -> str:
        text = f"{self.verdict}: {self.operation}({', '.join(self.inputs)})"
        text += f" -> {self.output}" if self.output else ""
        text += f" by {self.collective}, {self.bytes} bytes a rank" if self.collective else ""
        text += f" at {self.line}" if self.line else ""
        text += f": {self.because}" if self.because else ""
        return text if self.witness is None else f"{text}\n  {self.witness}"


@dataclass(frozen=True, slots=True)
class DTensorReport(Printed):
    """All rows of a check of DTensor. ``ok``: there are rows, and none is wrong.

    >>> print(DTensorReport("f", "Mesh(x=2)", (DTensorRow("view", "local"),)))
    f on Mesh(x=2): 1 local, 0 communication, 0 wrong, 0 unknown
    >>> r = DTensorReport("f", "Mesh(x=2)", (DTensorRow("view", "wrong"),))
    >>> r.ok, len(r.wrong), r.counts
    (False, 1, {'local': 0, 'communication': 0, 'wrong': 1, 'unknown': 0})
    """

    name: str
    mesh: str
    rows: tuple[DTensorRow, ...]

    @property
    def ok(self) -> bool:
        """True when no row is wrong, and there is one."""
        return bool(self.rows) and not self.wrong

    @property
    def wrong(self) -> tuple[DTensorRow, ...]:
        """The rows whose result is another."""
        return tuple(r for r in self.rows if r.verdict == "wrong")

    @property
    def counts(self) -> Mapping[DTensorVerdict, int]:
        """Rows by verdict."""
        found = Counter(r.verdict for r in self.rows)
        return {v: found[v] for v in DTENSOR_VERDICTS}

    def __bool__(self) -> bool:
        return self.ok

    def to_json(self) -> str:
        """The rows as JSON.

        >>> DTensorReport("f", "Mesh(x=2)", ()).to_json()[:36]
        '{"name": "f", "mesh": "Mesh(x=2)", "'
        """
        rows = [
            {
                "operation": r.operation, "verdict": r.verdict, "because": r.because, "collective": r.collective,
                "bytes": r.bytes, "inputs": list(r.inputs), "output": r.output, "refused": r.refused, "line": r.line,
                "witness": None if r.witness is None else str(r.witness),
            }
            for r in self.rows
        ]  # fmt: skip
        return json.dumps({"name": self.name, "mesh": self.mesh, "counts": self.counts, "rows": rows})

    def sheet(self) -> Sheet:
        """The rows as a table, in the order in which they ran."""
        cells = tuple(
            (r.operation, ", ".join(r.inputs), r.output, r.verdict, r.collective or "", _row_cell(r)) for r in self.rows
        )
        columns = ("operation", "of", "placed", "verdict", "collective", "because")
        return Sheet(self._head(), columns, cells, good=self.ok)

    def _head(self) -> str:
        return f"{self.name} on {self.mesh}: {', '.join(f'{n} {v}' for v, n in self.counts.items())}"

    def __str__(self) -> str:
        return "\n".join([self._head(), *(str(r) for r in self.rows if r.verdict != "local" or r.refused)])


def _row_cell(r: DTensorRow) -> str:
    return r.because if r.witness is None else f"{r.witness}"
