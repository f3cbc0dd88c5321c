"""Tensors that are views: the elements of an input, at an address that is linear in the tensor's own axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from idgraph.arith import Expr, Proof, as_expr, prove_equal, simplify
from idgraph.errors import IndexingError, OperationError, arguments
from idgraph.index.layout import address_of
from idgraph.index.origins import output_to_input
from idgraph.ir import Fusion, Tensor, TensorExpr

MOVES = frozenset({"expand", "flip", "permute", "reshape", "roll", "select", "slice", "squeeze", "unsqueeze"})
"""Operations of one tensor that make no values: each element of the result is one of the operand's."""


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


@dataclass(frozen=True, slots=True)
class NoAlias:
    """Why a tensor is not a view: ``operation`` is the one that stops it."""

    because: str
    operation: TensorExpr | None = None

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"not a view: {self.because}"


@arguments(OperationError, first=True)
def alias(fusion: Fusion, tensor: Tensor) -> Alias | NoAlias:
    """Whether ``tensor`` is a view of an input, with strides and offset in elements; or the operation that stops it.

    Raises `OperationError` for a tensor of another fusion.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(4, 6))
    >>> print(ig.layout.alias(f, f.output(x.T[1:])))
    a view of x: strides (1, 6), offset 1
    >>> print(ig.layout.alias(f, f.output(ig.reshape(x.T, 24))).because)
    the address is not linear in axis 0: reshape copies
    """
    if tensor not in fusion:
        raise OperationError(f"layout.alias: {tensor.name} is not a tensor of fusion {fusion.name}")
    source = tensor
    while source.definition is not None:
        e = source.definition
        if e.op not in MOVES or len(e.inputs) != 1:
            return _no_view(e)
        source = e.inputs[0]
    if source is tensor:
        return Alias(source, _strides_of(source), _number(as_expr(source.offset)))
    if not set(source.allocation) <= set(source.axes):
        return NoAlias(f"{source.name} is laid out by axes that are split or merged", None)
    return view_of(tensor, source, _strides_of(source), source.offset)


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
            return NoAlias(f"{tensor.name} is not made of {source.name} alone")
        if (e.op not in MOVES and e.op != "copy") or len(e.inputs) != 1:
            return _no_view(e)
        chain.append(e)
    try:
        found = output_to_input(tensor, source)
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
    offset = simplify(address.substitute(zero))
    steps: list[Expr] = []
    for k, x in enumerate(start):
        step = simplify(address.substitute({x: as_expr(1)}) - address.substitute({x: as_expr(0)}))
        one = tensor.axes[k].extent == 1
        linear = simplify(offset + x * _at_zero(step, start))
        if not one and not isinstance(prove_equal(address.substitute({**zero, x: x}), linear), Proof):
            return NoAlias(f"the address is not linear in axis {k}: {chain[0].op} copies", chain[0])
        steps.append(as_expr(0) if one else _at_zero(step, start))
    whole = offset
    for x, step in zip(start, steps, strict=True):
        whole = whole + x * step
    if not isinstance(prove_equal(address, simplify(whole)), Proof):
        return NoAlias(f"the address is not a sum over the axes: {chain[0].op} copies", chain[0])
    return Alias(source, tuple(map(_number, steps)), _number(offset))


def _at_zero(x: Expr, variables: tuple[Expr, ...]) -> Expr:
    values: Mapping[Expr, Expr] = {v: as_expr(0) for v in variables}
    return simplify(x.substitute(values))


def _strides_of(t: Tensor) -> tuple[int | Expr, ...]:
    from_allocation = {d: address_of(t, [as_expr(int(x is d)) for x in t.allocation]) for d in t.allocation}
    return tuple(
        _number(simplify(from_allocation[d] - as_expr(t.offset))) if d in from_allocation else 0 for d in t.axes
    )


def _number(x: Expr) -> int | Expr:
    return int(x) if x.is_const else x
