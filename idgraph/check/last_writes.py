"""What a read sees is the last write before it: reads and writes of one memory put in their order of execution.

Nests run in the order in which they stand, the points of a nest without a kernel in row-major order; a kernel's nests
run one after the other at each of its points (races between its points: `idgraph.check.races`). Only what is wrong
or not decided gets a row. An output that nothing writes is wrong too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from idgraph.arith import ArithError, Expr, simplify
from idgraph.check.enumeration import sample_sizes, unraveled
from idgraph.check.program import ZERO, Axis, BufferLayout, Nest, NeutralProgram, Read, Write
from idgraph.check.report import CheckRow, Difference
from idgraph.check.semantics import NoIndexMeaning
from idgraph.ir import Tensor

POINTS = 1 << 22  # points of a nest whose accesses are put in order
_VIEWS = frozenset({"copy", "permute", "reshape", "squeeze", "unsqueeze"})

Ints = npt.NDArray[np.int64]


def order_rows(p: NeutralProgram) -> list[CheckRow]:
    """Rows of reads that see another write than they should, and of outputs that nothing writes."""
    rows = list(_unwritten(p))
    try:
        samples = tuple(sample_sizes(p))
    except NoIndexMeaning as why:
        return [*rows, CheckRow("order", "", "unknown", because=str(why), graph=p.name)]
    judge = _Order(p)
    for reader in judge.nests:
        for read in dict.fromkeys(r for w in reader.writes for r in w.reads):
            try:
                row = judge.judged(reader, read, samples)
            except ArithError as error:
                row = judge.row(reader, read, "unknown", error.what)
            rows += [] if row is None else [row]
    return rows


def _unwritten(p: NeutralProgram) -> Iterator[CheckRow]:
    names = {n.name for n in p.nests}
    homes = {b.name: b.home for b in p.buffers}
    stored = {homes.get(w.buffer, w.buffer) for n in p.nests for w in n.writes}
    for t in dict.fromkeys(p.fusion.outputs):
        own = [b for b in p.buffers if b.tensor == t.name]
        if t.definition is None or t.name in stored or any(b.home in stored for b in own):
            continue
        if any(b.after and b.after not in names for b in own):  # a library call writes it
            continue
        viewed: Tensor = t
        while viewed.definition is not None and viewed.definition.op in _VIEWS:
            viewed = viewed.definition.inputs[0]
        held = viewed.definition is None or any(b.home in stored for b in p.buffers if b.tensor == viewed.name)
        if viewed is not t and held:
            because = f"no nest writes this output; a view of {viewed.name} needs a buffer that says where it lies"
            yield CheckRow(t.name, t.name, "unknown", "write", because, graph=p.name)
            continue
        found = Difference({}, "", None, f"{t.name}, an output, is written by some nest", "")
        yield CheckRow(t.name, t.name, "refuted", "write", "no nest writes this output", found, graph=p.name)


@dataclass(frozen=True, slots=True)
class _Access:
    """Addresses of one access, and the row-major number of the loops' point of each; where it happens only."""

    address: Ints
    number: Ints


class _Order:
    """The accesses of a program in the order in which they run."""

    def __init__(self, p: NeutralProgram) -> None:
        self.program = p
        place = {name: k for k, name in enumerate(p.order)}
        self.nests = sorted(p.nests, key=lambda n: place.get(n.name, len(place)))  # stable
        self.buffers = {b.name: b for b in p.buffers}
        self.tensors = {t.name: t for t in p.fusion.tensors}

    def home(self, name: str) -> tuple[str, Expr]:
        b = self.buffers.get(name)
        return (b.home, b.base) if b is not None else self.program.memory.get(name, (name, ZERO))

    def judged(self, reader: Nest, read: Read, samples: Sequence[dict[str, int]]) -> CheckRow | None:
        home = self.home(read.buffer)[0]
        writers = [(n, w) for n in self.nests for w in n.writes if self.home(w.buffer)[0] == home]
        if not writers or self._plain(reader, read, writers):
            return None
        if reader.unread or any(n.unread for n, _ in writers):
            return self.row(reader, read, "unknown", "the formulas of a nest that shares its memory could not be read")
        loaded = {*reader.loads, *reader.places} & {*read.index.names, *read.when.names}
        if loaded or any({*n.loads, *n.places} & {*w.index.names, *w.when.names} for n, w in writers):
            because = "which write it sees depends on loaded values"
            return self.row(reader, read, "unknown", because)
        for sizes in samples:
            if max(_points(n.axes, sizes) for n in (reader, *(n for n, _ in writers))) > POINTS:
                return self.row(reader, read, "unknown", "which write it sees is not counted: too many points")
            row = self._seen(reader, read, writers, sizes)
            if row is not None:
                return row
        if self.program.symbols:
            because = "which write it sees is not proved for all sizes; none is wrong at the sizes tried"
            return self.row(reader, read, "unknown", because)
        return None

    def _plain(self, reader: Nest, read: Read, writers: Sequence[tuple[Nest, Write]]) -> bool:
        """All writes are of the tensor that is read, in nests that have run when the reader starts."""
        at = self.nests.index(reader)
        return all(
            w.buffer == read.buffer and self.nests.index(n) < at and not (n.kernel and n.kernel == reader.kernel)
            for n, w in writers
        )

    def _seen(
        self, reader: Nest, read: Read, writers: Sequence[tuple[Nest, Write]], sizes: dict[str, int]
    ) -> CheckRow | None:
        wanted = _accessed(reader.axes, reader, self._address(read.buffer, read.index), read.when, sizes)
        last = np.full(len(wanted.address), -1, dtype=np.int64)  # which write is seen
        at = self.nests.index(reader)
        for k, (n, w) in enumerate(writers):
            together = n is not reader and bool(n.kernel) and n.kernel == reader.kernel
            if (together or n is reader) and (reader.reduce or n.reduce):
                return self.row(reader, read, "unknown", f"it shares loops with {n.name}, where one of both reduces")
            if together and _points(n.loops, sizes) != _points(reader.loops, sizes):
                return self.row(reader, read, "unknown", f"how {n.name} and it share one kernel's points is not told")
            if self.nests.index(n) > at:
                continue
            made = _accessed(n.loops, n, self._address(w.buffer, w.index), w.when, sizes)
            if n is reader and not n.kernel:  # points before this one
                first = _first(made)
                found = np.array([first.get(a, q) < q for a, q in zip(*_lists(wanted), strict=True)], dtype=bool)
            elif n is reader:  # a kernel against itself: its races are told apart
                continue
            else:
                found = np.isin(wanted.address, made.address)
            last[found] = k
        for bad in range(-1, len(writers)):
            hits = np.flatnonzero(last == bad)
            why = self._wrong(read, None if bad < 0 else writers[bad][1]) if hits.size else ""
            if why:
                k = int(hits[0])
                seen = None if bad < 0 else writers[bad]
                return self._refuted(reader, read, writers, seen, why, wanted, k, sizes)
        return None

    def _address(self, name: str, index: Expr) -> Expr:
        return simplify(index + self.home(name)[1])

    def _wrong(self, read: Read, seen: Write | None) -> str:
        """Why a read must not see this write (None: what was there at the start); empty where it may."""
        own = self.buffers.get(read.buffer)
        t = self.tensors.get(own.tensor) if own is not None else None
        argument = own is not None and t is not None and t.definition is None
        if seen is None:
            called = own is not None and own.after and own.after not in {n.name for n in self.program.nests}
            return "" if argument or called else "it reads what nothing has written before"
        made: BufferLayout | None = self.buffers.get(seen.buffer)
        if seen.buffer == read.buffer or (own is not None and made is not None and made.tensor == own.tensor):
            return ""
        if t is not None and made is not None and made.tensor in _ancestors(t):
            return ""  # a part of it, a cat's say
        return f"it sees what was written as {made.tensor if made is not None else seen.buffer}"

    def _refuted(
        self, reader: Nest, read: Read, writers: Sequence[tuple[Nest, Write]], seen: tuple[Nest, Write] | None,
        why: str, wanted: _Access, k: int, sizes: dict[str, int],
    ) -> CheckRow:  # fmt: skip
        element, number = int(wanted.address[k]), int(wanted.number[k])
        home = self.home(read.buffer)[0]
        point = _point(reader, number, sizes)
        shown = f"{home}[{element}]"
        if seen is None:
            late = [(n, w) for n, w in writers if w.buffer == read.buffer]
            text = f"{shown} as it was before the program ran"
            meant = f"{shown} of {read.buffer}" + (f", which {late[0][0].name} writes later" if late else "")
        else:
            made = _accessed(seen[0].loops, seen[0], self._address(seen[1].buffer, seen[1].index), seen[1].when, sizes)
            q = int(made.number[made.address == element][0])
            where = ", ".join(f"{a}={b}" for a, b in _point(seen[0], q, sizes).items())
            text = f"{shown} as {seen[0].name} wrote it at {where or 'its one point'}, which runs before"
            meant = f"{shown} of {read.buffer}, before that write"
        found = Difference(point, "", text, meant, str(read.index))
        return self.row(reader, read, "refuted", why, found)

    def row(self, n: Nest, r: Read, verdict: str, because: str, found: Difference | None = None) -> CheckRow:
        told = "refuted" if verdict == "refuted" else "unknown"
        return CheckRow(n.name, self.home(r.buffer)[0], told, "read", because, found, graph=self.program.name)


def _ancestors(t: Tensor) -> set[str]:
    found: set[str] = set()
    work = [t]
    while work:
        e = work.pop().definition
        for x in e.inputs if e is not None else ():
            if x.name not in found:
                found.add(x.name)
                work.append(x)
    return found


def _points(axes: Sequence[Axis], sizes: Mapping[str, int]) -> int:
    return prod(int(a.extent.evaluate(sizes)) for a in axes)


def _accessed(axes: Sequence[Axis], n: Nest, address: Expr, when: Expr, sizes: Mapping[str, int]) -> _Access:
    spans = [int(a.extent.evaluate(sizes)) for a in axes]
    count = prod(spans)
    flat = np.arange(count, dtype=np.int64)
    env = {**sizes, **dict(zip((a.name for a in axes), unraveled(flat, spans), strict=True))}
    at = np.broadcast_to(address.evaluate_array(env), (count,))
    live = np.broadcast_to(when.evaluate_array(env), (count,))
    inner = max(count // max(_points(n.loops, sizes), 1), 1)
    return _Access(at[live].astype(np.int64), (flat // inner)[live])


def _first(made: _Access) -> dict[int, int]:
    """The first point that writes each element."""
    found: dict[int, int] = {}
    for a, q in zip(*_lists(made), strict=True):
        found.setdefault(a, q)
    return found


def _lists(x: _Access) -> tuple[list[int], list[int]]:
    return x.address.tolist(), x.number.tolist()


def _point(n: Nest, number: int, sizes: Mapping[str, int]) -> dict[str, int]:
    spans = [int(a.extent.evaluate(sizes)) for a in n.loops]
    found = unraveled(np.array([number], dtype=np.int64), spans)
    return {**sizes, **{a.name: int(c[0]) for a, c in zip(n.loops, found, strict=True)}}
