"""Random inputs for a fusion: values of its types, index tensors in range.

Index inputs that are legal in the program: elements that lead to an index out of range are drawn again.

An index may be computed from an input, by the user (``i + 2``) or by a rewrite (an index that was tested, and is -1
where it was out of range). The definitions of the operations tell which elements of an input are to blame.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from idgraph.errors import EmitError, IndexingError
from idgraph.ir import DType, Fusion, Tensor, TensorExpr, is_float
from idgraph.validate.memory_layout import free_strides, laid_out, layout_of
from idgraph.validate.oracle import INDEXED, SCATTERED, bind, evaluate, reads, shape_of, stored
from idgraph.validate.oracle.views import Array, number

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


MAX_ELEMENTS = 1 << 48


def index_limits(f: Fusion, symbols: Mapping[str, int]) -> dict[str, int]:
    """For each integer input that serves as an index, the smallest extent of an axis it points into.

    An integer tensor compared with an iota (a one-hot, as in scatter) points into the iota's axis; one that is checked
    where it is compared, into the axis that the comparison names.
    """
    sources: dict[Tensor, set[str]] = {t: {t.name} for t in f.inputs if not is_float(t.dtype) and t.dtype != "bool"}
    counted: dict[Tensor, int] = {}
    limits: dict[str, int] = {}

    def limit(t: Tensor, extent: int) -> None:
        for name in sources.get(t, ()):
            limits[name] = min(limits.get(name, extent), extent)

    for e in f.exprs:
        if e.op == "iota":
            counted[e.output] = number(e.attrs["n"], symbols)
        elif e.op in ("reshape", "unsqueeze", "expand", "copy") and e.inputs[0] in counted:
            counted[e.output] = counted[e.inputs[0]]
        if e.op in INDEXED or e.op in SCATTERED:
            source = INDEXED.get(e.op, 0)
            for axis, read in zip(e.inputs[source].axes, e.reads[source], strict=True):
                operand = getattr(read, "operand", None)
                if isinstance(operand, int):
                    limit(e.inputs[operand], number(axis.extent, symbols))
        if "within" in e.attrs:  # a rewritten scatter or gather still has the axis that its index points into
            limit(e.inputs[0], number(e.attrs["within"], symbols))
        if e.op == "eq" and len(e.inputs) == 2:
            for a, b in (e.inputs, e.inputs[::-1]):
                if b in counted:
                    limit(a, counted[b])
        if not is_float(e.output.dtype) and e.output.dtype != "bool":
            sources[e.output] = set().union(*(sources.get(t, set[str]()) for t in e.inputs))
    return limits


def _values(dtype: DType, shape: tuple[int, ...], limit: int | None, rng: np.random.Generator) -> Array:
    if dtype == "bool":
        return rng.integers(0, 2, shape, dtype=np.uint8).astype(np.bool_)
    if is_float(dtype):
        # Away from zero a wrong element is always a wrong value; both signs keep sums small.
        x = rng.random(shape, dtype=np.float32)
        x += np.float32(0.25)
        x *= np.where(rng.integers(0, 2, shape, dtype=np.uint8), np.float32(1), np.float32(-1))
        return x
    low, high = (0, limit) if limit is not None else (0 if dtype == "uint8" else -9, 10)
    return rng.integers(low, max(low + 1, high), shape, dtype=np.int64)


def random_inputs(
    f: Fusion, seed: int = 0, symbols: Mapping[str, int] | None = None
) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    """An array for each input, the same for the same seed, laid out with the input's strides and offset.

    Floats lie in ±[0.25, 1.25), indices in the range of the axes they point into. bfloat16 needs `ml_dtypes`.
    Extents that are symbols need ``symbols``.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(4, 5)), f.input("i", shape=(4, 1), dtype="int64")
    >>> f.output(ig.gather(x, 1, i)).shape
    (4, 1)
    >>> {n: (a.shape, str(a.dtype)) for n, a in random_inputs(f).items()}
    {'x': ((4, 5), 'float32'), 'i': ((4, 1), 'int64')}
    """
    rng = np.random.default_rng(seed)
    at = bind(f, {}, symbols)
    at |= free_strides(f, at)
    limits = index_limits(f, at)
    made: dict[str, np.ndarray[Any, np.dtype[Any]]] = {}
    for t in f.inputs:
        size = math.prod(max(n, 1) for n in shape_of(t, at))
        if size > MAX_ELEMENTS:
            raise EmitError(f"{t.name} has {size:.1e} elements: no machine holds its values", where=t.source_line)
        values = stored(_values(t.dtype, shape_of(t, at), limits.get(t.name), rng), t.dtype)
        made[t.name] = laid_out(values.astype(array_dtype(t.dtype)), layout_of(t, at))
    _make_offsets(f, made, at, rng)
    make_legal(f, made, at, rng)
    return made


def _make_offsets(f: Fusion, arrays: Mapping[str, Array], symbols: Mapping[str, int], rng: np.random.Generator) -> None:
    """Offsets of rows, where they are inputs: they begin at 0, never fall, and end at what the rows cover."""
    for e in f.exprs:
        made = e.inputs[0].definition if "covers" in e.attrs else None
        if made is None or made.inputs[0].name not in arrays or made.inputs[0].definition is not None:
            continue
        x = arrays[made.inputs[0].name]
        cover = number(e.attrs["covers"], symbols)
        x[...] = np.sort(rng.integers(0, cover + 1, x.shape)).astype(x.dtype)
        x[0], x[-1] = 0, cover


def array_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy type of arrays at the border; bfloat16 is ml_dtypes'."""
    if dtype == "bfloat16":
        import ml_dtypes  # noqa: PLC0415

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)
