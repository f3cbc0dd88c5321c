"""Index inputs that are legal in the program: elements that lead to an index out of range are drawn again.

An index may be computed from an input, by the user (``i + 2``) or by a rewrite (an index that was tested, and is -1
where it was out of range). The definitions of the operations tell which elements of an input are to blame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from idgraph.errors import IndexingError
from idgraph.ir import Fusion, Tensor, TensorExpr
from idgraph.validate.oracle import INDEXED, SCATTERED, evaluate, reads, shape_of
from idgraph.validate.oracle.moves import Array
from idgraph.validate.oracle.symbol_values import number

ROUNDS: Final = 200
WIDEST: Final = 10  # doublings of the numbers that are tried on both sides of 0


def index_uses(f: Fusion, symbols: Mapping[str, int]) -> Iterator[tuple[Tensor, int]]:
    """Index tensors in the order of their uses, with the extent of the axis that they point into."""
    for e in f.exprs:
        if e.op in INDEXED or e.op in SCATTERED:
            for axis, read in zip(e.inputs[INDEXED.get(e.op, 0)].axes, e.reads[INDEXED.get(e.op, 0)], strict=True):
                operand = getattr(read, "operand", None)
                if isinstance(operand, int):
                    yield e.inputs[operand], number(axis.extent, symbols)
        elif e.op == "eq" and "within" in e.attrs:
            yield e.inputs[0], number(e.attrs["within"], symbols)


def make_legal(f: Fusion, arrays: Mapping[str, Array], symbols: Mapping[str, int], rng: np.random.Generator) -> None:
    """Draw elements of integer inputs again, in place, until every computed index is in range.

    Legal values of other elements of the input are tried, then smaller numbers, and numbers farther from 0. Where none
    is legal, a run with the arrays raises the error that names the index.
    """
    uses = [(t, n) for t, n in index_uses(f, symbols) if t.definition is not None]
    named = {n: v for n, v in symbols.items() if n in f.symbols}
    for attempt in range(ROUNDS if uses else 0):
        blamed = next((b for t, n in uses if (b := _blamed(f, t, n, arrays, symbols, named))), None)
        if blamed is None:
            return
        for name, bad in blamed.items():
            x = arrays[name]
            good: Array = np.unique(x[~bad])
            top = int(good.max(initial=0)) if good.size else int(x.max(initial=0))
            again: Array
            match attempt % 3:
                case 0 if good.size:
                    again = rng.choice(good, x.shape)
                case 1:
                    again = rng.integers(0, (top >> (attempt // 6)) + 1, x.shape)
                case _:
                    reach = 4 << (attempt // 3 % WIDEST)
                    again = rng.integers(0 if x.dtype.kind == "u" else -reach, reach, x.shape)
            x[bad] = again.astype(x.dtype)[bad]


def _blamed(
    f: Fusion, t: Tensor, extent: int, arrays: Mapping[str, Array], symbols: Mapping[str, int], named: Mapping[str, int]
) -> dict[str, Array]:
    """For each integer input, the elements that an index out of range in ``t`` was made of; empty where it is legal."""
    try:
        values = evaluate(f, arrays, named, wanted=[t.name])[t.name]
    except IndexingError:
        return {}  # of an index before it, which comes first
    bad = (values < 0) | (values >= extent)
    if not bad.any():
        return {}
    marks: dict[Tensor, Array] = {t: bad}
    made = {e.output: e for e in f.exprs}
    for e in reversed(f.exprs):
        if e.output in marks:
            _back(f, e, marks, arrays, symbols, named)
    return {x.name: m for x, m in marks.items() if x not in made and x.dtype.startswith(("int", "uint")) and m.any()}


def _back(
    f: Fusion,
    e: TensorExpr,
    marks: dict[Tensor, Array],
    arrays: Mapping[str, Array],
    symbols: Mapping[str, int],
    named: Mapping[str, int],
) -> None:
    """Mark the elements of the operands of ``e`` that the marked ones of its output are made of."""
    bad = marks[e.output]
    loaded = [k for k in range(len(e.inputs)) if e.op in INDEXED and k != INDEXED[e.op]]
    values = evaluate(f, arrays, named, wanted=[e.inputs[k].name for k in loaded]) if loaded else {}
    axes = [d.kind == "reduction" for d in e.output.logical]
    wide = bad.reshape([1 if r else n for r, n in zip(axes, _spread(bad.shape, axes), strict=True)])
    for k, t in enumerate(e.inputs):
        mark = marks.setdefault(t, np.zeros(shape_of(t, symbols), np.bool_))
        if e.op in SCATTERED:
            mark[...] = True  # any of its writers
            continue
        numbers = reads(e, k, {n: np.asarray(v, np.int64) for n, v in values.items()}, symbols)
        chosen = numbers[np.broadcast_to(wide, numbers.shape) & (numbers >= 0)]
        mark.reshape(-1)[chosen] = True


def _spread(shape: tuple[int, ...], reduced: list[bool]) -> list[int]:
    rest = iter(shape)
    return [1 if r else next(rest) for r in reduced]
