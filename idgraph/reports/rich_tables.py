"""A report as rich tables: on a terminal, in a text file. Names are shown as they are, never read as markup."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from idgraph.reports.facts import ProgramFacts, SegmentFacts
from idgraph.reports.plain_data import totals
from idgraph.reports.words import (
    GROUPS,
    by_reason,
    bytes_text,
    cycle_text,
    estimated,
    grouped,
    kernel_cells,
    lanes_text,
    limit_text,
    place,
    share,
    touches,
    tuple_text,
)

ROWS = 40


def as_text(r: ProgramFacts, width: int = 120, rows: int | None = ROWS) -> str:
    """Tables without colour."""
    out = io.StringIO()
    Console(file=out, width=max(width, 40), color_system=None, force_terminal=False, highlight=False).print(
        tables(r, rows)
    )
    return "\n".join(x.rstrip() for x in out.getvalue().splitlines())


def tables(r: ProgramFacts, rows: int | None = ROWS) -> Group:
    """Everything: totals, then each segment; at most ``rows`` rows of each table."""
    parts: list[RenderableType] = [_totals(r)]
    for s in r.segments:
        parts += _segment(s, len(r.segments), rows)
    if r.mapped or r.opaque:
        parts.append(_coverage(r, rows))
    return Group(*parts)


def _table(title: str, columns: Sequence[str], right: Sequence[str] = ()) -> Table:
    made = Table(title=Text(title), title_justify="left", title_style="bold")
    for c in columns:
        made.add_column(c, overflow="fold", justify="right" if c in right else "left")
    return made


def _rows(table: Table, rows: Iterable[Sequence[str]], limit: int | None) -> Table:
    every = list(rows)
    kept = every if limit is None else every[:limit]
    for row in kept:
        table.add_row(*map(Text, row))
    if len(kept) < len(every):
        table.caption = Text(f"... and {len(every) - len(kept)} more rows")
        table.caption_justify = "left"
    return table


def _totals(r: ProgramFacts) -> Table:
    t = totals(r)
    n = len(r.memory_accesses)
    table = _table(f"{r.name}, scheduled {r.schedule}", ("what", "how much"))
    facts = [
        ("segments", f"{len(r.segments)} with {t['operations']} operations, {n} accesses of memory"),
        ("kernels", f"{len(r.kernels)}, estimated {estimated(r):.1f} us" if r.kernels else "none"),
        ("opaque calls", str(len(r.calls))),
        ("cycles", f"{len(r.cycles)}, {len(r.resize_cycles)} with a resize, {t['changing_cycles']} change an index"),
        ("contiguous", share(len(r.contiguous), n)),
        ("vectorisable", share(len(r.vectorisable), n)),
        ("data-dependent", share(len(r.data_dependent), n)),
        ("bytes read", bytes_text(r.bytes_read, r.exact)),
        ("bytes written", bytes_text(r.bytes_written, r.exact)),
        ("bytes between operations", bytes_text(r.bytes_between, r.exact)),
    ]
    return _rows(table, facts, None)


def _segment(s: SegmentFacts, of: int, rows: int | None) -> list[RenderableType]:
    title = s.name if of == 1 else f"segment {s.number}: {s.name}"
    parts: list[RenderableType] = []
    if s.cycles:
        parts.append(_cycles(s, title, rows))
    for m in s.self_mappings:
        parts.append(Text(f"{m.tensor} is mapped onto itself: {m.first} = {m.second}\n{m.reason}"))
    if s.operations:
        parts += [*_kernels(s, title, rows), _traffic(s, title, rows), _accesses(s, title, rows)]
        parts += _findings(s, title, rows)
    if s.calls:
        table = _table(f"{title}: opaque calls", ("result", "operation", "why", "line"))
        parts.append(_rows(table, ((c.name, c.op, c.reason, place(c.line)) for c in s.calls), rows))
    return parts


def _cycles(s: SegmentFacts, title: str, rows: int | None) -> Table:
    table = _table(f"{title}: cycles of the exact graph", ("kind", "around", "lines", "closed by"))
    found = (
        (
            cycle_text(c),
            "\n".join(x.partition("   ")[0] for x in c.steps),
            "\n".join(dict.fromkeys(map(str, c.lines))),
            (c.closed_by or "") + (f"\n{place(c.closing_line)}" if c.closing_line else ""),
        )
        for c in sorted(s.cycles, key=lambda c: not c.changes_index)
    )
    return _rows(table, found, rows)


def _traffic(s: SegmentFacts, title: str, rows: int | None) -> Table:
    table = _table(f"{title}: memory", ("tensor", "role", "size", "read", "written", ""), ("size", "read", "written"))
    order = ("input", "output", "intermediate")
    found = (
        (t.tensor, t.role, bytes_text(t.size), bytes_text(t.read, t.exact), bytes_text(t.written, t.exact), t.why)
        for t in sorted(s.traffic, key=lambda t: order.index(t.role))
    )
    return _rows(table, found, rows)


def _accesses(s: SegmentFacts, title: str, rows: int | None) -> Table:
    columns = ("operation", "access", "coordinates", "address", "when", "lanes", "why no more")
    table = _table(f"{title}: accesses", columns)
    found: list[Sequence[str]] = []
    for e in s.operations:
        loops = ", ".join(f"{x.name}<{x.extent}" for x in e.loops)
        for n, a in enumerate(a for a in e.accesses if a.in_memory):
            head = f"{e.name} = {e.op}\n{loops}\n{place(e.line)}".rstrip() if n == 0 else ""
            what = f"{a.kind} {a.tensor}"
            when = "" if a.predicate == "True" else a.predicate
            found.append((head, what, tuple_text(a.coordinates), a.where, when, lanes_text(a), limit_text(a)))
    kept = sorted({a.tensor for a in s.accesses if not a.in_memory})
    made = _rows(table, found, rows)
    if kept:
        more = f"values that stay with their thread, and cost no memory: {', '.join(kept)}"
        caption = f"{made.caption}\n{more}" if made.caption else more
        made.caption, made.caption_justify = Text(caption), "left"
    return made


def _kernels(s: SegmentFacts, title: str, rows: int | None) -> list[RenderableType]:
    """The kernels as emitted, and the source of each beside what it touches."""
    if s.refused:
        return [Text(f"{title}: no kernels were made, so bytes are not known: {s.refused}")]
    columns = ("kernel", "makes", "read", "written", "estimated us", "measured us", "bound by", "begins because")
    table = _table(f"{title}: kernels", columns, ("read", "written", "estimated us", "measured us"))
    parts: list[RenderableType] = [_rows(table, (kernel_cells(k) for k in s.kernels), rows)]
    for k in s.kernels if rows is None else s.kernels[:rows]:
        made = _table(f"{title}: {k.name}", ("source", "touches"))
        lines = k.source.splitlines()
        text = lines if rows is None or len(lines) <= rows else [*lines[:rows], f"... {len(lines) - rows} more lines"]
        made.add_row(Text("\n".join(text)), Text("\n".join(touches(k))))
        parts.append(made)
    return parts


def _findings(s: SegmentFacts, title: str, rows: int | None) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for kind, found in grouped(s).items():
        columns = ("operation", "access", "lanes along", "points", "why", "would allow more elements")
        table = _table(f"{title}: {kind} accesses, not fully vectorised ({GROUPS[kind]})", columns, ("points",))
        parts.append(
            _rows(
                table,
                by_reason(found),
                rows,
            )
        )
    loaded = [(e.name, a) for e in s.operations for a in e.accesses if a.loads]
    if loaded:
        table = _table(
            f"{title}: data-dependent accesses", ("operation", "access", "coordinates", "loads", "must hold")
        )
        parts.append(
            _rows(
                table,
                (
                    (
                        name, f"{a.kind} {a.tensor}", tuple_text(a.coordinates),
                        "\n".join(f"{x.name} = {x.tensor}[{', '.join(x.coordinates)}]" for x in a.loads),
                        "\n".join(a.bounds),
                    )
                    for name, a in loaded
                ),
                rows,
            )
        )  # fmt: skip
    return parts


def _coverage(r: ProgramFacts, rows: int | None) -> Table:
    table = _table("imported operations", ("operation", "calls", "opaque because"), ("calls",))
    found = [(name, "", why) for name, why in sorted(r.opaque.items())]
    found += [(name, str(n), "") for name, n in sorted(r.mapped.items())]
    return _rows(table, found, rows)
