"""A gather of a computed tensor, computed one way: in its place stand the operations that do it.

Ways are taken in the order of the operations, and a gather that reads what another one made finds it as its way leaves
it: computed again, which is read through; a masked reduction; or still a gather, whose source is stored and read there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from idgraph.arith import Expr, as_expr
from idgraph.errors import OperationError
from idgraph.ir import Fusion, LoadedCoordinate, Mapped, Tensor, TensorExpr
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as rows
from idgraph.ir.argument_resolution import attr
from idgraph.ir.dtypes import int_limits, is_float
from idgraph.ir.op_table import GATHERS, apply
from idgraph.rewrite.canonicalize_views import replace_operation
from idgraph.rewrite.rematerialize import Along, CannotRematerialize, Coordinate, Rematerializer

Strategy = Literal["recompute", "predicate", "one-hot", "global"]


def source_of(e: TensorExpr) -> Tensor:
    """The tensor from which a gather reads."""
    return e.inputs[source_operand(e)]


def source_operand(e: TensorExpr) -> int:
    """The operand that is read at loaded coordinates."""
    return next(k for k, row in enumerate(e.reads) if any(isinstance(r, LoadedCoordinate) for r in row))


def computed_gathers(exprs: Iterable[TensorExpr]) -> list[TensorExpr]:
    """The gathers among ``exprs`` from what is computed: those that have ways."""
    return [e for e in exprs if e.op in GATHERS and source_of(e).definition is not None]


@dataclass(slots=True)
class GatherReplacement:
    """The ways of the gathers of a fusion: given in the order of the operations (`take`), then carried out (`finish`).

    Until then a gather that is ``again`` computed is read through as it stands, which does not grow.
    """

    kept: set[Tensor] = field(default_factory=set[Tensor])
    again: list[Tensor] = field(default_factory=list[Tensor])

    def take(self, e: TensorExpr, way: Strategy) -> None:
        """Take the output of ``e`` this way; raises `Stuck` where a masked reduction of it is impossible."""
        match way:
            case "global":
                self.kept.add(e.output)
            case "recompute":
                self.again.append(e.output)
            case _:
                with unchanged(e.output.fusion):
                    replace_operation(e, lambda: selected(e, way))

    def finish(self) -> dict[str, str]:
        """Compute again what is to be, and tell what cannot be, which stays a gather, and why, by name.

        The last first: often what those before it made is needed no more then."""
        failed: dict[str, str] = {}
        for t in reversed(self.again):
            e = t.definition
            if e is None or t not in t.fusion:
                continue
            try:
                with unchanged(t.fusion):
                    replace_operation(e, lambda e=e: recomputed(e, self.kept)[0])
            except CannotRematerialize as error:
                failed[t.name] = str(error)
        self.again = []
        return failed


@contextmanager
def unchanged(fusion: Fusion) -> Generator[None]:
    """Take back what the block built where it fails, and raise `Stuck`."""
    mark = fusion.mark
    try:
        yield
    except (CannotRematerialize, OperationError) as error:
        fusion.undo(mark)
        raise CannotRematerialize(str(error)) from error


def recomputed(e: TensorExpr, kept: Collection[Tensor]) -> tuple[Tensor, Rematerializer]:
    """The elements of a gather, computed of what its source is computed of, and what was read for them.

    Gathers on the way that are ``kept`` are read from their sources."""
    reader, x = Rematerializer(e.output.fusion, tuple(d.extent for d in e.output.axes), kept), source_of(e)
    made = reader.gather(e, tuple(Along(p) for p in range(e.output.ndim)))
    if x in reader.reads:
        raise CannotRematerialize(
            f"{x.name} has fewer elements than are gathered: each is reduced once, and read where it lies"
        )
    if not reader.tests_index:
        raise CannotRematerialize(f"{x.name} does not depend on the index, which nothing would test then")
    return made, reader


def selected(e: TensorExpr, way: Strategy) -> Tensor:
    """The element that the index names among all of the axis, by one reduction."""
    t, x, k = e.output, source_of(e), source_operand(e)
    loaded = [p for p, r in enumerate(e.reads[k]) if isinstance(r, LoadedCoordinate)]
    if len(loaded) != 1:
        raise CannotRematerialize(f"{len(loaded)} axes are indexed together")
    n = x.axes[loaded[0]].extent
    # One index a row: the axis itself is reduced; else an axis of its own, behind the others.
    alone = e.op in ("gather", "take_along_dim") and t.axes[loaded[0]].extent == as_expr(1)
    last = loaded[0] if alone else t.ndim
    extents = [d.extent for d in t.axes]
    reader = Rematerializer(t.fusion, (*extents[:last], n, *extents[last + 1 :]))
    own: dict[object, Coordinate] = {d: Along(p) for p, d in enumerate(t.axes)}
    for expr in t.domain.exprs:
        own |= dict.fromkeys(expr.inputs, own[expr.outputs[0]])
    number = Along(last)
    at = [
        number if isinstance(r, LoadedCoordinate) else own[r.domain] if isinstance(r, Mapped) else as_expr(0)
        for r in e.reads[k]
    ]
    value = reader.read(x, at)
    (other,) = (j for j in range(len(e.inputs)) if j != k)
    index = reader.read(
        e.inputs[other], [own[r.domain] if isinstance(r, Mapped) else as_expr(0) for r in e.reads[other]]
    )
    hit = named(index, reader.count(last), n)
    if x.dtype == "bool":
        return rows.any(ops.logical_and(hit, value), last, alone)
    if way == "one-hot":
        zero = 0.0 if is_float(x.dtype) else 0
        return rows.sum(_as(ops.where(hit, value, zero), x), last, alone, dtype=x.dtype)
    lowest = -math.inf if is_float(x.dtype) else int_limits(x.dtype)[0]
    return rows.amax(_as(ops.where(hit, value, lowest), x), last, alone)


def _as(made: Tensor, x: Tensor) -> Tensor:
    return made if made.dtype == x.dtype else ops.cast(made, x.dtype)


def named(index: Tensor, numbers: Tensor, extent: Expr) -> Tensor:
    """``index == numbers``; a checked run refuses an index outside 0 .. extent - 1."""
    return apply(index.fusion, "eq", (index, numbers), {"within": attr(extent)})
