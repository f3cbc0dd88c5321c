"""Accesses at one concrete size: what an index map says, in loop variables only, ready to be checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from idgraph.arith import FALSE, TRUE, Expr, and_, as_expr, symbol
from idgraph.index import Access, IdModel, LoopVariable
from idgraph.ir import Tensor, TensorExpr
from idgraph.ir.op_table import WRITES
from idgraph.validate.memory_layout import MemoryLayout, layout_of
from idgraph.validate.oracle import shape_of
from idgraph.validate.oracle.views import number


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
        a,
        0,
        write.unloaded,
        at,
        shape,
        tuple(range(len(root))),
        address,
        MemoryLayout(strides, 0, math.prod(shape)),
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
    slot = _slot(m, plain.access, t.definition, symbols)
    return Site(
        plain.access, plain.number, plain.predicate, plain.coordinates, plain.shape, plain.kept, plain.address,
        plain.layout, plain.loads, plain.load_bounds, slot,
    )  # fmt: skip


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
