"""columns: the loops over a reduced row of several axes as one or two loops whose indices do not divide, for a core.

Before: ``for i < 13: for t < 1024 threadIdx.x: if i*1024 + t < 12544: for c < 4: s <- sum x[...//784...]``, a row of 16
pictures of 3136 elements. After: ``for i < 16: for c < 3136: s <- sum x[i*200704 + c]``. The order of the terms stays.

own_rows: blocks that may add to one element become one block, so that cores need not wait for each other.

A scatter along a row adds only to elements of that row. Where a row is cut into several blocks, each core takes whole
rows: no two of them meet, and each element gets its terms in their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from idgraph.arith import Expr, as_expr, is_true, postorder, simplify, symbol
from idgraph.arith.solve import coefficients
from idgraph.kernel.def_use import all_reads, all_sets, index_exprs, loaded_in, map_body, map_statement
from idgraph.kernel.ir import (
    Accumulate,
    BoundsCheck,
    Comment,
    CompoundStmt,
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
from idgraph.passes.loop_flattening import chain_of, division_periods, remap_check_point, row_of
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
    body = _flatten_body(kernel.body)
    return kernel if body == kernel.body else replace(kernel, body=simplify_selects(body))


def _flatten_body(body: Sequence[Stmt]) -> Body:
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, Loop) and not s.parallel.startswith("blockIdx") and (row := _row_loop(s)) is not None:
            made.append(row)
        elif isinstance(s, CompoundStmt):
            made.append(replace(s, body=_flatten_body(s.body)))
        else:
            made.append(s)
    return tuple(made)


def _row_loop(s: Loop) -> Loop | None:
    """The loops that only add up, in their order; None where they do more. One sweep that divides nothing stays."""
    inside = tuple(walk(s.body))
    if not any(isinstance(x, Accumulate) for x in inside) or any(isinstance(x, Store) for x in inside):
        return None
    (tidy, *more) = drop_unit_loops((s,))
    if more or not isinstance(tidy, Loop):
        return None
    sweep = match_reduction_loop(tidy)
    if sweep is not None and not _divides_columns(sweep):
        return s
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
    moved = map_body(row.body, lambda x: map_statement(x, index=lambda e: simplify(e.substitute(at))))
    inner_loop = Loop(last.var, as_expr(row.length), "serial", moved, last.note)
    return inner_loop if count == 1 else Loop(first.var, as_expr(count), "serial", (inner_loop,), first.note)


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


FEWEST = 2  # blocks: cores to share them


def privatize_scatter_rows(kernel: Kernel) -> Kernel:
    """own_rows: blocks of one row of a scatter as one block.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   where at in _, _
    ...   buffer i: int64[256] input "i"
    ...   buffer s: float32[256] input "s"
    ...   buffer y: float32[320] output "y"
    ...   launch blockIdx.x: 16
    ...   for b < 16, blockIdx.x:
    ...     for t < 16:
    ...       n: int64 = i[b*16 + t]
    ...       let at = n
    ...       v: float32 = s[b*16 + t]
    ...       check (at >= 0) & (at < 80), of at, site "y", axis 1, extent 80, index "i", in "y", at "f.py:1":
    ...         y[b//4*80 + at] <- sum v, as v:float32, atomic
    ... ''')
    >>> print(privatize_scatter_rows(k))
    kernel k():
      where at in _, _
      buffer i: int64[256] input "i"
      buffer s: float32[256] input "s"
      buffer y: float32[320] output "y"
      launch blockIdx.x: 4
      for b < 4, blockIdx.x:
        for b_in < 4:
          for t < 16:
            n: int64 = i[b*64 + b_in*16 + t]
            let at = n
            v: float32 = s[b*64 + b_in*16 + t]
            check (at >= 0) & (at < 80), of at, site "y", axis 1, extent 80, index "i", in "y", at "f.py:1":
              y[at + b*80] <- sum v, as v:float32
    """
    found = _single_update(kernel)
    if found is None:
        return kernel
    loop, update, limits = found
    taken = all_sets(kernel.body) | all_reads(kernel.body)
    inner = f"{loop.var}_in"
    while inner in taken:
        inner += "_"
    number, count = symbol(loop.var, 0, loop.extent - 1), int(loop.extent)
    address = update.address if update.address is not None else as_expr(0)
    for k in sorted(division_periods(address, number)):
        if k < 2 or count % k or count // k < FEWEST:
            continue
        row, part = symbol(loop.var, 0, count // k - 1), symbol(inner, 0, k - 1)
        place: dict[Expr, Expr] = {number: row * k + part}
        if _is_injective_in(simplify(address.substitute(place).substitute(limits)), row):
            return _block_per_row(kernel, loop, place, Loop(inner, as_expr(k), "serial", ()))
    return kernel


def _single_update(kernel: Kernel) -> tuple[Loop, Accumulate, Mapping[Expr, Expr]] | None:
    """The loop over blocks and the update in it that is the only access to its buffer; the loaded indices of its
    address, each within the extent that its check names."""
    loop = single_statement(kernel.body)
    shared = [s for s in walk(kernel.body) if isinstance(s, Accumulate) and s.shared]
    if not isinstance(loop, Loop) or len(shared) != 1:
        return None
    (update,) = shared
    if loop.parallel != "blockIdx.x" or not loop.extent.is_const or loop.first != 0:
        return None
    written = [s.buffer for s in walk(kernel.body) if isinstance(s, (Store, Accumulate))]
    if update.buffer is None or update.buffer.name in loaded_in(kernel.body) or written.count(update.buffer) > 1:
        return None
    checks = [s for s in walk(loop.body) if isinstance(s, BoundsCheck) and any(x is update for x in walk(s.body))]
    return loop, update, {x: at for c in checks for x, at in _limits(update.address, c)}


def _limits(address: Expr | None, check: BoundsCheck) -> list[tuple[Expr, Expr]]:
    """The index that ``check`` tests, where ``address`` has it, and the same within the extent of the check."""
    found: list[tuple[Expr, Expr]] = []
    for x in () if address is None else address.symbols:
        if x.name == check.value and {x >= 0, simplify(x < check.site.extent)} <= set(check.condition.conjuncts):
            found.append((x, symbol(x.name, 0, simplify(check.site.extent - 1))))
    return found


def _is_injective_in(address: Expr, row: Expr) -> bool:
    """Whether no two values of ``row`` lead to one address: it is ``row * step``, and less than ``step``."""
    affine = coefficients(address, (row,))
    if affine is None or not affine[0].is_const:
        return False
    step, first = affine
    return is_true(simplify(first >= 0)) and is_true(simplify(first < step))


def _block_per_row(kernel: Kernel, loop: Loop, place: Mapping[Expr, Expr], parts: Loop) -> Kernel:
    """A block for each row, and in it the loop over its ``parts``; updates are shared no more."""
    within = [symbol(s.var, 0, s.extent - 1) for s in walk(loop.body) if isinstance(s, Loop)]
    values: dict[Expr, Expr] = {**{x: x for x in within}, **place}

    def moved(s: Stmt) -> Stmt:
        s = map_statement(remap_check_point(s, values), index=lambda e: simplify(e.substitute(place)))
        return replace(s, shared=False) if isinstance(s, Accumulate) else s

    rows = simplify(loop.extent // parts.extent)
    inner = replace(parts, body=map_body(loop.body, moved))
    body = tuple(replace(s, extent=rows, body=(inner,)) if s is loop else s for s in kernel.body)
    return replace(kernel, body=body, launch={**kernel.launch, loop.parallel: (rows,)})
