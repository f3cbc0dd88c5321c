"""collapse: the loops over blocks, threads and lanes of one row as one loop over its columns, for a core.

Before: ``for b < 4 blockIdx.x: for t < 128 threadIdx.x: for q < 4 vectorize: if b*512 + t*4 + q < 2001: ...``.
After: ``for b < 1 blockIdx.x: for q < 2001: ...``. A compiler vectorises a loop that no condition cuts, with its own
head and tail; where there are many rows, each block takes one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from idgraph.arith import Expr, and_, as_expr, ceildiv, is_true, minimum, simplify, symbol
from idgraph.kernel.defuse import everywhere, index_exprs, rewritten
from idgraph.kernel.ir import If, Kernel, Loop, Note, Stmt, walk
from idgraph.passes.peel import Chunk, all_guarded, chunk_of, conjuncts, is_plain, without

LEAST = 64  # elements of a row that are worth a loop of their own
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
      launch blockIdx.x: 4; threadIdx.x: 128
      for b < 1, blockIdx.x:
        for q < 2001:
          v: float32 = x[q]
          y[q] = v
    """
    return replace(kernel, body=tuple(_collapsed(s) for s in kernel.body))


def _collapsed(s: Stmt) -> Stmt:
    chain: list[Loop] = []
    at = s
    while isinstance(at, Loop):
        chain.append(at)
        inside = [x for x in at.body if not isinstance(x, Note)]
        if at.parallel == "vectorize" or len(inside) != 1:
            break
        at = inside[0]
    if len(chain) < 2 or chain[0].parallel != "blockIdx.x":
        return s
    flat = [v.parallel for v in chain[:-1]] == ["blockIdx.x", "threadIdx.x"]
    if chain[-1].parallel not in ("vectorize", "unroll"):
        return s
    chunk = chunk_of(chain[-1], chain[:-1]) if chain[-1].parallel == "vectorize" else None
    if chunk is not None:
        return _by_columns(chunk, chain) or s
    return (_flat(chain[0], chain[1], chain[2]) if flat else None) or s


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


def _flat(block: Loop, thread: Loop, step: Loop) -> Stmt | None:
    """The same where vectors, or single elements of neighbouring threads, are counted over all rows.

    Only where no index divides within a row: else the existing loops keep divisions loop-invariant.
    """
    if not all(v.extent.is_const for v in (block, thread, step)) or not is_plain(step.body):
        return None
    threads, steps = int(thread.extent), int(step.extent)
    apart = step.parallel == "unroll"
    b, t, q = (symbol(v.var, 0, v.extent - 1) for v in (block, thread, step))
    cuts = {c for x in walk(step.body) if isinstance(x, If) for c in conjuncts(x.condition)}
    n, body = int(block.extent) * threads * steps, step.body
    whole = b * (threads * steps) + (q * threads + t if apart else t * steps + q)
    for cut in cuts:
        scale = next(
            (k for k in (1, steps) if cut.op == "lt" and simplify(cut.args[0] * k - whole + (q if k > 1 else 0)) == 0),
            0,
        )
        if not scale or not cut.args[1].is_const or len(cuts) > 1 or (apart and scale > 1):
            return None
        if not all_guarded(body, cut):
            return None
        n, body = int(cut.args[1]) * scale, without(body, cut)
    if n < 1:  # a tensor without elements
        return None
    number = symbol("collapse_number", 0, n - 1)
    place = {b: number // (threads * steps)}
    inside = number % (threads * steps)
    place |= {q: inside // threads, t: inside % threads} if apart else {t: inside // steps, q: inside % steps}

    def at(e: Expr) -> Expr:
        return simplify(e.substitute(place))

    body = everywhere(body, lambda x: rewritten(x, index=at))
    row = _row(body, number, n)
    if row is None:
        return None
    parts = -(-row // COLUMNS)
    outer = symbol(block.var, 0, n // row * parts - 1)
    lane = symbol(step.var, 0, min(COLUMNS, row) - 1)
    start = simplify(outer % parts * COLUMNS)
    whole = {number: simplify(outer // parts * row + start) + lane}
    moved = everywhere(body, lambda x: rewritten(x, index=lambda e: simplify(e.substitute(whole))))
    inner = Loop(step.var, simplify(minimum(as_expr(COLUMNS), row - start)), "serial", moved, step.note)
    return Loop(block.var, as_expr(n // row * parts), block.parallel, (inner,), block.note)


def _row(body: Sequence[Stmt], number: Expr, n: int) -> int | None:
    """The length of a row: ``n`` or a divisor of it at which every index is free of divisions; None for no such one."""
    every = {e for s in walk(tuple(body)) for e in index_exprs(s)}
    found = {int(x.args[1]) for e in every for x in _divisions(e) if x.args[1].is_const}
    rows = sorted({k for k in found if k >= LEAST and n % k == 0}, reverse=True)

    def left(k: int) -> int:
        at = {number: symbol("collapse_row", 0, n // k - 1) * k + symbol("collapse_column", 0, k - 1)}
        return sum(1 for e in every for _ in _divisions(simplify(e.substitute(at))))

    return next((k for k in (n, *rows) if not left(k)), None)


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
