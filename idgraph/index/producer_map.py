"""From an element of one tensor to the element of another that it is computed from, through all operations between.

Each operation reads its operands at coordinates of its output's axes, whatever the schedule. A reduction adds the
axes it runs over. (XLA's indexing analysis calls this the output-to-input map.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from idgraph.arith import (
    FALSE,
    TRUE,
    CounterExample,
    Expr,
    Proof,
    and_,
    as_expr,
    not_,
    or_,
    prove,
    prove_equal,
    simplify,
    symbol,
    where,
)
from idgraph.arith import IndexMap as Map
from idgraph.errors import IndexingError, user_line
from idgraph.index.index_solver import CoordinateSolver
from idgraph.ir import SCATTERS, Fixed, IterDomain, LoadedCoordinate, Mapped, Tensor, TensorExpr
from idgraph.ir.op_table import ROWS, SCANS

_MAX_WAYS = 64


@dataclass(frozen=True, slots=True)
class _ProducerPath:
    """A way to read a tensor: coordinates of its axes, the condition, and the operations on it, last reader first."""

    coordinates: tuple[Expr, ...]
    condition: Expr
    path: tuple[TensorExpr, ...]


def pull_back(output: Tensor, source: Tensor) -> Map:
    """See `IdModel.output_to_input`."""
    start = tuple(symbol(f"i{k}", 0, simplify(as_expr(d.extent) - 1)) for k, d in enumerate(output.axes))
    reduced: list[Expr] = []
    ways = _producer_paths(output, source, start, reduced)
    shape = tuple(as_expr(d.extent) for d in source.axes)
    if not ways:
        raise IndexingError(
            f"no element of {output.name} is computed from {source.name}",
            where=output.source_line or user_line(),
            hint=f"{output.name} must depend on it, at some element",
        )
    condition, coordinates = ways[0].condition, ways[0].coordinates
    for n, way in enumerate(ways[1:], 1):
        _agree(ways[:n], way, output, source)
        new = tuple(where(way.condition, a, b) for a, b in zip(way.coordinates, coordinates, strict=True))
        condition, coordinates = simplify(or_(condition, way.condition)), new
    facts = () if condition is TRUE else (condition,)
    results = tuple(simplify(x, facts=facts) for x in coordinates)
    if condition is not TRUE and isinstance(prove(condition), Proof):
        condition = TRUE
    return Map((*start, *reduced), results, shape, condition)


def _producer_paths(
    output: Tensor, source: Tensor, start: tuple[Expr, ...], reduced: list[Expr]
) -> list[_ProducerPath]:
    """All ways from the output to the source, none of them empty; equal ones once."""
    needed = _tensors_between(output, source)
    at: dict[Tensor, list[_ProducerPath]] = {output: [_ProducerPath(start, TRUE, ())]}
    for t in reversed([t for t in output.fusion.tensors if t in needed]):
        ways = at.get(t, [])
        e = t.definition
        if t is source or e is None:
            continue
        for way in ways:
            for k, operand in enumerate(e.inputs):
                if operand not in needed:
                    continue
                new = _operand_path(e, k, way, reduced)
                mine = at.setdefault(operand, [])
                if new is not None and not any(_same_path(new, old) for old in mine):
                    mine.append(new)
                if len(mine) > _MAX_WAYS:
                    raise IndexingError(
                        f"{output.name} reads {operand.name} in more than {_MAX_WAYS} ways", where=operand.source_line,
                        hint="ask for a tensor between them",
                    )  # fmt: skip
    return at.get(source, [])


def _tensors_between(output: Tensor, source: Tensor) -> set[Tensor]:
    """Tensors between both, with both."""
    found = {source}
    for t in output.fusion.tensors:
        if t.definition is not None and any(x in found for x in t.definition.inputs):
            found.add(t)
    return found


def _same_path(a: _ProducerPath, b: _ProducerPath) -> bool:
    return a.coordinates == b.coordinates and a.condition == b.condition


def _operand_path(e: TensorExpr, k: int, way: _ProducerPath, reduced: list[Expr]) -> _ProducerPath | None:
    """The way to operand k for the elements of a way to the output; None where it is never read."""
    t, operand = e.output, e.inputs[k]
    loaded = next((r for r in e.reads[k] if isinstance(r, LoadedCoordinate)), None)
    if e.op in SCATTERS or e.op in ROWS or loaded is not None:
        by = e.inputs[loaded.operand if loaded is not None else 1].name
        by = "its index tensors" if e.op in SCATTERS and loaded is None else by
        raise IndexingError(
            f"the element of {operand.name} that {t.name} needs is known only when {by} is loaded",
            where=e.source_line,
            hint="ask for the map of each side of it, or of the index tensor",
        )
    if e.op in SCANS:
        raise IndexingError(
            f"an element of {t.name} is computed from all elements of {operand.name} before it", where=e.source_line,
            hint=f"{e.op} has no output-to-input map; ask for the map up to {t.name}, and from {operand.name}",
        )  # fmt: skip
    given = iter(way.coordinates)
    start: list[tuple[IterDomain, Expr]] = []
    for d in t.logical:
        if d.kind == "reduction":
            reduced.append(symbol(f"r{len(reduced)}", 0, simplify(as_expr(d.extent) - 1)))
        start.append((d, reduced[-1] if d.kind == "reduction" else next(given)))
    own = CoordinateSolver(start, t.domain.exprs)
    mapped = [r.domain for r in e.reads[k] if isinstance(r, Mapped)]
    bounds = [b.condition for b in own.bounds_on_path(mapped, frozenset(t.logical))]
    facts = () if way.condition is TRUE else (way.condition,)
    condition = simplify(and_(way.condition, *(simplify(b, facts=facts) for b in bounds)))
    if condition is FALSE or isinstance(prove(not_(condition)), Proof):
        return None
    facts = () if condition is TRUE else (condition,)
    made: list[Expr] = []
    for axis, read in zip(operand.axes, e.reads[k], strict=True):
        x = read.index if isinstance(read, Fixed) else own.value[read.domain] if isinstance(read, Mapped) else None
        assert x is not None
        made.append(as_expr(0) if axis.is_broadcast else simplify(x, facts=facts))
    return _ProducerPath(tuple(made), condition, (*way.path, e))


def _agree(before: Sequence[_ProducerPath], way: _ProducerPath, output: Tensor, source: Tensor) -> None:
    """Raise unless the way reads what those before read, wherever both do."""
    for other in before:
        both = simplify(and_(other.condition, way.condition))
        if both is FALSE:
            continue
        for a, b in zip(other.coordinates, way.coordinates, strict=True):
            verdict = prove_equal(a, b, facts=() if both is TRUE else (both,))
            if isinstance(verdict, Proof):
                continue
            point = f" at {dict(verdict.values)}" if isinstance(verdict, CounterExample) else ""
            raise IndexingError(
                f"an element of {output.name} is computed from several elements of {source.name}{point}",
                where=output.source_line or user_line(),
                because=[_path_text(w, source) for w in (other, way)],
                hint="ask for the map of one of them: of a tensor that only one way leads through",
            )


def _path_text(way: _ProducerPath, source: Tensor) -> str:
    where_ = ", ".join(map(str, way.coordinates))
    when = "" if way.condition is TRUE else f" if {way.condition}"
    e = way.path[-1]
    line = f" ({e.source_line})" if e.source_line else ""
    return f"{e.op}{line} reads {source.name}[{where_}]{when}"
