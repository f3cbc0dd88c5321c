"""The report of a whole program: its segments, what was imported, totals, and its forms (text, JSON, HTML)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from idgraph.display import Printed, Sheet, render, write_whole
from idgraph.errors import IdGraphError, arguments
from idgraph.index import IdModel
from idgraph.ir import Fusion
from idgraph.ir.changed_copy import clone_fusion
from idgraph.loading import LOADING
from idgraph.reports.collect import Advance, segment_facts
from idgraph.reports.emitted import Emission
from idgraph.reports.facts import OpaqueFacts, ProgramFacts, SegmentFacts
from idgraph.reports.plain_data import plain_report, totals
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
        rows = [(name, str(value)) for name, value in totals(self).items()]
        rows += [
            ("cycle", f"{c.kind} {c.shift or c.map}, closed by {c.closed_by}") for c in self.cycles if c.changes_index
        ]
        notes = ("report.save('report.html') writes the page with pictures, print(report) shows tables",)
        return Sheet(f"index report of {self.name}, scheduled {self.schedule}", ("", ""), tuple(rows), notes)

    def to_dict(self) -> dict[str, object]:
        """The report as plain lists, mappings, numbers and text; `idgraph.reports.plain_data` describes every key.

        >>> import idgraph as ig
        >>> f = ig.Fusion("half")
        >>> t = f.output(f.input("x", shape=(8,))[4:])
        >>> sorted(ig.report(f).to_dict())
        ['mapped', 'name', 'opaque', 'schedule', 'schema', 'segments', 'totals']
        """
        return plain_report(self)

    @arguments(IdGraphError, first=True)
    def to_json(self, indent: int | None = None) -> str:
        """The report as JSON text; `idgraph.reports.plain_data` describes its keys, "schema" names their version.

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
            from idgraph.reports.rich_tables import as_text  # noqa: PLC0415 - loads rich

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
        write_whole(file, text)
        return file

    def __str__(self) -> str:
        return self.to_text()

    def __rich__(self) -> object:
        with LOADING:
            from idgraph.reports.rich_tables import tables  # noqa: PLC0415 - loads rich

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
) -> IndexReport:
    """The report of a program in segments; ``auto`` schedules a copy of each fusion first."""
    made: list[SegmentFacts] = []
    for number, part in enumerate(parts):
        if part.fusion is None:
            made.append(SegmentFacts(number, name, (), (), (), (), (), part.calls))
            continue
        f = _scheduled(part.fusion) if auto else part.fusion
        made.append(segment_facts(f, None, number, part.calls, advance, suggestions, how))
    return IndexReport(name, tuple(made), dict(mapped or {}), dict(opaque or {}), "auto" if auto else "as given")


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
