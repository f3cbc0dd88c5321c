"""The report of a whole program: its segments, what was imported, totals, and its forms (text, JSON, HTML).

Two schedules of one fusion beside each other: kernels, bytes of each tensor, accesses, and time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from idgraph.display import Printed, Sheet, render, write_atomically
from idgraph.errors import IdGraphError, arguments
from idgraph.index import IdModel
from idgraph.ir import Fusion
from idgraph.ir.clone import clone_fusion
from idgraph.loading import LOADING
from idgraph.reports.collect import Advance, Emission, segment_facts
from idgraph.reports.model import AccessFacts, OpaqueFacts, ProgramFacts, SegmentFacts
from idgraph.reports.to_json import plain_report, totals
from idgraph.schedule import auto as schedule_automatically


@dataclass(frozen=True, slots=True)
class IndexReport(ProgramFacts, Printed):
    """A program's indices: cycles, coordinates, contiguity and vector width, loaded indices, bytes moved.

    ``segments`` are fusions with the opaque calls between them; ``mapped`` counts the imported calls by name,
    ``opaque`` says of others why they are not mapped. ``schedule`` is "as given" or "auto". Printed it is tables,
    `to_json` and `to_html` are its other forms, `save` writes one of them.

    >>> import idgraph as ig
    >>> f = ig.Fusion("rotation")
    >>> t0 = f.input("t0", shape=(64,))
    >>> t4 = f.output(t0 + ig.cat([t0[32:], t0[:32]], dim=0))
    >>> r = ig.report(f)
    >>> [(c.kind, c.shift) for c in r.resize_cycles], r.bytes_read, r.bytes_written
    ([('shift', '-32'), ('shift', '32')], 512, 256)
    >>> [(a.tensor, a.coordinates, a.vector_width) for a in r.segments[0].operations[0].accesses]
    [('t1', ('i0',), 4), ('t0', ('i0 + 32',), 4)]
    >>> len(r.cycles), len(r.kernels), len(r.memory_accesses), len(r.contiguous), len(r.vectorisable)
    (2, 4, 10, 10, 10)
    >>> r.data_dependent, r.calls, r.bytes_between, r.exact
    ((), (), 1024, True)
    """

    def sheet(self) -> Sheet:
        """The notebook form: totals, and every cycle that changes an index. `save` writes the whole page."""
        shown = {**totals(self), "kernels": str(self.kernels)}
        rows = [(name, str(value)) for name, value in shown.items() if name != "distinct_kernels"]
        rows += [
            ("cycle", f"{c.kind} {c.shift or c.map}, closed by {c.closed_by}") for c in self.cycles if c.changes_index
        ]
        notes = ("report.save('report.html') writes the page with pictures, print(report) shows tables",)
        return Sheet(f"index report of {self.name}, scheduled {self.schedule}", ("", ""), tuple(rows), notes)

    def to_dict(self) -> dict[str, object]:
        """The report as plain lists, mappings, numbers and text; `idgraph.reports.to_json` describes every key.

        >>> import idgraph as ig
        >>> f = ig.Fusion("half")
        >>> t = f.output(f.input("x", shape=(8,))[4:])
        >>> sorted(ig.report(f).to_dict())
        ['mapped', 'name', 'opaque', 'schedule', 'schema', 'seconds', 'segments', 'totals']
        """
        return plain_report(self)

    @arguments(IdGraphError, first=True)
    def to_json(self, indent: int | None = None) -> str:
        """The report as JSON text; `idgraph.reports.to_json` describes its keys, "schema" names their version.

        >>> import idgraph as ig
        >>> f = ig.Fusion("half")
        >>> t = f.output(f.input("x", shape=(8,))[4:])
        >>> ig.report(f).to_json()[:10]
        '{"schema":'
        """
        if indent is not None and not 0 <= indent <= 100:
            raise IdGraphError(f"indent is {indent}, not a number of blanks from 0 to 100")
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def to_html(self) -> str:
        """One self-contained HTML page with pictures: no script, style or image comes from elsewhere.

        >>> import idgraph as ig
        >>> f = ig.Fusion("half")
        >>> t = f.output(f.input("x", shape=(8,))[4:])
        >>> "</html>" in ig.report(f).to_html()
        True
        """
        return render("html", self)

    @arguments(IdGraphError, first=True)
    def to_text(self, width: int = 120, rows: int | None = 40) -> str:
        """Tables as text, ``width`` characters wide, at most ``rows`` rows each (None: all).

        >>> import idgraph as ig
        >>> f = ig.Fusion("half")
        >>> t = f.output(f.input("x", shape=(8,))[4:])
        >>> print(ig.report(f).to_text(width=100).splitlines()[0])
        half, scheduled as given
        """
        with LOADING:
            from idgraph.reports.to_text import as_text  # noqa: PLC0415 - loads rich

        return as_text(self, width, rows)

    @arguments(IdGraphError, first=True)
    def save(self, path: str | Path) -> Path:
        """Write ``.html``, ``.json`` or ``.txt``, by the file's name; returns the path.

        >>> import tempfile
        >>> import idgraph as ig
        >>> f = ig.Fusion("half")
        >>> t = f.output(f.input("x", shape=(8,))[4:])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(ig.report(f).save(f"{folder}/half.json").name)
        half.json
        """
        file = Path(path)
        match file.suffix:
            case ".html" | ".htm":
                text = self.to_html()
            case ".json":
                text = self.to_json(indent=1) + "\n"
            case ".txt":
                text = self.to_text(rows=None) + "\n"
            case _:
                raise IdGraphError(
                    f"a report is not written as {file.suffix or 'a file without a suffix'}",
                    hint="name the file report.html, report.json or report.txt",
                )
        write_atomically(file, text)
        return file

    def __repr__(self) -> str:
        count = sum(len(s.operations) for s in self.segments)
        return f"IndexReport({self.name!r}, {count} operation{'s' * (count != 1)}, scheduled {self.schedule})"

    def __str__(self) -> str:
        return self.to_text()

    def __rich__(self) -> object:
        with LOADING:
            from idgraph.reports.to_text import tables  # noqa: PLC0415 - loads rich

        return tables(self)


Progress = Callable[[int], Advance]


@dataclass(frozen=True, slots=True)
class Part:
    """One segment to be reported: a fusion, and the opaque calls that run after it."""

    fusion: Fusion | None
    calls: tuple[OpaqueFacts, ...] = ()


@arguments(IdGraphError, first=True)
def report_parts(
    name: str,
    parts: Sequence[Part],
    *,
    mapped: Mapping[str, int] | None = None,
    opaque: Mapping[str, str] | None = None,
    auto: bool = False,
    advance: Advance | None = None,
    suggestions: int | None = None,
    how: Emission | None = None,
    seconds: Mapping[str, float] | None = None,
) -> IndexReport:
    """The report of a program in segments; ``auto`` schedules a copy of each fusion first; ``seconds`` that its kernels
    have taken so far, by stage."""
    made: list[SegmentFacts] = []
    for number, part in enumerate(parts):
        if part.fusion is None:
            made.append(SegmentFacts(number, name, (), (), (), (), (), part.calls))
            continue
        f = _scheduled(part.fusion) if auto else part.fusion
        made.append(segment_facts(f, None, number, part.calls, advance, suggestions, how))
    return IndexReport(
        name, tuple(made), dict(mapped or {}), dict(opaque or {}), "auto" if auto else "as given", dict(seconds or {})
    )


def _scheduled(f: Fusion) -> Fusion:
    copy = clone_fusion(f)
    schedule_automatically(copy)
    return copy


def report_fusion(
    f: Fusion, model: IdModel | None, auto: bool, suggestions: int | None = None, how: Emission | None = None
) -> IndexReport:
    """See `idgraph.reports.report`."""
    if not isinstance(f, Fusion):  # pyright: ignore[reportUnnecessaryIsInstance] - users are not type checkers
        raise IdGraphError(f"there is no report of a {type(f).__name__}", hint="ig.report(fusion), or imp.report()")
    f.verify()
    if auto or model is None:
        return report_parts(f.name, [Part(f)], auto=auto, suggestions=suggestions, how=how)
    return IndexReport(f.name, (segment_facts(f, model, suggestions=suggestions, how=how),))


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

    __repr__ = __str__


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
        a, b = (_widths_text(f.get(where, ())) for f in found)
        made.append(Change("elements at once", where, a, b))
    return made


def _by_place(r: IndexReport) -> dict[str, list[AccessFacts]]:
    made: dict[str, list[AccessFacts]] = {}
    for s in r.segments:
        for e in s.operations:
            for a in e.accesses:
                made.setdefault(f"{e.name}: {a.kind} {a.tensor}", []).append(a)
    return made


def _widths_text(found: Sequence[AccessFacts]) -> str:
    """The vector width of each access and what limits it; for registers and private arrays only their memory."""
    told = [f"{a.vector_width}" + (f" ({a.why})" if a.narrow else "") if a.in_memory else a.place for a in found]
    return "; ".join(dict.fromkeys(told))
