"""A report as rich tables: on a terminal, in a text file. Names are shown as they are, never read as markup.

How facts are put: bytes, shares, places, one line for an access. Tables and pages share these words.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from idgraph.errors import SourceLine
from idgraph.reports.model import AccessFacts, Amount, CycleFacts, KernelFacts, ProgramFacts, SegmentFacts
from idgraph.reports.to_json import totals

Row = tuple[str, ...]
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(x: int | None, exact: bool = True) -> str:
    """Bytes in the unit that reads well; an estimate says so.

    >>> bytes_text(512), bytes_text(3 << 20), bytes_text(1500, exact=False)
    ('512 B', '3.00 MiB', 'about 1.46 KiB')
    """
    if x is None:
        return "not known"
    most = "" if exact else "about "
    size, unit = float(x), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{most}{x} B" if unit == 0 else f"{most}{size:.3g} {_UNITS[unit]}" if size >= 100 else (
        f"{most}{size:.2f} {_UNITS[unit]}"
    )  # fmt: skip


def count_text(x: Amount) -> str:
    """A count with separators.

    >>> count_text(1234567)
    '1,234,567'
    """
    return f"{x:,}" if isinstance(x, int) else str(x)


def share(part: int, whole: int) -> str:
    """``3 of 4 (75%)``.

    >>> share(3, 4), share(0, 0)
    ('3 of 4 (75%)', 'none')
    """
    return f"{part} of {whole} ({100 * part // whole}%)" if whole else "none"


def place(line: SourceLine | None) -> str:
    """``file:line`` of a line, or nothing."""
    return "" if line is None else f"{line.file}:{line.line}"


def places(lines: Sequence[SourceLine]) -> str:
    """Lines by file: ``rope.py:3, 5; model.py:7``.

    >>> places([SourceLine("a.py", 3), SourceLine("a.py", 5), SourceLine("b.py", 7), SourceLine("a.py", 3)])
    'a.py:3, 5; b.py:7'
    """
    found: dict[str, dict[int, None]] = {}
    for x in lines:
        found.setdefault(x.file, {})[x.line] = None
    return "; ".join(f"{file}:{', '.join(map(str, numbers))}" for file, numbers in found.items())


def tuple_text(items: Sequence[object]) -> str:
    """``(4, n)``."""
    return f"({', '.join(map(str, items))})"


def lanes_text(a: AccessFacts) -> str:
    """The steps of an access's lanes, in words."""
    if a.pattern == "one element":
        return "one element"
    if a.vector_width > 1:
        return f"{a.vector_width} elements, {a.vector_bytes} B"
    return "one at a time"


def limit_text(a: AccessFacts) -> str:
    """The reason against a wider access; empty where it is as wide as it can be."""
    return "" if a.limit == "widest" else a.why


def suggestions_text(a: AccessFacts) -> str:
    """Changes that allow a wider access: a line for each that was tried and holds."""
    if a.suggestions is None:
        return ""
    return (
        "\n".join(f"{c.width} if {c.text}" + ("" if c.keeps_result else " (changes the result)") for c in a.suggestions)
        or "no change found"
    )


def by_reason(found: Sequence[tuple[str, AccessFacts]]) -> list[tuple[str, ...]]:
    """Rows of accesses, those with one reason and one way out together: (operations, access, loop, points, ...)."""
    groups: dict[tuple[str, ...], list[tuple[str, AccessFacts]]] = {}
    for name, a in found:
        groups.setdefault((a.kind, a.loop, a.why, suggestions_text(a)), []).append((name, a))
    made: list[tuple[str, ...]] = []
    for (kind, loop, why, ways), rows in groups.items():
        names = ", ".join(dict.fromkeys(name for name, _ in rows))
        tensors = ", ".join(dict.fromkeys(a.tensor for _, a in rows))
        points = [a.points for _, a in rows]
        whole = sum(p for p in points if isinstance(p, int))
        symbolic = [str(p) for p in points if not isinstance(p, int)]
        made.append(
            (names, f"{kind} {tensors}", loop, " + ".join([*symbolic, *([f"{whole:,}"] if whole else [])]), why, ways)
        )
    return made


def estimated(r: ProgramFacts) -> float:
    """Microseconds of all kernels."""
    return sum(k.cost.time_us for k in r.kernels)


def kernel_cells(k: KernelFacts) -> tuple[str, ...]:
    """One kernel in a row: its tensors, bytes, times, and why it begins."""
    c = k.cost
    measured = "" if k.measured_us is None else f"{k.measured_us:.1f}"
    begins = "\n".join(map(str, k.boundaries)) or "nothing shared with an earlier one"
    return (
        k.name, ", ".join(k.operations), bytes_text(c.bytes_read, c.exact), bytes_text(c.bytes_written, c.exact),
        f"{c.time_us:.1f}", measured, c.bound, begins,
    )  # fmt: skip


def traffic_rows(s: SegmentFacts) -> list[Row]:
    """Bytes of each tensor, inputs and outputs first."""
    order = ("input", "output", "intermediate")
    return [
        (t.tensor, t.role, bytes_text(t.size), bytes_text(t.read, t.exact), bytes_text(t.written, t.exact), t.why)
        for t in sorted(s.traffic, key=lambda t: order.index(t.role))
    ]


def loaded_rows(s: SegmentFacts) -> list[Row]:
    """Accesses at loaded indices."""
    return [
        (
            e.name, f"{a.kind} {a.tensor}", tuple_text(a.coordinates),
            "\n".join(f"{x.name} = {x.tensor}[{', '.join(x.coordinates)}]" for x in a.loads), "\n".join(a.bounds),
        )
        for e in s.operations for a in e.accesses if a.loads
    ]  # fmt: skip


def call_rows(s: SegmentFacts) -> list[Row]:
    """Opaque calls."""
    return [(c.name, c.op, c.reason, place(c.line)) for c in s.calls]


def coverage_rows(r: ProgramFacts) -> list[Row]:
    """Imported operations, opaque ones first."""
    opaque = [(name, "", why) for name, why in sorted(r.opaque.items())]
    return [*opaque, *((name, count_text(n), "") for name, n in sorted(r.mapped.items()))]


def touches(k: KernelFacts) -> list[str]:
    """The accesses of memory of a kernel, one line each."""
    return [
        f"{a.kind} {a.tensor}[{a.address}]" + (f", {a.width} at once" if a.width > 1 else "") + f": {a.points:,} times"
        for a in k.cost.accesses
        if a.place != "private"
    ]


def cycle_text(c: CycleFacts) -> str:
    """Kind and shift in a few words."""
    if c.kind == "shift":
        wrap = "" if c.modulus is None else f" modulo {c.modulus}"
        return f"shift by {c.shift}{wrap}"
    return f"reorder: c becomes {c.map}" if c.kind == "reorder" else "identity"


def grouped(segment: SegmentFacts) -> dict[str, list[tuple[str, AccessFacts]]]:
    """Accesses that are not fully vectorised, by pattern: (operation, access), the ones with most points first."""
    found: dict[str, list[tuple[str, AccessFacts]]] = {}
    for e in segment.operations:
        for a in e.accesses:
            if a.narrow:
                found.setdefault(a.pattern, []).append((e.name, a))
    for rows in found.values():
        rows.sort(key=lambda row: -row[1].points if isinstance(row[1].points, int) else 0)
    order = ("irregular", "strided", "data-dependent", "contiguous")
    return {kind: found[kind] for kind in order if kind in found}


GROUPS = {
    "irregular": "neighbouring steps are not evenly apart",
    "strided": "neighbouring steps are several elements apart",
    "data-dependent": "each step goes where a loaded value says",
    "contiguous": "neighbouring elements, but no widest access is proved",
}


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
        ("kernels", f"{r.kernels}, estimated {estimated(r):.1f} us" if r.kernels else "none"),
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
        parts += [*_kernel_sections(s, title, rows), _traffic(s, title, rows), _accesses(s, title, rows)]
        parts += _findings(s, title, rows)
    if s.calls:
        table = _table(f"{title}: opaque calls", ("result", "operation", "why", "line"))
        parts.append(_rows(table, call_rows(s), rows))
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
    return _rows(table, traffic_rows(s), rows)


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


def _kernel_sections(s: SegmentFacts, title: str, rows: int | None) -> list[RenderableType]:
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
        parts.append(_rows(table, by_reason(found), rows))
    if loaded := loaded_rows(s):
        columns = ("operation", "access", "coordinates", "loads", "must hold")
        parts.append(_rows(_table(f"{title}: data-dependent accesses", columns), loaded, rows))
    return parts


def _coverage(r: ProgramFacts, rows: int | None) -> Table:
    table = _table("imported operations", ("operation", "calls", "opaque because"), ("calls",))
    return _rows(table, coverage_rows(r), rows)
