"""A row kept between its sweeps (persistent): values that an earlier sweep has are not loaded, or computed, again.

Equal values are found by their statements: the same operation on equal operands, loads of one place in memory that no
kernel writes, variables of the row that nothing sets in between.

Rows in registers (persistent): a row is read once, and each thread keeps its columns for every pass over them.

A thread's columns are straight-line code, so that the arrays which keep them are indexed by constants only, and
compilers hold them in registers. That needs a row of known length, of which no thread gets too much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from idgraph.arith import TRUE, Expr, as_expr, multiple_of, simplify, symbol
from idgraph.errors import EmitError
from idgraph.ir.device import current_device
from idgraph.ir.dtypes import compute_dtype
from idgraph.ir.op_table import OPERATIONS
from idgraph.ir.schedule_log import KernelHints
from idgraph.ir.walks import reach
from idgraph.kernel.def_use import all_reads, all_sets, definitions, index_exprs, reads
from idgraph.kernel.ir import (
    Accumulate,
    Alloc,
    Buffer,
    Compute,
    If,
    Load,
    Local,
    Loop,
    Provenance,
    ProvenanceList,
    Select,
    Stmt,
    Store,
)
from idgraph.kernel.value_numbering import Value, ValueNumbering
from idgraph.passes.lane_unrolling import Lane
from idgraph.passes.rows.reduction_fusion import Part, fuse_reduction_loops
from idgraph.passes.rows.reduction_loop import COLUMN, Plain, ReductionLoop
from idgraph.passes.rows.summation import cheaper, hoisted, is_short
from idgraph.passes.rows.vector_chunks import columnwise, straight
from idgraph.schedule.reduction_persistence import CONDITIONS, DIGITS, HELD, NO_VALUE, ONE_PASS, most_values

KEPT = "kept"
LIBRARY = frozenset(("library",))
SPECIAL = LIBRARY | {"special"}
Place = tuple[int, int]  # (number of the part, number of the statement in it)


@dataclass(frozen=True, slots=True)
class RowCache:
    """``parts`` with what is kept stored into ``buffers``, one element of each for a column, and read from there."""

    parts: tuple[Part, ...]
    buffers: tuple[Buffer, ...]


def cache_row_values(
    parts: Sequence[Part], read_only: frozenset[str], loads: bool, at: Expr, size: Expr, spare: int = 0
) -> RowCache:
    """The sweeps of one kernel made persistent: a row's values are kept in private arrays of ``size`` elements, at
    element ``at``. Values that are expensive to compute are kept, with ``loads`` loaded ones too; where ``spare``
    arrays are enough, also those of special operations, such as quotients.
    """
    found = _ReusedValues(parts, read_only, loads, spare)
    found.number()
    wanted = found.choose()
    if not wanted:
        return RowCache(tuple(parts), ())
    buffers = {
        place: Buffer(f"{KEPT}{n}", f"row of {made.local.name}", compute_dtype(made.local.dtype), size, "private")
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
    spare: int = 0
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
            numbered = isinstance(part, ReductionLoop) and lead is not None and _same_columns(lead, part)
            for k, x in enumerate(part.body if isinstance(part, ReductionLoop) and numbered else ()):
                values.define(x)
                if isinstance(x, Value):
                    self.first[n, k] = places.setdefault(values.number(x.local), (n, k))
            values.forget(all_sets((*part.body, *part.later) if isinstance(part, ReductionLoop) else (part,)))

    def choose(self) -> set[Place]:
        """Where values are computed that later sweeps take; sets what those sweeps take and drop.

        Values next to their use cost fewer operations than the loads that they are made of. They are kept where they
        are no more arrays than those; results of special operations where there is space for them beside the loads.
        """
        found = self.candidates(LIBRARY)
        if not self.loads or not found:
            return found
        before = dict(self.taken), set(self.dropped)
        for worth, most in ((None, len(found)), (SPECIAL, self.spare)):
            nearer = self.candidates(worth)
            if nearer and len(nearer) <= most:
                return nearer
        self.taken, self.dropped = before
        return found

    def candidates(self, worth: frozenset[str] | None) -> set[Place]:
        """The places of one way to choose: loads and values of operations of ``worth``, or all that an earlier sweep
        has."""
        self.taken, self.dropped = {}, set()
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
                elif self.first[place][0] < n and self.is_root(part, x, worth):
                    self.taken[place] = self.first[place]
                    found.add(self.first[place])
                else:
                    live |= reads(x)
        return found

    def is_root(self, s: ReductionLoop, x: Value, worth: frozenset[str] | None) -> bool:
        """True of a value that is worth keeping between sweeps: of cycles that are ``worth`` it, or (a cast of) a load,
        or any value (None); and different in each column.
        """
        if x.local.dtype == "bool" or not _varies(s, x):
            return False
        if worth is None:
            return True
        if isinstance(x, Compute) and OPERATIONS[x.op].cycles in worth:  # it costs more to compute than to keep
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


def _same_columns(a: ReductionLoop, b: ReductionLoop) -> bool:
    """The same columns on the same threads, each variable set once."""
    same = a.extent == b.extent and a.condition == b.condition and a.column == b.column
    names = [x.local.name for x in b.body if isinstance(x, Value)]
    return (
        same and (a.thread_dim, a.threads, a.lanes) == (b.thread_dim, b.threads, b.lanes) and b.online is None
        and len(names) == len(set(names))
    )  # fmt: skip


def _varies(s: ReductionLoop, x: Value) -> bool:
    """True where the value may differ from column to column."""
    made = definitions(s.body)
    sums = {y.acc.name for y in s.body if isinstance(y, Accumulate)}
    found = reach([x.local.name], lambda name: reads(made[name]) if name in made and name not in sums else ())
    computed = [made[name] for name in found if name in made]
    return not sums.isdisjoint(found) or any(e.names & s.column.names for y in computed for e in index_exprs(y))


def persistent_in_registers(
    body: Sequence[Stmt], read_only: frozenset[str], choices: KernelHints
) -> tuple[list[Stmt] | None, str]:
    """The statements of one level with their row in registers, and how many they are; or None, and why: it does not
    fit, or is passed over once. Where ``choices`` ask for it, `EmitError` says why a row passed over twice cannot be.
    """
    asked = choices.persistent is True
    parts = fuse_reduction_loops(body, online=False, of_row=True)
    sweeps = [p for p in parts if isinstance(p, ReductionLoop)]
    if len(sweeps) < 2:
        return None, DIGITS if any(isinstance(p, Loop) and p.column is not None for p in parts) else ONE_PASS
    if not all(_same_iteration_space(sweeps[0], s) for s in sweeps):
        length = sweeps[0].extent
        why = "its passes run over different columns or threads" if length.is_const else f"its length {length} is open"
        if not asked:
            return None, why
        raise persistence_error(choices, why)
    lead, columns = sweeps[0], int(sweeps[0].extent)
    width = _persistent_width(sweeps, columns)
    step = lead.threads * width
    elements = -(-columns // step) * width
    spare = 0 if all(map(is_short, sweeps)) else most_values(lead.threads) // elements  # of short forms none is dear
    place = symbol(f"{COLUMN}_kept", 0, elements - 1)
    found = cache_row_values(parts, read_only, loads=True, at=place, size=as_expr(elements), spare=spare)
    arrays = len(found.buffers)
    if not arrays or not _is_room(elements * arrays, lead.threads):
        why = _too_much(columns, elements * arrays, lead) if arrays else _persistence_refusal(sweeps)
        if not asked:
            return None, why
        raise persistence_error(choices, why, _with_threads(columns, width, arrays) if arrays else None)
    made: list[Stmt] = [Alloc(b) for b in found.buffers]
    for before, part in zip(parts, found.parts, strict=True):
        if isinstance(before, ReductionLoop) and isinstance(part, ReductionLoop):
            made += _passed(part, is_short(before), width, elements, read_only)
        elif not isinstance(part, ReductionLoop):
            made.append(part)
    return made, f"each of {lead.threads} threads holds {elements * arrays} values, of {HELD} at most"


def _is_room(held: int, threads: int) -> bool:
    """True where a block has registers for so many values of each thread, and what else a thread needs."""
    return held <= most_values(threads)


def _too_much(columns: int, held: int, lead: ReductionLoop) -> str:
    most = most_values(lead.threads)
    return f"each of the {lead.threads} threads of its {columns} columns would hold {held} values, at most {most} fit"


def _persistence_refusal(sweeps: Sequence[ReductionLoop]) -> str:
    """Why no value is held: values that are set under a condition (a part of a `cat`) are not compared."""
    return CONDITIONS if any(isinstance(x, If) for s in sweeps for x in s.body) else NO_VALUE


def _with_threads(columns: int, width: int, arrays: int) -> str | None:
    """The least number of threads that can hold the row between them; None where no block can."""
    threads = 1
    while threads <= current_device().block_threads:
        if _is_room(-(-columns // (threads * width)) * width * arrays, threads):
            return f"KernelConfig(threads={threads}) or persistent(False), which reads the row again"
        threads *= 2
    return None


def persistence_error(choices: KernelHints, why: str, hint: str | None = None) -> EmitError:
    """The error of a row that shall be kept and cannot be."""
    return EmitError(
        f"{choices.of or 'a row'}: not persistent",
        because=(why,),
        hint=hint or "persistent(False), which reads the row again",
    )


def _same_iteration_space(lead: ReductionLoop, s: ReductionLoop) -> bool:
    """The same columns, as many as are known, on the same threads."""
    same = s.extent == lead.extent and s.condition == lead.condition and s.column == lead.column
    return same and s.extent.is_const and int(s.extent) > 0 and (s.thread_dim, s.threads, s.lanes) == (
        lead.thread_dim, lead.threads, lead.lanes
    )  # fmt: skip


def _persistent_width(sweeps: Sequence[ReductionLoop], columns: int) -> int:
    """Elements of one access: as many as divide the row and where every row starts."""
    width = sweeps[0].lanes
    while width > 1 and (columns % width or not all(multiple_of(a, width) for s in sweeps for a in columnwise(s))):
        width //= 2
    return width


def _passed(s: ReductionLoop, short: bool, width: int, elements: int, read_only: frozenset[str]) -> list[Stmt]:
    """One pass: the chunks that every thread has, and one more where the row has it."""
    fixed, s = hoisted(s, read_only)
    s = cheaper(s, fixed, short)
    thread = symbol(s.thread, 0, s.threads - 1) if s.thread_dim else as_expr(0)
    chunks, all_have = int(s.extent) // width, int(s.extent) // (width * s.threads)
    inner: list[Stmt] = []
    if all_have:
        inner += _chunks(s, thread, 0, all_have, width, read_only)
    if all_have * width < elements:
        chunk = simplify(thread + all_have * s.threads)
        inner.append(If(chunk < chunks, tuple(_chunks(s, thread, all_have, 1, width, read_only))))
    body: list[Stmt] = (
        [Loop(s.thread, as_expr(s.threads), s.thread_dim, tuple(inner), s.loops[0].note)] if s.thread_dim else inner
    )
    whole = (*fixed, *body)
    return [If(s.condition, whole)] if s.condition != TRUE else list(whole)


def _chunks(
    s: ReductionLoop, thread: Expr, first: int, count: int, width: int, read_only: frozenset[str]
) -> list[Stmt]:
    """Straight-line code for ``count`` of a thread's chunks, from its ``first`` on."""
    lane = symbol(f"{COLUMN}_lane", 0, count * width - 1)
    chunk = thread + (first + lane // width) * s.threads
    place = {s.column: chunk * width + lane % width, symbol(f"{COLUMN}_kept", 0, None): lane + first * width}
    by_name = {next(iter(k.names)): v for k, v in place.items()}

    def at(e: Expr) -> Expr:
        return e.substitute({x: by_name[x.name] for x in e.symbols if x.name in by_name})

    lanes = [Lane((n,), {lane: n}) for n in range(count * width)] if count * width > 1 else [Lane((), {lane: 0})]
    return straight(s, at, lanes, read_only)
