"""A row kept between its sweeps (persistent): values that an earlier sweep has are not loaded, or computed, again.

Equal values are found by their statements: the same operation on equal operands, loads of one place in memory that no
kernel writes, variables of the row that nothing sets in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from idgraph.arith import Expr
from idgraph.ir.optable import OPERATIONS
from idgraph.kernel.defuse import all_reads, all_sets, definitions, index_exprs, reads
from idgraph.kernel.ir import (
    Accumulate,
    Buffer,
    Compute,
    Load,
    Local,
    Provenance,
    ProvenanceList,
    Select,
    Store,
)
from idgraph.kernel.value_numbers import Value, ValueNumbering
from idgraph.lower.storage import memory_dtype
from idgraph.passes.rows.join import Part
from idgraph.passes.rows.sweep import Plain, ReductionLoop

KEPT = "kept"
Place = tuple[int, int]  # (number of the part, number of the statement in it)


@dataclass(frozen=True, slots=True)
class RowCache:
    """``parts`` with what is kept stored into ``buffers``, one element of each for a column, and read from there."""

    parts: tuple[Part, ...]
    buffers: tuple[Buffer, ...]


def cache_row_values(parts: Sequence[Part], read_only: frozenset[str], loads: bool, at: Expr, size: Expr) -> RowCache:
    """The sweeps of one kernel made persistent: a row's values are kept in private arrays of ``size`` elements, at
    element ``at``. Values that are expensive to compute are kept, with ``loads`` loaded ones too.
    """
    found = _ReusedValues(parts, read_only, loads)
    found.number()
    wanted = found.choose()
    if not wanted:
        return RowCache(tuple(parts), ())
    buffers = {
        place: Buffer(f"{KEPT}{n}", f"row of {made.local.name}", memory_dtype(made.local.dtype), size, "private")
        for n, place in enumerate(sorted(wanted))
        for made in (found.value(place),)
    }
    return RowCache(tuple(found.rewritten(n, p, buffers, at) for n, p in enumerate(parts)), tuple(buffers.values()))


@dataclass(slots=True)
class _ReusedValues:
    """``first`` says where the value of each numbered statement was computed first; ``taken`` which statements of a
    sweep are replaced by a load of a kept value, ``dropped`` which ones are then dead."""

    parts: Sequence[Part]
    read_only: frozenset[str]
    loads: bool
    first: dict[Place, Place] = field(default_factory=dict[Place, Place])
    taken: dict[Place, Place] = field(default_factory=dict[Place, Place])
    dropped: set[Place] = field(default_factory=set[Place])

    def value(self, place: Place) -> Value:
        part = self.parts[place[0]]
        s = part.body[place[1]] if isinstance(part, ReductionLoop) else None
        if not isinstance(s, (Load, Compute, Select)):
            raise AssertionError(f"no value is computed at {place}")
        return s

    def number(self) -> None:
        """Find for each value where it was computed first."""
        values, places = ValueNumbering(self.read_only), dict[int, Place]()
        lead = next((p for p in self.parts if isinstance(p, ReductionLoop)), None)
        for n, part in enumerate(self.parts):
            numbered = isinstance(part, ReductionLoop) and lead is not None and _alike(lead, part)
            for k, x in enumerate(part.body if isinstance(part, ReductionLoop) and numbered else ()):
                values.define(x)
                if isinstance(x, Value):
                    self.first[n, k] = places.setdefault(values.number(x.local), (n, k))
            values.forget(all_sets((*part.body, *part.later) if isinstance(part, ReductionLoop) else (part,)))

    def choose(self) -> set[Place]:
        """Where values are computed that later sweeps take; sets what those sweeps take and drop.

        Values next to their use cost fewer operations than the loads that they are made of. They are kept where they
        are no more arrays than those.
        """
        found = self.wanted(next_to_use=False)
        if self.loads and found:
            before = dict(self.taken), set(self.dropped)
            self.taken, self.dropped = {}, set()
            nearer = self.wanted(next_to_use=True)
            if nearer and len(nearer) <= len(found):
                return nearer
            self.taken, self.dropped = before
        return found

    def wanted(self, next_to_use: bool) -> set[Place]:
        """The places of one way to choose: expensive values and loads, or all that an earlier sweep has."""
        found: set[Place] = set()
        for n in range(len(self.parts) - 1, -1, -1):
            part = self.parts[n]
            if not isinstance(part, ReductionLoop) or not any((n, k) in self.first for k in range(len(part.body))):
                continue
            live: set[str] = set()
            for k in range(len(part.body) - 1, -1, -1):
                x, place = part.body[k], (n, k)
                if not isinstance(x, Value) or place in found:
                    live |= all_reads((x,))
                elif x.local.name not in live:
                    self.dropped.add(place)
                elif self.first[place][0] < n and self.is_root(part, x, next_to_use):
                    self.taken[place] = self.first[place]
                    found.add(self.first[place])
                else:
                    live |= reads(x)
        return found

    def is_root(self, s: ReductionLoop, x: Value, any_value: bool) -> bool:
        """True of a value that is worth keeping between sweeps: expensive, or (a cast of) a load, or ``any_value``; and
        different in each column.
        """
        if x.local.dtype == "bool" or not _varies(s, x):
            return False
        if any_value:
            return True
        if isinstance(x, Compute) and OPERATIONS[x.op].cycles == "library":  # it costs more to compute than to keep
            return True
        if not self.loads:
            return False
        if isinstance(x, Compute) and x.op == "cast" and isinstance(x.operands[0], Local):
            return any(isinstance(y, Load) and y.local == x.operands[0] for y in s.body)
        return isinstance(x, Load)

    def serves(self, place: Place) -> ProvenanceList:
        """The purposes of the load at ``place``, with those of the loads that it replaces."""
        gone = [p for p, q in self.first.items() if q == place != p and (p in self.taken or p in self.dropped)]
        found = [x for x in map(self.value, (place, *gone)) if isinstance(x, Load)]
        return tuple(y for x in found for y in x.serves)

    def rewritten(self, n: int, part: Part, buffers: dict[Place, Buffer], at: Expr) -> Part:
        if not isinstance(part, ReductionLoop):
            return part
        body: list[Plain] = []
        for k, x in enumerate(part.body):
            place = (n, k)
            if place in self.taken and isinstance(x, Value):
                kept = buffers[self.taken[place]]
                body.append(Load(x.local, kept, at, serves=(Provenance(kept.name, None, (part.column,)),)))
            elif place not in self.dropped:
                body.append(replace(x, serves=self.serves(place)) if isinstance(x, Load) and place in self.first else x)
            if place in buffers and isinstance(x, Value):
                purpose = (Provenance(buffers[place].name, None, (part.column,)),)
                body.append(Store(buffers[place], at, x.local, purpose))
        return ReductionLoop(part.loops, part.column, part.extent, part.condition, tuple(body), part.online, part.later)


def _alike(a: ReductionLoop, b: ReductionLoop) -> bool:
    """The same columns on the same threads, each variable set once."""
    same = a.extent == b.extent and a.condition == b.condition and a.column == b.column
    names = [x.local.name for x in b.body if isinstance(x, Value)]
    return (
        same and (a.way, a.threads, a.lanes) == (b.way, b.threads, b.lanes) and b.online is None
        and len(names) == len(set(names))
    )  # fmt: skip


def _varies(s: ReductionLoop, x: Value) -> bool:
    """True where the value may differ from column to column."""
    made = definitions(s.body)
    sums = {y.acc.name for y in s.body if isinstance(y, Accumulate)}
    open_, seen = [x.local.name], set[str]()
    while open_:
        name = open_.pop()
        y = made.get(name)
        if name in sums:
            return True
        if y is None or name in seen:
            continue
        seen.add(name)
        if any(e.names & s.column.names for e in index_exprs(y)):
            return True
        open_ += reads(y)
    return False
