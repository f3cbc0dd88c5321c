"""How facts are put: bytes, shares, places, one line for an access. Tables and pages share these words."""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.errors import SourceLine
from idgraph.reports.facts import AccessFacts, Amount, CycleFacts, KernelFacts, ProgramFacts, SegmentFacts

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
    return "" if a.vector_bytes >= 16 else a.why


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
    "contiguous": "neighbouring elements, but no 16-byte access is proved",
}
