"""A sum over a one-hot mask, folded back into a gather: ``sum(where(index == iota, x, 0), dim)`` is ``x[index]``.

The mask may be written either way round, negated, one of several conditions, through views and broadcasts, or as a
factor of integers, and what it selects may be rounded to another type before it is summed: the coordinates of the
comparison decide, and not how it is spelled. Where ``x`` is the same along ``dim``, as in the
gradient of a loss of rows, the index only says whether there is an element. Only sums that are the same for every value
are folded. ``sum(one_hot * x)`` is not, in floating point: a NaN or an infinity that the index does not name makes that
sum NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from idgraph.arith import Expr, as_expr, simplify, symbol
from idgraph.errors import ScheduleError, arguments
from idgraph.graphs.coordinate_rules import CoordinateSolver
from idgraph.ir import DType, Fixed, Fusion, LoadedCoordinate, Mapped, Tensor, TensorExpr, check_fusion, item_size
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as rows
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr
from idgraph.ir.clone import rewriting
from idgraph.ir.dtypes import int_limits, is_float
from idgraph.ir.op_builders import same_extent
from idgraph.ir.op_table import apply, moving
from idgraph.ir.schedule_log import Decision, Option, Saving
from idgraph.rewrite.canonicalize_views import replace_operation
from idgraph.rewrite.gather_strategy import place_of

WHOLE_VIEWS = moving("axes") | {"reshape"}
Row = tuple[Expr, ...]
# Of several conditions each must hold; where the mask says what is left out (True), one is enough.
_JOINED = {False: ("bitwise_and", "logical_and"), True: ("bitwise_or", "logical_or")}
_ONE = "of each row one element is not 0, at the index"


@arguments(ScheduleError, first=True, keep=rewriting)
def fold_one_hots(fusion: Fusion) -> tuple[Decision, ...]:
    """Rewrite each sum over a one-hot mask as a gather, and say so; an index out of range gives 0, as the sum does.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(64, 1000)), f.input("i", shape=(64, 1), dtype="int64")
    >>> hit = ig.eq(i, ig.reshape(f.iota(1000, dtype="int64"), 1, 1000))
    >>> t = f.output(ig.sum(ig.where(hit, x, 0.0), 1))
    >>> [(d.chosen, str(d.saved)) for d in ig.schedule.fold_one_hots(f)]
    [('gather', '0 bytes not stored, 255.74 kB not moved (0.06 us at 4.26 TB/s)')]
    >>> "sum" in [e.op for e in f.exprs], "gather" in [e.op for e in f.exprs]
    (False, True)
    """
    return fold_one_hot_sums(check_fusion(fusion, "fold_one_hots", ScheduleError))


def fold_one_hot_sums(fusion: Fusion) -> tuple[Decision, ...]:
    """`fold_one_hots` for a scheduler, whose own call guards the fusion."""
    made: list[Decision] = []
    for e in [e for e in fusion.exprs if e.op == "sum" and e.is_reduction]:
        found = _mask(e)
        if found is None:
            continue
        name, source = e.output.name, found.x.name
        saved = _saved(found)
        line, alike = place_of(e), _is_uniform(found, found.x)
        replace_operation(e, partial(_gathered, e, found))
        chosen, because = ("where", f"all elements of a row of {source} are one") if alike else ("gather", _ONE)
        made.append(
            Decision(
                "one-hot sum", name, source, "one", line, chosen, because,
                (Option("sum", _sum_elements(found), "looks at all elements of the axis"),), saved=saved,
                proof=(
                    "where index == c for a c of the axis, the sum adds x at c and zeros",
                    "where it is out of range, every term is 0: the gather is then 0 by a selection",
                ),
            )
        )  # fmt: skip
    return tuple(made)


@dataclass(frozen=True, slots=True)
class _OneHot:
    """The selection that a sum over a mask makes: ``x``, which broadcasts to the shape of the summed tensor,
    at ``index`` - ``start`` of axis ``dim``.

    ``index`` is compared by the mask, ``way`` leads from there to that shape. ``conditions`` are what else the mask
    asks for. ``casts`` are the types that a selected element is rounded to, one after the other.
    """

    x: Tensor
    index: Tensor
    way: tuple[TensorExpr, ...]
    start: int
    shape: tuple[Expr, ...]
    dim: int
    conditions: tuple[_Condition, ...] = ()
    casts: tuple[DType, ...] = ()


@dataclass(frozen=True, slots=True)
class _Condition:
    """An operand of the mask, ``way`` from there to the mask; with ``is_not`` it says what is left out."""

    operand: Tensor
    way: tuple[TensorExpr, ...]
    is_not: bool


@dataclass(frozen=True, slots=True)
class _Hit:
    """The comparison of a mask with its ``index``: see `_OneHot`."""

    index: Tensor
    way: tuple[TensorExpr, ...]
    start: int
    conditions: tuple[_Condition, ...] = ()


def _mask(e: TensorExpr) -> _OneHot | None:
    """The selection, where ``e`` sums ``where(index == iota, x, 0)``, or a product of integers with such a mask."""
    t, casts = e.inputs[0], list[DType]()
    reduced = [p for p, r in enumerate(e.reads[0]) if isinstance(r, Mapped) and r.domain.kind == "reduction"]
    if len(reduced) != 1 or not _keeps(t.dtype, e.output.dtype):
        return None
    while (made := t.definition) is not None and made.op in ("copy", "cast") and _keeps_zero(made.inputs[0], t):
        casts, t = [t.dtype, *casts], made.inputs[0]
    if made is None:
        return None
    for k, is_not, x in _mask_operands(made):
        found = _hit(made, k, is_not, reduced[0])
        if found is not None and _keeps(x.dtype, t.dtype):
            shape = tuple(d.extent for d in t.axes)
            return _OneHot(x, found.index, found.way, found.start, shape, reduced[0], found.conditions, tuple(casts))
    return None


def _keeps_zero(x: Tensor, y: Tensor) -> bool:
    """Whether 0 is 0, cast from ``x`` to the type of ``y``, and a value is what a cast of one element makes of it."""
    return _keeps(x.dtype, y.dtype) or (is_float(x.dtype) and is_float(y.dtype))


def _keeps(a: DType, b: DType) -> bool:
    """Whether type ``b`` holds each value of ``a``."""
    if a == b:
        return True
    if is_float(a) or is_float(b):
        return is_float(a) and is_float(b) and item_size(a) < item_size(b)
    (low, high), (least, most) = int_limits(a), int_limits(b)
    return b != "bool" and least <= low and high <= most


def _mask_operands(e: TensorExpr) -> Iterator[tuple[int, bool, Tensor]]:
    """(operand that is the mask, whether it names what is left out, the tensor that it selects from)."""
    if e.op == "where" and len(e.args) == 3 and isinstance(e.args[0], Tensor):
        _, x, y = e.args
        if isinstance(x, Tensor) and _is_number(y, 0):
            yield 0, False, x
        elif isinstance(y, Tensor) and _is_number(x, 0):
            yield 0, True, y
    if e.op == "mul" and len(e.inputs) == 2 and not is_float(e.output.dtype):
        yield 0, False, e.inputs[1]  # of floats a NaN or an infinity elsewhere would count
        yield 1, False, e.inputs[0]


def _is_number(value: object, n: int) -> bool:
    if isinstance(value, Tensor):
        e = value.definition
        while e is not None and e.op in ("expand", "reshape", "unsqueeze", "copy"):
            e = e.inputs[0].definition
        return e is not None and e.op == "full" and _is_number(e.attrs.get("value", e.args[0] if e.args else None), n)
    return isinstance(value, (int, float)) and value == n


def _hit(made: TensorExpr, k: int, is_not: bool, dim: int) -> _Hit | None:
    """The comparison of an index with the coordinate along axis ``dim`` of the result, in the mask: operand ``k``."""
    axes = made.output.axes
    along = symbol(f"i{dim}", 0, simplify(axes[dim].extent - 1))
    own = [symbol(f"i{p}", 0, simplify(d.extent - 1)) if not d.is_broadcast else as_expr(0) for p, d in enumerate(axes)]
    own[dim] = along
    return _comparison(made.inputs[k], _through(made, k, own), is_not, along, ())


def _comparison(
    hit: Tensor, at: Row | None, is_not: bool, along: Expr, way: tuple[TensorExpr, ...]
) -> _Hit | None:  # fmt: skip
    """The same of the element ``at`` of ``hit``; ``way`` leads from there to the mask."""
    while at is not None and (e := hit.definition) is not None and e.op not in ("eq", "ne"):
        if e.op in _JOINED[is_not] and e.output.dtype == "bool" and len(e.inputs) == 2:
            for n, other in ((0, 1), (1, 0)):
                found = _comparison(e.inputs[n], _through(e, n, at), is_not, along, (e, *way))
                if found is not None:
                    more = _Condition(e.inputs[other], (e, *way), is_not)
                    return replace(found, conditions=(*found.conditions, more))
            return None
        if e.op == "logical_not":
            is_not = not is_not
        elif e.op in WHOLE_VIEWS:
            way = (e, *way)
        elif e.op != "cast" or e.inputs[0].dtype != "bool":
            return None
        hit, at = e.inputs[0], _through(e, 0, at)
    e = hit.definition
    if at is None or e is None or e.op != ("ne" if is_not else "eq") or "within" in e.attrs or len(e.inputs) != 2:
        return None  # "within": one that a gather was made of, because that costs less
    for n in (0, 1):
        numbers, index = _through(e, n, at), _through(e, 1 - n, at)
        start = None if numbers is None else _first(e.inputs[n], numbers, along)
        if start is None or index is None or is_float(e.inputs[1 - n].dtype):
            continue
        if _is_same_along(e.inputs[1 - n], index, along):
            return _Hit(e.inputs[1 - n], (e, *way), start)
    return None


def _is_same_along(index: Tensor, at: Row | None, along: Expr) -> bool:
    """Whether element ``at`` does not depend on the coordinate ``along``: what it was expanded from has none."""
    while at is not None and any(along.name in x.names for x in at):
        e = index.definition
        if e is None or e.op not in WHOLE_VIEWS:
            return False
        index, at = e.inputs[0], _through(e, 0, at)
    return at is not None


def _through(e: TensorExpr, k: int, at: Sequence[Expr]) -> Row | None:
    """The element of operand ``k`` that element ``at`` of the result of ``e`` is made of."""
    own = CoordinateSolver(tuple(zip(e.output.axes, at, strict=True)), e.output.domain.exprs)
    made: list[Expr] = []
    for axis, r in zip(e.inputs[k].axes, e.reads[k], strict=True):
        x = None if isinstance(r, LoadedCoordinate) else r.index if isinstance(r, Fixed) else own.value.get(r.domain)
        if axis.is_broadcast:
            x = as_expr(0)
        if x is None:
            return None
        made.append(simplify(x))
    return tuple(made)


def _first(numbers: Tensor, at: Row, along: Expr) -> int | None:
    """n, where element ``at`` is n + ``along``: an iota along that axis, as views of it, in types that hold it."""
    types: list[DType] = [numbers.dtype]
    while (e := numbers.definition) is not None and e.op != "iota":
        if e.op not in WHOLE_VIEWS and e.op != "cast":
            return None
        through = _through(e, 0, at)
        if through is None:
            return None
        numbers, at = e.inputs[0], through
        types.append(numbers.dtype)
    if e is None or any(is_float(t) for t in types):
        return None
    start, step, n = e.attrs.get("start", 0), e.attrs.get("step", 1), numbers.axes[0].extent
    limits = [int_limits(t) for t in types if t != numbers.dtype]
    if not isinstance(start, int) or step != 1 or at != (along,) or (limits and not n.is_const):
        return None
    return start if all(low <= start and start + int(n) - 1 <= high for low, high in limits) else None


def _is_uniform(o: _OneHot, x: Tensor) -> bool:
    """Whether ``x`` is the same along the axis of the sum, which has elements."""
    axes = x.axes
    along = symbol(f"i{o.dim}", 0, simplify(o.shape[o.dim] - 1))
    if not o.shape[o.dim].is_const or o.shape[o.dim] == as_expr(0):
        return False
    own = [symbol(f"i{p}", 0, simplify(d.extent - 1)) for p, d in enumerate(axes, len(o.shape) - len(axes))]
    at = [as_expr(0) if d.is_broadcast else i for d, i in zip(axes, own, strict=True)]
    return _is_same_along(x, tuple(at), along)


def _gathered(e: TensorExpr, o: _OneHot) -> Tensor:
    dim, n, shape = o.dim, attr(o.shape[o.dim]), [attr(k) for k in o.shape]
    index, x = _index(o), o.x
    wide = ops.cast(index, "int64") if index.dtype != "int64" else index
    if o.start:
        wide = ops.sub(wide, o.start)
    inside = ops.logical_and(ops.ge(wide, 0), ops.lt(wide, n))

    def at_index(t: Tensor) -> Tensor:
        if _is_uniform(o, t):
            return _wide(_first_along(t, dim - len(shape)), [1 if p == dim else k for p, k in enumerate(shape)])
        return rows.gather(_wide(t, shape), dim, ops.minimum(ops.maximum(wide, 0), n - 1))

    for c in o.conditions:
        holds = at_index(_through_views(c.operand, c.way))
        inside = ops.logical_and(inside, ops.logical_not(holds) if c.is_not else holds)
    got = ops.where(inside, at_index(x), False if x.dtype == "bool" else 0.0 if is_float(x.dtype) else 0)
    for dtype in o.casts:
        got = ops.cast(got, dtype) if got.dtype != dtype else got
    if is_float(got.dtype):
        got = ops.add(got, 0.0)  # a sum that begins at 0.0 is never -0.0
    got = got if got.dtype == e.output.dtype else ops.cast(got, e.output.dtype)
    return got if e.output.ndim == len(shape) else movement.squeeze(got, dim)


def _first_along(x: Tensor, axis: int) -> Tensor:
    """The first element along an axis, counted from the last: of what it was expanded from, where it was."""
    if -axis > x.ndim or x.axes[axis].extent == as_expr(1):
        return x
    e = x.definition
    if e is None or e.op != "expand":
        return movement.slice(x, x.ndim + axis, 0, 1)
    extents = [attr(d.extent) for d in x.axes]
    extents[axis] = 1
    return _wide(_first_along(e.inputs[0], axis), extents)


def _index(o: _OneHot) -> Tensor:
    """The index of each row, one along the axis: as the mask's views have it, which is the same all along it."""
    shape: list[int | Expr] = [1 if p == o.dim else attr(k) for p, k in enumerate(o.shape)]
    return _wide(_first_along(_through_views(o.index, o.way), o.dim - len(shape)), shape)


def _through_views(t: Tensor, way: Sequence[TensorExpr]) -> Tensor:
    """``t``, which the first operation of ``way`` reads, through the views of ``way``; the others broadcast it."""
    wide: Sequence[int | Expr] | None = None
    for e in way:
        if e.op in WHOLE_VIEWS:
            t = apply(t.fusion, e.op, (t if wide is None else _wide(t, wide),), e.attrs, None)
            wide = None
        else:
            wide = [attr(d.extent) for d in e.output.axes]
    return t


def _wide(t: Tensor, shape: Sequence[int | Expr]) -> Tensor:
    """``t`` broadcast to ``shape``."""
    for _ in range(len(shape) - t.ndim):
        t = movement.unsqueeze(t, 0)
    same = all(same_extent(d.extent, as_expr(k)) for d, k in zip(t.axes, shape, strict=True))
    return t if same else movement.expand(t, list(shape))


def _sum_elements(o: _OneHot) -> int | None:
    """Elements that the sum looks at."""
    return prod(int(k) for k in o.shape) if all(k.is_const for k in o.shape) else None


def _saved(o: _OneHot) -> Saving | None:
    """The bytes of elements that no index names; a tensor that broadcasts is read once."""
    whole, n = _sum_elements(o), o.shape[o.dim]
    if not whole or not all(d.extent.is_const for d in o.x.axes):
        return None
    own = prod(int(d.extent) for d in o.x.axes)
    return Saving(0, max(0, own - whole // int(n)) * item_size(o.x.dtype))
