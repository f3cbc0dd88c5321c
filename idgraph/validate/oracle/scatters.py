"""Operations that write at index values, applied to arrays: to values, or to element numbers to see what goes where.

A point of a scatter is an element of what is written (the index's shape; for index_put the index tensors' common shape
among the axes that are not indexed). Only attributes and arrays are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from idgraph.errors import OperationError
from idgraph.ir.fusion import TensorExpr
from idgraph.validate.oracle.views import Array, Attrs, check_index, number, numbers, unaligned

SCATTERED = frozenset({"scatter", "scatter_add", "index_put"})


def index_operands(e: TensorExpr) -> tuple[int, ...]:
    """Numbers of the operands of a scatter that hold indices."""
    return tuple(range(1, 1 + len(numbers(e.attrs["dims"], {})))) if e.op == "index_put" else (1,)


def _written_index(op: str, attrs: Attrs, shape: tuple[int, ...], indices: Sequence[Array]) -> tuple[Any, ...]:
    """The NumPy index of the elements of an array of ``shape`` that are written, in order."""
    if op == "index_put":
        dims = [d % len(shape) for d in numbers(attrs["dims"], {})]
        own = unaligned(attrs, len(shape), indices)
        found = [check_index(i, shape[d], op) for i, d in zip(own, dims, strict=True)]
        return (*(slice(None) for _ in range(dims[0])), *found)
    dim = number(attrs["dim"], {}) % len(shape)
    (index,) = indices
    rank = len(shape)
    counted = [np.arange(n, dtype=np.int64) for n in index.shape]
    own = [np.expand_dims(c, [q for q in range(rank) if q != p]) for p, c in enumerate(counted)]
    return tuple(check_index(index, shape[dim], op) if p == dim else own[p] for p in range(rank))


def scatter(op: str, attrs: Attrs, x: Array, indices: Sequence[Array], src: Array) -> Array:
    """``x`` with ``src`` written or added; of several writers the last one (in the order of the points) wins.

    >>> scatter("scatter", {"dim": 0}, np.zeros(4), [np.array([1, 3, 1])], np.array([5.0, 6.0, 7.0])).tolist()
    [0.0, 7.0, 0.0, 6.0]
    """
    where = _written_index(op, attrs, x.shape, indices)
    if op == "index_put" and attrs["accumulate"] == "amax":
        out = x.astype(np.int64)
        np.maximum.at(out, where, src.astype(np.int64))
        return out
    added = op == "scatter_add" or (op == "index_put" and attrs["accumulate"] is True)
    if added:
        out = x.astype(np.float64 if x.dtype.kind == "f" else np.int64)
        np.add.at(out, where, src.astype(out.dtype))
        return out
    # One element after another: NumPy does not define the result of several values for one place.
    targets = element_targets(op, attrs, x.shape, indices)
    values = np.broadcast_to(src, targets.shape).reshape(-1)
    flat = targets.reshape(-1)
    last = np.full(x.size, -1, np.int64)
    np.maximum.at(last, flat, np.arange(flat.size))
    out = x.copy().reshape(-1)
    hit = last >= 0
    out[hit] = values[last[hit]]
    return out.reshape(x.shape)


def element_targets(op: str, attrs: Attrs, shape: tuple[int, ...], indices: Sequence[Array]) -> Array:
    """Row-major number of the element (of an array of ``shape``) that each point writes."""
    ids = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int64).reshape(shape)
    return ids[_written_index(op, attrs, shape, indices)]


def scatter_reads(e: TensorExpr, k: int, ids: Array, shape: tuple[int, ...], indices: Sequence[Array]) -> Array:
    """Which element (of ``ids``) of operand ``k`` each point reads; ``shape`` is that of operand 0."""
    targets = element_targets(e.op, e.attrs, shape, indices)
    if k == 0:
        return targets
    if e.op != "index_put":
        return ids
    if k not in index_operands(e):
        return np.broadcast_to(ids, targets.shape)
    after = len(shape) - 1 - max(d % len(shape) for d in numbers(e.attrs["dims"], {}))
    try:
        (own,) = unaligned(e.attrs, len(shape), [ids])
        return np.broadcast_to(own.reshape((*own.shape, *(1 for _ in range(after)))), targets.shape)
    except ValueError as error:
        raise OperationError(f"index {k} of {e.name} does not fit what is written") from error
