"""The values of every tensor of a fusion, computed from the definitions of its operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from idgraph.errors import OperationError
from idgraph.ir import Fusion, Tensor, TensorExpr
from idgraph.ir.reduce import REDUCTIONS
from idgraph.validate.oracle.moves import MOVES, Array, check_index, move
from idgraph.validate.oracle.numbers import stored
from idgraph.validate.oracle.pointwise import POINTWISE, SCANNED, accumulate, evaluate_pointwise, running
from idgraph.validate.oracle.scatters import SCATTERED, index_operands, scatter
from idgraph.validate.oracle.symbol_values import Symbols, bind, number, numbers, shape_of


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
    if e.op in MOVES:
        parts = [stored(x, dtype, rounded) for x in operands] if e.op in ("cat", "slice_scatter") else operands
        fill = e.attrs.get("value", 0)
        plain = fill if isinstance(fill, (bool, int, float)) else number(fill, symbols)
        return move(e.op, e.attrs, parts, symbols, stored(np.asarray(plain), dtype, rounded))
    raise OperationError(f"the oracle knows no operation {e.op!r}", where=e.source_line)
