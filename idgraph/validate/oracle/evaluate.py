"""The values of every tensor of a fusion, computed from the definitions of its operations.

Which element each operation reads: the operation itself, applied to tensors of element numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from idgraph.errors import OperationError
from idgraph.ir import Fusion, Tensor, TensorExpr
from idgraph.ir.op_builders import REDUCTIONS
from idgraph.validate.oracle.pointwise import POINTWISE, SCANNED, accumulate, evaluate_pointwise, running, stored
from idgraph.validate.oracle.views import (
    INDEXED,
    MOVES,
    ROWED,
    SCATTERED,
    Array,
    Symbols,
    bind,
    check_index,
    check_rows,
    index_operands,
    index_reads,
    move,
    number,
    numbers,
    region,
    row_reads,
    row_writes,
    rows,
    scatter,
    scatter_reads,
    shape_of,
)


def evaluate(
    f: Fusion,
    inputs: Mapping[str, Array],
    symbols: Symbols | None = None,
    *,
    wanted: Iterable[str] | None = None,
    rounded: bool = True,
) -> dict[str, Array]:
    """Values of the outputs of ``f`` (or of the tensors ``wanted``), from arrays for its inputs.

    Every operation is computed in float64 (integers exactly in int64). With ``rounded``, each tensor is then rounded
    to its own type, as memory holds it; without, float64 goes through. Values come back as float32 arrays where that
    holds them exactly, else float64, int64 or bool. Raises `OperationError` for a missing or wrongly shaped input and
    `IndexingError` for an index out of range.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.input("t", shape=(4,))
    >>> f.output(t + ig.roll(t, 1, 0)).name
    't2'
    >>> evaluate(f, {"t": np.arange(4.0)})["t2"].tolist()
    [3.0, 1.0, 3.0, 5.0]
    """
    at = bind(f, {n: np.shape(a) for n, a in inputs.items()}, symbols)
    names = tuple(wanted) if wanted is not None else tuple(t.name for t in f.outputs)
    needed = ancestors(f, names)
    known: dict[str, Array] = {}
    for t in f.inputs:
        if t in needed:
            known[t.name] = _input(t, inputs, at, rounded)
    last = {t: k for k, e in enumerate(f.exprs) if e.output in needed for t in e.inputs}
    for k, e in enumerate(f.exprs):
        if e.output not in needed:
            continue
        known[e.output.name] = evaluate_one(e, [known[t.name] for t in e.inputs], at, rounded)
        for t in dict.fromkeys(e.inputs):
            if last[t] == k and t.name not in names:
                del known[t.name]  # a real size holds a few tensors at a time, not all
    return {n: known[n] for n in names}


def ancestors(f: Fusion, names: Iterable[str]) -> set[Tensor]:
    """The tensors named and everything they are computed from."""
    needed = {f[n] for n in names}
    for e in reversed(f.exprs):
        if e.output in needed:
            needed.update(e.inputs)
    return needed


def _input(t: Tensor, inputs: Mapping[str, Array], symbols: Symbols, rounded: bool) -> Array:
    if t.name not in inputs:
        raise OperationError(f"no array for input {t.name}", hint=f'pass {{"{t.name}": array}}')
    x = np.asarray(inputs[t.name])
    wanted = shape_of(t, symbols)
    if x.shape != wanted:
        raise OperationError(f"input {t.name} has shape {wanted}, its array {x.shape}")
    return stored(x, t.dtype, rounded)


def evaluate_one(e: TensorExpr, operands: list[Array], symbols: Symbols, rounded: bool = True) -> Array:
    """The output of one operation from the kept values of its input tensors."""
    shape = shape_of(e.output, symbols)
    dtype = e.output.dtype
    if e.op == "eq" and "within" in e.attrs:  # an index beside the numbers of an axis
        check_index(operands[0], number(e.attrs["within"], symbols), e.op)
    if "covers" in e.attrs:
        check_rows(operands[1], operands[0], number(e.attrs["covers"], symbols))
    if e.op in POINTWISE:
        return evaluate_pointwise(e, operands, shape, rounded, symbols)
    if e.op in REDUCTIONS:
        x = operands[0]
        axes = tuple({d % x.ndim for d in numbers(e.attrs["dims"], symbols)}) if x.ndim else ()
        return stored(accumulate(e.op, x, axes, dtype, rounded), dtype, rounded).reshape(shape)
    if e.op in SCANNED:
        return stored(running(e.op, operands[0], numbers((e.attrs["dim"],), symbols)[0], dtype), dtype, rounded)
    if e.op == "matmul":
        wide = [x.astype(np.float64) if x.dtype.kind == "f" else x.astype(np.int64) for x in operands]
        return stored(np.matmul(wide[0], wide[1]), dtype, rounded)
    if e.op == "iota":
        counted = np.arange(shape[0], dtype=np.int64)
        start, step = e.attrs["start"], e.attrs["step"]
        if isinstance(start, (int, float)) and isinstance(step, (int, float)):
            return stored(start + step * counted, dtype, rounded)
    if e.op == "full":
        value = e.attrs["value"]
        if isinstance(value, (bool, int, float)):
            return np.broadcast_to(stored(np.asarray(value), dtype, rounded), shape)
    if e.op in SCATTERED:
        last = e.args[-1]
        src = operands[-1] if isinstance(last, Tensor) else stored(np.asarray(last), dtype, rounded)
        indices = [operands[k] for k in index_operands(e)]
        return stored(scatter(e.op, e.attrs, operands[0], indices, src), dtype, rounded)
    if e.op in ROWED:
        fill = e.attrs.get("value", 0)
        plain = fill if isinstance(fill, (bool, int, float)) else 0
        return stored(rows(e.op, e.attrs, operands, shape, stored(np.asarray(plain), dtype, rounded)), dtype, rounded)
    if e.op in MOVES:
        parts = [stored(x, dtype, rounded) for x in operands] if e.op in ("cat", "slice_scatter") else operands
        fill = e.attrs.get("value", 0)
        plain = fill if isinstance(fill, (bool, int, float)) else number(fill, symbols)
        return move(e.op, e.attrs, parts, symbols, stored(np.asarray(plain), dtype, rounded))
    raise OperationError(f"the oracle knows no operation {e.op!r}", where=e.source_line)


WRITTEN: Final = SCATTERED | {"combine"}
"""Operations whose points are not the elements of their output: values say which element each writes."""
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
    if e.op in ROWED:
        points = shape_of(e.inputs[0], at) if e.op == "combine" else shape
        return row_reads(e.op, e.attrs, k, ids, _row_ends(e, values), points)
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


def writes(e: TensorExpr, values: Mapping[str, Array] | None = None, symbols: Symbols | None = None) -> Array:
    """Element number of the output that each point of an operation of `WRITTEN` writes, -1 for none.

    The points are those of the index of a scatter, and the elements of the rows that are combined.
    """
    if e.op in SCATTERED:
        return reads(e, 0, values, symbols)
    at = dict(symbols or {})
    ids = element_numbers(e.output, at)
    return row_writes(e.attrs, ids, _row_ends(e, values), shape_of(e.inputs[0], at))


def _row_ends(e: TensorExpr, values: Mapping[str, Array] | None) -> list[Array]:
    known = values or {}
    return [known[t.name] for t in e.inputs[1:]]


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
