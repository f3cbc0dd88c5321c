"""Decisions of an automatic schedule about an operation, with reasons: plain data that a report prints."""

from __future__ import annotations

from dataclasses import dataclass

from idgraph.display import Printed
from idgraph.ir.device import current_device
from idgraph.ir.schedule_log import KernelHints


@dataclass(frozen=True, slots=True)
class Option:
    """One way that was looked at: ``cost`` in ``unit`` (None where it is impossible), and the reason.

    >>> Option("recompute", None, "a sort is not computed element by element").cost is None
    True
    """

    name: str
    cost: float | None
    why: str
    unit: str = "element accesses"

    def amount(self) -> str:
        """The cost in words.

        >>> Option("global", 4096, "stores t1").amount(), Option("recompute", 2.5, "", "us on H200, 1 kernel").amount()
        ('4,096 element accesses', '2.5 us on H200, 1 kernel')
        >>> Option("recompute", None, "a sort").amount()
        'impossible'
        """
        return "impossible" if self.cost is None else f"{self.cost:,} {self.unit}"


@dataclass(frozen=True, slots=True)
class Saving:
    """Bytes that a way does not store, and does not move (stores and reads), against the way that stores everything.

    >>> s = Saving(3_293_642_752, 6_587_285_504)
    >>> print(s)
    3.29 GB not stored, 6.59 GB not moved (1.5 ms at 4.26 TB/s)
    """

    not_stored: int
    not_moved: int

    def milliseconds(self, bandwidth: float | None = None) -> float:
        """Time to move them at ``bandwidth`` bytes a second; by default that of the device in force.

        >>> Saving(3_000_000_000, 6_000_000_000).milliseconds(bandwidth=1e12)
        6.0
        """
        return 1e3 * self.not_moved / (bandwidth or current_device().bandwidth)

    def __str__(self) -> str:
        stored, moved = (_bytes_text(n) for n in (self.not_stored, self.not_moved))
        ms = self.milliseconds()
        time = f"{ms:.1f} ms" if ms >= 0.1 else f"{1e3 * ms:.2f} us"
        return f"{stored} not stored, {moved} not moved ({time} at {current_device().bandwidth / 1e12:g} TB/s)"


def _bytes_text(n: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n} bytes"


@dataclass(frozen=True, slots=True)
class Decision(Printed):
    """The way ``chosen`` for an operation (a gather or a scatter), its reason, and the ways rejected.

    ``tensor`` is the operation's result, ``source`` the tensor that it gathers from or scatters into, ``entries`` the
    number of loaded indices for each row ("one", or an extent), ``line`` the user's. ``forced`` says that the user
    chose. ``saved`` are bytes that the way does not move, ``proof`` why it gives the same, claim by claim.

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
    saved: Saving | None = None
    proof: tuple[str, ...] = ()

    def __str__(self) -> str:
        index = "index" if self.entries == "one" else "indices"
        at = f" at {self.line}" if self.line else ""
        by = ", as asked for" if self.forced else ""
        head = f"{self.kind} {self.tensor} of {self.source}, {self.entries} {index} a row{at}: {self.chosen} "
        lines = [f"{head}({self.reason}{by})"]
        lines += [f"  {self.saved}"] if self.saved is not None else []
        lines += [f"  {p}" for p in self.proof]
        for option in self.rejected:
            lines.append(f"  not {option.name}: {option.amount()}; {option.why}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ReductionDecision(Printed):
    """The loops chosen for reductions over the same axes: ``threads`` share one row, ``together`` rows share a block.

    ``lanes`` are the elements of one access, ``passes`` how often later values make a kernel go over a row, unless it
    is held or sums follow a running maximum.

    >>> print(ReductionDecision(("t1", "t2"), "64", "4096", 1024, 1, 4, 2, "fewer rows than 264"))
    rows t1, t2: 64 of 4096 columns, 2 passes: 1024 threads a row, 1 row a block, 4 lanes (fewer rows than 264)
    """

    tensors: tuple[str, ...]
    rows: str
    columns: str
    threads: int
    together: int
    lanes: int
    passes: int
    why: str

    def __str__(self) -> str:
        n, k = self.together, self.passes
        head = f"rows {', '.join(self.tensors)}: {self.rows} of {self.columns} columns, {k} pass{'es' * (k > 1)}"
        return f"{head}: {self.threads} threads a row, {n} row{'s' * (n > 1)} a block, {self.lanes} lanes ({self.why})"


@dataclass(frozen=True, slots=True)
class Ruled(Printed):
    """The decision of a target's rule for the rows of ``tensors``, reductions of one loop nest (`Tensor.by_rule`).

    >>> print(Ruled("cuda", ("t1",), KernelHints(persistent=False, items_per_thread=16), "one pass does it"))
    rows t1 on cuda: persistent=false items_per_thread=16 (one pass does it)
    """

    target: str
    tensors: tuple[str, ...]
    choices: KernelHints
    why: str

    def __str__(self) -> str:
        return f"rows {', '.join(self.tensors)} on {self.target}: {self.choices} ({self.why})"


@dataclass(frozen=True, slots=True)
class TilingDecision(Printed):
    """The loops that a search chose for ``tensor`` among ``candidates``, and the runner-up, each with its estimate.

    >>> print(TilingDecision("t1", "4 x 4 a thread", "2.4 us", "through shared memory", "2.6 us", 14))
    loops of t1: 4 x 4 a thread (2.4 us)
      not, of 14: through shared memory (2.6 us)
    """

    tensor: str
    chosen: str
    cost: str
    second: str
    second_cost: str
    candidates: int

    def __str__(self) -> str:
        head = f"loops of {self.tensor}: {self.chosen} ({self.cost})"
        return f"{head}\n  not, of {self.candidates}: {self.second} ({self.second_cost})"


@dataclass(frozen=True, slots=True)
class Decided(Printed):
    """Decisions of an automatic schedule: the ways of gathers and scatters, memory formats, loops over rows, what their
    kernels hold, and loops that a search chose.

    >>> print(Decided())
    nothing to decide
    """

    operations: tuple[Decision, ...] = ()
    formats: tuple[Format, ...] = ()
    rows: tuple[ReductionDecision, ...] = ()
    rules: tuple[Ruled, ...] = ()
    tilings: tuple[TilingDecision, ...] = ()

    def __str__(self) -> str:
        made = (*self.operations, *self.formats, *self.rows, *self.rules, *self.tilings)
        return "\n".join(map(str, made)) or "nothing to decide"


@dataclass(frozen=True, slots=True)
class Format:
    """The memory format that an automatic schedule gave a tensor: ``order``, axis numbers outermost in memory first.

    ``summary`` is the decision in words, ``at`` the schedule step that it made: any other of the tensor's is the
    user's.
    """

    tensor: str
    order: tuple[int, ...]
    summary: str
    at: int

    def __str__(self) -> str:
        return self.summary
