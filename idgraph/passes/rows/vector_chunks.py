"""A sweep in chunks: each thread takes pieces of as many neighbouring columns as one 16-byte access holds.

A row may start at any element (50257 columns make every row start elsewhere), so chunks are counted from the first
aligned element in it. Chunks are straight-line code for all their lanes, with vector accesses, several of them a step
as long as no thread runs out of them; the few columns before the first and behind the last go one by one.

Lanes whose terms are added up in pairs, in float32, before they go to a running value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from idgraph.arith import TRUE, Expr, as_expr, ceildiv, is_true, maximum, multiple_of, simplify, symbol, where
from idgraph.ir import DType
from idgraph.ir.op_table import OPERATIONS
from idgraph.kernel.def_use import rewritten_inside
from idgraph.kernel.ir import (
    Accumulate,
    Comment,
    Compute,
    If,
    Index,
    Let,
    Load,
    Local,
    Loop,
    Operand,
    Stmt,
    Store,
    StraightLineBlock,
    walk,
)
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.passes.lane_unrolling import Lane, LaneExpansion
from idgraph.passes.rows.online_reductions import before, first_value, follow, near, target
from idgraph.passes.rows.reduction_loop import COLUMN, Plain, ReductionLoop
from idgraph.passes.rows.summation import cheaper, hoisted, is_coarse, is_short, widened

FEW = 8  # chunks of a thread that are one step, whatever their number
SERIAL_CHUNK = 4  # columns of one step where a thread runs all of a row and sums follow a maximum


@dataclass(frozen=True, slots=True)
class _ChunkLayout:
    """Where chunks lie in a row: ``head`` columns before the first aligned one, then ``whole`` chunks, then the rest.

    ``anchor`` is the address of column 0 in the buffer whose alignment is kept, None where every row is aligned; the
    first chunk starts at element ``base * width`` of it. ``least`` and ``most`` bound ``whole``; None: not known.
    """

    width: int
    anchor: Expr | None
    head: Expr
    base: Expr
    whole: Expr
    least: int | None
    most: Expr
    lets: tuple[Let, ...] = ()


def _chunk_layout(s: ReductionLoop, width: int) -> _ChunkLayout:
    """Chunks from the row's start where that is aligned for every access, else by the first access that is not."""
    found = [a for a in columnwise(s) if not multiple_of(a, width)] if width > 1 else []
    zero, n = as_expr(0), s.extent
    most = simplify(n // width)
    least = int(n) // width if n.is_const else None
    if not found or (least is not None and least < 2):
        return _ChunkLayout(width, None, zero, zero, most, least, most)
    anchor = found[0]
    first, head = simplify((anchor + width - 1) // width), symbol(f"{COLUMN}_head", 0, width - 1)
    base, whole = symbol(f"{COLUMN}_base", 0, None), symbol(f"{COLUMN}_whole", 0, None)
    inside = maximum(simplify((n - head) // width), 0)
    lets = (
        Let(base.name, Index(first)),
        Let(head.name, Index(simplify(base * width - anchor))),
        Let(whole.name, Index(simplify(inside))),
    )
    least = None if least is None else (int(n) - width + 1) // width
    return _ChunkLayout(width, anchor, head, base, whole, least, most, lets)


def stores(s: ReductionLoop) -> bool:
    """True where the sweep writes its columns."""
    return any(isinstance(x, Store) for x in (*s.body, *s.later))


def emit_vector_chunks(s: ReductionLoop, read_only: frozenset[str], limit: int) -> list[Stmt]:
    """The loops that run a sweep on the threads of a block, which have ``limit`` loads of one buffer in
    flight each, counted in elements."""
    fixed, s = hoisted(s, read_only)
    s = cheaper(s, fixed, is_short(s))
    width = s.lanes if s.lanes > 1 or s.online is None or s.online.first else SERIAL_CHUNK
    place = _chunk_layout(s, width)
    parts = _Parts(s, place, read_only, limit)
    whole: tuple[Stmt, ...] = (*fixed, *place.lets, *parts.main(), *parts.rest(), *parts.edges())
    return [*first_value(s), *near(s), *((If(s.condition, whole),) if s.condition != TRUE else whole)]


@dataclass(frozen=True, slots=True)
class _Parts:
    """The loops of one sweep: steps of several chunks while no thread can run out, single chunks, columns."""

    s: ReductionLoop
    place: _ChunkLayout
    read_only: frozenset[str]
    limit: int

    @property
    def thread(self) -> Expr:
        """The number of the thread."""
        return symbol(self.s.thread, 0, self.s.threads - 1) if self.s.thread_dim else as_expr(0)

    @property
    def unrolled(self) -> int:
        """Chunks of one step: their loads are in flight together."""
        s, p = self.s, self.place
        steps = 0 if p.least is None else p.least // s.threads
        most = self.limit // (p.width * self.reads)
        if 1 < steps <= min(FEW, most):
            return steps
        found = 1
        while found * 2 <= min(steps, most):
            found *= 2
        return found

    @property
    def reads(self) -> int:
        """The most loads of one buffer for a column: the places of a window."""
        at = {(x.buffer.name, x.address) for x in walk((*self.s.body, *self.s.later)) if isinstance(x, Load)}
        return max(Counter(name for name, _ in at).values(), default=1)

    @property
    def steps(self) -> int:
        """The number of steps that every thread has in full; none where one chunk has loads enough: single chunks
        are one loop then, and its text is there once."""
        if self.place.least is None or (self.reads > 1 and self.place.width * self.reads > self.limit):
            return 0
        return self.place.least // (self.s.threads * self.unrolled)

    def main(self) -> list[Stmt]:
        """Steps without a condition."""
        if not self.steps:
            return []
        step = symbol(f"{COLUMN}_step", 0, self.steps - 1) if self.steps > 1 else as_expr(0)
        chunk = step * (self.s.threads * self.unrolled) + self.thread
        return self.loop(step, as_expr(self.steps), tuple(self.fast(chunk, self.unrolled)))

    def rest(self) -> list[Stmt]:
        """Single chunks, where the row has them."""
        s, p = self.s, self.place
        done = self.steps * self.unrolled * s.threads
        count = simplify(ceildiv(p.most - done, s.threads))
        if not is_true(count >= 1) and is_true(count <= 0):
            return []
        step = as_expr(0) if count == 1 else symbol(f"{COLUMN}_step", 0, None)
        chunk = simplify(step * s.threads + self.thread + done)
        body = tuple(self.fast(chunk, 1))
        exact = p.anchor is None and multiple_of(p.most - done, s.threads)
        return self.loop(step, count, body if exact else (If(chunk < p.whole, body),))

    def edges(self) -> list[Stmt]:
        """Columns before the first chunk and behind the last."""
        s, p = self.s, self.place
        if p.anchor is None and multiple_of(s.extent, p.width):
            return []
        edge = symbol(f"{COLUMN}_edge", 0, None)
        behind = simplify(s.extent - p.whole * p.width)
        most = as_expr(2 * p.width - 2 if p.anchor is not None else p.width - 1)
        count = simplify(ceildiv(most, s.threads))
        step = as_expr(0) if count == 1 else symbol(f"{COLUMN}_step", 0, None)
        number = simplify(step * s.threads + self.thread)
        column = (
            number + p.whole * p.width if p.anchor is None else where(edge < p.head, edge, edge + p.whole * p.width)
        )
        place: tuple[Stmt, ...] = (
            Let(edge.name, Index(number)),
            Let(COLUMN, Index(column.substitute({edge: edge}))),
            *_slow(s, symbol(COLUMN, 0, None)),
        )
        inner = place[1:] if p.anchor is None else place
        return self.loop(step, count, (If(number < behind, inner),))

    def loop(self, step: Expr, count: Expr, body: tuple[Stmt, ...]) -> list[Stmt]:
        """``body`` for each step and thread; ``step`` is a number where there is one step only."""
        s, note = self.s, self.s.loops[0].note
        if s.thread_dim:
            body = (Loop(s.thread, as_expr(s.threads), s.thread_dim, body, note),)
        return list(body) if step.is_const else [Loop(step.name, count, "serial", body, note)]

    def fast(self, chunk: Expr, unrolled: int) -> list[Stmt]:
        """All lanes of ``unrolled`` chunks, ``s.threads`` apart, from ``chunk`` on."""
        s, p = self.s, self.place
        lane = symbol(f"{COLUMN}_lane", 0, p.width * unrolled - 1)
        offset = chunk * p.width + lane // p.width * (s.threads * p.width) + lane % p.width

        def at(e: Expr) -> Expr:
            rest = None if p.anchor is None or e.is_condition else _address_at_zero(e, s.column)
            if rest is not None and p.anchor is not None:
                apart = simplify(rest - p.anchor)
                if multiple_of(apart, p.width):  # as aligned as the anchor: counted from the first aligned element
                    return p.base * p.width + apart + offset
            return e.substitute({s.column: offset + p.head})

        count = p.width * unrolled
        lanes = [Lane((n,), {lane: n}) for n in range(count)] if count > 1 else [Lane((), {lane: 0})]
        return straight(s, at, lanes, self.read_only, lambda e: e.substitute({s.column: offset + p.head}))


def columnwise(s: ReductionLoop) -> list[Expr]:
    """The addresses of column 0 of the accesses that move one element a column, loads first."""
    found: list[Expr] = []
    plain = [*s.body, *s.later]
    for x in (*(x for x in plain if isinstance(x, Load)), *(x for x in plain if isinstance(x, Store))):
        first = _address_at_zero(x.address, s.column)
        if first is not None and x.buffer.place != "private":
            found.append(first)
    return found


def _address_at_zero(address: Expr, column: Expr) -> Expr | None:
    """The address without the column, where that is added to it."""
    rest = simplify(address - column)
    return None if rest.names & column.names else rest


# straight code ----------------------------------------------------------------------------------------------------


def straight(
    s: ReductionLoop,
    at: Callable[[Expr], Expr],
    lanes: Sequence[Lane],
    read_only: frozenset[str],
    point: Callable[[Expr], Expr] | None = None,
) -> list[Stmt]:
    """The sweep's statements once for each lane; ``at`` says where indices are there, ``point`` what they serve."""
    expansion, depths = LaneExpansion(ValueNumbering(read_only)), dict[str, int]()
    sums = dict(s.online.sums) if s.online is not None else {}

    def straight(body: Sequence[Plain]) -> list[Stmt]:
        made: list[Stmt] = []
        wide = widened(body)
        for x in body:
            if isinstance(x, Accumulate):
                made += gathered(x, wide, sums, lanes, depths)
            elif not (isinstance(x, Compute) and x.local.name in wide):
                made += expansion.expand((rewritten_inside(x, index=at, point=point),), lanes, depths)
        return made

    made = [*before(s), *straight(s.body), *follow(s), *straight(s.later)]
    return [StraightLineBlock(tuple(made))]


def _slow(s: ReductionLoop, column: Expr) -> list[Stmt]:
    """One column."""

    def at(e: Expr) -> Expr:
        return simplify(e.substitute({s.column: column}))

    sums = dict(s.online.sums) if s.online is not None else {}

    def straight(body: Sequence[Plain]) -> list[Stmt]:
        wide = widened(body)
        made: list[Stmt] = []
        for x in body:
            if isinstance(x, Accumulate):
                value = x.value
                if isinstance(value, Local) and value.name in wide:
                    value = wide[value.name]
                made.append(replace(x, acc=target(x, value, sums), value=value))
            elif not isinstance(x, Comment) and not (isinstance(x, Compute) and x.local.name in wide):
                made.append(rewritten_inside(x, index=at))
        return made

    return [*before(s), *straight(s.body), *follow(s), *straight(s.later)]


def gathered(
    x: Accumulate, wide: Mapping[str, Local], sums: Mapping[str, str], lanes: Sequence[Lane], depths: Mapping[str, int]
) -> list[Stmt]:
    """The values of all lanes combined pairwise, and then with the running value.

    Terms in float32 are added up in float32 within a chunk, where the whole is rounded to no wider type: an error below
    3 units in the last place of their sum.
    """
    value = x.value
    if isinstance(value, Local) and value.name in wide and is_coarse(x):
        value = wide[value.name]
    values: list[Operand] = [_lane_value(value, lane, depths) for lane in lanes]
    narrow = x.op in ("amax", "amin") or is_coarse(x)
    dtype: DType = value.dtype if isinstance(value, Local) and narrow else x.acc.dtype
    made: list[Stmt] = []
    number = 0
    while len(values) > 1:
        paired: list[Operand] = []
        for a, b in zip(values[::2], values[1::2], strict=False):
            local = Local(f"{x.acc.name}_{number}", dtype)
            number += 1
            made.append(Compute(local, OPERATIONS[x.op].combine, (a, b), dtype))
            paired.append(local)
        values = paired + ([values[-1]] if len(values) % 2 else [])
    return [*made, replace(x, acc=target(x, value, sums), value=values[0])]


def _lane_value(o: Operand, lane: Lane, depths: Mapping[str, int]) -> Operand:
    return Local(lane.name(o.name, depths.get(o.name, 0)), o.dtype) if isinstance(o, Local) else o


@dataclass(slots=True)
class Pairs(LaneExpansion):
    """Statements once for each lane, and one update of each running value: the n terms of a sum are combined in
    ceil(log2(n)) roundings each, which lose at most that many times 2**-24 of the sum of their magnitudes.

    ``terms`` says which variable is the float32 of a term in float64.
    """

    terms: Mapping[str, Local] = field(default_factory=dict[str, Local])

    def accumulate(self, s: Accumulate, lanes: Sequence[Lane], depths: Mapping[str, int]) -> list[Stmt]:
        return gathered(s, self.terms, {}, lanes, depths)
