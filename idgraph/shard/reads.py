"""Reads of one operation for each element of its output, whatever the schedule: coordinates in each operand.

A position that is known only when an index is loaded, or that runs over a range (a scan, the updates of a scatter), is
a symbol of its own: any element in its range may be read.
"""

from __future__ import annotations

from dataclasses import dataclass

from idgraph.arith import TRUE, Expr, simplify, symbol
from idgraph.graphs.coordinate_rules import CoordinateSolver
from idgraph.index.index_solver import ProducerPath, operand_path
from idgraph.ir import SCATTERS, IterDomain, LoadedCoordinate, Mapped, Tensor, TensorExpr
from idgraph.ir.axis_read import AxisRead
from idgraph.ir.op_table import SCANS
from idgraph.ir.ragged_axes import LENGTH, START


@dataclass(frozen=True, slots=True)
class OperandRead:
    """Operand number ``operand`` is read at ``coordinates`` wherever ``condition`` holds."""

    operand: int
    tensor: Tensor
    coordinates: tuple[Expr, ...]
    condition: Expr


@dataclass(frozen=True, slots=True)
class OperationReads:
    """The reads of an operation: ``symbols`` are the coordinates of its output, ``terms`` what a reduction runs over,
    ``anywhere`` positions that only loaded values tell, or a range of them."""

    expr: TensorExpr
    symbols: tuple[Expr, ...]
    terms: tuple[Expr, ...]
    anywhere: tuple[Expr, ...]
    reads: tuple[OperandRead, ...]


def reads_of(e: TensorExpr) -> OperationReads:
    """The reads of an operation, without those that never happen.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.matmul(f.input("a", shape=(4, 8)), f.input("b", shape=(8, 6)))
    >>> [(r.tensor.name, r.coordinates) for r in reads_of(t.definition).reads]
    [('a', (i0, r0)), ('b', (r0, i1))]
    """
    t = e.output
    symbols = tuple(symbol(f"i{k}", 0, simplify(d.extent - 1)) for k, d in enumerate(t.axes))
    terms: list[Expr] = []
    start: list[tuple[IterDomain, Expr]] = []
    given = iter(symbols)
    for d in t.logical:
        if d.kind == "reduction":
            terms.append(symbol(f"r{len(terms)}", 0, simplify(d.extent - 1)))
        start.append((d, terms[-1] if d.kind == "reduction" else next(given)))
    own = CoordinateSolver(start, t.domain.exprs)
    anywhere: list[Expr] = []
    for d, value in list(own.value.items()):
        if START.name in value.names:  # elements of rows lie where the offsets say
            anywhere.append(symbol(f"any{len(anywhere)}", 0, simplify(d.extent - 1)))
            own.value[d] = anywhere[-1]
    for d in t.root:  # what a scatter's loops run over: each update may go to each element
        if d not in own.value:
            anywhere.append(symbol(f"any{len(anywhere)}", 0, simplify(d.extent - 1)))
            own.value[d] = anywhere[-1]
    found = [_operand_read(e, k, own, symbols, anywhere) for k in range(len(e.inputs))]
    return OperationReads(e, symbols, tuple(terms), tuple(anywhere), tuple(r for r in found if r is not None))


def _operand_read(
    e: TensorExpr, k: int, own: CoordinateSolver, symbols: tuple[Expr, ...], anywhere: list[Expr]
) -> OperandRead | None:
    axes = e.inputs[k].axes

    def coordinate(n: int, read: AxisRead) -> Expr | None:
        match read:
            case LoadedCoordinate() if e.op in SCATTERS:  # the tensor that is written into: the same element
                return symbols[n]
            case LoadedCoordinate():
                anywhere.append(symbol(f"any{len(anywhere)}", 0, simplify(axes[n].extent - 1)))
            case Mapped(domain) if e.op in SCANS and e.attrs.get("dim") == n:  # all elements up to this one
                anywhere.append(symbol(f"any{len(anywhere)}", 0, own.value[domain]))
            case _:
                return None
        return anywhere[-1]

    way = operand_path(e, k, ProducerPath((), TRUE), own, e.output.logical, coordinate)
    if way is None:
        return None
    loaded = {START.name, LENGTH.name} & set(way.condition.names)  # the end of a row: up to it or behind
    return OperandRead(k, e.inputs[k], way.coordinates, TRUE if loaded else way.condition)
