"""Tensors that are views: elements of another tensor, at an address that is linear in the tensor's own axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from idgraph.arith import Expr, Proof, as_expr, is_true, prove_equal, simplify
from idgraph.arith.solve import coefficients
from idgraph.errors import IndexingError, OperationError, arguments
from idgraph.index.allocation import address_of
from idgraph.index.index_solver import pull_back
from idgraph.ir import Fusion, Resize, Tensor, TensorExpr
from idgraph.ir.op_table import VIEWS
from idgraph.ir.view_builders import int_if_constant

MOVES = VIEWS - {"copy"}
"""Operations of one tensor that make no values: each element of the result is one of the operand's."""

JOINS = frozenset({"cat"})
"""Operations whose result is a view where their operands lie one behind the other in one memory."""


@dataclass(frozen=True, slots=True)
class Alias:
    """A view of ``of``: element c stands ``offset + sum(c[k] * strides[k])`` elements behind the start of its memory.

    ``offset`` counts from the start of the buffer, an input's own offset included. A flip has a negative stride.
    """

    of: Tensor
    strides: tuple[int | Expr, ...]
    offset: int | Expr

    def __str__(self) -> str:
        return f"a view of {self.of.name}: strides ({', '.join(map(str, self.strides))}), offset {self.offset}"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class NoAlias:
    """Why a tensor is not a view: ``operation`` is the one that stops it."""

    because: str
    operation: TensorExpr | None = None

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"not a view: {self.because}"

    __repr__ = __str__


@arguments(OperationError, first=True)
def alias(fusion: Fusion, tensor: Tensor) -> Alias | NoAlias:
    """Whether ``tensor`` is a view, with strides and offset in elements; or the operation that stops it.

    ``of`` is an input, or the nearest computed tensor: its values must then lie in memory, as they do where it is an
    output or is not inlined. A pad that adds nothing takes a part; slices that lie one behind the other in one memory
    are joined in place.

    Raises `OperationError` for a tensor of another fusion.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(4, 6))
    >>> print(ig.layout.alias(f, f.output(x.T[1:])))
    a view of x: strides (1, 6), offset 1
    >>> print(ig.layout.alias(f, f.output(ig.reshape(x.T, 24))).because)
    the address is not linear in axis 0: reshape copies
    >>> print(ig.layout.alias(f, ig.cat([x[:1], x[1:2], x[2:]])))
    a view of x: strides (6, 1), offset 0
    """
    if tensor not in fusion:
        raise OperationError(f"layout.alias: {tensor.name} is not a tensor of fusion {fusion.name}")
    return _alias(tensor)


def _alias(tensor: Tensor) -> Alias | NoAlias:
    """The same, of a tensor of some fusion: the nearest tensor behind moves that lies in memory of its own, or a join
    of parts that lie one behind the other in that of another."""
    source = tensor
    while (e := source.definition) is not None and _moves(e):
        source = e.inputs[0]
    if e is not None and e.op in JOINS:
        joined = _joined(e)
        if not isinstance(joined, Alias):
            return joined if source is tensor else _view_of_memory(tensor, source)
        seen = view_of(tensor, source, joined.strides, joined.offset) if source is not tensor else joined
        return Alias(joined.of, seen.strides, seen.offset) if isinstance(seen, Alias) else seen
    if source is tensor:
        return (
            _no_view(e)
            if e is not None
            else Alias(source, _strides_of(source), int_if_constant(as_expr(source.offset)))
        )
    return _view_of_memory(tensor, source)


def _view_of_memory(tensor: Tensor, source: Tensor) -> Alias | NoAlias:
    if not set(source.allocation) <= set(source.axes):
        return NoAlias(f"{source.name} is laid out by axes that are split or merged", None)
    return view_of(tensor, source, _strides_of(source), source.offset)


def _moves(e: TensorExpr) -> bool:
    """Whether each element of the result is one of the only operand's: a pad that adds nothing takes a part."""
    if e.op == "pad":
        sides = [side for x in e.output.domain.exprs if isinstance(x, Resize) for side in (x.left, x.right)]
        return all(is_true(side <= 0) for side in sides)
    return e.op in MOVES and len(e.inputs) == 1


def _joined(e: TensorExpr) -> Alias | NoAlias:
    """The view that a join is: each operand begins where the one before it ends, in steps of one length."""
    at = cast("int", e.attrs["dim"])
    parts: list[tuple[Tensor, Alias]] = []
    for t in e.inputs:
        if t.axes[at].extent == 0:
            continue
        part = _alias(t)
        if not isinstance(part, Alias):
            return part
        parts.append((t, part))
    if not parts or any(part.of is not parts[0][1].of for _, part in parts):
        return _no_view(e)
    first = parts[0][1]
    # The step along the joined axis: of a part of several elements; where all are single ones, to the second of them.
    long = next((part for t, part in parts if t.axes[at].extent != 1), None)
    step = as_expr(long.strides[at]) if long is not None else as_expr(0)
    if long is None and len(parts) > 1:
        step = simplify(as_expr(parts[1][1].offset) - as_expr(first.offset))
    place = as_expr(first.offset)
    for t, part in parts:
        apart = [
            p
            for p, (a, b) in enumerate(zip(first.strides, part.strides, strict=True))
            if p != at and not _provably_same(a, b)
        ]
        if apart or not _provably_same(part.offset, place):
            return _no_view(e)
        if t.axes[at].extent != 1 and not _provably_same(part.strides[at], step):
            return _no_view(e)
        place = simplify(place + t.axes[at].extent * step)
    strides = (*first.strides[:at], int_if_constant(step), *first.strides[at + 1 :])
    return Alias(first.of, strides, first.offset)


def _provably_same(a: int | Expr, b: int | Expr) -> bool:
    return isinstance(prove_equal(as_expr(a), as_expr(b)), Proof)


def view_of(tensor: Tensor, source: Tensor, strides: Sequence[int | Expr], offset: int | Expr) -> Alias | NoAlias:
    """The view that ``tensor`` is of ``source``, which lies in memory with these strides, from ``offset`` on.

    Copies between the two count as the memory that they copy: the caller knows that they are elided.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.input("x", shape=(4, 6)) * 2.0
    >>> print(view_of(t.T[1:], t, (1, 4), 0))
    a view of t1: strides (4, 1), offset 4
    """
    chain: list[TensorExpr] = []
    while (t := chain[-1].inputs[0] if chain else tensor) is not source:
        e = t.definition
        if e is None:
            return NoAlias(f"{tensor.name} is not computed from only {source.name}")
        if not _moves(e) and not (e.op == "copy" and len(e.inputs) == 1):
            return _no_view(e)
        chain.append(e)
    try:
        found = pull_back(tensor, source)
    except IndexingError as error:
        return NoAlias(error.what, chain[0])
    start = found.symbols[: len(tensor.axes)]
    address = as_expr(offset)
    for x, step in zip(found.results, strides, strict=True):
        address = address + x * step
    return _linear(tensor, source, start, simplify(address), chain)


def _no_view(e: TensorExpr) -> NoAlias:
    line = f" at {e.source_line}" if e.source_line else ""
    return NoAlias(f"{e.op}{line} makes new values", e)


def _linear(
    tensor: Tensor, source: Tensor, start: tuple[Expr, ...], address: Expr, chain: Sequence[TensorExpr]
) -> Alias | NoAlias:
    """The address as a sum over the axes, where it is one."""
    zero = {x: as_expr(0) for x in start}
    moving = {x: zero[x] if d.extent == 1 else x for x, d in zip(start, tensor.axes, strict=True)}
    found = coefficients(address.substitute(moving), start)
    if found is None:
        for k, x in enumerate(start):
            if coefficients(address.substitute({**zero, x: moving[x]}), (x,)) is None:
                return NoAlias(f"the address is not linear in axis {k}: {chain[0].op} copies", chain[0])
        return NoAlias(f"the address is not a sum over the axes: {chain[0].op} copies", chain[0])
    *steps, offset = map(int_if_constant, found)
    return Alias(source, tuple(steps), offset)


def _strides_of(t: Tensor) -> tuple[int | Expr, ...]:
    from_allocation = {d: address_of(t, [as_expr(int(x is d)) for x in t.allocation]) for d in t.allocation}
    return tuple(
        int_if_constant(simplify(from_allocation[d] - as_expr(t.offset))) if d in from_allocation else 0 for d in t.axes
    )
