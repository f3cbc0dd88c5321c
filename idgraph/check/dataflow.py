"""The last write before a read decides what it sees: each memory followed address by address through the program's run.

Nests run in the order in which they stand, the points of a nest without a kernel in row-major order (the reduced loops
innermost; it writes after all of them); the nests of a kernel run one after the other at each of its points, whose
order nothing says (races between them: `idgraph.check.races`). A memory is a table of the element that each
address holds. A read is right where it sees the element that a buffer which is readable then declares there.

Only memory that is used in more ways than "one buffer, written before it is read" is followed. Rows are of what is
wrong or not decided; `Flow.stale` are buffers that no longer hold their tensor when a nest runs, though none says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import numpy.typing as npt

from idgraph.arith import ArithError, Expr, simplify
from idgraph.check.enumeration import sample_sizes, unraveled
from idgraph.check.labels import Elements, TooLarge
from idgraph.check.program import Axis, BufferLayout, Nest, NeutralProgram, Read, Write
from idgraph.check.report import CheckRow, Difference
from idgraph.check.run_order import RunOrder, unwritten
from idgraph.check.semantics import NoIndexMeaning

CONTESTED = -(1 << 40)  # in place of an element: the order of points decides
POINTS = 1 << 22  # points of a nest whose accesses are followed

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Flow:
    """``rows`` of reads that see another element than they should, of outputs that nothing writes or that are lost;
    ``stale``: (nest, buffer) pairs; ``doubts``: by nest, a row that holds where the program means the stale buffer.
    """

    rows: list[CheckRow] = field(default_factory=list[CheckRow])
    stale: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    doubts: dict[str, CheckRow] = field(default_factory=dict[str, CheckRow])


@dataclass(frozen=True, slots=True)
class _Event:
    """An access where it happens: addresses, the loops' point of each; for a write, the elements that it stores."""

    address: Ints
    number: Ints
    label: Ints


@dataclass(slots=True)
class _Memory:
    """One storage now: ``at`` (sorted addresses), the element that each holds, which write stored it at which point."""

    at: Ints
    label: Ints
    writer: Ints
    point: Ints


def follow(p: NeutralProgram) -> Flow:
    """The data flow of a program, at its sizes or at sample sizes."""
    flow = Flow(list(unwritten(p)))
    try:
        samples = tuple(sample_sizes(p))
    except NoIndexMeaning as why:
        flow.rows.append(CheckRow("order", "", "unknown", because=str(why), graph=p.name))
        return flow
    shape = RunOrder(p)
    for home in shape.followed():
        followed = True
        for sizes in samples:
            run = _Run(shape, home, sizes, flow)
            try:
                followed = run.all()
            except (TooLarge, NoIndexMeaning, ArithError) as why:
                flow.rows.append(CheckRow(run.now, home, "unknown", because=f"what it sees there: {why}", graph=p.name))
                followed = False
            if not followed:
                break
        if followed and p.symbols:
            because = "which write a read sees is not proved for all sizes; none is wrong at the sizes tried"
            flow.rows.append(CheckRow(shape.readers(home)[0].name, home, "unknown", because=because, graph=p.name))
    return flow


class _Run:
    """One storage followed through the run at one set of sizes."""

    def __init__(self, shape: RunOrder, home: str, sizes: dict[str, int], flow: Flow) -> None:
        self.shape, self.home, self.sizes, self.flow = shape, home, sizes, flow
        self.elements = Elements(shape.program.fusion, sizes)
        self.writers = shape.writers(home)
        self.now = next((n.name for n in [n for n, _ in self.writers] or shape.readers(home)), home)
        self.calls = set(shape.program.order) - {n.name for n in shape.nests}
        self.events: dict[int, _Event] = {}

    def all(self) -> bool:
        """Whether all reads of the storage were followed, and none is wrong."""
        shape, p = self.shape, self.shape.program
        mine = [b for b in p.buffers if b.home == self.home and b.tensor in self.elements.tensors]
        self.declared = {b.name: self.elements.placed(b) for b in mine}
        every = [a for a, _ in self.declared.values()]
        for k, (n, w) in enumerate(self.writers):
            self.now = n.name
            self.events[k] = self._write_event(k, n, w)
            every.append(self.events[k].address)
        at = np.unique(np.concatenate(every))
        self.memory = _Memory(at, *(np.full(len(at), v, dtype=np.int64) for v in (0, -1, -1)))
        nests = {n.name for n in p.nests}
        for b in mine:
            if self.elements.tensors[b.tensor].definition is None and b.after not in shape.time:
                self._declare(b)
        steps: list[str | list[Nest]] = []
        for name in sorted({*p.order, *nests}, key=shape.when):
            n = next((n for n in p.nests if n.name == name), None)
            last = steps[-1] if steps else ""
            if n is None:
                steps.append(name)
            elif isinstance(last, list) and n.kernel and last[0].kernel == n.kernel:
                last.append(n)
            else:
                steps.append([n])
        loops = [x[0].kernel for x in steps if isinstance(x, list) and x[0].kernel]
        if len(set(loops)) < len(loops):
            raise NoIndexMeaning("the nests of one kernel do not stand together")
        good = True
        for step in steps:
            if isinstance(step, str):
                for b in mine:
                    if b.after == step:
                        self._declare(b)
                continue
            for n in step:
                for k, w in enumerate(n.writes):
                    for r in dict.fromkeys(w.reads):
                        if shape.home(r.buffer)[0] == self.home:
                            self.now = n.name
                            good &= self._read(step, n, k, r)
            self._store(step)
        return good & self._outputs(mine)

    # writes -----------------------------------------------------------------------------------------------------------

    def _write_event(self, k: int, n: Nest, w: Write) -> _Event:
        b = self.shape.buffers.get(w.buffer)
        if n.unread or w.mode == "add" or {*n.loads, *n.places} & {*w.index.names, *w.when.names}:
            if b is None or b.name not in self.declared:
                raise NoIndexMeaning(f"where {n.name} writes {w.buffer} depends on loaded values")
            at, label = self.declared[b.name]  # entries: their own rows say whether they are right
            return _Event(at, np.zeros_like(at), label)
        at, number = self._accessed(n.loops, n, w.buffer, w.index, w.when)
        if b is None or b.name not in self.declared:
            return _Event(at, number, np.full(len(at), -2 - k, dtype=np.int64))  # no tensor's element: the write
        return _Event(at, number, self._labels(b, at))

    def _labels(self, b: BufferLayout, at: Ints) -> Ints:
        """The elements that a buffer declares at addresses; -1: none."""
        where, labels = self.declared[b.name]
        order = np.argsort(where, kind="stable")
        if not len(where):
            return np.full(len(at), -1, dtype=np.int64)
        k = order[np.minimum(np.searchsorted(where, at, sorter=order), len(where) - 1)]
        return np.where(where[k] == at, labels[k], -1)

    def _declare(self, b: BufferLayout) -> None:
        at, label = self.declared[b.name]
        k = np.searchsorted(self.memory.at, at)
        self.memory.label[k], self.memory.writer[k] = label, -1

    def _own(self, n: Nest) -> list[tuple[int, int, _Event]]:
        """(which write of the nest, which of the storage, the event)."""
        return [(n.writes.index(w), k, self.events[k]) for k, (m, w) in enumerate(self.writers) if m is n]

    def _store(self, step: Sequence[Nest]) -> None:
        for n in step:
            own = self._own(n)
            if not own:
                continue
            at, number, label = (
                np.concatenate([getattr(e, f) for *_, e in own]) for f in ("address", "number", "label")
            )
            which = np.concatenate([np.full(len(e.address), k) for _, k, e in own])
            order = np.lexsort((which, number))
            k = np.searchsorted(self.memory.at, at[order])
            m = self.memory  # of an address that stands twice the last value stays
            m.label[k], m.writer[k], m.point[k] = label[order], which[order], number[order]
        if step[0].kernel:
            self._contested(step)

    def _contested(self, step: Sequence[Nest]) -> None:
        """Addresses that points of one kernel write with different elements: the last one is any of them."""
        own = [(self._count(n), e) for n in step for *_, e in self._own(n)]
        if not own:
            return
        at, number, label = (np.concatenate([getattr(e, f) for _, e in own]) for f in ("address", "number", "label"))
        if len({c for c, _ in own}) > 1:  # which points go together nothing says
            number = np.arange(len(at))
        order = np.lexsort((label, at))
        at, number, label = at[order], number[order], label[order]
        odd = (at[1:] == at[:-1]) & (label[1:] != label[:-1])
        low, high = (f.reduceat(number, starts) if len(at) else number for f, starts in (
            (np.minimum, np.flatnonzero(np.r_[True, at[1:] != at[:-1]])),
            (np.maximum, np.flatnonzero(np.r_[True, at[1:] != at[:-1]])),
        ))  # fmt: skip
        places = np.unique(at)
        several = places[low != high] if len(at) else places
        self.memory.label[np.searchsorted(self.memory.at, np.intersect1d(at[1:][odd], several))] = CONTESTED

    # reads ------------------------------------------------------------------------------------------------------------

    def _read(self, step: Sequence[Nest], n: Nest, j: int, r: Read) -> bool:
        """One read of write ``j`` of a nest: right, or a row says what it sees."""
        if n.unread or {*n.loads, *n.places} & {*r.index.names, *r.when.names}:
            why = n.unread or "which write it sees depends on loaded values"
            return self._add_row(n, r, "unknown", why)
        if len(step) > 1:
            mixed = [m for m in step if self._own(m) and m is not n]
            if any(self._count(m) != self._count(n) or m.reduce or n.reduce for m in mixed):
                return self._add_row(
                    n, r, "unknown", f"how {mixed[0].name} and it share one kernel's points is not stated"
                )
        at, number = self._accessed(n.axes, n, r.buffer, r.index, r.when)
        if self._race(n, r, at, number):
            return False
        m = self.memory
        k = np.minimum(np.searchsorted(m.at, at), max(len(m.at) - 1, 0))
        known = m.at[k] == at
        label, writer, point = (np.where(known, x[k], v) for x, v in ((m.label, 0), (m.writer, -1), (m.point, -1)))
        here = step[: [x is n for x in step].index(True) + 1]
        for x in here:
            for i, which, e in self._own(x):
                hit, q, got = self._before(e, at, number, n, x, i < j or x is not n)
                newer = hit & ((q >= point) | ~np.isin(writer, [c for y in here for _, c, _ in self._own(y)]))
                label, point = np.where(newer, got, label), np.where(newer, q, point)
                writer = np.where(newer, which, writer)
        return self._right(n, r, at, number, label, writer, point)

    def _before(
        self, e: _Event, at: Ints, number: Ints, n: Nest, x: Nest, sooner: bool
    ) -> tuple[npt.NDArray[np.bool_], Ints, Ints]:
        """The last event of ``e`` at each address that has run before each point: (whether, its point, its element)."""
        if not len(e.address):
            return np.zeros(len(at), dtype=bool), number, number
        span = max(int(e.number.max()), int(number.max(initial=0))) + 2
        where = np.searchsorted(self.memory.at, e.address) * span + e.number
        order = np.argsort(where, kind="stable")
        keys = where[order]
        k = np.minimum(np.searchsorted(self.memory.at, at), len(self.memory.at) - 1)
        ask = k * span + number
        place = np.searchsorted(keys, ask, side="right" if sooner else "left") - 1
        found = order[np.maximum(place, 0)]
        hit = (place >= 0) & (e.address[found] == at)
        if n.kernel:  # other points: no order
            hit &= (e.number[found] == number) & sooner
        return hit, e.number[found], e.label[found]

    def _right(self, n: Nest, r: Read, at: Ints, number: Ints, label: Ints, writer: Ints, point: Ints) -> bool:
        if r.buffer not in self.shape.buffers:
            return self._right_inner(n, r, at, number, label, writer, point)
        b = self.shape.buffers[r.buffer]
        made = {m.name for m, w in self.writers if w.buffer == b.name}
        early = made == {m.name for m, w in self._after(n) if w.buffer == b.name} and b.after not in self.calls
        early &= self.elements.tensors[b.tensor].definition is not None
        for looker in self.shape.lookers(n):
            able = [b for b in self.shape.readable(self.home, looker) if b.name in self.declared]
            fits = {b.name: self._labels(b, at) for b in able}
            same = np.zeros(len(at), dtype=bool)
            for x in fits.values():
                same |= x == label
            own = self._labels(self.shape.buffers[r.buffer], at)
            inside = own >= 0  # outside of the tensor: another row's fault
            if early:  # what lies there before is another tensor's, whose operations it does not mean to do again
                same &= (own == label) | self._together(n, number, own, label)
            bad = np.flatnonzero(~same & (inside | (label > 0)))
            if bad.size and self._nameless(int(label[bad[0]])):
                return self._add_row(n, r, "unknown", "it sees what was written under a name that no tensor has")
            if bad.size and looker is n:
                return self._refuted(n, r, int(at[bad[0]]), int(number[bad[0]]), int(label[bad[0]]),
                                     int(writer[bad[0]]), int(point[bad[0]]))  # fmt: skip
            if bad.size:
                because = f"what it read for {looker.name} was not there yet, or is not there any more, when that runs"
                return self._add_row(n, r, "unknown", because)
            for b in able:
                lost = np.flatnonzero((fits[b.name] >= 0) & (fits[b.name] != label))
                if not lost.size:
                    continue
                self.flow.stale.add((looker.name, b.name))
                if looker is n and b.name == r.buffer:
                    seen = (int(x[lost[0]]) for x in (at, number, label, writer, point))
                    self.flow.doubts.setdefault(n.name, self._difference(n, r, *seen))
        return True

    def _together(self, n: Nest, number: Ints, own: Ints, label: Ints) -> npt.NDArray[np.bool_]:
        """Points that combine the same elements over their reduced loops, in another order."""
        if not n.reduce:
            return np.zeros(len(own), dtype=bool)
        a, b = np.lexsort((own, number)), np.lexsort((label, number))
        return ~np.isin(number, number[a][own[a] != label[b]])

    def _right_inner(self, n: Nest, r: Read, at: Ints, number: Ints, label: Ints, writer: Ints, point: Ints) -> bool:
        """Memory that no tensor names: what it sees is made by the nest that the checker looks through."""
        made = self.shape.inner.get(r.buffer)
        wanted = next(
            (k for k, (m, w) in enumerate(self.writers) if made is not None and m is made[0] and w is made[1]), None
        )
        bad = np.flatnonzero(label != -2 - wanted) if wanted is not None else np.zeros(0, dtype=np.int64)
        if not bad.size:
            return True
        k = int(bad[0])
        if self._nameless(int(label[k])):
            return self._add_row(n, r, "unknown", "several nests write it, and it has no tensor's name")
        return self._refuted(n, r, int(at[k]), int(number[k]), int(label[k]), int(writer[k]), int(point[k]))

    def _nameless(self, label: int) -> bool:
        return -2 - len(self.writers) < label <= -2

    def _after(self, n: Nest) -> list[tuple[Nest, Write]]:
        index = self.shape.nests.index(n)
        return [(m, w) for m, w in self.writers if self.shape.nests.index(m) > index]

    def _race(self, n: Nest, r: Read, at: Ints, number: Ints) -> bool:
        """A row where another point of its kernel's loop writes what a point reads."""
        group = [(m, k) for k, (m, _) in enumerate(self.writers) if n.kernel and m.kernel == n.kernel]
        for m, k in group:
            e = self.events[k]
            low, high = (np.full(len(self.memory.at), v, dtype=np.int64) for v in (POINTS, -1))
            place = np.searchsorted(self.memory.at, e.address)
            np.minimum.at(low, place, e.number)
            np.maximum.at(high, place, e.number)
            asked = np.minimum(np.searchsorted(self.memory.at, at), len(self.memory.at) - 1)
            known = (self.memory.at[asked] == at) & (high[asked] >= 0)
            bad = np.flatnonzero(known & ((low[asked] != number) | (high[asked] != number)))
            if not bad.size:
                continue
            if n.reduce or any(x.reduce for x, _ in group):  # else `idgraph.check.races` says so
                j = int(bad[0])
                q = int(low[asked[j]] if low[asked[j]] != number[j] else high[asked[j]])
                where = ", ".join(f"{a}={b}" for a, b in _point(m, q, self.sizes).items())
                shown = f"{self.home}[{int(at[j])}]"
                meant = f"{shown}, which the point {where} of {m.name} writes: points of a kernel run in any order"
                found = Difference(_point(n, int(number[j]), self.sizes), "", shown, meant, str(r.index))
                self._add_row(n, r, "refuted", "it reads what another point of its kernel writes", found)
            return True
        return False

    def _outputs(self, mine: Sequence[BufferLayout]) -> bool:
        """Each output is still there when the program ends."""
        p = self.shape.program
        good = True
        for t in dict.fromkeys(p.fusion.outputs):
            own = [b for b in p.buffers if b.tensor == t.name and not b.copy]
            if t.definition is None or not own or any(b.home != self.home for b in own):
                continue
            lost: list[tuple[int, int]] = []
            for b in own:
                at, label = self.declared[b.name]
                k = np.searchsorted(self.memory.at, at)
                held = self.memory.label[k]
                bad = np.flatnonzero((held != label) & (held != 0))  # what nothing writes: another row says so
                if not bad.size:
                    break
                lost.append((int(at[bad[0]]), int(k[bad[0]])))
            else:
                at, k = lost[0]
                writer = int(self.memory.writer[k])
                n = self.writers[writer][0] if writer >= 0 else None
                spot = _point(n, int(self.memory.point[k]), self.sizes) if n is not None else {}
                seen = f"{self.home}[{at}], where {self.elements.name(int(self.memory.label[k]))} lies at the end"
                found = Difference(spot, "", seen, f"{t.name} there, an output", "")
                who = n.name if n is not None else self.home
                self.flow.rows.append(
                    CheckRow(
                        who, self.home, "refuted", "write", f"it overwrites the output {t.name}", found, graph=p.name
                    )
                )
                good = False
        return good

    # words ------------------------------------------------------------------------------------------------------------

    def _refuted(self, n: Nest, r: Read, at: int, number: int, label: int, writer: int, point: int) -> bool:
        row = self._difference(n, r, at, number, label, writer, point)
        return self._add_row(n, r, "refuted", row.because, row.counterexample)

    def _difference(self, n: Nest, r: Read, at: int, number: int, label: int, writer: int, point: int) -> CheckRow:
        shown = f"{self.home}[{at}]"
        own = self.shape.buffers.get(r.buffer)
        wanted = int(self._labels(own, np.array([at]))[0]) if own is not None else 0
        meant = self.elements.name(wanted) if wanted > 0 else f"{shown} of {r.buffer}"
        seen = f"{shown}, {self.elements.name(label)}" if label <= 0 or writer < 0 else ""
        why = "it reads what nothing has written before"
        if writer >= 0:
            m, w = self.writers[writer]
            where = ", ".join(f"{a}={b}" for a, b in _point(m, point, self.sizes).items()) or "its one point"
            value = f"the value of {self.elements.name(label)}" if label > 0 else f"a value of {w.buffer}"
            seen = f"{shown}, {value}: {m.name} wrote it at {where}"
            made = self.shape.buffers.get(w.buffer)
            why = f"it sees what was written as {made.tensor if made is not None else w.buffer}"
            first = "its points run one after the other" if m is n else f"{m.name} runs before {n.name}"
            meant += f"; {first}"
        else:
            late = [m.name for m, w in self._after(n) if w.buffer == r.buffer]
            meant += f", which {late[0]} writes later" if late else ""
        found = Difference(_point(n, number, self.sizes), "", seen, meant, str(r.index))
        return CheckRow(n.name, self.home, "refuted", "read", why, found, graph=self.shape.program.name)

    def _add_row(self, n: Nest, r: Read, verdict: str, because: str, found: Difference | None = None) -> bool:
        told = "refuted" if verdict == "refuted" else "unknown"
        row = CheckRow(n.name, self.home, told, "read", because, found, graph=self.shape.program.name)
        if row not in self.flow.rows:
            self.flow.rows.append(row)
        return False

    # points -----------------------------------------------------------------------------------------------------------

    def _count(self, n: Nest) -> int:
        return prod(int(a.extent.evaluate(self.sizes)) for a in n.loops)

    def _accessed(self, axes: Sequence[Axis], n: Nest, name: str, index: Expr, when: Expr) -> tuple[Ints, Ints]:
        """(addresses in the storage, numbers of the loops' points) of an access where it happens."""
        spans = [int(a.extent.evaluate(self.sizes)) for a in axes]
        count = prod(spans)
        if count > POINTS:
            raise NoIndexMeaning(f"{n.name} has {count} points: too many to follow each")
        flat = np.arange(count, dtype=np.int64)
        env = {**self.sizes, **dict(zip((a.name for a in axes), unraveled(flat, spans), strict=True))}
        at = np.broadcast_to(simplify(index + self.shape.home(name)[1]).evaluate_array(env), (count,))
        live = np.broadcast_to(when.evaluate_array(env), (count,)).astype(bool)
        inner = max(count // max(self._count(n), 1), 1)
        return at[live].astype(np.int64), (flat // inner)[live]


def _point(n: Nest, number: int, sizes: Mapping[str, int]) -> dict[str, int]:
    spans = [int(a.extent.evaluate(sizes)) for a in n.loops]
    found = unraveled(np.array([max(number, 0)], dtype=np.int64), spans)
    return {**sizes, **{a.name: int(c[0]) for a, c in zip(n.loops, found, strict=True)}}
