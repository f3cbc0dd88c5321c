"""Sizes that an operation makes equal: two symbols, or a symbol and a number, that meet in one elementwise operation.

From then on they are one: the fusion speaks of one of them, everywhere, and a call with other sizes is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import Any, cast

from idgraph.arith import Expr, as_expr, integer_root, is_true, simplify, symbol
from idgraph.arith.solve import coefficients
from idgraph.ir.axis_read import Fixed
from idgraph.ir.iter_domain import DomainExpr, IterDomain, Merge, Resize, Roll, RowPartition, Split, Stride, Swizzle
from idgraph.ir.protocols import OperationLike, TensorLike
from idgraph.ir.schedule_log import ScheduleStep

_Change = tuple[object, str, object]  # an object, one of its fields, and what it was


@dataclass(frozen=True, slots=True)
class Equality:
    """The symbol ``name``, declared as ``symbol``, is ``value``, as ``because`` says; ``values`` stand for all symbols
    that this changes, by name, and ``before`` is what the fusion was."""

    name: str
    symbol: Expr
    value: Expr
    because: str
    values: Mapping[str, Expr]
    before: tuple[_Change, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} = {self.value}: {self.because}"


def equal_sizes(a: Expr, b: Expr, known: Mapping[str, Expr], because: str) -> Equality | None:
    """How one symbol of ``a`` or ``b`` follows where they are equal; None where none does, or where they never are."""
    rest = simplify(a - b)
    for s in (*sorted(b.symbols, key=str), *sorted(a.symbols, key=str)):
        value = _solved(rest, s) if s.name in known else None
        if value is not None:
            return _united(s, value, known, because)
    for x, y in ((a, b), (b, a)):
        if x.is_const and len(y.symbols) == 1:
            (s,) = y.symbols
            root = integer_root(y, s, int(x))
            return None if root.value is None else _united(s, as_expr(root.value), known, because)
    return None


def _solved(rest: Expr, s: Expr) -> Expr | None:
    """The ``s`` at which ``rest`` is 0, where it stands there once, times a number that divides the others."""
    affine = coefficients(rest, (s,))
    if affine is None or not affine[0].is_const or affine[0] == 0:
        return None
    factor, others = affine
    value = simplify((others * -1) // factor)
    return value if simplify(value * factor + others) == 0 else None


def _united(s: Expr, value: Expr, known: Mapping[str, Expr], because: str) -> Equality | None:
    value = simplify(value)
    low, high, step, _ = s.symbol_bounds
    if value.is_const:
        n = int(value)
        below = isinstance(low, int) and n < low
        beyond = isinstance(high, int) and n > high
        return None if below or beyond or n % step else _with_bounds(s, value, {}, known, because)
    if value.op != "sym":
        out = (isinstance(low, int) and is_true(value < low)) or (isinstance(high, int) and is_true(value > high))
        return None if out else _with_bounds(s, value, {}, known, because)
    other_low, other_high, other_step, _ = value.symbol_bounds
    if any(isinstance(x, Expr) for x in (low, high, other_low, other_high)):
        return _with_bounds(s, value, {}, known, because)  # its own bounds are looked at when it is called
    lows, highs = [x for x in (low, other_low) if x is not None], [x for x in (high, other_high) if x is not None]
    most, least, every = min(highs, default=None), max(lows, default=None), lcm(step, other_step)
    if most is not None and least is not None and -(-int(least) // every) * every > int(most):
        return None
    both = symbol(value.name, least, most, every)
    return _with_bounds(s, both, {both.name: both}, known, because)


def _with_bounds(s: Expr, value: Expr, values: Mapping[str, Expr], known: Mapping[str, Expr], because: str) -> Equality:
    """With the symbols whose bounds speak of those that change."""
    changed: dict[str, Expr] = {**values, s.name: value}
    for name, k in known.items():
        low, high, step, _ = k.symbol_bounds
        least, most = (spelled(x, changed) for x in (low, high))
        if name not in changed and (least != low or most != high):
            changed[name] = symbol(name, least, most, step)
    return Equality(s.name, s, value, because, changed)


def spelled(value: Any, values: Mapping[str, Expr]) -> Any:
    """An attribute, or a tuple or mapping of attributes, in the symbols that stand for others."""
    match value:
        case Expr():
            return simplify(value.substitute(values)) if not value.names.isdisjoint(values) else value
        case ScheduleStep():
            return replace(value, args=spelled(value.args, values), kwargs=spelled(value.kwargs, values))
        case tuple():
            return tuple(spelled(v, values) for v in cast("tuple[object, ...]", value))
        case list():
            return [spelled(v, values) for v in cast("list[object]", value)]
        case dict():
            return {k: spelled(v, values) for k, v in cast("dict[str, object]", value).items()}
        case Fixed():
            index = spelled(value.index, values)
            return value if index is value.index else Fixed(index, value.why, value.resolves)
        case _:
            return value


def respell(
    tensors: Sequence[TensorLike], exprs: Sequence[OperationLike], values: Mapping[str, Expr]
) -> tuple[_Change, ...]:
    """Let all axes and operations speak of the symbols that stand for others; returns what they were."""
    found: list[_Change] = []
    for holder, name in _fields(tensors, exprs):
        old = getattr(holder, name)
        new = spelled(old, values)
        if new != old:
            found.append((holder, name, old))
            object.__setattr__(holder, name, new)  # axes' expressions are frozen for everybody else
    return tuple(found)


def put_back(before: Sequence[_Change]) -> None:
    """Undo `respell`."""
    for holder, name, old in reversed(before):
        object.__setattr__(holder, name, old)


def _fields(tensors: Sequence[TensorLike], exprs: Sequence[OperationLike]) -> Iterator[tuple[object, str]]:
    axes: dict[IterDomain, None] = {}
    steps: dict[DomainExpr, None] = {}
    for t in tensors:
        domain = t.domain
        axes.update(dict.fromkeys((*domain.root, *domain.logical, *domain.allocation, *domain.loop)))
        steps.update(dict.fromkeys((*domain.exprs, *domain.loop_exprs)))
        yield domain, "strides"
        yield t, "offset"
        yield t, "_log"
    for x in steps:
        axes.update(dict.fromkeys((*x.inputs, *x.outputs)))
        match x:
            case Split():
                yield x, "factor"
            case Resize():
                yield from ((x, "left"), (x, "right"))
            case Stride():
                yield from ((x, "start"), (x, "step"))
            case Roll():
                yield x, "shift"
            case Merge() | Swizzle() | RowPartition():
                pass
    for d in axes:
        yield d, "extent"
    for e in exprs:
        yield from ((e, "args"), (e, "attrs"), (e, "reads"))
