"""The part of a tensor that a device needs for its part of an operation: steps along each axis.

Where an operation of the needed parts of its operands is the needed part of its result, by the maps, the device runs
that (`DevicePart.direct`). Else it runs the operation on operands that are padded to their whole extents, and cuts its
part out: the kernel then computes no more than that, as a slice of a pad is an index map.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from idgraph.arith import TRUE, Expr, IndexSet, Proof, as_expr, prove, prove_equal, symbol
from idgraph.errors import IdGraphError
from idgraph.ir import SCATTERS
from idgraph.ir.mesh import MeshError
from idgraph.ir.op_table import ROWS, SCANS
from idgraph.shard.locality import LocalityDecision
from idgraph.shard.ownership import Ownership
from idgraph.shard.reads import OperandRead, OperationReads
from idgraph.shard.rows import rows_axes


@dataclass(frozen=True, slots=True)
class Span:
    """Coordinates ``start``, ``start + step``, ...: ``count`` of them."""

    start: int
    count: int
    step: int = 1

    @property
    def stop(self) -> int:
        """One behind the last coordinate."""
        return self.start + (self.count - 1) * self.step + 1 if self.count else self.start

    def at(self, position: Expr) -> Expr:
        """The coordinate at a position."""
        return position * self.step + self.start

    def numbers(self) -> range:
        """All of them."""
        return range(self.start, self.start + self.count * self.step, self.step)

    def __str__(self) -> str:
        return f"{self.start}:{self.stop}" + (f":{self.step}" if self.step != 1 else "")


Region = tuple[Span, ...]


def local_region(owner: Ownership, rank: Mapping[str, int]) -> Region:
    """The part of a tensor that the device at these mesh coordinates holds."""
    sizes = [int(n) for n in owner.sizes(rank)]
    first, second = (owner.element(rank, [k] * len(sizes)) for k in (0, 1))
    spans = zip(first, second, sizes, strict=True)
    return tuple(Span(int(a), n, int(b) - int(a)) if n else Span(0, 0) for a, b, n in spans)


@dataclass(frozen=True, slots=True)
class DevicePart:
    """One device's part of an operation: its part of the result, of the terms of a reduction, and what it needs of
    each operand (by operand number)."""

    output: Region
    terms: Region
    needs: Mapping[int, Region]
    direct: bool


def part_of(decision: LocalityDecision, rank: int) -> DevicePart:
    """The part of an operation that device ``rank`` runs."""
    at = decision.mesh.coordinates(rank)
    found = decision.found
    output = local_region(decision.output, at)
    terms = tuple(_terms_span(decision, r, at) for r in found.terms)
    spans = {s.name: x for s, x in zip((*found.symbols, *found.terms), (*output, *terms), strict=True)}
    simple = found.expr.op not in SCANS and found.expr.op not in SCATTERS and not found.anywhere and found.reads
    needs = {r.operand: tuple(_needed_span(r, k, spans, found) for k in range(len(r.coordinates))) for r in found.reads}
    if found.expr.op in ROWS:  # of all rows, whichever of them are in the result
        for r in found.reads:
            axes = rows_axes(r.tensor) if r.operand == 0 else {0}
            whole = {k: Span(0, int(r.tensor.axes[k].extent)) for k in axes}
            needs[r.operand] = tuple(whole.get(k, span) for k, span in enumerate(needs[r.operand]))
    for k, t in enumerate(found.expr.inputs):
        needs.setdefault(k, local_region(decision.owners[t.name], at))  # read nowhere
    return DevicePart(output, terms, needs, bool(simple))


def boxed(part: DevicePart, decision: LocalityDecision) -> DevicePart:
    """The same with whole ranges of what is needed, for an operation that is run on padded operands."""
    found = decision.found
    for span, term in zip(part.terms, found.terms, strict=True):
        if span.step != 1 or span.count != int(as_expr(term.symbol_bounds[1] or 0)) + 1:
            raise MeshError(f"{found.expr!r}: no device can compute its terms by itself", where=found.expr.source_line)
    needs = {k: tuple(Span(s.start, s.stop - s.start) for s in region) for k, region in part.needs.items()}
    return DevicePart(part.output, part.terms, needs, False)


def _terms_span(decision: LocalityDecision, term: Expr, at: Mapping[str, int]) -> Span:
    """The terms of a reduction along one axis that a device adds up: those that `LocalityDecision.term_ranks` gives
    to it."""
    import numpy as np  # noqa: PLC0415 - half of the time that importing the library would take

    top = term.symbol_bounds[1]
    count = int(as_expr(0 if top is None else top)) + 1
    values = np.arange(count, dtype=np.int64)
    mine = np.ones(count, np.bool_)
    for over, rank in decision.term_ranks.items():
        if rank.is_const or term.name in rank.names:
            mine &= np.asarray(rank.evaluate_array({term.name: values})) == at[over]
    numbers = np.flatnonzero(mine)
    if not len(numbers):
        return Span(0, 0)
    first, step = int(numbers[0]), int(numbers[1] - numbers[0]) if len(numbers) > 1 else 1
    found = Span(first, len(numbers), step)
    assert list(found.numbers()) == numbers.tolist()  # as of each local part
    return found


def _needed_span(read: OperandRead, axis: int, spans: Mapping[str, Span], found: OperationReads) -> Span:
    """The coordinates along one axis of an operand that a device reads."""
    x = read.coordinates[axis]
    extent = int(read.tensor.axes[axis].extent)
    if x.op == "sym" and x.name in spans and read.condition is TRUE:
        return spans[x.name]
    if x.is_const and read.condition is TRUE:
        return Span(int(x), 1)
    if any(n not in spans for n in (*x.names, *read.condition.names)):
        return Span(0, extent)  # a loaded coordinate: any
    names = dict.fromkeys((*x.names, *read.condition.names))
    local = {n: symbol(n, 0, spans[n].count - 1) for n in names}
    if any(spans[n].count == 0 for n in names):
        return Span(0, 0)
    moved = {n: spans[n].at(local[n]) for n in names}
    try:
        points = IndexSet(tuple(local.values()), read.condition.substitute(moved)).points()
    except IdGraphError:  # too many to list
        return Span(0, extent)
    env = {n: points[:, k] for k, n in enumerate(local)}
    values = x.substitute(moved).evaluate_array(env)
    if not len(points):
        return Span(0, 0)
    low, high = int(values.min()), int(values.max())
    return Span(low, high - low + 1)


def agrees(whole: OperationReads, part: OperationReads, region: DevicePart) -> bool:
    """Whether the operation ``part``, of the needed parts of the operands, reads what the whole one reads for the
    elements of that part."""
    if len(part.symbols) != len(whole.symbols) or len(part.terms) != len(whole.terms):
        return False
    pairs = [*zip(whole.symbols, part.symbols, region.output), *zip(whole.terms, part.terms, region.terms)]
    moved = {a.name: span.at(b) for a, b, span in pairs}
    theirs = {r.operand: r for r in part.reads}
    for read in whole.reads:
        other = theirs.get(read.operand)
        if other is None:
            return False
        condition = read.condition.substitute(moved)
        facts = () if other.condition is TRUE else (other.condition,)
        if not isinstance(prove(condition, facts=facts), Proof):
            return False
        if other.condition is not TRUE and not isinstance(prove(other.condition, facts=(condition,)), Proof):
            return False
        for x, y, span in zip(read.coordinates, other.coordinates, region.needs[read.operand], strict=True):
            if not isinstance(prove_equal(x.substitute(moved), span.at(y), facts=facts), Proof):
                return False
    return True
