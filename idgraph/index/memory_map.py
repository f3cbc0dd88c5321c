"""The map from an element of a tensor to its address in memory, through the splits, merges and swizzles of its axes."""

from __future__ import annotations

from idgraph.arith import Expr, IndexMap, simplify, symbol
from idgraph.errors import IndexingError
from idgraph.graphs.coordinate_rules import backward, forward
from idgraph.index.allocation import address_of, buffer_size
from idgraph.ir import DomainExpr, IterDomain, Tensor


def has_strides(t: Tensor) -> bool:
    """Whether strides along the tensor's own axes say where its elements lie.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", shape=(10,)) * 2.0)
    >>> before = has_strides(t)
    >>> _ = t.split(0, 4).set_allocation(t.loop)
    >>> before, has_strides(t)
    (True, False)
    """
    own = set(t.axes)
    return own >= set(t.allocation) and all(d in t.allocation or d.is_broadcast for d in own)


def memory_map(t: Tensor) -> IndexMap:
    """From the coordinates of an element (i0, i1, ...) to its address in the memory of ``t``, in elements, the offset
    included. The shape of the map is the number of elements that the memory holds, gaps included.

    Raises `IndexingError` where an allocation axis does not follow from the tensor's axes.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", shape=(10, 4)) * 2.0)
    >>> _ = t.split(0, 8).reorder({1: 2, 2: 1}).set_allocation(t.loop)
    >>> print(memory_map(t), memory_map(t).shape[0])
    (i0, i1) -> (i0 + i0//8*24 + i1*8) 64
    """
    symbols = tuple(symbol(f"i{k}", 0, simplify(d.extent - 1)) for k, d in enumerate(t.axes))
    known: dict[IterDomain, Expr] = dict(zip(t.axes, symbols, strict=True))
    pending: list[DomainExpr] = [*t.domain.exprs, *t.domain.loop_exprs]
    while pending:
        rest = [x for x in pending if not _apply_expression(x, known)]
        if len(rest) == len(pending):
            break
        pending = rest
    missing = next((d for d in t.allocation if d not in known), None)
    if missing is not None:
        raise IndexingError(
            f"allocation axis {missing.label} does not follow from the shape of {t.name}", where=t.source_line
        )
    address = address_of(t, [known[d] for d in t.allocation])
    return IndexMap(symbols, (address,), (buffer_size(t),))


def _apply_expression(x: DomainExpr, known: dict[IterDomain, Expr]) -> bool:
    """Apply one expression forward or backward, if one side is known."""
    if all(d in known for d in x.inputs):
        known.update(zip(x.outputs, forward(x, tuple(known[d] for d in x.inputs)), strict=True))
    elif all(d in known for d in x.outputs):
        known.update(zip(x.inputs, backward(x, tuple(known[d] for d in x.outputs)), strict=True))
    else:
        return False
    return True
