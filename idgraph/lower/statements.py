"""The statements of an operation at one point, and the accumulation of reductions.

Scans: a running value that takes one more term at each point of its axis.

Scatters: the copy of the tensor that they update, and the update of one point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from idgraph.arith import FALSE, TRUE, Expr, and_, as_expr, ceildiv, is_true, simplify, symbol
from idgraph.errors import EmitError, ScheduleError
from idgraph.index import address_of
from idgraph.index.allocation import COUNTED, is_thread, product, row_major
from idgraph.index.loop_tree import IndexMaps, conflicting_scatter_entries, meeting_loops
from idgraph.ir import (
    SCATTERS,
    DType,
    LoadedCoordinate,
    Scalar,
    Tensor,
    TensorExpr,
    has_atomic_update,
    is_float,
    item_size,
)
from idgraph.ir.device import access_bytes
from idgraph.ir.dtypes import int_limits
from idgraph.ir.op_builders import REDUCTIONS, result_dtype
from idgraph.ir.op_table import GATHERS, OPERATIONS, PIECES, POINTWISE, SCANS_OF, VIEWS
from idgraph.ir.ragged_axes import COVERS, row_bounds
from idgraph.kernel.ir import (
    Accumulate,
    AccumulateOp,
    BoundsCheck,
    Buffer,
    CheckSite,
    Comment,
    Compute,
    Constant,
    If,
    Index,
    InitAccumulator,
    Load,
    Local,
    Loop,
    Operand,
    Provenance,
    ProvenanceList,
    Select,
    Stmt,
    Store,
    quote,
)
from idgraph.lower.buffers import index_title
from idgraph.lower.provenance import START


@dataclass(frozen=True, slots=True)
class Accumulator:
    """How a reduction runs: sums, products and logarithms of sums of floats in float64, of integers in int64, extrema
    in their own type. A logarithm that is rounded to 32 bits or fewer in the end grows by float32 steps.

    A float64 sum of n float32 terms is off by less than n * 2**-53 relative to the sum of magnitudes: below the final
    rounding for every n that fits memory.
    """

    op: AccumulateOp
    dtype: DType


def accumulator(e: TensorExpr) -> Accumulator:
    """The running value's operation and type.

    >>> import idgraph as ig
    >>> accumulator(ig.sum(ig.Fusion("f").input("x", shape=(4,), dtype="bfloat16")).definition)
    Accumulator(op='sum', dtype='float64')
    """
    wanted = SCANS_OF.get(e.op, e.op if e.op in REDUCTIONS else "sum")
    op: AccumulateOp = next(r for r in _ACCUMULATED if r == wanted)
    dtype = e.output.dtype
    match op:
        case "sum" | "prod":
            return Accumulator(op, "float64" if is_float(dtype) else "int64")
        case "amax" | "amin":
            return Accumulator(op, dtype)
        case "any" | "all":
            return Accumulator(op, "bool")
        case "logsum" | "near_logsum":
            return Accumulator("logsum" if dtype == "float64" else "near_logsum", "float64")


_ACCUMULATED: tuple[AccumulateOp, ...] = get_args(AccumulateOp)


def identity(a: Accumulator) -> Scalar:
    """The identity element of the operation.

    >>> identity(Accumulator("amax", "float32")), identity(Accumulator("amin", "uint8"))
    (-inf, 255)
    """
    end = OPERATIONS[a.op].identity
    if end != "low" and end != "high":
        return end
    if a.dtype == "bool":
        return end == "high"
    if is_float(a.dtype):
        return -math.inf if end == "low" else math.inf
    return int_limits(a.dtype)[0 if end == "low" else 1]


_ZERO = Constant(0)


@dataclass(slots=True)
class PendingValue:
    """Statements that make the value of one expression, being collected.

    ``exists[k]`` says when operand ``k`` exists; ``guards`` hold wherever the statement may run. Statements after
    a check of loaded values stand inside it.
    """

    expr: TensorExpr
    local: Local
    result: Operand = _ZERO
    body: tuple[Stmt, ...] = ()
    guards: list[Expr] = field(default_factory=list[Expr])
    exists: dict[int, Expr] = field(default_factory=dict[int, Expr])
    _outer: list[tuple[tuple[Stmt, ...], Expr, CheckSite]] = field(
        default_factory=list["tuple[tuple[Stmt, ...], Expr, CheckSite]"]
    )

    def add(self, s: Stmt) -> None:
        """Append a statement."""
        self.body = (*self.body, s)

    def serve(self, local: Local, purpose: ProvenanceList) -> None:
        """The load that made ``local`` serves this, too."""

        def also(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
            return tuple(
                replace(s, serves=(*s.serves, *purpose)) if isinstance(s, Load) and s.local == local else s
                for s in body
            )

        self.body = also(self.body)
        self._outer = [(also(before), condition, site) for before, condition, site in self._outer]

    def check(self, sites: Sequence[CheckSite], bounds: Sequence[Expr]) -> None:
        """Statements added from now on run only where the loaded values are inside ``bounds`` (two for each site)."""
        for n, site in enumerate(sites):
            condition = and_(*bounds[2 * n : 2 * n + 2])
            self._outer.append((self.body, condition, site))
            self.body = ()

    def wrap(self, inside: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """``inside``, the statements that end in the store, within the checks."""
        for before, condition, site in reversed(self._outer):
            loaded = min(condition.names & {f"ld{k}" for k in range(len(self.expr.inputs))})
            writes = self.expr.op in SCATTERS
            inside = (*before, BoundsCheck(condition, loaded, site, inside, always=writes))
        return inside


def statement_value(v: PendingValue, operands: Mapping[int, Operand], maps: IndexMaps) -> None:
    """Add the statements that compute ``v.expr`` and set ``v.result``."""
    e, dtype = v.expr, v.expr.output.dtype
    op = e.op
    if op in REDUCTIONS or op in SCANS_OF:
        v.result = _term(v, operands[0], accumulator(e))
    elif op == "matmul":
        wide = accumulator(e).dtype
        product = Local(f"{v.local.name}_term", wide)
        narrow = tuple(_converted_operand(v, operands[k], dtype, k) for k in (0, 1))
        v.add(Compute(product, "mul", narrow, wide))
        v.result = product
    elif op in PIECES:
        v.add(_choice(v, operands))
        v.result = v.local
    elif op == "full":
        v.add(Compute(v.local, "cast", (Constant(_scalar_attribute(e, "value")),), dtype))
        v.result = v.local
    elif op == "iota":
        _emit_iota(v, e, maps.write(e).coordinates[0], v.local)
        v.result = v.local
    elif op in SCATTERS:
        last = e.args[-1]  # the others are the place that it writes
        value = operands[len(e.inputs) - 1] if isinstance(last, Tensor) else _plain(last)
        v.add(Compute(v.local, "cast", (value,), dtype))
        v.result = v.local
    elif op in VIEWS or op in GATHERS or op == "combine":
        v.add(Compute(v.local, "cast", (operands[1 if op == "embedding" else 0],), dtype))
        v.result = v.local
    else:
        v.add(_pointwise(v, _all_operands(e, operands)))
        v.result = v.local


def none_where_wrong(v: PendingValue, right: Expr) -> None:
    """The value is 0 where ``right`` does not hold, which a run without checks does not refuse: rows of wrong offsets
    are empty, so that nothing outside of memory is touched."""
    made = v.expr.output.dtype
    found = Local(f"{v.local.name}_found", made)
    v.add(Compute(found, "cast", (v.result,), made))
    v.result = Local(f"{v.local.name}_right", made)
    v.add(Select(v.result, ((right, found),), Constant(0)))


def _plain(a: Scalar | Expr) -> Operand:
    return Index(a) if isinstance(a, Expr) else Constant(a)


def _all_operands(e: TensorExpr, operands: Mapping[int, Operand]) -> tuple[Operand, ...]:
    made: list[Operand] = []
    k = 0
    for a in e.args:
        if isinstance(a, Tensor):
            made.append(operands[k])
            k += 1
        else:
            made.append(_plain(a))
    return tuple(made)


def _pointwise(v: PendingValue, operands: tuple[Operand, ...]) -> Compute:
    e, dtype = v.expr, v.expr.output.dtype
    if e.op not in POINTWISE:
        raise EmitError(
            f"operation {e.op} of {e.output.name} has no kernel",
            where=e.source_line,
            hint="it is kept as an opaque expression; cut the fusion around it",
        )
    match OPERATIONS[e.op].kind:
        case "compare" | "test":
            compute = result_dtype(e.args)
        case "logic":
            compute = "bool"
        case _:
            compute = dtype
    return Compute(v.local, e.op, operands, compute)


def _choice(v: PendingValue, operands: Mapping[int, Operand]) -> Select:
    e = v.expr
    if e.op in ("pad", "pad_ragged", "crop_ragged", "partition"):
        value = _scalar_attribute(e, "value") if "value" in e.attrs else 0
        return _settled(v.local, [(v.exists[0], operands[0])], Constant(value))
    if e.op == "slice_scatter":
        return _settled(v.local, [(v.exists[1], operands[1])], operands[0])
    # Parts that these loops never reach (an empty one, one that was cut away) may not be computed at all.
    *cases, last = [k for k in range(len(e.inputs)) if v.exists[k] != FALSE] or [0]
    return _settled(v.local, [(v.exists[k], operands[k]) for k in cases], operands[last])


def _settled(local: Local, cases: Sequence[tuple[Expr, Operand]], default: Operand) -> Select:
    """A choice without the cases that never hold, and without those after a case that always holds."""
    kept: list[tuple[Expr, Operand]] = []
    for condition, value in cases:
        if condition == TRUE:
            return Select(local, tuple(kept), value)
        if condition != FALSE:
            kept.append((condition, value))
    return Select(local, tuple(kept), default)


def _scalar_attribute(e: TensorExpr, key: str) -> Scalar:
    value = e.attrs[key]
    if isinstance(value, (bool, int, float)):
        return value
    raise EmitError(f"{key} {value!r} of {e.output.name} is not a number", where=e.source_line)


def _emit_iota(v: PendingValue, e: TensorExpr, place: Expr, to: Local) -> None:
    """start + step * coordinate: integers exactly, others in float64."""
    start, step = _scalar_attribute(e, "start"), _scalar_attribute(e, "step")
    if isinstance(start, int) and isinstance(step, int):
        v.add(Compute(to, "cast", (Index(place * step + start),), e.output.dtype))
        return
    scaled, moved = Local(f"{to.name}_step", "float64"), Local(f"{to.name}_wide", "float64")
    v.add(Compute(scaled, "mul", (Index(place), Constant(step)), "float64"))
    v.add(Compute(moved, "add", (scaled, Constant(start)), "float64"))
    v.add(Compute(to, "cast", (moved,), e.output.dtype))


def known_indices(e: TensorExpr, maps: IndexMaps) -> frozenset[int]:
    """Operands of ``e`` that are indices, and not loaded: their values follow from the coordinates."""
    if e.op in SCATTERS:
        return frozenset()
    indices = {r.operand for row in e.reads for r in row if isinstance(r, LoadedCoordinate)}
    loaded = {name for k in range(len(e.inputs)) for name in maps.read(e, k).loads} if indices else set[str]()
    return frozenset(k for k in indices if f"ld{k}" not in loaded)


def made_in_place(v: PendingValue, k: int, place: Sequence[Expr]) -> Operand:
    """The value of operand ``k`` at ``place``, where the coordinates determine it: see `COUNTED`."""
    t = v.expr.inputs[k]
    made = t.definition
    if made is None or made.op not in COUNTED:
        raise EmitError(f"{t.name} is not computed from coordinates only")
    to = Local(f"{v.local.name}_in{k}", t.dtype)
    if made.op == "full":
        v.add(Compute(to, "cast", (Constant(_scalar_attribute(made, "value")),), t.dtype))
    else:
        _emit_iota(v, made, place[0], to)
    return to


def _converted_operand(v: PendingValue, operand: Operand, dtype: DType, k: int) -> Operand:
    if isinstance(operand, Local) and operand.dtype != dtype:
        made = Local(f"{operand.name}_as{k}", dtype)
        v.add(Compute(made, "cast", (operand,), dtype))
        return made
    return operand


def _term(v: PendingValue, operand: Operand, a: Accumulator) -> Operand:
    """The operand in the accumulator's type; a sum with a dtype of its own casts to that first, as torch does."""
    e = v.expr
    if a.op in ("sum", "prod") and "dtype" in e.attrs:
        operand = _converted_operand(v, operand, e.output.dtype, 0)
    if isinstance(operand, Local) and operand.dtype != a.dtype:
        made = Local(f"{v.local.name}_term", a.dtype)
        v.add(Compute(made, "cast", (operand,), a.dtype))
        return made
    return operand


def finish(e: TensorExpr, acc: Local, to: Local) -> Stmt:
    """The finished value, rounded to the tensor's type."""
    return Compute(to, "cast", (acc,), e.output.dtype)


def accumulate_loaded(e: TensorExpr, load: Load) -> tuple[Stmt, ...]:
    """An accumulator of ``e``, which an exchange changes, with the partial result that a thread has in memory."""
    acc, a = load.local, accumulator(e)
    part = replace(acc, name=f"{acc.name}_part")
    return (
        InitAccumulator(acc.name, acc.dtype, identity(a)), replace(load, local=part), Accumulate(acc, a.op, part)
    )  # fmt: skip


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
