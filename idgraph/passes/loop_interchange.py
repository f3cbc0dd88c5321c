"""interchange: rows that lie side by side are reduced together, for a core.

Neighbouring columns of such a row are far apart. The running values become an array, and the loop over rows is inside
of that over columns, a few columns at once.

Several loops over columns, as those of a softmax, are taken one by one: what a row carries from one to the next is an
array, too, and a row that is kept has its columns `many` elements apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from idgraph.arith import Expr, as_expr, ceildiv, minimum, simplify, symbol
from idgraph.ir import item_size
from idgraph.ir.device import current_device
from idgraph.kernel.def_use import (
    all_sets,
    defs,
    loaded_in,
    map_body,
    map_statement,
    reads,
    stored_in,
    substitute_indices,
)
from idgraph.kernel.ir import (
    Accumulate,
    Alloc,
    Buffer,
    Comment,
    Compute,
    Constant,
    If,
    InitAccumulator,
    Kernel,
    Load,
    Local,
    Loop,
    Select,
    Stmt,
    Store,
    single_statement,
)
from idgraph.kernel.ssa import to_ssa
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.passes.lane_unrolling import Lane, is_lanes
from idgraph.passes.loop_flattening import division_periods, recompute_launch_bounds
from idgraph.passes.rows.reduction_loop import Plain
from idgraph.passes.rows.summation import narrowed
from idgraph.passes.rows.vector_chunks import Pairs

ROWS = 512  # of one block: their running values stay in a core's first cache
LEAST = 32  # rows that are worth the array
STEPS = 8  # columns between a load and a store of a running value
BLOCKS = 8  # at least, so that all cores have work
Body = tuple[Stmt, ...]


def interchange_loops(kernel: Kernel) -> Kernel:
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
    >>> print(interchange_loops(k))
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
    return recompute_launch_bounds(kernel, to_ssa([_interchanged(s) for s in kernel.body]))


@dataclass(frozen=True, slots=True)
class _Nest:
    """``outer`` blocks of ``inner`` rows, the last of which is ``count`` - 1; what each does, in parts: loops over
    columns, and what stands between them. ``retained``: arrays of one row, indexed by columns."""

    outer: Loop
    inner: Loop
    count: int
    parts: tuple[Loop | Body, ...]
    kept: tuple[Buffer, ...]

    @property
    def step(self) -> int:
        return int(self.inner.extent)

    @property
    def loops(self) -> list[Loop]:
        return [p for p in self.parts if isinstance(p, Loop)]

    @property
    def accesses(self) -> list[Load | Store]:
        """Those of columns, but for the arrays that are kept."""
        inside = [s for p in self.loops for s in p.body]
        return [s for s in inside if isinstance(s, (Load, Store)) and s.buffer not in self.kept]


def _interchanged(s: Stmt) -> Stmt:
    nest = _nest(s)
    return s if nest is None or not _pays(nest) else _rebuilt(nest)


def _nest(s: Stmt) -> _Nest | None:
    """The loops of rows, where they do nothing but reduce and map columns."""
    if not (isinstance(s, Loop) and s.parallel == "blockIdx.x" and s.extent.is_const):
        return None
    kept = tuple(x.buffer for x in s.body if isinstance(x, Alloc))
    inner = single_statement(tuple(x for x in s.body if not isinstance(x, Alloc)))
    if not (isinstance(inner, Loop) and inner.extent.is_const and int(inner.extent) > 1):
        return None
    inner, lanes = _fused(inner)
    unguarded = _unguarded(inner.body, s, inner, lanes)
    if unguarded is None:
        return None
    body, count = unguarded
    nest = _Nest(s, inner, count, _loops_and_statements(body), kept)
    return nest if all(map(_is_straight, nest.parts)) and _is_row_independent(nest, body) else None


def _loops_and_statements(body: Body) -> tuple[Loop | Body, ...]:
    """The loops of ``body``, and the statements between them, without levels of only notes."""
    made: list[Loop | Body] = []
    for is_loop, some in groupby(body, lambda x: isinstance(x, Loop)):
        found = tuple(some)
        if is_loop:
            made += [x for x in found if isinstance(x, Loop)]
        elif not all(isinstance(x, Comment) for x in found):
            made.append(found)
    return tuple(made)


def _is_straight(part: Loop | Body) -> bool:
    """No loop, branch or update of memory inside; updates of running values only in loops."""
    if isinstance(part, Loop):
        plain = all(isinstance(x, (Comment, Load, Compute, Select, Accumulate, Store)) for x in part.body)
        return plain and part.parallel == "serial"
    return all(isinstance(x, (Comment, InitAccumulator, Load, Compute, Select, Store)) for x in part)


def _is_row_independent(nest: _Nest, body: Body) -> bool:
    """Whether rows may be taken in any order, and column by column: each has its own running values, which no column
    reads, and none reads what another one has written."""
    declared = [x.name for p in nest.parts if not isinstance(p, Loop) for x in p if isinstance(x, InitAccumulator)]
    updates = [x for p in nest.loops for x in p.body if isinstance(x, Accumulate)]
    if not updates or any(x.buffer is not None or x.running is not None for x in updates):
        return False
    if {x.acc.name for x in updates} != set(declared) or len(set(declared)) < len(declared):
        return False
    if any(_live_in(p) & {x.acc.name for x in p.body if isinstance(x, Accumulate)} for p in nest.loops):
        return False
    private = {b.name for b in nest.kept}
    stores = [x for p in nest.loops for x in p.body if isinstance(x, Store)]
    if (stores and nest.inner.parallel == "serial") or not (stored_in(body) & loaded_in(body) <= private):
        return False
    own = [(p, x) for p in nest.parts for x in _body_of(p) if isinstance(x, (Load, Store)) and x.buffer in nest.kept]
    return all(isinstance(p, Loop) and x.address.names == frozenset({p.var}) for p, x in own)


def _body_of(part: Loop | Body) -> Body:
    return part.body if isinstance(part, Loop) else part


def _live_in(part: Loop | Body) -> frozenset[str]:
    """The variables that a part reads and others have set, its own running values left out."""
    inside = _body_of(part)
    found = {n for x in inside for n in reads(x) - ({x.acc.name} if isinstance(x, Accumulate) else set[str]())}
    return frozenset(found - all_sets(x for x in inside if not isinstance(x, Accumulate)))


def _fused(inner: Loop) -> tuple[Loop, int]:
    """The loop over rows with the lanes inside it, if any, as one loop; and their number."""
    lane = single_statement(inner.body)
    if not (isinstance(lane, Loop) and is_lanes(lane)):
        return inner, 1
    count = int(lane.extent)
    row = symbol(inner.var, 0, inner.extent * count - 1)
    place = {symbol(inner.var, 0, inner.extent - 1): row // count, symbol(lane.var, 0, count - 1): row % count}
    body = substitute_indices(lane.body, place)
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
            if not isinstance(x, (Comment, InitAccumulator)):
                limits.add(int(outer.extent) * int(inner.extent))
    if len(limits) != 1:
        return None
    (limit,) = limits
    return None if limit is None else (tuple(made), limit)


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
    """Whether rows lie side by side in the memory of columns, and columns do not."""
    block, lane, many = _blocks(nest)
    place, columns = _row_substitution(nest, block * many + lane), {p.var for p in nest.loops}
    found = [simplify(s.address.substitute(place)) for s in nest.accesses]
    beside = [a for a in found if lane.name not in simplify(a - lane).names]
    along = [a for a in found for c in a.symbols if c.name in columns and c.name not in simplify(a - c).names]
    return nest.count >= LEAST and bool(beside) and not along


def _rebuilt(nest: _Nest) -> Loop:
    block, lane, many = _blocks(nest)
    place = _row_substitution(nest, block * many + lane)
    extent = simplify(minimum(as_expr(many), nest.count - block * many))
    arrays = _arrays(nest, many)
    rows = {b.name: replace(b, title=f"{b.title} of {many} rows", size=simplify(b.size * many)) for b in nest.kept}

    def moved(s: Stmt) -> Stmt:
        s = map_statement(s, index=lambda e: simplify(e.substitute(place)))
        if isinstance(s, (Load, Store)) and s.buffer.name in rows:
            s = replace(s, buffer=rows[s.buffer.name], address=simplify(s.address * many + lane))
        return s

    def side_by_side(body: Sequence[Stmt]) -> Loop:
        return Loop(nest.inner.var, extent, "serial", tuple(body), nest.inner.note)

    def retained(s: Stmt) -> Stmt:
        return replace(s, buffer=arrays[s.acc.name][1], address=lane) if isinstance(s, Accumulate) else s

    made: list[Stmt] = []
    for part in nest.parts:
        read = _live_in(part)
        held = [Load(x, b, lane) for name, (x, b) in arrays.items() if name in read]
        body = map_body(_body_of(part), moved)
        if isinstance(part, Loop):
            made += _at_once(part, body, lambda body, held=held: side_by_side([*held, *map(retained, body)]))
            continue
        first = [
            Store(arrays[s.name][1], lane, Constant(s.value)) if isinstance(s, InitAccumulator) else s for s in body
        ]
        handed = [x for s in body for x in defs(s) if x.name in arrays and not isinstance(s, InitAccumulator)]
        made.append(side_by_side([*held, *first, *(Store(arrays[x.name][1], lane, x) for x in handed)]))
    allocated = [Alloc(b) for b in (*(b for _, b in arrays.values()), *rows.values())]
    body = (*allocated, *made)
    return replace(nest.outer, extent=simplify(ceildiv(as_expr(nest.count), as_expr(many))), body=body)


def _arrays(nest: _Nest, many: int) -> dict[str, tuple[Local, Buffer]]:
    """Running values, and what one part passes to others: the variable and its array, by name."""
    outside = frozenset[str]().union(*map(_live_in, nest.parts))
    found: dict[str, Local] = {}
    for part in nest.parts:
        for s in part if not isinstance(part, Loop) else ():
            if isinstance(s, InitAccumulator):
                found[s.name] = Local(s.name, s.dtype)
            else:
                found |= {x.name: x for x in defs(s) if x.name in outside}
    size = as_expr(many)
    return {n: (x, Buffer(f"{n}_all", f"{n} of {many} rows", x.dtype, size, "private")) for n, x in found.items()}


def _blocks(nest: _Nest) -> tuple[Expr, Expr, int]:
    """The block of rows, the row in it, and the number of rows of a block."""
    many = _many(nest)
    return symbol(nest.outer.var, 0, -(-nest.count // many) - 1), symbol(nest.inner.var, 0, many - 1), many


def _row_substitution(nest: _Nest, row: Expr) -> dict[Expr, Expr]:
    """The variables of the loops over rows at a row."""
    return {
        symbol(nest.outer.var, 0, nest.outer.extent - 1): simplify(row // nest.step),
        symbol(nest.inner.var, 0, nest.inner.extent - 1): simplify(row % nest.step),
    }


def _many(nest: _Nest) -> int:
    """The rows of one block: so many that no index divides by them, where rows of two axes lie in pieces; of rows that
    are kept, as few as fit in a quarter of a core's own cache."""
    most = max(LEAST, min(ROWS, -(-nest.count // (BLOCKS * LEAST)) * LEAST))  # ends of vectors are scalar code
    row = sum(int(b.size) * item_size(b.dtype) for b in nest.kept)
    most = most if not row else max(LEAST, min(most, current_device("cpu").core_cache // 4 // row // LEAST * LEAST))
    number = symbol("interchange_row", 0, nest.count - 1)
    place = _row_substitution(nest, number)
    read = [simplify(s.address.substitute(place)) for s in nest.accesses]
    whole = {n for e in read for n in division_periods(e, number)}
    if not whole:
        return most
    least = math.gcd(*whole)
    return max((k for k in range(LEAST, (most if row else 2 * ROWS) + 1) if least % k == 0), default=most)


def _at_once(columns: Loop, body: Sequence[Stmt], beside: Callable[[Sequence[Stmt]], Loop]) -> list[Stmt]:
    """The loops over columns and rows, `STEPS` columns for each visit of a row's running values, one after the other.

    The terms of one visit are combined in pairs, those of sums in float32: log2(`STEPS`) roundings each.
    """
    reduces = any(isinstance(x, Accumulate) for x in body)
    if not reduces or not columns.extent.is_const or int(columns.extent) < STEPS:
        return [replace(columns, body=(beside(body),))]
    body, terms = narrowed([x for x in body if isinstance(x, Plain)])
    count, left = divmod(int(columns.extent), STEPS)
    block, old = symbol(columns.var, 0, count - 1), symbol(columns.var, 0, columns.extent - 1)

    def some(first: Expr, steps: int) -> list[Stmt]:
        lanes = [Lane((n,), {old: first + n}) for n in range(steps)]
        return [beside(Pairs(ValueNumbering(frozenset()), terms).expand(body, lanes, {}))]

    made: list[Stmt] = [replace(columns, extent=as_expr(count), body=tuple(some(block * STEPS, STEPS)))]
    return [*made, *some(as_expr(count * STEPS), left)] if left else made
