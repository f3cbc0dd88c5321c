"""interchange: rows that lie side by side are reduced together, for a core.

Before: ``for a: acc = 0; for c: acc <- x[c*n + a]; out[a] = acc``: neighbouring steps of the inner loop are n elements
apart. After: the running values are an array, and the loop over rows is inside of that over columns:

    for a: all[a] = 0
    for c: for a: all[a] <- x[c*n + a]
    for a: acc = all[a]; out[a] = acc
"""

from __future__ import annotations

from collections.abc import Sequence
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

ROWS = 512  # of one block: their running values stay in a core's first cache
LEAST = 32  # rows that are worth the array
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
    ...       s: float64 = 0.0
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
      launch blockIdx.x: 2
      for b < 8, blockIdx.x:
        alloc s_all: float64[32] private "s of 32 rows"
        for a < 32: s_all[a] = 0.0
        for c < 256:
          for a < 32:
            t: float32 = x[a + b*32 + c*256]
            s_all[a] <- sum t, as s:float64
        for a < 32:
          s: float64 = s_all[a]
          r: float32 = cast(s)
          y[a + b*32] = r
    """
    return replace(kernel, body=tuple(_interchanged(s) for s in kernel.body))


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
    unguarded = _unguarded(inner.body, s, inner)
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


def _unguarded(body: Body, outer: Loop, inner: Loop) -> tuple[Body, int] | None:
    """The statements of a row, and the number of rows: first values, and the rest under one condition on the row, if
    any.
    """
    made: list[Stmt] = []
    limits: set[int | None] = set()
    for x in body:
        if isinstance(x, If):
            limits.add(_limit(x.condition, outer, inner))
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


def _limit(c: Expr, outer: Loop, inner: Loop) -> int | None:
    """The number of rows, where the condition bounds the row and nothing else."""
    number = symbol(outer.var, 0, outer.extent - 1) * inner.extent + symbol(inner.var, 0, inner.extent - 1)
    if c.op == "lt" and c.args[1].is_const and simplify(c.args[0] - number) == 0:
        return int(c.args[1])
    return None


def _pays(nest: _Nest) -> bool:
    """Whether rows lie side by side in the memory that is read, and columns do not."""
    row, column = symbol(nest.inner.var, 0, nest.inner.extent - 1), symbol(nest.columns.var, 0, None)
    loads = [s.address for s in nest.columns.body if isinstance(s, Load)]
    beside = [a for a in loads if row.name not in simplify(a - row).names]
    along = [a for a in loads if nest.columns.var not in simplify(a - _own(a, column)).names]
    return nest.count >= LEAST and bool(beside) and not along


def _own(address: Expr, column: Expr) -> Expr:
    """The symbol of the column in an address, with the bounds that it has there."""
    return next((s for s in address.symbols if s.name == column.name), column)


def _rebuilt(nest: _Nest) -> Loop:
    many = max(LEAST, min(ROWS, nest.count // BLOCKS))
    block = symbol(nest.outer.var, 0, -(-nest.count // many) - 1)
    lane = symbol(nest.inner.var, 0, many - 1)
    row = block * many + lane
    place = {
        symbol(nest.outer.var, 0, nest.outer.extent - 1): simplify(row // nest.step),
        symbol(nest.inner.var, 0, nest.inner.extent - 1): simplify(row % nest.step),
    }
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
    columns = replace(nest.columns, body=(beside([kept(s) for s in moved(nest.columns.body)]),))
    body = (*(Alloc(b) for b in arrays.values()), beside(first), columns, beside([*held, *moved(nest.after)]))
    return replace(nest.outer, extent=simplify(ceildiv(as_expr(nest.count), as_expr(many))), body=body)


def _local(nest: _Nest, d: Declare) -> Local:
    return next(s.acc for s in nest.columns.body if isinstance(s, Accumulate) and s.acc.name == d.name)
