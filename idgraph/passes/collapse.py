"""collapse: the loops over blocks, threads and lanes of one row as one loop over its columns, for a core.

Before: ``for b < 4 blockIdx.x: for t < 128 threadIdx.x: for q < 4 vectorize: if b*512 + t*4 + q < 2001: ...``.
After: ``for b < 1 blockIdx.x: for q < 2001: ...``. A compiler vectorises a loop that no condition cuts, with its own
head and tail; where there are many rows, each block takes one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from idgraph.arith import Expr, and_, as_expr, ceildiv, is_true, minimum, simplify, symbol
from idgraph.kernel.defuse import everywhere, index_exprs, rewritten
from idgraph.kernel.ir import Checked, If, Kernel, Let, Loop, Note, Stmt, Store, walk
from idgraph.passes.peel import Chunk, all_guarded, chunk_of, conjuncts, is_plain, without
from idgraph.passes.rows.sweep import tidied

LEAST = 64  # elements of a row that are worth a loop of their own
BLOCKS = 8  # at least, so that all cores have work
NUMBER = "collapse_number"
COLUMNS = 1 << 13  # of one block: enough work for a core, and enough blocks for all cores


def collapsed(kernel: Kernel) -> Kernel:
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
    >>> print(collapsed(k))
    kernel k():
      buffer x: float32[2001] input "x"
      buffer y: float32[2001] output "y"
      launch blockIdx.x: 1
      for b < 1, blockIdx.x:
        for q < 2001:
          v: float32 = x[q]
          y[q] = v
    """
    return relaunched(kernel, tuple(_collapsed(s) for s in kernel.body))


def relaunched(kernel: Kernel, body: tuple[Stmt, ...]) -> Kernel:
    """The kernel with other loops, and as many blocks and threads as they have."""
    if body == kernel.body:
        return kernel
    launch: dict[str, dict[Expr, None]] = {}
    for s in walk(body):
        if isinstance(s, Loop) and s.parallel.startswith(("blockIdx", "threadIdx")):
            launch.setdefault(s.parallel, {})[simplify(s.first + s.extent)] = None
    return replace(kernel, body=body, launch={dim: tuple(extents) for dim, extents in launch.items()})


def _collapsed(s: Stmt) -> Stmt:
    if not isinstance(s, Loop) or s.parallel != "blockIdx.x":
        return s
    chain = chain_of(replace(s, body=tuple(tidied(s.body))))
    if len(chain) < 2:
        return s
    chunk = chunk_of(chain[-1], chain[:-1]) if chain[-1].parallel == "vectorize" else None
    if chunk is not None:
        return _by_columns(chunk, chain) or s
    return _flat(chain) or s


def chain_of(s: Stmt) -> list[Loop]:
    """Loops that hold nothing but the next one."""
    chain: list[Loop] = []
    while isinstance(s, Loop):
        chain.append(s)
        inside = [x for x in s.body if not isinstance(x, Note)]
        if len(inside) != 1:
            break
        s = inside[0]
    return chain


def _by_columns(chunk: Chunk, chain: Sequence[Loop]) -> Stmt | None:
    """A block for each row, or for `COLUMNS` of its columns."""
    rows = _rows(chunk)
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
            return replace(x, condition=and_(*(at(c) for c in conjuncts(x.condition))))
        return rewritten(x, index=at)

    body = without(inner.body, chunk.cut)
    for c in _limits(chunk):
        body = without(body, c)
    extent = simplify(minimum(as_expr(COLUMNS), chunk.end - start))
    columns = Loop(inner.var, extent, "serial", everywhere(body, moved), inner.note)
    return Loop(outer.var, simplify(rows * parts), outer.parallel, (columns,), outer.note)


@dataclass(frozen=True, slots=True)
class _Row:
    """Statements as those of element ``number`` of ``total``; ``length`` neighbours are a row of plain indices."""

    body: tuple[Stmt, ...]
    number: Expr
    total: int
    length: int


def _flat(chain: Sequence[Loop]) -> Stmt | None:
    """All loops as one number, counted over all rows: as blocks, rows of a block, and columns.

    Only where no index divides by a column: else the existing loops keep divisions loop-invariant. Of the orders in
    which the loops may count, the one with the longest rows is taken.
    """
    body = chain[-1].body
    if not all(v.extent.is_const and v.extent != 0 for v in chain) or not _may_move(body):
        return None
    steps = [v for v in chain if v.parallel in ("serial", "unroll")]
    behind = [chain[0], *steps, *(v for v in chain[1:] if v not in steps)]
    orders = [list(chain)] if behind == list(chain) else [list(chain), behind]
    found = [row for row in (row_of(order, body) for order in orders) if row is not None]
    best = max(found, key=lambda r: r.length, default=None)
    if best is None:
        return None
    rows, parts = best.total // best.length, -(-best.length // COLUMNS)
    most = 1 if len(chain) == 2 else max(1, min(rows // BLOCKS, COLUMNS // best.length))
    at_once = max(k for k in range(1, most + 1) if rows % k == 0)
    outer = symbol(chain[0].var, 0, rows // at_once * parts - 1)
    row = symbol(chain[1].var, 0, at_once - 1) if at_once > 1 else as_expr(0)
    lane = symbol(chain[-1].var, 0, min(COLUMNS, best.length) - 1)
    start = simplify(outer % parts * COLUMNS)
    whole = {best.number: simplify((outer // parts * at_once + row) * best.length + start) + lane}
    moved = everywhere(best.body, lambda x: rewritten(x, index=lambda e: simplify(e.substitute(whole))))
    inner: Stmt = Loop(
        chain[-1].var, simplify(minimum(as_expr(COLUMNS), best.length - start)), "serial", moved, chain[-1].note
    )
    if at_once > 1:
        inner = Loop(chain[1].var, as_expr(at_once), "serial", (inner,), chain[1].note)
    return replace(chain[0], extent=as_expr(rows // at_once * parts), body=(inner,))


def _may_move(body: tuple[Stmt, ...]) -> bool:
    """Whether the elements may be visited in any order: straight code that writes each element of arrays once."""
    loaded = {x.name for x in walk(body) if isinstance(x, Let)}
    for x in walk(body):
        match x:
            case If() | Let() | Checked(always=False):
                pass
            case Store(address=address) if address.names & loaded:
                return False
            case _ if not is_plain((x,)):
                return False
            case _:
                pass
    return True


def row_of(order: Sequence[Loop], body: tuple[Stmt, ...]) -> _Row | None:
    """The body of ``order``'s loops by number, with the longest row whose columns no index divides or tests."""
    total, step = math.prod(int(v.extent) for v in order), 1
    number = symbol(NUMBER, 0, total - 1)
    place: dict[Expr, Expr] = {}
    for v in reversed(order):
        digit = number // step
        place[symbol(v.var, 0, v.extent - 1)] = digit if v is order[0] else digit % v.extent
        step *= int(v.extent)
    for cut in {c for x in walk(body) if isinstance(x, If) for c in conjuncts(x.condition)}:
        end = _end(cut, place, number)
        if end is not None and all_guarded(body, cut):
            total, body = min(total, end), without(body, cut)
    if total < 1:  # a tensor without elements
        return None
    last = symbol(NUMBER, 0, total - 1)
    place = {v: e.substitute({number: last}) for v, e in place.items()}
    body = everywhere(body, lambda x: rewritten(told(x, place), index=lambda e: simplify(e.substitute(place))))
    plain = (replace(x, point=()) if isinstance(x, Checked) else x for x in walk(body))  # a point is told, not computed
    every = {e for x in plain for e in index_exprs(x) if last in e.symbols}

    def is_plain_row(k: int) -> bool:
        column = symbol("collapse_column", 0, k - 1)
        at = {last: symbol("collapse_row", 0, total // k - 1) * k + column}
        moved = [simplify(e.substitute(at)) for e in every]
        return not any(column in x.symbols for e in moved for x in (*_divisions(e), *([e] if e.is_condition else ())))

    lengths = sorted({total, *(k for e in every for k in periods(e, last) if k >= LEAST and total % k == 0)})
    length = next((k for k in reversed(lengths) if is_plain_row(k)), None)
    return None if length is None else _Row(body, last, total, length)


def told(s: Stmt, place: Mapping[Expr, Expr]) -> Stmt:
    """A check that names the values of its loops: they are not loops any more."""
    if not isinstance(s, Checked) or s.point:
        return s
    loops = {next(iter(v.names)): v for v in place}
    return replace(s, point=tuple(loops[name] for name in s.site.loops))


def _end(cut: Expr, place: Mapping[Expr, Expr], number: Expr) -> int | None:
    """The limit of the number, where the condition is one."""
    if cut.op != "lt" or not cut.args[1].is_const:
        return None
    reached = simplify(cut.args[0].substitute(place))
    scale = int(reached.args[1]) if reached.op == "floordiv" and reached.args[1].is_const else 1
    return int(cut.args[1]) * scale if simplify(reached - number // scale) == 0 else None


def periods(e: Expr, number: Expr) -> set[int]:
    """The lengths after which a division, or a condition, of an index may change."""
    found: set[int] = set()
    for x in _divisions(e):
        if number in x.symbols and x.args[1].is_const:
            found.add(_step(x.args[0]) * int(x.args[1]))
    for c in conjuncts(e) if e.is_condition else ():
        sides = [a for a in c.args if number in a.symbols]
        ends = [int(a) for a in c.args if a.is_const]
        found |= {_step(a) * (n + more) for a in sides for n in ends for more in (0, 1)}
    return found


def _step(e: Expr) -> int:
    """How far the number goes until the expression changes."""
    if e.op == "floordiv" and e.args[1].is_const:
        return _step(e.args[0]) * int(e.args[1])
    return _step(e.args[0]) if e.op == "mod" else 1


def _divisions(e: Expr) -> Iterator[Expr]:
    stack = [e]
    while stack:
        x = stack.pop()
        if x.op in ("floordiv", "mod"):
            yield x
        stack += x.args


def _limits(chunk: Chunk) -> list[Expr]:
    """Conditions that end the chunks behind the last row."""
    found: dict[Expr, None] = {}
    for x in chunk.guards():
        for c in conjuncts(x.condition):
            if c.op == "lt" and c != chunk.cut and simplify(c.args[0] - chunk.rows.number) == 0:
                found[c] = None
    return list(found)


def _rows(chunk: Chunk) -> Expr | None:
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
