"""Which element each operation reads: the operation itself, applied to tensors of element numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from idgraph.errors import OperationError
from idgraph.ir import Tensor, TensorExpr
from idgraph.ir.reduce import REDUCTIONS
from idgraph.validate.oracle.moves import INDEXED, MOVES, Array, index_reads, move, region
from idgraph.validate.oracle.pointwise import POINTWISE, SCANNED
from idgraph.validate.oracle.scatters import SCATTERED, index_operands, scatter_reads
from idgraph.validate.oracle.symbol_values import Symbols, numbers, shape_of

LARGEST: Final = 1 << 31  # 8 GiB of numbers; beyond that no machine that runs the tests has the memory


def element_numbers(tensor: Tensor, symbols: Symbols) -> Array:
    """Row-major element numbers of ``tensor.shape``: int32 where they fit (real sizes are checked too), else int64."""
    shape = shape_of(tensor, symbols)
    count = math.prod(shape)
    if count > LARGEST:
        raise OperationError(
            f"{tensor.name} has {count:,} elements, more than the {LARGEST:,} that the oracle numbers",
            hint="check a smaller size of the same fusion",
        )
    return np.arange(count, dtype=np.int32 if count < 2**31 else np.int64).reshape(shape)


def reads(e: TensorExpr, k: int, values: Mapping[str, Array] | None = None, symbols: Symbols | None = None) -> Array:
    """Element number of operand ``k`` that ``e`` reads, one for each point of ``e.output.logical``.

    The axes are those of ``e.output.logical`` in that order, reduced axes included. Numbers are row-major over the
    operand's shape; -1 where the operation reads nothing of this operand (a pad's fill, another part of a cat).
    ``values`` holds index tensors by name, for operations that read at index values. The result may be a view. The
    points of a scatter are those of what it writes (its root axes); operand 0 stands for the element that is written.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("t", shape=(6,))
    >>> reads(ig.cat([t[4:], t[:2]]).definition, 0).tolist()
    [0, 1, -1, -1]
    >>> reads(ig.sum(ig.reshape(t, 2, 3), 1).definition, 0).tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    at = dict(symbols or {})
    ids = element_numbers(e.inputs[k], at)
    shape = shape_of(e.output, at)
    if e.op in POINTWISE or e.op in SCANNED:
        return np.broadcast_to(ids, shape)
    if e.op in REDUCTIONS:
        return _reduced(e, ids, at)
    if e.op == "matmul":
        return _contracted(e, k, ids, shape, at)
    if e.op in SCATTERED:
        known = values or {}
        indices = [known[e.inputs[j].name] for j in index_operands(e)]
        return scatter_reads(e, k, ids, shape_of(e.inputs[0], at), indices)
    if e.op not in MOVES:
        raise OperationError(f"the oracle knows no operation {e.op!r}")
    if e.op in INDEXED:
        if k != INDEXED[e.op]:
            return index_reads(e.op, e.attrs, ids, e.inputs[INDEXED[e.op]].ndim, shape)
        known = values or {}
        parts = [ids if p == k else known[t.name] for p, t in enumerate(e.inputs)]
        return move(e.op, e.attrs, parts, at, -1)
    nothing = np.full((), -1, ids.dtype)
    parts = [ids if p == k else np.broadcast_to(nothing, shape_of(t, at)) for p, t in enumerate(e.inputs)]
    return move(e.op, e.attrs, parts, at, -1)


def optional(e: TensorExpr, k: int, symbols: Symbols | None = None) -> Array | None:
    """Where reading operand ``k`` is allowed though nothing of it is used (None: nowhere).

    slice_scatter may read elements that the source then replaces: the result is the same.
    """
    if e.op != "slice_scatter" or k != 0:
        return None
    at = dict(symbols or {})
    ids = element_numbers(e.inputs[0], at)
    free = np.full(ids.shape, -1, ids.dtype)
    inside = region(e.attrs, ids.ndim, at)
    free[inside] = ids[inside]
    return free


def _reduced(e: TensorExpr, ids: Array, symbols: Symbols) -> Array:
    dims = sorted({d % ids.ndim for d in numbers(e.attrs["dims"], symbols)}) if ids.ndim else []
    kept = [p for p in range(ids.ndim) if p not in dims]
    moved = np.transpose(ids, (*kept, *dims))
    shape = shape_of(e.output, symbols)
    return _place(e, moved.reshape((*shape, *(ids.shape[d] for d in dims))))


def _contracted(e: TensorExpr, k: int, ids: Array, shape: tuple[int, ...], symbols: Symbols) -> Array:
    if k == 0:
        spread = ids[..., :, None, :]
    else:
        spread = np.swapaxes(ids, -1, -2)[..., None, :, :]
    return _place(e, np.broadcast_to(spread, (*shape, spread.shape[-1])))


def _place(e: TensorExpr, last: Array) -> Array:
    """Reduced axes stand last: move them to where the output's logical axes have them."""
    places = [p for p, d in enumerate(e.output.logical) if d.kind == "reduction"]
    count = last.ndim - len(places)
    return np.moveaxis(last, range(count, last.ndim), places)
