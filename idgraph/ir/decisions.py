"""Decisions of an automatic schedule about an operation, with reasons: plain data that a report prints."""

from __future__ import annotations

from dataclasses import dataclass

from idgraph.display import Printed


@dataclass(frozen=True, slots=True)
class Option:
    """One way that was looked at: ``cost`` in element accesses (None where it is impossible), and what speaks of it.

    >>> Option("recompute", None, "a sort is not computed element by element").cost is None
    True
    """

    name: str
    cost: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Decision(Printed):
    """The way ``chosen`` for an operation (a gather or a scatter), its reason, and the ways rejected.

    ``tensor`` is what the operation makes, ``source`` what it gathers from or scatters into, ``entries`` the number of
    loaded indices for each row ("one", or an extent), ``line`` the user's. ``forced`` says that the user chose.

    >>> print(Decision("gather", "t3", "t1", "one", "", "recompute", "cheaper", (Option("global", 9, "stores t1"),)))
    gather t3 of t1, one index a row: recompute (cheaper)
      not global: 9 element accesses; stores t1
    """

    kind: str
    tensor: str
    source: str
    entries: str
    line: str
    chosen: str
    reason: str
    rejected: tuple[Option, ...] = ()
    forced: bool = False

    def __str__(self) -> str:
        index = "index" if self.entries == "one" else "indices"
        at = f" at {self.line}" if self.line else ""
        by = ", as asked for" if self.forced else ""
        head = f"{self.kind} {self.tensor} of {self.source}, {self.entries} {index} a row{at}: {self.chosen} "
        lines = [f"{head}({self.reason}{by})"]
        for option in self.rejected:
            cost = "impossible" if option.cost is None else f"{option.cost:,} element accesses"
            lines.append(f"  not {option.name}: {cost}; {option.why}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Format:
    """The memory format that an automatic schedule gave a tensor: ``order``, axis numbers outermost in memory first.

    ``told`` is the decision in words, ``at`` the schedule step that it made: another one of the tensor's is the user's.
    """

    tensor: str
    order: tuple[int, ...]
    told: str
    at: int

    def __str__(self) -> str:
        return self.told
