"""Memory layout of tensors in numbers: strides, the address of each element, and arrays laid out that way.

Accesses at one concrete size: what an index map says, in loop variables only, ready to be checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from idgraph.arith import FALSE, TRUE, Expr, and_, as_expr, symbol
from idgraph.errors import IndexingError, InternalError
from idgraph.index import Access, IdModel, LoopVariable
from idgraph.ir import (
    DomainExpr,
    Fusion,
    IterDomain,
    Merge,
    Resize,
    Roll,
    RowPartition,
    Split,
    Stride,
    Swizzle,
    Tensor,
    TensorExpr,
)
from idgraph.ir.op_table import WRITES
from idgraph.validate.oracle import shape_of
from idgraph.validate.oracle.views import Array, number


@dataclass(frozen=True)  # no slots: the table is made when first asked for, and kept
class MemoryLayout:
    """Where the elements of a tensor lie, in elements from the start of its buffer.

    Either ``strides`` (one for each axis of ``tensor.shape``) and ``offset``; or, where memory is ordered by split or
    merged axes, ``formula``: lines of Python that assign ``address`` from coordinates ``x0``, ``x1``, ..., and
    ``table``, the address of each element in row-major order.
    """

    strides: tuple[int, ...] | None
    offset: int
    size: int
    formula: tuple[str, ...] = ()
    make_table: Callable[[], Array] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def table(self) -> Array | None:
        """The address of each element in row-major order; None where strides say it."""
        return None if self.make_table is None else self.make_table()

    def address(self, coordinates: tuple[int, ...], shape: tuple[int, ...]) -> int:
        """The address of one element."""
        if self.strides is not None:
            return self.offset + sum(c * s for c, s in zip(coordinates, self.strides, strict=True))
        assert_table = self.table
        if assert_table is None:
            raise IndexingError("a layout has strides or a table")
        return int(assert_table[int(np.ravel_multi_index(coordinates, shape)) if coordinates else 0])


def free_strides(f: Fusion, symbols: Mapping[str, int]) -> dict[str, int]:
    """Values for the free strides of inputs: rows a little apart, so that a stride taken for another one shows."""
    found: dict[str, int] = {}
    for t in f.tensors:
        inner = 1
        for d, s in zip(reversed(t.allocation), reversed(t.domain.strides), strict=True):
            if s is not None and s.op == "sym" and s.name not in symbols:
                found[s.name] = inner + 1
            stride = number(s, {**symbols, **found}) if s is not None else inner
            inner = stride * number(d.extent, symbols)
    return found


def _allocation_strides(t: Tensor, symbols: Mapping[str, int]) -> list[int]:
    made: list[int] = []
    inner = 1
    for d, s in zip(reversed(t.allocation), reversed(t.domain.strides), strict=True):
        stride = number(s, symbols) if s is not None else inner
        made.insert(0, stride)
        inner = stride * number(d.extent, symbols)
    return made


def layout_of(t: Tensor, symbols: Mapping[str, int]) -> MemoryLayout:
    """Strides where memory has the logical axes in some order, else a table of addresses."""
    strides = _allocation_strides(t, symbols)
    offset = number(t.offset, symbols)
    extents = [number(d.extent, symbols) for d in t.allocation]
    size = 0 if 0 in extents else offset + 1 + sum((n - 1) * s for n, s in zip(extents, strides, strict=True))
    if set(t.allocation) <= set(t.axes):
        by_axis = dict(zip(t.allocation, strides, strict=True))
        if all(d in by_axis or d.is_broadcast for d in t.axes):
            return MemoryLayout(tuple(by_axis.get(d, 0) for d in t.axes), offset, size)

    shape = shape_of(t, symbols)

    def table() -> Array:
        values = _axis_values(t, symbols, np.indices(shape, dtype=np.int64), lambda value: value)
        made = np.full(shape, offset, np.int64)
        for d, s in zip(t.allocation, strides, strict=True):
            made = made + values[d] * s
        return np.ascontiguousarray(made).reshape(-1)

    lines: list[str] = []

    def line(value: _Text) -> _Text:
        lines.append(f"y{len(lines)} = {value}")
        return _Text(f"y{len(lines) - 1}")

    names = _axis_values(t, symbols, [_Text(f"x{p}") for p in range(len(t.axes))], line)
    terms = [f"{names[d]} * {s}" for d, s in zip(t.allocation, strides, strict=True)]
    return MemoryLayout(None, offset, size, (*lines, f"address = {' + '.join([str(offset), *terms])}"), table)


class _Text:
    """A number as Python text: arithmetic with it gives the text of the result."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __add__(self, x: object) -> _Text:
        return _Text(f"({self} + {x})")

    def __sub__(self, x: object) -> _Text:
        return _Text(f"({self} - {x})")

    def __mul__(self, x: object) -> _Text:
        return _Text(f"({self} * {x})")

    def __floordiv__(self, x: object) -> _Text:
        return _Text(f"({self} // {x})")

    def __mod__(self, x: object) -> _Text:
        return _Text(f"({self} % {x})")

    def __xor__(self, x: object) -> _Text:
        return _Text(f"({self} ^ {x})")


def _axis_values(
    t: Tensor, symbols: Mapping[str, int], start: Iterable[Any], named: Callable[[Any], Any]
) -> dict[IterDomain, Any]:
    """The value of every axis of ``t`` that follows from those of its elements, as numbers or as text; ``named`` gets
    each new one. Rows of loaded length are left out: memory never follows those."""
    values = dict(zip(t.axes, start, strict=True))
    pending = [e for e in (*t.domain.exprs, *t.domain.loop_exprs) if not isinstance(e, RowPartition)]
    while True:
        rest: list[DomainExpr] = []
        for e in pending:
            if all(d in values for d in e.inputs):
                made = zip(e.outputs, _outputs(e, [values[d] for d in e.inputs], symbols), strict=True)
            elif all(d in values for d in e.outputs):
                made = zip(e.inputs, _inputs(e, [values[d] for d in e.outputs], symbols), strict=True)
            else:
                rest.append(e)
                continue
            for d, value in made:
                if d not in values:
                    values[d] = named(value)
        if len(rest) == len(pending):
            return values
        pending = rest


def _outputs(e: DomainExpr, x: Sequence[Any], symbols: Mapping[str, int]) -> list[Any]:
    """One axis expression from its inputs to its outputs."""
    match e:
        case Split():
            inner = number(e.inner.extent, symbols)
            return [x[0] // inner, x[0] % inner]
        case Merge():
            return [x[0] * number(e.inner.extent, symbols) + x[1]]
        case Resize():
            return [x[0] + number(e.left, symbols)]
        case Stride():
            return [(x[0] - number(e.start, symbols)) // number(e.step, symbols)]
        case Roll():
            return [(x[0] + number(e.shift, symbols)) % number(e.source.extent, symbols)]
        case Swizzle():
            return [x[0], x[0] ^ x[1] if e.kind == "xor" else (x[0] + x[1]) % number(e.y.extent, symbols)]
        case RowPartition():
            raise InternalError(f"{e} has no formula without its offsets")


def _inputs(e: DomainExpr, y: Sequence[Any], symbols: Mapping[str, int]) -> list[Any]:
    """One axis expression from its outputs to its inputs: memory may be that of the root axes."""
    match e:
        case Split():
            return [y[0] * number(e.inner.extent, symbols) + y[1]]
        case Merge():
            inner = number(e.inner.extent, symbols)
            return [y[0] // inner, y[0] % inner]
        case Resize():
            return [y[0] - number(e.left, symbols)]
        case Stride():
            return [y[0] * number(e.step, symbols) + number(e.start, symbols)]
        case Roll():
            return [(y[0] - number(e.shift, symbols)) % number(e.source.extent, symbols)]
        case Swizzle():
            return [y[0], y[0] ^ y[1] if e.kind == "xor" else (y[1] - y[0]) % number(e.y.extent, symbols)]
        case RowPartition():
            raise InternalError(f"{e} has no formula without its offsets")


def laid_out(x: Array, layout: MemoryLayout) -> Array:
    """``x`` in memory with the layout's strides and offset; a view into a larger buffer where it has gaps."""
    if layout.strides is None or x.ndim == 0:
        return x
    if layout.offset == 0 and math.prod(x.shape) and x.strides == tuple(s * x.itemsize for s in layout.strides):
        return x
    buffer = np.zeros(max(layout.size, 1), x.dtype)
    strides = tuple(s * x.itemsize for s in layout.strides)
    view = np.lib.stride_tricks.as_strided(buffer[layout.offset :], x.shape, strides)
    shared = tuple(slice(0, 1) if s == 0 else slice(None) for s in layout.strides)
    view[shared] = x[shared]  # an axis of stride 0 holds one value
    return view


@dataclass(frozen=True, slots=True)
class IndexLoad:
    """A loaded index value: symbol ``name`` is element ``coordinates`` of index tensor ``tensor``."""

    name: str
    tensor: Tensor
    coordinates: tuple[Expr, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProducerSlot:
    """Where a consumer finds an intermediate: the point of the producer's loops that made the value.

    ``places`` are that point (one expression for each loop that is not reduced, with the loop's extent); ``made`` the
    coordinates that the producer writes there and ``when`` its predicate, both in the consumer's loop variables.
    """

    places: tuple[tuple[Expr, int], ...]
    made: tuple[Expr, ...]
    when: Expr


@dataclass(frozen=True, slots=True)
class Site:
    """One access. ``coordinates`` match ``shape``: logical axes (with reduced ones) of a write, `t.shape` of a read."""

    access: Access
    number: int  # 0 the write, 1 + k the read of operand k
    predicate: Expr
    coordinates: tuple[Expr, ...]
    shape: tuple[int, ...]
    kept: tuple[int, ...]  # positions of the axes of t.shape among ``coordinates``
    address: Expr
    layout: MemoryLayout
    loads: tuple[IndexLoad, ...] = ()
    load_bounds: tuple[Expr, ...] = ()
    slot: ProducerSlot | None = None

    @property
    def unloaded(self) -> Expr:
        """The predicate without what loaded values decide."""
        names = {load.name for load in self.loads}
        parts = self.predicate.args if self.predicate.op == "and" else (self.predicate,)
        return and_(*(c for c in parts if not c.names & names))


@dataclass(frozen=True, slots=True)
class Case:
    """One operation: its loops (name, extent), write and reads; ``reduced`` are positions of reducing loops."""

    expr: TensorExpr
    loops: tuple[tuple[str, int], ...]
    reduced: frozenset[int]
    write: Site
    reads: tuple[Site, ...]
    settled: tuple[Expr, ...]  # kept coordinates of the write with all reducing loops at 0
    must_cover: bool
    widened: bool

    @property
    def points(self) -> int:
        """Points of the loops."""
        return math.prod(extent for _, extent in self.loops)

    @property
    def checks(self) -> int:
        """(access, point) pairs."""
        return self.points * (1 + len(self.reads))


def build_case(m: IdModel, e: TensorExpr, symbols: Mapping[str, int]) -> Case:
    """The accesses of ``e`` with all symbols bound."""
    loops = m.loops(e)
    out = e.output
    numbered = tuple((loop.name, number(loop.extent, symbols)) for loop in loops)
    reduced = frozenset(j for j, d in enumerate(out.loop) if d.kind == "reduction")
    write = _site(m.write(e), 0, symbols)
    reads = tuple(_read_site(m, e, k, symbols) for k in range(len(e.inputs)))
    if e.op in WRITES:
        reads = (*reads, replace(write, number=len(reads) + 1))
        write = _entries(m, e, write, symbols)
    still = {loops[j].name: 0 for j in reduced}
    settled = tuple(write.coordinates[p].substitute(still) for p in write.kept)
    widened = _is_widened(m, e, loops)
    cut = bool(m.lengths(out)) or any(s.name in ("resize", "stride") for s in out.log)
    # Inlined into a loop that turned out empty: nobody reads it there, so it need not be made.
    unread = any(extent == 0 for _, extent in numbered[: out.inline_position])
    must_cover = out in m.fusion.outputs or not (cut or unread)
    return Case(e, numbered, reduced, write, reads, settled, must_cover, widened)


def _entries(m: IdModel, e: TensorExpr, write: Site, symbols: Mapping[str, int]) -> Site:
    """The points of a scatter, or the elements of rows that are combined, as a tensor of their own, with one element
    each: the loops visit each once.

    The element that each point writes is checked like a read, against the definition.
    """
    a, solver = m.write(e), m.solver(e)
    root = e.output.root
    shape = tuple(number(d.extent, symbols) for d in root)
    at = tuple(_bound(solver.coordinate((d, e)), symbols) for d in root)
    strides = tuple(math.prod(shape[p + 1 :]) for p in range(len(shape)))
    address = as_expr(0)
    for c, s in zip(at, strides, strict=True):
        address = address + c * s
    return Site(
        a, 0, write.unloaded, at, shape, tuple(range(len(root))), address, MemoryLayout(strides, 0, math.prod(shape))
    )


def _is_widened(m: IdModel, e: TensorExpr, loops: Sequence[LoopVariable]) -> bool:
    """Some loop takes its extent from another axis (promotion), so that elements are computed again and again.

    A loop that is longer than its axis, or shorter, visits none twice.
    """
    lengths = m.lengths(e.output)
    return any(
        loop.domain is not d and not (j in lengths and lengths[j].source is d)
        for j, (loop, d) in enumerate(zip(loops, e.output.loop, strict=True))
    )


def _bound(e: Expr, symbols: Mapping[str, int]) -> Expr:
    try:
        return e.substitute(symbols)
    except ZeroDivisionError:
        # Divided by the extent of an axis without elements: no point visits it, and -1 is not an element if one does.
        return FALSE if e.is_condition else as_expr(-1)


def _site(a: Access, place: int, symbols: Mapping[str, int]) -> Site:
    t = a.tensor
    if a.is_write:
        coordinates, axes = a.logical, t.logical
    else:
        coordinates, axes = a.coordinates, t.axes
    kept = tuple(p for p, d in enumerate(axes) if d.kind != "reduction")
    loads = tuple(
        IndexLoad(name, index, tuple(_bound(c, symbols) for c in where), shape_of(index, symbols))
        for name, (index, where) in a.loads.items()
    )
    return Site(
        a, place, _bound(a.predicate, symbols), tuple(_bound(c, symbols) for c in coordinates),
        tuple(number(d.extent, symbols) for d in axes), kept, _bound(a.tensor_address, symbols), layout_of(t, symbols),
        loads, tuple(_bound(c, symbols) for c in a.load_bounds),
    )  # fmt: skip


def _read_site(m: IdModel, e: TensorExpr, k: int, symbols: Mapping[str, int]) -> Site:
    plain = _site(m.read(e, k), k + 1, symbols)
    t = e.inputs[k]
    if t.definition is None or t.definition.op in WRITES or (t in m.fusion.outputs and t.inline_position == 0):
        return plain
    return replace(plain, slot=_slot(m, plain.access, t.definition, symbols))


def _slot(m: IdModel, a: Access, definition: TensorExpr, symbols: Mapping[str, int]) -> ProducerSlot:
    t = a.tensor
    loops = m.loops(definition)
    write = m.write(definition)
    places: list[tuple[Expr, int]] = []
    at: dict[str, Expr] = {}
    for j, (loop, d) in enumerate(zip(loops, t.loop, strict=True)):
        if d.kind == "reduction":
            at[loop.name] = as_expr(0)
            continue
        found = a.loops[j].symbol if j < t.inline_position else a.slots[j]
        # An index map that cannot say the slot is wrong; -1 is not a slot, so that the check finds it.
        place = _bound(found, symbols) if found is not None else as_expr(-1)
        places.append((place, number(loop.extent, symbols)))
        at[loop.name] = place
    # Two steps: the producer's variables have the consumer's names.
    apart = {loop.name: symbol(f"p_{loop.name}") for loop in loops}
    back = {f"p_{name}": value for name, value in at.items()}

    def moved(x: Expr) -> Expr:
        return _bound(x, symbols).substitute(apart).substitute(back)

    reducing = {loops[j].name for j, d in enumerate(t.loop) if d.kind == "reduction"}
    when = [moved(c) for c in write.conditions if not reducing & c.names]
    return ProducerSlot(tuple(places), tuple(moved(c) for c in write.coordinates), and_(*when) if when else TRUE)
