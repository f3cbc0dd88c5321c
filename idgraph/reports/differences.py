"""Two schedules of one fusion beside each other: kernels, bytes of each tensor, accesses, and time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from idgraph.display import Printed, Sheet
from idgraph.errors import IdGraphError, arguments
from idgraph.reports.facts import AccessFacts
from idgraph.reports.program_report import IndexReport

Number = int | float | None


@dataclass(frozen=True, slots=True)
class Change:
    """One number, or text, before and after; ``where`` is the kernel, tensor or access that it is of."""

    what: str
    where: str
    before: Number | str
    after: Number | str

    @property
    def changed(self) -> bool:
        """The two differ."""
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class ReportDiff(Printed):
    """The differences of two reports, totals first; ``rows`` has those that are equal too.

    >>> import idgraph as ig
    >>> f = ig.Fusion("half")
    >>> t = f.output(f.input("x", shape=(8,))[4:])
    >>> d = ig.reports.diff(ig.report(f), ig.report(f))
    >>> d.changes, d.to_json()[:1]
    ((), '[')
    """

    name: str
    rows: tuple[Change, ...]

    @property
    def changes(self) -> tuple[Change, ...]:
        """The rows that differ."""
        return tuple(r for r in self.rows if r.changed)

    def to_json(self) -> str:
        """The rows as a JSON list."""
        return json.dumps([asdict(r) for r in self.rows], indent=1)

    def sheet(self) -> Sheet:
        """The rows that differ."""
        rows = tuple((r.what, r.where, _text(r.before), _text(r.after), _ratio(r)) for r in self.changes)
        return Sheet(f"{self.name}: before and after", ("number", "of", "before", "after", "after / before"), rows)

    def __str__(self) -> str:
        s = self.sheet()
        lines = [s.columns, *s.rows]
        widths = [max(len(r[k]) for r in lines) for k in range(len(s.columns))]
        text = ("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in lines)
        return "\n".join([s.title, *text]) if s.rows else f"{self.name}: no difference"


def _text(x: Number | str) -> str:
    return "" if x is None else x if isinstance(x, str) else f"{x:,}" if isinstance(x, int) else f"{x:,.2f}"


def _ratio(r: Change) -> str:
    if isinstance(r.before, str) or isinstance(r.after, str) or not r.before or r.after is None:
        return ""
    return f"{r.after / r.before:.3g}"


@arguments(IdGraphError, first=True)
def diff(before: IndexReport, after: IndexReport) -> ReportDiff:
    """Two reports of one program under two schedules: totals, then each tensor's bytes, then each access.

    Accesses are those of memory, by operation and tensor: how many elements move at once, and why no more. Raises
    `IdGraphError` where the two are not reports of one program.

    >>> import idgraph as ig
    >>> f = ig.Fusion("turn")
    >>> x = f.input("x", (64, 64))
    >>> y = f.output(ig.exp(x * 2.0))
    >>> found = ig.reports.diff(ig.report(f), ig.report(f, auto=True))
    >>> [(r.before, r.after) for r in found.changes if r.what in ("kernels", "bytes between")]
    [(2, 1), (32768, 0)]
    """
    if before.name != after.name:
        raise IdGraphError(f"diff: {before.name} and {after.name} are two programs", hint="two reports of one program")
    rows = [Change("schedule", before.name, before.schedule, after.schedule)]
    rows += [
        Change("kernels", before.name, len(before.kernels), len(after.kernels)),
        Change("bytes read", before.name, before.bytes_read, after.bytes_read),
        Change("bytes written", before.name, before.bytes_written, after.bytes_written),
        Change("bytes between", before.name, before.bytes_between, after.bytes_between),
        Change("bytes moved", before.name, *(sum(k.cost.bytes_moved for k in r.kernels) for r in (before, after))),
        Change("estimated us", before.name, *(sum(k.cost.time_us for k in r.kernels) for r in (before, after))),
        Change("measured us", before.name, *(_measured(r) for r in (before, after))),
    ]
    return ReportDiff(before.name, (*rows, *_tensors(before, after), *_accesses(before, after)))


def _measured(r: IndexReport) -> float | None:
    times = [k.measured_us for k in r.kernels]
    return None if not times or None in times else sum(t for t in times if t is not None)


def _tensors(before: IndexReport, after: IndexReport) -> list[Change]:
    bytes_of = [
        {(s.number, t.tensor): (t.read, t.written) for s in r.segments for t in s.traffic} for r in (before, after)
    ]
    made: list[Change] = []
    for number, tensor in dict.fromkeys([*bytes_of[0], *bytes_of[1]]):
        a, b = (found.get((number, tensor), (0, 0)) for found in bytes_of)
        made += [Change("bytes read", tensor, a[0], b[0]), Change("bytes written", tensor, a[1], b[1])]
    return made


def _accesses(before: IndexReport, after: IndexReport) -> list[Change]:
    found = [_by_place(r) for r in (before, after)]
    made: list[Change] = []
    for where in dict.fromkeys([*found[0], *found[1]]):
        a, b = (_lanes(f.get(where, ())) for f in found)
        made.append(Change("elements at once", where, a, b))
    return made


def _by_place(r: IndexReport) -> dict[str, list[AccessFacts]]:
    made: dict[str, list[AccessFacts]] = {}
    for s in r.segments:
        for e in s.operations:
            for a in e.accesses:
                made.setdefault(f"{e.name}: {a.kind} {a.tensor}", []).append(a)
    return made


def _lanes(found: Sequence[AccessFacts]) -> str:
    """The vector width of each access and what limits it; for registers and private arrays their place alone."""
    told = [f"{a.vector_width}" + (f" ({a.why})" if a.narrow else "") if a.in_memory else a.place for a in found]
    return "; ".join(dict.fromkeys(told))
