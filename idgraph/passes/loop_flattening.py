"""collapse: the loops over blocks, threads and lanes of one row as one loop over its columns, for a core.

A compiler vectorises a loop that no condition cuts, with its own
head and tail; where there are many rows, each block takes one.

A row that is padded, turned or made of several tensors has pieces of which each is such a loop: ``y[c] = x[(c + 1000) %
1003]`` is one loop over 3 columns and one over 1000, without a remainder.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from idgraph.arith import Expr, and_, as_expr, ceildiv, is_true, minimum, postorder, simplify, symbol
from idgraph.kernel.def_use import all_sets, index_exprs, map_body, map_statement, reads, stored_in, substitute_indices
from idgraph.kernel.ir import BoundsCheck, Comment, Compute, If, Kernel, Let, Load, Loop, Select, Stmt, Store, walk
from idgraph.kernel.ssa import to_ssa
from idgraph.kernel.statements import single_statement
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.passes.cache_blocking import cache_block_transpose, is_transposed, run_of
from idgraph.passes.cse_dce import without_dead, without_empty
from idgraph.passes.lane_loop_fusion import quantify_provenance
from idgraph.passes.lane_unrolling import Lane, LaneExpansion
from idgraph.passes.loop_peeling import VectorTail, all_guarded, chunk_of, is_plain, without
from idgraph.passes.rows.reduction_loop import drop_unit_loops

LEAST = 16  # elements of a row that are worth a loop of their own, where an index divides otherwise
TESTED = 64  # elements of a row that is tested as a whole
BLOCKS = 8  # at least, so that all cores have work
MAX_PIECES = 16  # of a row: padding, a turn, or tensors side by side end loops in a few places
MAX_COLUMNS = 1 << 22  # of a row whose pieces are looked for
NUMBER, PIECE, DIGIT = "collapse_number", "collapse_piece", "of"
COLUMNS = 1 << 13  # of one block: enough work for a core, and enough blocks for all cores


def flatten_loops(kernel: Kernel) -> Kernel:
    """collapse: loops over cut rows as loops over columns.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[2001] input "x"
    ...   buffer y: float32[2001] output "y"
    ...   launch blockIdx.x: 4
    ...   launch threadIdx.x: 128
    ...   for b < 4, blockIdx.x:
    ...     for t < 128, threadIdx.x:
    ...       for q < 4, vectorize:
    ...         if b*512 + t*4 + q < 2001:
    ...           v: float32 = x[b*512 + t*4 + q]
    ...           y[b*512 + t*4 + q] = v
    ... ''')
    >>> print(flatten_loops(k))
    kernel k():
      buffer x: float32[2001] input "x"
      buffer y: float32[2001] output "y"
      launch blockIdx.x: 1
      for b < 1, blockIdx.x:
        for q < 2001:
          v: float32 = x[q]
          y[q] = v
    """
    return recompute_launch_bounds(kernel, to_ssa(without_empty([_flatten_grid(s) for s in kernel.body])))


def recompute_launch_bounds(kernel: Kernel, body: tuple[Stmt, ...]) -> Kernel:
    """The kernel with other loops, and as many blocks and threads as they have."""
    if body == kernel.body:
        return kernel
    launch: dict[str, dict[Expr, None]] = {}
    for s in walk(body):
        if isinstance(s, Loop) and s.parallel.startswith(("blockIdx", "threadIdx")):
            launch.setdefault(s.parallel, {})[simplify(s.first + s.extent)] = None
    return replace(kernel, body=body, launch={dim: tuple(extents) for dim, extents in launch.items()})


def _flatten_grid(s: Stmt) -> Stmt:
    if not isinstance(s, Loop) or s.parallel != "blockIdx.x":
        return s
    chain = chain_of(_sunk(replace(s, body=tuple(drop_unit_loops(s.body)))))
    if len(chain) < 2:
        return s
    if is_transposed(chain) and (made := _flat(chain, only_turned=True)) is not None:
        return made
    chunk = chunk_of(chain[-1], chain[:-1]) if chain[-1].parallel == "vectorize" else None
    whole = None if chunk is None else _by_columns(chunk, chain)
    if whole is not None and not _tests_columns(whole):
        return whole
    return _flat(chain) or whole or s


def _tests_columns(s: Loop) -> bool:
    """Whether an innermost loop's body divides by its variable or tests it."""
    chain = chain_of(s)
    column = {chain[-1].var}
    every = {e for x in walk(chain[-1].body) for e in index_exprs(x)}
    return any(column & x.names for e in every for x in (*_divisions(e), *([e] if e.is_condition else ())))


def chain_of(s: Stmt | None) -> list[Loop]:
    """Loops that hold nothing but the next one."""
    chain: list[Loop] = []
    while isinstance(s, Loop):
        chain.append(s)
        s = single_statement(s.body)
    return chain


def _sunk(s: Loop) -> Loop:
    """The loop with what stands in front of the only loop inside it moved into that: computed for each element until
    `_hoisted` takes it out of the new loops."""
    *front, last = s.body
    if not isinstance(last, Loop):
        return s
    last = _sunk(last)
    steps = [x for x in front if not isinstance(x, Comment)]
    if steps and all(isinstance(x, (Load, Compute, Select)) for x in steps):
        return replace(s, body=(replace(last, body=(*front, *last.body)),))
    return replace(s, body=(*front, last))


def _hoisted(s: Loop) -> tuple[Stmt, ...]:
    """The loop behind those of its statements that do the same for each column; loaded indices are left to
    `idgraph.passes.load_hoisting`, which takes their checks along."""
    if any(isinstance(x, (Let, BoundsCheck)) for x in walk(s.body)):
        return (s,)
    written, changing, column = stored_in(s.body), {s.var}, symbol(s.var, 0, s.extent - 1)
    front, rest = list[Stmt](), list[Stmt]()
    for x in s.body:
        plain = isinstance(x, (Compute, Select)) or (isinstance(x, Load) and x.buffer.name not in written)
        if (plain and not changing & reads(x)) or (isinstance(x, Comment) and not rest):
            front.append(
                replace(x, serves=quantify_provenance(x.serves, column, s.extent)) if isinstance(x, Load) else x
            )
        else:
            changing |= all_sets((x,))
            rest.append(x)
    return (*front, replace(s, body=tuple(rest))) if any(not isinstance(x, Comment) for x in front) else (s,)


def _by_columns(chunk: VectorTail, chain: Sequence[Loop]) -> Loop | None:
    """A block for each row, or for `COLUMNS` of its columns."""
    rows = _row_count(chunk)
    if rows is None:
        return None
    outer, inner = chain[0], chain[-1]
    parts = simplify(ceildiv(chunk.end, as_expr(COLUMNS)))
    block = symbol(outer.var, 0, simplify(rows * parts - 1))
    lane = symbol(inner.var, 0, simplify(minimum(as_expr(COLUMNS), chunk.end) - 1))
    start = simplify(block % parts * COLUMNS) if parts != 1 else as_expr(0)
    r, column = chunk.symbols()
    place = {r: simplify(block // parts), column: simplify(start + lane)}

    def at(e: Expr) -> Expr:
        return simplify(chunk.by_column(e).substitute(place))

    def moved(x: Stmt) -> Stmt:
        if isinstance(x, If):
            return replace(x, condition=and_(*(at(c) for c in x.condition.conjuncts)))
        return map_statement(x, index=at)

    body = without(inner.body, chunk.cut)
    for c in _limits(chunk):
        body = without(body, c)
    extent = simplify(minimum(as_expr(COLUMNS), chunk.end - start))
    columns = Loop(inner.var, extent, "serial", map_body(body, moved), inner.note)
    return Loop(outer.var, simplify(rows * parts), outer.parallel, (columns,), outer.note)


@dataclass(frozen=True)
class _FlattenedRow:
    """Statements as those of element ``number`` of ``total``; ``length`` neighbours are a row, of which the columns up
    to each of ``ends`` have plain indices. ``loops`` are statements over loops, whose variables are at ``place``;
    ``exprs`` are their index expressions at the number."""

    loops: tuple[Stmt, ...]
    place: Mapping[Expr, Expr]
    exprs: frozenset[Expr]
    number: Expr
    total: int
    ends: tuple[int, ...]

    @cached_property
    def body(self) -> tuple[Stmt, ...]:
        """The statements at the number; most rows are compared with others, and never written."""
        checked = map_body(self.loops, lambda x: remap_check_point(x, self.place))
        return substitute_indices(checked, self.place)

    @property
    def length(self) -> int:
        """Columns of a row."""
        return self.ends[-1]

    @cached_property
    def has_tests(self) -> bool:
        """Whether conditions tell rows apart, in any piece."""
        start = symbol("collapse_row", 0, self.total // self.length - 1) * self.length
        for first, end in pairwise((0, *self.ends)):
            place = start + (symbol(PIECE, 0, end - first - 1) + first)
            open_ = (simplify(e.substitute({self.number: place})) for e in self.exprs if e.is_condition)
            if all(e.is_const for e in open_):
                continue  # none is left, in whichever statements
            if any(e.is_condition and not e.is_const for x in walk(self.at(place)) for e in index_exprs(x)):
                return True
        return False

    @property
    def periods(self) -> set[int]:
        """The numbers of elements after which a division of an index may change."""
        return {k for e in self.exprs for k in division_periods(e, self.number)}

    def side_by_side(self, parts: int) -> _FlattenedRow | None:
        """Rows of several parts, one after the other in memory, for rows that visit one part after the other."""
        rows = self.total // self.length // parts
        if rows * parts * self.length != self.total:
            return None
        row, column = self.number // self.length, self.number % self.length
        place = {self.number: simplify((row % parts * rows + row // parts) * self.length + column)}
        exprs = _at(self.exprs, place)
        ends = _ends_of(exprs, self.number, self.total, parts * self.length, MAX_PIECES)
        return _FlattenedRow(self.body, place, exprs, self.number, self.total, ends) if ends else None

    def at(self, place: Expr) -> tuple[Stmt, ...]:
        """The statements of one element; conditions that are known there are decided, and what only these read goes."""
        lane = Lane((), {self.number: place})
        return tuple(without_dead(LaneExpansion(ValueNumbering(frozenset())).expand(self.body, [lane], {}), set()))


def _flat(chain: Sequence[Loop], only_turned: bool = False) -> Stmt | None:
    """All loops as one number, counted over all rows: as blocks, rows of a block, and columns.

    Only where no index divides by a column, or where a few ends of loops settle each division: else the existing loops
    keep divisions loop-invariant. Of the orders in which the loops may count, the one with the longest rows is taken.
    """
    body = chain[-1].body
    if not all(v.extent.is_const and v.extent != 0 for v in chain) or not _may_move(body):
        return None
    row = _longest(*_in_digits(chain, body))
    if row is None:
        return None
    rows = row.total // row.length
    if only_turned:
        plain = len(row.ends) == 1 and not row.has_tests
        period = run_of([k // row.length for k in row.periods if k > row.length], rows)
        return cache_block_transpose(chain, row.at, rows, row.length, period) if plain else None
    if row.length > COLUMNS:
        return _in_pieces(chain, row)
    most = 1 if len(chain) == 2 else max(1, min(rows // BLOCKS, COLUMNS // row.length))
    at_once = max(k for k in range(1, most + 1) if rows % k == 0)
    outer = symbol(chain[0].var, 0, rows // at_once - 1)
    inner_row = symbol(chain[1].var, 0, at_once - 1) if at_once > 1 else as_expr(0)
    loops = _columns(chain[-1], row, simplify((outer * at_once + inner_row) * row.length))
    if at_once > 1:
        loops = (Loop(chain[1].var, as_expr(at_once), "serial", loops, chain[1].note),)
    return replace(chain[0], extent=as_expr(rows // at_once), body=loops)


def _longest(chain: Sequence[Loop], body: tuple[Stmt, ...]) -> _FlattenedRow | None:
    """The longest rows of one piece; where there are none, those of the longest pieces."""
    steps = [v for v in chain if v.parallel in ("serial", "unroll")]
    others = [v for v in chain if v not in steps]
    after = chain[1:]
    orders = [
        list(chain), [chain[0], *(v for v in after if v in steps), *(v for v in after if v not in steps)],
        [*steps, *others],
    ]  # fmt: skip
    orders = [o for n, o in enumerate(orders) if o not in orders[:n]]
    plain = [row for o in orders[:2] if (row := row_of(o, body)) is not None]
    found = plain or [row for o in orders if (row := row_of(o, body, MAX_PIECES)) is not None]
    parts = math.prod(int(v.extent) for v in steps)
    if parts > 1:
        found += [row for r in found if r.has_tests and (row := r.side_by_side(parts)) is not None]
    untested = [r for r in found if not r.has_tests or (r in plain and r.length >= TESTED)]
    # Short rows that are tested as a whole are still better than a test of each element.
    return max(untested or found, key=lambda r: (r.length // len(r.ends), not r.has_tests, r.length), default=None)


def _in_digits(chain: Sequence[Loop], body: tuple[Stmt, ...]) -> tuple[list[Loop], tuple[Stmt, ...]]:
    """Loops of which indices take digits, ``i // 32`` and ``i % 32``, as two loops: the outer one is a step."""
    made: list[Loop] = []
    for v in chain:
        var, extent = symbol(v.var, 0, v.extent - 1), int(v.extent)
        divided = [x for s in walk(body) for e in index_exprs(s) for x in _divisions(e) if x.args[0] == var]
        sizes = {int(x.args[1]) for x in divided if x.args[1].is_const}
        if len(sizes) != 1 or extent % (size := sizes.pop()):
            made.append(v)
            continue
        outer = Loop(f"{v.var}_{DIGIT}", as_expr(extent // size), "serial", (), v.note)
        place = {var: symbol(outer.var, 0, extent // size - 1) * size + symbol(v.var, 0, size - 1)}
        body = substitute_indices(body, place)
        made += [outer, replace(v, extent=as_expr(size))]
    return made, body


def _columns(like: Loop, row: _FlattenedRow, before: Expr) -> tuple[Stmt, ...]:
    """Loops over the columns of a row whose first one is element ``before``."""
    made: list[Stmt] = []
    for first, end, var in _pieces(like, row):
        lane = symbol(var, 0, end - first - 1)
        made += _hoisted(Loop(var, as_expr(end - first), "serial", row.at(before + first + lane), like.note))
    return tuple(made)


def _pieces(like: Loop, row: _FlattenedRow) -> Iterator[tuple[int, int, str]]:
    """The first column of each piece, the one behind its last, and the variable of its loop."""
    for n, (first, end) in enumerate(pairwise((0, *row.ends)), 1):
        yield first, end, f"{like.var}_{n}" if len(row.ends) > 1 else like.var


def _in_pieces(chain: Sequence[Loop], row: _FlattenedRow) -> Stmt:
    """A block for each `COLUMNS` columns of a piece of a row."""
    pieces = list(_pieces(chain[-1], row))
    blocks = sum(-(-(end - first) // COLUMNS) for first, end, _ in pieces)
    outer = symbol(chain[0].var, 0, row.total // row.length * blocks - 1)
    number, before, made = simplify(outer % blocks), 0, list[Stmt]()
    for first, end, var in pieces:
        count = -(-(end - first) // COLUMNS)
        inside = symbol(PIECE, 0, end - first - 1)
        start = simplify((number - before) * COLUMNS) if count > 1 else as_expr(0)
        body = row.at(simplify(outer // blocks * row.length) + first + inside)
        lane = symbol(var, 0, min(COLUMNS, end - first) - 1)
        extent = simplify(minimum(as_expr(COLUMNS), end - first - start))
        loop = Loop(var, extent, "serial", substitute_indices(body, {inside: start + lane}), chain[-1].note)
        mine = simplify(and_(number >= before, number < before + count))
        made += _hoisted(loop) if is_true(mine) else (If(mine, _hoisted(loop)),)
        before += count
    return replace(chain[0], extent=as_expr(row.total // row.length * blocks), body=tuple(made))


def _may_move(body: tuple[Stmt, ...]) -> bool:
    """Whether the elements may be visited in any order: straight code that writes each element of arrays once."""
    loaded = {x.name for x in walk(body) if isinstance(x, Let)}
    for x in walk(body):
        match x:
            case If() | Let() | BoundsCheck(always=False):
                pass
            case Store(address=address) if address.names & loaded:
                return False
            case _ if not is_plain((x,)):
                return False
            case _:
                pass
    return True


def row_of(order: Sequence[Loop], body: tuple[Stmt, ...], pieces: int = 1) -> _FlattenedRow | None:
    """The body of ``order``'s loops by number, with the longest row whose columns no index divides or tests; a row may
    have so many ``pieces`` of which this is true."""
    place, total, body = _numbered(order, body)
    if total < 1:  # a tensor without elements
        return None
    number = symbol(NUMBER, 0, total - 1)
    every = _at(_exprs_of(body), place)
    lengths = sorted({total, *(k for e in every for k in division_periods(e, number) if k >= LEAST and total % k == 0)})
    best: tuple[int, ...] = ()
    for k in reversed(lengths):
        ends = _ends_of(every, number, total, k, pieces)
        if ends and (not best or k // len(ends) >= best[-1] // len(best)):
            best = ends
        if len(best) == 1:
            break
    return _FlattenedRow(body, place, every, number, total, best) if best else None


def _exprs_of(body: Sequence[Stmt]) -> set[Expr]:
    """The index expressions of statements; the point of a check is given, not computed."""
    plain = (replace(x, point=()) if isinstance(x, BoundsCheck) else x for x in walk(tuple(body)))
    return {e for x in plain for e in index_exprs(x)}


def _at(exprs: Iterable[Expr], place: Mapping[Expr, Expr]) -> frozenset[Expr]:
    """Index expressions at other places."""
    return frozenset(simplify(e.substitute(place)) for e in exprs)


def _numbered(order: Sequence[Loop], body: tuple[Stmt, ...]) -> tuple[dict[Expr, Expr], int, tuple[Stmt, ...]]:
    """The loop variables by the number of an element, how many there are, and the body without the conditions that
    say so. Loops one inside the other whose number a condition limits count up to that limit."""
    digits: list[tuple[list[Loop], int]] = [([v], int(v.extent)) for v in order]
    for cut in dict.fromkeys(c for x in walk(body) if isinstance(x, If) for c in x.condition.conjuncts):
        run = _limited(cut, order) if all_guarded(body, cut) else None
        at = None if run is None else next((n for n, (d, _) in enumerate(digits) if d == run[:1]), None)
        if run is None or at is None or [v for d, _ in digits[at : at + len(run)] for v in d] != run:
            continue
        most = math.prod(int(v.extent) for v in run)
        digits[at : at + len(run)] = [(run, min(most, int(cut.args[1])))]
        body = without(body, cut)
    total = math.prod(max(0, most) for _, most in digits)
    number = symbol(NUMBER, 0, max(0, total - 1))
    place: dict[Expr, Expr] = {}
    step = 1
    for n, (run, most) in reversed(list(enumerate(digits))):
        digit = number // step if n == 0 else number // step % max(1, most)
        inside = 1
        for v in reversed(run):
            value = digit // inside
            place[symbol(v.var, 0, v.extent - 1)] = value if v is run[0] else value % v.extent
            inside *= int(v.extent)
        step *= max(1, most)
    return place, total, body


def _limited(cut: Expr, order: Sequence[Loop]) -> list[Loop] | None:
    """The loops, one inside the other, whose number the condition limits."""
    if cut.op != "lt" or not cut.args[1].is_const:
        return None
    run = [v for v in order if v.var in cut.args[0].names]
    counted, step = as_expr(0), 1
    for v in reversed(run):
        counted, step = counted + symbol(v.var, 0, v.extent - 1) * step, step * int(v.extent)
    return run if run and simplify(cut.args[0] - counted) == 0 else None


def _ends_of(every: Iterable[Expr], number: Expr, total: int, k: int, pieces: int) -> tuple[int, ...]:
    """The ends of the pieces of rows of ``k`` columns in which no index divides by a column or tests one; no ends
    where there are more pieces."""
    column, row = symbol("collapse_column", 0, k - 1), symbol("collapse_row", 0, total // k - 1)
    moved = [simplify(e.substitute({number: row * k + column})) for e in every]
    uneven = list(_uneven(moved, column))
    if not uneven:
        return (k,)
    if pieces == 1 or k > MAX_COLUMNS:
        return ()
    columns = np.arange(k)
    ends = {k}
    for x in (x for x in uneven if x.symbols == frozenset({column})):  # others may be settled by the ends of these
        kept = x if x.is_condition else x.args[0] // x.args[1]
        values = np.broadcast_to(kept.evaluate_array({"collapse_column": columns}), columns.shape)
        ends.update((np.flatnonzero(values[1:] != values[:-1]) + 1).tolist())
        if len(ends) > pieces:
            return ()
    found = tuple(sorted(ends))
    for first, end in pairwise((0, *found)):
        inside = symbol("collapse_inside", 0, end - first - 1)
        if list(_uneven([simplify(e.substitute({column: first + inside})) for e in moved], inside)):
            return ()
    return found


def _uneven(exprs: Iterable[Expr], column: Expr) -> Iterator[Expr]:
    """Divisions and conditions that differ between columns."""
    for e in exprs:
        yield from (x for x in (*_divisions(e), *(e.conjuncts if e.is_condition else ())) if column in x.symbols)


def remap_check_point(s: Stmt, place: Mapping[Expr, Expr]) -> Stmt:
    """A check that names the values of its loops: they are not loops any more."""
    if not isinstance(s, BoundsCheck) or s.point:
        return s
    loops = {next(iter(v.names)): v for v in place}
    return replace(s, point=tuple(loops[name] for name in s.site.loops))


def division_periods(e: Expr, number: Expr) -> set[int]:
    """The lengths after which a division, or a condition, of an index may change."""
    found: set[int] = set()
    for x in _divisions(e):
        if number in x.symbols and x.args[1].is_const:
            found.add(_period_of(x.args[0]) * int(x.args[1]))
    for c in e.conjuncts if e.is_condition else ():
        sides = [a for a in c.args if number in a.symbols]
        ends = [int(a) for a in c.args if a.is_const]
        found |= {_period_of(a) * (n + more) for a in sides for n in ends for more in (0, 1)}
    return found


def _period_of(e: Expr) -> int:
    """How far the number goes until the expression changes."""
    if e.op == "floordiv" and e.args[1].is_const:
        return _period_of(e.args[0]) * int(e.args[1])
    return _period_of(e.args[0]) if e.op == "mod" else 1


def _divisions(e: Expr) -> list[Expr]:
    return [x for x in postorder(e) if x.op in ("floordiv", "mod")]


def _limits(chunk: VectorTail) -> list[Expr]:
    """Conditions that end the chunks behind the last row."""
    found: dict[Expr, None] = {}
    for x in chunk.guards():
        for c in x.condition.conjuncts:
            if c.op == "lt" and c != chunk.cut and simplify(c.args[0] - chunk.rows.number) == 0:
                found[c] = None
    return list(found)


def _row_count(chunk: VectorTail) -> Expr | None:
    """The number of rows, where the chunks make up whole rows."""
    count = chunk.rows.count
    if count is None:
        return as_expr(1)
    limits = {c.args[1] for c in _limits(chunk)} or {simplify(chunk.around[0].extent * chunk.rows.threads)}
    if len(limits) != 1:
        return None
    (limit,) = limits
    rows = simplify(limit // count)
    return rows if is_true((rows * count).eq(limit)) else None
