"""interchange: rows that lie side by side are reduced together, for a core.

Before: ``for a: acc = 0; for c: acc <- x[c*n + a]; out[a] = acc``: neighbouring steps of the inner loop are n elements
apart. After: the running values are an array, and the loop over rows is inside of that over columns:

    for a: all[a] = 0
    for c: for a: all[a] <- x[c*n + a]  (a few c at once)
    for a: acc = all[a]; out[a] = acc
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from idgraph.arith import Expr, as_expr, ceildiv, minimum, simplify, symbol
from idgraph.kernel.defuse import everywhere, rewritten
from idgraph.kernel.ir import (
    Accumulate,
    Alloc,
    Buffer,
    Choose,
    Compute,
    Declare,
    If,
    Kernel,
    Load,
    Local,
    Loop,
    Note,
    Number,
    Stmt,
    Store,
    walk,
)
from idgraph.kernel.ssa import single
from idgraph.kernel.value_numbers import Values
from idgraph.passes.collapse import periods, relaunched
from idgraph.passes.rows.pairwise import Pairs
from idgraph.passes.rows.sums import narrowed
from idgraph.passes.rows.sweep import Plain
from idgraph.passes.unroll import Lane, is_lanes

ROWS = 512  # of one block: their running values stay in a core's first cache
LEAST = 32  # rows that are worth the array
STEPS = 8  # columns between a load and a store of a running value
BLOCKS = 8  # at least, so that all cores have work
Body = tuple[Stmt, ...]


def interchanged(kernel: Kernel) -> Kernel:
    """interchange: reductions of neighbouring rows side by side.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[65536] input "x"
    ...   buffer y: float32[256] output "y"
    ...   launch blockIdx.x: 2
    ...   for b < 2, blockIdx.x:
    ...     for a < 128:
    ...       acc s: float64 = 0.0
    ...       for c < 256:
    ...         t: float32 = x[c*256 + b*128 + a]
    ...         s <- sum t
    ...       r: float32 = cast(s)
    ...       y[b*128 + a] = r
    ... ''')
    >>> print(interchanged(k))
    kernel k():
      buffer x: float32[65536] input "x"
      buffer y: float32[256] output "y"
      launch blockIdx.x: 8
      for b < 8, blockIdx.x:
        alloc s_all: float64[32] private "s of 32 rows"
        for a < 32: s_all[a] = 0.0
        for c < 32:
          for a < 32:
            t_0: float32 = x[a + b*32 + c*2048]
            t_1: float32 = x[a + b*32 + c*2048 + 256]
            t_2: float32 = x[a + b*32 + c*2048 + 512]
            t_3: float32 = x[a + b*32 + c*2048 + 768]
            t_4: float32 = x[a + b*32 + c*2048 + 1024]
            t_5: float32 = x[a + b*32 + c*2048 + 1280]
            t_6: float32 = x[a + b*32 + c*2048 + 1536]
            t_7: float32 = x[a + b*32 + c*2048 + 1792]
            s_0: float32 = add(t_0, t_1)
            s_1: float32 = add(t_2, t_3)
            s_2: float32 = add(t_4, t_5)
            s_3: float32 = add(t_6, t_7)
            s_4: float32 = add(s_0, s_1)
            s_5: float32 = add(s_2, s_3)
            s_6: float32 = add(s_4, s_5)
            s_all[a] <- sum s_6, as s:float64
        for a < 32:
          s: float64 = s_all[a]
          r: float32 = cast(s)
          y[a + b*32] = r
    """
    return relaunched(kernel, single([_interchanged(s) for s in kernel.body]))


@dataclass(frozen=True, slots=True)
class _Nest:
    """``outer`` blocks of ``inner`` rows, the last of which is ``count`` - 1; what each does, in three parts."""

    outer: Loop
    inner: Loop
    count: int
    first: tuple[Declare, ...]
    columns: Loop
    after: Body

    @property
    def step(self) -> int:
        return int(self.inner.extent)


def _interchanged(s: Stmt) -> Stmt:
    nest = _nest(s)
    return s if nest is None or not _pays(nest) else _rebuilt(nest)


def _nest(s: Stmt) -> _Nest | None:
    """The loops of a reduction by rows, where they do nothing else."""
    if not (isinstance(s, Loop) and s.parallel == "blockIdx.x" and s.extent.is_const):
        return None
    inner = _only(s.body)
    if not (isinstance(inner, Loop) and inner.extent.is_const and int(inner.extent) > 1):
        return None
    inner, lanes = _fused(inner)
    unguarded = _unguarded(inner.body, s, inner, lanes)
    if unguarded is None:
        return None
    body, count = unguarded
    plain = [x for x in body if not isinstance(x, Note)]
    first = tuple(x for x in plain if isinstance(x, Declare))
    loops = [x for x in plain if isinstance(x, Loop)]
    if len(loops) != 1 or not first or list(first) != plain[: len(first)] or plain[len(first)] is not loops[0]:
        return None
    after = tuple(body[body.index(loops[0]) + 1 :])
    straight = all(isinstance(x, (Note, Load, Compute, Choose, Accumulate)) for x in loops[0].body)
    plain_end = all(isinstance(x, (Note, Load, Compute, Choose, Store)) for x in after)
    sums = {x.acc.name for x in loops[0].body if isinstance(x, Accumulate) and x.buffer is None and x.running is None}
    every = {x.acc.name for x in walk(loops[0].body) if isinstance(x, Accumulate)}
    if not (straight and plain_end and sums == every == {d.name for d in first} and loops[0].parallel == "serial"):
        return None
    return _Nest(s, inner, count, first, loops[0], after)


def _fused(inner: Loop) -> tuple[Loop, int]:
    """The loop over rows with the lanes inside it, if any, as one loop; and their number."""
    lane = _only(inner.body)
    if not (isinstance(lane, Loop) and is_lanes(lane)):
        return inner, 1
    count = int(lane.extent)
    row = symbol(inner.var, 0, inner.extent * count - 1)
    place = {symbol(inner.var, 0, inner.extent - 1): row // count, symbol(lane.var, 0, count - 1): row % count}
    body = everywhere(lane.body, lambda s: rewritten(s, index=lambda e: simplify(e.substitute(place))))
    return replace(inner, extent=simplify(inner.extent * count), body=body), count


def _unguarded(body: Body, outer: Loop, inner: Loop, lanes: int) -> tuple[Body, int] | None:
    """The statements of a row, and the number of rows: first values, and the rest under one condition on the row, if
    any.
    """
    made: list[Stmt] = []
    limits: set[int | None] = set()
    for x in body:
        if isinstance(x, If):
            limits.add(_limit(x.condition, outer, inner, lanes))
            made += x.body
        else:
            made.append(x)
            if not isinstance(x, (Note, Declare)):
                limits.add(int(outer.extent) * int(inner.extent))
    if len(limits) != 1:
        return None
    (limit,) = limits
    return None if limit is None else (tuple(made), limit)


def _only(body: Body) -> Stmt | None:
    inside = [x for x in body if not isinstance(x, Note)]
    return inside[0] if len(inside) == 1 else None


def _limit(c: Expr, outer: Loop, inner: Loop, lanes: int) -> int | None:
    """The number of rows, where the condition bounds the row, or its group of lanes, and nothing else."""
    number = symbol(outer.var, 0, outer.extent - 1) * inner.extent + symbol(inner.var, 0, inner.extent - 1)
    if c.op == "lt" and c.args[1].is_const:
        if simplify(c.args[0] - number) == 0:
            return int(c.args[1])
        if lanes > 1 and simplify(c.args[0] - number // lanes) == 0:
            return int(c.args[1]) * lanes
    return None


def _pays(nest: _Nest) -> bool:
    """Whether rows lie side by side in the memory that is read, and columns do not."""
    block, lane, many = _blocks(nest)
    place, column = _place(nest, block * many + lane), symbol(nest.columns.var, 0, None)
    loads = [simplify(s.address.substitute(place)) for s in nest.columns.body if isinstance(s, Load)]
    beside = [a for a in loads if lane.name not in simplify(a - lane).names]
    along = [a for a in loads if nest.columns.var not in simplify(a - _own(a, column)).names]
    return nest.count >= LEAST and bool(beside) and not along


def _own(address: Expr, column: Expr) -> Expr:
    """The symbol of the column in an address, with the bounds that it has there."""
    return next((s for s in address.symbols if s.name == column.name), column)


def _rebuilt(nest: _Nest) -> Loop:
    block, lane, many = _blocks(nest)
    place = _place(nest, block * many + lane)
    extent = simplify(minimum(as_expr(many), nest.count - block * many))
    arrays = {
        d.name: Buffer(f"{d.name}_all", f"{d.name} of {many} rows", d.dtype, as_expr(many), "private")
        for d in nest.first
    }

    def moved(body: Sequence[Stmt]) -> Body:
        return everywhere(tuple(body), lambda s: rewritten(s, index=lambda e: simplify(e.substitute(place))))

    def beside(body: Sequence[Stmt]) -> Loop:
        return Loop(nest.inner.var, extent, "serial", tuple(body), nest.inner.note)

    def kept(s: Stmt) -> Stmt:
        return replace(s, buffer=arrays[s.acc.name], address=lane) if isinstance(s, Accumulate) else s

    first = [Store(arrays[d.name], lane, Number(d.value)) for d in nest.first]
    held = [Load(_local(nest, d), arrays[d.name], lane) for d in nest.first]
    columns = _at_once(nest.columns, moved(nest.columns.body), lambda body: beside([kept(s) for s in body]))
    body = (*(Alloc(b) for b in arrays.values()), beside(first), *columns, beside([*held, *moved(nest.after)]))
    return replace(nest.outer, extent=simplify(ceildiv(as_expr(nest.count), as_expr(many))), body=body)


def _blocks(nest: _Nest) -> tuple[Expr, Expr, int]:
    """The block of rows, the row in it, and the number of rows of a block."""
    many = _many(nest)
    return symbol(nest.outer.var, 0, -(-nest.count // many) - 1), symbol(nest.inner.var, 0, many - 1), many


def _place(nest: _Nest, row: Expr) -> dict[Expr, Expr]:
    """The variables of the loops over rows at a row."""
    return {
        symbol(nest.outer.var, 0, nest.outer.extent - 1): simplify(row // nest.step),
        symbol(nest.inner.var, 0, nest.inner.extent - 1): simplify(row % nest.step),
    }


def _many(nest: _Nest) -> int:
    """The rows of one block: so many that no index divides by them, where rows of two axes lie in pieces."""
    most = max(LEAST, min(ROWS, nest.count // BLOCKS))
    number = symbol("interchange_row", 0, nest.count - 1)
    place = _place(nest, number)
    read = [simplify(s.address.substitute(place)) for s in nest.columns.body if isinstance(s, Load)]
    whole = {n for e in read for n in periods(e, number)}
    if not whole:
        return most
    least = math.gcd(*whole)
    return max((k for k in range(LEAST, 2 * ROWS + 1) if least % k == 0), default=most)


def _at_once(columns: Loop, body: Sequence[Stmt], beside: Callable[[Sequence[Stmt]], Loop]) -> list[Stmt]:
    """The loops over columns and rows, `STEPS` columns for each visit of a row's running values, one after the other.

    The terms of one visit are combined in pairs, those of sums in float32: log2(`STEPS`) roundings each.
    """
    if not columns.extent.is_const or int(columns.extent) < STEPS:
        return [replace(columns, body=(beside(body),))]
    body, terms = narrowed([x for x in body if isinstance(x, Plain)])
    count, left = divmod(int(columns.extent), STEPS)
    block, old = symbol(columns.var, 0, count - 1), symbol(columns.var, 0, columns.extent - 1)

    def some(first: Expr, steps: int) -> list[Stmt]:
        lanes = [Lane((n,), {old: first + n}) for n in range(steps)]
        return [beside(Pairs(Values(frozenset()), terms).expand(body, lanes, {}))]

    made: list[Stmt] = [replace(columns, extent=as_expr(count), body=tuple(some(block * STEPS, STEPS)))]
    return [*made, *some(as_expr(count * STEPS), left)] if left else made


def _local(nest: _Nest, d: Declare) -> Local:
    return next(s.acc for s in nest.columns.body if isinstance(s, Accumulate) and s.acc.name == d.name)
