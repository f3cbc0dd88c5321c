"""columns: the loops over a reduced row of several axes as one or two loops whose indices do not divide, for a core.

A row of 16 pictures of 3136 elements is 16 steps of a loop over 3136. The order of the terms stays.
"""

from __future__ import annotations

from dataclasses import replace

from idgraph.arith import as_expr, postorder, symbol
from idgraph.kernel.def_use import expand_body, index_exprs, substitute_indices
from idgraph.kernel.ir import (
    Accumulate,
    Comment,
    Compute,
    If,
    InitAccumulator,
    Kernel,
    Load,
    Loop,
    Select,
    Stmt,
    Store,
    single_statement,
    walk,
)
from idgraph.kernel.ssa import simplify_selects
from idgraph.passes.loop_flattening import chain_of, row_of
from idgraph.passes.rows.reduction_loop import ReductionLoop, drop_unit_loops, match_reduction_loop

Body = tuple[Stmt, ...]


def flatten_reduction_loops(kernel: Kernel) -> Kernel:
    """columns: reduced rows without divisions.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[1600] input "x"
    ...   buffer y: float32[1] output "y"
    ...   acc s: float64 = 0.0
    ...   for i < 7:
    ...     for t < 16, threadIdx.x:
    ...       if i*16 + t < 100:
    ...         for c < 4:
    ...           v: float32 = x[(i*16 + t)//25*400 + (i*16 + t)%25*4 + c]
    ...           s <- sum v
    ...   y[0] = s
    ... ''')
    >>> print(flatten_reduction_loops(k))
    kernel k():
      buffer x: float32[1600] input "x"
      buffer y: float32[1] output "y"
      acc s: float64 = 0.0
      for i < 4, carries s:
        for c < 100, carries s:
          v: float32 = x[c + i*400]
          s <- sum v
      y[0] = s
    """
    body = expand_body(kernel.body, _row_loop)
    return kernel if body == kernel.body else replace(kernel, body=simplify_selects(body))


def _row_loop(s: Stmt) -> tuple[Loop] | None:
    """The loops that only add up, in their order; None where they do more. One sweep that divides nothing stays."""
    if not isinstance(s, Loop) or s.parallel.startswith("blockIdx"):
        return None
    inside = tuple(walk(s.body))
    if not any(isinstance(x, Accumulate) for x in inside) or any(isinstance(x, Store) for x in inside):
        return None
    (tidy, *more) = drop_unit_loops((s,))
    if more or not isinstance(tidy, Loop):
        return None
    sweep = match_reduction_loop(tidy)
    if sweep is not None and not _divides_columns(sweep):
        return (s,)
    chain, guards = chain_of(tidy), list[If]()
    body = chain[-1].body
    while isinstance(inner := single_statement(body), (If, Loop)):
        if isinstance(inner, If):
            guards.append(inner)
        else:
            chain.append(inner)
        body = inner.body
    for g in reversed(guards):
        body = (replace(g, body=body),)
    if len(chain) < 2 or not all(v.extent.is_const and v.extent != 0 for v in chain) or not _only_adds(body):
        return None
    on_threads = any(v.parallel.startswith("threadIdx") for v in chain)
    if on_threads and any(isinstance(x, Load) and x.buffer.place == "shared" for x in walk(body)):
        return None  # each thread reads what it wrote itself; no barrier says that others may
    row = row_of(chain, body)
    if row is None:
        return None
    count, first, last = row.total // row.length, chain[0], chain[-1]
    column = symbol(last.var, 0, row.length - 1)
    at = {row.number: (symbol(first.var, 0, count - 1) * row.length if count > 1 else as_expr(0)) + column}
    moved = substitute_indices(row.body, at)
    inner_loop = Loop(last.var, as_expr(row.length), "serial", moved, last.note)
    return (inner_loop if count == 1 else Loop(first.var, as_expr(count), "serial", (inner_loop,), first.note),)


def _divides_columns(sweep: ReductionLoop) -> bool:
    """Whether an index of a sweep is a quotient of its columns, or a remainder."""
    found = (x for s in walk(sweep.body) for e in index_exprs(s) for x in postorder(e))
    return any(x.op in ("floordiv", "mod") and sweep.column in x.symbols for x in found)


def _only_adds(body: Body) -> bool:
    """Straight code without writes, whose results are sums and the like of the whole row."""
    sums = False
    for x in walk(body):
        match x:
            case Accumulate(buffer=None, running=None):
                sums = True
            case Comment() | Load() | Compute() | Select() | InitAccumulator() | If():
                pass
            case _:
                return False
    return sums
