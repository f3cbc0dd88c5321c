"""Scans: a running value that takes one more term at each point of its axis.

Scatters: the copy of the tensor that they update, and the update of one point.
"""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.arith import TRUE, Expr, as_expr, ceildiv, is_true, simplify, symbol
from idgraph.errors import ScheduleError
from idgraph.index import address_of
from idgraph.index.allocation import is_thread, product, row_major
from idgraph.index.loop_tree import IndexMaps, conflicting_scatter_entries, meeting_loops
from idgraph.ir import Tensor, TensorExpr, has_atomic_update, item_size
from idgraph.ir.ragged_axes import COVERS, row_bounds
from idgraph.ir.target import access_bytes
from idgraph.kernel.ir import (
    Accumulate,
    Buffer,
    CheckSite,
    Comment,
    If,
    InitAccumulator,
    Load,
    Local,
    Loop,
    Operand,
    Provenance,
    Stmt,
    Store,
    quote,
)
from idgraph.lower.buffers import index_title
from idgraph.lower.provenance import START
from idgraph.lower.statements import accumulator, finish, identity


def scan_steps(
    e: TensorExpr,
    term: Operand,
    to: Local,
    along: Sequence[int],
    maps: IndexMaps,
    kept: tuple[Local, Buffer | None, Expr | None] | None,
) -> tuple[Stmt, ...]:
    """The running value, ``kept`` in a variable or in an array, takes one more term and is the result ``to`` here."""
    a = accumulator(e)
    if kept is None:  # an axis of one element: its only term
        acc = Local(f"acc{to.name[1:]}", a.dtype)
        return (InitAccumulator(acc.name, acc.dtype, identity(a)), Accumulate(acc, a.op, term), finish(e, acc, to))
    acc, buffer, place = kept
    now, loops = Local(f"now{to.name[1:]}", a.dtype), maps.loops(e)
    names = tuple(loops[p].name for p in along)
    return (Accumulate(acc, a.op, term, buffer, place, running=now, along=names), finish(e, now, to))


_BLOCK = 256


def copied(e: TensorExpr, source: Buffer, to: Buffer, name: str) -> tuple[Stmt, ...]:
    """The statements of a kernel that copies what ``e`` updates to where it updates it."""
    x, t = e.inputs[0], e.output
    extents = [d.extent for d in t.axes]
    count = product(extents)
    width = 1
    if row_major(x) and row_major(t):
        width = access_bytes() // item_size(t.dtype)
        while width > 1 and not is_true((count % width).eq(0)):
            width //= 2
    blocks = simplify(ceildiv(ceildiv(count, width), _BLOCK))
    i0 = symbol("i0", 0, simplify(blocks - 1))
    i1, i2 = symbol("i1", 0, _BLOCK - 1), symbol("i2", 0, width - 1)
    place = simplify((i0 * _BLOCK + i1) * width + i2)
    local = Local("value", t.dtype)
    if row_major(x) and row_major(t):
        addresses: tuple[Expr, Expr] = place, place
    else:
        at = _coordinates(place, extents)
        addresses = address_of(x, _allocated(x, at)), address_of(t, _allocated(t, at))
    read, write = (Provenance(name + START, k, (place,)) for k in (0, None))
    body: tuple[Stmt, ...] = (
        Load(local, source, addresses[0], serves=(read,)),
        Store(to, addresses[1], local, (write,)),
    )
    if width > 1:
        body = (Loop("i2", as_expr(width), "vectorize", body),)
    if not is_true((count % (_BLOCK * width)).eq(0)):
        body = (If((i0 * _BLOCK + i1) * width < count, body),)
    body = (Loop("i0", blocks, "blockIdx.x", (Loop("i1", as_expr(_BLOCK), "threadIdx.x", body),)),)
    return (Comment(f"{quote(t.name)} starts as {quote(x.name)}"), *body)


def _coordinates(place: Expr, extents: Sequence[Expr]) -> list[Expr]:
    made: list[Expr] = []
    for p, n in reversed(list(enumerate(extents))):
        made.insert(0, place % n if p else place)
        place = place // n
    return [simplify(c) for c in made]


def _allocated(t: Tensor, at: Sequence[Expr]) -> list[Expr]:
    """Coordinates of the allocation axes from those of the shape's axes."""
    known = dict(zip(t.axes, at, strict=True))
    missing = [d for d in t.allocation if d not in known]
    if missing:
        raise ScheduleError(
            f"{t.name} is updated by a scatter, but its memory follows {missing[0].label}, which is not an axis of its "
            "shape",
            where=t.source_line,
            hint="set_allocation with a permutation of its logical axes",
        )
    return [known[d] for d in t.allocation]


def update(
    e: TensorExpr, maps: IndexMaps, buffer: Buffer, value: Operand, local: Local, ways: Sequence[str]
) -> Store | Accumulate:
    """The write of one point of a scatter: the element is replaced by, or combined with, ``value``."""
    address, how = maps.write(e).tensor_address, has_atomic_update(e)
    if how is None:
        return Store(buffer, address, value)
    return Accumulate(Local(local.name, e.output.dtype), how, value, buffer, address, is_shared(e, maps, ways))


def compared(e: TensorExpr, maps: IndexMaps) -> tuple[CheckSite, list[Expr]] | None:
    """(where, bounds) for an index compared with the numbers of an axis, which a checked run tests."""
    within = e.attrs.get("within")
    if e.op != "eq" or not isinstance(within, (int, Expr)):
        return None
    index, numbers = e.inputs[0], e.inputs[-1]
    axis = next((p for p, d in enumerate(numbers.axes) if not d.is_broadcast), 0)
    loops = tuple(v.name for v in maps.loops(e))
    made, line = f"{e.output.name} = {e.op}", str(e.source_line or "")
    site = CheckSite(numbers.name, axis, as_expr(within), index_title(index), made, line, loops)
    value = symbol("ld0")
    return site, [value >= 0, value < within]


def covered(e: TensorExpr, maps: IndexMaps) -> tuple[list[CheckSite], list[Expr]]:
    """(where, bounds) for the offsets of rows, which a checked run tests where it takes their difference."""
    (at,), (rows,), extent = maps.write(e).coordinates, e.output.axes, as_expr(e.attrs[COVERS])  # type: ignore[arg-type]
    start, stop = row_bounds(at, rows.extent, extent, symbol("ld1"), symbol("ld0"))
    made = e.inputs[0].definition
    offsets = index_title(e.inputs[0] if made is None else made.inputs[0])
    loops = tuple(v.name for v in maps.loops(e))
    sites: list[CheckSite] = []
    for end in ("begins", "ends"):
        sites.append(CheckSite(end, -1, extent, offsets, f"{e.output.name} = {e.op}", str(e.source_line or ""), loops))
    return sites, [start, TRUE, stop, TRUE]


def is_shared(e: TensorExpr, maps: IndexMaps, ways: Sequence[str]) -> bool:
    """True where several blocks or threads may update one element."""
    names = meeting_loops(e, maps, frozenset(n for c in conflicting_scatter_entries(e, maps)[0] for n in c.names))
    return any(is_thread(way) and v.name in names for way, v in zip(ways, maps.loops(e), strict=True))
