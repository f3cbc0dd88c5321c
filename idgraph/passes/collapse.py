"""collapse: the loops over blocks, threads and lanes of one row as one loop over its columns, for a core.

Before: ``for b < 4 blockIdx.x: for t < 128 threadIdx.x: for q < 4 vectorize: if b*512 + t*4 + q < 2001: ...``.
After: ``for b < 1 blockIdx.x: for q < 2001: ...``. A compiler makes vectors of a loop that no condition cuts, with the
head and tail that it needs; where rows are many, each block is a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from idgraph.arith import Expr, and_, as_expr, ceildiv, is_true, minimum, simplify, symbol
from idgraph.kernel.defuse import everywhere, rewritten
from idgraph.kernel.ir import If, Kernel, Loop, Note, Stmt
from idgraph.passes.peel import Chunk, chunk_of, conjuncts, without

COLUMNS = 1 << 13  # of one block: enough work for a core, small enough for all of them


def collapsed(kernel: Kernel) -> Kernel:
    """The kernel with its loops over cut rows as loops over columns."""
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
    if len(chain) < 2 or chain[-1].parallel != "vectorize" or chain[0].parallel != "blockIdx.x":
        return s
    chunk = chunk_of(chain[-1], chain[:-1])
    return s if chunk is None else _by_columns(chunk, chain) or s


def _by_columns(chunk: Chunk, chain: Sequence[Loop]) -> Stmt | None:
    """A block for each row, or for `COLUMNS` of its columns."""
    rows = _rows(chunk)
    if rows is None:
        return None
    outer, inner = chain[0], chain[-1]
    parts = simplify(ceildiv(chunk.end, as_expr(COLUMNS)))
    block = symbol(outer.var, 0, simplify(rows * parts - 1))
    lane = symbol(inner.var, 0, COLUMNS - 1)
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


def _limits(chunk: Chunk) -> list[Expr]:
    """Conditions that end the chunks behind the last row."""
    found: dict[Expr, None] = {}
    for x in chunk.guards():
        for c in conjuncts(x.condition):
            if c.op == "lt" and c != chunk.cut and simplify(c.args[0] - chunk.rows.number) == 0:
                found[c] = None
    return list(found)


def _rows(chunk: Chunk) -> Expr | None:
    """The number of rows, where the chunks are whole rows of them."""
    count = chunk.rows.count
    if count is None:
        return as_expr(1)
    limits = {c.args[1] for c in _limits(chunk)} or {simplify(chunk.around[0].extent * chunk.rows.threads)}
    if len(limits) != 1:
        return None
    (limit,) = limits
    rows = simplify(limit // count)
    return rows if is_true((rows * count).eq(limit)) else None
