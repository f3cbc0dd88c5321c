"""The last write decides: a program's tree runs point by point on values (`idgraph.check.tree_values`).

Every element of every result must hold the value that the program means when the tree has run. Iterations of a loop in
any order run one after the other here; where one touches what another writes, and not all of them write the one value
that is read, the order decides, which is a race.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any, assert_never

import numpy as np

from idgraph.arith import TRUE, Expr, and_
from idgraph.check.enumeration import unraveled
from idgraph.check.program import (
    ZERO,
    Axis,
    BufferLayout,
    Nest,
    NeutralProgram,
    TreeGuard,
    TreeLoop,
    TreeNode,
    Write,
    leaves,
    tree_of,
)
from idgraph.check.semantics import NoIndexMeaning
from idgraph.check.statement_values import computed
from idgraph.check.tree_values import MASK, SMALLER, ElementValues, ValueNumbers, moved_input, placed, values_at

MOST = 1 << 20  # accesses that are followed

COPY = "\0"  # before the number of an iteration's own memory: no name has it

Place = tuple[str, int]  # storage, address


@dataclass(frozen=True, slots=True)
class Seen:
    """A read as it happened: where, the value, the number of the write that it sees (-1: none), its formula."""

    place: Place
    buffer: str
    value: int
    writer: int
    formula: str
    partial: bool = False  # the result's own value, which the write goes on from


@dataclass(frozen=True, slots=True)
class TreeEvent:
    """A write as it happened: which write of which nest, at which point, what it read; ``value`` is there since."""

    nest: Nest
    write: Write
    point: Mapping[str, int]
    place: Place
    seen: tuple[Seen, ...]
    value: int
    before: int  # the number of the write before it in its place, -1
    number: int  # in the order of the run


@dataclass(slots=True)
class _Contact:
    """Reads and writes of one address by iterations of one loop in any order."""

    before: int
    stored: set[int] = field(default_factory=set[int])
    adds: bool = False
    wrote: dict[int, int] = field(default_factory=dict[int, int])  # iteration: number of its first write
    early: dict[int, tuple[int, Seen]] = field(default_factory=dict[int, tuple[int, Seen]])  # reads before its own
    late: dict[int, tuple[int, Seen]] = field(default_factory=dict[int, tuple[int, Seen]])

    def race(self) -> tuple[int, tuple[int, Seen] | int] | None:
        """(the number of a write, a read or another write that it meets in another iteration); None: no order shows."""
        one_value = len(self.stored) == 1 and not self.adds
        for reads, harmless in ((self.early, one_value and self.before in self.stored), (self.late, one_value)):
            for k, read in reads.items():
                other = next((e for j, e in self.wrote.items() if j != k), None)
                if other is not None and not harmless:
                    return other, read
        if len(self.wrote) > 1 and not one_value and self.stored:
            a, b = list(self.wrote.values())[:2]
            return a, b
        return None


@dataclass(slots=True)
class _ReadTable:
    """A read at all points: one table of addresses, or one for each value of the loaded integers it uses (``sizes``),
    which lie where ``keys`` say.
    """

    buffer: str
    home: str
    formula: str
    choices: list[tuple[list[int], list[bool]]]  # addresses, where
    sizes: list[int]
    keys: list[_ReadTable]


@dataclass(slots=True)
class _Accesses:
    """One write of a nest over all points of its loops, row-major, and of its reduced loops: lists over both."""

    write: Write
    home: str
    own: str  # the tensor whose operation it computes, "" for none
    holds: str  # the tensor of the buffer, "" for none
    each: int
    live: list[bool]
    at: list[int]
    reads: list[_ReadTable]


@dataclass(slots=True)
class TreeRun:
    """A program after its run: ``events``, the last one of each address, the first race, the first touch outside."""

    program: NeutralProgram
    sizes: Mapping[str, int]
    unions: frozenset[str] = frozenset()  # buffers of no operation in which an element counts once
    sums: frozenset[str] = frozenset()  # buffers of no operation in which what one point reads is added up
    numbers: ValueNumbers = field(default_factory=ValueNumbers)
    values: ElementValues = field(init=False)
    events: list[TreeEvent] = field(default_factory=list[TreeEvent])
    memory: dict[Place, tuple[str, int, int]] = field(default_factory=dict[Place, tuple[str, int, int]])
    outside: tuple[Nest, Mapping[str, int], Place, str, str] | None = None  # the buffer, its formula
    race: tuple[TreeEvent, TreeEvent, Seen | None, str] | None = None
    start: dict[Place, int] = field(default_factory=dict[Place, int])  # what arguments hold
    points: int = 0
    undistinguished: str = ""  # a tensor of positions, whose elements only numbers tell apart
    _buffers: dict[str, BufferLayout] = field(default_factory=dict[str, BufferLayout])
    ends: dict[str, int] = field(default_factory=dict[str, int])
    _tables: dict[int, list[_Accesses]] = field(default_factory=dict[int, list[_Accesses]])
    _loops: dict[int, tuple[Axis, ...]] = field(default_factory=dict[int, tuple[Axis, ...]])
    _any: list[tuple[TreeLoop, int, int]] = field(default_factory=list[tuple[TreeLoop, int, int]])
    _met: dict[tuple[int, int, Place], _Contact] = field(default_factory=dict[tuple[int, int, Place], _Contact])
    _tree: tuple[TreeNode, ...] = ()
    _copies: int = 0
    _fresh: set[int] = field(default_factory=set[int])  # reads that saw an operand of the result, not a part of it

    def __post_init__(self) -> None:
        p = self.program
        tree = self._tree = tree_of(p)
        self._supported(tree)
        self.values = ElementValues(p, self.sizes, self.numbers)
        self.undistinguished = self.values.undistinguished()
        if self.undistinguished and not computed(p):
            raise NoIndexMeaning(
                f"elements of {self.undistinguished}, made of positions, differ in their `value`s only"
            )
        self._buffers = {b.name: b for b in p.buffers}
        self._start()
        self._tabulate(tree, (), TRUE)
        self._run(tree, 0, {})
        for (loop, _, _), c in self._met.items():
            found = c.race()
            if found is not None:
                self._raced(loop, *found)
                break
        involved = [*(self.race[:2] if self.race else ()), *(self.outside[:1] if self.outside else ())]
        if any((x if isinstance(x, Nest) else x.nest).masked for x in involved):
            raise NoIndexMeaning("a mask of loaded values says whether iterations meet, or touch other memory")

    def _supported(self, tree: Sequence[TreeNode]) -> None:
        if self.program.opaque:
            raise NoIndexMeaning("some of its operations have no meaning here")
        every = list(leaves(tree))
        if len({id(n) for n in every}) < len(every):
            raise NoIndexMeaning("one nest stands in the tree twice")
        for n in every:
            if n.unread or n.loose or n.position is not None:
                raise NoIndexMeaning(n.unread or f"what {n.name} touches depends on loaded values")
            if n.masked and not computed(self.program):
                raise NoIndexMeaning(f"a mask of loaded values, of {n.name}, is judged where every write has a `value`")
            left = n.loads.keys() | n.places.keys()
            if any(left & (w.index.names | w.when.names) for w in n.writes):
                raise NoIndexMeaning(f"where {n.name} writes depends on loaded values")

    def _start(self) -> None:
        """Memories as the program begins, and their ends: an argument's ends with it, whatever else lies there."""
        f, p = self.program.fusion, self.program
        arguments, results = {t.name for t in f.inputs}, {t.name for t in f.outputs}
        taken = {b.home for b in p.buffers if b.tensor in arguments}
        sized = taken | {b.home for b in p.buffers if b.tensor in results}
        self.ends = {home: int(n.evaluate(self.sizes)) for home, n in p.sizes.items()}
        for b in p.buffers:
            if b.home not in sized:
                continue
            addresses = placed(b, self.values.shapes[b.tensor], self.sizes)
            if b.home not in p.sizes and (b.tensor in arguments or b.home not in taken):
                self.ends[b.home] = max([self.ends.get(b.home, 0), *(a + 1 for a in addresses)])
            if b.tensor in arguments:
                for a, v in zip(addresses, self.values.of[b.tensor], strict=True):
                    self.memory[b.home, a] = "", v, -1
                    self.start[b.home, a] = v

    # addresses --------------------------------------------------------------------------------------------------------

    def _tabulate(self, body: Sequence[TreeNode], loops: tuple[Axis, ...], when: Expr) -> None:
        for node in body:
            match node:
                case TreeLoop():
                    self._tabulate(node.body, (*loops, node.axis), when)
                case TreeGuard():
                    self._tabulate(node.body, loops, and_(when, node.when))
                case Nest():
                    self._loops[id(node)] = (*loops, *node.loops)
                    self._tables[id(node)] = [self._accesses(node, w, (*loops, *node.loops), when) for w in node.writes]
                case _:
                    assert_never(node)

    def _accesses(self, n: Nest, w: Write, loops: tuple[Axis, ...], when: Expr) -> _Accesses:
        spans = [max(int(a.extent.evaluate(self.sizes)), 0) for a in (*loops, *n.reduce)]
        empty = 0 in spans[len(loops) :]  # it stores what a reduction starts from
        if empty:
            spans[len(loops) :] = [1] * len(n.reduce)
        count = prod(spans)
        self.points += count * (len(w.reads) + 1)
        self._few()
        flat = np.arange(count, dtype=np.int64)
        env = {**self.sizes, **dict(zip((a.name for a in (*loops, *n.reduce)), unraveled(flat, spans), strict=True))}
        home, base = self._home(w.buffer)
        own = self._buffers[w.buffer].tensor if w.buffer in self._buffers else ""
        return _Accesses(
            w, home, own if own in self.values.own else "", own, max(prod(spans[len(loops) :]), 1),
            [bool(x) for x in values_at(and_(when, w.when), env, count)], values_at(w.index + base, env, count),
            [] if empty else [self._read_table(n, r.buffer, r.index, r.when, env, count) for r in w.reads],
        )  # fmt: skip

    def _read_table(
        self, n: Nest, buffer: str, index: Expr, when: Expr, env: Mapping[str, Any], count: int
    ) -> _ReadTable:
        home, base = self._home(buffer)
        used = [x for x in (*n.loads, *n.places) if x in index.names | when.names]
        keys, sizes = list[_ReadTable](), list[int]()
        for x in used:
            place = n.places.get(x)
            load = n.loads.get(place.value.name) if place is not None and place.value.op == "sym" else None
            if place is None or load is None or load.text or {*n.loads, *n.places} & load.index.names:
                raise NoIndexMeaning(f"what {n.name} touches is computed of loaded values")
            holder = self._buffers.get(load.buffer)
            if holder is None or not moved_input(self.program.fusion, holder.tensor):
                raise NoIndexMeaning(f"{n.name} loads an index from {load.buffer}, which is computed")
            sizes.append(int(place.size.evaluate(self.sizes)))
            keys.append(self._read_table(n, load.buffer, load.index, TRUE, env, count))
        self.points += count * (prod(sizes) - 1)
        self._few()
        choices: list[tuple[list[int], list[bool]]] = []
        for c in product(*map(range, sizes)):
            at = {**env, **dict(zip(used, c, strict=True))}
            choices.append((values_at(index + base, at, count), [bool(x) for x in values_at(when, at, count)]))
        return _ReadTable(buffer, home, str(index), choices, sizes, keys)

    def _few(self) -> None:
        if self.points > MOST:
            raise NoIndexMeaning(
                f"{self.points} accesses and more are too many to follow each (the limit is {MOST}); {SMALLER}"
            )

    def _home(self, name: str) -> tuple[str, Expr]:
        b = self._buffers.get(name)
        return (b.home, b.base) if b is not None else self.program.memory.get(name, (name, ZERO))

    # the run ----------------------------------------------------------------------------------------------------------

    def _run(self, body: Sequence[TreeNode], flat: int, homes: Mapping[str, str]) -> None:
        for node in body:
            match node:
                case TreeLoop():
                    n = max(int(node.axis.extent.evaluate(self.sizes)), 0)
                    for k in range(n):
                        own = dict(homes)
                        for name in node.private:
                            self._copies += 1
                            own[name] = f"{name}{COPY}{self._copies}"
                        if node.any_order:
                            self._any.append((node, flat, k))
                        self._run(node.body, flat * n + k, own)
                        if node.any_order:
                            self._any.pop()
                case TreeGuard():
                    self._run(node.body, flat, homes)
                case Nest():
                    count = prod(max(int(a.extent.evaluate(self.sizes)), 0) for a in node.loops)
                    for k in range(count):
                        for x in self._tables[id(node)]:
                            self._write(node, x, flat * count + k, homes)
                case _:
                    assert_never(node)

    def _write(self, n: Nest, x: _Accesses, flat: int, homes: Mapping[str, str]) -> None:
        first = flat * x.each
        points = [k for k in range(first, first + x.each) if x.live[k]]
        if not points:
            return
        places = {x.at[k] for k in points}
        if len(places) > 1:
            raise NoIndexMeaning(f"the element that {n.name} writes depends on its reduced loops")
        place = homes.get(x.write.buffer, x.home), places.pop()
        total, seen = self._combined(n, x, flat, points, place, homes)
        self._bounds(n, flat, x.write.buffer, place, "")
        tag, value, last = self.memory.get(place, ("", self._nothing(place), -1))
        if x.write.mode == "add":
            total = self._joined(n, x, value if tag == x.own else self.numbers.sealed(tag, value), total)
        point, number = self.point(n, flat), len(self.events)
        self.events.append(TreeEvent(n, x.write, point, place, tuple(seen), total & MASK, last, number))
        self._touched_by_write(place, self.numbers.sealed(tag, value), self.numbers.sealed(x.own, total & MASK), x)
        self.memory[place] = x.own, total & MASK, len(self.events) - 1

    def _combined(
        self, n: Nest, x: _Accesses, flat: int, points: Sequence[int], place: Place, homes: Mapping[str, str]
    ) -> tuple[int, list[Seen]]:
        """The value that a write stores, of its reads. One that reads the element it writes, or, of a scan, one of the
        result's others, goes on from the value there.
        """
        total, seen = 0, list[Seen]()
        for k in points:
            values, again, own = list[int](), False, True
            for r in x.reads:
                s = self._seen(n, x, flat, r, k, homes)
                if s is None:
                    continue
                tag, raw, last = self.memory.get(s.place, ("", self._nothing(s.place), -1))
                same = tag == x.own if x.own else last >= 0 and self.events[last].write.buffer == x.write.buffer
                if same and not r.keys and self._goes_on(x, s.place, place):
                    total = self._joined(n, x, raw, total)
                    s = replace(s, partial=True)
                    again = id(r) in self._fresh
                else:
                    values.append(s.value)
                    self._fresh.add(id(r))
                    own &= self._of_its_tensor(s)
                seen.append(s)
            alone = x.write.mode == "store" and len(values) == len(seen)
            more = self.values.respelled(x.holds, values, alone=alone) if own else None
            if more is None:
                more = self.values.added(values) if self._adds(x) else self.numbers.union(values)
            total = self._joined(n, x, total, more) if x.each == 1 or self._once(x) else total + more
            if again and not values and not self._once(x):  # the operation, of what is its result already
                total = self.numbers.of(("again", total))
        return total, seen

    def _of_its_tensor(self, s: Seen) -> bool:
        """Whether a read sees an element of the tensor of its buffer; yes where that has none."""
        b = self._buffers.get(s.buffer)
        return b is None or self.values.holds(b.tensor, s.value)

    def _adds(self, x: _Accesses) -> bool:
        """Whether a write adds up what one point reads: several elements of a sum, unrolled."""
        return x.own in self.values.summed if x.own else x.write.buffer in self.sums

    def _goes_on(self, x: _Accesses, read: Place, written: Place) -> bool:
        return x.each == 1 and x.write.mode == "store" and (read == written or x.own in self.values.scanned)

    def _once(self, x: _Accesses) -> bool:
        """Whether an element counts once in what a write combines, however often it is combined."""
        return x.own in self.values.idempotent if x.own else x.write.buffer in self.unions

    def _joined(self, n: Nest, x: _Accesses, before: int, more: int) -> int:
        """A value and what is combined with it later: a sum, or one pointwise operation in parts."""
        if self._once(x):
            return self.numbers.union((before, more))
        if not before or not more or not x.own or x.own in self.values.summed:
            return before + more
        if self.numbers.shares(before, more):
            if not self.values.once_each(x.own):
                raise NoIndexMeaning(f"{n.name} combines an element with what is made of it already")
            return self.numbers.of(("again", before, more))
        return self.numbers.union((before, more))

    def _seen(self, n: Nest, x: _Accesses, flat: int, r: _ReadTable, k: int, homes: Mapping[str, str]) -> Seen | None:
        """The read as it happens at a point; of one that loaded integers name, all that they may name."""
        options = [
            self._read(n, x, flat, r.buffer, (homes.get(r.buffer, r.home), at[k]), r.formula) if when[k] else None
            for at, when in r.choices
        ]
        first = next((s for s in options if s is not None), None)
        if first is None or not r.keys:
            return first
        found = [self._seen(n, x, flat, key, k, homes) for key in r.keys]
        keys = [s.value for s in found if s is not None]
        value = self.numbers.chosen(keys, r.sizes, [0 if s is None else s.value for s in options])
        return replace(first, value=value)

    def _read(self, n: Nest, x: _Accesses, flat: int, buffer: str, place: Place, formula: str) -> Seen:
        self._bounds(n, flat, buffer, place, formula)
        tag, value, last = self.memory.get(place, ("", self._nothing(place), -1))
        seen = Seen(place, buffer, self.numbers.sealed(tag, value), last, formula)
        for loop, prefix, k in self._any:
            if not loop.private or buffer_of(place) not in loop.private:
                c = self._contact(loop, prefix, place, seen.value)
                (c.late if k in c.wrote else c.early).setdefault(k, (len(self.events), seen))
        return seen

    def _touched_by_write(self, place: Place, before: int, value: int, x: _Accesses) -> None:
        for loop, prefix, k in self._any:
            if loop.private and buffer_of(place) in loop.private:
                continue
            c = self._contact(loop, prefix, place, before)
            c.wrote.setdefault(k, len(self.events) - 1)
            if x.write.mode == "add":
                c.adds = True
            else:
                c.stored.add(value)

    def _contact(self, loop: TreeLoop, prefix: int, place: Place, before: int) -> _Contact:
        key = id(loop), prefix, place
        found = self._met.get(key)
        if found is None:
            found = self._met[key] = _Contact(before)
        return found

    def _nothing(self, place: Place) -> int:
        return self.numbers.of(("nothing", place))

    def _bounds(self, n: Nest, flat: int, buffer: str, place: Place, formula: str) -> None:
        end = self.ends.get(buffer_of(place), place[1] + 1)
        if not 0 <= place[1] < end and self.outside is None:
            self.outside = n, self.point(n, flat), place, buffer, formula

    def _raced(self, loop: int, writer: int, other: tuple[int, Seen] | int) -> None:
        at, read = (other, None) if isinstance(other, int) else other
        self.race = self.events[writer], self.events[min(at, len(self.events) - 1)], read, self._named(loop)

    def _named(self, key: int) -> str:
        work = list(self._tree)
        while work:
            node = work.pop()
            if isinstance(node, TreeLoop) and id(node) == key:
                return node.axis.name
            if not isinstance(node, Nest):
                work += node.body
        return ""

    def order(self, a: TreeEvent, b: TreeEvent) -> str:
        """The reason why one write is before another: a loop that both are in, or where their nests stand."""
        for x, y in zip(self._loops[id(a.nest)], self._loops[id(b.nest)], strict=False):
            if x is not y:
                break
            if a.point[x.name] != b.point[x.name]:
                return f"{x.name}={a.point[x.name]} runs before {x.name}={b.point[x.name]}"
        return f"{a.nest.name} runs before {b.nest.name}" if a.nest is not b.nest else ""

    def point(self, n: Nest, flat: int) -> dict[str, int]:
        """Loop variables of a row-major number of the nest's points."""
        out: dict[str, int] = {}
        for a in reversed(self._loops[id(n)]):
            span = max(int(a.extent.evaluate(self.sizes)), 0)
            flat, out[a.name] = divmod(flat, span)
        return {**self.sizes, **dict(reversed(out.items()))}


def buffer_of(place: Place) -> str:
    """The storage of a place, or the buffer of which an iteration has its own."""
    return place[0].split(COPY)[0]
