"""peel: a loop over lanes that does not divide, or starts unaligned, becomes a vector body and scalar ends.

A vector access cannot serve only some of the lanes: whole chunks lose their condition, and their accesses join; the
one chunk across the end goes lane by lane.

Rows may begin anywhere: 50257 columns make every row start at another alignment. There the chunks are counted from the
last aligned element before the row, ``s`` elements to the left, so that the first chunk of a row is cut off as its last
one is. The access that moves the most bytes sets the alignment; equally aligned ones follow it.

A row is one loop over the lanes of ``K`` chunks, which the threads of the row's blocks take. ``K`` follows from the
condition. Every index is written in row and column before it is moved, so the change is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from idgraph.arith import Expr, and_, as_expr, ceildiv, is_true, multiple_of, simplify, symbol
from idgraph.arith.solve import coefficients
from idgraph.ir import item_size
from idgraph.kernel.def_use import map_body, map_statement
from idgraph.kernel.ir import (
    Comment,
    Compute,
    If,
    Index,
    InitAccumulator,
    Kernel,
    Let,
    Load,
    Loop,
    Select,
    Stmt,
    Store,
    walk,
)
from idgraph.kernel.ssa import to_ssa

SHIFT, BASE = "peel_shift", "peel_base"
Body = tuple[Stmt, ...]


def peel_loops(kernel: Kernel) -> Kernel:
    """peel: loops over lanes as a vector body and scalar ends, where a condition cuts them.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[4094] input "x"
    ...   buffer y: float32[4094] output "y"
    ...   launch blockIdx.x: 8
    ...   launch threadIdx.x: 128
    ...   for b < 8, blockIdx.x:
    ...     for t < 128, threadIdx.x:
    ...       for q < 4, vectorize:
    ...         if b*512 + t*4 + q < 4094:
    ...           v: float32 = x[b*512 + t*4 + q]
    ...           y[b*512 + t*4 + q] = v
    ... ''')
    >>> print(peel_loops(k))
    kernel k():
      buffer x: float32[4094] input "x"
      buffer y: float32[4094] output "y"
      launch blockIdx.x: 8; threadIdx.x: 128
      for b < 8, blockIdx.x:
        for t < 128, threadIdx.x:
          if b*128 + t < 1023:
            for q < 4, vectorize:
              v: float32 = x[b*512 + q + t*4]
              y[b*512 + q + t*4] = v
          if b*128 + t >= 1023:
            for q < 4:
              if b*512 + q + t*4 < 4094:
                v_s2: float32 = x[b*512 + q + t*4]
                y[b*512 + q + t*4] = v_s2
    """
    if not any(isinstance(s, Loop) and s.parallel in ("vectorize", "unroll") for s in walk(kernel.body)):
        return kernel
    return replace(kernel, body=to_ssa(_peel_nested_loops(kernel.body, (), _Numbers())))


@dataclass(slots=True)
class _Numbers:
    """How many loops of a kernel have been moved: their variables need names of their own."""

    used: int = 0

    def name(self, stem: str) -> str:
        return f"{stem}{self.used or ''}"


def _peel_nested_loops(body: Body, around: tuple[Loop, ...], numbers: _Numbers) -> Body:
    made: list[Stmt] = []
    for s in body:
        match s:
            case Loop(parallel="vectorize"):
                chunk = chunk_of(s, around)
                made += [s] if chunk is None else chunk.peeled(numbers)
            case Loop(parallel="unroll") if (cut := _last_cut(s, around)) is not None:
                made += _peel_last_iterations(s, cut)
            case Loop():
                made.append(replace(s, body=_peel_nested_loops(s.body, (*around, s), numbers)))
            case If():
                made.append(replace(s, body=_peel_nested_loops(s.body, around, numbers)))
            case _:
                made.append(s)
    return tuple(made)


def chunk_of(s: Loop, around: Sequence[Loop]) -> VectorTail | None:
    """The lanes of ``s`` as a chunk of a row; None where their condition does not say so, or they hold other loops."""
    if not s.extent.is_const or int(s.extent) < 2 or not around or not is_plain(s.body):
        return None
    lane = symbol(s.var, 0, s.extent - 1)
    cuts = {c for x in walk(s.body) if isinstance(x, If) for c in x.condition.conjuncts if s.var in c.names}
    if len(cuts) != 1 or not all_guarded(s.body, next(iter(cuts))):
        return None
    cut = next(iter(cuts))
    if cut.op not in ("lt", "le"):
        return None
    start = simplify(cut.args[0] - lane)
    end = simplify(cut.args[1] + 1) if cut.op == "le" else cut.args[1]
    moving = {v.var for v in around} | {s.var}
    if s.var in start.names or end.names & moving or not multiple_of(start, int(s.extent)):
        return None
    rows = _row_blocks(start, around, int(s.extent))
    return None if rows is None else VectorTail(s, tuple(around), lane, cut, start, end, rows)


@dataclass(frozen=True, slots=True)
class RowBlocks:
    """The loops on blocks and threads as one number, ``count`` chunks of which are a row (None: all of them)."""

    block: Expr
    thread: Expr
    threads: int
    count: int | None

    @property
    def number(self) -> Expr:
        """The chunk's number, over all rows."""
        return self.block * self.threads + self.thread


def _row_blocks(start: Expr, around: Sequence[Loop], width: int) -> RowBlocks | None:
    """How chunks are numbered, proved of the column ``start`` at which a thread's begins."""
    block = next((v for v in around if v.parallel == "blockIdx.x"), None)
    thread = next((v for v in around if v.parallel == "threadIdx.x"), None)
    if block is None or thread is None or not thread.extent.is_const:
        return None
    if any(v.parallel not in ("blockIdx.x", "threadIdx.x") and v.extent != 1 for v in around):
        return None
    threads = int(thread.extent)
    at = RowBlocks(symbol(block.var, 0, block.extent - 1), symbol(thread.var, 0, threads - 1), threads, None)
    if simplify(start - at.number * width) == 0:
        return at
    for count in sorted(_counts(start, width)):
        if simplify(start - simplify(at.number % count) * width) == 0:
            return replace(at, count=count)
    return None


def _counts(start: Expr, width: int) -> set[int]:
    """Candidates for the number of chunks of a row, from the remainders in ``start``."""
    found: set[int] = set()
    for part in start.args if start.op == "add" else (start,):
        factor = 1
        if part.op == "mul":
            factor = next((int(a) for a in part.args if a.is_const), 1)
        for x in part.args if part.op == "mul" else (part,):
            if x.op == "mod" and x.args[1].is_const and int(x.args[1]) * factor % width == 0:
                found.add(int(x.args[1]) * factor // width)
    return found


@dataclass(frozen=True, slots=True)
class VectorTail:
    """Lanes ``start`` to ``start + width`` of a row that ends at ``end``: ``cut`` is the condition that says so."""

    loop: Loop
    around: tuple[Loop, ...]
    lane: Expr
    cut: Expr
    start: Expr
    end: Expr
    rows: RowBlocks

    @property
    def width(self) -> int:
        return int(self.loop.extent)

    def peeled(self, numbers: _Numbers) -> list[Stmt]:
        """The vector body and the scalar ends."""
        anchor = self.alignment_anchor()
        if anchor is None:
            return self.ends(self.start, self.loop.body, self.loop.body, self.cut)
        shift, base = symbol(numbers.name(SHIFT), 0, self.width - 1), symbol(numbers.name(BASE), 0)
        numbers.used += 1
        lets = [
            Let(shift.name, Index(simplify(self.back(anchor, as_expr(0)) % self.width))),
            Let(base.name, Index(simplify(self.back(anchor, as_expr(0)) // self.width))),
        ]
        first = simplify(self.start - shift)
        vector = self.moved(anchor, shift, base)
        scalar = self.moved(None, shift, base)
        cut = simplify(first + self.lane < self.end) & (first + self.lane >= 0)
        return [*lets, *self.ends(first, vector, scalar, cut)]

    def ends(self, first: Expr, vector: Body, scalar: Body, cut: Expr) -> list[Stmt]:
        """``vector`` for a whole chunk; ``scalar``, lane by lane, for a partial one."""
        whole = simplify(first + (self.width - 1) < self.end)
        some = simplify(first < self.end)
        if first is not self.start:  # a row begins inside of a chunk, or with one
            whole = and_(whole, simplify(first >= 0))
        rest = simplify(~whole) if whole.op != "and" else None
        parts = [simplify(~c) for c in whole.args] if whole.op == "and" else []
        other = rest if rest is not None else parts[0] | parts[1] if len(parts) == 2 else ~whole
        lanes = replace(self.loop, body=without(vector, self.cut))
        alone = replace(self.loop, parallel="serial", body=_instead(scalar, self.cut, cut))
        return [If(whole, (lanes,)), If(simplify(other & some), (alone,))]

    # rows and columns ---------------------------------------------------------------------------------------------

    def guards(self) -> Iterator[If]:
        """The conditions inside of the lanes."""
        return (x for x in walk(self.loop.body) if isinstance(x, If))

    def by_column(self, e: Expr) -> Expr:
        """An index expression in row and column, instead of in block, thread and lane."""
        r, column = self.symbols()
        number = column // self.width if self.rows.count is None else r * self.rows.count + column // self.width
        place = {
            self.rows.block: simplify(number // self.rows.threads),
            self.rows.thread: simplify(number % self.rows.threads),
            self.lane: column % self.width,
        }
        return simplify(e.substitute(place))

    def symbols(self) -> tuple[Expr, Expr]:
        """A row's number, and a column of it."""
        blocks = next(v for v in self.around if v.parallel == "blockIdx.x").extent
        total = blocks * self.rows.threads
        last = as_expr(0) if self.rows.count is None else simplify(ceildiv(total, as_expr(self.rows.count)) - 1)
        return symbol("peel_row", 0, last), symbol("peel_column", 0, simplify(self.end - 1))

    def back(self, e: Expr, column: Expr) -> Expr:
        """An index expression in row and column at a column, in block and thread again."""
        r, c = self.symbols()
        row = as_expr(0) if self.rows.count is None else simplify(self.rows.number // self.rows.count)
        return simplify(e.substitute({r: row, c: column}))

    def alignment_anchor(self) -> Expr | None:
        """The address of column 0, in the row, whose alignment is kept; None where chunks stay where they are."""
        if self.rows.count is None or not is_true(as_expr(self.rows.count * self.width) >= self.end + self.width - 1):
            return None
        found: dict[Expr, int] = {}
        r, column = self.symbols()
        for s in walk(self.loop.body):
            if not isinstance(s, (Load, Store)):
                continue
            start = simplify(self.by_column(s.address) - column)
            if column.names & start.names:
                continue
            # Values that are the same for all rows are found in caches.
            weight = item_size(s.buffer.dtype) * (4 if r.names & start.names else 1)
            weight *= 2 if isinstance(s, Store) else 1  # a part of a sector is read from the cache, but written alone
            like = next((a for a in found if multiple_of(simplify(start - a), self.width)), start)
            found[like] = found.get(like, 0) + weight
        if not found:
            return None
        best = max(found, key=lambda a: found[a])
        return None if multiple_of(best, self.width) else best

    def moved(self, anchor: Expr | None, shift: Expr, base: Expr) -> Body:
        """The body with column ``start - shift + lane`` in the place of ``start + lane``."""
        _, column = self.symbols()

        def at(e: Expr) -> Expr:
            plain = self.by_column(e)
            if anchor is not None and not e.is_condition:
                rest = simplify(plain - column - anchor)
                if not column.names & rest.names and multiple_of(rest, self.width):
                    return base * self.width + self.back(rest, as_expr(0)) + self.start + self.lane
            return self.back(plain, self.start - shift + self.lane)

        def moved(s: Stmt) -> Stmt:
            if isinstance(s, If):  # the cut itself is replaced as a whole
                kept = [c if c == self.cut else at(c) for c in s.condition.conjuncts]
                return replace(s, condition=and_(*kept))
            return map_statement(s, index=at)

        return map_body(self.loop.body, moved)


# steps ----------------------------------------------------------------------------------------------------------------


def _last_cut(s: Loop, around: Sequence[Loop]) -> Expr | None:
    """The one condition that cuts the steps of an unrolled loop off at its end."""
    if not s.extent.is_const or int(s.extent) < 2 or not is_plain(s.body):
        return None
    cuts = {c for x in walk(s.body) if isinstance(x, If) for c in x.condition.conjuncts if s.var in c.names}
    if len(cuts) != 1 or not all_guarded(s.body, next(iter(cuts))):
        return None
    (cut,) = cuts
    moving = {v.var for v in around} | {s.var}
    if cut.op not in ("lt", "le") or cut.args[1].names & moving:
        return None
    affine = coefficients(cut.args[0], (symbol(s.var, 0, s.extent - 1),))
    return cut if affine is not None and affine[0].is_const and int(affine[0]) > 0 else None


def _peel_last_iterations(s: Loop, cut: Expr) -> list[Stmt]:
    """All steps without the condition where the last one meets it; else those that meet it, one by one."""
    step = symbol(s.var, 0, s.extent - 1)
    last, first = (simplify(cut.substitute({step: as_expr(n)})) for n in (int(s.extent) - 1, 0))
    alone = replace(s, parallel="serial")
    return [If(last, (replace(s, body=without(s.body, cut)),)), If(simplify(~last & first), (alone,))]


# bodies ---------------------------------------------------------------------------------------------------------------


def is_plain(body: Body) -> bool:
    """Straight-line code on shared or global memory only: lanes might disagree on the elements of private arrays."""
    for s in walk(body):
        match s:
            case Load(buffer=b) | Store(buffer=b):
                if b.place in ("private", "shared"):
                    return False
            case Comment() | Compute() | Select() | InitAccumulator() | If():
                pass
            case _:
                return False
    return True


def all_guarded(body: Body, cut: Expr) -> bool:
    """Whether all memory accesses stand where ``cut`` holds."""
    return all(
        isinstance(s, (Comment, Compute, Select, InitAccumulator))
        or (isinstance(s, If) and (cut in s.condition.conjuncts or all_guarded(s.body, cut)))
        for s in body
    )


def without(body: Body, cut: Expr) -> Body:
    """``body`` where ``cut`` holds."""
    return tuple(_uncut(body, cut))


def _uncut(body: Body, cut: Expr) -> Iterator[Stmt]:
    for s in body:
        if not isinstance(s, If):
            yield s
            continue
        kept = [c for c in s.condition.conjuncts if c != cut]
        inner = without(s.body, cut)
        if kept:
            yield replace(s, condition=and_(*kept), body=inner)
        else:
            yield from inner


def _instead(body: Body, cut: Expr, by: Expr) -> Body:
    def changed(s: Stmt) -> Stmt:
        if not isinstance(s, If):
            return s
        return replace(s, condition=and_(*(by if c == cut else c for c in s.condition.conjuncts)))

    return map_body(body, changed)
