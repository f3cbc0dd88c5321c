"""Coordinates inside one operation: from its loop variables to every axis of its tensors, never leaving it.

The output's own axes are solved one by one, since a padded loop takes an axis out of range where its equals are not;
which of those points count is what the predicate says. Operands follow by groups of the index graph: equal wherever
the access happens.

Index tensors whose values are known numbers: counted, constant, moved, joined, added, multiplied, as expressions.

Each operation reads its operands at coordinates of its output's axes, whatever the schedule. A reduction adds the
axes it runs over. (XLA's indexing analysis calls this the output-to-input map.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from idgraph.arith import (
    FALSE,
    TRUE,
    CounterExample,
    Expr,
    Proof,
    and_,
    as_expr,
    interval,
    is_true,
    maximum,
    minimum,
    not_,
    or_,
    prove,
    prove_equal,
    simplify,
    symbol,
    where,
    xor,
)
from idgraph.arith import IndexMap as Map
from idgraph.arith.solve import coefficients
from idgraph.errors import IndexingError, user_line
from idgraph.graphs import IndexGraph, key_text
from idgraph.graphs.coordinate_rules import CoordinateSolver, backward, forward
from idgraph.graphs.index_graph import Key
from idgraph.ir import (
    SCATTERS,
    DomainExpr,
    Fixed,
    IterDomain,
    LoadedCoordinate,
    Mapped,
    RowPartition,
    Tensor,
    TensorExpr,
)
from idgraph.ir.axis_read import AxisRead
from idgraph.ir.dtypes import DType, Scalar, int_limits, is_integer
from idgraph.ir.op_table import ROWS, SCANS, VIEWS


class IndexSolver:
    """Coordinates under one operation: of its output's axes, and of its operands' by group."""

    def __init__(
        self,
        graph: IndexGraph,
        expr: TensorExpr,
        start: Iterable[tuple[IterDomain, Expr]],
        given: Iterable[tuple[Key, Expr]],
    ) -> None:
        self.graph = graph
        self.expr = expr
        self.own = CoordinateSolver(start, tuple(x for x, _, _, own in graph.local[expr] if own))
        self._group: dict[int, Expr] = {}
        for d, v in self.own.value.items():
            self._group.setdefault(self._number((d, expr)), v)
        for key, v in given:
            self._group.setdefault(self._number(key), v)
        self._follow()

    def _number(self, key: Key) -> int:
        return self.graph.graph.number(key)

    def _follow(self) -> None:
        """Operands' axes, through their own domain expressions."""
        nodes = [
            (x, tuple(map(self._number, ins)), tuple(map(self._number, outs)))
            for x, ins, outs, own in self.graph.local[self.expr]
            if not own and not isinstance(x, RowPartition)  # the rows that an operand loads are not this operation's
        ]
        known = self._group
        while nodes:
            rest: list[tuple[DomainExpr, tuple[int, ...], tuple[int, ...]]] = []
            for x, ins, outs in nodes:
                if all(g in known for g in ins):
                    for g, v in zip(outs, forward(x, tuple(known[g] for g in ins)), strict=True):
                        known.setdefault(g, simplify(v))
                elif all(g in known for g in outs):
                    for g, v in zip(ins, backward(x, tuple(known[g] for g in outs)), strict=True):
                        known.setdefault(g, simplify(v))
                else:
                    rest.append((x, ins, outs))
            if len(rest) == len(nodes):
                return
            nodes = rest

    def coordinate(self, key: Key) -> Expr:
        """The coordinate of an axis under this operation; a broadcast axis has 0."""
        if key[0].is_broadcast:
            return as_expr(0)
        found = self.own.value.get(key[0]) if key[0].tensor is self.expr.output else None
        if found is None:
            found = self._group.get(self._number(key))
        if found is None:
            raise IndexingError(
                f"no loop of {self.expr.output.name} reaches {key_text(key)}",
                where=self.expr.source_line,
                hint="its loop axes must lead, through splits, merges and resizes, to every logical axis",
            )
        return found

    def unclamped_coordinate(self, key: Key) -> Expr:
        """The coordinate as the path gives it: an axis cut down to one element may be read beside that element."""
        if not key[0].is_broadcast:
            return self.coordinate(key)
        own = self.own.value.get(key[0]) if key[0].tensor is self.expr.output else None
        return self._group.get(self._number(key), as_expr(0)) if own is None else own

    def known(self, key: Key) -> bool:
        """True when the axis has a coordinate under this operation."""
        return key[0].is_broadcast or self._number(key) in self._group


_DEPTH = 64
_MOST = 512  # operations of an expression that is still written out
_MOVED = VIEWS | {"cast"}
_COMPUTED: Final[dict[str, Callable[[Expr, Expr], Expr]]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "maximum": maximum,
    "minimum": minimum, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "eq": lambda a, b: a.eq(b), "ne": lambda a, b: a.ne(b), "logical_and": and_,
    "logical_or": or_, "bitwise_xor": xor,
}  # fmt: skip


def fold_index_tensor(t: Tensor, at: Sequence[Expr], facts: Sequence[Expr] = (), depth: int = _DEPTH) -> Expr | None:
    """The value of the element of ``t`` at these coordinates, where no data decide it; None otherwise.

    None too where the value might not fit the tensor's type (it would wrap), or takes too many operations to write.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.reshape(f.iota(12) * 2 + 1, 3, 4)
    >>> str(fold_index_tensor(t, tuple(ig.IdModel(f).write(t.definition).coordinates)))
    'i0*8 + i1*2 + 1'
    """
    e = t.definition
    if e is None or not depth or not (is_integer(t.dtype) or t.dtype == "bool"):
        return None
    made = _created_value(e, at, facts, depth)
    if made is None or (t.dtype == "bool") != made.is_condition:
        return None
    made = simplify(made, facts=facts)
    return made if made.cost <= _MOST and (made.is_condition or _value_fits_dtype(made, t.dtype, facts)) else None


def steps_of_index(t: Tensor) -> dict[IterDomain, Expr] | None:
    """How much the value of an index tensor grows along each of its axes, where no data decide it and it is their sum.

    >>> import idgraph as ig
    >>> f = ig.Fusion("windows")
    >>> t = ig.unsqueeze(f.iota(9, 0, 4), 1) + f.iota(6)
    >>> [str(n) for n in steps_of_index(t).values()]
    ['4', '1']
    """
    axes = [d for d in t.axes if not d.is_broadcast]
    at = {d: symbol(f"i{n}", 0, d.extent - 1) for n, d in enumerate(axes)}
    value = fold_index_tensor(t, [at.get(d, as_expr(0)) for d in t.axes])
    found = None if value is None else coefficients(value, tuple(at.values()))
    return None if found is None else dict(zip(axes, found, strict=False))


def _value_fits_dtype(value: Expr, dtype: DType, facts: Sequence[Expr]) -> bool:
    """Whether a value within its range, or where the facts hold, is a number of the type."""
    if not is_integer(dtype):
        return False
    least, top = int_limits(dtype)
    lo, hi = interval(value)
    inside = lo is not None and hi is not None and lo >= least and hi <= top
    return inside or is_true(and_(value >= least, value <= top), facts)


def _created_value(e: TensorExpr, at: Sequence[Expr], facts: Sequence[Expr], depth: int) -> Expr | None:
    match e.op:
        case "iota":
            start, step = e.attrs["start"], e.attrs["step"]
            return at[0] * step + start if isinstance(start, int) and isinstance(step, int) else None
        case "full":
            value = e.attrs["value"]
            return as_expr(value) if isinstance(value, int) and not isinstance(value, bool) else None
        case op if op in _MOVED:
            return _operand(e, 0, at, facts, depth)
        case "cat" | "pad":
            return _cat_element_value(e, at, facts, depth)
        case "neg":
            value = _operand(e, 0, at, facts, depth)
            return None if value is None or value.is_condition else -value
        case "where":
            return _where_value(e, at, facts, depth)
        case "floor_divide" | "remainder" if isinstance(d := e.args[1], int) and d > 0:
            value = _operand(e, 0, at, facts, depth)
            if value is None or value.is_condition:
                return None
            return value // d if e.op == "floor_divide" else value % d
        case "logical_not":
            value = _operand(e, 0, at, facts, depth)
            return not_(value) if value is not None and value.is_condition else None
        case op if op in _COMPUTED and len(e.args) == 2:
            a, b = (_argument(e, n, at, facts, depth) for n in range(2))
            wanted = op.startswith("logical")
            if a is None or b is None or a.is_condition != wanted or b.is_condition != wanted:
                return None
            return _COMPUTED[op](a, b)
        case _:
            return None


def _cat_element_value(e: TensorExpr, at: Sequence[Expr], facts: Sequence[Expr], depth: int) -> Expr | None:
    """The value of the operand that has an element there; beside the operand of a pad its fill."""
    own = CoordinateSolver(zip(e.output.logical, at, strict=True), e.output.domain.exprs)
    found: Expr | None = None
    if e.op == "pad":
        fill = e.attrs["value"]
        if not isinstance(fill, int) or isinstance(fill, bool):
            return None
        found = as_expr(fill)
    for k in reversed(range(len(e.inputs))):
        mapped = [r.domain for r in e.reads[k] if isinstance(r, Mapped)]
        inside = and_(*(b.condition for b in own.bounds_on_path(mapped, frozenset(e.output.logical))))
        value = _operand(e, k, at, (*facts, inside), depth)
        if value is None or value.is_condition:
            return None
        found = value if found is None else where(inside, value, found)
    return found


def _where_value(e: TensorExpr, at: Sequence[Expr], facts: Sequence[Expr], depth: int) -> Expr | None:
    condition, a, b = (_argument(e, n, at, facts, depth) for n in range(3))
    if condition is None or a is None or b is None or not condition.is_condition or a.is_condition or b.is_condition:
        return None
    return where(condition, a, b)


def _argument(e: TensorExpr, n: int, at: Sequence[Expr], facts: Sequence[Expr], depth: int) -> Expr | None:
    """Argument number ``n``: a number, or the value of the operand that it is."""
    value: Tensor | Scalar | Expr = e.args[n]
    if isinstance(value, Tensor):
        return _operand(e, sum(isinstance(a, Tensor) for a in e.args[:n]), at, facts, depth)
    if isinstance(value, Expr):
        return value
    return as_expr(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _operand(e: TensorExpr, k: int, at: Sequence[Expr], facts: Sequence[Expr], depth: int) -> Expr | None:
    """The value of operand ``k`` where the element of the output at these coordinates reads it."""
    t, operand = e.output, e.inputs[k]
    if any(d.kind == "reduction" for d in t.logical):
        return None
    own = CoordinateSolver(zip(t.logical, at, strict=True), t.domain.exprs)
    made: list[Expr] = []
    for axis, read in zip(operand.axes, e.reads[k], strict=True):
        if isinstance(read, Fixed):
            made.append(read.index)
        elif isinstance(read, Mapped) and read.domain in own.value:
            made.append(as_expr(0) if axis.is_broadcast else own.value[read.domain])
        else:
            return None
    return fold_index_tensor(operand, made, facts, depth - 1)


_MAX_WAYS = 64


@dataclass(frozen=True, slots=True)
class ProducerPath:
    """A way to read a tensor: coordinates of its axes, the condition, and the operations on it, last reader first."""

    coordinates: tuple[Expr, ...]
    condition: Expr
    path: tuple[TensorExpr, ...] = field(default=(), compare=False)


def operand_path(
    e: TensorExpr,
    k: int,
    way: ProducerPath,
    own: CoordinateSolver,
    given: Iterable[IterDomain],
    coordinate: Callable[[int, AxisRead], Expr | None] = lambda _axis, _read: None,
) -> ProducerPath | None:
    """The way on to operand ``k`` of ``e``, of which ``own`` knows the ``given`` axes; None where it is never read.

    ``coordinate`` gives the coordinate of an axis by its number and how it is read, or None for what ``own`` says.
    """  # fmt: skip
    mapped = [r.domain for r in e.reads[k] if isinstance(r, Mapped)]
    bounds = [b.condition for b in own.bounds_on_path(mapped, frozenset(given))]
    facts = () if way.condition is TRUE else (way.condition,)
    condition = simplify(and_(way.condition, *(simplify(b, facts=facts) for b in bounds)))
    if condition is FALSE or (condition is not TRUE and isinstance(prove(not_(condition)), Proof)):
        return None
    if condition is not TRUE and isinstance(prove(condition), Proof):
        condition = TRUE
    facts = () if condition is TRUE else (condition,)
    made: list[Expr] = []
    for n, (axis, read) in enumerate(zip(e.inputs[k].axes, e.reads[k], strict=True)):
        if axis.is_broadcast:
            made.append(as_expr(0))
            continue
        x = coordinate(n, read)
        if x is None:
            assert not isinstance(read, LoadedCoordinate), "the caller knows what is loaded"
            x = read.index if isinstance(read, Fixed) else own.value[read.domain]
        made.append(simplify(x, facts=facts))
    return ProducerPath(tuple(made), condition, (*way.path, e))


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


def _producer_paths(output: Tensor, source: Tensor, start: tuple[Expr, ...], reduced: list[Expr]) -> list[ProducerPath]:
    """All ways from the output to the source, none of them empty; equal ones once."""
    needed = _tensors_between(output, source)
    at: dict[Tensor, list[ProducerPath]] = {output: [ProducerPath(start, TRUE, ())]}
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
                if new is not None and new not in mine:
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


def _operand_path(e: TensorExpr, k: int, way: ProducerPath, reduced: list[Expr]) -> ProducerPath | None:
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
    return operand_path(e, k, way, CoordinateSolver(start, t.domain.exprs), t.logical)


def _agree(before: Sequence[ProducerPath], way: ProducerPath, output: Tensor, source: Tensor) -> None:
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


def _path_text(way: ProducerPath, source: Tensor) -> str:
    where_ = ", ".join(map(str, way.coordinates))
    when = "" if way.condition is TRUE else f" if {way.condition}"
    e = way.path[-1]
    line = f" ({e.source_line})" if e.source_line else ""
    return f"{e.op}{line} reads {source.name}[{where_}]{when}"
